#include "core/gguf/gguf_writer.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <stdexcept>

#include "core/files/durable_file.h"
#include "core/gguf/tensor_type.h"
#include "core/text/quoted.h"
#include "kernels/block_formats.h"

namespace sluice::gguf {
namespace {

constexpr std::uint32_t version_written = 3;

void append_text(std::vector<std::byte>& out, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

}  // namespace

void Writer::begin_value(std::string_view key, ValueType type) {
  ++entry_count_;
  put(std::uint64_t{key.size()});
  append_text(entries_, key);
  put(static_cast<std::uint32_t>(type));
}

void Writer::begin_array(std::string_view key, ValueType element_type, std::size_t count) {
  begin_value(key, ValueType::array);
  put(static_cast<std::uint32_t>(element_type));
  put(std::uint64_t{count});
}

void Writer::add(std::string_view key, std::string_view value) {
  begin_value(key, ValueType::string);
  put(std::uint64_t{value.size()});
  append_text(entries_, value);
}

void Writer::add_array(std::string_view key, std::span<const std::string> values) {
  begin_array(key, ValueType::string, values.size());
  for (const std::string& value : values) {
    put(std::uint64_t{value.size()});
    append_text(entries_, value);
  }
}

void Writer::add(std::string_view key, const Value& value) {
  if (value.is_array()) {
    begin_array(key, value.element_type(), value.count());
  } else {
    begin_value(key, value.type());
    if (value.type() == ValueType::string) put(std::uint64_t{value.bytes().size()});
  }
  entries_.insert(entries_.end(), value.bytes().begin(), value.bytes().end());
}

void Writer::add_tensor(std::string_view name, std::span<const std::uint64_t> dims,
                        std::uint32_t type) {
  const auto layout = find_type_layout(type);
  if (!layout || dims.empty() || dims.size() > 4 || dims[0] % layout->elements_per_block != 0) {
    throw std::invalid_argument(fmt::format("tensor {}: no layout for {} x {}", text::quoted(name),
                                            fmt::join(dims, " x "), kernels::gguf_type_name(type)));
  }
  auto bytes = gguf::tensor_bytes(*layout, dims[0], 1);
  for (const std::uint64_t dim : dims.subspan(1)) {
    if (bytes) bytes = checked_multiply(*bytes, dim);
  }
  if (!bytes) throw std::invalid_argument(fmt::format("tensor {}: too large", text::quoted(name)));

  append(infos_, std::uint64_t{name.size()});
  append_text(infos_, name);
  append(infos_, static_cast<std::uint32_t>(dims.size()));
  for (const std::uint64_t dim : dims) append(infos_, dim);
  append(infos_, type);
  append(infos_, data_bytes_);
  tensor_bytes_.push_back(*bytes);
  data_bytes_ += align_up(*bytes, alignment_);
}

std::vector<std::byte> Writer::header() const {
  std::vector<std::byte> out;
  append_text(out, "GGUF");
  append(out, version_written);
  append(out, std::uint64_t{tensor_bytes_.size()});
  append(out, entry_count_);
  out.insert(out.end(), entries_.begin(), entries_.end());
  out.insert(out.end(), infos_.begin(), infos_.end());
  out.resize(align_up(out.size(), alignment_));
  return out;
}

std::uint64_t Writer::file_bytes() const {
  return header().size() + data_bytes_;
}

void Writer::write(const std::filesystem::path& path, const Source& source) const {
  const std::vector<std::byte> head = header();
  files::DurableFile file(path, {.named_by = files::NamedBy::user});
  file.reserve(head.size() + data_bytes_);
  file.write(head);
  for (std::size_t i = 0; i < tensor_bytes_.size(); ++i) {
    const std::uint64_t end = file.position() + tensor_bytes_[i];
    const auto wrong_size = [&](std::uint64_t given_end) {
      return std::logic_error(fmt::format("tensor {}: {} bytes given, {} expected", i,
                                          given_end + tensor_bytes_[i] - end, tensor_bytes_[i]));
    };
    source(i, [&](std::span<const std::byte> piece) {
      if (piece.size() > end - file.position()) throw wrong_size(file.position() + piece.size());
      file.write(piece);
    });
    if (file.position() != end) throw wrong_size(file.position());
    const std::vector<std::byte> padding(align_up(tensor_bytes_[i], alignment_) - tensor_bytes_[i]);
    file.write(padding);
  }
  file.commit();
}

}  // namespace sluice::gguf
