// xoshiro256 of Blackman and Vigna (arXiv:1805.01407): numbers that depend on a seed and on nothing
// else, whatever the platform. Not for secrets.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace sluice {

// The next number of the generator that fills the state of others.
inline std::uint64_t splitmix64(std::uint64_t& state) {
  std::uint64_t mixed = (state += 0x9E3779B97F4A7C15U);
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
  return mixed ^ (mixed >> 31);
}

class Xoshiro256 {
 public:
  explicit Xoshiro256(std::uint64_t seed) {
    for (std::uint64_t& word : state_) word = splitmix64(seed);
  }

  // The next number, scrambled in one of the two ways of the paper.
  std::uint64_t plus_plus() { return advanced(std::rotl(state_[0] + state_[3], 23) + state_[0]); }
  std::uint64_t star_star() { return advanced(std::rotl(state_[1] * 5, 7) * 9); }

 private:
  std::uint64_t advanced(std::uint64_t result) {
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  std::array<std::uint64_t, 4> state_{};
};

}  // namespace sluice
