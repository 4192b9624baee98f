// Sequences of a cache filled with rows that depend on tokens and positions alone, so that any two
// ways to the same tokens have to give the same bits: for the tests of kvcache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "kernels/kernel_table.h"
#include "kvcache/kv_cache.h"
#include "tests/kernels_support.h"

namespace sluice::test {

inline constexpr std::size_t query_heads = 2;  // for each head of keys

inline const kernels::KernelTable& table() {
  return kernels::kernel_table();
}

// The row that belongs to a token at a position: the same whenever it is asked for.
inline std::vector<float> row_of(std::uint64_t what, std::uint32_t token, std::uint32_t position,
                                 std::size_t size) {
  Rng rng((what << 48) ^ (std::uint64_t{token} << 24) ^ position);
  std::vector<float> row = random_floats(size, Data::normal, rng);
  row[0] *= 20;  // an outlier, as keys have them
  return row;
}

struct TokenRows {
  std::vector<float> keys, values, queries, sink_queries;
};

inline TokenRows rows_of(const kvcache::LayerShape& s, std::size_t layer, std::uint32_t token,
                         std::uint32_t position) {
  return {row_of(4 * layer, token, position, s.kv_heads * s.key_dim),
          row_of(4 * layer + 1, token, position, s.kv_heads * s.value_dim),
          row_of(4 * layer + 2, token, position, s.kv_heads * query_heads * s.key_dim),
          row_of(4 * layer + 3, token, position, s.kv_heads * query_heads * s.key_dim)};
}

// A sequence of a cache and the tokens that it stands for.
struct Tracked {
  kvcache::Sequence sequence;
  std::vector<std::uint32_t> tokens;
};

// The new state of a layer: what came before, of which the older counts for less, and the tokens.
// It is an output too, of the last token.
inline void step_state(const kvcache::KvCache& cache, const Tracked& tracked, std::size_t layer,
                       const std::vector<std::uint32_t>& tokens,
                       std::vector<std::vector<float>>& outputs) {
  const std::size_t size = cache.config().layers[layer].state_floats;
  const std::span<const float> before = cache.state(tracked.sequence, layer);
  std::vector<float> state(before.begin(), before.end());
  auto position = static_cast<std::uint32_t>(tracked.tokens.size());
  for (const std::uint32_t token : tokens) {
    const std::vector<float> row = row_of(1000 + layer, token, position++, size);
    for (std::size_t i = 0; i < size; ++i) state[i] = 0.9f * state[i] + row[i];
  }
  std::ranges::copy(state, cache.next_state(tracked.sequence, layer).begin());
  outputs.back().insert(outputs.back().end(), state.begin(), state.end());
}

// The sink logits of the query heads of each head of keys, in layers with an odd number.
inline const float* sink_logits_of(std::size_t layer) {
  static constexpr float logits[query_heads] = {2.5f, -1};
  return layer % 2 == 1 ? logits : nullptr;
}

// How the tokens of a step look at the cache.
struct Look {
  std::uint32_t together = 1;                         // at most so many at a time
  std::span<const kvcache::PositionRange> visible{};  // see kvcache::Queries
};

// The most runs that a token's attention consists of.
inline std::size_t runs_max(const kvcache::CacheConfig& config, const Look& look) {
  std::size_t most = config.window.sink_pages();
  for (const kvcache::PositionRange& range : look.visible) {
    most += (range.end - range.begin) / kvcache::page_positions + 2;
  }
  return std::max(most, kvcache::runs_max(config));
}

// Attention of the tokens of a step in one layer.
inline void step_attention(const kvcache::KvCache& cache, const Tracked& tracked, std::size_t layer,
                           const std::vector<std::uint32_t>& tokens, const Look& look,
                           std::vector<std::vector<float>>& outputs) {
  const kvcache::LayerShape& s = cache.config().layers[layer];
  const std::size_t heads = s.kv_heads * query_heads,
                    most = kvcache::visible_positions_max(cache.config());
  const auto first = static_cast<std::uint32_t>(tracked.tokens.size());
  const auto count = static_cast<std::uint32_t>(tokens.size());
  std::vector<kernels::AttentionRun> runs(runs_max(cache.config(), look));
  const std::size_t score_stride = kernels::attention_scratch(most, runs.size(), s.key_dim);
  std::vector<float> near, at_sinks, out(count * heads * s.value_dim, not_a_number);
  for (std::uint32_t c = 0; c < count; ++c) {
    TokenRows rows = rows_of(s, layer, tokens[c], first + c);
    cache.write(tracked.sequence, layer, first + c, rows.keys.data(), rows.values.data());
    cache.hadamard_queries(layer, rows.queries.data(), heads);
    cache.hadamard_queries(layer, rows.sink_queries.data(), heads);
    near.insert(near.end(), rows.queries.begin(), rows.queries.end());
    at_sinks.insert(at_sinks.end(), rows.sink_queries.begin(), rows.sink_queries.end());
  }
  for (std::uint32_t c = 0, columns = 0; c < count; c += columns) {
    columns = cache.columns_together(layer, first + c, std::min(look.together, count - c));
    std::vector<float> scores(columns * query_heads * score_stride, not_a_number);
    for (std::size_t h = 0; h < s.kv_heads; ++h) {
      kvcache::Queries queries{};
      const std::size_t head = c * heads + h * query_heads;
      queries.near = near.data() + head * s.key_dim;
      queries.at_sinks = at_sinks.data() + head * s.key_dim;
      queries.columns = columns;
      queries.heads = query_heads;
      queries.query_stride = heads * s.key_dim;
      queries.out_stride = heads * s.value_dim;
      queries.scale = 0.2f;
      queries.sink_logits = sink_logits_of(layer);
      queries.scores = scores.data();
      queries.score_stride = score_stride;
      queries.runs = runs.data();
      queries.out = out.data() + head * s.value_dim;
      queries.visible = look.visible;
      cache.attend(tracked.sequence, layer, h, first + c, queries);
    }
  }
  const auto size = static_cast<std::ptrdiff_t>(heads * s.value_dim);
  for (std::uint32_t c = 0; c < count; ++c) {
    const auto row = out.begin() + c * size;
    outputs[c].insert(outputs[c].end(), row, row + size);
  }
}

// Appends tokens in one step and returns the outputs of each of them: [token][layers and heads].
inline std::vector<std::vector<float>> step(kvcache::KvCache& cache, Tracked& tracked,
                                            const std::vector<std::uint32_t>& tokens,
                                            const Look& look = {}) {
  const std::vector<kvcache::LayerShape>& layers = cache.config().layers;
  std::vector<std::vector<float>> outputs(tokens.size());
  cache.prepare(tracked.sequence, static_cast<std::uint32_t>(tokens.size()));
  for (std::size_t l = 0; l < layers.size(); ++l) {
    if (layers[l].state_floats != 0) step_state(cache, tracked, l, tokens, outputs);
    if (layers[l].kv_heads != 0) step_attention(cache, tracked, l, tokens, look, outputs);
  }
  cache.advance(tracked.sequence, static_cast<std::uint32_t>(tokens.size()));
  tracked.tokens.insert(tracked.tokens.end(), tokens.begin(), tokens.end());
  return outputs;
}

inline std::vector<std::uint32_t> random_tokens(std::size_t count, Rng& rng) {
  std::vector<std::uint32_t> tokens(count);
  for (std::uint32_t& token : tokens) token = static_cast<std::uint32_t>(rng() % 1000);
  return tokens;
}

inline Tracked start(kvcache::KvCache& cache) {
  std::optional<kvcache::Sequence> sequence = cache.new_sequence(cache.config().positions);
  if (!sequence) throw std::logic_error("the cache has no room for a sequence");
  return {std::move(*sequence), {}};
}

// What one sequence alone gives, token by token, in a cache of its own.
inline std::vector<float> alone(const kvcache::CacheConfig& config,
                                const std::vector<std::uint32_t>& tokens) {
  kvcache::KvCache cache(config, table());
  Tracked tracked = start(cache);
  std::vector<float> last;
  for (const std::uint32_t token : tokens) last = step(cache, tracked, {token}).back();
  return last;
}

}  // namespace sluice::test
