#include "core/constrain/budget.h"

#include <algorithm>
#include <fmt/format.h>
#include <string>

#include "core/constrain/grammar_error.h"

namespace sluice::constrain {

void WorkBudget::refuse() const {
  throw GrammarError(std::string(refusal_));
}

TokenBudget::TokenBudget(std::uint64_t steps_max)
    : WorkBudget(steps_max,
                 "the grammar is too ambiguous: it takes too long to find the next tokens") {}

CompileBudget::CompileBudget(std::uint64_t steps_max, std::size_t bytes_max)
    : WorkBudget(steps_max, "the form takes too long to compile: make it smaller"),
      bytes_max_(bytes_max) {}

void CompileBudget::hold(std::size_t bytes) {
  if (bytes > bytes_max_ - bytes_) {
    throw GrammarError(fmt::format(
        "the form is too large: compiling it takes more than {} MiB of memory", bytes_max_ >> 20U));
  }
  bytes_ += bytes;
  bytes_peak_ = std::max(bytes_peak_, bytes_);
}

}  // namespace sluice::constrain
