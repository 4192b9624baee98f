#include "kernels/panel_packing.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>

#include "kernels/formats/all.h"
#include "kernels/matmul.h"
#include "kernels/packed_order.h"

namespace sluice::kernels {
namespace {

// Packs the odd bytes of a block of 16 rows. Returns the end of what it wrote.
template <typename D>
std::byte* pack_odd(std::size_t row_bytes, const std::byte* block, std::byte* to) {
  for (std::size_t row = 0; row < panel_rows; ++row, to += D::odd_bytes) {
    std::memcpy(to, block + row * row_bytes + D::odd_at, D::odd_bytes);
  }
  return to;
}

using Words = std::uint32_t __attribute__((vector_size(16)));  // four words of a row
constexpr std::size_t word_bytes = sizeof(std::uint32_t);

// Packs four words of each of 16 rows: the first words of all rows, then the second ones, and so
// on. Four rows at a time are transposed in registers.
template <typename D>
void pack_four_words(std::size_t row_bytes, const std::byte* from, std::byte* to) {
  for (std::size_t row = 0; row < panel_rows; row += 4) {
    Words r[4];
    for (std::size_t i = 0; i < 4; ++i) {
      std::memcpy(&r[i], from + (row + i) * row_bytes, sizeof(Words));
    }
    const Words low01 = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
    const Words low23 = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
    const Words high01 = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
    const Words high23 = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
    const Words columns[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                              __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                              __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                              __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
    for (std::size_t i = 0; i < 4; ++i) {
      const Words packed = D::packed_word(columns[i]);
      std::memcpy(to + (i * panel_rows + row) * word_bytes, &packed, sizeof(Words));
    }
  }
}

// Packs the words of a block of 16 rows; the packed order keeps four together. Returns the end of
// what it wrote.
template <typename D>
std::byte* pack_words(std::size_t row_bytes, const std::byte* block, std::byte* to) {
  const std::byte* const words = block + D::words_at;
  std::size_t at = 0;
  for (; at + sizeof(Words) <= D::words * word_bytes; at += sizeof(Words)) {
    pack_four_words<D>(row_bytes, words + at, to + D::packed_at(at) * panel_rows);
  }
  for (; at < D::words * word_bytes; at += word_bytes) {
    std::byte* packed = to + D::packed_at(at) * panel_rows;
    for (std::size_t row = 0; row < panel_rows; ++row, packed += word_bytes) {
      std::uint32_t word = 0;
      std::memcpy(&word, words + at + row * row_bytes, word_bytes);
      word = D::packed_word(word);
      std::memcpy(packed, &word, word_bytes);
    }
  }
  return to + D::words * panel_rows * word_bytes;
}

template <typename D>
void pack_panel(std::size_t blocks, const std::byte* from, std::byte* to) {
  const std::size_t row_bytes = blocks * D::bytes;
  for (std::size_t b = 0; b < blocks; b += D::blocks_together) {
    const std::byte* first = from + b * D::bytes;
    const std::byte* end = from + std::min(b + D::blocks_together, blocks) * D::bytes;
    for (const std::byte* block = first; D::odd_bytes > 0 && block < end; block += D::bytes) {
      to = pack_odd<D>(row_bytes, block, to);
    }
    for (const std::byte* block = first; block < end; block += D::bytes) {
      to = pack_words<D>(row_bytes, block, to);
    }
  }
}

// Packs float elements as [columns][16 rows]. Rows are read in whole cache lines: if their length
// is a power of two, their lines compete for a few places in the first-level cache.
template <typename Element>
void pack_elements(std::size_t columns, const std::byte* from, std::byte* to) {
  constexpr std::size_t at_once = 64 / sizeof(Element);
  for (std::size_t k = 0; k < columns; k += at_once) {
    const std::size_t count = std::min(at_once, columns - k);
    Element tile[panel_rows][at_once];
    for (std::size_t row = 0; row < panel_rows; ++row) {
      std::memcpy(tile[row], from + (row * columns + k) * sizeof(Element), count * sizeof(Element));
    }
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t row = 0; row < panel_rows; ++row, to += sizeof(Element)) {
        std::memcpy(to, &tile[row][i], sizeof(Element));
      }
    }
  }
}

}  // namespace

bool can_pack(std::size_t rows) {
  return rows != 0 && rows % panel_rows == 0;
}

void pack_panels(BlockType type, std::size_t rows, std::size_t columns, const std::byte* from,
                 std::byte* to) {
  assert(can_pack(rows));
  const std::size_t panel_bytes = panel_rows * row_bytes(type, columns);
  visit_format(type, [&]<typename Format>(Format) {
    for (std::size_t at = 0; at < rows / panel_rows * panel_bytes; at += panel_bytes) {
      if constexpr (is_float<Format>) {
        pack_elements<typename Format::Block>(columns, from + at, to + at);
      } else {
        pack_panel<BlockDivision<Format>>(columns / Format::weights, from + at, to + at);
      }
    }
  });
}

}  // namespace sluice::kernels
