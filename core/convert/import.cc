#include "core/convert/import.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <numbers>
#include <optional>
#include <set>
#include <utility>

#include "core/convert/config.h"
#include "core/convert/families.h"
#include "core/convert/import_tokenizer.h"
#include "core/convert/json_file.h"
#include "core/convert/safetensors.h"
#include "core/gguf/quoted.h"
#include "core/quant/quant_mix.h"
#include "core/quant/tensor_types.h"

namespace sluice::convert {
namespace {

namespace fs = std::filesystem;
using kernels::BlockType;
using quant::PlannedTensor;

float rope_base(const Config& config) {
  if (const auto base = config.find_number("rope_theta")) return *base;
  const auto settings = rope_settings(config);
  return settings ? settings->find_number("rope_theta").value_or(10000) : 10000;
}

std::string rope_kind(const std::optional<Config>& settings) {
  if (!settings) return "default";
  const auto kind = settings->find_text("rope_type");
  const std::string name = kind ? *kind : settings->find_text("type").value_or("default");
  return name == "su" ? "longrope" : name;
}

// Divisors of the frequencies of Llama 3.1: 1 for short wavelengths, `factor` for long ones, and a
// smooth passage between.
std::vector<float> llama3_factors(const Config& settings, float base, std::uint64_t head) {
  const double factor = settings.number("factor");
  const double low = settings.number("low_freq_factor"), high = settings.number("high_freq_factor");
  const double original = settings.number("original_max_position_embeddings");
  if (!(factor > 0 && low > 0 && high > low)) {
    throw settings.error("factor", "and the frequency factors are not positive and ascending");
  }
  std::vector<float> factors(head / 2);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double exponent = 2 * static_cast<double>(i) / static_cast<double>(head);
    const double wavelength = 2 * std::numbers::pi * std::pow(static_cast<double>(base), exponent);
    const double blend = std::clamp((original / wavelength - low) / (high - low), 0.0, 1.0);
    factors[i] = static_cast<float>(1 / ((1 - blend) / factor + blend));
  }
  return factors;
}

// How far LongRoPE goes beyond the context that a model was first trained for.
struct LongRope {
  std::uint32_t original_context;
  float magnitude;  // of cosines and sines
};

LongRope read_long_rope(const Config& config, const Config& settings) {
  const auto own = settings.find_count("original_max_position_embeddings");
  const std::uint32_t original = own ? *own : config.count("original_max_position_embeddings");
  const double scale =
      static_cast<double>(config.count("max_position_embeddings")) / static_cast<double>(original);
  const double stretch = scale > 1 ? std::sqrt(1 + std::log(scale) / std::log(original)) : 1;
  const bool is_known = original > 1 && std::isfinite(stretch);
  if (!is_known) throw config.error("original_max_position_embeddings", "is too small");
  return {original, settings.find_number("attention_factor").value_or(static_cast<float>(stretch))};
}

// Divisors of the frequencies, one of each pair.
std::vector<float> long_rope_factors(const Config& settings, const char* key, std::size_t pairs) {
  const nlohmann::json* list = settings.find(key);
  if (list == nullptr || !list->is_array() || list->size() != pairs) {
    throw settings.error(key, fmt::format("is not a list of {} numbers", pairs));
  }
  std::vector<float> factors;
  for (const nlohmann::json& one : *list) {
    factors.push_back(one.is_number() ? one.get<float>() : 0);
    if (!(std::isfinite(factors.back()) && factors.back() > 0)) {
      throw settings.error(key, "holds what is no positive number");
    }
  }
  return factors;
}

class Import {
 public:
  Import(const fs::path& folder, const ImportOptions& options)
      : options_(options),
        folder_(folder),
        config_(read_json(folder / "config.json", config_bytes_max),
                (folder / "config.json").string()),
        family_(family_by_architecture(config_)),
        prefix_(family_.ours),
        sizes_(read_sizes(config_)),
        checkpoint_(Checkpoint::open(folder)) {}

  ImportReport write(const fs::path& output) {
    plan_tensors();
    check_all_used();
    const quant::QuantMix mix = quant::QuantMix::by_name(
        options_.quant.empty() ? kernels::traits(stored_type()).name : options_.quant);
    choose_types(mix);
    gguf::Writer writer;
    add_metadata(mix, writer);
    import_tokenizer(folder_, config_, sizes_.vocabulary, writer);
    quant::write_converted(output, writer, tensors_, options_.convert);
    return {prefix_, mix.name(), tensors_.size(), writer.file_bytes(), {}};
  }

