#include "core/model/blocks/experts.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <span>
#include <string>
#include <utility>

namespace sluice::model {
namespace {

// Declares the weights of the experts of a layer, one after the other.
class ExpertTensors {
 public:
  ExpertTensors(const LayerTensors& tensors, const ExpertsSpec& spec)
      : tensors_(tensors),
        experts_(spec.router.experts),
        e_(spec.router.embedding),
        f_(spec.width),
        has_gate_(has_gate(spec.activation)),
        is_fused_(has_gate_ && tensors.has("ffn_gate_up_exps.weight")),
        is_stacked_(tensors.has("ffn_down_exps.weight")) {
    if (is_fused_) gate_up_bias_ = biases("ffn_gate_up_exps.bias", 2 * f_);
    if (has_gate_ && !is_fused_) gate_bias_ = biases("ffn_gate_exps.bias", f_);
    if (!is_fused_) up_bias_ = biases("ffn_up_exps.bias", f_);
    down_bias_ = biases("ffn_down_exps.bias", e_);
  }

  FeedForwardWeights weights_of(std::size_t expert) const {
    FeedForwardWeights out;
    if (is_fused_) {
      const std::string name = "ffn_gate_up_exps.weight";
      const std::size_t first = expert * 2 * f_;
      out.gate = tensors_.part_of_matrix(name, {e_, 2 * f_, experts_}, first, f_);
      out.up = tensors_.part_of_matrix(name, {e_, 2 * f_, experts_}, first + f_, f_);
      const Vector bias = of(gate_up_bias_, expert, 2 * f_);
      out.gate_bias = bias.first(bias.size() / 2);
      out.up_bias = bias.last(bias.size() / 2);
    } else {
      if (has_gate_) out.gate = matrix("ffn_gate", expert, e_, f_);
      out.up = matrix("ffn_up", expert, e_, f_);
      out.gate_bias = of(gate_bias_, expert, f_);
      out.up_bias = of(up_bias_, expert, f_);
    }
    out.down = matrix("ffn_down", expert, f_, e_);
    out.down_bias = of(down_bias_, expert, e_);
    return out;
  }

 private:
  Matrix matrix(const std::string& name, std::size_t expert, std::size_t columns,
                std::size_t rows) const {
    if (!is_stacked_)
      return tensors_.matrix(fmt::format("{}.{}.weight", name, expert), columns, rows);
    return tensors_.part_of_matrix(name + "_exps.weight", {columns, rows, experts_}, expert * rows,
                                   rows);
  }

  Vector biases(const std::string& name, std::size_t size) const {
    return tensors_.optional_vector(name, {size, experts_});
  }
  static Vector of(Vector biases, std::size_t expert, std::size_t size) {
    return biases.empty() ? Vector{} : biases.subspan(expert * size, size);
  }

