#include "kernels/block_formats.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "kernels/formats/all.h"

namespace sluice::kernels {
namespace {

template <typename Format>
constexpr BlockTraits traits_of = {
    Format::type,
    Format::name,
    static_cast<std::uint32_t>(Format::weights),
    static_cast<std::uint32_t>(sizeof(typename Format::Block)),
    form_of<Format>(),
    Format::fallback,
    Format::file_type,
    Format::can_encode,
};

template <typename... Format>
constexpr std::array<BlockTraits, sizeof...(Format)> list_traits(FormatList<Format...>) {
  return {traits_of<Format>...};
}

constexpr std::array<BlockTraits, Formats::size> supported = list_traits(Formats{});

struct UnsupportedType {
  std::uint32_t id;
  std::string_view name;
};

// Types of GGUF files that sluice cannot compute with.
constexpr UnsupportedType unsupported[] = {
    {9, "Q8_1"}, {15, "Q8_K"}, {24, "I8"}, {25, "I16"}, {26, "I32"}, {27, "I64"}, {28, "F64"},
};

const BlockTraits* find(std::uint32_t id) {
  const auto found = std::find_if(supported.begin(), supported.end(), [id](const BlockTraits& t) {
    return static_cast<std::uint32_t>(t.type) == id;
  });
  return found == supported.end() ? nullptr : &*found;
}

}  // namespace

std::span<const BlockTraits> all_block_types() {
  return supported;
}

std::optional<BlockTraits> find_block_type(std::uint32_t gguf_type_id) {
  const BlockTraits* found = find(gguf_type_id);
  return found ? std::optional(*found) : std::nullopt;
}

const BlockTraits& traits(BlockType type) {
  const BlockTraits* found = find(static_cast<std::uint32_t>(type));
  if (!found) {
    throw std::invalid_argument("no block format has the id " +
                                std::to_string(static_cast<std::uint32_t>(type)));
  }
  return *found;
}

std::string gguf_type_name(std::uint32_t gguf_type_id) {
  if (const BlockTraits* found = find(gguf_type_id)) return std::string(found->name);
  for (const UnsupportedType& type : unsupported) {
    if (type.id == gguf_type_id) return std::string(type.name);
  }
  return "type " + std::to_string(gguf_type_id);
}

std::size_t row_bytes(BlockType type, std::size_t columns) {
  const BlockTraits& t = traits(type);
  return columns / t.elements_per_block * t.bytes_per_block;
}

}  // namespace sluice::kernels
