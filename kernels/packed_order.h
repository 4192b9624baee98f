// The order of the bytes of a packed block (kernels/panel_packing.h), for the code that packs and
// the code that reads. Internal linkage: see matmul_driver.h.
#pragma once

#include <cstddef>

#include "kernels/block_formats.h"

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

// How a block is divided into 32-bit words and the odd bytes that are left: a half float, or the
// exponent of MXFP4.
struct BlockDivision {
  BlockType type;
  std::size_t bytes;

  constexpr std::size_t odd_bytes() const { return bytes % word_bytes; }
  constexpr std::size_t words() const { return bytes / word_bytes; }
  // The odd bytes stand at the end of a block, or at its beginning.
  constexpr bool is_odd_at_end() const {
    return type == BlockType::q3_k || type == BlockType::q6_k;
  }
  constexpr std::size_t odd_at() const { return is_odd_at_end() ? bytes - odd_bytes() : 0; }
  constexpr std::size_t words_at() const { return is_odd_at_end() ? 0 : odd_bytes(); }
  // How many blocks have odd bytes that fill a cache line, 16 rows together.
  constexpr std::size_t blocks_together() const {
    return odd_bytes() == 0 ? 1 : word_bytes / odd_bytes();
  }
  // Where the word stands in a packed block that is `at` bytes into the words of the file.
  constexpr std::size_t packed_at(std::size_t at) const {
    return type == BlockType::q6_k ? packed_q6_k(at) : at;
  }

  static constexpr std::size_t word_bytes = 4;
};

}  // namespace
}  // namespace sluice::kernels
