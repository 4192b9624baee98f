#include "core/quant/row_converter.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>

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
// Just below the value midway between the largest BF16 and infinity, to which it is rounded.
constexpr float bf16_max = std::bit_cast<float>(0x7F7F7FFFu);

// The largest magnitude that a format holds.
float largest_in(BlockType type) {
  switch (type) {
    case BlockType::f32:
    case BlockType::mxfp4:
      return std::numeric_limits<float>::max();
    case BlockType::bf16:
      return bf16_max;
    case BlockType::nvfp4:
      return kernels::largest_nvfp4;
    default:
      return half_max;
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

void RowConverter::read_row(const Conversion& conversion, std::uint64_t row, const std::byte* in,
                            std::vector<float>& values) {
  values.resize(conversion.columns);
  read_values(conversion.from, in, values);
  if (conversion.change) conversion.change(row, values);
}

void RowConverter::check_values(const Conversion& conversion, const std::vector<float>& values) {
  const float largest =
      kernels::kernel_table().encode.largest_magnitude(values.data(), values.size());
  if (!std::isfinite(largest)) {
    throw ModelError(fmt::format("tensor {} holds a value that is not finite: the model is damaged",
                                 text::quoted(conversion.name)));
  }
  if (largest > largest_in(conversion.to) && !conversion.is_copy()) {
    throw ModelError(fmt::format(
        "tensor {} holds {}, more than {} can; choose {}", text::quoted(conversion.name), largest,
        kernels::traits(conversion.to).name, largest > bf16_max ? "F32" : "F32 or BF16"));
  }
}

void RowConverter::convert_row(const Conversion& conversion, std::uint64_t row, const std::byte* in,
                               std::byte* out, std::vector<float>& values) const {
  read_row(conversion, row, in, values);
  check_values(conversion, values);
  if (conversion.is_copy()) {
    std::memcpy(out, in, kernels::row_bytes(conversion.to, conversion.columns));
    return;
  }
  kernels::encode(conversion.to, values.data(), values.size(), conversion.importance_of(row), out);
}

template <typename F>
void RowConverter::for_each_piece(const Conversion& conversion, const ReadRows& read, F&& f) {
  const std::size_t row_in = kernels::row_bytes(conversion.from, conversion.columns);
  const std::uint64_t piece = std::max<std::uint64_t>(1, piece_bytes / row_in);
  for (std::uint64_t first = 0; first < conversion.rows; first += piece) {
    const std::uint64_t count = std::min(piece, conversion.rows - first);
    input_.resize(count * row_in);
    read(first, count, input_);
    f(first, count);
  }
}

std::vector<float> RowConverter::largest_magnitudes(const Conversion& conversion,
                                                    const ReadRows& read) {
  const std::size_t row_in = kernels::row_bytes(conversion.from, conversion.columns);
  std::vector<float> of_matrices(conversion.matrix_of(conversion.rows - 1) + 1, 0.0f), of_rows;
  for_each_piece(conversion, read, [&](std::uint64_t first, std::uint64_t count) {
    of_rows.resize(count);
    topology::for_each_part(
        team_, count, [&](std::size_t member, std::size_t begin, std::size_t end) {
          std::vector<float>& values = scratch_[member];
          for (std::size_t i = begin; i < end; ++i) {
            read_row(conversion, first + i, input_.data() + i * row_in, values);
            of_rows[i] =
                kernels::kernel_table().encode.largest_magnitude(values.data(), values.size());
          }
        });
    for (std::uint64_t i = 0; i < count; ++i) {
      float& largest = of_matrices[conversion.matrix_of(first + i)];
      if (!(of_rows[i] <= largest) && !std::isnan(largest)) largest = of_rows[i];
    }
  });
  return of_matrices;
}

void RowConverter::convert(const Conversion& conversion, const ReadRows& read,
                           const gguf::Writer::Sink& sink) {
  const std::size_t row_in = kernels::row_bytes(conversion.from, conversion.columns);
  const std::size_t row_out = kernels::row_bytes(conversion.to, conversion.columns);
  for_each_piece(conversion, read, [&](std::uint64_t first, std::uint64_t count) {
    output_.resize(count * row_out);
    topology::for_each_part(team_, count,
                            [&](std::size_t member, std::size_t begin, std::size_t end) {
                              for (std::size_t i = begin; i < end; ++i) {
                                convert_row(conversion, first + i, input_.data() + i * row_in,
                                            output_.data() + i * row_out, scratch_[member]);
                              }
                            });
    sink(output_);
  });
}

}  // namespace sluice::quant
