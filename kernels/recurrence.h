// Recurrent layers whose state is a matrix: each head has S [key][value] instead of the keys and
// values of all positions. At each position, with query q, key k and value v,
//
//     S <- decay S + k (x) u        out = S^T q
//
// where decay is one number, or for the delta rule one of each element of the key (Kimi delta
// attention, Moonshot AI 2025, arXiv:2510.26692), which multiplies its row of S, and u, what is
// written, is one of
//
//     delta rule     u = rate (v - decay S^T k)  gated delta net (Yang et al. 2024,
//                                                arXiv:2412.06464); rate is its beta
//     state scan     u = rate v                  Mamba-2 (Dao and Gu 2024, arXiv:2405.21060); B is
//                                                the key, C the query, rate the time step
//     channel scan   u = rate v                  Mamba (Gu and Dao 2023, arXiv:2312.00752), where
//                                                each value has a rate, and each element of S the
//                                                decay exp(rate log)
//     removal rule   u = v                       RWKV-7 (Peng et al. 2025, arXiv:2503.14456); of S,
//                                                (a r) (x) (S^T r) is taken away as well, with S as
//                                                it was, for a second key r and its rates a
//
// A call computes consecutive positions of one sequence one by one. So a sequence gives the same
// bits however it is cut into calls; the chunked forms of the papers would not. Elements of the
// value do not depend on each other: 64 of them at a time go through all positions, so that their
// part of the state stays in the first-level cache. All tiers give bit-identical results.
#pragma once

#include <cstddef>

namespace sluice::kernels {

// One head, consecutive positions. Row p of each array belongs to position p.
struct RecurrenceArgs {
  const float* queries;    // [positions][key_dim]
  const float* keys;       // [positions][key_dim]
  std::size_t key_stride;  // floats from one row of either to the next
  const float* values;     // [positions][value_dim]
  std::size_t value_stride;
  const float* decays;       // [positions], factors in 0..1
  std::size_t decay_stride;  // floats from one element to the next
  // Delta rule: [positions][key_dim], rows `decay_stride` floats apart, in place of `decays`; null:
  // each position has one. Removal rule: always.
  const float* key_decays;
  const float* rates;  // [positions]; channel scan: [positions][value_dim], rows so far apart
  std::size_t rate_stride;
  float skip;          // state scan: out += skip * v
  const float* skips;  // channel scan: [value_dim], the same for each value
  const float* logs;   // channel scan: [value_dim][key_dim], at most 0
  // Removal rule: both are [positions][key_dim], rows `key_stride` floats apart.
  const float* removed_keys;
  const float* removal_rates;
  // Both have state_floats(key_dim, value_dim) floats and may be the same. `state` is read: the
  // state before the first position (zeros at the start of a sequence). `next_state` is written:
  // the state after the last position.
  const float* state;
  float* next_state;
  float* out;  // [positions][value_dim]; may be `values` when the strides are equal
  std::size_t out_stride;
  std::size_t positions, key_dim, value_dim;
};

// The state is laid out in slices of 16 values, [value_dim / 16, rounded up][key_dim][16].
constexpr std::size_t state_floats(std::size_t key_dim, std::size_t value_dim) {
  return (value_dim + 15) / 16 * 16 * key_dim;
}

// The longest key of a channel scan. Models have 16 elements.
constexpr std::size_t channel_scan_key_max = 256;

struct RecurrenceKernels {
  void (*delta_rule)(const RecurrenceArgs& args);
  void (*state_scan)(const RecurrenceArgs& args);
  void (*channel_scan)(const RecurrenceArgs& args);
  void (*removal_rule)(const RecurrenceArgs& args);
};

}  // namespace sluice::kernels
