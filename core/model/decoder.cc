#include "core/model/decoder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fmt/format.h>
#include <utility>

#include "base/check.h"

namespace sluice::model {

Decoder::Decoder(const HyperParameters& hp, WeightLayout& layout, const DecoderOptions& options)
    : hp_(hp), layout_(layout), options_(options) {
  layout_.table("token_embd.weight", hp_.embedding, hp_.vocabulary);
}

const RotaryTable* Decoder::add_rope(const RotarySpec& spec) {
  return &ropes_.emplace_back(spec);
}

std::size_t Decoder::add_cache_layer(const kvcache::LayerShape& shape) {
  cache_layers_.push_back(shape);
  return cache_layers_.size() - 1;
}

void Decoder::begin_predictor() {
  predictor_begin_ = residuals_.size();
  predictor_turn_ = layout_.segments().size();
  predictor_.emplace(hp_, layout_);
}

void Decoder::finish() {
  read_embedding_tensors();
  if (options_.final_norm != nullptr) output_norm_ = read_norm(layout_, hp_, options_.final_norm);
  if (hp_.predictors != 0 && !predictor_) {
    throw UsageError(
        fmt::format("{}: the block that predicts further tokens (mtp) is not supported for "
                    "architecture {}: give --speculate auto or suffix",
                    layout_.model().metadata().source(), hp_.architecture));
  }
  if (predictor_) {
    base::check(!predicting_layer().empty() && predicting_layer().front().beside == nullptr,
                "a predictor does not begin with what writes its keys");
    predictor_->declare_head(output_norm_);
  }
  if (has_head()) {
    // Models with a tied head use the token embedding for both.
    head_ = layout_.matrix(layout_.has("output.weight") ? "output.weight" : "token_embd.weight",
                           hp_.embedding, hp_.vocabulary);
    head_bias_ = layout_.optional_vector("output.bias", {hp_.vocabulary});
  }
  text_head_ = TextHead(layout_, hp_, options_.text_head);
  layout_.check_all_declared(hp_.blocks(), hp_.predicting - hp_.predictors);
}

void Decoder::read_embedding_tensors() {
  if (options_.embedding_norm == nullptr) return;
  embedding_norm_ = read_norm(layout_, hp_, options_.embedding_norm);
  // Every text is of the first type.
  const char* const types = "token_types.weight";
  if (const gguf::TensorInfo* tensor = layout_.model().find_tensor(types)) {
    token_type_ = layout_.vector(types, {hp_.embedding, tensor->dims[1]}).first(hp_.embedding);
  }
  if (options_.has_position_table) {
    positions_ = layout_.vector("position_embd.weight", {hp_.embedding, hp_.context});
  }
}

// Calls f(block) for all blocks of the layers.
template <typename F>
void Decoder::for_each_block(F&& f) const {
  for (const Residual& residual : residuals_) {
    f(*residual.block);
    if (residual.beside) f(*residual.beside);
  }
}

std::uint32_t Decoder::short_tokens_max() const {
  std::uint32_t most = kvcache::unlimited;
  for (const RotaryTable& rope : ropes_) {
    if (rope.spec().long_factors.empty()) continue;
    most = std::min(most, rope.spec().parameters.original_context);
  }
  return most;
}

bool Decoder::takes_drafts() const {
  const auto states = std::ranges::count_if(
      cache_layers_, [](const kvcache::LayerShape& layer) { return layer.state_floats != 0; });
  std::ptrdiff_t replayed = 0;
  for_each_block([&](const Block& block) { replayed += block.fed_floats() != 0 ? 1 : 0; });
  return states == replayed;
}

std::size_t Decoder::size_max() const {
  std::size_t most = prologue_ ? prologue_->size_max() : hp_.embedding;
  if (predictor_) most = std::max(most, predictor_->size_max());
  for_each_block([&](const Block& block) { most = std::max(most, block.size_max()); });
  return most;
}

Decoder::Buffers Decoder::place(Arena& arena, const BufferShape& shape) const {
  Buffers out;
  out.normed = arena.floats(shape.columns * hp_.embedding);
  const bool has_pairs = std::ranges::any_of(
      residuals_, [](const Residual& residual) { return residual.beside != nullptr; });
  if (has_pairs) out.beside = arena.floats(shape.columns * hp_.embedding);
  const bool keeps = std::ranges::any_of(residuals_, &Residual::keeps_input);
  if (keeps) out.kept = arena.floats(shape.columns * hp_.embedding);
  if (predictor_) out.hidden = arena.floats(shape.columns * hp_.embedding);
  return out;
}

std::size_t Decoder::buffer_bytes(const BufferShape& shape) const {
  Arena lasting;  // for the whole step; the blocks' own buffers share memory
  place(lasting, shape);
  for (const RotaryTable& rope : ropes_) rope.measure(lasting, shape);
  if (prologue_) prologue_->measure(lasting, shape);
  for_each_block(
      [&](const Block& block) { lasting.floats(shape.kept_columns * block.fed_floats()); });
  std::size_t most = 0;
  const auto measure = [&](const auto& block) {
    Arena own;
    block.measure(own, shape);
    most = std::max(most, own.bytes());
  };
  for_each_block(measure);
  if (predictor_) measure(*predictor_);
  return lasting.bytes() + most;
}

void Decoder::allocate(const BufferShape& shape) {
  memory_ = topology::AlignedBytes(buffer_bytes(shape));
  const std::span memory(memory_.data(), memory_.size());
  Arena lasting(memory);
  buffers_ = place(lasting, shape);
  for (RotaryTable& rope : ropes_) rope.bind(lasting, shape);
  if (prologue_) prologue_->bind(lasting, shape);
  for_each_block([&](Block& block) {
    block.keep_in(lasting.floats(shape.kept_columns * block.fed_floats()));
  });
  const auto bind = [&](auto& block) {
    Arena own(memory.subspan(lasting.bytes()));
    block.bind(own, shape);
  };
  for_each_block(bind);
  if (predictor_) bind(*predictor_);
  stretches_.reserve(shape.columns);
}

void Decoder::run_layers(Compute& compute, const Step& step) {
  find_stretches(step.columns);
  for (RotaryTable& rope : ropes_) rope.fill(step.columns, step.cache);
  if (options_.embedding_scale != 1) {
    for_each_row(compute, step.columns.size(), hp_.embedding, [&](std::size_t at, std::size_t n) {
      compute.ops().scale(step.x + at, n, options_.embedding_scale);
    });
  }
  if (options_.normalises_embeddings) {
    for_each_row(compute, step.columns.size(), hp_.embedding,
                 [&](std::size_t begin, std::size_t n) {
                   for (std::size_t at = begin; at < begin + n; at += hp_.embedding) {
                     float* row = step.x + at;
                     compute.ops().rms_norm(row, nullptr, hp_.norm_epsilon, hp_.embedding, row);
                   }
                 });
  }
  if (!embedding_norm_.empty()) embed(compute, step);
  Pass pass{compute, step.cache, step.columns, stretches_, step.kept, buffers_.kept};
  if (prologue_) prologue_->run(pass, step.x, nullptr);
  for (const Residual& residual : layers()) run(pass, residual, step.x);
}

// Adds to the embedded tokens what they are besides, and normalises the sum.
void Decoder::embed(Compute& compute, const Step& step) const {
  const std::size_t e = hp_.embedding;
  const kernels::VectorOps& ops = compute.ops();
  compute.for_each(step.columns.size(), [&](std::size_t, std::size_t begin, std::size_t end) {
    for (std::size_t c = begin; c < end; ++c) {
      float* const x = step.x + c * e;
      if (!token_type_.empty()) ops.add(token_type_.data(), e, x);
      if (!positions_.empty()) ops.add(positions_.data() + step.columns[c].position * e, e, x);
      embedding_norm_.apply(ops, x, x);
    }
  });
}

void Decoder::replay(Compute& compute, std::span<const Column> columns,
                     const kvcache::KvCache& cache, std::size_t first) {
  find_stretches(columns);
  Pass pass{compute, cache, columns, stretches_, {}, nullptr};
  for_each_block([&](Block& block) { block.replay(pass, first); });
}

void Decoder::add(Residual residual) {
  base::check(!residual.beside || !residual.norm.empty(),
              "of two blocks without a norm, the second would see what the first has added");
  residuals_.push_back(std::move(residual));
}

void Decoder::find_stretches(std::span<const Column> columns) {
  stretches_.clear();
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const bool follows = c != 0 && columns[c - 1].sequence == columns[c].sequence &&
                         columns[c - 1].position + 1 == columns[c].position;
    if (follows) {
      ++stretches_.back().count;
    } else {
      stretches_.push_back({c, 1});
    }
  }
}

