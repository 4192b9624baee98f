#include "core/quant/row_converter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>

#include "core/error.h"
#include "core/text/quoted.h"
#include "kernels/dequantise.h"
#include "kernels/encode.h"
#include "kernels/kernel_table.h"

namespace sluice::quant {
namespace {

using kernels::BlockType;

constexpr std::uint64_t piece_bytes = std::uint64_t{8} << 20;
constexpr float half_max = 65504;

bool has_exponent_of_float(BlockType type) {
  return type == BlockType::f32 || type == BlockType::bf16 || type == BlockType::mxfp4;
}

// Throws ModelError when a value is not finite, or when the format that it becomes cannot hold it.
void check_values(const Conversion& conversion, const std::vector<float>& values) {
  const float largest =
      kernels::kernel_table().encode.largest_magnitude(values.data(), values.size());
  if (!std::isfinite(largest)) {
    throw ModelError(fmt::format("tensor {} holds a value that is not finite: the model is damaged",
                                 text::quoted(conversion.name)));
  }
  if (largest > half_max && !has_exponent_of_float(conversion.to) && !conversion.is_copy()) {
    throw ModelError(fmt::format("tensor {} holds {}, more than {} can; choose F32 or BF16",
                                 text::quoted(conversion.name), largest,
                                 kernels::traits(conversion.to).name));
  }
}

void read_values(BlockType from, const std::byte* in, std::vector<float>& values) {
  if (from == BlockType::f16) {
    // Rows follow each other in a buffer of the heap, so their halves are aligned.
    kernels::kernel_table().encode.from_halves(reinterpret_cast<const std::uint16_t*>(in),
                                               values.size(), values.data());
  } else {
    kernels::dequantise(from, in, values.size(), values.data());
  }
}

}  // namespace

void RowConverter::convert_row(const Conversion& conversion, std::uint64_t row, const std::byte* in,
                               std::byte* out, std::vector<float>& values) const {
  values.resize(conversion.columns);
  read_values(conversion.from, in, values);
  if (conversion.change) conversion.change(row, values);
  check_values(conversion, values);
  if (conversion.is_copy()) {
    std::memcpy(out, in, kernels::row_bytes(conversion.to, conversion.columns));
    return;
  }
  const float* importance = nullptr;
  if (!conversion.importance.empty()) {
    const std::uint64_t matrices = conversion.importance.size() / conversion.columns;
    const std::uint64_t matrix =
        conversion.rows_per_matrix > 0 ? row / conversion.rows_per_matrix % matrices : 0;
    importance = conversion.importance.data() + matrix * conversion.columns;
  }
  kernels::encode(conversion.to, values.data(), values.size(), importance, out);
}

void RowConverter::convert(const Conversion& conversion, const ReadRows& read,
                           const gguf::Writer::Sink& sink) {
  const std::size_t row_in = kernels::row_bytes(conversion.from, conversion.columns);
  const std::size_t row_out = kernels::row_bytes(conversion.to, conversion.columns);
  const std::uint64_t piece = std::max<std::uint64_t>(1, piece_bytes / row_in);
  for (std::uint64_t first = 0; first < conversion.rows; first += piece) {
    const std::uint64_t count = std::min(piece, conversion.rows - first);
    input_.resize(count * row_in);
    read(first, count, input_);
    output_.resize(count * row_out);
    topology::for_each_part(team_, count,
                            [&](std::size_t member, std::size_t begin, std::size_t end) {
                              for (std::size_t i = begin; i < end; ++i) {
                                convert_row(conversion, first + i, input_.data() + i * row_in,
                                            output_.data() + i * row_out, scratch_[member]);
                              }
                            });
    sink(output_);
  }
}

}  // namespace sluice::quant
