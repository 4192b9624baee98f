#include "core/synth/tensors.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <stdexcept>
#include <utility>

#include "core/error.h"
#include "core/synth/architectures.h"
#include "core/synth/toy_vocabulary.h"

namespace sluice::synth {
namespace {

class TensorList {
 public:
  explicit TensorList(const Shape& shape) : shape_(shape), architecture_(architecture_of(shape)) {
    if (shape_.experts.routing != Routing::uniform) common_columns_ = find_common_columns();
  }

  std::vector<Tensor> build() {
    add_global();
    for (std::uint32_t layer = 0; layer < shape_.layers; ++layer) add_layer(layer);
    for (std::uint32_t i = 0; i < shape_.predictors; ++i) add_predictor(shape_.layers + i);
    number_places();
    return std::move(tensors_);
  }

 private:
  // Whole blocks of every format, so that they can be the same bytes in all rows.
  std::uint64_t find_common_columns() const {
    constexpr std::uint32_t block = 256;
    if (shape_.experts.count == 0) {
      throw UsageError(
          fmt::format("shape {} has no experts, so there is no routing to skew; use "
                      "a mixture of experts",
                      shape_.name));
    }
    if (shape_.embedding <= block) {
      throw UsageError(
          fmt::format("skewed routing needs embeddings wider than {}, but those of {} "
                      "have {}; use a wider shape",
                      block, shape_.name, shape_.embedding));
    }
    return std::max(shape_.embedding / 8 / block * block, block);
  }

  Tensor& add(std::string name, std::vector<std::uint64_t> dims, Fill fill, float mean,
              float deviation, TensorRole role = TensorRole::other) {
    const std::uint32_t keys = std::max(shape_.heads.keys, shape_.window.keys);
    TensorPlace place{role, 0, 0, shape_.heads.queries / keys, dims[0]};
    place.is_of_experts = name.find("_exps") != std::string::npos;
    tensors_.push_back({std::move(name), std::move(dims), fill, mean, deviation, place});
    return tensors_.back();
  }

  void add_global() {
    const std::uint64_t width = shape_.embedding;
    const std::uint64_t vocabulary = shape_.vocabulary;
    const auto role = shape_.tied ? TensorRole::head : TensorRole::embedding;
    add("token_embd.weight", {width, vocabulary}, Fill::matrix, 0, 1, role);
    if (shape_.is_encoder()) {
      if (!architecture_.has_embedding_norm) {
        tensors_.back().deviation = 1 / std::sqrt(static_cast<float>(width));
      }
    } else if (shape_.tied) {
      make_head(tensors_.back());
    }
    tensors_.back().common_columns = common_columns_;
    embedding_deviation_ = tensors_.back().deviation;
    // Where the head is the table of embeddings, signs at random keep a token from being followed
    // by itself for ever.
    if (architecture_.final_norm != nullptr) {
      const bool has_signs = shape_.tied && !shape_.is_encoder();
      add(architecture_.final_norm, {width}, Fill::vector, has_signs ? 0.0f : 1.0f,
          has_signs ? 1.0f : 0.1f);
    }
    if (architecture_.has_norm_biases) {
      add("output_norm.bias", {width}, Fill::vector, 0, 0.25f);
    }
    if (architecture_.has_embedding_norm) {
      add("token_embd_norm.weight", {width}, Fill::vector, 1, 0.1f);
      // ModernBERT's norms have no biases.
      if (architecture_.bare_norm.empty()) {
        add("token_embd_norm.bias", {width}, Fill::vector, 0, 0.25f);
      }
    }
    if (shape_.is_encoder()) add_text_parts();
    if (architecture_.has_head_bias) add("output.bias", {vocabulary}, Fill::vector, 0, 0.8f);
    if (!shape_.tied) {
      make_head(add("output.weight", {width, vocabulary}, Fill::matrix, 0, 1, TensorRole::head));
    }
    add_rope_factors();
    if (shape_.layer_embedding > 0) add_layer_embeddings();
    if (shape_.ngrams.tokens > 0) add_ngram_table();
  }

