#include "core/model/synthetic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <numbers>
#include <span>
#include <string>

#include "core/model/random_blocks.h"
#include "core/model/synthetic_vocabulary.h"

namespace sluice::model {
namespace {

using kernels::BlockType;

constexpr std::uint64_t piece_bytes = 1 << 20;  // of weights made and written at a time
constexpr float quiet_factor = 1.0f / 64;

// Llama 3's scaling of RoPE: divisors of the frequencies, 1 for short wavelengths, `factor` for
// long ones, and a smooth passage between (the constants of the published 3.1 and 3.2 models).
std::vector<float> rope_factors(const SyntheticShape& shape) {
  constexpr double original_context = 8192;
  constexpr double long_wavelength = original_context / 1;
  constexpr double short_wavelength = original_context / 4;
  std::vector<float> factors(shape.head_dim / 2);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double exponent = 2 * static_cast<double>(i) / shape.head_dim;
    const double wavelength =
        2 * std::numbers::pi * std::pow(static_cast<double>(shape.rope_base), exponent);
    const double blend = (original_context / wavelength - 1) / (4 - 1);
    const double factor = shape.rope_scaling;
    if (wavelength < short_wavelength) {
      factors[i] = 1;
    } else if (wavelength > long_wavelength) {
      factors[i] = shape.rope_scaling;
    } else {
      factors[i] = static_cast<float>(1 / ((1 - blend) / factor + blend));
    }
  }
  return factors;
}

// The values of an F32 tensor that is no weight matrix.
std::vector<float> small_values(const SyntheticTensor& tensor, const SyntheticShape& shape,
                                Random& random) {
  if (tensor.fill == Fill::rope_factors) return rope_factors(shape);
  std::uint64_t count = 1;
  for (const std::uint64_t dim : tensor.dims) count *= dim;
  std::vector<float> values(count);
  for (float& value : values) {
    const float x = random.normal();
    if (tensor.fill == Fill::norm) value = 1.0f + 0.1f * x;
    if (tensor.fill == Fill::decay) value = -0.6f + 0.1f * x;
    if (tensor.fill == Fill::bias) value = tensor.scale * x;
  }
  return values;
}

// Makes `rows` rows of random weights and hands them over piece by piece.
void write_rows(BlockType type, std::uint64_t columns, std::uint64_t rows, float scale,
                Random& random, std::vector<std::byte>& buffer, const gguf::Writer::Sink& sink) {
  const std::uint64_t block_bytes = kernels::traits(type).bytes_per_block;
  const std::uint64_t piece = piece_bytes / block_bytes * block_bytes;
  std::uint64_t left = rows * kernels::row_bytes(type, columns);
  while (left > 0) {
    buffer.resize(std::min(left, piece));
    fill_random_blocks(type, buffer, scale, random);
    sink(buffer);
    left -= buffer.size();
  }
}

}  // namespace

SyntheticModel::SyntheticModel(std::string_view shape, std::string_view quant)
    : shape_(synthetic_shape(shape)),
      mix_(QuantMix::by_name(quant)),
      tensors_(synthetic_tensors(shape_)) {
  add_metadata();
  for (const SyntheticTensor& tensor : tensors_) {
    const bool is_matrix = tensor.fill == Fill::weights;
    types_.push_back(is_matrix ? mix_.type_for(tensor.place) : BlockType::f32);
    writer_.add_tensor(tensor.name, tensor.dims, static_cast<std::uint32_t>(types_.back()));
  }
}

