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
#include "core/quant/type_choice.h"
#include "core/text/quoted.h"
#include "topology/machine.h"

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

BlockType stored_type(const gguf::Model& model, const gguf::TensorInfo& tensor) {
  const auto traits = kernels::find_block_type(tensor.type);
  if (!traits) {
    throw ModelError(fmt::format("{}: tensor {} is of type {}, which cannot be quantised or copied",
                                 model.files()[tensor.file].path.string(),
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

class Quantiser {
 public:
  Quantiser(const std::filesystem::path& input, const QuantiseOptions& options)
      : options_(options),
        mix_(QuantMix::by_name(options.quant.empty() ? "F16" : options.quant)),
        model_(gguf::Model::open(input)) {
    for (const gguf::ModelFile& file : model_.files()) files_.emplace_back(file);
    if (options.quant.empty() && options.target_bytes == 0) {
      throw UsageError("name a format with --quant, or a size with --target-size");
    }
    plan();
    if (!options_.imatrix.empty()) {
      imatrix_ = Imatrix::read(options_.imatrix);
      add_importance();
    }
    if (options_.target_bytes != 0) choose_types();
    count_changes();
  }

  QuantiseReport write(const std::filesystem::path& output) {
    gguf::Writer writer = metadata_writer();
    write_converted(output, writer, tensors_, options_.convert);
    report_.bytes_before = model_.file_bytes();
    report_.bytes_after = writer.file_bytes();
    return std::move(report_);
  }

 private:
  gguf::Writer metadata_writer() const {
    gguf::Writer writer;
    copy_metadata(model_.metadata(), writer);
    writer.add("general.file_type", file_type());
    writer.add("general.quantization_version", std::uint32_t{2});
    if (!options_.imatrix.empty()) {
      writer.add("quantize.imatrix.file", std::string_view(options_.imatrix.string()));
      writer.add("quantize.imatrix.dataset", std::string_view(imatrix_.dataset()));
      writer.add("quantize.imatrix.chunks_count", imatrix_.chunk_count());
    }
    return writer;
  }

  // Of a file without a mixture that of the type with the most bytes.
  std::uint32_t file_type() const {
    if (!options_.quant.empty() || report_.chosen.empty()) return mix_.file_type();
    const auto has_name = [&](const kernels::BlockTraits& traits) {
      return traits.name == report_.chosen.front().name;
    };
    return std::ranges::find_if(kernels::all_block_types(), has_name)->file_type;
  }

  void plan() {
    const auto types = types_of(shapes_of(model_), mix_, facts_of(model_.metadata()));
    TypeRecipe recipe = options_.recipe;
    for (std::size_t i = 0; i < types.size(); ++i) {
      const gguf::TensorInfo& tensor = model_.tensors()[i];
      const BlockType from = stored_type(model_, tensor);
      std::optional<BlockType> own;
      if (types[i]) own = recipe.type_for(tensor.name, tensor.dims[0]);
      const auto read = [this, &tensor, row = kernels::row_bytes(from, tensor.dims[0])](
                            std::uint64_t first, std::uint64_t, std::span<std::byte> out) {
        files_[tensor.file].read(tensor.offset + first * row, out);
      };
      tensors_.push_back({std::string(tensor.name),
                          {tensor.dims.begin(), tensor.dims.begin() + tensor.rank},
                          from,
                          own.value_or(types[i].value_or(from)),
                          read});
      if (types[i] && !own) free_.push_back(i);
    }
    recipe.check_all_matched();
    report_.tensors = tensors_.size();
  }

  // Gives each tensor that may become smaller the importance of its columns. What no text reaches
  // has none (a block that predicts, keys that other layers' take the place of), and becomes no
  // format that needs it.
  void add_importance() {
    std::vector<std::string> missing, replaced;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      PlannedTensor& tensor = tensors_[i];
      const bool is_chosen = options_.target_bytes != 0 && std::ranges::binary_search(free_, i);
      if (!is_chosen && (tensor.from == tensor.to || !is_quantised(tensor.to))) continue;
      tensor.importance = imatrix_.importance(tensor.name, tensor.dims);
      if (!tensor.importance.empty()) continue;
      const bool is_replaced = needs_importance(tensor.to) && std::ranges::binary_search(free_, i);
      if (is_replaced) tensor.to = BlockType::q2_k;  // of as long blocks
      (is_replaced ? replaced : missing).push_back(tensor.name);
    }
    warn_of(missing, "all columns count alike");
    warn_of(replaced, "Q2_K, which needs none, takes the place of fewer bits");
  }

  void warn_of(const std::vector<std::string>& names, std::string_view what) {
    if (names.empty()) return;
    const std::string more =
        names.size() == 1 ? " is" : fmt::format(" and {} more are", names.size() - 1);
    report_.warnings.push_back(fmt::format("{}{} not in the importance matrix: {}",
                                           text::quoted(names.front()), more, what));
  }

  // Gives the matrices that the recipe leaves free the formats with which the file is as exact as
  // the size allows.
  void choose_types() {
    topology::ThreadTeam team(
        topology::choose_threads(topology::read_machine(), options_.convert.threads).cpus);
    std::vector<std::vector<TypeOption>> options;
    std::uint64_t largest = 0;
    for (const std::size_t i : free_) {
      if (options_.convert.progress) options_.convert.progress(0, model_.file_bytes());
      options.push_back(type_options(tensors_[i], team));
      tensors_[i].to = tensors_[i].from;
      largest += options.back().front().bytes;
    }
    gguf::Writer as_it_is = metadata_writer();
    add_tensors(tensors_, as_it_is);
    const std::uint64_t others = as_it_is.file_bytes() - largest;
    std::optional<std::vector<std::size_t>> chosen;
    if (options_.target_bytes >= others) {
      chosen = choose_options(options, options_.target_bytes - others);
    }
    if (!chosen) {
      std::uint64_t least = others;
      for (const std::vector<TypeOption>& of_one : options) {
        least += std::ranges::min(of_one, {}, &TypeOption::bytes).bytes;
      }
      throw UsageError(
          fmt::format("a file of {} bytes is not possible: the least is {} bytes ({:.2f} MiB){}",
                      options_.target_bytes, least, static_cast<double>(least) / 0x1p20,
                      options_.imatrix.empty() ? ", or less with --imatrix" : ""));
    }
    for (std::size_t i = 0; i < free_.size(); ++i) {
      const TypeOption& option = options[i][(*chosen)[i]];
      tensors_[free_[i]].to = option.type;
      report_.expected_error += option.error / static_cast<double>(free_.size());
      count_chosen(option);
    }
    std::ranges::stable_sort(report_.chosen, std::ranges::greater(), &ChosenType::bytes);
  }

  void count_chosen(const TypeOption& option) {
    const std::string_view name = kernels::traits(option.type).name;
    auto found = std::ranges::find(report_.chosen, name, &ChosenType::name);
    if (found == report_.chosen.end()) found = report_.chosen.insert(found, ChosenType{name});
    ++found->tensors;
    found->bytes += option.bytes;
  }

  void count_changes() {
    std::uint64_t again = 0;
    for (const PlannedTensor& tensor : tensors_) {
      if (tensor.from == tensor.to) continue;
      ++report_.changed;
      if (is_quantised(tensor.from)) ++again;
    }
    if (again > 0) {
      report_.warnings.push_back(
          fmt::format("{} tensors are quantised already and lose precision a second time; start "
                      "from an F32, F16 or BF16 file where there is one",
                      again));
    }
    if (std::string warning = warning_of_few_values(tensors_); !warning.empty()) {
      report_.warnings.push_back(std::move(warning));
    }
  }

  const QuantiseOptions& options_;
  QuantMix mix_;
  gguf::Model model_;
  std::vector<model::FileBytes> files_;
  std::vector<PlannedTensor> tensors_;
  std::vector<std::size_t> free_;  // the matrices whose format the recipe does not name
  Imatrix imatrix_;
  QuantiseReport report_;
};

}  // namespace

QuantisedHeader quantised_header(const gguf::Model& model, std::string_view quant) {
  const QuantMix mix = QuantMix::by_name(quant);
  const auto types = types_of(shapes_of(model), mix, facts_of(model.metadata()));
  std::vector<PlannedTensor> tensors;
  for (std::size_t i = 0; i < types.size(); ++i) {
    const gguf::TensorInfo& tensor = model.tensors()[i];
    const BlockType from = stored_type(model, tensor);
    tensors.push_back({std::string(tensor.name),
                       {tensor.dims.begin(), tensor.dims.begin() + tensor.rank},
                       from,
                       types[i].value_or(from),
                       {}});
  }
  gguf::Writer writer;
  copy_metadata(model.metadata(), writer);
  writer.add("general.file_type", mix.file_type());
  writer.add("general.quantization_version", std::uint32_t{2});
  add_tensors(tensors, writer);
  return {writer.header(), writer.file_bytes()};
}

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
