// The element-wise parts of a transformer on vectors of float32: norms, rotary positions, softmax,
// activations and gates. Nothing here allocates; the caller owns all memory. Input and output may
// be the same vector only if the comment says "in place". Sizes are at least 1.
//
// All tiers give bit-identical results: sums run over 16 virtual lanes (lane i takes the elements
// i, i + 16, i + 32, ...) that are then added in a fixed tree, and exp is one polynomial.
//
// sigmoid(a) = 1 / (1 + exp(-a)) and silu(a) = a sigmoid(a). Where exp(-a) overflows (a < -88.7)
// both are 0.
#pragma once

#include <cstddef>

namespace sluice::kernels {

// The four numbers of xIELU (Huang and Schlag 2024, arXiv:2411.13010).
struct Xielu {
  float positive = 0;  // alpha_p, with softplus applied
  float negative = 0;  // alpha_n, with softplus applied, plus beta
  float beta = 0;
  float top = 0;  // of the exponent, slightly below 0
};

struct VectorOps {
  // y[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i] (RMSNorm, Zhang and Sennrich 2019).
  // weight may be null (all ones). In place allowed. If the sum of squares overflows a float, the
  // result is 0.
  void (*rms_norm)(const float* x, const float* weight, float eps, std::size_t size, float* y);

  // y[i] = (x[i] - mean) / sqrt(variance + eps) * weight[i] + bias[i] (LayerNorm, Ba et al. 2016),
  // where the variance is the mean of (x - mean)^2. bias may be null (all zeros). In place allowed.
  // If the sum of squares overflows a float, the result is the bias.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps,
                     std::size_t size, float* y);

  // y[i] = x[i] / sqrt(sum(x^2) + eps) * scale: for queries and keys of a gated delta net. In place
  // allowed. If the sum of squares overflows a float, the result is 0.
  void (*l2_norm)(const float* x, float eps, float scale, std::size_t size, float* y);

  // Rotates the first 2 * pairs elements of one head by the angles whose cosines and sines are
  // given (RoPE, Su et al. 2021), in place. "norm" pairs (2i, 2i+1), "neox" pairs (i, i + pairs).
  void (*rope_norm)(float* head, const float* cosines, const float* sines, std::size_t pairs);
  void (*rope_neox)(float* head, const float* cosines, const float* sines, std::size_t pairs);

  // x[i] = exp(x[i] - max x) / sum, in place.
  void (*softmax)(float* x, std::size_t size);

  // out[i] = silu(gate[i]) * up[i] (SwiGLU, Shazeer 2020). In place allowed on either input.
  void (*swiglu)(const float* gate, const float* up, std::size_t size, float* out);

  // out[i] = g sigmoid(slope g) (u + 1) with g = min(gate[i], limit) and u = up[i], kept in
  // -limit..limit (gpt-oss: slope 1.702, limit 7). In place allowed on either input.
  void (*clamped_swiglu)(const float* gate, const float* up, float slope, float limit,
                         std::size_t size, float* out);

  // out[i] = gelu(gate[i]) * up[i] with the tanh form of gelu (GeGLU). In place allowed on either
  // input.
  void (*geglu)(const float* gate, const float* up, std::size_t size, float* out);

  // out[i] = max(gate[i], 0) * up[i] (ReGLU). In place allowed on either input.
  void (*reglu)(const float* gate, const float* up, std::size_t size, float* out);

  // out[i] = min(silu(gate[i]), limit) * u with u = up[i], kept in -limit..limit (Step 3.5). In
  // place allowed on either input.
  void (*limited_swiglu)(const float* gate, const float* up, float limit, std::size_t size,
                         float* out);

  // y[i] += x[i].
  void (*add)(const float* x, std::size_t size, float* y);

  // y[i] += factor * x[i], rounded once.
  void (*add_scaled)(const float* x, float factor, std::size_t size, float* y);

  // y[i] *= x[i].
  void (*multiply)(const float* x, std::size_t size, float* y);

  // y[i] *= sigmoid(gate[i]).
  void (*multiply_by_sigmoid)(const float* gate, std::size_t size, float* y);

  // x[i] *= factor.
  void (*scale)(float* x, std::size_t size, float factor);

  // x[i] = cap * tanh(x[i] / cap), in place (Gemma 2).
  void (*softcap)(float* x, std::size_t size, float cap);

  // x[i] = f(x[i]), in place. softplus(a) = log(1 + exp(a)), which is a itself for large a;
  // relu_squared(a) = max(a, 0)^2 (So et al. 2021).
  void (*exp)(float* x, std::size_t size);
  void (*sigmoid)(float* x, std::size_t size);
  void (*softplus)(float* x, std::size_t size);
  void (*relu_squared)(float* x, std::size_t size);
  void (*gelu)(float* x, std::size_t size);  // the tanh form

  // x[i] = positive x^2 + beta x for x > 0, else negative (exp(min(x, top)) - 1 - x) + beta x.
  void (*xielu)(float* x, std::size_t size, const Xielu& numbers);
};

}  // namespace sluice::kernels
