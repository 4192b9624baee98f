// The order of the bytes of a packed block (kernels/panel_packing.h), for the code that packs and
// the code that reads. Internal linkage: see matmul_driver.h.
#pragma once

#include <cstddef>

#include "kernels/block_formats.h"

namespace sluice::kernels {
namespace {

// Where in a packed block of Q6_K the word lies that is `at` bytes into the block of a row. The
// packed order is: the scales, then for each 16 bytes of qh these and the two times 16 bytes of ql
// that belong to them. So the kernels read a block as one stream.
constexpr std::size_t packed_q6_k(std::size_t at) {
  if (at >= 192) return at - 192;
  const bool is_high = at >= 128;
  const std::size_t in_half = is_high ? at % 32 : at % 64;
  const std::size_t half = is_high ? (at - 128) / 32 : at / 64;
  const std::size_t stage = 2 * half + in_half % 32 / 16;
  const std::size_t part = is_high ? 0 : 1 + in_half / 32;
  return 16 + 48 * stage + 16 * part + at % 16;
}

// How a block is divided into 32-bit words and odd bytes, the remainder: a half float, or the
// exponent of MXFP4.
struct BlockDivision {
  BlockType type;
  std::size_t bytes;

  constexpr std::size_t odd_bytes() const { return bytes % word_bytes; }
  constexpr std::size_t words() const { return bytes / word_bytes; }
  // Whether the odd bytes are at the end of a block, not at its beginning.
  constexpr bool is_odd_at_end() const {
    return type == BlockType::q3_k || type == BlockType::q6_k;
  }
  constexpr std::size_t odd_at() const { return is_odd_at_end() ? bytes - odd_bytes() : 0; }
  constexpr std::size_t words_at() const { return is_odd_at_end() ? 0 : odd_bytes(); }
  // How many blocks it takes until the odd bytes of 16 rows fill a cache line.
  constexpr std::size_t blocks_together() const {
    return odd_bytes() == 0 ? 1 : word_bytes / odd_bytes();
  }
  // The offset in the words of a packed block of the word at offset `at` in the words of the file.
  constexpr std::size_t packed_at(std::size_t at) const {
    return type == BlockType::q6_k ? packed_q6_k(at) : at;
  }

  static constexpr std::size_t word_bytes = 4;
};

}  // namespace
}  // namespace sluice::kernels