 private:
  BlockType stored_type() const { return checkpoint_.find("model.embed_tokens.weight")->type; }

  void plan_tensors() {
    add({"model.embed_tokens.weight", "token_embd.weight", &Sizes::embedding, &Sizes::vocabulary});
    add({"model.norm.weight", "output_norm.weight", &Sizes::embedding});
    const bool has_head = checkpoint_.find("lm_head.weight") != nullptr;
    const bool is_tied = config_.find_flag("tie_word_embeddings").value_or(!has_head);
    if (is_tied) {
      used_.insert("lm_head.weight");
    } else {
      add({"lm_head.weight", "output.weight", &Sizes::embedding, &Sizes::vocabulary});
    }
    plan_rope_factors();
    // A layer has tensors, so the checkpoint bounds what a great number of layers can cost.
    for (std::uint64_t layer = 0; layer < sizes_.layers; ++layer) {
      for (const std::span<const Part> parts : family_.layer) {
        for (const Part& part : parts) add(part, layer);
      }
    }
  }

  void plan_rope_factors() {
    const auto settings = rope_settings(config_);
    const std::string kind = rope_kind(settings);
    const std::size_t pairs = sizes_.rotated / 2;
    if (kind == "llama3") {
      add_factors("rope_freqs.weight",
                  llama3_factors(*settings, rope_base(config_), sizes_.rotated));
    }
    if (kind == "longrope") {
      add_factors("rope_factors_long.weight", long_rope_factors(*settings, "long_factor", pairs));
      add_factors("rope_factors_short.weight", long_rope_factors(*settings, "short_factor", pairs));
    }
  }

  void add_factors(std::string name, std::vector<float> factors) {
    const std::uint64_t count = factors.size();
    const auto read = [factors = std::move(factors)](std::uint64_t, std::uint64_t,
                                                     std::span<std::byte> out) {
      std::memcpy(out.data(), factors.data(), out.size());
    };
    tensors_.push_back({std::move(name), {count}, BlockType::f32, BlockType::f32, read});
  }

  void add(const Part& part) { add(std::string(part.theirs), std::string(part.ours), part); }

  void add(const Part& part, std::uint64_t layer) {
    add(fmt::format("model.layers.{}.{}", layer, part.theirs),
        fmt::format("blk.{}.{}", layer, part.ours), part);
  }

  void add(const std::string& theirs, std::string ours, const Part& part) {
    const StoredTensor* tensor = checkpoint_.find(theirs);
    if (tensor == nullptr) {
      throw ModelError(
          fmt::format("{}: tensor {} is missing", folder_.string(), gguf::quoted(theirs)));
    }
    std::vector<std::uint64_t> shape, dims = {sizes_.*part.columns};
    if (part.rows != nullptr) shape.push_back(sizes_.*part.rows);
    shape.push_back(dims[0]);
    if (part.rows != nullptr) dims.push_back(shape[0]);
    if (tensor->shape != shape) {
      throw ModelError(fmt::format("{}: tensor {} has shape [{}], config.json asks for [{}]",
                                   folder_.string(), gguf::quoted(theirs),
                                   fmt::join(tensor->shape, ", "), fmt::join(shape, ", ")));
    }
    used_.insert(theirs);
    const bool takes_turns = family_.interleaves_heads && part.rotated_heads != nullptr;
    tensors_.push_back({std::move(ours), std::move(dims), tensor->type, BlockType::f32,
                        takes_turns ? read_in_turns(*tensor) : read_in_order(*tensor)});
    if (family_.norms_lack_one && part.rows == nullptr) tensors_.back().added = 1;
  }

  quant::RowConverter::ReadRows read_in_order(const StoredTensor& tensor) const {
    const std::uint64_t row = row_bytes(tensor);
    return [this, &tensor, row](std::uint64_t first, std::uint64_t, std::span<std::byte> out) {
      checkpoint_.read(tensor, first * row, out);
    };
  }

  // Row 2 j + a of a head is row j of its half a.
  quant::RowConverter::ReadRows read_in_turns(const StoredTensor& tensor) const {
    const std::uint64_t row = row_bytes(tensor), head = sizes_.head;
    return [=, this, &tensor](std::uint64_t first, std::uint64_t count, std::span<std::byte> out) {
      for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t place = (first + i) % head;
        const std::uint64_t from = first + i - place + place % 2 * (head / 2) + place / 2;
        checkpoint_.read(tensor, from * row, out.subspan(i * row, row));
      }
    };
  }

