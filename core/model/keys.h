// The metadata of one architecture: the keys below "<general.architecture>.", checked as they are
// read, so that code that uses the numbers need not check them again.
//
// per_layer() reads a key that may have one value for all layers or one for each. Every error is a
// ModelError that names the file, the key, what was found and what was expected.
//
// A key that nobody asks for may say that the model is another one than the page takes it for, as
// with a tensor. So each lookup is remembered, and unread() has what is left. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/gguf/gguf.h"

namespace sluice::model {

// Far above the width of any model. Keeps products of widths from overflowing.
inline constexpr std::uint32_t width_max = 1u << 20;
inline constexpr std::uint32_t context_max = 1u << 28;

class Keys {
 public:
  // `predicts`: the block that predicts further tokens is wanted too (core/model/predictor.h).
  explicit Keys(const gguf::Model& model, bool predicts = false);

  const gguf::Model& model() const { return model_; }
  const std::string& architecture() const { return architecture_; }
  bool predicts() const { return predicts_; }

  // A whole number from 1 to `max`. Where a count is optional, converters write 0 for "not said":
  // the last two take it as if the key were absent.
  std::uint32_t count(const std::string& name, std::uint32_t max = width_max) const;
  std::optional<std::uint32_t> find_count(const std::string& name,
                                          std::uint32_t max = width_max) const;
  std::uint32_t count_or(const std::string& name, std::uint32_t otherwise,
                         std::uint32_t max = width_max) const;

  // A whole number from 0 to `max`, for keys where 0 says that there is none of something.
  std::uint32_t whole_or(const std::string& name, std::uint32_t otherwise,
                         std::uint32_t max = width_max) const;

  // A whole number from 0 to width_max for each of `layers`: either one number for all, or an array
  // with at least `layers` elements. Where the key is absent every layer gets `otherwise`; without
  // `otherwise` the key is required.
  std::vector<std::uint32_t> per_layer(const std::string& name, std::size_t layers,
                                       std::optional<std::uint32_t> otherwise = {}) const;

  // A finite number for each of `layers`: one for all, or an array with at least as many. The key
  // is required; with `has_prefix` false it does not begin with the architecture.
  std::vector<float> numbers(const std::string& name, std::size_t layers,
                             bool has_prefix = true) const;

  // A flag for each of `layers`: either an array of bools or numbers, or a single number, the
  // period, of which `of_period(layer, period)` makes the flags; a period of 0 flags all layers.
  // `otherwise` is the period where the key is absent.
  std::vector<bool> layer_pattern(
      const std::string& name, std::size_t layers, std::uint32_t otherwise,
      const std::function<bool(std::size_t layer, std::uint32_t period)>& of_period) const;

  // A finite number; `number` requires the key.
  float number(const std::string& name) const;
  float number_or(const std::string& name, float otherwise) const;
  // A finite number above 0.
  float positive(const std::string& name) const;
  float positive_or(const std::string& name, float otherwise) const;

  bool flag_or(const std::string& name, bool otherwise) const;
  std::string text_or(const std::string& name, const std::string& otherwise) const;
  bool contains(const std::string& name) const;

  // Says that the architecture does without a key that its files have, or without all whose names
  // begin so, if it ends with a dot.
  void leave_aside(const std::string& name) const;
  // The keys below the prefix that nothing has asked for, in the order of the file, except those
  // that never change a text.
  std::vector<std::string> unread() const;

  // An error about a key: "FILE: key 'qwen3.a.b' WHAT".
  ModelError error(const std::string& name, const std::string& what) const;

 private:
  // The full name of a key, which counts as read from now on.
  std::string read(const std::string& name) const;
  std::uint32_t checked(const std::string& name, std::uint32_t value, std::uint32_t least,
                        std::uint32_t max) const;

  const gguf::Model& model_;
  const gguf::Metadata& metadata_;
  std::string architecture_;
  std::string prefix_;
  bool predicts_;
  mutable std::set<std::string, std::less<>> read_;
};

}  // namespace sluice::model
