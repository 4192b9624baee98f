// The short convolutions of recurrent layers (gated delta nets, Mamba-2, LFM2): causal, along the
// positions of one sequence, each channel by itself.
//
// Results have the same bits in all tiers, and however a sequence is cut into calls: an output is
// one fixed chain of operations on its inputs.
#pragma once

#include <cstddef>

namespace sluice::kernels {

// The largest number of taps. Models have 3 or 4.
constexpr std::size_t convolution_taps_max = 8;

// Consecutive positions of one sequence. To split channels over threads, point to the first channel
// of each thread's part.
struct ConvolutionArgs {
  float* x;  // [positions][channels], rows `stride` floats apart; overwritten with the result
  std::size_t stride;
  const float* taps;  // [channels][tap_count]; the last one belongs to the position itself
  const float* bias;  // [channels], or null
  // Both are [tap_count - 1][channels], rows `tail_stride` floats apart, oldest first, and may be
  // the same. `tail` has the inputs of the positions before this call (zeros where the sequence
  // begins). `next_tail` is written: the inputs of the positions before the next call.
  const float* tail;
  float* next_tail;
  std::size_t tail_stride;
  std::size_t positions, channels, tap_count;  // tap_count in 1..convolution_taps_max
  bool has_silu;                               // whether silu is applied last (vector_ops.h)
};

struct ConvolutionKernels {
  // x[p][c] = bias[c] + sum over j of taps[c][j] * x[p - (tap_count - 1) + j][c]
  void (*causal)(const ConvolutionArgs& args);
};

}  // namespace sluice::kernels