  // What tells positions and kinds of token, and what makes a vector or a score of a pooled text.
  void add_text_parts() {
    const std::uint64_t width = shape_.embedding, dense = shape_.vectors.dense;
    const auto linear = [&](const char* name, std::uint64_t columns, std::uint64_t rows) {
      add(name, {columns, rows}, Fill::matrix, 0, 1 / std::sqrt(static_cast<float>(columns)));
    };
    if (architecture_.has_position_table) {
      add("position_embd.weight", {width, shape_.context}, Fill::vector, 0, 0.3f);
    }
    if (shape_.vectors.token_types > 0) {
      add("token_types.weight", {width, shape_.vectors.token_types}, Fill::vector, 0, 0.3f);
    }
    if (dense > 0) {
      linear("dense_2.weight", width, dense);
      linear("dense_3.weight", dense, width);
    }
    if (shape_.vectors.pooling != scores_pooling) return;
    linear("cls.weight", width, width);
    if (architecture_.bare_norm.empty()) {
      add("cls.bias", {width}, Fill::vector, 0, 0.2f);
    } else {
      add("cls.norm.weight", {width}, Fill::vector, 1, 0.1f);
    }
    linear("cls.output.weight", width, 1);
    add("cls.output.bias", {1}, Fill::vector, 0, 0.2f);
  }

  void add_ngram_table() {
    const Sizes sizes(shape_, 0);
    const auto suiting = [](float gain, std::uint64_t columns) {
      return gain / std::sqrt(static_cast<float>(columns));
    };
    add("output_hc_norm.weight", {sizes.wide}, Fill::vector, 1, 0.1f);
    add("output_hc_down.weight", {sizes.wide, sizes.side_rank}, Fill::matrix, 0,
        suiting(4, sizes.wide));
    add("output_hc_up.weight", {sizes.side_rank, sizes.wide}, Fill::matrix, 0,
        suiting(2, sizes.side_rank));
    add("per_layer_token_embd.weight", {shape_.ngrams.width, ngram_rows(shape_)}, Fill::matrix, 0,
        1);
  }

  void make_head(Tensor& tensor) const {
    const float scale = shape_.scales.logit > 0 ? shape_.scales.logit : 1;
    const float divisor = architecture_.multiplies_logits ? 1 / scale : scale;
    tensor.deviation =
        shape_.logit_deviation * divisor / std::sqrt(static_cast<float>(shape_.embedding));
    tensor.quiet_rows = unprintable_tokens;
  }

  void add_rope_factors() {
    const Sizes sizes(shape_, shape_.layers - 1);
    const auto factors = [&](const char* name, std::uint64_t count, Fill fill) {
      add(name, {count}, fill, 1, 0);
    };
    if (shape_.rope.llama3 > 0) {
      factors("rope_freqs.weight", sizes.half_head, Fill::llama3_factors);
    }
    if (shape_.rope.scaling == "longrope") {
      factors("rope_factors_long.weight", sizes.half_rotated, Fill::long_factors);
      factors("rope_factors_short.weight", sizes.half_rotated, Fill::short_factors);
    }
    if (shape_.architecture == "gemma4") {
      factors("rope_freqs.weight", shape_.heads.size / 2, Fill::proportional_factors);
    }
  }

  void add_layer_embeddings() {
    const Sizes sizes(shape_, 0);
    const float wide = 1.0f / std::sqrt(static_cast<float>(sizes.layer_embedding));
    add("per_layer_token_embd.weight", {sizes.layer_embeddings, sizes.vocabulary}, Fill::matrix, 0,
        wide, TensorRole::head);
    add("per_layer_model_proj.weight", {sizes.embedding, sizes.layer_embeddings}, Fill::matrix, 0,
        1, TensorRole::side_projection);
    add("per_layer_proj_norm.weight", {sizes.layer_embedding}, Fill::vector, 1, 0.1f);
    if (shape_.streams == 0) return;
    const float own = 1.0f / std::sqrt(static_cast<float>(sizes.embedding));
    for (const char* name : {"altup_proj.weight", "altup_unembd_proj.weight"}) {
      add(name, {sizes.embedding, sizes.embedding, sizes.streams - 1}, Fill::matrix, 0, own,
          TensorRole::side_projection);
    }
  }

  void add_layer(std::uint32_t layer) {
    const Sizes sizes(shape_, layer);
    const Architecture& architecture =
        shape_.is_dense(layer) ? architecture_by_name(architecture_.dense) : architecture_;
    for (const LayerKinds& kinds : architecture.layers) {
      if (kinds.kinds.find(shape_.kind(layer)) == std::string_view::npos) continue;
      for (const Block& block : kinds.blocks) {
        for (const Row& row : block) {
          const bool is_bare = layer == 0 && architecture.bare_norm == row.name;
          if (!is_bare) add_row(layer, row, sizes);
        }
      }
      for (const Row& row : architecture.ngrams) {
        if (layer == ngram_layer) add_row(layer, row, sizes);
      }
      return;
    }
    throw std::logic_error(
        fmt::format("{} has no layers of kind {}", architecture.name, shape_.kind(layer)));
  }

