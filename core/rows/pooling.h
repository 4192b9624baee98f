// How the hidden states of a text become one embedding.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sluice::rows {

enum class Pooling {
  mean,  // of all tokens
  last,  // that of the last token
};

// What a file says (engine::EngineFacts::pooling_type); the last token where it says nothing, since
// only that has seen the whole text. Throws ModelError for the ways that a decoder does not have.
Pooling pooling_of(std::optional<std::int64_t> pooling_type);

// Pools hidden states as they come, in double.
class Pool {
 public:
  explicit Pool(Pooling pooling) : pooling_(pooling) {}

  void add(std::span<const float> hidden);
  void clear() { sum_.clear(); }

  // The embedding, of length 1 (of zeros, if all states are).
  std::vector<float> embedding() const;

 private:
  Pooling pooling_;
  std::vector<double> sum_;  // its length does not matter
};

}  // namespace sluice::rows
