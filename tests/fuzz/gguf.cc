// GGUF headers: every value and every tensor of a file that was taken lies within it.
#include "core/gguf/gguf.h"

#include <set>
#include <span>

#include "core/error.h"
#include "core/gguf/gguf_writer.h"
#include "tests/fuzz/fuzz.h"

namespace sluice::fuzz {
namespace {

// Looks a key up as every type that callers ask for.
void look_up(const gguf::Metadata& metadata, std::string_view key) {
  const auto look = [](const auto& find) {
    try {
      find();
    } catch (const ModelError&) {
    }
  };
  std::size_t sum = 0;
  look([&] { sum += metadata.require_uint(key); });
  look([&] { sum += static_cast<std::size_t>(metadata.require_int(key)); });
  look([&] { sum += metadata.require_u32(key); });
  look([&] { sum += metadata.require_f32(key) > 0 ? 1 : 0; });
  look([&] { sum += metadata.require_bool(key) ? 1 : 0; });
  look([&] { sum += metadata.require_string(key).size(); });
  look([&] {
    for (const std::string_view text : metadata.require_strings(key)) sum += text.size();
  });
  look([&] {
    const gguf::IntegerArray all = metadata.require_integers(key);
    for (std::size_t i = 0; i < all.size(); ++i) sum += static_cast<std::size_t>(all[i]);
  });
  look([&] {
    const gguf::FloatArray all = metadata.require_floats(key);
    for (std::size_t i = 0; i < all.size(); ++i) sum += all[i] > 0 ? 1 : 0;
  });
  static_cast<void>(metadata.find(key)->describe() + std::to_string(sum));
}

void read(std::span<const std::byte> bytes, bool header_only) {
  try {
    const gguf::Header header = gguf::parse_header(bytes, "file", {.header_only = header_only});
    for (const gguf::Metadata::Entry& entry : header.metadata.entries()) {
      look_up(header.metadata, entry.key);
    }
    std::set<std::string_view> names;
    for (const gguf::TensorInfo& tensor : header.tensors) {
      require(names.insert(tensor.name).second, "the names of tensors differ");
      require(tensor.offset % header.alignment == 0, "tensors are aligned");
      require(tensor.offset >= header.data_offset, "tensors lie behind the header");
      require(tensor.bytes != 0 && tensor.elements() != 0, "tensors hold something");
      require(tensor.offset + tensor.bytes > tensor.offset, "ends of tensors do not wrap");
      const bool fits = tensor.offset + tensor.bytes <= bytes.size();
      require(header_only || fits, "tensors lie within the file");
      static_cast<void>(tensor.shape());
    }
  } catch (const ModelError&) {
  }
}

}  // namespace

void run(std::string_view input) {
  const auto bytes = std::as_bytes(std::span(input.data(), input.size()));
  read(bytes, true);
  read(bytes, false);
}

std::vector<std::string> seeds() {
  gguf::Writer writer;
  writer.add("general.architecture", "llama");
  writer.add("general.alignment", std::uint32_t{8});
  writer.add("a", std::uint8_t{2});
  writer.add("b", std::int64_t{-3});
  writer.add("c", 2.5);
  writer.add("d", true);
  writer.add_array("e", std::span<const std::string>(std::vector<std::string>{"", "one"}));
  writer.add_array("f", std::span<const float>(std::vector<float>{0.5F, -3}));
  writer.add_array("g", std::span<const std::uint16_t>(std::vector<std::uint16_t>{1, 2}));
  writer.add_tensor("m", std::vector<std::uint64_t>{32, 2}, 8);
  writer.add_tensor("v", std::vector<std::uint64_t>{7}, 0);
  std::vector<std::byte> bytes = writer.header();
  bytes.resize(bytes.size() + writer.data_bytes());
  const std::string whole(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  gguf::Writer empty;
  const std::vector<std::byte> none = empty.header();
  return {whole, whole.substr(0, whole.size() / 2),
          std::string(reinterpret_cast<const char*>(none.data()), none.size())};
}

}  // namespace sluice::fuzz
