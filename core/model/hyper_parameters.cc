#include "core/model/hyper_parameters.h"

#include <fmt/format.h>
#include <limits>
#include <set>
#include <string_view>

#include "core/model/weights.h"

namespace sluice::model {
namespace {

RopeScaling read_scaling(const Keys& keys) {
  const std::string name = keys.text_or("rope.scaling.type", "linear");
  if (name == "linear" || name.empty()) return RopeScaling::linear;
  if (name == "none") return RopeScaling::none;
  if (name == "yarn") return RopeScaling::yarn;
  // The factors of its pairs are tensors, which the architecture's page brings.
  if (name == "longrope") return RopeScaling::none;
  throw keys.error("rope.scaling.type",
                   fmt::format("is '{}'; supported are none, linear, yarn and longrope", name));
}

// Blocks that predict further tokens stand last and show it by a tensor of their own. Without one
// the key would drop a layer that the text needs.
void check_predicting_blocks(const Keys& keys, std::uint32_t first) {
  std::set<std::uint64_t> with_tensors, predicting;
  for (const gguf::TensorInfo& tensor : keys.model().tensors()) {
    const std::optional<std::uint64_t> block = block_number(tensor.name);
    if (!block || *block < first) continue;
    with_tensors.insert(*block);
    if (tensor.name.find(".nextn.") != std::string_view::npos) predicting.insert(*block);
  }
  for (const std::uint64_t block : with_tensors) {
    if (predicting.contains(block)) continue;
    throw keys.error("nextn_predict_layers",
                     fmt::format("makes block {} one that predicts further tokens, but it has no "
                                 "tensor 'blk.{}.nextn.*' as those have",
                                 block, block));
  }
}

// Every layer has tensors, so their number bounds the layers before anything grows with them.
void read_layers(const Keys& keys, HyperParameters& hp) {
  const std::uint32_t blocks = keys.count("block_count", std::numeric_limits<std::uint32_t>::max());
  if (blocks > keys.model().tensors().size()) {
    throw keys.error("block_count", fmt::format("is {}, but the file has only {} tensors", blocks,
                                                keys.model().tensors().size()));
  }
  hp.predicting =
      keys.whole_or("nextn_predict_layers", 0, std::numeric_limits<std::uint32_t>::max());
  if (hp.predicting >= blocks) {
    throw keys.error("nextn_predict_layers",
                     fmt::format("is {} of {} blocks, which leaves none", hp.predicting, blocks));
  }
  hp.layers = blocks - hp.predicting;
  if (hp.predicting != 0) check_predicting_blocks(keys, hp.layers);
  if (!keys.predicts()) return;
  if (hp.predicting == 0) {
    throw UsageError(
        fmt::format("{}: this model has no block that predicts further tokens (mtp): give "
                    "--speculate auto or suffix",
                    keys.model().metadata().source()));
  }
  hp.predictors = 1;
}

std::uint32_t read_vocabulary(const Keys& keys, std::uint32_t embedding) {
  const gguf::TensorInfo& table = keys.model().require_tensor("token_embd.weight");
  if (table.rank != 2 || table.dims[0] != embedding ||
      table.dims[1] > std::numeric_limits<std::int32_t>::max()) {
    throw ModelError(
        fmt::format("{}: tensor 'token_embd.weight' has shape {}, expected {} x vocabulary",
                    keys.model().metadata().source(), table.shape(), embedding));
  }
  return static_cast<std::uint32_t>(table.dims[1]);
}

}  // namespace

std::uint32_t trained_context(const Keys& keys) {
  return keys.count("context_length", context_max);
}

HyperParameters read_hyper_parameters(const Keys& keys, const ModelKind& kind) {
  HyperParameters hp;
  hp.architecture = keys.architecture();
  hp.is_encoder = kind.is_encoder;
  if (!keys.flag_or("attention.causal", true) && !hp.is_encoder) {
    throw keys.error("attention.causal",
                     "is false: tokens see those after them, so the model cannot write text");
  }
  read_layers(keys, hp);
  hp.embedding = keys.count("embedding_length");
  hp.context = trained_context(keys);
  hp.norms_subtract_mean = kind.subtracts_mean;
  const char* epsilon =
      kind.subtracts_mean ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
  hp.norm_epsilon = kind.epsilon ? keys.number_or(epsilon, *kind.epsilon) : keys.number(epsilon);
  if (!(hp.norm_epsilon >= 0 && hp.norm_epsilon < 1)) {
    throw keys.error(epsilon, fmt::format("is {}, expected 0 to 1", hp.norm_epsilon));
  }
  hp.vocabulary = read_vocabulary(keys, hp.embedding);
  return hp;
}

std::vector<Heads> read_heads(const Keys& keys, const HyperParameters& hp) {
  const auto query = keys.per_layer("attention.head_count", hp.blocks());
  const auto kv = keys.contains("attention.head_count_kv")
                      ? keys.per_layer("attention.head_count_kv", hp.blocks())
                      : query;
  const auto key_dim = keys.find_count("attention.key_length");
  const auto value_dim = keys.find_count("attention.value_length");
  std::vector<Heads> out;
  for (std::size_t i = 0; i < hp.blocks(); ++i) {
    if (query[i] == 0 || kv[i] == 0) {
      const std::string output = fmt::format("blk.{}.attn_output.weight", i);
      if (keys.model().find_tensor(output) != nullptr) {
        throw keys.error(query[i] == 0 ? "attention.head_count" : "attention.head_count_kv",
                         fmt::format("gives layer {} no heads, but the file has its attention, "
                                     "tensor '{}'",
                                     i, output));
      }
      out.push_back({});
      continue;
    }
    if (query[i] % kv[i] != 0) {
      throw keys.error(
          "attention.head_count_kv",
          fmt::format("is {}, which does not divide the {} query heads", kv[i], query[i]));
    }
    if (!(key_dim && value_dim) && hp.embedding % query[i] != 0) {
      throw keys.error("attention.head_count",
                       fmt::format("is {}, which does not divide the embedding length {}", query[i],
                                   hp.embedding));
    }
    const std::uint32_t otherwise = hp.embedding / query[i];
    out.push_back({query[i], kv[i], key_dim.value_or(otherwise), value_dim.value_or(otherwise)});
  }
  return out;
}

Heads first_heads(const std::vector<Heads>& heads) {
  for (const Heads& each : heads) {
    if (each.query != 0) return each;
  }
  return {};
}

QueryTemperature read_query_temperature(const Keys& keys, const RopeParameters& rope) {
  return {
      .beta = keys.number_or("attention.temperature_scale", 0),
      .length = keys.count_or("attention.temperature_length", rope.original_context, context_max)};
}

RopeParameters read_rope(const Keys& keys, const HyperParameters& hp, std::uint32_t key_dim) {
  RopeParameters rope;
  rope.dimensions = keys.count_or("rope.dimension_count", key_dim, key_dim);
  if (rope.dimensions % 2 != 0) {
    throw keys.error("rope.dimension_count",
                     fmt::format("is {}, but dimensions rotate in pairs", rope.dimensions));
  }
  rope.base = keys.positive_or("rope.freq_base", rope.base);
  rope.scaling = read_scaling(keys);
  rope.factor = keys.number_or("rope.scaling.factor", keys.number_or("rope.scale_linear", 1));
  if (rope.factor == 0) rope.factor = 1;  // old converters wrote 0 for "not scaled"
  if (rope.factor < 0) throw keys.error("rope.scaling.factor", "is negative");
  rope.original_context =
      keys.count_or("rope.scaling.original_context_length", hp.context, context_max);
  rope.attention_factor = keys.number_or("rope.scaling.attn_factor", 1) *
                          keys.number_or("rope.scaling.yarn_attn_factor", 1);
  rope.yarn_beta_fast = keys.number_or("rope.scaling.yarn_beta_fast", rope.yarn_beta_fast);
  rope.yarn_beta_slow = keys.number_or("rope.scaling.yarn_beta_slow", rope.yarn_beta_slow);
  rope.yarn_extrapolation = keys.number_or("rope.scaling.yarn_ext_factor", rope.yarn_extrapolation);
  rope.yarn_log_multiplier = keys.number_or("rope.scaling.yarn_log_multiplier", 0);
  return rope;
}

}  // namespace sluice::model