  static std::uint64_t row_bytes(const StoredTensor& tensor) {
    return kernels::row_bytes(tensor.type, tensor.shape.back());
  }

  // A model that is computed without one of its tensors gives wrong text.
  void check_all_used() const {
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      if (used_.contains(name) || name.ends_with("rotary_emb.inv_freq")) continue;
      throw ModelError(fmt::format("{}: tensor {} has no place in {}", folder_.string(),
                                   gguf::quoted(name), family_.architecture));
    }
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
      tensors_[i].to = types[i].value_or(BlockType::f32);
    }
  }

  void add_metadata(const quant::QuantMix& mix, gguf::Writer& writer) const {
    const auto count = [&](const char* key, std::uint64_t value) {
      writer.add(prefix_ + key, static_cast<std::uint32_t>(value));
    };
    writer.add("general.architecture", std::string_view(prefix_));
    writer.add("general.type", "model");
    const std::string name = folder_name();
    writer.add("general.name", std::string_view(name));
    writer.add("general.file_type", mix.file_type());
    writer.add("general.quantization_version", std::uint32_t{2});
    count(".block_count", sizes_.layers);
    count(".context_length", config_.count("max_position_embeddings"));
    count(".embedding_length", sizes_.embedding);
    count(".feed_forward_length", sizes_.feed_forward);
    count(".attention.head_count", sizes_.query_heads);
    count(".attention.head_count_kv", sizes_.key_heads);
    count(".attention.key_length", sizes_.head);
    count(".attention.value_length", sizes_.head);
    count(".rope.dimension_count", sizes_.rotated);
    count(".vocab_size", sizes_.vocabulary);
    writer.add(prefix_ + ".attention.layer_norm_rms_epsilon", config_.number("rms_norm_eps"));
    writer.add(prefix_ + ".rope.freq_base", rope_base(config_));
    add_rope_scaling(writer);
    if (family_.add_keys != nullptr) family_.add_keys(config_, sizes_, prefix_, writer);
  }

  std::string folder_name() const {
    const fs::path whole = fs::absolute(folder_).lexically_normal();
    return (whole.has_filename() ? whole.filename() : whole.parent_path().filename()).string();
  }

  void add_rope_scaling(gguf::Writer& writer) const {
    const auto settings = rope_settings(config_);
    const std::string kind = rope_kind(settings);
    if (kind == "default" || kind == "llama3") return;
    writer.add(prefix_ + ".rope.scaling.type", std::string_view(kind));
    if (kind == "longrope") {
      const LongRope rope = read_long_rope(config_, *settings);
      writer.add(prefix_ + ".rope.scaling.original_context_length", rope.original_context);
      writer.add(prefix_ + ".rope.scaling.attn_factor", rope.magnitude);
      return;
    }
    if (kind != "linear" && kind != "yarn") {
      throw settings->error(
          "rope_type",
          fmt::format("is {}; supported are default, linear, yarn, llama3 and longrope",
                      gguf::quoted(kind)));
    }
    const float factor = settings->number("factor");
    const auto magnitude = settings->find_number("attention_factor");
    const float usual = 1 + 0.1f * std::log(std::max(factor, 1.0f));
    if (kind == "yarn" && magnitude && std::abs(*magnitude - usual) > 1e-3f) {
      throw settings->error("attention_factor",
                            fmt::format("is not {:.4f}, as YaRN has it", usual));
    }
    writer.add(prefix_ + ".rope.scaling.factor", factor);
    if (const auto original = settings->find_count("original_max_position_embeddings")) {
      writer.add(prefix_ + ".rope.scaling.original_context_length", *original);
    }
  }

  const ImportOptions& options_;
  fs::path folder_;
  Config config_;
  const Family& family_;
  std::string prefix_;
  Sizes sizes_;
  Checkpoint checkpoint_;
  std::set<std::string> used_;
  std::vector<PlannedTensor> tensors_;
};

}  // namespace

ImportReport import_checkpoint(const fs::path& folder, const fs::path& output,
                               const ImportOptions& options) {
  return Import(folder, options).write(output);
}

}  // namespace sluice::convert
