// Llama 4 (Meta 2025): three of four layers see chunks of 8192 positions, rotate, and then divide
// queries and keys by their root mean square; the others see all positions, and multiply queries by
// a number that grows with the position. A mixture of experts, whose weights multiply what experts
// are given, with one that all tokens share; some layers are dense.
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_llama4(const Keys& keys, WeightLayout& layout) {
  constexpr std::uint32_t chunk = 8192;
  constexpr float growth = 0.1f;
  // Maverick goes without the norms of heads. Only this number tells the files apart.
  constexpr std::uint32_t experts_of_maverick = 128;
  Transformer model(keys, layout);
  model.rotate(RopePairing::norm);
  model.rope->factors = read_rope_factors(layout, model.rope->parameters);
  model.read_windows(4, FullLayer::last_of_period, chunk);
  model.only_windows_rotate = true;
  model.attention.has_chunks = true;
  model.attention.normalises_rotated = true;
  const bool has_norms = keys.whole_or("expert_count", 0) != experts_of_maverick;
  const QueryTemperature temperature{
      .beta = keys.number_or("attention.temperature_scale", growth),
      .length = keys.count_or("attention.temperature_length", chunk, context_max),
      .ahead = 1};
  model.change_layer = [=](std::uint32_t, AttentionSpec& attention) {
    const bool rotates = attention.rope != nullptr;
    if (rotates && has_norms) attention.head_norm = HeadNorm::bare;
    if (!rotates) attention.temperature = temperature;
  };
  model.feed_forwards.router = {.scores = RouterScores::sigmoid, .divides_by_sum = false};
  model.feed_forwards.weighs_inputs = true;
  model.feed_forwards.some_are_dense = true;
  keys.leave_aside("interleave_moe_layer_step");
  return model.make();
}

}  // namespace sluice::model
