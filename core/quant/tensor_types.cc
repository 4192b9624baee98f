#include "core/quant/tensor_types.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

namespace sluice::quant {
namespace {

constexpr std::uint32_t no_layer = std::numeric_limits<std::uint32_t>::max();

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The 7 of "blk.7.attn_v.weight".
std::uint32_t layer_of(std::string_view name) {
  constexpr std::string_view prefix = "blk.";
  std::uint32_t layer = no_layer;
  if (name.starts_with(prefix)) {
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(), layer);
  }
  return layer;
}

TensorRole role_of(std::string_view name, bool has_output) {
  if (name == "output.weight" || name == "per_layer_token_embd.weight") return TensorRole::head;
  if (name == "token_embd.weight") return has_output ? TensorRole::embedding : TensorRole::head;
  if (contains(name, "attn_q.weight") || contains(name, "attn_k.weight")) {
    return TensorRole::attn_qk;
  }
  if (contains(name, "attn_v.weight")) return TensorRole::attn_v;
  if (contains(name, "attn_qkv.weight")) return TensorRole::attn_qkv;
  if (contains(name, "attn_output.weight")) return TensorRole::attn_output;
  if (contains(name, "ffn_down")) return TensorRole::ffn_down;
  return TensorRole::other;
}

bool is_value(TensorRole role) {
  return role == TensorRole::attn_v || role == TensorRole::attn_qkv;
}

// Files list layers in any order; mixes count in that of the layers.
std::vector<std::size_t> in_order_of_layers(std::span<const NamedShape> tensors) {
  std::vector<std::size_t> order(tensors.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return layer_of(tensors[a].name) < layer_of(tensors[b].name);
  });
  return order;
}

}  // namespace

bool is_quantised(const NamedShape& tensor) {
  static constexpr std::string_view never[] = {
      "_norm", "ffn_gate_inp", "ssm_conv1d", "shortconv.conv", "rope_f", "attn_rot_embd",
      "position_embd", "token_types", "per_layer_model_proj", "altup", "laurel", "indexer.k_proj.",
      "indexer.q_proj.",
      // of RWKV-7: mixtures of two tokens, and matrices of low rank
      "_mix_lerp_", "time_mix_w1.", "time_mix_w2.", "time_mix_a1.", "time_mix_a2.", "time_mix_v1.",
      "time_mix_v2.", "time_mix_g1.", "time_mix_g2."};
  return tensor.rank >= 2 && tensor.name.ends_with(".weight") &&
         std::ranges::none_of(never,
                              [&](std::string_view part) { return contains(tensor.name, part); });
}

std::vector<std::optional<kernels::BlockType>> types_of(std::span<const NamedShape> tensors,
                                                        const QuantMix& mix,
                                                        const ModelFacts& facts) {
  const bool has_output = std::any_of(tensors.begin(), tensors.end(), [](const NamedShape& tensor) {
    return tensor.name == "output.weight";
  });
  std::vector<TensorPlace> places(tensors.size());
  std::uint32_t values = 0, downs = 0;
  for (const std::size_t i : in_order_of_layers(tensors)) {
    const NamedShape& tensor = tensors[i];
    TensorPlace& place = places[i];
    place = {role_of(tensor.name, has_output), 0, facts.layers, facts.heads_per_kv, tensor.columns,
             contains(tensor.name, "_exps")};
    if (is_value(place.role)) place.index = values++;
    if (place.role == TensorRole::ffn_down) {
      place.index = place.is_of_experts ? layer_of(tensor.name) : downs++;
    }
  }
  std::vector<std::optional<kernels::BlockType>> types(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (is_value(places[i].role)) places[i].count = values;
    if (is_quantised(tensors[i])) types[i] = mix.type_for(places[i]);
  }
  return types;
}

}  // namespace sluice::quant
