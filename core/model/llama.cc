#include "core/model/llama.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/model/rope.h"

namespace sluice::model {
namespace {

struct Layer {
  Vector attention_norm;                       // [E]
  Matrix q, k, v;                              // [H D][E], [G D][E], [G Dv][E]
  Vector q_bias, k_bias, v_bias, output_bias;  // empty in most models
  Matrix output;                               // [E][H Dv]
  Vector feed_forward_norm;                    // [E]
  Matrix gate, up;                             // [F][E]
  Matrix down;                                 // [E][F]
};

// Buffers of a step, [columns][...].
struct Buffers {
  float* normed;     // [E], also the output of the sublayers
  float* q;          // [H D]
  float* k;          // [G D]
  float* v;          // [G Dv]
  float* attention;  // [H Dv]
  float* gate;       // [F]
  float* up;         // [F]
  float* cosines;    // [pairs]
  float* sines;      // [pairs]
  // The same at the position from which sinks are seen; only for a window with sinks.
  float* sink_q;                // [H D]
  float* sink_cosines;          // [pairs]
  float* sink_sines;            // [pairs]
  float* scores;                // [threads][columns of a block][H / G][query_scratch()]
  kernels::AttentionRun* runs;  // [threads][runs]
};

class Llama final : public Architecture {
 public:
  Llama(const gguf::Model& model, WeightLayout& layout) : hp_(read_hyper_parameters(model)) {
    for (std::uint32_t i = 0; i < hp_.layers; ++i) layers_.push_back(declare_layer(layout, i));
    output_norm_ = layout.vector("output_norm.weight", hp_.embedding);
    // Models with a tied head use the token embedding for both.
    const char* head = layout.has("output.weight") ? "output.weight" : "token_embd.weight";
    head_ = layout.matrix(head, hp_.embedding, hp_.vocabulary);
    rope_factors_ = layout.optional_vector("rope_freqs.weight", hp_.rope.dimensions / 2);
  }

  const HyperParameters& hyper_parameters() const override { return hp_; }

  std::vector<kvcache::LayerShape> cache_layers() const override {
    std::vector<kvcache::LayerShape> layers;
    for (std::size_t i = 0; i < hp_.layers; ++i) {
      layers.push_back({hp_.kv_heads, hp_.key_dim, hp_.value_dim, hp_.window(i)});
    }
    return layers;
  }

  std::size_t size_max() const override {
    return std::max<std::size_t>({hp_.embedding, hp_.feed_forward, attention_size()});
  }

  std::size_t buffer_bytes(std::size_t columns, const kvcache::CacheConfig& cache,
                           std::size_t threads) const override {
    Buffers unused{};
    return place_buffers(columns, cache, threads, nullptr, unused);
  }

  void allocate(std::size_t columns, const kvcache::CacheConfig& cache,
                std::size_t threads) override {
    memory_ = AlignedBytes(buffer_bytes(columns, cache, threads));
    place_buffers(columns, cache, threads, memory_.data(), buffers_);
    blocks_.reserve(columns);
    block_max_ = std::min(columns, block_columns());
    query_scratch_ = kvcache::query_scratch(cache, hp_.key_dim);
    runs_max_ = kvcache::runs_max(cache);
    rope_.emplace(hp_.rope, rope_factors_);
  }

  void run_layers(Compute& compute, const Step& step) override {
    const std::size_t pairs = rope_->pairs();
    for (std::size_t c = 0; c < step.columns.size(); ++c) {
      const std::uint32_t position = step.columns[c].position;
      rope_->angles(position, buffers_.cosines + c * pairs, buffers_.sines + c * pairs);
      if (buffers_.sink_q == nullptr) continue;
      rope_->angles(step.cache.sink_query_position(position), buffers_.sink_cosines + c * pairs,
                    buffers_.sink_sines + c * pairs);
    }
    find_blocks(step);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      attention(compute, step, i);
      feed_forward(compute, step, layers_[i]);
    }
  }

  std::size_t head_turn() const override { return head_.slices.front().turn; }

