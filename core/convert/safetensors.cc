#include "core/convert/safetensors.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>
#include <set>
#include <utility>

#include "core/convert/json_file.h"
#include "core/error.h"
#include "core/gguf/bytes.h"
#include "core/gguf/tensor_type.h"
#include "core/text/quoted.h"

namespace sluice::convert {
namespace {

namespace fs = std::filesystem;
using kernels::BlockType;
using nlohmann::json;

constexpr std::uint64_t header_bytes_max = 100'000'000;  // the limit of the format
constexpr std::uint64_t index_bytes_max = 100'000'000;
constexpr std::size_t dims_max = 8;

std::optional<BlockType> type_of(const std::string& dtype) {
  if (dtype == "F32") return BlockType::f32;
  if (dtype == "F16") return BlockType::f16;
  if (dtype == "BF16") return BlockType::bf16;
  return std::nullopt;
}

// Checks one entry of a header against `data_bytes` bytes of data.
class EntryReader {
 public:
  EntryReader(const std::string& file, const std::string& name, const json& entry)
      : file_(file), name_(name), entry_(entry) {}

  // Parts of a tensor in MXFP4.
  bool is_of_bytes() const { return entry_.is_object() && entry_.value("dtype", json()) == "U8"; }

  StoredTensor read(std::uint64_t data_bytes) const {
    if (!entry_.is_object()) throw error("is not an object");
    const json dtype = entry_.value("dtype", json());
    if (!dtype.is_string()) throw error("has no dtype");
    const auto type = is_of_bytes() ? BlockType::mxfp4 : type_of(dtype.get<std::string>());
    StoredTensor tensor{type.value_or(BlockType::f32), numbers("shape")};
    if (!type) {
      tensor.problem = error(fmt::format("has dtype {}; supported are F32, F16 and BF16",
                                         text::quoted(dtype.get<std::string>())))
                           .what();
    }
    if (is_of_bytes()) {  // unless it is joined
      tensor.problem = error(
                           "has dtype U8, but is no half of a tensor in MXFP4 (_blocks and "
                           "_scales of fitting shapes)")
                           .what();
    }
    const std::vector<std::uint64_t> range = numbers("data_offsets");
    if (range.size() != 2 || range[0] > range[1] || range[1] > data_bytes) {
      throw error(fmt::format("has data_offsets [{}], but there are {} bytes of data; get it again",
                              fmt::join(range, ", "), data_bytes));
    }
    tensor.offset = range[0];
    tensor.bytes = range[1] - range[0];
    if (type && bytes_of(tensor) != tensor.bytes) {
      throw error(
          fmt::format("of shape [{}] has {} bytes", fmt::join(tensor.shape, ", "), tensor.bytes));
    }
    return tensor;
  }

 private:
  ModelError error(const std::string& what) const {
    return ModelError(fmt::format("{}: tensor {} {}", file_, text::quoted(name_), what));
  }

  std::vector<std::uint64_t> numbers(const char* key) const {
    const json list = entry_.value(key, json());
    if (!list.is_array() || list.size() > dims_max) {
      throw error(fmt::format("has no {} of up to {} numbers", key, dims_max));
    }
    std::vector<std::uint64_t> values;
    for (const json& value : list) {
      if (!value.is_number_unsigned())
        throw error(fmt::format("has a {} of other than counts", key));
      values.push_back(value.get<std::uint64_t>());
    }
    return values;
  }

  std::optional<std::uint64_t> bytes_of(const StoredTensor& tensor) const {
    std::optional<std::uint64_t> bytes =
        is_of_bytes() ? 1 : kernels::traits(tensor.type).bytes_per_block;
    for (const std::uint64_t dim : tensor.shape) {
      if (bytes) bytes = gguf::checked_multiply(*bytes, dim);
    }
    return bytes;
  }

