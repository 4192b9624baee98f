// How the hidden states of a text become one embedding.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sluice::rows {

enum class Pooling {
  mean,   // of all tokens
  first,  // that of the first token
  last,   // that of the last token
};

// What a file says (engine::EngineFacts::pooling_type). Where it says nothing: the last token of a
// decoder, since only that has seen the whole text; the mean of an encoder. Throws ModelError for
// ways that are not known, and for a reranker without the tensors of its scores.
Pooling pooling_of(std::optional<std::int64_t> pooling_type, bool is_encoder = false);

// The vector with the same direction and length 1 (zeros stay zeros).
std::vector<float> unit_vector(std::span<const double> x);

// Pools hidden states as they come, in double.
class Pool {
 public:
  explicit Pool(Pooling pooling) : pooling_(pooling) {}

  void add(std::span<const float> hidden);
  void clear() {
    sum_.clear();
    count_ = 0;
  }

  // The embedding of a model that makes nothing else of it: of length 1.
  std::vector<float> embedding() const { return unit_vector(sum_); }
  // The hidden state of one token, or the mean of all.
  std::vector<float> pooled() const;

 private:
  Pooling pooling_;
  std::vector<double> sum_;
  std::size_t count_ = 0;  // of the states in the sum
};

}  // namespace sluice::rows