  void run_head(Compute& compute, float* x, std::size_t columns, float* logits) override {
    normalise(compute, x, columns, output_norm_, x);
    compute.multiply(x, hp_.embedding, hp_.embedding, columns,
                     std::array{Product{&head_, logits, hp_.vocabulary}});
  }

 private:
  Layer declare_layer(WeightLayout& layout, std::uint32_t i) const {
    const auto name = [i](const char* part) { return fmt::format("blk.{}.{}", i, part); };
    const std::size_t e = hp_.embedding, f = hp_.feed_forward;
    const std::size_t q = q_size(), k = k_size(), v = v_size(), a = attention_size();
    Layer layer;
    layer.attention_norm = layout.vector(name("attn_norm.weight"), e);
    layer.q = layout.matrix(name("attn_q.weight"), e, q);
    layer.k = layout.matrix(name("attn_k.weight"), e, k);
    layer.v = layout.matrix(name("attn_v.weight"), e, v);
    layer.q_bias = layout.optional_vector(name("attn_q.bias"), q);
    layer.k_bias = layout.optional_vector(name("attn_k.bias"), k);
    layer.v_bias = layout.optional_vector(name("attn_v.bias"), v);
    layer.output = layout.matrix(name("attn_output.weight"), a, e);
    layer.output_bias = layout.optional_vector(name("attn_output.bias"), e);
    layer.feed_forward_norm = layout.vector(name("ffn_norm.weight"), e);
    layer.gate = layout.matrix(name("ffn_gate.weight"), e, f);
    layer.up = layout.matrix(name("ffn_up.weight"), e, f);
    layer.down = layout.matrix(name("ffn_down.weight"), f, e);
    return layer;
  }

  // x += Wo attention(rms_norm(x))
  void attention(Compute& compute, const Step& step, std::size_t layer_index) {
    const Layer& layer = layers_[layer_index];
    const Buffers& b = buffers_;
    const std::size_t columns = step.columns.size();
    normalise(compute, step.x, columns, layer.attention_norm, b.normed);
    compute.multiply(b.normed, hp_.embedding, hp_.embedding, columns,
                     std::array{Product{&layer.q, b.q, q_size(), layer.q_bias},
                                Product{&layer.k, b.k, k_size(), layer.k_bias},
                                Product{&layer.v, b.v, v_size(), layer.v_bias}});
    compute.for_each(columns, [&](std::size_t, std::size_t begin, std::size_t end) {
      for (std::size_t c = begin; c < end; ++c) prepare_column(compute, step, layer_index, c);
    });
    attend(compute, step, layer_index);
    compute.multiply(
        b.attention, attention_size(), attention_size(), columns,
        std::array{Product{&layer.output, b.normed, hp_.embedding, layer.output_bias}});
    add(compute, b.normed, step);
  }

  // x += Wdown (silu(Wgate h) * (Wup h)), h = rms_norm(x)
  void feed_forward(Compute& compute, const Step& step, const Layer& layer) {
    const Buffers& b = buffers_;
    const std::size_t f = hp_.feed_forward, columns = step.columns.size();
    normalise(compute, step.x, columns, layer.feed_forward_norm, b.normed);
    compute.multiply(b.normed, hp_.embedding, hp_.embedding, columns,
                     std::array{Product{&layer.gate, b.gate, f}, Product{&layer.up, b.up, f}});
    compute.for_each(columns, [&](std::size_t, std::size_t begin, std::size_t end) {
      for (std::size_t c = begin; c < end; ++c) {
        compute.ops().swiglu(b.gate + c * f, b.up + c * f, f, b.gate + c * f);
      }
    });
    compute.multiply(b.gate, f, f, columns,
                     std::array{Product{&layer.down, b.normed, hp_.embedding}});
    add(compute, b.normed, step);
  }

  void normalise(Compute& compute, const float* x, std::size_t columns, Vector weight,
                 float* out) const {
    compute.for_each(columns, [&](std::size_t, std::size_t begin, std::size_t end) {
      for (std::size_t c = begin; c < end; ++c) {
        const std::size_t at = c * hp_.embedding;
        compute.ops().rms_norm(x + at, weight.data(), hp_.norm_epsilon, hp_.embedding, out + at);
      }
    });
  }