  const std::string& file_;
  const std::string& name_;
  const json& entry_;
};

void check_overlap(const std::string& file,
                   std::vector<std::pair<std::string, StoredTensor>>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.offset, a.second.bytes) < std::pair(b.second.offset, b.second.bytes);
  });
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    const StoredTensor& before = tensors[i - 1].second;
    if (tensors[i].second.offset < before.offset + before.bytes) {
      throw ModelError(fmt::format("{}: tensors {} and {} overlap", file,
                                   text::quoted(tensors[i - 1].first),
                                   text::quoted(tensors[i].first)));
    }
  }
}

// The names of the shards, each once.
std::set<std::string> shards_of(const fs::path& index_path) {
  const json index = read_json(index_path, index_bytes_max);
  const json map = index.is_object() ? index.value("weight_map", json()) : json();
  if (!map.is_object() || map.empty()) {
    throw ModelError(fmt::format("{}: has no weight_map", index_path.string()));
  }
  std::set<std::string> names;
  for (const json& shard : map) {
    const std::string name = shard.is_string() ? shard.get<std::string>() : "";
    if (name.empty() || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos || !name.ends_with(".safetensors")) {
      throw ModelError(fmt::format("{}: shard {} is not the name of a .safetensors file beside it",
                                   index_path.string(), text::quoted(name)));
    }
    names.insert(name);
  }
  return names;
}

}  // namespace

namespace {

constexpr const char* whole_name = "model.safetensors";
constexpr const char* index_name = "model.safetensors.index.json";

// Why there is nothing to open, and what to do about it.
ModelError missing_weights(const fs::path& folder) {
  const auto has = [&](const auto& is_wanted) {
    std::error_code ignored;
    for (fs::directory_iterator at(folder, ignored), end; at != end; at.increment(ignored)) {
      if (is_wanted(at->path().filename().string())) return true;
    }
    return false;
  };
  std::string reason = "model.safetensors is missing; get it too";
  if (has([](const std::string& name) {
        return name.starts_with("model-") && name.ends_with(".safetensors");
      })) {
    reason = fmt::format("has shards, but {} is missing, which says what they are; get it too",
                         index_name);
  } else if (has([](const std::string& name) { return name.starts_with("pytorch_model"); })) {
    reason =
        "has its weights as pytorch_model*.bin; only safetensors are read: load the model and "
        "save it again with save_pretrained() of transformers";
  }
  return ModelError(fmt::format("{}: {}", folder.string(), reason));
}

}  // namespace

bool Checkpoint::exists(const fs::path& folder) {
  return fs::exists(folder / whole_name) || fs::exists(folder / index_name);
}

Checkpoint Checkpoint::open(const fs::path& folder) {
  Checkpoint checkpoint;
  const fs::path index = folder / index_name;
  if (!exists(folder)) throw missing_weights(folder);
  // An index beside it is of other files, as in transformers.
  if (fs::exists(folder / whole_name)) {
    checkpoint.add_file(folder / whole_name);
    checkpoint.join_blocks_and_scales(folder);
    return checkpoint;
  }
  const std::set<std::string> shards = shards_of(index);
  for (const std::string& shard : shards) {
    if (fs::exists(folder / shard)) continue;
    throw ModelError(fmt::format("{}: shard {} of {} is missing, which {} names; get it again",
                                 folder.string(), text::quoted(shard), shards.size(), index_name));
  }
  for (const std::string& shard : shards) checkpoint.add_file(folder / shard);
  checkpoint.join_blocks_and_scales(folder);
  return checkpoint;
}

const StoredTensor* Checkpoint::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return nullptr;
  if (!found->second.problem.empty()) throw ModelError(found->second.problem);
  return &found->second;
}

