#include "kernels/panel_packing.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>

#include "kernels/matmul.h"
#include "kernels/packed_order.h"

namespace sluice::kernels {
namespace {

// Copies one or two bytes with a constant size: a call of memcpy would cost more than the copy.
void copy_odd(std::byte* to, const std::byte* from, std::size_t bytes) {
  bytes == 2 ? std::memcpy(to, from, 2) : std::memcpy(to, from, 1);
}

// Packs the odd bytes of a block of 16 rows. Returns the end of what it wrote.
std::byte* pack_odd(const BlockDivision& d, std::size_t row_bytes, const std::byte* block,
                    std::byte* to) {
  for (std::size_t row = 0; row < panel_rows; ++row, to += d.odd_bytes()) {
    copy_odd(to, block + row * row_bytes + d.odd_at(), d.odd_bytes());
  }
  return to;
}

using Words = std::uint32_t __attribute__((vector_size(16)));  // four words of a row
constexpr std::size_t word_bytes = BlockDivision::word_bytes;

// Packs four words of each of 16 rows: the first words of all rows, then the second ones, and so
// on. Four rows at a time are transposed in registers.
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
      std::memcpy(to + (i * panel_rows + row) * word_bytes, &columns[i], sizeof(Words));
    }
  }
}

// Packs the words of a block of 16 rows; the packed order keeps four together. Returns the end of
// what it wrote.
std::byte* pack_words(const BlockDivision& d, std::size_t row_bytes, const std::byte* block,
                      std::byte* to) {
  const std::byte* const words = block + d.words_at();
  std::size_t at = 0;
  for (; at + sizeof(Words) <= d.words() * word_bytes; at += sizeof(Words)) {
    pack_four_words(row_bytes, words + at, to + d.packed_at(at) * panel_rows);
  }
  for (; at < d.words() * word_bytes; at += word_bytes) {
    std::byte* packed = to + d.packed_at(at) * panel_rows;
    for (std::size_t row = 0; row < panel_rows; ++row, packed += word_bytes) {
      std::memcpy(packed, words + at + row * row_bytes, word_bytes);
    }
  }
  return to + d.words() * panel_rows * word_bytes;
}

void pack_panel(const BlockDivision& d, std::size_t blocks, const std::byte* from, std::byte* to) {
  const std::size_t row_bytes = blocks * d.bytes;
  for (std::size_t b = 0; b < blocks; b += d.blocks_together()) {
    const std::byte* first = from + b * d.bytes;
    const std::byte* end = from + std::min(b + d.blocks_together(), blocks) * d.bytes;
    for (const std::byte* block = first; d.odd_bytes() > 0 && block < end; block += d.bytes) {
      to = pack_odd(d, row_bytes, block, to);
    }
    for (const std::byte* block = first; block < end; block += d.bytes) {
      to = pack_words(d, row_bytes, block, to);
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
  const BlockDivision d = {type, traits(type).bytes_per_block};
  const std::size_t panel_bytes = panel_rows * row_bytes(type, columns);
  for (std::size_t row = 0; row < rows; row += panel_rows) {
    switch (type) {
      case BlockType::f32:
        pack_elements<std::uint32_t>(columns, from, to);
        break;
      case BlockType::f16:
      case BlockType::bf16:
        pack_elements<std::uint16_t>(columns, from, to);
        break;
      default:
        pack_panel(d, columns / traits(type).elements_per_block, from, to);
    }
    from += panel_bytes;
    to += panel_bytes;
  }
}

}  // namespace sluice::kernels