  const LayerTensors& tensors_;
  std::size_t experts_, e_, f_;
  bool has_gate_, is_fused_, is_stacked_;
  Vector gate_up_bias_, gate_bias_, up_bias_, down_bias_;  // [X][...], or empty
};

}  // namespace

ExpertsSpec read_experts(const Keys& keys, std::size_t embedding, const RouterSpec& otherwise) {
  ExpertsSpec spec;
  spec.router = read_router(keys, embedding, otherwise);
  spec.width = keys.contains("expert_feed_forward_length")
                   ? keys.count("expert_feed_forward_length")
                   : keys.count("feed_forward_length");
  return spec;
}

Experts::Experts(const LayerTensors& tensors, const ExpertsSpec& spec)
    : embedding_(spec.router.embedding),
      routes_kept_(spec.routes_kept),
      weighs_inputs_(spec.weighs_inputs),
      router_(tensors, spec.router) {
  const ExpertTensors stacks(tensors, spec);
  const FeedForwardSpec one{embedding_, spec.width, spec.activation, spec.numbers};
  experts_.reserve(spec.router.experts);
  first_turn_ = tensors.next_turn();
  for (std::size_t i = 0; i < spec.router.experts; ++i) {
    experts_.emplace_back(stacks.weights_of(i), one);
  }
  turns_each_ = (tensors.next_turn() - first_turn_) / experts_.size();
  group_ = tensors.group_experts(first_turn_, experts_.size(), spec.router.used);
}

Experts::Buffers Experts::place(Arena& arena, const BufferShape& shape) const {
  Buffers out;
  out.gathered = arena.floats(outputs_max(shape.columns) * embedding_);
  out.sum = arena.floats(shape.columns * embedding_);
  out.visits = arena.take<Visit>(shape.columns * router_.spec().used);
  out.ends = arena.take<std::size_t>(experts_.size());
  out.uses = arena.take<streaming::ExpertUse>(experts_.size());
  out.in_time_order = arena.take<std::uint32_t>(experts_.size());
  return out;
}

void Experts::measure(Arena& arena, const BufferShape& shape) const {
  place(arena, shape);
  router_.measure(arena, shape);
  experts_.front().measure(arena, for_experts(shape));
}

// For the buffers of experts, which all of them share: run_by_arrival() computes the experts of a
// token together.
BufferShape Experts::for_experts(const BufferShape& shape) const {
  return {outputs_max(shape.columns), shape.threads, shape.cache};
}

void Experts::bind(Arena& arena, const BufferShape& shape) {
  buffers_ = place(arena, shape);
  outputs_max_ = outputs_max(shape.columns);
  router_.bind(arena, shape);
  for (FeedForward& expert : experts_) {
    Arena same = arena;
    expert.bind(same, for_experts(shape));
  }
}

void Experts::run(Pass& pass, const float* routed, const float* in, float* out) {
  const std::size_t columns = pass.columns.size();
  router_.run(pass, routed);
  list_visits(columns);
  const std::span<const streaming::ExpertUse> uses = list_uses();
  if (group_) pass.compute.expect_experts(*group_, uses, columns);
  if (group_ && pass.compute.expert_watch()) tell(pass.compute.expert_watch(), columns);
  std::fill_n(buffers_.sum, columns * embedding_, 0.0f);
  if (columns * router_.spec().used <= outputs_max_) {
    run_by_arrival(pass.compute, uses, columns, in);
  } else {
    run_by_number(pass.compute, uses, in);
  }
  std::memcpy(out, buffers_.sum, columns * embedding_ * sizeof(float));
}

void Experts::tell(const ExpertWatch& watch, std::size_t columns) const {
  std::vector<std::uint32_t> chosen(router_.spec().used);
  for (std::size_t c = 0; c < columns; ++c) {
    std::ranges::transform(router_.choices(c), chosen.begin(), &Choice::expert);
    watch({*group_, experts_.size(), c, chosen});
  }
}

// Sorts what the tokens chose by expert, and then by column.
void Experts::list_visits(std::size_t columns) {
  const std::span ends(buffers_.ends, experts_.size());
  std::ranges::fill(ends, 0);
  for (std::size_t c = 0; c < columns; ++c) {
    for (const Choice& choice : router_.choices(c)) ++ends[choice.expert];
  }
  // Turns each count into the index where the visits of that expert begin; filling the list moves
  // it to where they end.
  std::size_t begin = 0;
  for (std::size_t& end : ends) begin += std::exchange(end, begin);
  for (std::size_t c = 0; c < columns; ++c) {
    for (const Choice& choice : router_.choices(c)) {
      buffers_.visits[ends[choice.expert]++] = {static_cast<std::uint32_t>(c), choice.weight};
    }
  }
}

std::span<const Experts::Visit> Experts::visits_of(std::size_t expert) const {
  const std::size_t begin = expert == 0 ? 0 : buffers_.ends[expert - 1];
  return {buffers_.visits + begin, buffers_.ends[expert] - begin};
}

std::span<const streaming::ExpertUse> Experts::list_uses() {
  std::size_t count = 0;
  for (std::uint32_t expert = 0; expert < experts_.size(); ++expert) {
    const auto tokens = static_cast<std::uint32_t>(visits_of(expert).size());
    if (tokens != 0) buffers_.uses[count++] = {expert, tokens};
  }
  return {buffers_.uses, count};
}

// Adds the outputs of each expert to the sums before the next expert is computed.
void Experts::run_by_number(Compute& compute, std::span<const streaming::ExpertUse> uses,
                            const float* in) {
  const std::size_t e = embedding_;
  for (const streaming::ExpertUse& use : uses) {
    const std::span<const Visit> visits = visits_of(use.expert);
    compute_outputs(compute, use.expert, in, buffers_.gathered);
    compute.for_each(visits.size(), [&](std::size_t, std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        compute.ops().add_scaled(buffers_.gathered + i * e, weight_of(visits[i]), e,
                                 buffers_.sum + visits[i].column * e);
      }
    });
  }
}

