// Falcon-H1 (TII 2025, arXiv:2507.22448): attention and Mamba-2 side by side in every layer. The
// multipliers of its training are in the weights already.
//
//   h = rms_norm(x);  x += attention(h) + mamba2(h)
//   x += swiglu_ffn(rms_norm(x))
#include "core/model/blocks/attention.h"
#include "core/model/blocks/feed_forward.h"
#include "core/model/blocks/mamba2.h"
#include "core/model/families.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_falcon_h1(const Keys& keys, WeightLayout& layout) {
  const HyperParameters hp = read_hyper_parameters(keys);
  const std::vector<Heads> heads = read_heads(keys, hp);
  const std::vector<std::uint32_t> width = keys.per_layer("feed_forward_length", hp.layers);
  const std::size_t e = hp.embedding;
  if (keys.contains("mlp_gate_multiplier")) {
    throw keys.error("mlp_gate_multiplier",
                     "marks an early file, whose weights lack the multipliers; convert the model "
                     "anew");
  }
  auto decoder = std::make_unique<Decoder>(hp, layout);

  const Mamba2Spec mamba2 = read_mamba2(keys, e, hp.norm_epsilon);
  AttentionSpec attention{.embedding = e, .norm_epsilon = hp.norm_epsilon};
  attention.rope = decoder->add_rope({.parameters = read_rope(keys, hp, first_heads(heads).key_dim),
                                      .pairing = RopePairing::neox});

  for (std::uint32_t i = 0; i < hp.layers; ++i) {
    const LayerTensors tensors(layout, i);
    attention.heads = heads[i];
    const Vector norm = tensors.vector("attn_norm.weight", {e});
    auto beside = std::make_unique<Attention>(*decoder, tensors, attention);
    decoder->add({.norm = norm,
                  .block = std::make_unique<Mamba2>(*decoder, tensors, mamba2),
                  .beside = std::move(beside)});
    decoder->add({.norm = tensors.vector("ffn_norm", {e}),  // without a suffix in all files
                  .block = std::make_unique<FeedForward>(tensors, FeedForwardSpec{e, width[i]})});
  }
  return decoder;
}

}  // namespace sluice::model
