// The loop that measures how many multiply-adds of bytes a second vpdpbusd gives.
#pragma once

#include <cstdint>
#include <immintrin.h>

namespace sluice::kernels {
namespace {

// `dot(sum, w, x)` is the instruction. Returns how many multiply-adds were done.
template <typename Register, typename Dot>
std::uint64_t repeat_dot(std::uint64_t rounds, Dot dot) {
  constexpr int chains = 12;  // enough to hide the latency of the instruction
  Register sums[chains] = {};
  const Register w = {}, x = {};
  for (std::uint64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < chains; ++i) {
      sums[i] = dot(sums[i], w, x);
      // A compiler that knew the sums to be equal would make one chain of all.
      __asm__ volatile("" : "+v"(sums[i]));
    }
  }
  return rounds * chains * sizeof(Register);
}

}  // namespace
}  // namespace sluice::kernels