  void add(Compute& compute, const float* delta, const Step& step) const {
    compute.for_each(step.columns.size(), [&](std::size_t, std::size_t begin, std::size_t end) {
      compute.ops().add(delta + begin * hp_.embedding, (end - begin) * hp_.embedding,
                        step.x + begin * hp_.embedding);
    });
  }

  // Turns the queries and keys of a column to its position and puts keys and values away.
  void prepare_column(Compute& compute, const Step& step, std::size_t layer_index,
                      std::size_t c) const {
    const Buffers& b = buffers_;
    const Column& column = step.columns[c];
    const std::size_t pairs = rope_->pairs();
    float* q = b.q + c * q_size();
    if (b.sink_q != nullptr) {
      float* sink_q = b.sink_q + c * q_size();
      std::memcpy(sink_q, q, q_size() * sizeof(float));
      turn(compute, sink_q, hp_.heads, b.sink_cosines + c * pairs, b.sink_sines + c * pairs);
      step.cache.rotate(sink_q, hp_.heads, hp_.key_dim);
    }
    turn(compute, q, hp_.heads, b.cosines + c * pairs, b.sines + c * pairs);
    step.cache.rotate(q, hp_.heads, hp_.key_dim);
    float* k = b.k + c * k_size();
    turn(compute, k, hp_.kv_heads, b.cosines + c * pairs, b.sines + c * pairs);
    step.cache.write(*column.sequence, layer_index, column.position, k, b.v + c * v_size());
  }

  void turn(Compute& compute, float* heads, std::size_t count, const float* cosines,
            const float* sines) const {
    for (std::size_t h = 0; h < count; ++h) {
      compute.ops().rope_norm(heads + h * hp_.key_dim, cosines, sines, rope_->pairs());
    }
  }

  // Consecutive tokens of one sequence, columns [first, first + count) of a step.
  struct Block {
    std::size_t first, count;
  };

  // Cuts the columns of a step into blocks that look at the cache together.
  void find_blocks(const Step& step) {
    blocks_.clear();
    for (std::size_t c = 0; c < step.columns.size(); ++c) {
      const Column& column = step.columns[c];
      const bool follows = c != 0 && blocks_.back().count < block_max_ &&
                           step.columns[c - 1].sequence == column.sequence &&
                           step.columns[c - 1].position + 1 == column.position;
      if (follows) {
        ++blocks_.back().count;
      } else {
        blocks_.push_back({c, 1});
      }
    }
  }

  // Causal attention, one work item for each KV head and block of columns. Where these are too few
  // to share evenly, the query heads of a KV head are shared too.
  void attend(Compute& compute, const Step& step, std::size_t layer) {
    const std::size_t group = hp_.heads / hp_.kv_heads, threads = compute.threads();
    const std::size_t items = hp_.kv_heads * blocks_.size();
    const bool are_many = items >= 8 * threads;
    const std::size_t parts = are_many ? 1 : std::min(group, threads / std::gcd(items, threads));
    compute.for_each(items * parts, [&](std::size_t member, std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        const Block& block = blocks_[i / parts % blocks_.size()];
        const std::size_t kv_head = i / parts / blocks_.size();
        const topology::WorkRange part = topology::split(group, 1, parts, i % parts);
        attend_block(step, layer, block, {kv_head, part.begin, part.size()}, member);
      }
    });
  }

  // Query heads [first, first + count) of those of a KV head.
  struct Heads {
    std::size_t kv_head, first, count;
  };

