// Runs a grammar over bytes: a nondeterministic pushdown automaton, all of whose readings are
// followed side by side.
//
// A reading is a state, the rounds of the loop around it, and a stack of frames: where the calls
// around it go on. Frames are never changed, so readings share them. A machine owns the frames; a
// set of readings is valid until its machine is truncated to fewer frames.
//
// Limits keep a hostile grammar from growing without bound: a reading that would need more than
// `depth_max` frames is given up (so no text is accepted that nests deeper), more than
// `readings_max` at a time or `frames_max` in all are an error, and each reading that is followed
// and each frame that is compared is counted in the budget of the text.
//
// Threads: used by one thread; the grammar is only read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/constrain/budget.h"
#include "core/constrain/grammar.h"

namespace sluice::constrain {

struct Reading {
  std::uint32_t state = 0;
  std::uint32_t rounds = 0;
  std::uint32_t stack = 0;  // 0: empty
};

struct ReadingSet {
  std::vector<Reading> readings;
  bool may_end = false;  // the stack of some reading has run out: the whole text may end here
};

class Machine {
 public:
  static constexpr std::uint32_t depth_max = 1024;
  static constexpr std::size_t readings_max = 256;
  static constexpr std::size_t frames_max = std::size_t{1} << 14;

  // `grammar` must outlive the machine.
  explicit Machine(const Grammar& grammar) : grammar_(&grammar), frames_(1) {}

  // The readings of a text that has not begun; `state` is a start of the grammar.
  void start(std::uint32_t state, ReadingSet& out, WorkBudget& budget);

  // The readings after one more byte; returns whether one of them can go on, or end the text. `out`
  // is another set than `in`. Throws GrammarError when there are too many, as start() and
  // leave_rule() do.
  bool step(const ReadingSet& in, std::uint8_t byte, ReadingSet& out, WorkBudget& budget);

  // Adds the readings in which the rule of `reading` is over. Its stack is not empty.
  void leave_rule(const Reading& reading, ReadingSet& out, WorkBudget& budget);

  // The frames below a reading, and the most that any has had or would have needed.
  std::uint32_t depth_of(const Reading& reading) const { return frames_[reading.stack].depth; }
  std::uint32_t deepest() const { return deepest_; }

  // The frames that exist now, and back to fewer of them.
  std::size_t frames() const { return frames_.size(); }
  void truncate(std::size_t frames) { frames_.resize(frames); }
  // Drops all frames that `set` does not need, if there are more than a few.
  void keep_only(ReadingSet& set);

  // The most bytes that the frames of a machine take, with those of half the size from which they
  // are moved.
  static constexpr std::size_t bytes_max();

 private:
  struct Frame {
    std::uint32_t state = 0;  // where to go on
    std::uint32_t rounds = 0;
    std::uint32_t below = 0;
    std::uint32_t depth = 0;
  };

  void add(Reading reading, ReadingSet& out, WorkBudget& budget);
  void follow(const Reading& reading, ReadingSet& out);
  bool is_same_stack(std::uint32_t a, std::uint32_t b, WorkBudget& budget) const;
  bool goes_on(const ReadingSet& set) const;
  bool contains(const ReadingSet& set, const Reading& reading, WorkBudget& budget) const;
  void push_call(const Grammar::Call& call, const Reading& reading);

  const Grammar* grammar_;
  std::vector<Frame> frames_;  // the first stands for the empty stack
  std::vector<Reading> open_;
  std::uint32_t deepest_ = 0;
};

constexpr std::size_t Machine::bytes_max() {
  return (frames_max + frames_max / 2) * sizeof(Frame);
}

// Whether a whole text matches; and whether it is the beginning of one that does.
bool matches(const Grammar& grammar, std::string_view text);
bool matches_beginning(const Grammar& grammar, std::string_view text);

}  // namespace sluice::constrain
