#include "core/model/llama.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
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
  float* scores;     // [threads][H / G][positions]
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

  kvcache::CacheConfig cache_config(std::size_t positions,
                                    kvcache::ElementType type) const override {
    const kvcache::LayerShape shape{hp_.kv_heads, hp_.key_dim, hp_.value_dim};
    return {std::vector<kvcache::LayerShape>(hp_.layers, shape), positions, type};
  }

  std::size_t size_max() const override {
    return std::max<std::size_t>({hp_.embedding, hp_.feed_forward, attention_size()});
  }

  std::size_t buffer_bytes(std::size_t columns, std::size_t positions,
                           std::size_t threads) const override {
    Buffers unused;
    return place_buffers(columns, positions, threads, nullptr, unused);
  }

  void allocate(std::size_t columns, std::size_t positions, std::size_t threads) override {
    memory_ = AlignedBytes(buffer_bytes(columns, positions, threads));
    place_buffers(columns, positions, threads, memory_.data(), buffers_);
    positions_max_ = positions;
    rope_.emplace(hp_.rope, rope_factors_);
  }

  void run_layers(Compute& compute, const Step& step) override {
    for (std::size_t c = 0; c < step.columns; ++c) {
      rope_->angles(step.position + c, buffers_.cosines + c * rope_->pairs(),
                    buffers_.sines + c * rope_->pairs());
    }
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      attention(compute, step, i);
      feed_forward(compute, step, layers_[i]);
    }
  }

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
    normalise(compute, step.x, step.columns, layer.attention_norm, b.normed);
    compute.multiply(b.normed, hp_.embedding, hp_.embedding, step.columns,
                     std::array{Product{&layer.q, b.q, q_size(), layer.q_bias},
                                Product{&layer.k, b.k, k_size(), layer.k_bias},
                                Product{&layer.v, b.v, v_size(), layer.v_bias}});
    compute.for_each(step.columns, [&](std::size_t, std::size_t begin, std::size_t end) {
      for (std::size_t c = begin; c < end; ++c) {
        rotate(compute, b.q + c * q_size(), hp_.heads, c);
        rotate(compute, b.k + c * k_size(), hp_.kv_heads, c);
        step.cache.write(layer_index, step.position + c, b.k + c * k_size(), b.v + c * v_size());
      }
    });
    attend(compute, step, layer_index);
    compute.multiply(
        b.attention, attention_size(), attention_size(), step.columns,
        std::array{Product{&layer.output, b.normed, hp_.embedding, layer.output_bias}});
    add(compute, b.normed, step);
  }

  // x += Wdown (silu(Wgate h) * (Wup h)), h = rms_norm(x)
  void feed_forward(Compute& compute, const Step& step, const Layer& layer) {
    const Buffers& b = buffers_;
    const std::size_t f = hp_.feed_forward;
    normalise(compute, step.x, step.columns, layer.feed_forward_norm, b.normed);
    compute.multiply(b.normed, hp_.embedding, hp_.embedding, step.columns,
                     std::array{Product{&layer.gate, b.gate, f}, Product{&layer.up, b.up, f}});
    compute.for_each(step.columns, [&](std::size_t, std::size_t begin, std::size_t end) {
      for (std::size_t c = begin; c < end; ++c) {
        compute.ops().swiglu(b.gate + c * f, b.up + c * f, f, b.gate + c * f);
      }
    });
    compute.multiply(b.gate, f, f, step.columns,
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
    compute.for_each(step.columns, [&](std::size_t, std::size_t begin, std::size_t end) {
      compute.ops().add(delta + begin * hp_.embedding, (end - begin) * hp_.embedding,
                        step.x + begin * hp_.embedding);
    });
  }

  void rotate(Compute& compute, float* heads, std::size_t count, std::size_t column) const {
    const std::size_t pairs = rope_->pairs();
    for (std::size_t h = 0; h < count; ++h) {
      compute.ops().rope_norm(heads + h * hp_.key_dim, buffers_.cosines + column * pairs,
                              buffers_.sines + column * pairs, pairs);
    }
  }

  // Causal attention, one work item for each column and KV head.
  void attend(Compute& compute, const Step& step, std::size_t layer_index) {
    const Buffers& b = buffers_;
    const std::size_t group = hp_.heads / hp_.kv_heads;
    const auto kernel = step.cache.type() == kvcache::ElementType::f32
                            ? compute.kernels().attention.f32
                            : compute.kernels().attention.f16;
    const std::size_t items = step.columns * hp_.kv_heads;
    compute.for_each(items, [&](std::size_t member, std::size_t begin, std::size_t end) {
      for (std::size_t item = begin; item < end; ++item) {
        const std::size_t head = item / step.columns, c = item % step.columns;
        const kvcache::HeadView view = step.cache.head(layer_index, head);
        kernels::AttentionArgs args{};
        args.queries = b.q + c * q_size() + head * group * hp_.key_dim;
        args.query_heads = group;
        args.head_dim = hp_.key_dim;
        args.value_dim = hp_.value_dim;
        args.keys = view.keys;
        args.values = view.values;
        args.positions = step.position + c + 1;
        args.scale = 1.0f / std::sqrt(static_cast<float>(hp_.key_dim));
        args.scores = b.scores + member * group * positions_max_;
        args.out = b.attention + c * attention_size() + head * group * hp_.value_dim;
        kernel(args);
      }
    });
  }

  // Products of numbers from the file, which may be beyond 32 bits before tensors are compared.
  std::size_t q_size() const { return std::size_t{hp_.heads} * hp_.key_dim; }
  std::size_t k_size() const { return std::size_t{hp_.kv_heads} * hp_.key_dim; }
  std::size_t v_size() const { return std::size_t{hp_.kv_heads} * hp_.value_dim; }
  std::size_t attention_size() const { return std::size_t{hp_.heads} * hp_.value_dim; }

  // Lays the buffers out from `base` on and returns how many bytes they take.
  std::size_t place_buffers(std::size_t columns, std::size_t positions, std::size_t threads,
                            std::byte* base, Buffers& out) const {
    std::size_t at = 0;
    const auto take = [&](std::size_t floats) {
      std::byte* start = base == nullptr ? nullptr : base + at;
      at += (floats * sizeof(float) + 63) / 64 * 64;
      return reinterpret_cast<float*>(start);
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
    out.scores = take(threads * (hp_.heads / hp_.kv_heads) * positions);
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
  std::size_t positions_max_ = 0;
};

}  // namespace

std::unique_ptr<Architecture> make_llama(const gguf::Model& model, WeightLayout& layout) {
  return std::make_unique<Llama>(model, layout);
}

}  // namespace sluice::model
