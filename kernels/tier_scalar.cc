// The lanes come first: the operations are written in terms of them.
// clang-format off
#include "kernels/lanes_scalar.h"
#include "kernels/operations_impl.h"
// clang-format on

namespace sluice::kernels {
namespace {

// Eight sums at a time, one multiplication and one addition each.
std::uint64_t int8_macs(std::uint64_t rounds) {
  constexpr int width = 8;
  std::int32_t sums[width] = {};
  volatile std::int8_t source = 3;  // the compiler must not know the factors
  const std::int8_t factor = source;
  for (std::uint64_t r = 0; r < rounds; ++r) {
    for (int i = 0; i < width; ++i) {
      sums[i] = (sums[i] + factor * static_cast<std::int8_t>(r + i)) & 0xffffff;
    }
  }
  volatile std::int32_t sink = 0;
  for (const std::int32_t sum : sums) sink = sink ^ sum;
  return rounds * width;
}

}  // namespace

void fill_scalar(KernelTable& table) {
  fill_operations(table);
  fill_matmul_scalar(table.matmul);
  table.peak.int8_macs = int8_macs;
}

}  // namespace sluice::kernels
