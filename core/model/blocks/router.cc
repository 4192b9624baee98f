#include "core/model/blocks/router.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <vector>

namespace sluice::model {
namespace {

// Whether score a comes before b. NaN comes behind all numbers, also if it is met first.
bool beats(float a, float b) {
  return a > b || (std::isnan(b) && !std::isnan(a));
}

// Keeps the best of the choices that it is offered, by descending score; of equal ones the first
// stays ahead.
class Best {
 public:
  explicit Best(std::span<Choice> kept) : kept_(kept) {}

  void offer(std::size_t index, float score) {
    std::size_t at = count_;
    while (at != 0 && beats(score, kept_[at - 1].weight)) --at;
    if (at == kept_.size()) return;
    if (count_ != kept_.size()) ++count_;
    std::move_backward(kept_.begin() + static_cast<std::ptrdiff_t>(at),
                       kept_.begin() + static_cast<std::ptrdiff_t>(count_ - 1),
                       kept_.begin() + static_cast<std::ptrdiff_t>(count_));
    kept_[at] = {static_cast<std::uint32_t>(index), score};
  }

 private:
  std::span<Choice> kept_;
  std::size_t count_ = 0;
};

float score_for_choice(const float* scores, const float* bias, std::size_t expert) {
  return bias == nullptr ? scores[expert] : scores[expert] + bias[expert];
}

// Whether experts of each group may be taken.
std::array<bool, RouterSpec::groups_max> choose_groups(const RouterSpec& spec, const float* scores,
                                                       const float* bias) {
  std::array<bool, RouterSpec::groups_max> open{};
  std::array<Choice, RouterSpec::groups_max> kept;
  Best groups{std::span(kept).first(spec.groups_used)};
  const std::size_t size = spec.experts / spec.groups;
  for (std::size_t group = 0; group < spec.groups; ++group) {
    std::array<Choice, 2> pair{};  // the second stays 0 in groups of one
    Best best(pair);
    for (std::size_t i = group * size; i < (group + 1) * size; ++i) {
      best.offer(i, score_for_choice(scores, bias, i));
    }
    groups.offer(group, pair[0].weight + pair[1].weight);
  }
  for (const Choice& group : std::span(kept).first(spec.groups_used)) open[group.expert] = true;
  return open;
}

}  // namespace

RouterSpec read_router(const Keys& keys, std::size_t embedding, const RouterSpec& otherwise) {
  RouterSpec spec = otherwise;
  spec.embedding = embedding;
  spec.experts = keys.count("expert_count");
  spec.used = keys.count("expert_used_count", static_cast<std::uint32_t>(spec.experts));
  constexpr std::uint32_t softmax = 1, sigmoid = 2;  // as files write it
  if (const auto gating = keys.find_count("expert_gating_func", sigmoid)) {
    spec.scores = gating == softmax ? RouterScores::softmax : RouterScores::sigmoid;
  }
  spec.groups = keys.count_or("expert_group_count", 1, RouterSpec::groups_max);
  spec.groups_used =
      keys.count_or("expert_group_used_count", 1, static_cast<std::uint32_t>(spec.groups));
  if (spec.experts % spec.groups != 0) {
    throw keys.error("expert_group_count", fmt::format("is {}, which does not divide {} experts",
                                                       spec.groups, spec.experts));
  }
  if (spec.used > spec.experts / spec.groups * spec.groups_used) {
    throw keys.error("expert_group_used_count",
                     fmt::format("is {}, whose experts are fewer than the {} that a token takes",
                                 spec.groups_used, spec.used));
  }
  const float scale = keys.number_or("expert_weights_scale", 0);
  if (scale != 0) spec.scale = scale;  // some converters write 0 for "not scaled"
  return spec;
}

void choose_experts(const kernels::VectorOps& ops, const RouterSpec& spec, float* logits,
                    const float* bias, Choice* scratch, Choice* out) {
  float* const scores = logits;
  if (spec.scores == RouterScores::softmax) {
    ops.softmax(scores, spec.experts);
  } else {
    ops.sigmoid(scores, spec.experts);
  }
  Best best({scratch, spec.used});
  if (spec.groups == 1) {
    for (std::size_t i = 0; i < spec.experts; ++i) {
      best.offer(i, score_for_choice(scores, bias, i));
    }
  } else {
    const auto open = choose_groups(spec, scores, bias);
    const std::size_t size = spec.experts / spec.groups;
    for (std::size_t i = 0; i < spec.experts; ++i) {
      if (open[i / size]) best.offer(i, score_for_choice(scores, bias, i));
    }
  }
  float sum = 0;
  for (std::size_t i = 0; i < spec.used; ++i) {
    out[i] = {scratch[i].expert, scores[scratch[i].expert]};
    sum += out[i].weight;
  }
  // All scores of a sigmoid may be 0; then the weights are 0 too.
  const float least = std::numeric_limits<float>::min();
  const float factor = spec.divides_by_sum ? spec.scale / std::max(sum, least) : spec.scale;
  for (std::size_t i = 0; i < spec.used; ++i) out[i].weight *= factor;
}

Router::Router(const LayerTensors& tensors, const RouterSpec& spec)
    : spec_(spec),
      weights_(tensors.matrix("ffn_gate_inp.weight", spec.embedding, spec.experts)),
      bias_(tensors.optional_vector("ffn_gate_inp.bias", {spec.experts})),
      choice_bias_(tensors.optional_vector("exp_probs_b.bias", {spec.experts})) {}

Router::Buffers Router::place(Arena& arena, const BufferShape& shape) const {
  Buffers out;
  out.logits = arena.floats(shape.columns * spec_.experts);
  out.choices = arena.take<Choice>(shape.columns * spec_.used);
  out.scratch = arena.take<Choice>(shape.threads * spec_.experts);
  return out;
}

void Router::run(Pass& pass, const float* in) {
  const std::size_t columns = pass.columns.size();
  Compute& compute = pass.compute;
  compute.multiply(in, spec_.embedding, spec_.embedding, columns,
                   std::array{Product{&weights_, buffers_.logits, spec_.experts, bias_}});
  compute.for_each(columns, [&](std::size_t member, std::size_t begin, std::size_t end) {
    for (std::size_t c = begin; c < end; ++c) {
      choose_experts(compute.ops(), spec_, buffers_.logits + c * spec_.experts,
                     choice_bias_.empty() ? nullptr : choice_bias_.data(),
                     buffers_.scratch + member * spec_.experts, buffers_.choices + c * spec_.used);
    }
  });
  if (compute.expert_chooser()) replace_choices(compute.expert_chooser(), columns);
}

void Router::replace_choices(const ExpertChooser& chooser, std::size_t columns) {
  std::vector<std::uint32_t> chosen(spec_.used);
  for (std::size_t c = 0; c < columns; ++c) {
    chooser(spec_.experts, chosen);
    for (std::size_t i = 0; i < spec_.used; ++i) {
      buffers_.choices[c * spec_.used + i].expert = chosen[i];
    }
  }
}

}  // namespace sluice::model
