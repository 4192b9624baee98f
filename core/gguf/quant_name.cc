#include "core/gguf/quant_name.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>

#include "core/gguf/bytes.h"
#include "kernels/block_formats.h"

namespace sluice::gguf {
namespace {

using kernels::BlockType;

// A file_type, and the type that its files are mostly of.
struct FileType {
  std::uint32_t id;
  std::string_view name;
  BlockType base;
};

// Those that are not called as their type is.
constexpr FileType mixes[] = {{11, "Q3_K_S", BlockType::q3_k},    {12, "Q3_K_M", BlockType::q3_k},
                              {13, "Q3_K_L", BlockType::q3_k},    {14, "Q4_K_S", BlockType::q4_k},
                              {15, "Q4_K_M", BlockType::q4_k},    {16, "Q5_K_S", BlockType::q5_k},
                              {17, "Q5_K_M", BlockType::q5_k},    {21, "Q2_K_S", BlockType::q2_k},
                              {22, "IQ3_XS", BlockType::iq3_xxs}, {27, "IQ3_M", BlockType::iq3_s},
                              {28, "IQ2_S", BlockType::iq2_xs},   {29, "IQ2_M", BlockType::iq2_s},
                              {38, "MXFP4_MOE", BlockType::mxfp4}};

template <typename Predicate>
std::optional<FileType> find_file_type(const Predicate& is_meant) {
  for (const FileType& mix : mixes) {
    if (is_meant(mix)) return mix;
  }
  for (const kernels::BlockTraits& traits : kernels::all_block_types()) {
    const FileType plain{traits.file_type, traits.name, traits.type};
    if (is_meant(plain)) return plain;
  }
  return std::nullopt;
}

// Nothing where the file does not say, or says it in another way than all writers do.
std::optional<FileType> stated_file_type(const Model& model) {
  const Value* value = model.metadata().find("general.file_type");
  if (value == nullptr || value->type() != ValueType::u32) return std::nullopt;
  const auto id = load<std::uint32_t>(value->bytes().data());
  return find_file_type([id](const FileType& known) { return known.id == id; });
}

bool has_experts(const Model& model) {
  return std::ranges::any_of(model.tensors(), [](const TensorInfo& tensor) {
    return tensor.name.find("_exps.") != std::string_view::npos;
  });
}

}  // namespace

std::string quant_name(const Model& model) {
  std::map<std::uint32_t, std::uint64_t> bytes;
  std::uint64_t all_bytes = 0;
  for (const TensorInfo& tensor : model.tensors()) {
    bytes[tensor.type] += tensor.bytes;
    all_bytes += tensor.bytes;
  }
  if (bytes.empty()) return "";
  const std::optional<FileType> stated = stated_file_type(model);
  if (stated && 10 * bytes[static_cast<std::uint32_t>(stated->base)] >= all_bytes) {
    // A file of MXFP4 without experts has the same file_type.
    const bool is_plain = stated->base == BlockType::mxfp4 && !has_experts(model);
    return is_plain ? "MXFP4" : std::string(stated->name);
  }
  return kernels::gguf_type_name(
      std::ranges::max_element(bytes, {}, [](const auto& of) { return of.second; })->first);
}

std::uint32_t file_type_of(std::string_view name) {
  const auto found = find_file_type([name](const FileType& known) { return known.name == name; });
  if (!found) throw std::invalid_argument("no file_type is called " + std::string(name));
  return found->id;
}

}  // namespace sluice::gguf
