// A compiled regular expression over UTF-8 text: PCRE2 with Unicode properties, and its
// just-in-time compiler where the system allows that.
//
// A Pattern is immutable and may be shared by threads; each thread brings its own Scratch.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

namespace sluice::tokenizer {

class Pattern {
 public:
  // Working memory of find().
  class Scratch {
   public:
    Scratch();
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

   private:
    friend class Pattern;
    struct State;
    std::unique_ptr<State> state_;
  };

  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  // `regex` in PCRE2's syntax, except that \s and \S stand for exactly Unicode's White_Space.
  // Throws std::invalid_argument when it does not compile.
  explicit Pattern(std::string_view regex);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  // The first match that begins at or after `from`. `text` must be valid UTF-8 and `from` must not
  // lie inside a character. There is no limit on the length of a match. Throws std::runtime_error
  // when memory runs out.
  std::optional<Match> find(std::string_view text, std::size_t from, Scratch& scratch) const;

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace sluice::tokenizer
