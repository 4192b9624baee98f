// What kernels share on top of the lanes: a loop, exp and the functions based on it, and softmax.
// Each is one fixed sequence of operations. Included after one of lanes_*.h, and in an anonymous
// namespace for the same reason.
#pragma once

#include <cstddef>
#include <math.h>

namespace sluice::kernels {
namespace {

// Calls body(first, count) for 16 elements at a time; the last call may have fewer.
template <typename Body>
inline void by_sixteen(std::size_t size, Body body) {
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) body(i, lanes);
  if (i < size) body(i, size - i);
}

// e^x with a relative error below 2^-23, subnormal results included up to their spacing; 0 at
// -infinity, infinity above 88.73, NaN for NaN.
//
// x = n ln 2 + r with |r| < 0.347; ln 2 in two parts keeps r exact to its last bit. The polynomial
// is 1 + r + r^2 q(r) with the q that is best in relative error (found with Remez' algorithm).
inline F32x16 exp(F32x16 x) {
  constexpr float round_to_integer = 0x1.8p23f;  // adding and subtracting it rounds to an integer
  x = min(broadcast(89.0f), max(broadcast(-105.0f), x));  // NaN stays: it is the second operand
  const F32x16 magic = broadcast(round_to_integer);
  const F32x16 n = fma(x, broadcast(0x1.715476p+0f), magic) - magic;
  F32x16 r = negated_fma(n, broadcast(0x1.62e43p-1f), x);
  r = fma(n, broadcast(0x1.05c61p-29f), r);
  F32x16 p = broadcast(0x1.6a21acp-10f);
  p = fma(p, r, broadcast(0x1.123b6ap-7f));
  p = fma(p, r, broadcast(0x1.5558fap-5f));
  p = fma(p, r, broadcast(0x1.55549p-3f));
  p = fma(p, r, broadcast(0x1.fffffcp-2f));
  p = fma(p, r, broadcast(1.0f));
  p = fma(p, r, broadcast(1.0f));
  return times_power_of_two(p, n);
}

// tanh x with a relative error below 3 * 2^-23. A polynomial is used near 0, where
// 1 - 2 / (e^2x + 1) would suffer from cancellation.
inline F32x16 tanh(F32x16 x) {
  const F32x16 one = broadcast(1.0f), two = broadcast(2.0f);
  const F32x16 large = one - two / (exp(x + x) + one);
  const F32x16 u = x * x;
  F32x16 q = broadcast(-0x1.76ac1ap-8f);
  q = fma(q, u, broadcast(0x1.5256d8p-6f));
  q = fma(q, u, broadcast(-0x1.b84448p-5f));
  q = fma(q, u, broadcast(0x1.110768p-3f));
  q = fma(q, u, broadcast(-0x1.555534p-2f));
  const F32x16 small = fma(q * u, x, x);
  return select_less(abs(x), broadcast(0.625f), small, large);
}

// 1 / (1 + e^-x); 0 where e^-x overflows.
inline F32x16 sigmoid(F32x16 x) {
  const F32x16 one = broadcast(1.0f);
  return one / (one + exp(broadcast(0) - x));
}

// x sigmoid(x), with one rounding less.
inline F32x16 silu(F32x16 x) {
  return x / (broadcast(1.0f) + exp(broadcast(0) - x));
}

// log(1 + e^x) = max(x, 0) + log(1 + u) with u = e^-|x|, which cannot overflow; the relative error
// is below 4 * 2^-23.
//
// log(1 + u) = 2 atanh(t / 2) with t = 2 u / (2 + u) <= 2 / 3, and 2 atanh(t / 2) = t + t^3 q(t^2)
// with the q that is best in relative error.
inline F32x16 softplus(F32x16 x) {
  const F32x16 u = exp(broadcast(0) - abs(x));
  const F32x16 t = (u + u) / (broadcast(2.0f) + u), square = t * t;
  F32x16 q = broadcast(0x1.1ed7bep-11f);
  q = fma(q, square, broadcast(0x1.1ebd0ep-9f));
  q = fma(q, square, broadcast(0x1.99d208p-7f));
  q = fma(q, square, broadcast(0x1.555502p-4f));
  return max(broadcast(0), x) + fma(q * square, t, t);
}

// cap tanh(x / cap).
inline F32x16 softcap(F32x16 x, F32x16 cap) {
  return cap * tanh(x / cap);
}

// The largest element, ignoring NaN; -infinity when there is nothing else.
inline float largest_of(const float* x, std::size_t size) {
  F32x16 top = broadcast(-INFINITY);
  by_sixteen(size, [&](std::size_t i, std::size_t count) {
    top = max(load(x + i, count, -INFINITY), top);
  });
  return largest(top);
}

// x[i] = exp(x[i] - top), in place, top = max(x, another). Returns their sum with exp(another -
// top): `another` is one more element that is kept elsewhere. The lanes past the end are -infinity
// and add nothing.
inline float exponentials(float* x, std::size_t size, float another = -INFINITY) {
  const F32x16 top = max(broadcast(another), broadcast(largest_of(x, size)));
  F32x16 total = broadcast(0);
  by_sixteen(size, [&](std::size_t i, std::size_t count) {
    const F32x16 e = exp(load(x + i, count, -INFINITY) - top);
    total = total + e;
    store(e, x + i, count);
  });
  if (another != -INFINITY) total = total + keep(exp(broadcast(another) - top), 0, 1, 0);
  return sum(total);
}

// x[i] = exp(x[i] - top) / sum, in place; `another` counts as in exponentials().
inline void softmax(float* x, std::size_t size, float another) {
  const F32x16 scale = broadcast(1 / exponentials(x, size, another));
  by_sixteen(size, [&](std::size_t i, std::size_t count) {
    store(load(x + i, count) * scale, x + i, count);
  });
}

inline void softmax(float* x, std::size_t size) {
  softmax(x, size, -INFINITY);
}

}  // namespace
}  // namespace sluice::kernels
