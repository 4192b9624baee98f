#include "core/convert/import.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/convert/config.h"
#include "core/convert/families.h"
#include "core/convert/import_tokenizer.h"
#include "core/convert/json_file.h"
#include "core/convert/part_source.h"
#include "core/convert/rope_scaling.h"
#include "core/convert/safetensors.h"
#include "core/convert/text_vectors.h"
#include "core/quant/quant_mix.h"
#include "core/quant/tensor_types.h"
#include "core/quant/type_choice.h"
#include "core/text/quoted.h"

namespace sluice::convert {
namespace {

namespace fs = std::filesystem;
using kernels::BlockType;
using quant::PlannedTensor;

// Dimensions of 1 do not change where a value is.
std::vector<std::uint64_t> without_ones(std::vector<std::uint64_t> shape) {
  std::erase(shape, 1);
  return shape;
}

// Throws ModelError when the folder holds something else than a model.
const fs::path& checked(const fs::path& folder) {
  if (!fs::is_directory(folder)) return folder;  // what opens its files says so
  if (fs::exists(folder / "adapter_config.json") && !Checkpoint::exists(folder)) {
    throw ModelError(fmt::format(
        "{}: holds an adapter, not a model (adapter_config.json): merge it into its model first, "
        "as with merge_and_unload() of peft, and import what that saves",
        folder.string()));
  }
  if (!fs::exists(folder / "config.json")) {
    throw ModelError(fmt::format(
        "{}: config.json is missing; give the folder of a Hugging Face checkpoint, with "
        "config.json, model.safetensors and tokenizer.json",
        folder.string()));
  }
  return folder;
}

class Import {
 public:
  Import(const fs::path& folder, const ImportOptions& options)
      : options_(options),
        folder_(checked(folder)),
        config_(with_usual_names(text_settings(read_json(folder / "config.json", config_bytes_max)),
                                 (folder / "config.json").string())),
        family_(family_by_architecture(config_)),
        prefix_(family_.ours),
        sizes_(read_sizes(config_, family_)),
        checkpoint_(Checkpoint::open(folder)) {
    if (family_.scores.empty()) vectors_ = read_text_vectors(folder, sizes_.embedding);
    if (!family_.is_encoder && !vectors_.dense.empty()) {
      throw ModelError(
          fmt::format("{}: modules.json has a matrix behind {}, which is supported "
                      "behind encoders only",
                      folder.string(), family_.architecture));
    }
  }

  ImportReport write(const fs::path& output) {
    check_readable();
    size_layers();
    plan_tensors();
    check_all_used();
    const quant::QuantMix mix = quant::QuantMix::by_name(
        options_.quant.empty() ? kernels::traits(usual_type()).name : options_.quant);
    choose_types(mix);
    gguf::Writer writer;
    add_metadata(mix, writer);
    const std::vector<std::string> of_tokenizer = import_tokenizer(
        folder_, config_, sizes_.vocabulary,
        {.keeps_merges = family_.keeps_merges, .makes_vectors = makes_vectors()}, writer);
    warnings_.insert(warnings_.end(), of_tokenizer.begin(), of_tokenizer.end());
    quant::write_converted(output, writer, tensors_, options_.convert);
    if (std::string warning = quant::warning_of_few_values(tensors_); !warning.empty()) {
      warnings_.push_back(std::move(warning));
    }
    return {prefix_, mix.name(), tensors_.size(), writer.file_bytes(), warnings()};
  }

 private:
  // That of most of the matrices' bytes, which says what a file is whose weights stay as they are.
  BlockType usual_type() const {
    std::map<BlockType, std::uint64_t> bytes;
    for (const PlannedTensor& tensor : tensors_) {
      if (tensor.dims.size() < 2) continue;
      const quant::Conversion conversion = quant::conversion_of(tensor);
      bytes[tensor.from] += conversion.rows * kernels::row_bytes(tensor.from, conversion.columns);
    }
    const auto by_bytes = [](const auto& a, const auto& b) { return a.second < b.second; };
    return std::ranges::max_element(bytes, by_bytes)->first;
  }

  bool makes_vectors() const { return family_.is_encoder || vectors_.pooling; }

