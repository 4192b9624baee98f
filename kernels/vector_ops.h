// The element-wise parts of a transformer on vectors of float32: norms, rotary positions, softmax,
// gated activations. Nothing here allocates, and every pointer is the caller's. Input and output
// may be the same vector where "in place" is said.
//
// All tiers give bit-identical results: sums run over 16 virtual lanes (lane i takes the elements
// i, i + 16, i + 32, ...) that are then added in a fixed tree, and exp is one polynomial.
#pragma once

#include <cstddef>

namespace sluice::kernels {

struct VectorOps {
  // y[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i] (RMSNorm, Zhang and Sennrich 2019).
  // weight may be null (all ones). In place allowed. size >= 1, and the sum of squares must be a
  // float: beyond that the result is 0.
  void (*rms_norm)(const float* x, const float* weight, float eps, std::size_t size, float* y);

  // Rotates the first 2 * pairs elements of one head by the angles whose cosines and sines are
  // given (RoPE, Su et al. 2021), in place. "norm" pairs (2i, 2i+1), "neox" pairs (i, i + pairs).
  void (*rope_norm)(float* head, const float* cosines, const float* sines, std::size_t pairs);
  void (*rope_neox)(float* head, const float* cosines, const float* sines, std::size_t pairs);

  // x[i] = exp(x[i] - max x) / sum, in place. size >= 1.
  void (*softmax)(float* x, std::size_t size);

  // out[i] = silu(gate[i]) * up[i], silu(a) = a / (1 + exp(-a)) (SwiGLU, Shazeer 2020). In place
  // allowed on either input. Where exp(-a) overflows (a < -88.7) the result is 0.
  void (*swiglu)(const float* gate, const float* up, std::size_t size, float* out);

  // out[i] = gelu(gate[i]) * up[i] with the tanh form of gelu (GeGLU).
  void (*geglu)(const float* gate, const float* up, std::size_t size, float* out);

  // y[i] += x[i].
  void (*add)(const float* x, std::size_t size, float* y);

  // x[i] = cap * tanh(x[i] / cap), in place (Gemma 2).
  void (*softcap)(float* x, std::size_t size, float cap);

  // The largest element. size >= 1; NaN is ignored unless all are.
  float (*max)(const float* x, std::size_t size);
};

// The tiers; see kernels/kernel_table.h for the choice between them.
void fill_vector_ops_scalar(VectorOps& table);
void fill_vector_ops_avx2(VectorOps& table);
void fill_vector_ops_avx512(VectorOps& table);

}  // namespace sluice::kernels
