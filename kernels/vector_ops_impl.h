// The operations of vector_ops.h on the lanes of one tier; included after its lanes_*.h.
#pragma once

#include <cstddef>
#include <math.h>

#include "kernels/lanes_math.h"
#include "kernels/vector_ops.h"

namespace sluice::kernels {
namespace {

// y[i] = x[i] * factor (* weight[i]).
inline void scaled(const float* x, float factor, const float* weight, std::size_t size, float* y) {
  const F32x16 factors = broadcast(factor);
  by_sixteen(size, [&](std::size_t i, std::size_t count) {
    const F32x16 v = load(x + i, count) * factors;
    store(weight ? v * load(weight + i, count) : v, y + i, count);
  });
}

inline float sum_of_squares(const float* x, std::size_t size) {
  F32x16 squares = broadcast(0);
  by_sixteen(size, [&](std::size_t i, std::size_t count) {
    const F32x16 v = load(x + i, count);
    squares = fma(v, v, squares);
  });
  return sum(squares);
}

inline void rms_norm(const float* x, const float* weight, float eps, std::size_t size, float* y) {
  const float mean = sum_of_squares(x, size) / static_cast<float>(size);
  scaled(x, 1 / ::sqrtf(mean + eps), weight, size, y);
}

inline void layer_norm(const float* x, const float* weight, const float* bias, float eps,
                       std::size_t size, float* y) {
  F32x16 sums = broadcast(0), squares = broadcast(0);
  by_sixteen(size, [&](std::size_t i, std::size_t count) { sums = sums + load(x + i, count); });
  const float mean = sum(sums) / static_cast<float>(size);
  const F32x16 means = broadcast(mean);
  by_sixteen(size, [&](std::size_t i, std::size_t count) {
    const F32x16 v = load(x + i, count, mean) - means;
    squares = fma(v, v, squares);
  });
  const float variance = sum(squares) / static_cast<float>(size);
  const F32x16 factors = broadcast(1 / ::sqrtf(variance + eps));
  by_sixteen(size, [&](std::size_t i, std::size_t count) {
    const F32x16 v = (load(x + i, count) - means) * factors * load(weight + i, count);
    store(bias ? v + load(bias + i, count) : v, y + i, count);
  });
}

inline void l2_norm(const float* x, float eps, float scale, std::size_t size, float* y) {
  scaled(x, scale / ::sqrtf(sum_of_squares(x, size) + eps), nullptr, size, y);
}

// (a, b) rotated by the angle: (a cos - b sin, b cos + a sin).
inline Pairs turned(const Pairs& p, F32x16 cosine, F32x16 sine) {
  return {negated_fma(p.second, sine, p.first * cosine), fma(p.first, sine, p.second * cosine)};
}

inline void rope_norm(float* head, const float* cosines, const float* sines, std::size_t pairs) {
  by_sixteen(pairs, [&](std::size_t i, std::size_t count) {
    float rest[2 * lanes] = {};
    float* at = head + 2 * i;
    if (count < lanes) {
      for (std::size_t k = 0; k < 2 * count; ++k) rest[k] = at[k];
      at = rest;
    }
    store_pairs(turned(load_pairs(at), load(cosines + i, count), load(sines + i, count)), at);
    if (count < lanes) {
      for (std::size_t k = 0; k < 2 * count; ++k) head[2 * i + k] = rest[k];
    }
  });
}

inline void rope_neox(float* head, const float* cosines, const float* sines, std::size_t pairs) {
  by_sixteen(pairs, [&](std::size_t i, std::size_t count) {
    const Pairs p = turned({load(head + i, count), load(head + pairs + i, count)},
                           load(cosines + i, count), load(sines + i, count));
    store(p.first, head + i, count);
    store(p.second, head + pairs + i, count);
  });
}

// x[i] = f(x[i]).
template <typename F>
inline void transform(float* x, std::size_t size, F f) {
  by_sixteen(size,
             [&](std::size_t i, std::size_t count) { store(f(load(x + i, count)), x + i, count); });
}

// out[i] = f(a[i], b[i]).
template <typename F>
inline void combine(const float* a, const float* b, std::size_t size, float* out, F f) {
  by_sixteen(size, [&](std::size_t i, std::size_t count) {
    store(f(load(a + i, count), load(b + i, count)), out + i, count);
  });
}

inline void swiglu(const float* gate, const float* up, std::size_t size, float* out) {
  combine(gate, up, size, out, [](F32x16 g, F32x16 u) { return silu(g) * u; });
}

// The limits are the first operands of min and max, so that NaN stays NaN.
inline void clamped_swiglu(const float* gate, const float* up, float slope, float limit,
                           std::size_t size, float* out) {
  const F32x16 one = broadcast(1), minus_slope = broadcast(-slope);
  const F32x16 top = broadcast(limit), bottom = broadcast(-limit);
  combine(gate, up, size, out, [&](F32x16 g, F32x16 u) {
    g = min(top, g);
    u = max(bottom, min(top, u));
    return g / (one + exp(g * minus_slope)) * (u + one);
  });
}

// a / 2 (1 + tanh u) = a / (1 + exp(-2 u)) with u = sqrt(2 / pi) (a + 0.044715 a^3).
inline F32x16 gelu(F32x16 a) {
  constexpr float sqrt_2_over_pi = 0.79788456080286535588f;
  const F32x16 one = broadcast(1);
  const F32x16 minus_two_u =
      a * fma(broadcast(0.044715f), a * a, one) * broadcast(-2 * sqrt_2_over_pi);
  return a / (one + exp(minus_two_u));
}

inline void geglu(const float* gate, const float* up, std::size_t size, float* out) {
  combine(gate, up, size, out, [](F32x16 a, F32x16 u) { return gelu(a) * u; });
}

inline void reglu(const float* gate, const float* up, std::size_t size, float* out) {
  combine(gate, up, size, out, [](F32x16 g, F32x16 u) { return max(broadcast(0), g) * u; });
}

inline void limited_swiglu(const float* gate, const float* up, float limit, std::size_t size,
                           float* out) {
  const F32x16 top = broadcast(limit), bottom = broadcast(-limit);
  combine(gate, up, size, out,
          [&](F32x16 g, F32x16 u) { return min(top, silu(g)) * max(bottom, min(top, u)); });
}

inline void add(const float* x, std::size_t size, float* y) {
  combine(x, y, size, y, [](F32x16 a, F32x16 b) { return b + a; });
}

inline void add_scaled(const float* x, float factor, std::size_t size, float* y) {
  const F32x16 factors = broadcast(factor);
  combine(x, y, size, y, [&](F32x16 a, F32x16 b) { return fma(factors, a, b); });
}

inline void multiply(const float* x, std::size_t size, float* y) {
  combine(x, y, size, y, [](F32x16 a, F32x16 b) { return b * a; });
}

inline void multiply_by_sigmoid(const float* gate, std::size_t size, float* y) {
  combine(gate, y, size, y, [](F32x16 g, F32x16 b) { return b * sigmoid(g); });
}

inline void scale(float* x, std::size_t size, float factor) {
  scaled(x, factor, nullptr, size, x);
}

inline void softcap_all(float* x, std::size_t size, float cap) {
  const F32x16 caps = broadcast(cap);
  transform(x, size, [&](F32x16 a) { return softcap(a, caps); });
}

inline void exp_all(float* x, std::size_t size) {
  transform(x, size, [](F32x16 a) { return exp(a); });
}

inline void sigmoid_all(float* x, std::size_t size) {
  transform(x, size, [](F32x16 a) { return sigmoid(a); });
}

inline void softplus_all(float* x, std::size_t size) {
  transform(x, size, [](F32x16 a) { return softplus(a); });
}

inline void relu_squared(float* x, std::size_t size) {
  transform(x, size, [](F32x16 a) {
    const F32x16 positive = max(broadcast(0), a);
    return positive * positive;
  });
}

inline void gelu_all(float* x, std::size_t size) {
  transform(x, size, [](F32x16 a) { return gelu(a); });
}

inline void xielu(float* x, std::size_t size, const Xielu& numbers) {
  const F32x16 zero = broadcast(0), one = broadcast(1), top = broadcast(numbers.top);
  const F32x16 positive = broadcast(numbers.positive), negative = broadcast(numbers.negative);
  const F32x16 beta = broadcast(numbers.beta);
  transform(x, size, [&](F32x16 a) {
    const F32x16 right = positive * (a * a), left = negative * (exp(min(top, a)) - one - a);
    return fma(beta, a, select_less(zero, a, right, left));
  });
}

inline void fill(VectorOps& table) {
  table.rms_norm = rms_norm;
  table.layer_norm = layer_norm;
  table.l2_norm = l2_norm;
  table.rope_norm = rope_norm;
  table.rope_neox = rope_neox;
  table.softmax = softmax;
  table.swiglu = swiglu;
  table.clamped_swiglu = clamped_swiglu;
  table.geglu = geglu;
  table.reglu = reglu;
  table.limited_swiglu = limited_swiglu;
  table.add = add;
  table.add_scaled = add_scaled;
  table.multiply = multiply;
  table.multiply_by_sigmoid = multiply_by_sigmoid;
  table.scale = scale;
  table.softcap = softcap_all;
  table.exp = exp_all;
  table.sigmoid = sigmoid_all;
  table.softplus = softplus_all;
  table.relu_squared = relu_squared;
  table.gelu = gelu_all;
  table.xielu = xielu;
}

}  // namespace
}  // namespace sluice::kernels
