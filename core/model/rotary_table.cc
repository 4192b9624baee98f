#include "core/model/rotary_table.h"

namespace sluice::model {

RotaryTable::Buffers RotaryTable::place(Arena& arena, const BufferShape& shape) const {
  const auto angles = [&] {
    return Angles{arena.floats(shape.columns * pairs()), arena.floats(shape.columns * pairs())};
  };
  Buffers out;
  out.own = angles();
  if (kvcache::moves_sinks(shape.cache)) out.sinks = angles();
  return out;
}

void RotaryTable::bind(Arena& arena, const BufferShape& shape) {
  buffers_ = place(arena, shape);
  short_rope_.emplace(spec_.parameters, spec_.factors);
  long_rope_.emplace(spec_.parameters,
                     spec_.long_factors.empty() ? spec_.factors : spec_.long_factors);
}

void RotaryTable::fill(std::span<const Column> columns, const kvcache::KvCache& cache) {
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const std::uint32_t position = columns[c].position;
    const Rope& rope = columns[c].sequence->is_long() ? *long_rope_ : *short_rope_;
    const std::size_t at = c * pairs();
    rope.angles(position, buffers_.own.cosines + at, buffers_.own.sines + at);
    if (buffers_.sinks.cosines == nullptr) continue;
    rope.angles(cache.sink_query_position(position), buffers_.sinks.cosines + at,
                buffers_.sinks.sines + at);
  }
}

void RotaryTable::rotate(const kernels::VectorOps& ops, float* data, std::size_t heads,
                         std::size_t dim, std::size_t column) const {
  rotate(ops, buffers_.own, data, heads, dim, column);
}

void RotaryTable::rotate_for_sinks(const kernels::VectorOps& ops, float* data, std::size_t heads,
                                   std::size_t dim, std::size_t column) const {
  rotate(ops, buffers_.sinks, data, heads, dim, column);
}

void RotaryTable::rotate(const kernels::VectorOps& ops, const Angles& angles, float* data,
                         std::size_t heads, std::size_t dim, std::size_t column) const {
  const auto rotate_head = spec_.pairing == RopePairing::norm ? ops.rope_norm : ops.rope_neox;
  const std::size_t at = column * pairs();
  for (std::size_t h = 0; h < heads; ++h) {
    rotate_head(data + h * dim, angles.cosines + at, angles.sines + at, pairs());
  }
}

}  // namespace sluice::model
