#include "core/model/weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <utility>

#include "kernels/dequantise.h"
#include "kernels/panel_packing.h"

namespace sluice::model {
namespace {

// Rows of a slice are a multiple of so many: two threads then share it in groups of four panels,
// the unit in which kernels work best.
constexpr std::size_t slice_row_unit = 128;

std::string place(const gguf::Model& model, const std::string& tensor) {
  return fmt::format("{}: tensor '{}'", model.metadata().source(), tensor);
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
    : model_(model), slice_bytes_max_(slice_bytes_max) {}

const gguf::TensorInfo& WeightLayout::require(const std::string& name, std::size_t dim0,
                                              std::size_t dim1) const {
  const gguf::TensorInfo* tensor = model_.find_tensor(name);
  if (tensor == nullptr) {
    throw ModelError(
        fmt::format("{} is missing, expected with shape {} x {}", place(model_, name), dim0, dim1));
  }
  if (tensor->dims != std::array<std::uint64_t, 4>{dim0, dim1, 1, 1}) {
    throw ModelError(fmt::format("{} has shape {}, expected {} x {}", place(model_, name),
                                 tensor->shape(), dim0, dim1));
  }
  return *tensor;
}

bool WeightLayout::has(const std::string& name) const {
  return model_.find_tensor(name) != nullptr;
}

Matrix WeightLayout::matrix(const std::string& name, std::size_t columns, std::size_t rows) {
  const gguf::TensorInfo& tensor = require(name, columns, rows);
  Matrix matrix{supported_type(model_, tensor), rows, columns, tensor.bytes / rows, {}};
  matrix_weights_ += rows * columns;
  const std::size_t rows_max = std::max(
      slice_bytes_max_ / matrix.row_bytes / slice_row_unit * slice_row_unit, slice_row_unit);
  for (std::size_t row = 0; row < rows; row += rows_max) {
    const std::size_t count = std::min(rows_max, rows - row);
    matrix.slices.push_back({segments_.size(), row, count});
    segments_.push_back(
        {tensor.file, tensor.offset + row * matrix.row_bytes, count * matrix.row_bytes});
    segment_rows_.push_back({matrix.type, count, columns});
  }
  return matrix;
}

Vector WeightLayout::vector(const std::string& name, std::size_t size) {
  const gguf::TensorInfo& tensor = require(name, size, 1);
  supported_type(model_, tensor);
  vectors_.push_back({&tensor, std::vector<float>(size)});
  return vectors_.back().values;
}

Vector WeightLayout::optional_vector(const std::string& name, std::size_t size) {
  return has(name) ? vector(name, size) : Vector{};
}

void WeightLayout::pack(std::size_t turn, std::span<const std::byte> from, std::byte* to) const {
  const SegmentRows& w = segment_rows_[turn];
  if (kernels::can_pack(w.type, w.rows)) {
    kernels::pack_panels(w.type, w.rows, w.columns, from.data(), to);
  } else {
    std::memcpy(to, from.data(), from.size());
  }
}

void WeightLayout::load() {
  std::vector<FileBytes> files;
  for (const gguf::ModelFile& file : model_.files()) files.emplace_back(file.path);
  std::vector<std::byte> bytes;
  for (PendingVector& v : vectors_) {
    bytes.resize(v.tensor->bytes);
    files[v.tensor->file].read(v.tensor->offset, bytes);
    kernels::dequantise(supported_type(model_, *v.tensor), bytes.data(), v.values.size(),
                        v.values.data());
  }
}

std::size_t WeightLayout::vector_bytes() const {
  std::size_t total = 0;
  for (const PendingVector& v : vectors_) total += v.values.size() * sizeof(float);
  return total;
}

std::size_t WeightLayout::matrix_bytes() const {
  std::size_t total = 0;
  for (const streaming::Segment& segment : segments_) total += segment.bytes;
  return total;
}

EmbeddingTable::EmbeddingTable(const gguf::Model& model, const gguf::TensorInfo& tensor)
    : file_(model.files()[tensor.file].path),
      type_(supported_type(model, tensor)),
      offset_(tensor.offset),
      columns_(tensor.dims[0]),
      buffer_(tensor.bytes / tensor.dims[1]) {}

void EmbeddingTable::row(std::size_t token, float* out) {
  file_.read(offset_ + token * buffer_.size(), buffer_);
  kernels::dequantise(type_, buffer_.data(), columns_, out);
}

}  // namespace sluice::model
