#include "core/model/synthetic_shapes.h"

#include <cmath>
#include <fmt/format.h>
#include <initializer_list>
#include <utility>

#include "core/error.h"
#include "core/model/synthetic_vocabulary.h"

namespace sluice::model {
namespace {

constexpr SyntheticShape shapes[] = {
    {"tiny", "llama", 4, 256, 4, 2, 64, 512, 2048, 2048, 1e4f, 1e-5f, false, 0},
    {"yi-9b", "llama", 48, 4096, 32, 4, 128, 11008, 64000, 4096, 5e6f, 1e-6f, false, 0},
    {"llama-8b", "llama", 32, 4096, 32, 8, 128, 14336, 128256, 131072, 5e5f, 1e-5f, false, 8},
    {"qwen3-8b", "qwen3", 36, 4096, 32, 8, 128, 12288, 151936, 40960, 1e6f, 1e-6f, false, 0},
    {"gemma2-9b", "gemma2", 42, 3584, 16, 8, 256, 14336, 256000, 8192, 1e4f, 1e-6f, true, 0},
    {"llama-1b", "llama", 16, 2048, 32, 8, 64, 8192, 128256, 131072, 5e5f, 1e-5f, true, 32},
    {"qwen35-9b", "qwen35", 32, 4096, 16, 4, 256, 12288, 248320, 262144, 1e7f, 1e-6f, false, 0},
    {"llama-tiny", "llama", 4, 512, 8, 2, 64, 1536, 4096, 4096, 1e4f, 1e-5f, false, 0},
    {"qwen3-tiny", "qwen3", 4, 512, 8, 2, 128, 1536, 4096, 4096, 1e6f, 1e-6f, true, 0},
    {"gemma2-tiny", "gemma2", 4, 512, 4, 2, 128, 1536, 4096, 4096, 1e4f, 1e-6f, true, 0},
};

// Builds the list; its methods follow the order in which a layer uses its tensors.
class TensorList {
 public:
  explicit TensorList(const SyntheticShape& shape) : shape_(shape) {}

  std::vector<SyntheticTensor> build() {
    add_global();
    for (layer_ = 0; layer_ < shape_.layers; ++layer_) add_layer();
    return std::move(tensors_);
  }

 private:
  // A matrix whose outputs have about the size of its inputs.
  SyntheticTensor& add_matrix(std::string name, std::uint64_t columns, std::uint64_t rows,
                              TensorRole role = TensorRole::other) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(columns));
    const TensorPlace place{role, layer_, shape_.layers, shape_.heads / shape_.kv_heads, columns};
    tensors_.push_back({std::move(name), {columns, rows}, Fill::weights, scale, place, 0});
    return tensors_.back();
  }

  void add_small(std::string name, std::initializer_list<std::uint64_t> dims, Fill fill,
                 float scale = 0) {
    tensors_.push_back({std::move(name), dims, fill, scale, {}, 0});
  }

  std::string block(std::string_view name) const { return fmt::format("blk.{}.{}", layer_, name); }

  void add_global() {
    const std::uint64_t width = shape_.embedding;
    const auto role = shape_.tied ? TensorRole::head : TensorRole::embedding;
    add_matrix("token_embd.weight", width, shape_.vocabulary, role).scale = 1.0f;
    if (shape_.tied) make_head(tensors_.back());
    add_small("output_norm.weight", {width}, Fill::norm);
    if (!shape_.tied) {
      make_head(add_matrix("output.weight", width, shape_.vocabulary, TensorRole::head));
    }
    if (shape_.rope_scaling > 0) {
      add_small("rope_freqs.weight", {shape_.head_dim / 2}, Fill::rope_factors,
                shape_.rope_scaling);
    }
  }

  // Logits get a standard deviation of 3, as in trained models.
  void make_head(SyntheticTensor& tensor) const {
    tensor.scale = 3.0f / std::sqrt(static_cast<float>(shape_.embedding));
    tensor.quiet_rows = unprintable_tokens;
  }