  // What all names but that of the head begin with: a model that was stored without its head has no
  // "model." in front.
  std::string_view stem_of_names() const {
    const std::string_view stem = family_.stem;
    const std::string first = fmt::format("{}{}", stem, family_.globals.front().theirs);
    if (stem.empty() || checkpoint_.find(first) != nullptr) return stem;
    return stem.substr(stem.find('.') + 1);
  }

  // A layer has tensors, so the checkpoint bounds what a great number of layers can cost.
  void size_layers() {
    if (sizes_.layers > checkpoint_.tensors().size()) {
      throw config_.error("num_hidden_layers",
                          fmt::format("is {}, but the checkpoint has only {} tensors",
                                      sizes_.layers, checkpoint_.tensors().size()));
    }
    kinds_ =
        family_.kinds != nullptr ? family_.kinds(config_, sizes_) : std::string(sizes_.layers, '*');
    for (const char kind : kinds_) {
      layers_.push_back(sizes_);
      if (family_.fit_layer != nullptr) family_.fit_layer(config_, kind, layers_.back());
      layers_.back().derive();
    }
  }

  void plan_tensors() {
    for (const Part& part : family_.globals) add(their_name(part), std::string(part.ours), part);
    if (family_.is_encoder) {
      plan_text_parts();
    } else {
      plan_head();
    }
    for (RopeFactors& one : rope_factors(config_, sizes_.rotated)) {
      add_factors(std::move(one.name), std::move(one.factors));
    }
    for (std::uint64_t layer = 0; layer < sizes_.layers; ++layer) {
      for (const LayerKind& kind : family_.layers) {
        if (kind.kinds.find(kinds_[layer]) == std::string_view::npos) continue;
        for (const Block& block : kind.blocks) add(block, layer);
      }
    }
  }

  // What makes a vector or a score of a text.
  void plan_text_parts() {
    for (const Part& part : family_.scores) {
      add(std::string(part.theirs), std::string(part.ours), part);
    }
    for (std::size_t i = 0; i < vectors_.dense.size(); ++i) {
      const DenseModule& dense = vectors_.dense[i];
      const std::uint64_t rows = dense.weight.shape[0], columns = dense.weight.shape[1];
      const std::uint64_t bytes = kernels::row_bytes(dense.weight.type, columns);
      auto read = [dense, bytes](std::uint64_t first, std::uint64_t, std::span<std::byte> out) {
        dense.checkpoint->read(dense.weight, first * bytes, out);
      };
      tensors_.push_back({fmt::format("dense_{}.weight", i + 2),
                          {columns, rows},
                          dense.weight.type,
                          BlockType::f32,
                          std::move(read)});
    }
  }

  // A table of embeddings that is the head too has no tensor of its own for it, unless the two are
  // multiplied with different numbers.
  void plan_head() {
    const Part& head = family_.head;
    const std::string name(head.theirs);
    const bool has_head = checkpoint_.find(name) != nullptr;
    if (family_.has_head_bias) {
      add(std::string(head_bias.theirs), std::string(head_bias.ours), head_bias);
    }
    const bool needs_none = !has_head && vectors_.pooling.has_value();
    const Part& table = family_.globals.front();
    bool is_tied = config_.find_flag("tie_word_embeddings").value_or(!has_head);
    if (is_tied && has_head && !are_same(name, their_name(table))) {
      is_tied = false;  // as transformers has it
      warnings_.push_back(
          fmt::format("tie_word_embeddings is true, but {} differs from {}: it is kept as the head",
                      name, their_name(table)));
    }
    if (!needs_none && !is_tied) return add(name, std::string(head.ours), head);
    used_.insert(name);
    const auto scales_of = [&](const Part& part) {
      return part.scales != nullptr ? part.scales(config_, sizes_) : std::vector<float>{};
    };
    if (scales_of(head) != scales_of(table)) {
      add(their_name(table), std::string(head.ours), head);
    }
  }

  // Whether two tensors hold the same bytes.
  bool are_same(const std::string& name, const std::string& other_name) const {
    const StoredTensor *one = checkpoint_.find(name), *other = checkpoint_.find(other_name);
    if (one == nullptr || other == nullptr || one->type != other->type ||
        one->shape != other->shape) {
      return false;
    }
    constexpr std::uint64_t piece_max = std::uint64_t{8} << 20;
    std::vector<std::byte> bytes, others;
    for (std::uint64_t at = 0; at < one->bytes; at += bytes.size()) {
      bytes.resize(std::min(piece_max, one->bytes - at));
      others.resize(bytes.size());
      checkpoint_.read(*one, at, bytes);
      checkpoint_.read(*other, at, others);
      if (bytes != others) return false;
    }
    return true;
  }

