// The short convolutions of recurrent layers: along the positions of one sequence, each channel for
// itself, looking back only (gated delta nets, Mamba-2, LFM2).
//
// All tiers give bit-identical results, and so does every way to cut a sequence into calls: an
// output is one fixed chain of operations on the inputs it depends on.
#pragma once

#include <cstddef>

namespace sluice::kernels {

// The largest number of taps. Models have 3 or 4.
constexpr std::size_t convolution_taps_max = 8;

// Consecutive positions of one sequence. To split channels over threads, move the pointers to the
// first channel of the part.
struct ConvolutionArgs {
  float* x;  // [positions][channels], rows `stride` floats apart; the result takes its place
  std::size_t stride;
  const float* taps;  // [channels][tap_count]; the last one belongs to the position itself
  const float* bias;  // [channels], or null
  // [tap_count - 1][channels], rows `tail_stride` floats apart, oldest first: the inputs of the
  // positions before the first (zeros before a sequence begins), and, written, of those before the
  // next. May be the same.
  const float* tail;
  float* next_tail;
  std::size_t tail_stride;
  std::size_t positions, channels, tap_count;  // tap_count in 1..convolution_taps_max
  bool has_silu;                               // whether silu comes last (see vector_ops.h)
};

struct ConvolutionKernels {
  // x[p][c] = bias[c] + sum over j of taps[c][j] * x[p - (tap_count - 1) + j][c]
  void (*causal)(const ConvolutionArgs& args);
};

void fill_convolution_scalar(ConvolutionKernels& table);
void fill_convolution_avx2(ConvolutionKernels& table);
void fill_convolution_avx512(ConvolutionKernels& table);

}  // namespace sluice::kernels
