#include "core/gguf/tensor_type.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "kernels/block_formats.h"

namespace sluice::gguf {
namespace {

struct SizedType {
  std::uint32_t type;
  TypeLayout layout;
};

// The types beyond those of kernels/block_formats.h.
constexpr SizedType sized_only[] = {
    {9, {32, 36}},     // Q8_1
    {15, {256, 292}},  // Q8_K
    {24, {1, 1}},      // I8
    {25, {1, 2}},      // I16
    {26, {1, 4}},      // I32
    {27, {1, 8}},      // I64
    {28, {1, 8}},      // F64
};

}  // namespace

std::optional<TypeLayout> find_type_layout(std::uint32_t type) {
  if (const auto traits = kernels::find_block_type(type)) {
    return TypeLayout{traits->elements_per_block, traits->bytes_per_block};
  }
  const auto* at = std::find_if(std::begin(sized_only), std::end(sized_only),
                                [&](const SizedType& sized) { return sized.type == type; });
  if (at == std::end(sized_only)) return std::nullopt;
  return at->layout;
}

bool is_removed_type(std::uint32_t type) {
  return type == 4 || type == 5 || (type >= 31 && type <= 33) || (type >= 36 && type <= 38);
}

std::optional<std::uint64_t> checked_multiply(std::uint64_t a, std::uint64_t b) {
  if (b != 0 && a > std::numeric_limits<std::uint64_t>::max() / b) return std::nullopt;
  return a * b;
}

std::optional<std::uint64_t> tensor_bytes(const TypeLayout& layout, std::uint64_t columns,
                                          std::uint64_t rows) {
  const auto row = checked_multiply(columns / layout.elements_per_block, layout.bytes_per_block);
  return row ? checked_multiply(*row, rows) : std::nullopt;
}

}  // namespace sluice::gguf