  void add_factors(std::string name, std::vector<float> factors) {
    const std::uint64_t count = factors.size();
    auto read = [factors = std::move(factors)](std::uint64_t, std::uint64_t,
                                               std::span<std::byte> out) {
      std::memcpy(out.data(), factors.data(), out.size());
    };
    tensors_.push_back({std::move(name), {count}, BlockType::f32, BlockType::f32, std::move(read)});
  }

  std::string their_name(const Part& global) const {
    return fmt::format("{}{}", stem_, global.theirs);
  }

  // With the point behind it.
  std::string layer_name(std::uint64_t layer) const {
    return fmt::format("{}{}{}.", stem_, family_.layer_stem, layer);
  }

  void add(const Block& block, std::uint64_t layer) {
    const auto name_of = [&](const Part& part) {
      return fmt::format("{}{}{}", layer_name(layer), block.prefix, part.theirs);
    };
    for (const Part& one : block.parts) {
      const bool is_older =
          one.older != nullptr && checkpoint_.find(name_of(*one.older)) != nullptr;
      const Part& part = is_older ? *one.older : one;
      add(name_of(part), fmt::format("blk.{}.{}", layer, part.ours), part, layers_[layer]);
    }
  }

  void add(const std::string& theirs, std::string ours, const Part& part) {
    add(theirs, std::move(ours), part, sizes_);
  }

  void add(const std::string& theirs, std::string ours, const Part& part, const Sizes& sizes) {
    if (part.when != nullptr && sizes.*part.when == 0) return;
    if (part.is_optional && checkpoint_.find(theirs) == nullptr) return;
    const StoredTensor* found = checkpoint_.find(theirs);
    const bool is_of_blocks = found != nullptr && found->type == BlockType::mxfp4;
    const PartSource source(family_, part, sizes, is_of_blocks);
    if (is_of_blocks && source.values_of_part() > 0) {
      throw ModelError(fmt::format("{}: tensor {} is in MXFP4, which is not supported for it",
                                   folder_.string(), text::quoted(theirs)));
    }
    std::vector<const StoredTensor*> tensors;
    for (std::uint64_t i = 0; i < source.tensors(); ++i) {
      const std::size_t place = theirs.find("{}");
      std::string name = theirs;
      if (place != std::string::npos) {
        const bool has_letter = !part.letters.empty();
        name.replace(place, 2, has_letter ? std::string(1, part.letters[i]) : std::to_string(i));
      }
      tensors.push_back(&stored(name, source));
      if (tensors.back()->type != tensors.front()->type) {
        throw ModelError(fmt::format("{}: tensor {} has another type than those it is stacked with",
                                     folder_.string(), text::quoted(name)));
      }
      used_.insert(std::move(name));
    }
    const BlockType type = tensors.front()->type;
    auto read = reader_of(std::move(tensors), source);
    tensors_.push_back({std::move(ours), source.dims(), type, BlockType::f32, std::move(read),
                        source.change(config_)});
  }

  const StoredTensor& stored(const std::string& name, const PartSource& source) const {
    const StoredTensor* tensor = checkpoint_.find(name);
    if (tensor == nullptr) {
      throw ModelError(
          fmt::format("{}: tensor {} is missing", folder_.string(), text::quoted(name)));
    }
    if (without_ones(tensor->shape) != without_ones(source.shape())) {
      throw ModelError(fmt::format(
          "{}: tensor {} has shape [{}], config.json asks for [{}]", folder_.string(),
          text::quoted(name), fmt::join(tensor->shape, ", "), fmt::join(source.shape(), ", ")));
    }
    return *tensor;
  }

