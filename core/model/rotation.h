// Weights that are stored rotated (`prism.hadamard.*`): each product is with H (s * P(x)), where s
// is a vector of signs for the width of x, H the orthonormal Walsh-Hadamard transform of every
// block of some inputs, and P the order of the value heads of a recurrent layer. The rows of the
// token embedding are turned back as they are read: s * H(row).
//
// Without any of it a model gives fluent text that is wrong, so everything in these keys that is
// not known is refused.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/gguf/gguf.h"

namespace sluice::model {

// Of inputs of one width. Any thread may use it.
class Rotation {
 public:
  // The heads whose order a matrix has by key heads, and activations by value heads; none: the
  // order is the same.
  struct Heads {
    std::size_t keys = 0, values = 0;
  };

  // `signs` has `size` elements, or none; `block` is a power of two that divides `size`.
  Rotation(std::size_t size, std::size_t block, std::vector<float> signs, const Heads& heads)
      : size_(size), block_(block), signs_(std::move(signs)), heads_(heads) {}

  void turn(const float* x, float* out) const;  // out = H (s * P(x)), in other memory
  void turn_back(float* row) const;             // row = s * H(row)

  std::size_t bytes() const { return signs_.size() * sizeof(float); }

 private:
  void multiply_by_signs(float* x) const;
  void transform(float* x) const;

  std::size_t size_, block_;
  std::vector<float> signs_;
  Heads heads_;
};

// The rotations of a model.
class Rotations {
 public:
  // Throws ModelError where the keys are incomplete, contradict each other or the tensors, or ask
  // for what is not known.
  explicit Rotations(const gguf::Model& model);

  bool is_empty() const { return rotations_.empty(); }
  std::size_t bytes() const;  // of memory

  // Of the inputs of a matrix, or of the rows of a table; null: none. They live as long as this.
  const Rotation* of_inputs(std::string_view matrix) const { return find(inputs_, matrix); }
  const Rotation* of_rows(std::string_view table) const { return find(rows_, table); }

 private:
  using Names = std::map<std::string, const Rotation*, std::less<>>;

  class Reader;
  static const Rotation* find(const Names& names, std::string_view name) {
    const auto found = names.find(name);
    return found == names.end() ? nullptr : found->second;
  }

  // By width, and whether heads change their order.
  std::map<std::pair<std::size_t, bool>, std::unique_ptr<Rotation>> rotations_;
  Names inputs_, rows_;
};

}  // namespace sluice::model
