// RWKV-7 (Peng et al. 2025, arXiv:2503.14456): no attention, and nothing that grows with the text;
// each part of a layer sees the token and the one before it (blocks/rwkv7.h).
//
//   x = layer_norm(embedding)
//   x += time_mixing(layer_norm(x))
//   x += channel_mixing(layer_norm(x))
#include "core/model/blocks/rwkv7.h"

#include "core/model/families.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_rwkv7(const Keys& keys, WeightLayout& layout) {
  const HyperParameters hp = read_hyper_parameters(keys, {.subtracts_mean = true});
  const Rwkv7Spec spec = read_rwkv7(keys, hp.embedding);
  keys.leave_aside("attention.head_count");
  auto decoder = std::make_unique<Decoder>(
      hp, layout, DecoderOptions{.embedding_norm = "token_embd_norm.weight"});
  auto prologue = std::make_unique<FirstValues>(spec.embedding);
  const FirstValues& first_values = *prologue;
  decoder->set_prologue(std::move(prologue));
  for (std::uint32_t i = 0; i < hp.layers; ++i) {
    const LayerTensors tensors(layout, i);
    Residual time{.norm = read_norm(tensors, hp, "attn_norm.weight")};
    time.block = std::make_unique<TimeMixing>(*decoder, tensors, spec, first_values, i == 0);
    decoder->add(std::move(time));
    Residual channels{.norm = read_norm(tensors, hp, "attn_norm_2.weight")};
    channels.block = std::make_unique<ChannelMixing>(*decoder, tensors, spec);
    decoder->add(std::move(channels));
  }
  return decoder;
}

}  // namespace sluice::model
