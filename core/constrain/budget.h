// What a grammar may cost. Schemas and grammars come from anybody, so whatever takes work or memory
// because of one is counted where it is taken, against one budget for all that belongs together:
// one for compiling a form, and one for the tokens of a text.
//
// Threads: used by one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace sluice::constrain {

// Elementary steps, of a few nanoseconds each.
class WorkBudget {
 public:
  // `refusal`: what the error says; must outlive the budget.
  WorkBudget(std::uint64_t steps_max, std::string_view refusal)
      : steps_max_(steps_max), refusal_(refusal) {}

  // Throws GrammarError when more is spent than there is.
  void spend(std::uint64_t steps) {
    used_ += steps;
    if (used_ > steps_max_) [[unlikely]] {
      refuse();
    }
  }

  std::uint64_t used() const { return used_; }
  std::uint64_t steps_max() const { return steps_max_; }

 protected:
  void give_back(std::uint64_t steps) { used_ -= std::min(used_, steps); }

 private:
  [[noreturn]] void refuse() const;

  std::uint64_t steps_max_;
  std::uint64_t used_ = 0;
  std::string_view refusal_;
};

// The tokens of one text: their masks, and their bytes. A walk over the tree of 150,000 tokens
// takes a third of a million steps, and few forms ever take more for a token. All texts wait for
// these steps, so a token may take many only where those before it took few.
class TokenBudget : public WorkBudget {
 public:
  static constexpr std::uint64_t saved_steps_max = std::uint64_t{1} << 23;
  static constexpr std::uint64_t token_steps = std::uint64_t{1} << 21;
  explicit TokenBudget(std::uint64_t steps_max = saved_steps_max);

  // A further token of the text begins.
  void next_token() { give_back(token_steps); }
};

// The compilation of one form, from its text to the tables.
class CompileBudget : public WorkBudget {
 public:
  static constexpr std::uint64_t compile_steps_max = std::uint64_t{1} << 26;
  static constexpr std::size_t compile_bytes_max = std::size_t{64} << 20;
  // A vector that grows by doubling holds up to three times its elements while it moves them.
  static constexpr std::size_t growth = 3;

  explicit CompileBudget(std::uint64_t steps_max = compile_steps_max,
                         std::size_t bytes_max = compile_bytes_max);

  // Counts memory that is held from now on. Throws GrammarError when it is too much.
  void hold(std::size_t bytes);
  void release(std::size_t bytes) { bytes_ -= bytes; }

  std::size_t bytes_peak() const { return bytes_peak_; }

 private:
  std::size_t bytes_max_;
  std::size_t bytes_ = 0, bytes_peak_ = 0;
};

// Memory that is released with what holds it.
class HeldBytes {
 public:
  explicit HeldBytes(CompileBudget& budget, std::size_t bytes = 0) : budget_(&budget) {
    add(bytes);
  }
  ~HeldBytes() { budget_->release(bytes_); }
  HeldBytes(HeldBytes&& other) noexcept
      : budget_(other.budget_), bytes_(std::exchange(other.bytes_, 0)) {}
  HeldBytes& operator=(HeldBytes&& other) noexcept {
    std::swap(bytes_, other.bytes_);  // of the same budget
    return *this;
  }

  void add(std::size_t bytes) {
    budget_->hold(bytes);
    bytes_ += bytes;
  }

 private:
  CompileBudget* budget_;
  std::size_t bytes_ = 0;
};

}  // namespace sluice::constrain
