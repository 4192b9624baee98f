// Where drafts come from: guesses at the next tokens of a text.
//
// A draft is checked by the step that evaluates it: it is right if it equals the token that was
// chosen without it. So a source can be wrong, and even hostile, without changing a text; all that
// it changes is how long the text takes.
//
// Threads: a source belongs to one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/tokenizer/tokenizer.h"

namespace sluice::speculate {

struct Draft {
  tokenizer::Token token;
  // How sure the source is: of two drafts of a source, the one of the higher grade is more often
  // right. How often exactly is found out for each text (speculate/acceptance.h).
  std::uint8_t grade;
};

inline constexpr std::size_t grades = 16;
// Of a draft that must be right if those before it are.
inline constexpr std::uint8_t certain_grade = 255;

// The grade of a draft that its source finds so probable.
constexpr std::uint8_t grade_of(double probability) {
  const double of_all = probability * static_cast<double>(grades);
  return static_cast<std::uint8_t>(std::clamp(of_all, 0.0, static_cast<double>(grades - 1)));
}

// The kinds of sources, and what people call them.
enum class Kind : std::uint8_t { suffix, mtp, draft };
inline constexpr std::array<std::string_view, 3> kind_names = {"suffix", "mtp", "draft"};

struct DraftCounts {
  std::uint64_t drafted = 0;
  std::uint64_t accepted = 0;  // of these, those that were right
};
using DraftCountsByKind = std::array<DraftCounts, kind_names.size()>;

// What may come next in a text that is kept to a grammar, and then behind that: it goes along with
// drafts.
class Choices {
 public:
  virtual ~Choices() = default;

  // A bit for each token of the vocabulary, valid until take(); empty: no more can be said.
  virtual std::span<const std::uint64_t> allowed() = 0;
  // The token that has to come, where there is exactly one.
  virtual std::optional<tokenizer::Token> only() = 0;
  // Goes on behind this token. Returns false, and stays where it is, if it may not come.
  virtual bool take(tokenizer::Token token) = 0;
  // Whether nothing can come.
  virtual bool is_over() const = 0;
};

// Leaves of the drafts those that may come, and adds those that have to, at most `most` in all.
void keep_to(Choices& choices, std::size_t most, std::vector<Draft>& drafts);

// What is asked of a source.
struct Wanted {
  std::size_t most = 0;  // drafts
  // A source that takes time looks for no more behind drafts that are all right with a lower
  // probability, as it sees them.
  double least = 0;
  Choices* choices = nullptr;  // of the text; null: any token may come. It need not be looked at.
};

class Source {
 public:
  virtual ~Source() = default;

  virtual Kind kind() const = 0;
  // How long a draft takes to be found, in seconds; 0 when that is not worth naming.
  virtual double seconds_each() const { return 0; }
  // Appends what may come next, in order; nothing when it has no guess.
  virtual void propose(const Wanted& wanted, std::vector<Draft>& drafts) = 0;
  // These tokens come next in the text: those of the prompt at first, and then the chosen ones,
  // whoever proposed them.
  virtual void accepted(std::span<const tokenizer::Token> tokens) = 0;
  // Lets go of the text. It may begin again, with its first token.
  virtual void forget() = 0;
  // The text is whole: its last `written` tokens were chosen, and the others given.
  virtual void ended(std::size_t /*written*/) {}
};

}  // namespace sluice::speculate
