#include "core/quant/imatrix.h"

#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <utility>

#include "core/error.h"
#include "core/gguf/gguf_writer.h"
#include "core/model/file_bytes.h"
#include "core/text/quoted.h"
#include "kernels/block_formats.h"

namespace sluice::quant {
namespace {

constexpr std::string_view sums_suffix = ".in_sum2";
constexpr std::string_view counts_suffix = ".counts";

bool is_left_out(std::string_view tensor) {
  return tensor == "output.weight" || tensor == "token_embd.weight";
}

// `files`: those of the model, in its order.
std::vector<float> values_of(const gguf::Model& model, const std::vector<model::FileBytes>& files,
                             const gguf::TensorInfo& tensor) {
  const gguf::ModelFile& file = model.files()[tensor.file];
  if (tensor.type != static_cast<std::uint32_t>(kernels::BlockType::f32)) {
    throw ModelError(fmt::format("{}: tensor {} is {}, expected F32", file.path.string(),
                                 text::quoted(tensor.name), kernels::gguf_type_name(tensor.type)));
  }
  std::vector<float> values(tensor.elements());
  files[tensor.file].read(tensor.offset, std::as_writable_bytes(std::span(values)));
  for (const float value : values) {
    if (std::isfinite(value) && value >= 0) continue;
    throw ModelError(fmt::format("{}: tensor {} holds {}, expected finite numbers from 0",
                                 file.path.string(), text::quoted(tensor.name), value));
  }
  return values;
}

}  // namespace

Imatrix Imatrix::read(const std::filesystem::path& path) {
  const gguf::Model file = gguf::Model::open(path);
  const gguf::Metadata& metadata = file.metadata();
  if (metadata.find_string("general.type").value_or("") != "imatrix") {
    throw ModelError(
        fmt::format("{}: not an importance matrix; expected a GGUF file of llama.cpp's "
                    "llama-imatrix",
                    path.string()));
  }
  Imatrix result;
  std::vector<model::FileBytes> files;
  for (const gguf::ModelFile& one : file.files()) files.emplace_back(one);
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    if (!tensor.name.ends_with(sums_suffix)) continue;
    const std::string name(tensor.name.substr(0, tensor.name.size() - sums_suffix.size()));
    ImatrixEntry entry{tensor.dims[0], values_of(file, files, tensor), {}};
    entry.counts = values_of(file, files, file.require_tensor(name + std::string(counts_suffix)));
    if (entry.counts.size() * entry.columns != entry.sums.size()) {
      throw ModelError(fmt::format("{}: {} has {} counts for {} matrices", path.string(),
                                   text::quoted(name), entry.counts.size(),
                                   entry.sums.size() / entry.columns));
    }
    result.entries_.emplace(name, std::move(entry));
  }
  result.chunk_count_ = metadata.find_u32("imatrix.chunk_count").value_or(0);
  result.chunk_size_ = metadata.find_u32("imatrix.chunk_size").value_or(0);
  if (const auto datasets = metadata.find_strings("imatrix.datasets")) {
    for (const std::string_view one : *datasets) {
      result.dataset_ += (result.dataset_.empty() ? "" : ", ") + std::string(one);
    }
  }
  return result;
}

void Imatrix::write(const std::filesystem::path& path) const {
  gguf::Writer writer;
  writer.add("general.type", "imatrix");
  const std::vector<std::string> datasets = {dataset_};
  writer.add_array("imatrix.datasets", std::span<const std::string>(datasets));
  writer.add("imatrix.chunk_count", chunk_count_);
  writer.add("imatrix.chunk_size", chunk_size_);
  std::vector<std::span<const float>> data;
  constexpr auto f32 = static_cast<std::uint32_t>(kernels::BlockType::f32);
  for (const auto& [name, entry] : entries_) {
    const std::uint64_t matrices = entry.counts.size();
    writer.add_tensor(name + std::string(sums_suffix),
                      std::vector<std::uint64_t>{entry.columns, matrices}, f32);
    data.emplace_back(entry.sums);
    writer.add_tensor(name + std::string(counts_suffix), std::vector<std::uint64_t>{1, matrices},
                      f32);
    data.emplace_back(entry.counts);
  }
  writer.write(path, [&](std::size_t index, const gguf::Writer::Sink& sink) {
    sink(std::as_bytes(data[index]));
  });
}

