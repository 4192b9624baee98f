#include "core/model/blocks/altup.h"

#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "core/model/blocks/recurrent_parts.h"

namespace sluice::model {
namespace {

// Rows of all streams but the first, in a tensor that stacks their matrices.
std::vector<Matrix> declare_projections(WeightLayout& layout, const char* name,
                                        std::size_t embedding, std::size_t count) {
  std::vector<Matrix> out;
  for (std::size_t i = 0; i + 1 < count; ++i) {
    out.push_back(
        layout.part_of_matrix(name, {embedding, embedding, count - 1}, i * embedding, embedding));
  }
  return out;
}

double length(const float* x, std::size_t size) {
  double squares = 0;
  for (std::size_t i = 0; i < size; ++i) squares += static_cast<double>(x[i]) * x[i];
  return std::sqrt(squares);
}

// Makes `x` as long as `other`. What has no length stays as it is.
void match_length(const kernels::VectorOps& ops, const float* other, std::size_t size, float* x) {
  const double own = length(x, size);
  if (own > 0) ops.scale(x, size, static_cast<float>(length(other, size) / own));
}

}  // namespace

Streams::Streams(WeightLayout& layout, const PerLayerInputsSpec& spec, std::size_t count)
    : count_(count),
      inputs_(layout, spec),
      projections_(declare_projections(layout, "altup_proj.weight", spec.embedding, count)) {}

void Streams::measure(Arena& arena, const BufferShape& shape) const {
  inputs_.measure(arena, shape);
  arena.floats(shape.columns * count_ * embedding());
}

void Streams::bind(Arena& arena, const BufferShape& shape) {
  inputs_.bind(arena, shape);
  streams_ = arena.floats(shape.columns * count_ * embedding());
}

void Streams::run(Pass& pass, const float* in, float* out) {
  const std::size_t e = embedding();
  inputs_.run(pass, in, out);
  std::array<Product, count_max> products;
  for (std::size_t i = 0; i < projections_.size(); ++i) {
    products[i] = {&projections_[i], stream(0, i + 1), count_ * e};
  }
  pass.compute.multiply(in, e, e, pass.columns.size(),
                        std::span(products).first(projections_.size()));
  for_each_column(pass, [&](std::size_t c) {
    for (std::size_t a = 1; a < count_; ++a) {
      match_length(pass.compute.ops(), in + c * e, e, stream(c, a));
    }
  });
}

StreamRouter::StreamRouter(const LayerTensors& tensors, const Streams& streams, float norm_epsilon)
    : embedding_(streams.embedding()),
      count_(streams.count()),
      norm_epsilon_(norm_epsilon),
      norm_(tensors.vector("altup_router_norm.weight", {embedding_})),
      router_(tensors.matrix("altup_router.weight", embedding_, count_)) {}

StreamRouter::Buffers StreamRouter::place(Arena& arena, const BufferShape& shape) const {
  Buffers out;
  out.normed = arena.floats(shape.columns * embedding_);
  out.numbers = arena.floats(shape.columns * count_);
  return out;
}

void StreamRouter::run(Pass& pass, const float* x) {
  const kernels::VectorOps& ops = pass.compute.ops();
  const std::size_t e = embedding_;
  for_each_column(pass, [&](std::size_t c) {
    float* const normed = buffers_.normed + c * e;
    ops.rms_norm(x + c * e, norm_.data(), norm_epsilon_, e, normed);
    ops.scale(normed, e, 1 / static_cast<float>(e));
  });
  pass.compute.multiply(buffers_.normed, e, e, pass.columns.size(),
                        std::array{Product{&router_, buffers_.numbers, count_}});
  for_each_column(pass, [&](std::size_t c) {
    ops.softcap(buffers_.numbers + c * count_, count_, 1);  // tanh
  });
}

StreamPrediction::StreamPrediction(const LayerTensors& tensors, const Streams& streams,
                                   float norm_epsilon)
    : streams_(streams),
      router_(tensors, streams, norm_epsilon),
      coefficients_(tensors.vector("altup_predict_coef.weight",
                                   {streams.count(), streams.count() * streams.count()})) {}

void StreamPrediction::run(Pass& pass, const float* in, float* out) {
  router_.run(pass, in);
  for_each_column(pass, [&](std::size_t c) { predict_column(pass.compute.ops(), c, in, out); });
}

void StreamPrediction::predict_column(const kernels::VectorOps& ops, std::size_t c, const float* in,
                                      float* out) const {
  constexpr std::size_t part_max = 256;  // features at a time
  const std::size_t e = streams_.embedding(), count = streams_.count();
  const float* const numbers = router_.numbers(c);
  std::array<float, Streams::count_max * Streams::count_max> factors{};  // [to][from]
  for (std::size_t i = 0; i < count * count; ++i) {
    for (std::size_t a = 0; a < count; ++a) factors[i] += coefficients_[i * count + a] * numbers[a];
  }
  for (std::size_t first = 0; first < e; first += part_max) {
    const std::size_t size = std::min(part_max, e - first);
    float before[Streams::count_max][part_max];
    for (std::size_t a = 0; a < count; ++a) {
      std::copy_n(a == 0 ? in + c * e + first : streams_.stream(c, a) + first, size, before[a]);
    }
    for (std::size_t to = 0; to < count; ++to) {
      float* const stream = streams_.stream(c, to) + first;
      float change[part_max] = {};
      for (std::size_t a = 0; a < count; ++a) {
        ops.add_scaled(before[a], factors[to * count + a], size, change);
      }
      std::copy_n(before[to], size, stream);
      ops.add(change, size, stream);
      if (to == 0) std::copy_n(change, size, out + c * e + first);
    }
  }
}

StreamCorrection::StreamCorrection(const LayerTensors& tensors, const Streams& streams,
                                   std::size_t layer, float norm_epsilon)
    : streams_(streams),
      norm_epsilon_(norm_epsilon),
      router_(tensors, streams, norm_epsilon),
      coefficients_(
          tensors.vector("altup_correct_coef.weight", {streams.count(), streams.count()})),
      scale_(tensors.vector("altup_correct_scale.weight", {streams.embedding()})),
      input_(tensors, streams.inputs(), layer),
      post_norm_(tensors.vector("post_norm.weight", {streams.embedding()})) {}

void StreamCorrection::measure(Arena& arena, const BufferShape& shape) const {
  router_.measure(arena, shape);
  input_.measure(arena, shape);
  arena.floats(shape.columns * streams_.embedding());
}

void StreamCorrection::bind(Arena& arena, const BufferShape& shape) {
  router_.bind(arena, shape);
  input_.bind(arena, shape);
  added_ = arena.floats(shape.columns * streams_.embedding());
}

void StreamCorrection::run(Pass& pass, const float* in, float* out) {
  const kernels::VectorOps& ops = pass.compute.ops();
  const std::size_t e = streams_.embedding();
  router_.run(pass, in);
  for_each_column(pass, [&](std::size_t c) { correct_column(ops, c, in, out); });
  input_.run(pass, added_, added_);
  for_each_column(pass, [&](std::size_t c) {
    float* const added = added_ + c * e;
    ops.rms_norm(added, post_norm_.data(), norm_epsilon_, e, added);
    for (std::size_t a = 1; a < streams_.count(); ++a) ops.add(added, e, streams_.stream(c, a));
  });
}

// Once nothing needs p_0 any more, y - p_0 takes its place.
void StreamCorrection::correct_column(const kernels::VectorOps& ops, std::size_t c, const float* in,
                                      float* out) const {
  const std::size_t e = streams_.embedding(), count = streams_.count();
  const float* const numbers = router_.numbers(c);
  const float* const y = in + c * e;
  float* const predicted = streams_.stream(c, 0);
  float* const added = added_ + c * e;
  float* const change = out + c * e;
  for (std::size_t i = 0; i < e; ++i) predicted[i] = y[i] - predicted[i];
  std::copy_n(y, e, added);
  for (std::size_t b = 0; b < count; ++b) {
    float factor = 0;  // c_b - 1
    for (std::size_t a = 0; a < count; ++a) factor += coefficients_[b * count + a] * numbers[a];
    if (b == 0) {
      ops.add_scaled(predicted, factor, e, added);
      std::copy_n(predicted, e, change);
      ops.scale(change, e, factor);
    } else {
      ops.add_scaled(predicted, factor + 1, e, streams_.stream(c, b));
    }
  }
  ops.multiply(scale_.data(), e, added);
}

StreamSum::StreamSum(WeightLayout& layout, const Streams& streams)
    : streams_(streams),
      projections_(declare_projections(layout, "altup_unembd_proj.weight", streams.embedding(),
                                       streams.count())) {}

void StreamSum::measure(Arena& arena, const BufferShape& shape) const {
  arena.floats(shape.columns * streams_.embedding());
}

void StreamSum::bind(Arena& arena, const BufferShape& shape) {
  projected_ = arena.floats(shape.columns * streams_.embedding());
}

void StreamSum::run(Pass& pass, const float* in, float* out) {
  const kernels::VectorOps& ops = pass.compute.ops();
  const std::size_t e = streams_.embedding(), columns = pass.columns.size();
  for (std::size_t i = 0; i < projections_.size(); ++i) {
    pass.compute.multiply(streams_.stream(0, i + 1), streams_.count() * e, e, columns,
                          std::array{Product{&projections_[i], projected_, e}});
    for_each_column(pass, [&](std::size_t c) {
      float* const projected = projected_ + c * e;
      match_length(ops, in + c * e, e, projected);
      if (i == 0) {
        std::copy_n(projected, e, out + c * e);
      } else {
        ops.add(projected, e, out + c * e);
      }
    });
  }
}

AttentionAndSidePath::AttentionAndSidePath(const LayerTensors& tensors, std::size_t embedding,
                                           float norm_epsilon, std::unique_ptr<Block> attention)
    : embedding_(embedding),
      norm_epsilon_(norm_epsilon),
      attention_(std::move(attention)),
      norm_(tensors.vector("attn_norm.weight", {embedding})),
      post_attention_norm_(tensors.vector("post_attention_norm.weight", {embedding})),
      side_norm_(tensors.vector("laurel_post_norm.weight", {embedding})) {
  // No key says the rank.
  const std::size_t rank = std::max<std::size_t>(1, tensors.rows("laurel_l.weight"));
  if (rank > width_max) throw tensors.error("laurel_l.weight", "has too many rows");
  left_ = tensors.matrix("laurel_l.weight", embedding, rank);
  right_ = tensors.matrix("laurel_r.weight", rank, embedding);
}

AttentionAndSidePath::Buffers AttentionAndSidePath::place(Arena& arena,
                                                          const BufferShape& shape) const {
  Buffers out;
  out.normed = arena.floats(shape.columns * embedding_);
  out.side = arena.floats(shape.columns * embedding_);
  out.narrow = arena.floats(shape.columns * left_.rows);
  return out;
}

void AttentionAndSidePath::measure(Arena& arena, const BufferShape& shape) const {
  place(arena, shape);
  attention_->measure(arena, shape);
}

void AttentionAndSidePath::bind(Arena& arena, const BufferShape& shape) {
  buffers_ = place(arena, shape);
  attention_->bind(arena, shape);
}

void AttentionAndSidePath::run(Pass& pass, const float* in, float* out) {
  const kernels::VectorOps& ops = pass.compute.ops();
  const std::size_t e = embedding_, rank = left_.rows, columns = pass.columns.size();
  const Buffers& b = buffers_;
  for_each_column(pass, [&](std::size_t c) {
    ops.rms_norm(in + c * e, norm_.data(), norm_epsilon_, e, b.normed + c * e);
  });
  attention_->run(pass, b.normed, out);
  pass.compute.multiply(b.normed, e, e, columns, std::array{Product{&left_, b.narrow, rank}});
  pass.compute.multiply(b.narrow, rank, rank, columns, std::array{Product{&right_, b.side, e}});
  for_each_column(pass, [&](std::size_t c) {
    float* const sum = out + c * e;
    float* const side = b.side + c * e;
    ops.rms_norm(sum, post_attention_norm_.data(), norm_epsilon_, e, sum);
    ops.rms_norm(side, side_norm_.data(), norm_epsilon_, e, side);
    ops.add(side, e, sum);
    ops.add(b.normed + c * e, e, sum);
  });
}

}  // namespace sluice::model
