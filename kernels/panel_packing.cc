#include "kernels/panel_packing.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/matmul.h"
#include "kernels/packed_order.h"

namespace sluice::kernels {
namespace {

constexpr std::size_t word_bytes = 4, half_bytes = 2;

// How a block is divided: a half float at `half_at`, if it has one apart, and words.
struct BlockDivision {
  BlockType type;
  std::size_t block_bytes;
  bool has_half;
  std::size_t half_at;

  std::size_t words() const { return block_bytes / word_bytes; }
  // Where word i of a block stands in the file, and as which it stands in a packed block.
  std::size_t word_at(std::size_t i) const {
    return i * word_bytes + (has_half && half_at == 0 ? half_bytes : 0);
  }
  std::size_t packed_word(std::size_t i) const {
    return type == BlockType::q6_k ? packed_q6_k(i * word_bytes) / word_bytes : i;
  }
};

BlockDivision division(BlockType type) {
  const std::size_t bytes = traits(type).bytes_per_block;
  const bool has_half = bytes % word_bytes != 0;
  return {type, bytes, has_half, type == BlockType::q6_k ? bytes - half_bytes : 0};
}

// The half floats of a block of 16 rows. Returns the end of what it wrote.
std::byte* pack_halves(const BlockDivision& d, std::size_t row_bytes, const std::byte* block,
                       std::byte* to) {
  for (std::size_t row = 0; row < panel_rows; ++row, to += half_bytes) {
    std::memcpy(to, block + row * row_bytes + d.half_at, half_bytes);
  }
  return to;
}

// The words of a block of 16 rows.
std::byte* pack_words(const BlockDivision& d, std::size_t row_bytes, const std::byte* block,
                      std::byte* to) {
  for (std::size_t i = 0; i < d.words(); ++i) {
    const std::byte* word = block + d.word_at(i);
    std::byte* packed = to + d.packed_word(i) * panel_rows * word_bytes;
    for (std::size_t row = 0; row < panel_rows; ++row, packed += word_bytes) {
      std::memcpy(packed, word + row * row_bytes, word_bytes);
    }
  }
  return to + d.words() * panel_rows * word_bytes;
}

void pack_panel(const BlockDivision& d, std::size_t blocks, const std::byte* from, std::byte* to) {
  const std::size_t row_bytes = blocks * d.block_bytes;
  const std::size_t together = d.has_half ? 2 : 1;
  for (std::size_t b = 0; b < blocks; b += together) {
    const std::byte* first = from + b * d.block_bytes;
    const std::byte* end = from + std::min(b + together, blocks) * d.block_bytes;
    for (const std::byte* block = first; d.has_half && block < end; block += d.block_bytes) {
      to = pack_halves(d, row_bytes, block, to);
    }
    for (const std::byte* block = first; block < end; block += d.block_bytes) {
      to = pack_words(d, row_bytes, block, to);
    }
  }
}

}  // namespace

bool can_pack(BlockType type, std::size_t rows) {
  return activation_form(type) != ActivationForm::f32 && rows != 0 && rows % panel_rows == 0;
}

void pack_panels(BlockType type, std::size_t rows, std::size_t columns, const std::byte* from,
                 std::byte* to) {
  assert(can_pack(type, rows));
  const BlockDivision d = division(type);
  const std::size_t blocks = columns / traits(type).elements_per_block;
  const std::size_t panel_bytes = panel_rows * blocks * d.block_bytes;
  for (std::size_t row = 0; row < rows; row += panel_rows) {
    pack_panel(d, blocks, from, to);
    from += panel_bytes;
    to += panel_bytes;
  }
}

}  // namespace sluice::kernels
