// The operations of vector_ops.h on the lanes of one tier; included after its lanes_*.h.
#pragma once

#include <cstddef>
#include <math.h>

#include "kernels/lanes_math.h"
#include "kernels/vector_ops.h"

namespace sluice::kernels {
namespace {

inline void rms_norm(const float* x, const float* weight, float eps, std::size_t size, float* y) {
  F32x16 squares = broadcast(0);
  by_sixteen(size, [&](std::size_t i, std::size_t count) {
    const F32x16 v = load(x + i, count);
    squares = fma(v, v, squares);
  });
  const float mean = sum(squares) / static_cast<float>(size);
  const F32x16 scale = broadcast(1 / ::sqrtf(mean + eps));
  by_sixteen(size, [&](std::size_t i, std::size_t count) {
    const F32x16 v = load(x + i, count) * scale;
    store(weight ? v * load(weight + i, count) : v, y + i, count);
  });
}

// (a, b) turned by the angle: (a cos - b sin, b cos + a sin).
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

inline void swiglu(const float* gate, const float* up, std::size_t size, float* out) {
  const F32x16 one = broadcast(1), zero = broadcast(0);
  by_sixteen(size, [&](std::size_t i, std::size_t count) {
    const F32x16 a = load(gate + i, count);
    store(a / (one + exp(zero - a)) * load(up + i, count), out + i, count);
  });
}

// gelu(a) = a / 2 (1 + tanh u) = a / (1 + exp(-2 u)) with u = sqrt(2 / pi) (a + 0.044715 a^3).
inline void geglu(const float* gate, const float* up, std::size_t size, float* out) {
  constexpr float sqrt_2_over_pi = 0.79788456080286535588f;
  const F32x16 one = broadcast(1), minus_two_root = broadcast(-2 * sqrt_2_over_pi);
  const F32x16 cubic = broadcast(0.044715f);
  by_sixteen(size, [&](std::size_t i, std::size_t count) {
    const F32x16 a = load(gate + i, count);
    const F32x16 minus_two_u = a * fma(cubic, a * a, one) * minus_two_root;
    store(a / (one + exp(minus_two_u)) * load(up + i, count), out + i, count);
  });
}

inline void add(const float* x, std::size_t size, float* y) {
  by_sixteen(size, [&](std::size_t i, std::size_t count) {
    store(load(y + i, count) + load(x + i, count), y + i, count);
  });
}

inline void softcap_all(float* x, std::size_t size, float cap) {
  const F32x16 caps = broadcast(cap);
  by_sixteen(size, [&](std::size_t i, std::size_t count) {
    store(softcap(load(x + i, count), caps), x + i, count);
  });
}

inline float max_of(const float* x, std::size_t size) {
  const float top = largest_of(x, size);
  if (top != -INFINITY) return top;
  for (std::size_t i = 0; i < size; ++i) {
    if (x[i] == -INFINITY) return top;
  }
  return x[0];  // all are NaN
}

inline void fill(VectorOps& table) {
  table.rms_norm = rms_norm;
  table.rope_norm = rope_norm;
  table.rope_neox = rope_neox;
  table.softmax = softmax;
  table.swiglu = swiglu;
  table.geglu = geglu;
  table.add = add;
  table.softcap = softcap_all;
  table.max = max_of;
}

}  // namespace
}  // namespace sluice::kernels
