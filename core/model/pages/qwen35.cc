// Qwen 3.5 (Qwen Team 2026): gated delta nets in most layers and gated attention in every fourth;
// dense, or a mixture with a gated expert that all tokens share (qwen35moe). Qwen 3 Next and Qwen 3
// Coder Next (2025; qwen3next) are such mixtures, whose value heads read key heads in groups.
//
//   x += mixer(rms_norm(x))
//   x += swiglu_ffn(rms_norm(x)), or the sum of experts
//
// Rotation in sections (M-RoPE) turns the same pairs by the same angles as plain rotation when all
// tokens are text.
#include "core/model/blocks/delta_net.h"
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {
namespace {

std::unique_ptr<Decoder> make_hybrid(const Keys& keys, WeightLayout& layout,
                                     bool groups_value_heads) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::neox);
  keys.leave_aside("rope.dimension_sections");
  model.norms = renamed_norms;
  model.attention.head_norm = HeadNorm::each_head;
  model.attention.gate = AttentionGate::beside_queries;
  const std::vector<bool> is_recurrent =
      read_delta_net_layers(keys, std::span(model.heads).first(model.hp.layers));
  DeltaNetSpec delta_net = read_delta_net(keys, model.hp.embedding, model.hp.norm_epsilon);
  delta_net.groups_value_heads = groups_value_heads;
  model.make_mixer = [&](Decoder& decoder, const LayerTensors& tensors, std::uint32_t layer) {
    const bool is_mixer = layer < model.hp.layers && is_recurrent[layer];
    return is_mixer ? std::make_unique<DeltaNet>(decoder, tensors, delta_net) : nullptr;
  };
  model.can_predict = true;
  return model.make();
}

}  // namespace

std::unique_ptr<Decoder> make_qwen35(const Keys& keys, WeightLayout& layout) {
  return make_hybrid(keys, layout, false);
}

std::unique_ptr<Decoder> make_qwen3next(const Keys& keys, WeightLayout& layout) {
  return make_hybrid(keys, layout, true);
}

}  // namespace sluice::model