  // Reads rows that follow each other there at once.
  quant::RowConverter::ReadRows reader_of(std::vector<const StoredTensor*> tensors,
                                          const PartSource& source) const {
    const std::uint64_t bytes = kernels::row_bytes(tensors.front()->type, source.dims().front());
    const std::uint64_t rows = source.rows_of_tensor(), stored = source.stored_rows();
    if (source.values_of_part() > 0) return scattered_reader_of(*tensors.front(), source);
    return [=, this, tensors = std::move(tensors)](std::uint64_t first, std::uint64_t count,
                                                   std::span<std::byte> out) {
      const std::uint64_t present = std::min(count, stored - std::min(stored, first));
      std::ranges::fill(out.subspan(present * bytes), std::byte{0});
      for (std::uint64_t i = 0; i < present;) {
        const std::uint64_t row = source.their_row(first + i);
        const std::uint64_t most = std::min(present - i, rows - row % rows);
        std::uint64_t run = 1;
        while (run < most && source.their_row(first + i + run) == row + run) ++run;
        checkpoint_.read(*tensors[row / rows], row % rows * bytes,
                         out.subspan(i * bytes, run * bytes));
        i += run;
      }
    };
  }

  // Reads a part of their tensor (a matrix, of an expert for example) once for all its rows, which
  // come in several calls.
  quant::RowConverter::ReadRows scattered_reader_of(const StoredTensor& tensor,
                                                    const PartSource& source) const {
    const std::size_t size = kernels::traits(tensor.type).bytes_per_block;
    const std::uint64_t columns = source.dims().front(), values = source.values_of_part();
    return [=, this, &tensor](std::uint64_t first, std::uint64_t count, std::span<std::byte> out) {
      for (std::uint64_t i = 0; i < count; ++i) {
        const PartSource::Scattered row = source.scattered(first + i);
        const std::vector<std::byte>& part = read_part(tensor, row.part, values * size);
        for (std::uint64_t column = 0; column < columns; ++column) {
          const std::byte* from = &part[(row.first + column * row.step) * size];
          std::copy_n(from, size, &out[(i * columns + column) * size]);
        }
      }
    };
  }

  const std::vector<std::byte>& read_part(const StoredTensor& tensor, std::uint64_t number,
                                          std::uint64_t bytes) const {
    if (held_.tensor != &tensor || held_.number != number || held_.bytes.size() != bytes) {
      held_.tensor = nullptr;  // until it is there
      held_.bytes.resize(bytes);
      checkpoint_.read(tensor, number * bytes, held_.bytes);
      held_.tensor = &tensor;
      held_.number = number;
    }
    return held_.bytes;
  }

  // Names what is wrong with a tensor before others are found missing, whose values it holds, as in
  // a checkpoint that is quantised in a way of its own.
  void check_readable() const {
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      if (!tensor.problem.empty() && !is_needless(name)) throw ModelError(tensor.problem);
    }
  }

  bool is_needless(const std::string& name) const {
    return name.ends_with("rotary_emb.inv_freq") || aside_of(name) != nullptr;
  }

  // A model that is computed without one of its tensors gives wrong text.
  void check_all_used() const {
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      if (used_.contains(name) || is_needless(name) || is_layer_number(name)) continue;
      throw ModelError(fmt::format("{}: tensor {} has no place in {}", folder_.string(),
                                   text::quoted(name), family_.architecture));
    }
  }

  bool is_layer_number(const std::string& name) const {
    return std::any_of(family_.layer_numbers.begin(), family_.layer_numbers.end(),
                       [&](const LayerNumber& one) { return name.ends_with(one.theirs); });
  }

  const Aside* aside_of(const std::string& name) const {
    for (const Aside& aside : family_.aside) {
      const bool has_part = name.find(aside.part) != std::string::npos;
      if (has_part && name.starts_with(aside.prefix)) return &aside;
    }
    // They are stored as layers behind the last one.
    static constexpr Aside predicting = {"", "layers that predict several tokens"};
    const std::uint64_t count = config_.find_whole("num_nextn_predict_layers").value_or(0);
    for (std::uint64_t i = sizes_.layers; i < sizes_.layers + std::min(count, layers_max); ++i) {
      if (name.starts_with(layer_name(i))) return &predicting;
    }
    return nullptr;
  }

