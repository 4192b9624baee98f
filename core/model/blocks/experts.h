// A mixture of experts: a router chooses a few of many feed-forward networks for each token, and
// the token gets the weighted sum of their outputs.
//
// The tokens of a step are gathered by expert, so that the weights of an expert are read once for
// all of them. A token adds up its experts in ascending order of their numbers, so its result does
// not depend on the other tokens of the step. Experts that no token chose are not computed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/model/blocks/block.h"
#include "core/model/blocks/feed_forward.h"
#include "core/model/blocks/router.h"
#include "core/model/weights.h"

namespace sluice::model {

struct ExpertsSpec {
  RouterSpec router = {};
  std::size_t width = 0;  // F, of one expert
  Activation activation = Activation::swiglu;
};

// Reads "expert_feed_forward_length" (where the file has none: "feed_forward_length") and the keys
// of the router. Throws ModelError when a key is missing or its value makes no sense.
ExpertsSpec read_experts(const Keys& keys, std::size_t embedding, const RouterSpec& otherwise = {});

class Experts final : public Block {
 public:
  // Declares the tensors of the router and those of the experts: ffn_gate_exps, ffn_up_exps and
  // ffn_down_exps, each holding all experts of the layer; or ffn_gate_up_exps, with the rows of the
  // gate above those of up; or a tensor for each expert (ffn_gate.0 and so on); and the biases that
  // the file has. Throws ModelError.
  Experts(const LayerTensors& tensors, const ExpertsSpec& spec);

  std::size_t size_max() const override { return experts_.front().size_max(); }
  void measure(Arena& arena, const BufferShape& shape) const override;
  void bind(Arena& arena, const BufferShape& shape) override;
  void run(Pass& pass, const float* in, float* out) override { run(pass, in, in, out); }

  // The same, for a router whose input differs from that of the experts. `routed`: [columns][E].
  void run(Pass& pass, const float* routed, const float* in, float* out);

 private:
  // A token that an expert computes.
  struct Visit {
    std::uint32_t column;
    float weight;
  };
  struct Buffers {
    float* gathered = nullptr;    // [columns][E]: the inputs of an expert, then its outputs
    float* sum = nullptr;         // [columns][E]
    Visit* visits = nullptr;      // [columns * used], by expert
    std::size_t* ends = nullptr;  // [X]: where the visits of an expert end
  };

  Buffers place(Arena& arena, const BufferShape& shape) const;
  void list_visits(std::size_t columns);
  void visit(Compute& compute, FeedForward& expert, std::span<const Visit> visits, const float* in);

  std::size_t embedding_;
  Router router_;
  std::vector<FeedForward> experts_;
  Buffers buffers_;
};

}  // namespace sluice::model
