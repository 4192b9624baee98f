// LFM2 and LFM2.5 (Liquid AI 2025, arXiv:2511.23404): gated short convolutions, and attention in
// the layers that have heads of keys; dense, or a mixture of experts after some dense layers
// (lfm2moe).
#include "core/model/blocks/short_conv.h"
#include "core/model/families.h"
#include "core/model/transformer.h"
#include "kernels/convolution.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_lfm2(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::neox);
  model.attention.head_norm = HeadNorm::each_head;
  model.feed_forwards.router.scores = RouterScores::sigmoid;
  // The files give the norm after the last layer the name of a norm before the first.
  const char* embedding_norm = "token_embd_norm.weight";
  if (layout.has(embedding_norm)) model.options.final_norm = embedding_norm;
  model.window = keys.whole_or("attention.sliding_window", 0, context_max);
  model.slides.assign(model.hp.layers, true);
  const ShortConvSpec short_conv{
      .embedding = model.hp.embedding,
      .taps = keys.count("shortconv.l_cache", kernels::convolution_taps_max)};
  model.make_mixer = in_layers_without_heads<ShortConv>(model, short_conv);
  return model.make();
}

}  // namespace sluice::model
