#include "core/synth/synthetic_model.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>
#include <utility>

#include "core/files/durable_file.h"
#include "core/quant/tensor_types.h"
#include "core/synth/metadata.h"
#include "core/synth/random_blocks.h"
#include "kernels/dequantise.h"

namespace sluice::synth {
namespace {

using kernels::BlockType;
using Stored = SyntheticModel::Stored;

constexpr std::uint64_t piece_bytes = 1 << 20;  // of weights made and written at a time
constexpr float quiet_factor = 1.0f / 64;

// Llama 3's scaling of RoPE: divisors of the frequencies, 1 for short wavelengths, `factor` for
// long ones, and a smooth passage between (the constants of the published 3.1 and 3.2 models).
std::vector<float> llama3_factors(const Shape& shape) {
  constexpr double original_context = 8192;
  constexpr double long_wavelength = original_context / 1;
  constexpr double short_wavelength = original_context / 4;
  std::vector<float> factors(shape.heads.size / 2);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double exponent = 2 * static_cast<double>(i) / shape.heads.size;
    const double wavelength =
        2 * std::numbers::pi * std::pow(static_cast<double>(shape.rope.base), exponent);
    const double blend = (original_context / wavelength - 1) / (4 - 1);
    const double factor = shape.rope.llama3;
    if (wavelength < short_wavelength) {
      factors[i] = 1;
    } else if (wavelength > long_wavelength) {
      factors[i] = shape.rope.llama3;
    } else {
      factors[i] = static_cast<float>(1 / ((1 - blend) / factor + blend));
    }
  }
  return factors;
}

// Values that rise from 1 to `last`, as those of longrope do.
std::vector<float> rising_factors(std::uint64_t count, float last) {
  std::vector<float> factors(count);
  for (std::size_t i = 0; i < count; ++i) {
    const float place = static_cast<float>(i) / static_cast<float>(count);
    factors[i] = 1 + (last - 1) * place * place;
  }
  return factors;
}

std::vector<float> router_values(const Tensor& tensor, Random& random) {
  std::vector<float> values(tensor.elements());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool is_common = i % tensor.dims[0] < tensor.common_columns;
    values[i] = (is_common ? tensor.common_deviation : tensor.deviation) * random.normal();
  }
  return values;
}

// The values of an F32 tensor that is no weight matrix.
std::vector<float> small_values(const Tensor& tensor, const Shape& shape, Random& random) {
  std::vector<float> values(tensor.elements());
  switch (tensor.fill) {
    case Fill::llama3_factors:
      return llama3_factors(shape);
    case Fill::short_factors:
      return rising_factors(values.size(), 1.5f);
    case Fill::long_factors:
      return rising_factors(values.size(), 40.0f);
    case Fill::proportional_factors:
      std::fill(values.begin(), values.end(), 1e30f);
      std::fill_n(values.begin(), values.size() / 4, 1.0f);
      return values;
    case Fill::router:
      return router_values(tensor, random);
    default:
      for (float& value : values) value = tensor.mean + tensor.deviation * random.normal();
      return values;
  }
}

// Makes rows of random weights and hands them over piece by piece.
class RowMaker {
 public:
  RowMaker(BlockType type, Stored stored, Random& random, const gguf::Writer::Sink& sink)
      : type_(type), stored_(stored), random_(random), sink_(sink) {}

  // Lets the first columns of all rows that follow have the same weights; whole blocks.
  void set_common(std::uint64_t columns, float deviation) {
    common_.resize(kernels::row_bytes(type_, columns));
    fill_random_blocks(type_, common_, deviation, random_);
  }

