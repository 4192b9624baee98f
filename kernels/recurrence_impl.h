// The operations of recurrence.h on the lanes of one tier; included after its lanes_*.h.
//
// Several slices of the state are computed side by side: their sums are independent chains, which
// hides the latency of each, and they share broadcast operands. The number of slices does not
// change the result.
#pragma once

#include <cstddef>

#include "kernels/lanes_math.h"
#include "kernels/recurrence.h"

namespace sluice::kernels {
namespace {

// `slices` slices of the state and of the values.
template <int slices>
struct Part {
  const float* state;  // [slices][key_dim][16], before the position
  float* next_state;   // the same after it
  std::size_t key_dim;
  std::size_t first;       // the first value
  std::size_t last_count;  // values in the last slice, 1..16

  std::size_t count(int s) const { return s + 1 < slices ? lanes : last_count; }
  std::size_t value(int s) const { return first + static_cast<std::size_t>(s) * lanes; }
};

// The rows of one position.
struct Position {
  const float* query;
  const float* key;
  const float* values;
  float* out;
  const float* decays;  // one, or one of each element of the key
  float rate;
};

inline Position position_of(const RecurrenceArgs& args, std::size_t p) {
  const float* decays = args.key_decays != nullptr ? args.key_decays : args.decays;
  return {args.queries + p * args.key_stride,  args.keys + p * args.key_stride,
          args.values + p * args.value_stride, args.out + p * args.out_stride,
          decays + p * args.decay_stride,      args.rates[p * args.rate_stride]};
}

inline float dot(const float* a, const float* b, std::size_t size) {
  F32x16 products = broadcast(0);
  by_sixteen(size, [&](std::size_t i, std::size_t count) {
    products = fma(load(a + i, count), load(b + i, count), products);
  });
  return sum(products);
}

// Calls body(i, s, row, next_row) for the rows of the state, key by key. The bounds are local
// copies: the compiler must assume that storing a row changes anything that has an address.
template <int slices, typename Body>
inline void for_each_row(Part<slices> part, Body body) {
  const std::size_t key_dim = part.key_dim, slice_floats = key_dim * lanes;
  const float* from = part.state;
  float* to = part.next_state;
  for (std::size_t i = 0; i < key_dim; ++i, from += lanes, to += lanes) {
    for (int s = 0; s < slices; ++s) {
      const std::size_t slice = static_cast<std::size_t>(s) * slice_floats;
      body(i, s, from + slice, to + slice);
    }
  }
}

// One pass over the state computes S^T k and S^T q, a second one writes it.
// out = decay S^T q + (k . q) u.
template <int slices>
inline void delta_step(Position at, Part<slices> part) {
  F32x16 by_key[slices], by_query[slices], written[slices];
  for (int s = 0; s < slices; ++s) by_key[s] = by_query[s] = broadcast(0);
  for_each_row(part, [&](std::size_t i, int s, const float* row, float*) {
    const F32x16 held = load(row, lanes);
    by_key[s] = fma(held, broadcast(at.key[i]), by_key[s]);
    by_query[s] = fma(held, broadcast(at.query[i]), by_query[s]);
  });
  const F32x16 decay = broadcast(*at.decays), rate = broadcast(at.rate);
  const F32x16 key_by_query = broadcast(dot(at.key, at.query, part.key_dim));
  for (int s = 0; s < slices; ++s) {
    const F32x16 v = load(at.values + part.value(s), part.count(s));
    written[s] = negated_fma(decay, by_key[s], v) * rate;
    store(fma(key_by_query, written[s], decay * by_query[s]), at.out + part.value(s),
          part.count(s));
  }
  for_each_row(part, [&](std::size_t i, int s, const float* row, float* next_row) {
    store(fma(broadcast(at.key[i]), written[s], decay * load(row, lanes)), next_row, lanes);
  });
}

// The same where each row of the state has a decay of its own: both sums are of decayed rows.
template <int slices>
inline void row_decay_step(Position at, Part<slices> part) {
  F32x16 by_key[slices], by_query[slices], written[slices];
  for (int s = 0; s < slices; ++s) by_key[s] = by_query[s] = broadcast(0);
  for_each_row(part, [&](std::size_t i, int s, const float* row, float*) {
    const F32x16 held = broadcast(at.decays[i]) * load(row, lanes);
    by_key[s] = fma(held, broadcast(at.key[i]), by_key[s]);
    by_query[s] = fma(held, broadcast(at.query[i]), by_query[s]);
  });
  const F32x16 rate = broadcast(at.rate);
  const F32x16 key_by_query = broadcast(dot(at.key, at.query, part.key_dim));
  for (int s = 0; s < slices; ++s) {
    const F32x16 v = load(at.values + part.value(s), part.count(s));
    written[s] = (v - by_key[s]) * rate;
    store(fma(key_by_query, written[s], by_query[s]), at.out + part.value(s), part.count(s));
  }
  for_each_row(part, [&](std::size_t i, int s, const float* row, float* next_row) {
    const F32x16 held = broadcast(at.decays[i]) * load(row, lanes);
    store(fma(broadcast(at.key[i]), written[s], held), next_row, lanes);
  });
}

template <int slices>
inline void scan_step(Position at, Part<slices> part, float skip) {
  const F32x16 decay = broadcast(*at.decays), rate = broadcast(at.rate);
  F32x16 values[slices], written[slices], by_query[slices];
  for (int s = 0; s < slices; ++s) {
    values[s] = load(at.values + part.value(s), part.count(s));
    written[s] = rate * values[s];
    by_query[s] = broadcast(0);
  }
  for_each_row(part, [&](std::size_t i, int s, const float* row, float* next_row) {
    const F32x16 held = fma(broadcast(at.key[i]), written[s], decay * load(row, lanes));
    by_query[s] = fma(held, broadcast(at.query[i]), by_query[s]);
    store(held, next_row, lanes);
  });
  for (int s = 0; s < slices; ++s) {
    store(fma(broadcast(skip), values[s], by_query[s]), at.out + part.value(s), part.count(s));
  }
}

// One pass over the state computes S^T r, a second one writes the state and computes S^T q.
template <int slices>
inline void removal_step(const RecurrenceArgs& args, std::size_t p, Part<slices> part) {
  const std::size_t row_of_keys = p * args.key_stride;
  const float* query = args.queries + row_of_keys;
  const float* key = args.keys + row_of_keys;
  const float* removed = args.removed_keys + row_of_keys;
  const float* removal_rates = args.removal_rates + row_of_keys;
  const float* decays = args.key_decays + p * args.decay_stride;
  F32x16 by_removed[slices], by_query[slices], values[slices];
  for (int s = 0; s < slices; ++s) {
    values[s] = load(args.values + p * args.value_stride + part.value(s), part.count(s));
    by_removed[s] = by_query[s] = broadcast(0);
  }
  for_each_row(part, [&](std::size_t i, int s, const float* row, float*) {
    by_removed[s] = fma(load(row, lanes), broadcast(removed[i]), by_removed[s]);
  });
  for_each_row(part, [&](std::size_t i, int s, const float* row, float* next_row) {
    const F32x16 decayed = broadcast(decays[i]) * load(row, lanes);
    const F32x16 kept =
        negated_fma(broadcast(removed[i] * removal_rates[i]), by_removed[s], decayed);
    const F32x16 held = fma(broadcast(key[i]), values[s], kept);
    by_query[s] = fma(held, broadcast(query[i]), by_query[s]);
    store(held, next_row, lanes);
  });
  for (int s = 0; s < slices; ++s) {
    store(by_query[s], args.out + p * args.out_stride + part.value(s), part.count(s));
  }
}

enum class Step { delta, row_decay, scan, removal };

// From value `first` on, takes `slices` slices at a time through all positions, as long as so many
// are left. Returns the value after them.
template <int slices, Step step>
inline std::size_t run_slices(const RecurrenceArgs& args, std::size_t first) {
  constexpr std::size_t width = static_cast<std::size_t>(slices) * lanes;
  for (; first + width < args.value_dim + lanes; first += width) {
    const std::size_t rest = args.value_dim - first;
    const std::size_t last_count = rest < width ? rest - (width - lanes) : lanes;
    const std::size_t offset = first * args.key_dim;
    Part<slices> part = {args.state + offset, args.next_state + offset, args.key_dim, first,
                         last_count};
    for (std::size_t p = 0; p < args.positions; ++p) {
      if constexpr (step == Step::delta) {
        delta_step(position_of(args, p), part);
      } else if constexpr (step == Step::row_decay) {
        row_decay_step(position_of(args, p), part);
      } else if constexpr (step == Step::removal) {
        removal_step(args, p, part);
      } else {
        scan_step(position_of(args, p), part, args.skip);
      }
      part.state = part.next_state;
    }
  }
  return first;
}

template <Step step>
inline void recur(const RecurrenceArgs& args) {
  // Two sums of each slice must fit into registers, and the slices into the first-level cache.
  constexpr int slices_max = accumulators_max >= 8 ? 4 : 2;
  constexpr std::size_t key_dim_max = 128;  // 32 KiB for four slices
  std::size_t first = 0;
  if (args.key_dim <= key_dim_max) first = run_slices<slices_max, step>(args, first);
  first = run_slices<2, step>(args, first);
  run_slices<1, step>(args, first);
}

inline void delta_rule(const RecurrenceArgs& args) {
  if (args.key_decays != nullptr) return recur<Step::row_decay>(args);
  recur<Step::delta>(args);
}

// Values [first, first + count), at most a slice, through all positions.
inline void scan_channels(const RecurrenceArgs& args, std::size_t first, std::size_t count) {
  const std::size_t key_dim = args.key_dim;
  float logs[channel_scan_key_max * lanes];  // [key_dim][16], as the state
  for (std::size_t i = 0; i < key_dim; ++i) {
    for (std::size_t j = 0; j < lanes; ++j) {
      logs[i * lanes + j] = j < count ? args.logs[(first + j) * key_dim + i] : 0;
    }
  }
  const float* state = args.state + first * key_dim;
  float* const next_state = args.next_state + first * key_dim;
  const F32x16 skips = load(args.skips + first, count);
  for (std::size_t p = 0; p < args.positions; ++p, state = next_state) {
    const float* key = args.keys + p * args.key_stride;
    const float* query = args.queries + p * args.key_stride;
    const F32x16 values = load(args.values + p * args.value_stride + first, count);
    const F32x16 rates = load(args.rates + p * args.rate_stride + first, count);
    const F32x16 written = rates * values;
    F32x16 by_query = broadcast(0);
    for (std::size_t i = 0; i < key_dim; ++i) {
      const F32x16 decays = exp(rates * load(logs + i * lanes, lanes));
      const F32x16 held = fma(broadcast(key[i]), written, decays * load(state + i * lanes, lanes));
      by_query = fma(held, broadcast(query[i]), by_query);
      store(held, next_state + i * lanes, lanes);
    }
    store(fma(skips, values, by_query), args.out + p * args.out_stride + first, count);
  }
}

inline void channel_scan(const RecurrenceArgs& args) {
  by_sixteen(args.value_dim,
             [&](std::size_t first, std::size_t count) { scan_channels(args, first, count); });
}

inline void fill(RecurrenceKernels& table) {
  table.delta_rule = delta_rule;
  table.state_scan = recur<Step::scan>;
  table.channel_scan = channel_scan;
  table.removal_rule = recur<Step::removal>;
}

}  // namespace
}  // namespace sluice::kernels
