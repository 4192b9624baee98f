#include "core/quant/quantise_model.h"

#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/gguf/gguf.h"
#include "core/model/file_bytes.h"
#include "core/quant/imatrix.h"
#include "core/quant/quant_mix.h"
#include "core/quant/tensor_types.h"
#include "core/text/quoted.h"

namespace sluice::quant {
namespace {

using kernels::BlockType;

// Of an integer, or the largest element of an array.
std::uint32_t largest_of(const gguf::Metadata& metadata, const std::string& key) {
  const gguf::Value* value = metadata.find(key);
  if (value == nullptr) return 0;
  if (!value->is_array()) return metadata.require_u32(key);
  std::int64_t largest = 0;
  const gguf::IntegerArray values = metadata.require_integers(key);
  for (std::size_t i = 0; i < values.size(); ++i) largest = std::max(largest, values[i]);
  return static_cast<std::uint32_t>(std::min<std::int64_t>(largest, 1 << 20));
}

ModelFacts facts_of(const gguf::Metadata& metadata) {
  const std::string prefix(metadata.require_string("general.architecture"));
  const std::uint32_t queries = largest_of(metadata, prefix + ".attention.head_count");
  const std::uint32_t keys = largest_of(metadata, prefix + ".attention.head_count_kv");
  return {largest_of(metadata, prefix + ".block_count"),
          keys > 0 ? std::max(1u, queries / keys) : 1};
}

std::vector<NamedShape> shapes_of(const gguf::Model& model) {
  std::vector<NamedShape> shapes;
  for (const gguf::TensorInfo& tensor : model.tensors()) {
    shapes.push_back({tensor.name, tensor.rank, tensor.dims[0]});
  }
  return shapes;
}

BlockType stored_type(const gguf::TensorInfo& tensor) {
  const auto traits = kernels::find_block_type(tensor.type);
  if (!traits) {
    throw ModelError(fmt::format("tensor {} is of type {}, which cannot be read",
                                 text::quoted(tensor.name), kernels::gguf_type_name(tensor.type)));
  }
  return traits->type;
}

bool is_quantised(BlockType type) {
  return type != BlockType::f32 && type != BlockType::f16 && type != BlockType::bf16;
}

// What the new file says of itself, and what belongs to shards, is not copied.
bool is_kept(std::string_view key) {
  return key != "general.file_type" && key != "general.quantization_version" &&
         key != "general.alignment" && !key.starts_with("split.") &&
         !key.starts_with("quantize.imatrix.");
}

void copy_metadata(const gguf::Metadata& metadata, gguf::Writer& writer) {
  for (const gguf::Metadata::Entry& entry : metadata.entries()) {
    if (is_kept(entry.key)) writer.add(entry.key, entry.value);
  }
}

// Gives each tensor that becomes smaller the importance of its columns.
void add_importance(const Imatrix& imatrix, std::vector<PlannedTensor>& tensors,
                    QuantiseReport& report) {
  std::size_t missing = 0;
  for (PlannedTensor& tensor : tensors) {
    if (tensor.from == tensor.to || !is_quantised(tensor.to)) continue;
    tensor.importance = imatrix.importance(tensor.name, tensor.dims);
    if (tensor.importance.empty()) ++missing;
  }
  if (missing > 0) {
    report.warnings.push_back(
        fmt::format("{} tensors are not in the importance matrix: all of their columns count "
                    "alike",
                    missing));
  }
}

class Quantiser {
 public:
  Quantiser(const std::filesystem::path& input, const QuantiseOptions& options)
      : options_(options),
        mix_(QuantMix::by_name(options.quant)),
        model_(gguf::Model::open(input)) {
    for (const gguf::ModelFile& file : model_.files()) files_.emplace_back(file);
    plan();
  }

  QuantiseReport write(const std::filesystem::path& output) {
    gguf::Writer writer;
    copy_metadata(model_.metadata(), writer);
    writer.add("general.file_type", mix_.file_type());
    writer.add("general.quantization_version", std::uint32_t{2});
    if (!options_.imatrix.empty()) {
      const Imatrix imatrix = Imatrix::read(options_.imatrix);
      add_importance(imatrix, tensors_, report_);
      writer.add("quantize.imatrix.file", std::string_view(options_.imatrix.string()));
      writer.add("quantize.imatrix.dataset", std::string_view(imatrix.dataset()));
      writer.add("quantize.imatrix.chunks_count", imatrix.chunk_count());
    }
    write_converted(output, writer, tensors_, options_.convert);
    report_.bytes_before = model_.file_bytes();
    report_.bytes_after = writer.file_bytes();
    return std::move(report_);
  }

 private:
  void plan() {
    const auto types = types_of(shapes_of(model_), mix_, facts_of(model_.metadata()));
    std::uint64_t again = 0;
    for (std::size_t i = 0; i < types.size(); ++i) {
      const gguf::TensorInfo& tensor = model_.tensors()[i];
      const BlockType from = stored_type(tensor), to = types[i].value_or(from);
      if (from != to && is_quantised(from)) ++again;
      if (from != to) ++report_.changed;
      const auto read = [this, &tensor, row = kernels::row_bytes(from, tensor.dims[0])](
                            std::uint64_t first, std::uint64_t, std::span<std::byte> out) {
        files_[tensor.file].read(tensor.offset + first * row, out);
      };
      tensors_.push_back({std::string(tensor.name),
                          {tensor.dims.begin(), tensor.dims.begin() + tensor.rank},
                          from,
                          to,
                          read});
    }
    report_.tensors = tensors_.size();
    if (again > 0) {
      report_.warnings.push_back(
          fmt::format("{} tensors are quantised already and lose precision a second time; start "
                      "from an F32, F16 or BF16 file where there is one",
                      again));
    }
  }

  const QuantiseOptions& options_;
  QuantMix mix_;
  gguf::Model model_;
  std::vector<model::FileBytes> files_;
  std::vector<PlannedTensor> tensors_;
  QuantiseReport report_;
};

}  // namespace

QuantiseReport quantise_model(const std::filesystem::path& input,
                              const std::filesystem::path& output, const QuantiseOptions& options) {
  std::error_code absent;
  if (std::filesystem::equivalent(input, output, absent)) {
    throw UsageError(
        fmt::format("{} would be written over itself; name another output", input.string()));
  }
  return Quantiser(input, options).write(output);
}

}  // namespace sluice::quant