  void add_predictor(std::uint32_t block) {
    const std::uint64_t width = shape_.embedding;
    const auto name = [&](const char* tensor) {
      return fmt::format("blk.{}.nextn.{}", block, tensor);
    };
    add(name("eh_proj.weight"), {2 * width, width}, Fill::matrix, 0,
        shape_.gain / std::sqrt(2 * static_cast<float>(width)));
    for (const char* norm : {"enorm.weight", "hnorm.weight", "shared_head_norm.weight"}) {
      add(name(norm), {width}, Fill::vector, 1, 0.1f);
    }
    add_layer(block);
  }

  void add_row(std::uint32_t layer, const Row& row, const Sizes& sizes) {
    std::vector<std::uint64_t> dims;
    for (const Size size : row.dims) dims.push_back(sizes.*size);
    const float scale = scale_of(row, dims.front());
    Tensor& tensor = add(fmt::format("blk.{}.{}", layer, row.name), std::move(dims), row.fill,
                         row.mean, row.deviation * scale, row.role);
    tensor.place.index = layer;
    if (row.fill == Fill::router && common_columns_ > 0) skew(tensor);
  }

  // What the deviation of a row in the tables is multiplied with.
  float scale_of(const Row& row, std::uint64_t columns) const {
    const float width = std::sqrt(static_cast<float>(columns));
    switch (row.fill) {
      case Fill::matrix: {
        const bool adds_to_stream = row.dims[1] == &Sizes::embedding;
        const bool is_mixture = shape_.experts.count > 0 && shape_.experts.layer_gain > 0;
        const float added = shape_.experts.layer_gain * embedding_deviation_;
        return shape_.gain * (adds_to_stream && is_mixture ? added : 1) / width;
      }
      case Fill::router:
        // What Gemma 4's router multiplies is divided by the root of its width already.
        return shape_.architecture == "gemma4" ? 1 : 1 / width;
      case Fill::router_bias:
        return shape_.experts.router_bias;
      default:
        return 1;
    }
  }

  // Lets a part of the variance of the router's logits be the same for all tokens: experts differ
  // in it, so some are chosen often and others seldom.
  void skew(Tensor& router) const {
    const float common = static_cast<float>(common_columns_) / static_cast<float>(router.dims[0]);
    router.common_columns = common_columns_;
    const float variance = common_variance();
    router.common_deviation = router.deviation * std::sqrt(variance / common);
    router.deviation *= std::sqrt((1 - variance) / (1 - common));
  }

  // As real models choose: chosen so that a cache finds as many experts as in the traces of
  // engine/expert_routes.h. gpt-oss, which takes 2 of 128, chooses more evenly than those with 6.
  float common_variance() const {
    const bool takes_few = shape_.experts.count > 32 * shape_.experts.used;
    return shape_.experts.routing == Routing::real && !takes_few ? 0.5f : 0.4f;
  }

  // Mixes give more bits by the place among the tensors of a kind, in the order of the file; in a
  // mixture of experts, by the layer.
  void number_places() {
    std::uint32_t values = 0, downs = 0;
    for (Tensor& tensor : tensors_) {
      if (is_value(tensor)) tensor.place.index = values++;
      if (shape_.experts.count > 0) continue;
      if (tensor.place.role == TensorRole::ffn_down) tensor.place.index = downs++;
    }
    for (Tensor& tensor : tensors_) tensor.place.count = is_value(tensor) ? values : shape_.layers;
  }

  static bool is_value(const Tensor& tensor) {
    return tensor.place.role == TensorRole::attn_v || tensor.place.role == TensorRole::attn_qkv;
  }

  const Shape& shape_;
  const Architecture& architecture_;
  std::vector<Tensor> tensors_;
  std::uint64_t common_columns_ = 0;  // of embeddings; 0 with uniform routing
  float embedding_deviation_ = 0;
};

}  // namespace

std::uint64_t Tensor::elements() const {
  std::uint64_t count = 1;
  for (const std::uint64_t dim : dims) count *= dim;
  return count;
}

std::vector<std::uint64_t> ngram_sizes(const Shape& shape) {
  const Shape::Ngrams& ngrams = shape.ngrams;
  std::vector<std::uint64_t> sizes;
  for (std::uint32_t i = 0; i < (ngrams.tokens - 1) * ngrams.heads; ++i) {
    sizes.push_back(ngrams.rows + 10 * i);
  }
  return sizes;
}

std::uint64_t ngram_rows(const Shape& shape) {
  std::uint64_t rows = 0;
  for (const std::uint64_t size : ngram_sizes(shape)) rows += size;
  return (rows + 127) / 128 * 128;
}

std::vector<Tensor> tensors_of(const Shape& shape) {
  return TensorList(shape).build();
}

bool has_plain_heads(const Shape& shape) {
  return architecture_of(shape).plain_heads;
}

}  // namespace sluice::synth
