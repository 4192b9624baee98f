// A mixture of experts: a router chooses a few of many feed-forward networks for each token, and
// the token gets the weighted sum of their outputs.
//
// The tokens of a step are gathered by expert, so that the weights of an expert are read once for
// all of them. Experts that no token chose are not computed. Where few tokens make a step, the
// experts in memory are computed first, while the others are still being read; where it is a single
// token, together, because each product alone is too short for several threads. A token adds up its
// experts in ascending order of their numbers all the same, so its result depends neither on the
// other tokens of the step nor on what is in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
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
  ActivationNumbers numbers = {};
  // The router sees the stream before the attention of its layer (SmallThinker).
  bool routes_kept = false;
  // Experts compute what a token gives them multiplied by their weight, instead of their outputs
  // being weighed (Llama 4).
  bool weighs_inputs = false;
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
  void run(Pass& pass, const float* in, float* out) override {
    run(pass, routes_kept_ ? pass.kept_input : in, in, out);
  }

  // The same, for a router whose input differs from that of the experts. `routed`: [columns][E].
  void run(Pass& pass, const float* routed, const float* in, float* out);

 private:
  // A token that an expert computes.
  struct Visit {
    std::uint32_t column;
    float weight;
  };
  struct Buffers {
    float* gathered = nullptr;               // [outputs_max()][E]: inputs of experts, then outputs
    float* sum = nullptr;                    // [columns][E]
    Visit* visits = nullptr;                 // [columns * used], by expert
    std::size_t* ends = nullptr;             // [X]: where the visits of an expert end
    streaming::ExpertUse* uses = nullptr;    // [X]: the experts that the step needs, ascending
    std::uint32_t* in_time_order = nullptr;  // [X]: these, in the order in which they are computed
  };

  // How many outputs there is room for: those of one expert for all columns, or of all experts for
  // one column.
  std::size_t outputs_max(std::size_t columns) const {
    return std::max(columns, router_.spec().used);
  }
  Buffers place(Arena& arena, const BufferShape& shape) const;
  BufferShape for_experts(const BufferShape& shape) const;
  void list_visits(std::size_t columns);
  void tell(const ExpertWatch& watch, std::size_t columns) const;
  std::span<const streaming::ExpertUse> list_uses();
  std::span<const Visit> visits_of(std::size_t expert) const;
  void run_by_number(Compute& compute, std::span<const streaming::ExpertUse> uses, const float* in);
  void run_by_arrival(Compute& compute, std::span<const streaming::ExpertUse> uses,
                      std::size_t columns, const float* in);
  float* outputs_of(std::size_t expert) const;
  void compute_together(Compute& compute, std::span<const std::uint32_t> experts, const float* in);
  void compute_outputs(Compute& compute, std::size_t expert, const float* in, float* outputs);
  bool is_in_memory(const Compute& compute, std::size_t expert) const;

  // What the output of an expert is multiplied with.
  float weight_of(const Visit& visit) const { return weighs_inputs_ ? 1 : visit.weight; }

  std::size_t embedding_;
  bool routes_kept_, weighs_inputs_;
  Router router_;
  std::vector<FeedForward> experts_;
  std::optional<std::size_t> group_;  // on the tape
  std::size_t first_turn_, turns_each_;
  std::size_t outputs_max_ = 0;
  Buffers buffers_;
  std::vector<FeedForward::Output> together_;  // of compute_together(), as is the next
  std::vector<Product> products_;
};

}  // namespace sluice::model
