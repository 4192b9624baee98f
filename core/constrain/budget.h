// What a grammar may cost. Schemas and grammars come from anybody, so whatever takes work or memory
// because of one is counted where it is taken, against one budget for all that belongs together:
// one for compiling a form, and one for finding or taking a token.
//
// Threads: used by one thread.
#pragma once

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

 private:
  [[noreturn]] void refuse() const;

  std::uint64_t steps_max_;
  std::uint64_t used_ = 0;
  std::string_view refusal_;
};

// One token of a text: its mask, or its bytes. A walk over the tree of a large vocabulary takes
// about a million steps, and a token may need several walks.
class TokenBudget : public WorkBudget {
 public:
  static constexpr std::uint64_t token_steps_max = std::uint64_t{1} << 25;
  explicit TokenBudget(std::uint64_t steps_max = token_steps_max);
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