// Keeps the outputs of all experts, each where its visits are in the list, and adds them up in the
// end.
void Experts::run_by_arrival(Compute& compute, std::span<const streaming::ExpertUse> uses,
                             std::size_t columns, const float* in) {
  const std::size_t e = embedding_;
  const std::span order(buffers_.in_time_order, uses.size());
  // Each is asked about once: another thread may take its place at any moment. `uses` is in
  // ascending order, and so are those that are in memory, in front, and the others behind them.
  std::size_t in_memory = 0, missed = order.size();
  for (const streaming::ExpertUse& use : uses) {
    order[is_in_memory(compute, use.expert) ? in_memory++ : --missed] = use.expert;
  }
  std::ranges::reverse(order.subspan(in_memory));
  // Experts that are no group of the tape are streamed in its order, one after the other. Those
  // that weigh their inputs have no input in common.
  const std::size_t together = columns == 1 && group_ && !weighs_inputs_ ? in_memory : 0;
  compute_together(compute, order.first(together), in);
  for (const std::uint32_t expert : order.subspan(together)) {
    compute_outputs(compute, expert, in, outputs_of(expert));
  }
  // Each thread adds up some of the features.
  constexpr std::size_t unit = 256;
  const std::size_t parts = columns == 1 ? 1 : (e + unit - 1) / unit;
  const std::size_t features = columns == 1 ? e : unit;
  compute.for_each(parts, [&](std::size_t, std::size_t begin, std::size_t end) {
    const std::size_t first = begin * features, count = std::min(end * features, e) - first;
    for (std::size_t i = 0; i < columns * router_.spec().used; ++i) {
      const Visit& visit = buffers_.visits[i];
      compute.ops().add_scaled(buffers_.gathered + i * e + first, weight_of(visit), count,
                               buffers_.sum + visit.column * e + first);
    }
  });
}

// The experts, all of them in memory, are computed together, for one token.
void Experts::compute_together(Compute& compute, std::span<const std::uint32_t> experts,
                               const float* in) {
  together_.clear();
  for (const std::uint32_t expert : experts) {
    together_.push_back({&experts_[expert], outputs_of(expert)});
  }
  FeedForward::run_together(compute, in, together_, products_);
}

// Where run_by_arrival() keeps the outputs of an expert.
float* Experts::outputs_of(std::size_t expert) const {
  return buffers_.gathered + (visits_of(expert).data() - buffers_.visits) * embedding_;
}

bool Experts::is_in_memory(const Compute& compute, std::size_t expert) const {
  const std::size_t first = first_turn_ + expert * turns_each_;
  for (std::size_t turn = first; group_ && turn < first + turns_each_; ++turn) {
    if (!compute.tape().is_in_memory(turn)) return false;
  }
  return true;
}

// The outputs for the visits of an expert, [visits][E].
void Experts::compute_outputs(Compute& compute, std::size_t expert, const float* in,
                              float* outputs) {
  const std::size_t e = embedding_;
  const std::span<const Visit> visits = visits_of(expert);
  compute.for_each(visits.size(), [&](std::size_t, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      float* const input = outputs + i * e;
      std::memcpy(input, in + visits[i].column * e, e * sizeof(float));
      if (weighs_inputs_) compute.ops().scale(input, e, visits[i].weight);
    }
  });
  experts_[expert].run(compute, outputs, visits.size(), outputs);
}

}  // namespace sluice::model
