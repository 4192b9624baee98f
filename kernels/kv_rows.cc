#include "kernels/kv_rows.h"

#include <algorithm>

#include "kernels/attention.h"
#include "kernels/dequantise.h"

namespace sluice::kernels {

std::size_t first_half(std::size_t size) {
  return std::min((size + 31) / 32 * 16, size);
}

std::size_t fine_bits(std::size_t size) {
  return std::min<std::size_t>(16 / size, 8);
}

RowPlace contiguous_place(std::size_t size, std::size_t offset) {
  const std::size_t half = first_half(size);
  return {half, {offset, offset + half}, 4, 1};
}

RowPlace key_place(std::size_t size, std::size_t position) {
  if (size <= short_row_max) return contiguous_place(size, position * size);
  return parted_key_place(first_half(size), position);
}

RowPlace parted_key_place(std::size_t first_part, std::size_t position) {
  constexpr std::size_t group = 4 * kv_page_positions;
  return {first_part, {4 * position, first_part / 4 * group + 4 * position}, group, 1};
}

RowPlace value_place(std::size_t size, std::size_t position) {
  if (size <= short_row_max) return contiguous_place(size, position * size);
  const std::size_t half = first_half(size), in_group = position % 4;
  const std::size_t before = position / 4 * 4;  // positions
  return {half,
          {before * half + in_group, kv_page_positions * half + before * (size - half) + in_group},
          16,
          4};
}

std::size_t key_page_bytes(std::size_t size) {
  return (size > short_row_max ? (size + 3) / 4 * 4 : size) * kv_page_positions;
}

std::size_t value_page_bytes(std::size_t size) {
  return size * kv_page_positions;
}

void dequantise_row(const std::int8_t* page, const RowPlace& place, std::size_t size,
                    const std::uint16_t* scales, std::size_t scale_stride, float* out) {
  const float first = half_to_float(scales[0]);
  if (size > short_row_max) {
    const float second = half_to_float(scales[scale_stride]);
    for (std::size_t i = 0; i < size; ++i) {
      out[i] = (i < place.first_half ? first : second) * page[place.at(i)];
    }
    return;
  }
  const std::size_t bits = fine_bits(size);
  const int steps = 1 << bits;
  for (std::size_t i = 0; i < size; ++i) {
    const int fine = (scales[scale_stride] >> (i * bits)) & (steps - 1);
    out[i] =
        first * (static_cast<float>(page[place.at(i)] * steps + fine) / static_cast<float>(steps));
  }
}

std::size_t attention_scratch(std::size_t positions, std::size_t runs, std::size_t head_dim) {
  const std::size_t words = (head_dim + 15) / 16 * 16;
  return std::max(positions, runs * kv_page_positions + words / 2 + 2);
}

std::size_t hadamard_block(std::size_t size) {
  return std::min(size & (~size + 1), hadamard_block_max);  // the lowest bit that is set
}

}  // namespace sluice::kernels
