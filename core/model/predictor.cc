#include "core/model/predictor.h"

#include <algorithm>
#include <array>

namespace sluice::model {

Predictor::Predictor(const HyperParameters& hp, WeightLayout& layout)
    : hp_(hp),
      tensors_(layout, hp.layers),
      table_("token_embd.weight"),
      embedding_norm_(read_norm(tensors_, hp, "nextn.enorm.weight")),
      state_norm_(read_norm(tensors_, hp, "nextn.hnorm.weight")),
      projection_(tensors_.matrix("nextn.eh_proj.weight", 2 * hp.embedding, hp.embedding)) {
  const std::string own = tensors_.name("nextn.embed_tokens.weight");
  if (!layout.has(own)) return;
  layout.table(own, hp.embedding, hp.vocabulary);
  table_ = own;
}

void Predictor::declare_head(const Norm& final_norm) {
  norm_ = final_norm;
  // Ling calls it by another name.
  for (const char* name : {"nextn.shared_head_norm.weight", "layer_output_norm.weight"}) {
    if (tensors_.has(name)) norm_ = read_norm(tensors_, hp_, name);
  }
  const char* const head = "nextn.shared_head_head.weight";
  if (tensors_.has(head)) head_ = tensors_.matrix(head, hp_.embedding, hp_.vocabulary);
}

void Predictor::combine(Compute& compute, float* x, std::size_t columns,
                        const StateBefore& state) const {
  const std::size_t e = hp_.embedding;
  compute.for_each(columns, [&](std::size_t, std::size_t begin, std::size_t end) {
    for (std::size_t c = begin; c < end; ++c) {
      float* const input = inputs_ + c * 2 * e;
      embedding_norm_.apply(compute.ops(), x + c * e, input);
      if (const float* const before = state(c)) {
        state_norm_.apply(compute.ops(), before, input + e);
      } else {
        std::fill_n(input + e, e, 0.0f);
      }
    }
  });
  compute.multiply(inputs_, 2 * e, 2 * e, columns, std::array{Product{&projection_, x, e}});
}

}  // namespace sluice::model