std::vector<float> Imatrix::importance(const std::string& name,
                                       std::span<const std::uint64_t> dims) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return {};
  const ImatrixEntry& entry = found->second;
  std::uint64_t matrices = 1;
  for (const std::uint64_t dim : dims.subspan(std::min<std::size_t>(2, dims.size()))) {
    matrices *= dim;
  }
  if (entry.columns != dims[0] || entry.counts.size() != matrices) {
    throw ModelError(fmt::format(
        "the importance matrix has {} columns of {} matrices for tensor {}, the model {} of {}; it "
        "is of another model",
        entry.columns, entry.counts.size(), text::quoted(name), dims[0], matrices));
  }
  std::vector<float> means(entry.sums.size(), 0.0f);
  for (std::size_t i = 0; i < means.size(); ++i) {
    const float count = entry.counts[i / entry.columns];
    if (count > 0) means[i] = entry.sums[i] / count;
    if (std::isfinite(means[i])) continue;
    throw ModelError(fmt::format(
        "the importance matrix has a sum of {} over {} inputs for tensor {}: it is damaged",
        entry.sums[i], count, text::quoted(name)));
  }
  return means;
}

std::uint64_t ImatrixSums::bytes_max(const gguf::Model& model) {
  constexpr std::uint64_t name_bytes = 512;  // with the parts of the map around it
  std::uint64_t bytes = 0;
  for (const gguf::TensorInfo& tensor : model.tensors()) {
    if (tensor.rank < 2 || is_left_out(tensor.name)) continue;
    const std::uint64_t matrices = tensor.dims[2] * tensor.dims[3];
    bytes += matrices * (tensor.dims[0] * sizeof(double) + sizeof(std::uint64_t)) + name_bytes;
  }
  return bytes;
}

void ImatrixSums::add(const model::MatrixInput& input) {
  if (is_left_out(input.tensor)) return;
  auto found = sums_.find(input.tensor);
  if (found == sums_.end()) {
    Sums empty;
    empty.columns = input.size;
    empty.squares.resize(input.matrices * input.size);
    empty.counts.resize(input.matrices);
    found = sums_.emplace(std::string(input.tensor), std::move(empty)).first;
  }
  Sums& sums = found->second;
  double* squares = sums.squares.data() + input.matrix * input.size;
  for (std::size_t c = 0; c < input.columns; ++c) {
    const float* x = input.x + c * input.x_stride;
    for (std::size_t i = 0; i < input.size; ++i) {
      squares[i] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
  }
  sums.counts[input.matrix] += input.columns;
}

// Lets go of the sums of each tensor once they are turned, so as not to hold all of both.
Imatrix ImatrixSums::finish(std::string dataset, std::uint32_t chunk_count,
                            std::uint32_t chunk_size) {
  std::map<std::string, ImatrixEntry> entries;
  while (!sums_.empty()) {
    const auto node = sums_.extract(sums_.begin());
    const Sums& sums = node.mapped();
    ImatrixEntry entry{sums.columns, {}, {}};
    entry.sums.reserve(sums.squares.size());
    for (const double square : sums.squares) {
      entry.sums.push_back(static_cast<float>(square));
      if (std::isfinite(entry.sums.back())) continue;
      throw ModelError(fmt::format("inputs of tensor {} are not finite: the model is damaged",
                                   text::quoted(node.key())));
    }
    entry.counts.reserve(sums.counts.size());
    for (const std::uint64_t count : sums.counts) {
      entry.counts.push_back(static_cast<float>(count));
    }
    entries.emplace(node.key(), std::move(entry));
  }
  return {std::move(entries), std::move(dataset), chunk_count, chunk_size};
}

}  // namespace sluice::quant
