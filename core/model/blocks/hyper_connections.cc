#include "core/model/blocks/hyper_connections.h"

#include <array>
#include <span>

#include "core/model/blocks/recurrent_parts.h"

namespace sluice::model {

void HyperStreams::measure(Arena& arena, const BufferShape& shape) const {
  if (rows_) rows_->measure(arena, shape);
  arena.floats(shape.columns * (spec_.count - 1) * spec_.embedding);
}

void HyperStreams::bind(Arena& arena, const BufferShape& shape) {
  if (rows_) rows_->bind(arena, shape);
  others_ = arena.floats(shape.columns * (spec_.count - 1) * spec_.embedding);
}

void HyperStreams::run(Pass& pass, const float* in, float*) {
  if (rows_) rows_->find(pass);
  for_each_column(pass, [&](std::size_t column) {
    for (std::size_t c = 1; c < spec_.count; ++c) {
      std::copy_n(in + column * spec_.embedding, spec_.embedding, other(column, c));
    }
  });
}

HyperMix::Buffers HyperMix::place(Arena& arena, const BufferShape& shape) const {
  const HyperSpec& spec = streams_.spec();
  Buffers out;
  out.normed = arena.floats(shape.columns * spec.wide());
  out.narrow = arena.floats(shape.columns * spec.rank);
  out.squashed = arena.floats(shape.columns * spec.rank);
  out.gates = arena.floats(shape.columns * spec.wide());
  out.weights = arena.floats(shape.columns * spec.count);
  return out;
}

void HyperMix::run(Pass& pass, const float* first, float* h) {
  const HyperSpec& spec = streams_.spec();
  const kernels::VectorOps& ops = pass.compute.ops();
  const std::size_t e = spec.embedding, wide = spec.wide(), columns = pass.columns.size();
  const float share = 1 / static_cast<float>(spec.count);
  const Buffers& b = buffers_;
  for_each_column(pass, [&](std::size_t column) {
    for (std::size_t c = 0; c < spec.count; ++c) {
      ops.rms_norm(streams_.stream(first, column, c), norm_.data() + c * e, spec.norm_epsilon, e,
                   b.normed + column * wide + c * e);
    }
  });
  const std::array products = {Product{&down_, b.narrow, spec.rank},
                               Product{&inject_, b.weights, spec.count}};
  pass.compute.multiply(b.normed, wide, wide, columns,
                        std::span(products).first(inject_.rows == 0 ? 1 : 2));
  for_each_column(pass, [&](std::size_t column) {
    float* const narrow = b.narrow + column * spec.rank;
    float* const squashed = b.squashed + column * spec.rank;
    ops.scale(narrow, spec.rank, share);
    std::copy_n(narrow, spec.rank, squashed);
    ops.multiply_by_sigmoid(narrow, spec.rank, squashed);
    if (inject_.rows == 0) return;
    float* const weights = b.weights + column * spec.count;
    ops.scale(weights, spec.count, share);
    ops.sigmoid(weights, spec.count);
    ops.scale(weights, spec.count, 2);
  });
  pass.compute.multiply(b.squashed, spec.rank, spec.rank, columns,
                        std::array{Product{&up_, b.gates, wide}});
  for_each_column(pass, [&](std::size_t column) {
    float* const normed = b.normed + column * wide;
    ops.multiply_by_sigmoid(b.gates + column * wide, wide, normed);
    for (std::size_t c = 1; c < spec.count; ++c) ops.add(normed + c * e, e, normed);
    ops.scale(normed, e, share);
    std::copy_n(normed, e, h + column * e);
  });
}

std::size_t HyperPart::size_max() const {
  const std::size_t most = std::max(mix_.size_max(), part_.block->size_max());
  return part_.beside ? std::max(most, part_.beside->size_max()) : most;
}

void HyperPart::measure(Arena& arena, const BufferShape& shape) const {
  mix_.measure(arena, shape);
  const std::size_t floats = shape.columns * mix_.streams().spec().embedding;
  arena.floats(floats);
  if (part_.beside) {
    arena.floats(floats);
    part_.beside->measure(arena, shape);
  }
  part_.block->measure(arena, shape);
}

void HyperPart::bind(Arena& arena, const BufferShape& shape) {
  mix_.bind(arena, shape);
  const std::size_t floats = shape.columns * mix_.streams().spec().embedding;
  h_ = arena.floats(floats);
  if (part_.beside) {
    beside_ = arena.floats(floats);
    part_.beside->bind(arena, shape);
  }
  part_.block->bind(arena, shape);
}

void HyperPart::run(Pass& pass, const float* in, float* out) {
  const HyperStreams& streams = mix_.streams();
  const std::size_t e = streams.spec().embedding;
  const kernels::VectorOps& ops = pass.compute.ops();
  mix_.run(pass, in, h_);
  if (part_.beside) part_.beside->run(pass, h_, beside_);
  part_.block->run(pass, h_, out);
  for_each_column(pass, [&](std::size_t column) {
    float* const added = out + column * e;
    const float* const weights = mix_.weights(column);
    if (part_.beside) ops.add(beside_ + column * e, e, added);
    for (std::size_t c = 1; c < streams.spec().count; ++c) {
      ops.add_scaled(added, weights[c], e, streams.other(column, c));
    }
    ops.scale(added, e, weights[0]);
  });
}

}  // namespace sluice::model