  std::vector<std::string> warnings() const {
    std::map<std::string_view, std::uint64_t> left;
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      if (used_.contains(name)) continue;
      if (const Aside* aside = aside_of(name)) ++left[aside->what];
    }
    std::vector<std::string> lines = warnings_;
    for (const auto& [what, tensors] : left) {
      lines.push_back(fmt::format("left aside: {} ({} tensors)", what, tensors));
    }
    if (const auto window = ignored_window()) {
      lines.push_back(
          fmt::format("left aside: the window of {} tokens (sliding_window): attention sees all of "
                      "a longer text",
                      *window));
    }
    if (family_.is_encoder && family_.scores.empty() && !vectors_.pooling) {
      lines.emplace_back(
          "there is no modules.json that says how a vector is made of a text: it will be the mean "
          "of its tokens");
    }
    return lines;
  }

  // One that is as long as any text changes nothing.
  std::optional<std::uint32_t> ignored_window() const {
    if (!family_.ignores_window || !config_.find_flag("use_sliding_window").value_or(true)) {
      return std::nullopt;
    }
    const auto window = config_.find_count("sliding_window");
    return window && *window < config_.count("max_position_embeddings") ? window : std::nullopt;
  }

  void choose_types(const quant::QuantMix& mix) {
    std::vector<quant::NamedShape> shapes;
    for (const PlannedTensor& tensor : tensors_) {
      shapes.push_back(
          {tensor.name, static_cast<std::uint32_t>(tensor.dims.size()), tensor.dims[0]});
    }
    const quant::ModelFacts facts{
        static_cast<std::uint32_t>(sizes_.layers),
        static_cast<std::uint32_t>(sizes_.query_heads / sizes_.key_heads)};
    const auto types = quant::types_of(shapes, mix, facts);
    for (std::size_t i = 0; i < types.size(); ++i) {
      const bool stays = options_.quant.empty() && types[i];
      tensors_[i].to = stays ? tensors_[i].from : types[i].value_or(BlockType::f32);
    }
  }

  // How the model's makers sample, if they do: what transformers calls generation_config.json.
  void add_recommended_sampling(gguf::Writer& writer) {
    const fs::path path = folder_ / "generation_config.json";
    if (!fs::exists(path)) return;
    const Config generation{read_json(path, config_bytes_max), path.string()};
    if (generation.find_flag("do_sample") == false) return;
    const auto add_number = [&](const char* from, const char* to) {
      if (const auto value = generation.find_number(from)) writer.add(to, *value);
    };
    add_number("temperature", "general.sampling.temp");
    // Some engines take a negative one as no limit.
    if (generation.find_number("top_k").value_or(0) < 0) {
      warnings_.emplace_back(generation.error("top_k", "is below 0 and is left out").what());
    } else if (const auto most = generation.find_whole("top_k")) {
      writer.add("general.sampling.top_k", static_cast<std::int32_t>(*most));
    }
    add_number("top_p", "general.sampling.top_p");
    add_number("min_p", "general.sampling.min_p");
    add_number("repetition_penalty", "general.sampling.penalty_repeat");
  }

  void add_metadata(const quant::QuantMix& mix, gguf::Writer& writer) {
    const auto count = [&](const char* key, std::uint64_t value) {
      writer.add(prefix_ + key, static_cast<std::uint32_t>(value));
    };
    writer.add("general.architecture", std::string_view(prefix_));
    writer.add("general.type", "model");
    const std::string name = folder_name();
    writer.add("general.name", std::string_view(name));
    writer.add("general.file_type", mix.file_type());
    writer.add("general.quantization_version", std::uint32_t{2});
    add_recommended_sampling(writer);
    count(".block_count", sizes_.layers);
    count(".context_length",
          sizes_.positions > 0 ? sizes_.positions : config_.count("max_position_embeddings"));
    count(".embedding_length", sizes_.embedding);
    add_by_layer(".feed_forward_length", &Sizes::feed_forward, writer);
    count(".attention.head_count", family_.has_attention ? sizes_.query_heads : 0);
    if (family_.has_attention) {
      add_by_layer(".attention.head_count_kv", &Sizes::key_heads, writer);
      count(".attention.key_length", sizes_.head);
      count(".attention.value_length", sizes_.latent > 0 ? sizes_.latent : sizes_.head);
    }
    if (family_.rotates) count(".rope.dimension_count", sizes_.rotated);
    count(".vocab_size", sizes_.vocabulary);
    writer.add(prefix_ + (family_.subtracts_means ? ".attention.layer_norm_epsilon"
                                                  : ".attention.layer_norm_rms_epsilon"),
               config_.number(family_.epsilon_key));
    if (family_.rotates) {
      write_rope(config_, {prefix_, sizes_.rotated, sizes_.latent > 0}, writer);
    }
    if (makes_vectors()) add_text_vectors(writer);
    if (family_.add_keys != nullptr) family_.add_keys(config_, sizes_, prefix_, writer);
    for (const LayerNumber& number : family_.layer_numbers) {
      std::vector<float> values;
      for (std::uint64_t i = 0; i < sizes_.layers; ++i) {
        values.push_back(number_in(layer_name(i) + std::string(number.theirs)));
      }
      writer.add_array(std::string(number.key), std::span<const float>(values));
    }
  }

  // Of a tensor with one value.
  float number_in(const std::string& name) const {
    const StoredTensor* tensor = checkpoint_.find(name);
    const bool is_one = tensor != nullptr && tensor->type != BlockType::mxfp4 &&
                        tensor->bytes == kernels::traits(tensor->type).bytes_per_block;
    if (!is_one) {
      throw ModelError(
          fmt::format("{}: tensor {} is not one number", folder_.string(), text::quoted(name)));
    }
    std::vector<std::byte> bytes(tensor->bytes);
    checkpoint_.read(*tensor, 0, bytes);
    std::vector<float> values(1);
    const quant::Conversion conversion{name, tensor->type, BlockType::f32, 1, 1};
    quant::RowConverter::read_row(conversion, 0, bytes.data(), values);
    quant::RowConverter::check_values(conversion, values);
    return values.front();
  }

  void add_text_vectors(gguf::Writer& writer) const {
    if (family_.is_encoder) writer.add(prefix_ + ".attention.causal", false);
    if (sizes_.token_types > 0) {
      writer.add("tokenizer.ggml.token_type_count", static_cast<std::uint32_t>(sizes_.token_types));
    }
    constexpr std::uint32_t rates_texts = 4;
    const auto pooling = family_.scores.empty() ? vectors_.pooling : std::optional(rates_texts);
    if (pooling) writer.add(prefix_ + ".pooling_type", *pooling);
    for (std::size_t i = 0; i < vectors_.dense.size(); ++i) {
      const std::vector<std::uint64_t>& shape = vectors_.dense[i].weight.shape;
      const auto key = fmt::format("{}.dense_{}_feat_", prefix_, i + 2);
      writer.add(key + "in", static_cast<std::uint32_t>(shape[1]));
      writer.add(key + "out", static_cast<std::uint32_t>(shape[0]));
    }
  }

  // One number where it is that of all layers, else a list.
  void add_by_layer(const char* key, Size size, gguf::Writer& writer) const {
    std::vector<std::int32_t> values;
    for (const Sizes& layer : layers_) values.push_back(static_cast<std::int32_t>(layer.*size));
    if (std::set(values.begin(), values.end()).size() > 1) {
      writer.add_array(prefix_ + key, std::span<const std::int32_t>(values));
    } else {
      writer.add(prefix_ + key, static_cast<std::uint32_t>(values.front()));
    }
  }

  std::string folder_name() const {
    const fs::path whole = fs::absolute(folder_).lexically_normal();
    return (whole.has_filename() ? whole.filename() : whole.parent_path().filename()).string();
  }

  static constexpr std::uint64_t layers_max = 8;  // of those that predict

  const ImportOptions& options_;
  fs::path folder_;
  Config config_;
  const Family& family_;
  std::string prefix_;
  Sizes sizes_;
  std::string kinds_;          // of the layers
  std::vector<Sizes> layers_;  // and their sizes
  Checkpoint checkpoint_;
  TextVectors vectors_;
  std::string_view stem_ = stem_of_names();
  std::set<std::string> used_;
  // The part of a tensor that was read last, for the calls that follow; one thread reads.
  struct {
    const StoredTensor* tensor = nullptr;
    std::uint64_t number = 0;
    std::vector<std::byte> bytes;
  } mutable held_;
  std::vector<PlannedTensor> tensors_;
  std::vector<std::string> warnings_;
};

}  // namespace

ImportReport import_checkpoint(const fs::path& folder, const fs::path& output,
                               const ImportOptions& options) {
  // A name that is none shows before the checkpoint is read, as in quantise_model().
  if (!options.quant.empty()) (void)quant::QuantMix::by_name(options.quant);
  return Import(folder, options).write(output);
}

}  // namespace sluice::convert