void Checkpoint::add_file(const fs::path& path) {
  const std::string source = path.string();
  const std::uint64_t file_bytes = fs::file_size(path);
  files_.emplace_back(path);
  std::array<std::byte, 8> length_bytes{};
  if (file_bytes < length_bytes.size()) {
    throw ModelError(fmt::format("{}: too short for a safetensors file; get it again", source));
  }
  files_.back().read(0, length_bytes);
  const auto header_bytes = gguf::load<std::uint64_t>(length_bytes.data());
  if (header_bytes > header_bytes_max || header_bytes > file_bytes - length_bytes.size()) {
    throw ModelError(fmt::format(
        "{}: a header of {} bytes in a file of {}; at most {} are allowed; get it again", source,
        header_bytes, file_bytes, header_bytes_max));
  }
  std::string text(header_bytes, '\0');
  files_.back().read(length_bytes.size(), std::as_writable_bytes(std::span(text)));
  const json header = parse_json(text, source);
  if (!header.is_object()) throw ModelError(fmt::format("{}: the header is no object", source));

  const std::uint64_t data_offset = length_bytes.size() + header_bytes;
  std::vector<std::pair<std::string, StoredTensor>> found;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    found.emplace_back(name, EntryReader(source, name, entry).read(file_bytes - data_offset));
  }
  check_overlap(source, found);
  for (auto& [name, tensor] : found) {
    tensor.file = files_.size() - 1;
    tensor.offset += data_offset;
    auto& others = tensor.type == BlockType::mxfp4 ? bytes_ : tensors_;
    if (!others.emplace(name, std::move(tensor)).second) {
      throw ModelError(
          fmt::format("{}: tensor {} is in another shard too", source, text::quoted(name)));
    }
  }
}

// Two tensors of bytes are one of MXFP4: NAME_blocks [..., blocks of a row, 16] and NAME_scales
// [..., blocks of a row].
void Checkpoint::join_blocks_and_scales(const fs::path& folder) {
  constexpr std::string_view blocks_end = "_blocks";
  const std::uint64_t values_per_block = kernels::traits(BlockType::mxfp4).elements_per_block;
  std::set<std::string> joined;
  for (const auto& [name, blocks] : bytes_) {
    if (!name.ends_with(blocks_end)) continue;
    const std::string whole = name.substr(0, name.size() - blocks_end.size());
    const auto scales = bytes_.find(whole + "_scales");
    StoredTensor tensor = blocks;
    if (scales == bytes_.end() || tensor.shape.size() < 2 ||
        tensor.shape.back() * 2 != values_per_block) {
      continue;
    }
    tensor.shape.pop_back();
    if (tensor.shape != scales->second.shape) continue;
    tensor.shape.back() *= values_per_block;
    tensor.scales_file = scales->second.file;
    tensor.scales_offset = scales->second.offset;
    tensor.problem.clear();
    if (!tensors_.emplace(whole, tensor).second) {
      throw ModelError(
          fmt::format("{}: tensor {} is there in MXFP4 too", folder.string(), text::quoted(whole)));
    }
    joined.insert({name, scales->first});
  }
  std::erase_if(bytes_, [&](const auto& one) { return joined.contains(one.first); });
  tensors_.merge(bytes_);
  bytes_.clear();
}

// A block there has its values in turn, two of a byte, the lower half first. Here the lower halves
// are the first half of the values.
void Checkpoint::read_blocks(const StoredTensor& tensor, std::uint64_t first,
                             std::span<std::byte> out) const {
  const std::size_t size = kernels::traits(BlockType::mxfp4).bytes_per_block;
  const std::size_t halves = size - 1, count = out.size() / size;
  std::vector<std::byte> scales(count), pairs(count * halves);
  files_[tensor.file].read(tensor.offset + first * halves, pairs);
  files_[tensor.scales_file].read(tensor.scales_offset + first, scales);
  for (std::size_t block = 0; block < count; ++block) {
    std::byte* to = &out[block * size];
    *to++ = scales[block];
    const auto value = [&](std::size_t i) {
      return (pairs[block * halves + i / 2] >> (i % 2 * 4)) & std::byte{15};
    };
    for (std::size_t i = 0; i < halves; ++i) to[i] = value(i) | (value(i + halves) << 4);
  }
}

void Checkpoint::read(const StoredTensor& tensor, std::uint64_t offset,
                      std::span<std::byte> out) const {
  if (tensor.type == BlockType::mxfp4) {
    return read_blocks(tensor, offset / kernels::traits(tensor.type).bytes_per_block, out);
  }
  files_[tensor.file].read(tensor.offset + offset, out);
}

}  // namespace sluice::convert
