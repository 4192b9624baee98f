// The router of a mixture of experts (Shazeer et al. 2017, arXiv:1701.06538) chooses a few experts
// for each token, and their weights.
//
// A token has a score for each expert: the softmax or the sigmoid of Wr x (+ bias). It takes the
// experts with the highest scores. A choice bias (DeepSeek-AI 2024, arXiv:2412.19437) is added to
// the scores for this choice only. With groups, a token takes experts of the best groups only; a
// group is ranked by the sum of its two best experts. The weights are the scores of the experts
// taken, divided by their sum where the Spec says so, and scaled.
//
// Everything is computed in floats. Of equal scores the first wins.
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
  std::size_t used = 0;       // experts that one token takes
  RouterScores scores = RouterScores::softmax;
  std::size_t groups = 1;  // of consecutive experts; at most groups_max, divides X
  std::size_t groups_used = 1;
  bool divides_by_sum = true;
  float scale = 1;

  static constexpr std::size_t groups_max = 64;
};

// Reads "expert_count" and the related keys; `otherwise` has the values for keys that the file does
// not have. Throws ModelError when a key is missing or its value makes no sense.
RouterSpec read_router(const Keys& keys, std::size_t embedding, const RouterSpec& otherwise = {});

// An expert that a token takes.
struct Choice {
  std::uint32_t expert;
  float weight;
};

// Chooses the experts of one token: writes them to out[used], by descending score. `logits`, [X],
// is overwritten with the scores; `bias` is [X] or null; `scratch` is [X].
void choose_experts(const kernels::VectorOps& ops, const RouterSpec& spec, float* logits,
                    const float* bias, Choice* scratch, Choice* out);

class Router {
 public:
  // Declares ffn_gate_inp and, where the file has them, its bias and exp_probs_b.bias. Throws
  // ModelError.
  Router(const LayerTensors& tensors, const RouterSpec& spec);

  const RouterSpec& spec() const { return spec_; }

  void measure(Arena& arena, const BufferShape& shape) const { place(arena, shape); }
  void bind(Arena& arena, const BufferShape& shape) { buffers_ = place(arena, shape); }

  // Chooses for all columns of a step; in: [columns][E].
  void run(Pass& pass, const float* in);

  // The choices of a column, valid until the buffers are reused.
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
  void replace_choices(const ExpertChooser& chooser, std::size_t columns);

  RouterSpec spec_;
  Matrix weights_;      // [X][E]
  Vector bias_;         // [X], or empty, as is the next
  Vector choice_bias_;  // added to the scores for the choice only
  Buffers buffers_;
};

}  // namespace sluice::model
