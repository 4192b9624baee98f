// The order of the words of a packed block (kernels/panel_packing.h), for the code that packs and
// the code that reads. Internal linkage: see matmul_driver.h.
#pragma once

#include <cstddef>

namespace sluice::kernels {
namespace {

// Where the word stands that is `at` bytes into a block of Q6_K (of one row): the scales first,
// then for each 16 bytes of qh the two times 16 bytes of ql that go with them. Read in this order a
// block is one stream.
constexpr std::size_t packed_q6_k(std::size_t at) {
  if (at >= 192) return at - 192;
  const bool is_high = at >= 128;
  const std::size_t in_half = is_high ? at % 32 : at % 64;
  const std::size_t half = is_high ? (at - 128) / 32 : at / 64;
  const std::size_t stage = 2 * half + in_half % 32 / 16;
  const std::size_t part = is_high ? 0 : 1 + in_half / 32;
  return 16 + 48 * stage + 16 * part + at % 16;
}

}  // namespace
}  // namespace sluice::kernels
