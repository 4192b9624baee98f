#include "core/gguf/gguf.h"

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <numeric>
#include <optional>
#include <system_error>
#include <utility>

#include "core/text/quoted.h"

namespace sluice::gguf {
namespace {

constexpr std::uint64_t header_bytes_max = std::uint64_t{256} << 20;

// The values of split.no and split.count in one file; without them it is the only file.
struct SplitPlace {
  std::uint64_t index = 0;
  std::uint64_t count = 1;
};

SplitPlace split_place(const Metadata& metadata) {
  SplitPlace place;
  place.index = metadata.find_uint("split.no").value_or(0);
  place.count = metadata.find_uint("split.count").value_or(1);
  constexpr std::uint64_t count_max = 65535;  // the key is a u16
  if (place.count == 0 || place.count > count_max) {
    throw metadata.error("split.count",
                         fmt::format("is {}, expected 1 to {}", place.count, count_max));
  }
  if (place.index >= place.count) {
    throw metadata.error("split.no", fmt::format("is {}, expected less than split.count, {}",
                                                 place.index, place.count));
  }
  return place;
}

std::string shard_suffix(std::uint64_t index, std::uint64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", index + 1, count);
}

// The path of shard `index`, made from that of shard `known`; nothing when that name does not end
// like the name of a shard.
std::optional<std::filesystem::path> shard_path(const std::filesystem::path& path,
                                                const SplitPlace& known, std::uint64_t index) {
  const std::string name = path.filename().string();
  const std::string suffix = shard_suffix(known.index, known.count);
  if (!name.ends_with(suffix)) return std::nullopt;
  return path.parent_path() /
         (name.substr(0, name.size() - suffix.size()) + shard_suffix(index, known.count));
}

ModelError not_the_first(const std::filesystem::path& path, const SplitPlace& place) {
  const auto first = shard_path(path, place, 0);
  return ModelError(fmt::format(
      "{}: this is shard {} of {}; give the first one{}", path.string(), place.index + 1,
      place.count,
      first ? ", " + first->string() : ", whose name ends in " + shard_suffix(0, place.count)));
}

void check_same_split(const Metadata& metadata, const SplitPlace& expected) {
  const SplitPlace found = split_place(metadata);
  if (found.index == expected.index && found.count == expected.count) return;
  throw ModelError(fmt::format(
      "{}: the file says that it is shard {} of {}, its name shard {} of "
      "{}; the shards do not belong together",
      metadata.source(), found.index + 1, found.count, expected.index + 1, expected.count));
}

}  // namespace

std::string TensorInfo::shape() const {
  return fmt::format("{}", fmt::join(dims.begin(), dims.begin() + rank, " x "));
}

Model Model::open(const std::filesystem::path& path, const ParseOptions& options) {
  Model model;
  const auto read_header = [&](const std::filesystem::path& file) {
    // Most headers have some MiB. The views of one that has more point to its beginning, which
    // cannot move, so it is read anew.
    for (std::size_t reserved = std::size_t{64} << 20;; reserved *= 4) {
      auto bytes = std::make_unique<HeaderBytes>(file, reserved);
      try {
        const auto read_to = [&](std::uint64_t end) {
          if (end > header_bytes_max) {
            throw ModelError(
                fmt::format("{}: the header reaches to byte {}, expected at most {}; "
                            "the file is damaged",
                            file.string(), end, header_bytes_max));
          }
          bytes->read_to(end);
        };
        Header header = parse_header(bytes->bytes(), file.string(), options, read_to);
        bytes->finish();
        model.headers_.push_back(std::move(bytes));
        return header;
      } catch (const HeaderBytes::Outgrown&) {
        continue;
      }
    }
  };

  Header first = read_header(path);
  const SplitPlace place = split_place(first.metadata);
  if (place.index != 0) throw not_the_first(path, place);
  model.version_ = first.version;
  model.metadata_ = std::move(first.metadata);
  model.add_file(path, first, *model.headers_.front());

  for (std::uint64_t i = 1; i < place.count; ++i) {
    const auto shard = shard_path(path, place, i);
    if (!shard) {
      throw ModelError(
          fmt::format("{}: this is the first of {} shards, but its name does not end "
                      "in {}, so the others cannot be found; rename it",
                      path.string(), place.count, shard_suffix(0, place.count)));
    }
    if (!std::filesystem::exists(*shard)) {
      throw ModelError(fmt::format("{}: shard {} of {} is missing: {}", path.string(), i + 1,
                                   place.count, shard->string()));
    }
    const Header header = read_header(*shard);
    check_same_split(header.metadata, {i, place.count});
    model.add_file(*shard, header, *model.headers_.back());
  }

  if (place.count > 1) {
    const std::uint64_t expected = model.metadata_.require_uint("split.tensors.count");
    if (expected != model.tensors_.size()) {
      throw model.metadata_.error("split.tensors.count",
                                  fmt::format("is {}, but the {} shards have {} tensors", expected,
                                              place.count, model.tensors_.size()));
    }
  }
  model.index_tensors();
  return model;
}

void ModelFile::require_same(const base::FileIdentity& opened) const {
  if (opened == identity) return;
  throw std::system_error(ESTALE, std::generic_category(),
                          fmt::format("{} was replaced or written to after its header was read: "
                                      "start again when nothing writes it any more",
                                      path.string()));
}

void Model::add_file(const std::filesystem::path& path, const Header& header,
                     const HeaderBytes& bytes) {
  const auto index = static_cast<std::uint32_t>(files_.size());
  files_.push_back({path, bytes.bytes().size(), header.data_offset, bytes.identity()});
  for (TensorInfo tensor : header.tensors) {
    tensor.file = index;
    data_bytes_ += align_up(tensor.bytes, header.alignment);
    if (data_bytes_ > data_bytes_max) {
      throw ModelError(fmt::format(
          "{}: tensor {}: with it the tensors have {} bytes, more than any model; the file is "
          "damaged",
          path.string(), text::quoted(tensor.name), data_bytes_));
    }
    tensors_.push_back(tensor);
  }
}

void Model::index_tensors() {
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  const auto name = [&](std::uint32_t i) { return tensors_[i].name; };
  std::stable_sort(by_name_.begin(), by_name_.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return name(a) < name(b); });
  const auto twice = std::adjacent_find(by_name_.begin(), by_name_.end(),
                                        [&](auto a, auto b) { return name(a) == name(b); });
  if (twice == by_name_.end()) return;
  const TensorInfo& again = tensors_[*(twice + 1)];
  throw ModelError(
      fmt::format("{}: tensor {} occurs twice (the first in {}), expected each name "
                  "once",
                  files_[again.file].path.string(), text::quoted(again.name),
                  files_[tensors_[*twice].file].path.string()));
}

const TensorInfo* Model::find_tensor(std::string_view name) const {
  const auto at = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [&](std::uint32_t i, std::string_view wanted) { return tensors_[i].name < wanted; });
  if (at == by_name_.end() || tensors_[*at].name != name) return nullptr;
  return &tensors_[*at];
}

const TensorInfo& Model::require_tensor(std::string_view name) const {
  const TensorInfo* tensor = find_tensor(name);
  if (tensor != nullptr) return *tensor;
  throw ModelError(fmt::format("{}: tensor {} is missing", metadata_.source(), text::quoted(name)));
}

std::uint64_t Model::file_bytes() const {
  std::uint64_t sum = 0;
  for (const ModelFile& file : files_) sum += file.file_bytes;
  return sum;
}

std::uint64_t Model::elements() const {
  std::uint64_t sum = 0;
  for (const TensorInfo& tensor : tensors_) sum += tensor.elements();
  return sum;
}

}  // namespace sluice::gguf
