// The cosines and sines of one kind of rotation for the tokens of a step. Layers that rotate alike
// share a table. It is filled once a step.
//
// A token looks at the sinks of a window from another position than its own (kvcache/kv_cache.h),
// so there is a second table for them where the cache needs it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "core/model/arena.h"
#include "core/model/rope.h"
#include "core/model/step.h"
#include "core/model/weights.h"

namespace sluice::model {

// Which elements of a head make pair i: (2i, 2i + 1), or (i, i + pairs).
enum class RopePairing { norm, neox };

struct RotarySpec {
  RopeParameters parameters;
  RopePairing pairing = RopePairing::norm;
  // Divisors of the frequencies, one per pair, or empty. `long_factors` replace them in texts of
  // more tokens than parameters.original_context (LongRoPE, Ding et al. 2024): for all positions,
  // so keys of a text that grows beyond it are made anew (engine/cached_text.h).
  Vector factors = {};
  Vector long_factors = {};
};

class RotaryTable {
 public:
  explicit RotaryTable(const RotarySpec& spec) : spec_(spec) {}

  const RotarySpec& spec() const { return spec_; }

  // The first counts the memory of the table, the second takes it. The tensors of the spec must be
  // loaded before the second.
  void measure(Arena& arena, const BufferShape& shape) const { place(arena, shape); }
  void bind(Arena& arena, const BufferShape& shape);

  // Computes the angles of all columns of a step, each as its sequence is short or long.
  void fill(std::span<const Column> columns, const kvcache::KvCache& cache);

  // Rotates `heads` heads of `dim` elements in place, for the token's own position or for the
  // position from which it looks at the sinks.
  void rotate(const kernels::VectorOps& ops, float* data, std::size_t heads, std::size_t dim,
              std::size_t column) const;
  void rotate_for_sinks(const kernels::VectorOps& ops, float* data, std::size_t heads,
                        std::size_t dim, std::size_t column) const;

 private:
  struct Angles {  // [columns][pairs] each
    float* cosines = nullptr;
    float* sines = nullptr;
  };
  struct Buffers {
    Angles own, sinks;
  };

  Buffers place(Arena& arena, const BufferShape& shape) const;
  std::size_t pairs() const { return spec_.parameters.dimensions / 2; }
  void rotate(const kernels::VectorOps& ops, const Angles& angles, float* data, std::size_t heads,
              std::size_t dim, std::size_t column) const;

  RotarySpec spec_;
  std::optional<Rope> short_rope_, long_rope_;  // both are there, and often alike
  Buffers buffers_;
};

}  // namespace sluice::model
