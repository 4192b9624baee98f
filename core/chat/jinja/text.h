// Text that records who wrote it: each byte came from the template, or from the data that was given
// to the template. Operations keep the origins of the bytes that they keep: a slice, a join, an
// escape.
//
// What the template wrote is markup, in which control tokens are recognised. What people wrote is
// data, in which they are not. Bytes that an operation adds (the quotes of tojson, the digits of a
// number) count as markup, since nobody can choose them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::chat::jinja {

// Something that a template must not or cannot do. The evaluator adds the line and the construct.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class Origin : std::uint8_t { data, markup };

class Text {
 public:
  // The bytes from the end of the previous run (or the start) up to `end`; neighbours differ in
  // origin.
  struct Run {
    std::size_t end;
    Origin origin;
  };

  // No text may take more memory than this; growing beyond it throws Failure.
  static constexpr std::size_t memory_bytes_max = std::size_t{6} << 20U;

  Text() = default;
  Text(std::string_view bytes, Origin origin) { append(bytes, origin); }

  const std::string& bytes() const { return bytes_; }
  std::span<const Run> runs() const { return runs_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  std::size_t memory_bytes() const { return bytes_.size() + runs_.size() * sizeof(Run); }

  // The origin of the byte at `position`; markup when there is no such byte.
  Origin origin_at(std::size_t position) const;

  void append(std::string_view bytes, Origin origin);
  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, std::size_t begin, std::size_t end);  // begin <= end <= size
  Text slice(std::size_t begin, std::size_t end) const;                // begin <= end <= size

 private:
  std::size_t run_at(std::size_t position) const;

  std::string bytes_;
  std::vector<Run> runs_;
};

// Builds a text from the pieces of `text` that an operation keeps, and the bytes that it adds.
class Rewriter {
 public:
  explicit Rewriter(const Text& text) : text_(text) {}
  void keep(std::size_t begin, std::size_t end) { result_.append(text_, begin, end); }
  // Replaces the byte at `position` by `bytes`, which get its origin.
  void put(std::string_view bytes, std::size_t position) {
    result_.append(bytes, text_.origin_at(position));
  }
  Text take() { return std::move(result_); }

 private:
  const Text& text_;
  Text result_;
};

}  // namespace sluice::chat::jinja
