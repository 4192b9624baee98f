#include "core/model/hyper_parameters.h"

#include <cmath>
#include <fmt/format.h>
#include <limits>

namespace sluice::model {
namespace {

// Far beyond any model there is; guards products against overflow.
constexpr std::uint32_t width_max = 1u << 20;
constexpr std::uint32_t context_max = 1u << 28;

// Reads the keys of one architecture.
class Keys {
 public:
  Keys(const gguf::Metadata& metadata, std::string architecture)
      : metadata_(metadata), prefix_(std::move(architecture) + ".") {}

  std::uint32_t require(const std::string& name, std::uint32_t max) const {
    return checked(name, metadata_.require_u32(prefix_ + name), max);
  }

  std::uint32_t find(const std::string& name, std::uint32_t otherwise, std::uint32_t max) const {
    const auto value = metadata_.find_u32(prefix_ + name);
    return value ? checked(name, *value, max) : otherwise;
  }

  float find_float(const std::string& name, float otherwise) const {
    const float value = metadata_.find_f32(prefix_ + name).value_or(otherwise);
    if (!std::isfinite(value)) throw error(name, "is not a finite number");
    return value;
  }

  std::string find_text(const std::string& name) const {
    return std::string(metadata_.find_string(prefix_ + name).value_or(""));
  }

  bool contains(const std::string& name) const { return metadata_.contains(prefix_ + name); }

  ModelError error(const std::string& name, const std::string& what) const {
    return metadata_.error(prefix_ + name, what);
  }

 private:
  std::uint32_t checked(const std::string& name, std::uint32_t value, std::uint32_t max) const {
    if (value == 0 || value > max) {
      throw error(name, fmt::format("is {}, expected 1 to {}", value, max));
    }
    return value;
  }

  const gguf::Metadata& metadata_;
  std::string prefix_;
};

RopeScaling read_scaling(const Keys& keys) {
  const std::string name = keys.find_text("rope.scaling.type");
  if (name.empty() || name == "linear") return RopeScaling::linear;
  if (name == "none") return RopeScaling::none;
  if (name == "yarn") return RopeScaling::yarn;
  throw keys.error("rope.scaling.type",
                   fmt::format("is '{}'; supported are none, linear and yarn", name));
}

RopeParameters read_rope(const Keys& keys, const HyperParameters& hp) {
  RopeParameters rope;
  rope.dimensions = keys.find("rope.dimension_count", hp.key_dim, hp.key_dim);
  if (rope.dimensions % 2 != 0) {
    throw keys.error("rope.dimension_count",
                     fmt::format("is {}, but dimensions rotate in pairs", rope.dimensions));
  }
  rope.base = keys.find_float("rope.freq_base", rope.base);
  if (rope.base <= 0) throw keys.error("rope.freq_base", "is not positive");
  rope.scaling = read_scaling(keys);
  rope.factor = keys.find_float("rope.scaling.factor", keys.find_float("rope.scale_linear", 1));
  if (rope.factor == 0) rope.factor = 1;  // old converters wrote 0 for "not scaled"
  if (rope.factor < 0) throw keys.error("rope.scaling.factor", "is negative");
  rope.original_context =
      keys.find("rope.scaling.original_context_length", hp.context, context_max);
  rope.attention_factor = keys.find_float("rope.scaling.attn_factor", 1) *
                          keys.find_float("rope.scaling.yarn_attn_factor", 1);
  rope.yarn_beta_fast = keys.find_float("rope.scaling.yarn_beta_fast", rope.yarn_beta_fast);
  rope.yarn_beta_slow = keys.find_float("rope.scaling.yarn_beta_slow", rope.yarn_beta_slow);
  rope.yarn_extrapolation =
      keys.find_float("rope.scaling.yarn_ext_factor", rope.yarn_extrapolation);
  rope.yarn_log_multiplier = keys.find_float("rope.scaling.yarn_log_multiplier", 0);
  return rope;
}

void read_attention(const Keys& keys, HyperParameters& hp) {
  hp.heads = keys.require("attention.head_count", width_max);
  hp.kv_heads = keys.find("attention.head_count_kv", hp.heads, width_max);
  if (hp.heads % hp.kv_heads != 0) {
    throw keys.error(
        "attention.head_count_kv",
        fmt::format("is {}, which does not divide the {} query heads", hp.kv_heads, hp.heads));
  }
  const bool has_head_dims =
      keys.contains("attention.key_length") && keys.contains("attention.value_length");
  if (!has_head_dims && hp.embedding % hp.heads != 0) {
    throw keys.error("attention.head_count",
                     fmt::format("is {}, which does not divide the embedding length {}", hp.heads,
                                 hp.embedding));
  }
  const std::uint32_t head_dim = hp.embedding / hp.heads;
  hp.key_dim = keys.find("attention.key_length", head_dim, width_max);
  hp.value_dim = keys.find("attention.value_length", head_dim, width_max);
}

}  // namespace

HyperParameters read_hyper_parameters(const gguf::Model& model) {
  const gguf::Metadata& metadata = model.metadata();
  HyperParameters hp;
  hp.architecture = std::string(metadata.require_string("general.architecture"));
  const Keys keys(metadata, hp.architecture);

  // Every layer has tensors, so their number bounds the layers before anything grows with them.
  hp.layers = keys.require("block_count", std::numeric_limits<std::uint32_t>::max());
  if (hp.layers > model.tensors().size()) {
    throw keys.error("block_count", fmt::format("is {}, but the file has only {} tensors",
                                                hp.layers, model.tensors().size()));
  }
  hp.embedding = keys.require("embedding_length", width_max);
  hp.feed_forward = keys.require("feed_forward_length", width_max);
  hp.context = keys.require("context_length", context_max);
  hp.norm_epsilon = metadata.require_f32(hp.architecture + ".attention.layer_norm_rms_epsilon");
  if (!(hp.norm_epsilon >= 0 && hp.norm_epsilon < 1)) {
    throw keys.error("attention.layer_norm_rms_epsilon",
                     fmt::format("is {}, expected 0 to 1", hp.norm_epsilon));
  }
  read_attention(keys, hp);
  hp.rope = read_rope(keys, hp);

  const gguf::TensorInfo& embedding = model.require_tensor("token_embd.weight");
  if (embedding.rank != 2 || embedding.dims[0] != hp.embedding ||
      embedding.dims[1] > std::numeric_limits<std::int32_t>::max()) {
    throw ModelError(
        fmt::format("{}: tensor 'token_embd.weight' has shape {}, expected {} x "
                    "vocabulary",
                    metadata.source(), embedding.shape(), hp.embedding));
  }
  hp.vocabulary = static_cast<std::uint32_t>(embedding.dims[1]);
  return hp;
}

}  // namespace sluice::model
