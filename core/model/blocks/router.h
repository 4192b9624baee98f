// The router of a mixture of experts (Shazeer et al. 2017, arXiv:1701.06538): gives each token a
// few experts, and their weights.
//
// A token has a score for each expert, the softmax or the sigmoid of Wr x (+ bias). It takes the
// experts of the best scores; where there is a choice bias (DeepSeek-AI 2024, arXiv:2412.19437),
// it joins the scores for this choice alone. With groups, only experts of the best groups may be
// taken; a group is as good as its two best experts together. The weights are the scores of what
// was taken, divided by their sum where the Spec says so, and scaled.
//
// All of it is computed with floats. Of equal scores the first wins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/model/arena.h"
#include "core/model/keys.h"
#include "core/model/step.h"
#include "core/model/weights.h"

namespace sluice::model {

enum class RouterScores { softmax, sigmoid };

struct RouterSpec {
  std::size_t embedding = 0;  // E
  std::size_t experts = 0;    // X
  std::size_t used = 0;       // of these, by one token
  RouterScores scores = RouterScores::softmax;
  std::size_t groups = 1;  // of consecutive experts; at most groups_max, divides X
  std::size_t groups_used = 1;
  bool divides_by_sum = true;
  float scale = 1;

  static constexpr std::size_t groups_max = 64;
};

// "expert_count" and its kin. What the file does not say is as in `otherwise`. Throws ModelError
// where a key is missing or makes no sense.
RouterSpec read_router(const Keys& keys, std::size_t embedding, const RouterSpec& otherwise = {});

// An expert that a token takes.
struct Choice {
  std::uint32_t expert;
  float weight;
};

// Of one token, into out[used], by descending score. `logits`, [X], become the scores; `bias`, [X],
// or null. `scratch`: [X].
void choose_experts(const kernels::VectorOps& ops, const RouterSpec& spec, float* logits,
                    const float* bias, Choice* scratch, Choice* out);

class Router {
 public:
  // Tensors ffn_gate_inp, and where the file has them its bias, exp_probs_b.bias, and
  // ffn_down_exps.scale, a factor of the weights of each expert. Throws ModelError.
  Router(const LayerTensors& tensors, const RouterSpec& spec);

  const RouterSpec& spec() const { return spec_; }

  void measure(Arena& arena, const BufferShape& shape) const { place(arena, shape); }
  void bind(Arena& arena, const BufferShape& shape) { buffers_ = place(arena, shape); }

  // Chooses for all columns of a step; in: [columns][E].
  void run(Pass& pass, const float* in);

  // What a column chose, valid until the buffers are used anew.
  std::span<const Choice> choices(std::size_t column) const {
    return {buffers_.choices + column * spec_.used, spec_.used};
  }

 private:
  struct Buffers {
    float* logits = nullptr;    // [columns][X]
    Choice* choices = nullptr;  // [columns][used]
    Choice* scratch = nullptr;  // [threads][X]
  };

  Buffers place(Arena& arena, const BufferShape& shape) const;

  RouterSpec spec_;
  Matrix weights_;      // [X][E]
  Vector bias_;         // [X], or empty; so the others
  Vector choice_bias_;  // joins scores for the choice
  Vector factors_;      // of weights
  Buffers buffers_;
};

}  // namespace sluice::model
