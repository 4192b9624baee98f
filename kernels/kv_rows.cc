#include "kernels/kv_rows.h"

#include <algorithm>

#include "kernels/dequantise.h"

namespace sluice::kernels {

std::size_t first_half(std::size_t size) {
  return std::min((size + 31) / 32 * 16, size);
}

std::size_t fine_bits(std::size_t size) {
  return std::min<std::size_t>(16 / size, 8);
}

void dequantise_row(const std::int8_t* q, std::size_t size, const std::uint16_t* scales,
                    std::size_t scale_stride, float* out) {
  const float first = half_to_float(scales[0]);
  if (size > short_row_max) {
    const float second = half_to_float(scales[scale_stride]);
    const std::size_t half = first_half(size);
    for (std::size_t i = 0; i < size; ++i) out[i] = (i < half ? first : second) * q[i];
    return;
  }
  const std::size_t bits = fine_bits(size);
  const int steps = 1 << bits;
  for (std::size_t i = 0; i < size; ++i) {
    const int fine = (scales[scale_stride] >> (i * bits)) & (steps - 1);
    out[i] = first * (static_cast<float>(q[i] * steps + fine) / static_cast<float>(steps));
  }
}

std::size_t hadamard_block(std::size_t size) {
  return std::min(size & (~size + 1), hadamard_block_max);  // the lowest bit that is set
}

}  // namespace sluice::kernels
