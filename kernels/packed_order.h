// How a block is divided for packing (kernels/panel_packing.h), for the code that packs and the
// code that reads. Internal linkage: see matmul_driver.h.
#pragma once

#include <cstddef>

#include "kernels/block_formats.h"

namespace sluice::kernels {
namespace {

template <typename Format>
constexpr std::size_t block_bytes = sizeof(typename Format::Block);

// A block is divided into 32-bit words and odd bytes, the remainder: a half float, or the exponent
// of MXFP4.
template <typename Format>
struct BlockDivision {
  static constexpr std::size_t word_bytes = 4;
  static constexpr std::size_t bytes = block_bytes<Format>;
  static constexpr std::size_t odd_bytes = bytes % word_bytes, words = bytes / word_bytes;
  // Whether the odd bytes are at the end of a block, not at its beginning.
  static constexpr bool is_odd_at_end = requires { Format::is_odd_at_end; };
  static constexpr std::size_t odd_at = is_odd_at_end ? bytes - odd_bytes : 0;
  static constexpr std::size_t words_at = is_odd_at_end ? 0 : odd_bytes;
  // How many blocks it takes until the odd bytes of 16 rows fill a cache line.
  static constexpr std::size_t blocks_together = odd_bytes == 0 ? 1 : word_bytes / odd_bytes;

  // The offset in the words of a packed block of the word at offset `at` in the words of the file.
  static constexpr std::size_t packed_at(std::size_t at) {
    if constexpr (requires { Format::packed_at(at); }) {
      return Format::packed_at(at);
    } else {
      return at;
    }
  }

  // A word as it is packed, or the words of several rows.
  template <typename Words>
  static Words packed_word(Words word) {
    if constexpr (requires { Format::packed_word(word); }) {
      return Format::packed_word(word);
    } else {
      return word;
    }
  }
};

}  // namespace
}  // namespace sluice::kernels