void Decoder::run(Pass& pass, const Residual& residual, float* x) {
  if (residual.keeps_input) std::copy_n(x, pass.columns.size() * hp_.embedding, buffers_.kept);
  if (residual.replaces_stream) return residual.block->run(pass, x, x);
  const float* in = x;
  if (!residual.norm.empty()) {
    normalise(pass.compute, x, pass.columns.size(), residual.norm, buffers_.normed);
    in = buffers_.normed;
  }
  if (residual.beside) {
    residual.beside->run(pass, in, buffers_.beside);
    add_to_stream(pass, residual, buffers_.beside, x);
  }
  residual.block->run(pass, in, buffers_.normed);
  add_to_stream(pass, residual, buffers_.normed, x);
  const std::size_t columns = pass.columns.size();
  const kernels::VectorOps& ops = pass.compute.ops();
  if (!residual.stream_scale.empty()) {
    for_each_row(pass.compute, columns, hp_.embedding, [&](std::size_t at, std::size_t n) {
      ops.scale(x + at, n, residual.stream_scale.front());
    });
  }
  if (!residual.sum_norm.empty()) normalise(pass.compute, x, columns, residual.sum_norm, x);
  if (residual.second_sum_norm.empty()) return;
  for_each_row(pass.compute, columns, hp_.embedding,
               [&](std::size_t at, std::size_t n) { ops.add(buffers_.kept + at, n, x + at); });
  normalise(pass.compute, x, columns, residual.second_sum_norm, x);
}