void SyntheticModel::add_metadata() {
  writer_.add("general.architecture", shape_.architecture);
  writer_.add("general.name", fmt::format("{} with random weights", shape_.name));
  writer_.add("general.alignment", gguf::default_alignment);
  writer_.add("general.file_type", mix_.file_type());
  writer_.add("general.quantization_version", std::uint32_t{2});
  const auto key = [&](std::string_view name) {
    return fmt::format("{}.{}", shape_.architecture, name);
  };
  writer_.add(key("context_length"), shape_.context);
  writer_.add(key("embedding_length"), shape_.embedding);
  writer_.add(key("block_count"), shape_.layers);
  writer_.add(key("feed_forward_length"), shape_.feed_forward);
  writer_.add(key("attention.head_count"), shape_.heads);
  writer_.add(key("attention.head_count_kv"), shape_.kv_heads);
  writer_.add(key("attention.key_length"), shape_.head_dim);
  writer_.add(key("attention.value_length"), shape_.head_dim);
  writer_.add(key("attention.layer_norm_rms_epsilon"), shape_.norm_epsilon);
  writer_.add(key("rope.freq_base"), shape_.rope_base);
  writer_.add(key("vocab_size"), shape_.vocabulary);
  add_architecture_metadata();
  add_vocabulary();
}

void SyntheticModel::add_architecture_metadata() {
  if (shape_.architecture == "gemma2") {
    writer_.add("gemma2.attn_logit_softcapping", 50.0f);
    writer_.add("gemma2.final_logit_softcapping", 30.0f);
    writer_.add("gemma2.attention.sliding_window", std::uint32_t{4096});
  }
  if (shape_.architecture != "qwen35") {
    writer_.add(fmt::format("{}.rope.dimension_count", shape_.architecture), shape_.head_dim);
    return;
  }
  constexpr std::array<std::int32_t, 4> rope_sections = {11, 11, 10, 0};
  writer_.add("qwen35.rope.dimension_count", std::uint32_t{64});
  writer_.add_array("qwen35.rope.dimension_sections", std::span<const std::int32_t>(rope_sections));
  writer_.add("qwen35.full_attention_interval", DeltaNet::attention_interval);
  writer_.add("qwen35.ssm.conv_kernel", DeltaNet::convolution);
  writer_.add("qwen35.ssm.state_size", DeltaNet::state);
  writer_.add("qwen35.ssm.group_count", DeltaNet::key_heads);
  writer_.add("qwen35.ssm.time_step_rank", DeltaNet::value_heads);
  writer_.add("qwen35.ssm.inner_size", DeltaNet::inner);
}

void SyntheticModel::add_vocabulary() {
  const Vocabulary vocabulary = toy_vocabulary(shape_.vocabulary);
  writer_.add("tokenizer.ggml.model", "llama");
  writer_.add_array("tokenizer.ggml.tokens", std::span<const std::string>(vocabulary.tokens));
  writer_.add_array("tokenizer.ggml.scores", std::span<const float>(vocabulary.scores));
  writer_.add_array("tokenizer.ggml.token_type", std::span<const std::int32_t>(vocabulary.types));
  writer_.add("tokenizer.ggml.bos_token_id", begin_token);
  writer_.add("tokenizer.ggml.eos_token_id", end_token);
  writer_.add("tokenizer.ggml.unknown_token_id", unknown_token);
}

void SyntheticModel::write(const std::filesystem::path& path, std::uint64_t seed,
                           const Progress& progress) const {
  std::vector<std::byte> buffer;
  std::uint64_t done = 0;
  writer_.write(path, [&](std::size_t index, const gguf::Writer::Sink& file) {
    const SyntheticTensor& tensor = tensors_[index];
    Random random(seed, index);
    const auto sink = [&](std::span<const std::byte> piece) {
      file(piece);
      done += piece.size();
      if (progress) progress(done, data_bytes());
    };
    if (tensor.fill != Fill::weights) {
      return sink(std::as_bytes(std::span<const float>(small_values(tensor, shape_, random))));
    }
    const std::uint64_t columns = tensor.dims[0];
    const std::uint64_t rows = tensor.dims[1];
    const float scale = tensor.scale;
    write_rows(types_[index], columns, tensor.quiet_rows, scale * quiet_factor, random, buffer,
               sink);
    write_rows(types_[index], columns, rows - tensor.quiet_rows, scale, random, buffer, sink);
  });
}

}  // namespace sluice::model