  void attend_block(const Step& step, std::size_t layer, const Block& block, const Heads& heads,
                    std::size_t member) const {
    const Buffers& b = buffers_;
    const std::size_t group = hp_.heads / hp_.kv_heads;
    const std::size_t first_head = heads.kv_head * group + heads.first;
    kvcache::Queries queries{};
    queries.heads = heads.count;
    queries.query_stride = q_size();
    queries.out_stride = attention_size();
    queries.scale = 1.0f / std::sqrt(static_cast<float>(hp_.key_dim));
    queries.scores = b.scores + member * block_max_ * group * query_scratch_;
    queries.score_stride = query_scratch_;
    queries.runs = b.runs + member * runs_max_;
    for (std::size_t done = 0; done < block.count; done += queries.columns) {
      const std::size_t c = block.first + done;
      const Column& column = step.columns[c];
      const std::size_t query = c * q_size() + first_head * hp_.key_dim;
      queries.near = b.q + query;
      queries.at_sinks = b.sink_q == nullptr ? nullptr : b.sink_q + query;
      queries.columns = step.cache.columns_together(layer, column.position,
                                                    static_cast<std::uint32_t>(block.count - done));
      queries.out = b.attention + c * attention_size() + first_head * hp_.value_dim;
      step.cache.attend(*column.sequence, layer, heads.kv_head, column.position, queries);
      for (std::size_t k = 0; k < queries.columns; ++k) {
        step.cache.rotate(queries.out + k * queries.out_stride, heads.count, hp_.value_dim);
      }
    }
  }

  // Columns that share what is read of the cache. More than this many queries gain little, and each
  // needs room for its scores.
  std::size_t block_columns() const {
    constexpr std::size_t queries = 32;
    return std::max<std::size_t>(1, queries / (hp_.heads / hp_.kv_heads));
  }

  // Products of numbers from the file, which may be beyond 32 bits before tensors are compared.
  std::size_t q_size() const { return std::size_t{hp_.heads} * hp_.key_dim; }
  std::size_t k_size() const { return std::size_t{hp_.kv_heads} * hp_.key_dim; }
  std::size_t v_size() const { return std::size_t{hp_.kv_heads} * hp_.value_dim; }
  std::size_t attention_size() const { return std::size_t{hp_.heads} * hp_.value_dim; }

  // Lays the buffers out from `base` on and returns how many bytes they take.
  std::size_t place_buffers(std::size_t columns, const kvcache::CacheConfig& cache,
                            std::size_t threads, std::byte* base, Buffers& out) const {
    std::size_t at = 0;
    const auto take_bytes = [&](std::size_t bytes) {
      std::byte* start = base == nullptr ? nullptr : base + at;
      at += (bytes + 63) / 64 * 64;
      return start;
    };
    const auto take = [&](std::size_t floats) {
      return reinterpret_cast<float*>(take_bytes(floats * sizeof(float)));
    };
    const std::size_t pairs = hp_.rope.dimensions / 2;
    out.normed = take(columns * hp_.embedding);
    out.q = take(columns * q_size());
    out.k = take(columns * k_size());
    out.v = take(columns * v_size());
    out.attention = take(columns * attention_size());
    out.gate = take(columns * hp_.feed_forward);
    out.up = take(columns * hp_.feed_forward);
    out.cosines = take(columns * pairs);
    out.sines = take(columns * pairs);
    if (kvcache::moves_sinks(cache)) {
      out.sink_q = take(columns * q_size());
      out.sink_cosines = take(columns * pairs);
      out.sink_sines = take(columns * pairs);
    }
    out.scores = take(threads * std::min(columns, block_columns()) * (hp_.heads / hp_.kv_heads) *
                      kvcache::query_scratch(cache, hp_.key_dim));
    out.runs = reinterpret_cast<kernels::AttentionRun*>(
        take_bytes(threads * kvcache::runs_max(cache) * sizeof(kernels::AttentionRun)));
    return at;
  }

  HyperParameters hp_;
  std::vector<Layer> layers_;
  Vector output_norm_;
  Matrix head_;
  Vector rope_factors_;
  std::optional<Rope> rope_;
  AlignedBytes memory_;
  Buffers buffers_{};
  std::vector<Block> blocks_;  // of the step
  std::size_t block_max_ = 0;  // columns of a block
  std::size_t query_scratch_ = 0;
  std::size_t runs_max_ = 0;
};

}  // namespace

std::unique_ptr<Architecture> make_llama(const gguf::Model& model, WeightLayout& layout) {
  return std::make_unique<Llama>(model, layout);
}

}  // namespace sluice::model