// x += scale * post_norm(delta)
void Decoder::add_to_stream(Pass& pass, const Residual& residual, float* delta, float* x) {
  const std::size_t columns = pass.columns.size();
  const kernels::VectorOps& ops = pass.compute.ops();
  if (!residual.post_norm.empty()) {
    normalise(pass.compute, delta, columns, residual.post_norm, delta);
  }
  for_each_row(pass.compute, columns, hp_.embedding, [&](std::size_t at, std::size_t n) {
    if (residual.scale == 1) {
      ops.add(delta + at, n, x + at);
    } else {
      ops.add_scaled(delta + at, residual.scale, n, x + at);
    }
  });
}

void Decoder::normalise(Compute& compute, const float* x, std::size_t columns, const Norm& norm,
                        float* out) const {
  for_each_row(compute, columns, hp_.embedding, [&](std::size_t begin, std::size_t n) {
    for (std::size_t at = begin; at < begin + n; at += hp_.embedding) {
      norm.apply(compute.ops(), x + at, out + at);
    }
  });
}

// Calls f(at, n) for parts of an array [columns][size], on all threads. Parts are whole columns.
template <typename F>
void Decoder::for_each_row(Compute& compute, std::size_t columns, std::size_t size, F&& f) const {
  compute.for_each(columns, [&](std::size_t, std::size_t begin, std::size_t end) {
    f(begin * size, (end - begin) * size);
  });
}

const float* Decoder::run_output_norm(Compute& compute, const float* x, std::size_t columns) const {
  if (output_norm_.empty()) {  // x changes with run_head()
    std::memcpy(buffers_.normed, x, columns * hp_.embedding * sizeof(float));
    return buffers_.normed;
  }
  normalise(compute, x, columns, output_norm_, buffers_.normed);
  return buffers_.normed;
}

void Decoder::run_head(Compute& compute, float* x, std::size_t columns, float* logits) {
  if (!output_norm_.empty()) normalise(compute, x, columns, output_norm_, x);
  run_head_on_hidden(compute, x, columns, logits);
}

void Decoder::run_head_on_hidden(Compute& compute, const float* hidden, std::size_t columns,
                                 float* logits) const {
  multiply_head(compute, head_, head_bias_, hidden, columns, logits);
}

void Decoder::multiply_head(Compute& compute, const Matrix& head, Vector bias, const float* hidden,
                            std::size_t columns, float* logits) const {
  compute.multiply(hidden, hp_.embedding, hp_.embedding, columns,
                   std::array{Product{&head, logits, hp_.vocabulary, bias}});
  if (options_.logit_scale == 1 && options_.logit_softcap == 0) return;
  for_each_row(compute, columns, hp_.vocabulary, [&](std::size_t at, std::size_t n) {
    if (options_.logit_scale != 1) compute.ops().scale(logits + at, n, options_.logit_scale);
    if (options_.logit_softcap != 0) {
      compute.ops().softcap(logits + at, n, options_.logit_softcap);
    }
  });
}

const float* Decoder::keep_hidden(Compute& compute, const float* x, std::size_t columns) {
  normalise(compute, x, columns, output_norm_, buffers_.hidden);
  return buffers_.hidden;
}

void Decoder::store_predicted(Compute& compute, const Step& step,
                              const Predictor::StateBefore& state_before) {
  const std::size_t columns = step.columns.size(), e = hp_.embedding;
  std::vector<bool> begins(columns);
  for (const Stretch& stretch : stretches_) begins[stretch.first] = true;
  predictor_->combine(compute, step.x, columns, [&](std::size_t c) -> const float* {
    return begins[c] ? state_before(c) : buffers_.hidden + (c - 1) * e;
  });
  Pass pass{compute, step.cache, step.columns, stretches_, {}, buffers_.kept};
  const Residual& first = predicting_layer().front();
  normalise(compute, step.x, columns, first.norm, buffers_.normed);
  first.block->store(pass, buffers_.normed);
  // None of its experts: the tape would wait to hear of them.
  const std::vector<streaming::ExpertGroup>& groups = layout_.expert_groups();
  for (std::size_t group = 0; group < groups.size(); ++group) {
    if (groups[group].first_turn >= predictor_turn_) compute.expect_experts(group, {}, 0);
  }
}

void Decoder::predict(Compute& compute, const Step& step, const float* state, float* logits) {
  find_stretches(step.columns);
  for (RotaryTable& rope : ropes_) rope.fill(step.columns, step.cache);
  predictor_->combine(compute, step.x, 1, [&](std::size_t) { return state; });
  Pass pass{compute, step.cache, step.columns, stretches_, {}, buffers_.kept};
  for (const Residual& residual : predicting_layer()) run(pass, residual, step.x);
  normalise(compute, step.x, 1, predictor_->norm(), step.x);
  const Matrix* const own = predictor_->head();
  multiply_head(compute, own != nullptr ? *own : head_, own != nullptr ? Vector{} : head_bias_,
                step.x, 1, logits);
}

}  // namespace sluice::model
