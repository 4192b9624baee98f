#include "core/constrain/machine.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "core/constrain/grammar_error.h"

namespace sluice::constrain {
namespace {

// Takes the end of a loop; false when the number of rounds does not allow it.
bool pass(const Grammar::Loop& loop, Grammar::Guard guard, std::uint32_t& rounds) {
  if (guard == Grammar::Guard::check) {
    if (rounds < loop.min) return false;
    rounds = 0;
  } else if (guard == Grammar::Guard::enter) {
    if (rounds >= loop.max) return false;
    // Without a maximum rounds are counted up to the minimum only, so that readings which are equal
    // from there on stay equal.
    if (loop.max != Grammar::unlimited || rounds < loop.min) ++rounds;
  }
  return true;
}

}  // namespace

void Machine::start(std::uint32_t state, ReadingSet& out, WorkBudget& budget) {
  out.readings.clear();
  out.may_end = false;
  add({state, 0, 0}, out, budget);
}

bool Machine::step(const ReadingSet& in, std::uint8_t byte, ReadingSet& out, WorkBudget& budget) {
  out.readings.clear();
  out.may_end = false;
  budget.spend(in.readings.size());
  for (const Reading& reading : in.readings) {
    const Grammar::Step step = grammar_->step(reading.state, byte);
    if (!step.is_allowed()) continue;
    Reading next{step.target(), reading.rounds, reading.stack};
    if (step.guard() != Grammar::Guard::nothing) {
      const Grammar::Loop& loop = grammar_->loops[grammar_->states[reading.state].loop];
      if (!pass(loop, step.guard(), next.rounds)) continue;
    }
    if (out.readings.empty() && grammar_->states[next.state].only_bytes()) {
      out.readings.push_back(next);
    } else {
      add(next, out, budget);
    }
  }
  return goes_on(out);
}

// Where frames have run out, a reading may be left whose calls were all given up.
bool Machine::goes_on(const ReadingSet& set) const {
  return set.may_end || std::ranges::any_of(set.readings, [&](const Reading& reading) {
           return grammar_->states[reading.state].has_bytes;
         });
}

void Machine::leave_rule(const Reading& reading, ReadingSet& out, WorkBudget& budget) {
  const Frame& frame = frames_[reading.stack];
  add({frame.state, frame.rounds, frame.below}, out, budget);
}

bool Machine::is_same_stack(std::uint32_t a, std::uint32_t b, WorkBudget& budget) const {
  while (a != b) {
    budget.spend(1);
    const Frame& left = frames_[a];
    const Frame& right = frames_[b];
    if (left.depth != right.depth || left.state != right.state || left.rounds != right.rounds) {
      return false;
    }
    a = left.below;
    b = right.below;
  }
  return true;
}

bool Machine::contains(const ReadingSet& set, const Reading& reading, WorkBudget& budget) const {
  return std::ranges::any_of(set.readings, [&](const Reading& other) {
    return other.state == reading.state && other.rounds == reading.rounds &&
           is_same_stack(other.stack, reading.stack, budget);
  });
}

// Adds a reading, and all that follow from it without a byte.
void Machine::add(Reading reading, ReadingSet& out, WorkBudget& budget) {
  open_.assign(1, reading);
  while (!open_.empty()) {
    reading = open_.back();
    open_.pop_back();
    budget.spend(1 + out.readings.size() / 8);
    if (contains(out, reading, budget)) continue;
    if (out.readings.size() == readings_max) {
      throw GrammarError(fmt::format(
          "the grammar is too ambiguous: a text can be read in more than {} ways", readings_max));
    }
    out.readings.push_back(reading);
    follow(reading, out);
  }
}

void Machine::follow(const Reading& reading, ReadingSet& out) {
  const Grammar::State& state = grammar_->states[reading.state];
  if (state.only_bytes()) return;
  if (state.accepts) {
    if (reading.stack == 0) {
      out.may_end = true;
    } else {
      const Frame& frame = frames_[reading.stack];
      open_.push_back({frame.state, frame.rounds, frame.below});
    }
  }
  for (std::uint32_t i = state.calls_begin; i < state.calls_end; ++i) {
    push_call(grammar_->calls[i], reading);
  }
  for (std::uint32_t i = state.ends_begin; i < state.ends_end; ++i) {
    const Grammar::LoopEnd& end = grammar_->loop_ends[i];
    Reading next{end.target, reading.rounds, reading.stack};
    if (pass(grammar_->loops[end.loop], end.guard, next.rounds)) open_.push_back(next);
  }
}

// A call at the very end of a rule needs no frame, so lists that are written as right recursion do
// not grow the stack.
void Machine::push_call(const Grammar::Call& call, const Reading& reading) {
  std::uint32_t stack = reading.stack;
  if (!grammar_->states[call.target].only_accepts()) {
    const std::uint32_t depth = frames_[stack].depth + 1;
    deepest_ = std::max(deepest_, depth);
    if (depth > depth_max) return;
    if (frames_.size() == frames_max) {
      throw GrammarError(fmt::format(
          "the grammar is too ambiguous: the ways to read a text need more than {} frames",
          frames_max));
    }
    frames_.push_back({call.target, reading.rounds, stack, depth});
    stack = static_cast<std::uint32_t>(frames_.size() - 1);
  }
  open_.push_back({call.start, 0, stack});
}

// A frame stands behind the one below it, so one pass moves them all.
void Machine::keep_only(ReadingSet& set) {
  constexpr std::size_t few = 256;
  if (frames_.size() <= few) return;
  std::vector<std::uint32_t> moved(frames_.size());  // 0: not needed
  for (const Reading& reading : set.readings) {
    for (std::uint32_t at = reading.stack; at != 0 && moved[at] == 0; at = frames_[at].below) {
      moved[at] = 1;
    }
  }
  std::uint32_t kept = 1;
  for (std::size_t at = 1; at < frames_.size(); ++at) {
    if (moved[at] == 0) continue;
    moved[at] = kept;
    frames_[kept] = frames_[at];
    frames_[kept].below = moved[frames_[at].below];
    ++kept;
  }
  frames_.resize(kept);
  for (Reading& reading : set.readings) reading.stack = moved[reading.stack];
}

namespace {

bool read_text(const Grammar& grammar, std::string_view text, ReadingSet& set) {
  Machine machine(grammar);
  TokenBudget budget;
  machine.start(grammar.start, set, budget);
  ReadingSet next;
  for (const char byte : text) {
    budget = TokenBudget();
    if (!machine.step(set, static_cast<std::uint8_t>(byte), next, budget)) return false;
    std::swap(set, next);
    machine.keep_only(set);
  }
  return true;
}

}  // namespace

bool matches(const Grammar& grammar, std::string_view text) {
  ReadingSet set;
  return read_text(grammar, text, set) && set.may_end;
}

bool matches_beginning(const Grammar& grammar, std::string_view text) {
  ReadingSet set;
  return read_text(grammar, text, set);
}

}  // namespace sluice::constrain
