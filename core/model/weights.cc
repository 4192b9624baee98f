#include "core/model/weights.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <iterator>
#include <numeric>
#include <system_error>
#include <utility>

#include "kernels/dequantise.h"
#include "kernels/matmul.h"
#include "kernels/panel_packing.h"

namespace sluice::model {
namespace {

// Slices have a multiple of this many rows: two threads can then share a slice in groups of four
// panels, the unit in which kernels work best.
constexpr std::size_t slice_row_unit = 128;

// Four times what a mixture of a million million weights has. The lists of so many take 0.7 GB.
constexpr std::size_t segments_max = std::size_t{1} << 21U;

constexpr std::size_t heap_block_bytes_min = 32;  // glibc's, with its own header

std::string place(const gguf::Model& model, const std::string& tensor) {
  return fmt::format("{}: tensor '{}'", model.metadata().source(), tensor);
}

// What the scales of a matrix may be called after: "X" or "X.weight" of "X.weight". Other tensors
// have none.
std::vector<std::string> stems_of_scales(const std::string& weight) {
  constexpr std::string_view suffix = ".weight";
  if (!weight.ends_with(suffix)) return {};
  return {weight.substr(0, weight.size() - suffix.size()), weight};
}

}  // namespace

kernels::BlockType supported_type(const gguf::Model& model, const gguf::TensorInfo& tensor) {
  const auto traits = kernels::find_block_type(tensor.type);
  if (!traits) {
    throw ModelError(fmt::format(
        "{} has type {}, which sluice does not compute with; use a file quantised to a supported "
        "type, such as Q4_K_M",
        place(model, std::string(tensor.name)), kernels::gguf_type_name(tensor.type)));
  }
  return traits->type;
}

WeightLayout::WeightLayout(const gguf::Model& model, std::size_t slice_bytes_max)
    : model_(model), rotations_(model), slice_bytes_max_(slice_bytes_max) {}

const gguf::TensorInfo& WeightLayout::declare(const std::string& name,
                                              std::initializer_list<std::size_t> dims) {
  const std::string expected = fmt::format("{}", fmt::join(dims, " x "));
  const gguf::TensorInfo* tensor = model_.find_tensor(name);
  if (tensor == nullptr) {
    throw ModelError(
        fmt::format("{} is missing, expected with shape {}", place(model_, name), expected));
  }
  std::array<std::uint64_t, 4> wanted{1, 1, 1, 1};
  std::copy(dims.begin(), dims.end(), wanted.begin());
  if (tensor->dims != wanted) {
    throw ModelError(fmt::format("{} has shape {}, expected {}", place(model_, name),
                                 tensor->shape(), expected));
  }
  supported_type(model_, *tensor);
  declared_.insert(name);
  return *tensor;
}

ModelError WeightLayout::error(const std::string& name, const std::string& what) const {
  return ModelError(fmt::format("{} {}", place(model_, name), what));
}

void WeightLayout::leave_aside(const std::string& name) {
  declared_.insert(name);
  for (const std::string& stem : stems_of_scales(name)) {
    for (const char* beside : {".scale", ".input_scale"}) {
      if (has(stem + beside)) declared_.insert(stem + beside);
    }
  }
}

bool WeightLayout::has(const std::string& name) const {
  return model_.find_tensor(name) != nullptr;
}

Matrix WeightLayout::matrix(const std::string& name, std::size_t columns, std::size_t rows) {
  return part_of_matrix(name, {columns, rows}, 0, rows);
}

Matrix WeightLayout::part_of_matrix(const std::string& name,
                                    std::initializer_list<std::size_t> dims, std::size_t first,
                                    std::size_t count) {
  const gguf::TensorInfo& tensor = declare(name, dims);
  const std::size_t columns = *dims.begin();
  const std::size_t rows =
      std::accumulate(dims.begin() + 1, dims.end(), std::size_t{1}, std::multiplies<>());
  Matrix matrix{supported_type(model_, tensor), count, columns, tensor.bytes / rows, {}};
  const std::size_t rows_of_one = *(dims.begin() + 1);
  matrix.tensor = tensor.name;
  matrix.place = first / rows_of_one;
  matrix.places = rows / rows_of_one;
  matrix.is_first_part = first % rows_of_one == 0;
  matrix.rotation = rotations_.of_inputs(name);
  matrix.scale = scale_beside(name, matrix.place, matrix.places);
  const std::size_t rows_max = std::max(
      slice_bytes_max_ / matrix.row_bytes / slice_row_unit * slice_row_unit, slice_row_unit);
  if (segments_.size() + (count + rows_max - 1) / rows_max > segments_max) {
    throw error(name, fmt::format("cuts the matrices into more than {} parts, which no model needs",
                                  segments_max));
  }
  ++matrices_;
  for (std::size_t row = 0; row < count; row += rows_max) {
    const std::size_t taken = std::min(rows_max, count - row);
    matrix.slices.push_back({segments_.size(), row, taken});
    segments_.push_back(
        {tensor.file, tensor.offset + (first + row) * matrix.row_bytes, taken * matrix.row_bytes});
    segment_rows_.push_back({matrix.type, taken, columns});
  }
  return matrix;
}

// A file may keep a scale of a whole matrix in a tensor beside it, which NVFP4 needs: a number for
// each matrix of the stack, or for all. (Gemma 4 has one for each expert, in any format.) What a
// block has declared itself, it applies itself. Scales of inputs are for hardware that quantises
// activations by them.
Vector WeightLayout::scale_beside(const std::string& weight, std::size_t place,
                                  std::size_t places) {
  if (weight == "token_embd.weight") return {};
  for (const std::string& stem : stems_of_scales(weight)) {
    if (has(stem + ".input_scale")) leave_aside(stem + ".input_scale");
    const std::string name = stem + ".scale";
    auto found = scales_.find(name);
    const gguf::TensorInfo* tensor = model_.find_tensor(name);
    const bool is_new = tensor != nullptr && !declared_.contains(name) && tensor->rank == 1 &&
                        (tensor->dims[0] == 1 || tensor->dims[0] == places);
    if (found == scales_.end() && is_new) {
      found = scales_.emplace(name, vector(name, {tensor->dims[0]})).first;
    }
    if (found != scales_.end()) {
      const Vector scales = found->second;
      return scales.size() == 1 ? scales : scales.subspan(place, 1);
    }
  }
  return {};
}

Matrix WeightLayout::rows_of_matrix(const std::string& name,
                                    std::initializer_list<std::size_t> dims, std::size_t first,
                                    std::size_t count) {
  Matrix matrix = part_of_matrix(name, dims, first, count);
  if (matrix.rotation != nullptr) throw error(name, "is rotated, but not only multiplied");
  for (const Slice& slice : matrix.slices) segment_rows_[slice.turn].may_pack = false;
  return matrix;
}

Vector WeightLayout::vector(const std::string& name, std::initializer_list<std::size_t> dims) {
  const gguf::TensorInfo& tensor = declare(name, dims);
  std::size_t size = 1;
  for (const std::size_t dim : dims) size *= dim;
  // They are held while the model is planned, too.
  constexpr std::uint64_t numbers_max = std::uint64_t{1} << 27;
  vector_numbers_ += size;
  if (vector_numbers_ > numbers_max) {
    throw error(name, fmt::format("makes more than {} numbers that are no matrix's, which no model "
                                  "has",
                                  numbers_max));
  }
  vectors_.push_back({&tensor, std::vector<float>(size)});
  return vectors_.back().values;
}

Vector WeightLayout::optional_vector(const std::string& name,
                                     std::initializer_list<std::size_t> dims) {
  return has(name) ? vector(name, dims) : Vector{};
}

const gguf::TensorInfo& WeightLayout::table(const std::string& name, std::size_t columns,
                                            std::size_t rows, std::size_t rows_per_token) {
  const gguf::TensorInfo& tensor = declare(name, {columns, rows});
  tables_.push_back({&tensor, rows_per_token});
  return tensor;
}

std::vector<WeightLayout::Table> WeightLayout::tables_on_disk() const {
  std::vector<Table> found;
  std::ranges::copy_if(tables_, std::back_inserter(found), [&](const Table& table) {
    return std::ranges::none_of(segments_, [&](const streaming::Segment& segment) {
      return segment.file == table.tensor->file && segment.offset == table.tensor->offset;
    });
  });
  return found;
}

namespace {

// Tensors that a step on text does not need: the beginning of their names, and what they belong to.
struct Aside {
  std::string_view prefix, what;
};
constexpr std::array asides = {
    Aside{"v.", "vision"},
    Aside{"mm.", "vision"},
    Aside{"a.", "audio"},
    Aside{"mtp.", "token-predicting"},
    Aside{"nextn.", "token-predicting"},
};

// Tables of angles that old converters wrote; they can be computed from the metadata.
constexpr std::array harmless_suffixes = {".attn_rot_embd", ".rotary_emb.inv_freq",
                                          ".attn.masked_bias", ".attn.bias"};

bool is_harmless(std::string_view name) {
  return std::ranges::any_of(harmless_suffixes,
                             [&](std::string_view suffix) { return name.ends_with(suffix); });
}

}  // namespace

std::optional<std::uint64_t> block_number(std::string_view tensor) {
  constexpr std::string_view prefix = "blk.";
  if (!tensor.starts_with(prefix)) return std::nullopt;
  std::uint64_t block = 0;
  const char* begin = tensor.data() + prefix.size();
  const auto parsed = std::from_chars(begin, tensor.data() + tensor.size(), block);
  if (parsed.ec != std::errc() || parsed.ptr == begin) return std::nullopt;
  return block;
}

void WeightLayout::check_all_declared(std::uint32_t layers, std::uint32_t predicting) {
  std::set<std::string_view> left_aside;
  for (const gguf::TensorInfo& tensor : model_.tensors()) {
    const std::string_view name = tensor.name;
    if (declared_.contains(name) || is_harmless(name)) continue;
    const auto aside = std::ranges::find_if(
        asides, [&](const Aside& known) { return name.starts_with(known.prefix); });
    if (aside != asides.end()) {
      left_aside.insert(aside->what);
    } else if (const auto block = block_number(name);
               block && *block >= layers && *block < std::uint64_t{layers} + predicting) {
      left_aside.insert("token-predicting");
    } else {
      throw ModelError(fmt::format(
          "{} is not one that sluice knows of this architecture, and without it the text would be "
          "wrong; use a file made by a current converter",
          place(model_, std::string(name))));
    }
  }
  for (const std::string_view what : left_aside) {
    notes_.push_back(fmt::format("this file's {} part is not used", what));
  }
}

std::uint64_t WeightLayout::rows(const std::string& name) const {
  const gguf::TensorInfo* tensor = model_.find_tensor(name);
  return tensor == nullptr ? 0 : tensor->dims[1];
}

std::uint64_t LayerTensors::rows(const std::string& name) const {
  return layout_.rows(prefix_ + name);
}

ModelError LayerTensors::error(const std::string& name, const std::string& what) const {
  return layout_.error(prefix_ + name, what);
}

void WeightLayout::pack(std::size_t turn, std::span<const std::byte> from, std::byte* to,
                        topology::ThreadTeam& team) const {
  const SegmentRows& w = segment_rows_[turn];
  const std::size_t row_bytes = from.size() / w.rows;
  const bool packs = w.may_pack && kernels::can_pack(w.rows);
  team.run([&](std::size_t member) {
    const auto part = topology::split(w.rows, kernels::panel_rows, team.size(), member);
    if (part.empty()) return;
    const std::byte* const source = from.data() + part.begin * row_bytes;
    std::byte* const target = to + part.begin * row_bytes;
    if (packs) {
      kernels::pack_panels(w.type, part.size(), w.columns, source, target);
    } else {
      std::memcpy(target, source, part.size() * row_bytes);
    }
  });
}

void WeightLayout::load() {
  std::vector<FileBytes> files;
  for (const gguf::ModelFile& file : model_.files()) files.emplace_back(file);
  std::vector<std::byte> bytes;
  for (PendingVector& v : vectors_) {
    bytes.resize(v.tensor->bytes);
    files[v.tensor->file].read(v.tensor->offset, bytes);
    kernels::dequantise(supported_type(model_, *v.tensor), bytes.data(), v.values.size(),
                        v.values.data());
  }
}

std::size_t WeightLayout::vector_bytes() const {
  std::size_t total = rotations_.bytes();
  for (const PendingVector& v : vectors_) total += v.values.size() * sizeof(float);
  return total;
}

std::size_t WeightLayout::list_bytes() const {
  const std::size_t slices =
      std::max(segments_.size() * sizeof(Slice), matrices_ * heap_block_bytes_min);
  return segments_.capacity() * sizeof(streaming::Segment) +
         segment_rows_.capacity() * sizeof(SegmentRows) + matrices_ * sizeof(Matrix) + slices;
}

std::optional<std::size_t> WeightLayout::group_experts(std::size_t first, std::size_t experts,
                                                       std::size_t used) {
  const std::size_t turns = segments_.size() - first, each = turns / experts;
  const auto is_like_expert_0 = [&](std::size_t turn) {
    const SegmentRows &a = segment_rows_[turn], &b = segment_rows_[first + (turn - first) % each];
    return a.rows == b.rows && a.columns == b.columns;
  };
  bool are_alike = turns % experts == 0;
  for (std::size_t t = first; are_alike && t < first + turns; ++t) are_alike = is_like_expert_0(t);
  if (are_alike) {
    expert_groups_.push_back({first, experts, each, used});
    return expert_groups_.size() - 1;
  }
  const std::string note =
      "the experts of some layers differ in their types: all of them are read for each token";
  if (std::ranges::find(notes_, note) == notes_.end()) notes_.push_back(note);
  return std::nullopt;
}

template <typename F>
std::size_t WeightLayout::sum_turns(std::size_t begin, std::size_t end, F&& count) const {
  std::size_t sum = 0;
  for (std::size_t turn = begin; turn < end; ++turn) sum += count(turn);
  return sum;
}

template <typename F>
std::size_t WeightLayout::sum_experts(std::size_t tokens, F&& count) const {
  std::size_t total = 0;
  for (const streaming::ExpertGroup& group : expert_groups_) {
    const std::size_t sum = sum_turns(group.first_turn, group.end_turn(), count);
    total += static_cast<std::size_t>(static_cast<double>(sum) * group.share_needed(tokens));
  }
  return total;
}

template <typename F>
std::size_t WeightLayout::sum_active(std::size_t tokens, F&& count) const {
  std::size_t total = sum_experts(tokens, count), turn = 0;
  for (const streaming::ExpertGroup& group : expert_groups_) {
    total += sum_turns(turn, group.first_turn, count);
    turn = group.end_turn();
  }
  return total + sum_turns(turn, segments_.size(), count);
}

std::size_t WeightLayout::active_bytes(std::size_t tokens) const {
  return sum_active(tokens, [this](std::size_t turn) { return segments_[turn].bytes; });
}

std::size_t WeightLayout::active_expert_bytes(std::size_t tokens) const {
  return sum_experts(tokens, [this](std::size_t turn) { return segments_[turn].bytes; });
}

std::size_t WeightLayout::active_weights() const {
  return sum_active(1, [this](std::size_t turn) {
    return segment_rows_[turn].rows * segment_rows_[turn].columns;
  });
}

EmbeddingTable::EmbeddingTable(const gguf::Model& model, const gguf::TensorInfo& tensor,
                               const Rotation* rotation)
    : file_(model.files()[tensor.file]),
      type_(supported_type(model, tensor)),
      offset_(tensor.offset),
      columns_(tensor.dims[0]),
      rotation_(rotation),
      buffer_(tensor.bytes / tensor.dims[1]) {}

void EmbeddingTable::row(std::size_t token, std::span<std::byte> bytes, float* out) const {
  file_.read(row_offset(token), bytes);
  kernels::dequantise(type_, bytes.data(), columns_, out);
  if (rotation_ != nullptr) rotation_->turn_back(out);
}

}  // namespace sluice::model