  void add_layer() {
    const bool is_qwen35 = shape_.architecture == "qwen35";
    const bool has_sandwich_norms = shape_.architecture == "gemma2";
    const std::uint64_t width = shape_.embedding;
    add_small(block("attn_norm.weight"), {width}, Fill::norm);
    if (is_qwen35 && (layer_ + 1) % DeltaNet::attention_interval != 0) {
      add_delta_net();
    } else {
      add_attention();
    }
    if (is_qwen35 || has_sandwich_norms) {
      add_small(block("post_attention_norm.weight"), {width}, Fill::norm);
    }
    if (!is_qwen35) add_small(block("ffn_norm.weight"), {width}, Fill::norm);
    add_matrix(block("ffn_gate.weight"), width, shape_.feed_forward);
    add_matrix(block("ffn_up.weight"), width, shape_.feed_forward);
    add_matrix(block("ffn_down.weight"), shape_.feed_forward, width, TensorRole::ffn_down);
    if (has_sandwich_norms) add_small(block("post_ffw_norm.weight"), {width}, Fill::norm);
  }

  void add_attention() {
    const bool has_gate = shape_.architecture == "qwen35";  // beside the query, in one matrix
    const std::uint64_t width = shape_.embedding;
    const std::uint64_t query = std::uint64_t{shape_.heads} * shape_.head_dim;
    const std::uint64_t key = std::uint64_t{shape_.kv_heads} * shape_.head_dim;
    add_matrix(block("attn_q.weight"), width, has_gate ? 2 * query : query);
    add_matrix(block("attn_k.weight"), width, key);
    add_matrix(block("attn_v.weight"), width, key, TensorRole::attn_v);
    if (shape_.architecture == "qwen3" || has_gate) {
      add_small(block("attn_q_norm.weight"), {shape_.head_dim}, Fill::norm);
      add_small(block("attn_k_norm.weight"), {shape_.head_dim}, Fill::norm);
    }
    add_matrix(block("attn_output.weight"), query, width, TensorRole::attn_output);
  }

  void add_delta_net() {
    const std::uint64_t width = shape_.embedding;
    const std::uint64_t channels = 2 * DeltaNet::state * DeltaNet::key_heads + DeltaNet::inner;
    add_matrix(block("attn_qkv.weight"), width, channels, TensorRole::attn_qkv);
    add_matrix(block("attn_gate.weight"), width, DeltaNet::inner);
    add_small(block("ssm_conv1d.weight"), {DeltaNet::convolution, channels}, Fill::bias, 0.5f);
    add_matrix(block("ssm_alpha.weight"), width, DeltaNet::value_heads);
    add_matrix(block("ssm_beta.weight"), width, DeltaNet::value_heads);
    add_small(block("ssm_dt.bias"), {DeltaNet::value_heads}, Fill::bias, 0.5f);
    add_small(block("ssm_a"), {DeltaNet::value_heads}, Fill::decay);
    add_small(block("ssm_norm.weight"), {DeltaNet::state}, Fill::norm);
    add_matrix(block("ssm_out.weight"), DeltaNet::inner, width);
  }

  const SyntheticShape& shape_;
  std::uint32_t layer_ = 0;
  std::vector<SyntheticTensor> tensors_;
};

}  // namespace

std::span<const SyntheticShape> synthetic_shapes() {
  return shapes;
}

const SyntheticShape& synthetic_shape(std::string_view name) {
  std::vector<std::string_view> names;
  for (const SyntheticShape& shape : shapes) {
    if (shape.name == name) return shape;
    names.push_back(shape.name);
  }
  throw UsageError(fmt::format("unknown shape '{}'; known: {}", name, fmt::join(names, ", ")));
}

std::vector<SyntheticTensor> synthetic_tensors(const SyntheticShape& shape) {
  return TensorList(shape).build();
}

}  // namespace sluice::model
