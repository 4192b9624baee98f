// LFM2 and LFM2.5 (Liquid AI 2025, arXiv:2511.23404): gated short convolutions, and attention in
// the layers that have heads of keys; dense, or a mixture of experts after some dense layers
// (lfm2moe).
//
//   x += mixer(rms_norm(x))
//   x += swiglu_ffn(rms_norm(x)), or the sum of experts
#include "core/model/blocks/attention.h"
#include "core/model/blocks/short_conv.h"
#include "core/model/families.h"
#include "core/model/feed_forwards.h"
#include "kernels/convolution.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_lfm2(const Keys& keys, WeightLayout& layout) {
  const HyperParameters hp = read_hyper_parameters(keys);
  const std::vector<Heads> heads = read_heads(keys, hp);
  const FeedForwards feed_forwards(keys, hp, Activation::swiglu, {.scores = RouterScores::sigmoid});
  const std::size_t e = hp.embedding;
  // The files give the norm after the last layer the name of a norm before the first.
  const char* embedding_norm = "token_embd_norm.weight";
  auto decoder = std::make_unique<Decoder>(
      hp, layout,
      DecoderOptions{.final_norm =
                         layout.has(embedding_norm) ? embedding_norm : "output_norm.weight"});

  const ShortConvSpec short_conv{
      .embedding = e, .taps = keys.count("shortconv.l_cache", kernels::convolution_taps_max)};
  AttentionSpec attention{
      .embedding = e, .norm_epsilon = hp.norm_epsilon, .head_norm = HeadNorm::each_head};
  attention.rope = decoder->add_rope({.parameters = read_rope(keys, hp, first_heads(heads).key_dim),
                                      .pairing = RopePairing::neox});
  attention.window = keys.whole_or("attention.sliding_window", 0, context_max);

  for (std::uint32_t i = 0; i < hp.layers; ++i) {
    const LayerTensors tensors(layout, i);
    const Vector norm = tensors.vector("attn_norm.weight", {e});
    attention.heads = heads[i];
    if (heads[i].query == 0) {
      decoder->add(
          {.norm = norm, .block = std::make_unique<ShortConv>(*decoder, tensors, short_conv)});
    } else {
      decoder->add(
          {.norm = norm, .block = std::make_unique<Attention>(*decoder, tensors, attention)});
    }
    decoder->add(feed_forwards.residual(tensors, i, tensors.vector("ffn_norm.weight", {e})));
  }
  return decoder;
}

}  // namespace sluice::model
