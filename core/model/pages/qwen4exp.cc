// Qwen 3.8 Flash Next (Qwen Team 2026): the layers of Qwen 3.5, gated delta nets and gated
// attention in every fourth, with mixtures of experts and a gated expert that all tokens share, but
// several residual streams (blocks/hyper_connections.h) and, on one layer, embeddings of n-grams
// (blocks/ngram_embedding.h). In long texts attention sees blocks (blocks/sparse_index.h).
//
//   x = n_gram_embedding(x), on one layer
//   x_c += w_c mixer(mix(x))
//   x_c += w_c sum_of_experts(mix(x))
//
// The output gate of its delta nets is a sigmoid.
#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "core/model/blocks/attention.h"
#include "core/model/blocks/delta_net.h"
#include "core/model/blocks/hyper_connections.h"
#include "core/model/blocks/ngram_embedding.h"
#include "core/model/families.h"
#include "core/model/feed_forwards.h"

namespace sluice::model {
namespace {

HyperSpec read_streams(const Keys& keys, const HyperParameters& hp) {
  const HyperSpec out{.embedding = hp.embedding,
                      .count = keys.count("hyper_connection.count", HyperStreams::count_max),
                      .rank = keys.count("hyper_connection.low_rank"),
                      .norm_epsilon = hp.norm_epsilon};
  if (out.count < 2) throw keys.error("hyper_connection.count", "is 1, expected at least 2");
  return out;
}

}  // namespace

std::unique_ptr<Decoder> make_qwen4exp(const Keys& keys, WeightLayout& layout) {
  const HyperParameters hp = read_hyper_parameters(keys);
  const std::vector<Heads> heads = read_heads(keys, hp);
  const std::vector<bool> is_recurrent = read_delta_net_layers(keys, heads);
  const FeedForwards feed_forwards(keys, hp);
  auto decoder = std::make_unique<Decoder>(hp, layout, DecoderOptions{.final_norm = nullptr});
  DeltaNetSpec delta_net = read_delta_net(keys, hp.embedding, hp.norm_epsilon);
  delta_net.has_sigmoid_gate = true;
  AttentionSpec attention{
      .embedding = hp.embedding,
      .norm_epsilon = hp.norm_epsilon,
      .rope = decoder->add_rope({.parameters = read_rope(keys, hp, first_heads(heads).key_dim),
                                 .pairing = RopePairing::neox}),
      .head_norm = HeadNorm::each_head,
      .gate = AttentionGate::beside_queries};
  keys.leave_aside("rope.dimension_sections");

  const HyperSpec hyper = read_streams(keys, hp);
  const std::optional<NgramSpec> ngrams = read_ngrams(keys, hp, hyper.count);
  auto rows = ngrams ? std::make_unique<NgramRows>(*decoder, layout, *ngrams) : nullptr;
  NgramRows* const ngram_rows = rows.get();
  auto prologue = std::make_unique<HyperStreams>(hyper, std::move(rows));
  const HyperStreams& streams = *prologue;
  decoder->set_prologue(std::move(prologue));

  const std::vector<std::uint32_t> ratios =
      keys.per_layer("attention.compress_ratios", hp.layers, 0);
  const bool is_sparse = std::ranges::any_of(ratios, [](std::uint32_t r) { return r != 0; });
  SparseIndexSpec index;
  if (is_sparse) index = read_sparse_index(keys, hp);
  if (!is_sparse) keys.leave_aside("attention.indexer.");
  index.rope = attention.rope;
  for (std::uint32_t i = 0; i < hp.layers; ++i) {
    const LayerTensors tensors(layout, i);
    if (ngrams && ngrams->layer == i) {
      decoder->add({.block = std::make_unique<NgramEmbedding>(tensors, *ngram_rows, streams)});
    }
    HyperMix before_mixer(tensors, "hc_attn", streams, true);
    Residual mixer;
    if (is_recurrent[i]) {
      mixer.block = std::make_unique<DeltaNet>(*decoder, tensors, delta_net);
    } else {
      attention.sparse_index = index;
      attention.sparse_index.block = ratios[i];
      // Files have an indexer where nothing is left out, too.
      for (const char* name : {"q_proj", "k_proj", "q_norm", "k_norm"}) {
        if (ratios[i] == 0) tensors.leave_aside(fmt::format("indexer.{}.weight", name));
      }
      attention.heads = heads[i];
      mixer.block = std::make_unique<Attention>(*decoder, tensors, attention);
    }
    decoder->add({.block = std::make_unique<HyperPart>(before_mixer, std::move(mixer))});
    HyperMix before_experts(tensors, "hc_ffn", streams, true);
    decoder->add({.block = std::make_unique<HyperPart>(
                      before_experts, feed_forwards.residual(tensors, i, Norm{}))});
  }
  decoder->add({.block = std::make_unique<HyperEnd>(HyperMix(layout, "output_hc", streams, false)),
                .replaces_stream = true});
  return decoder;
}

}  // namespace sluice::model