  void make(std::uint64_t columns, std::uint64_t rows, float deviation) {
    const kernels::BlockTraits& block = kernels::traits(type_);
    const std::uint64_t row = kernels::row_bytes(type_, columns);
    const std::uint64_t unit = common_.empty() ? block.bytes_per_block : row;
    const std::uint64_t piece = std::max<std::uint64_t>(1, piece_bytes / unit) * unit;
    std::uint64_t left = rows * row;
    while (left > 0) {
      buffer_.resize(std::min(left, piece));
      fill_random_blocks(type_, buffer_, deviation, random_);
      if (!common_.empty()) {
        for (std::uint64_t at = 0; at < buffer_.size(); at += row) {
          std::ranges::copy(common_, buffer_.data() + at);
        }
      }
      if (stored_ == Stored::as_quantised) {
        sink_(buffer_);
      } else {
        values_.resize(buffer_.size() / block.bytes_per_block * block.elements_per_block);
        kernels::dequantise(type_, buffer_.data(), values_.size(), values_.data());
        sink_(std::as_bytes(std::span<const float>(values_)));
      }
      left -= buffer_.size();
    }
  }

 private:
  BlockType type_;
  Stored stored_;
  Random& random_;
  const gguf::Writer::Sink& sink_;
  std::vector<std::byte> common_;
  std::vector<std::byte> buffer_;
  std::vector<float> values_;
};

}  // namespace

SyntheticModel::SyntheticModel(std::string_view shape, std::string_view quant)
    : SyntheticModel(shape_by_name(shape), quant) {}

SyntheticModel::SyntheticModel(Shape shape, std::string_view quant, Stored stored)
    : shape_(std::move(shape)),
      mix_(quant::QuantMix::by_name(quant)),
      stored_(stored),
      tensors_(tensors_of(shape_)) {
  add_metadata(shape_, writer_);
  const bool is_twin = stored_ == Stored::as_twin;
  writer_.add("general.file_type", is_twin ? std::uint32_t{0} : mix_.file_type());
  writer_.add("general.quantization_version", std::uint32_t{2});
  for (const Tensor& tensor : tensors_) {
    const quant::NamedShape named{tensor.name, static_cast<std::uint32_t>(tensor.dims.size()),
                                  tensor.dims[0]};
    const bool changes =
        tensor.fill == Fill::matrix &&
        (quant::is_quantised(named) || tensor.place.role == quant::TensorRole::side_projection);
    types_.push_back(changes ? mix_.type_for(tensor.place) : BlockType::f32);
    const BlockType stored_type = is_twin ? BlockType::f32 : types_.back();
    writer_.add_tensor(tensor.name, tensor.dims, static_cast<std::uint32_t>(stored_type));
  }
}

void SyntheticModel::write(const std::filesystem::path& path, std::uint64_t seed,
                           const Progress& progress) const {
  std::uint64_t done = 0;
  writer_.write(path, [&](std::size_t index, const gguf::Writer::Sink& file) {
    const Tensor& tensor = tensors_[index];
    Random random(seed, index);
    const gguf::Writer::Sink sink = [&](std::span<const std::byte> piece) {
      file(piece);
      done += piece.size();
      if (progress) progress(done, data_bytes());
    };
    if (tensor.fill != Fill::matrix) {
      return sink(std::as_bytes(std::span<const float>(small_values(tensor, shape_, random))));
    }
    const std::uint64_t columns = tensor.dims[0];
    const std::uint64_t rows = tensor.elements() / columns;
    RowMaker maker(types_[index], stored_, random, sink);
    if (tensor.common_columns > 0) maker.set_common(tensor.common_columns, tensor.deviation);
    maker.make(columns, tensor.quiet_rows, tensor.deviation * quiet_factor);
    maker.make(columns, rows - tensor.quiet_rows, tensor.deviation);
  });
}

void SyntheticModel::write_header(const std::filesystem::path& path) const {
  constexpr std::byte last{0};
  files::DurableFile file(path, {.named_by = files::NamedBy::user});
  file.write(header());
  file.write_at(file_bytes() - 1, {&last, 1});
  file.commit();
}

}  // namespace sluice::synth
