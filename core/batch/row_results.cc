#include "core/batch/row_results.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "core/rows/answer_body.h"
#include "core/rows/row_problem.h"

namespace sluice::batch {

RowResults::RowResults(const Input& input, const tokenizer::Tokenizer& tokenizer,
                       std::string model_name)
    : input_(input), tokenizer_(tokenizer), model_name_(std::move(model_name)) {}

std::optional<RowResult> RowResults::take(const rows::Task& task, const rows::Outcome& outcome) {
  rows::Completion completion;
  std::string problem = outcome.problem;
  try {
    if (problem.empty()) completion = written(task, outcome.completion);
  } catch (const std::exception& error) {  // a defect, or no memory: of this row alone
    problem = rows::problem_of(error);
  }
  if (task.choices == 1) return result(task, {&completion, 1}, problem);
  const auto [at, is_first] = choices_.try_emplace(task.row);
  Choices& choices = at->second;
  if (is_first) choices = {std::vector<rows::Completion>(task.choices), "", 0, task.choices};
  const bool is_first_problem = choices.problem.empty() || task.choice < choices.problem_choice;
  if (!problem.empty() && is_first_problem) {
    choices.problem = problem;
    choices.problem_choice = task.choice;
  }
  choices.completions[task.choice] = std::move(completion);
  if (--choices.missing != 0) return std::nullopt;
  const Choices all = std::move(choices);
  choices_.erase(at);
  return result(task, all.completions, all.problem);
}

// With its log probabilities as text, and without what depends on other rows.
rows::Completion RowResults::written(const rows::Task& task, rows::Completion completion) const {
  completion.drafted_tokens = completion.accepted_tokens = 0;
  if (!task.top_logprobs) return completion;
  std::uint64_t text_offset = 0;
  completion.logprobs_text = rows::logprobs_text(task.header.form, completion, *task.top_logprobs,
                                                 tokenizer_, text_offset);
  completion.logprobs = {};
  return completion;
}

RowResult RowResults::refused(std::uint64_t row, const rows::RefusedRow& reason) const {
  return error(row, reason.header, reason.code, reason.reason);
}

RowResult RowResults::result(const rows::Task& task, std::span<const rows::Completion> completions,
                             const std::string& problem) const {
  const auto fail = [&](std::string_view why) {
    return error(task.row, task.header, rows::cannot_run, why);
  };
  if (!problem.empty()) return fail(problem);
  try {
    std::string line = result_line(task.row, task.header, model_name_, completions);
    if (line.size() <= result_bytes_max) {
      const bool is_cut = std::ranges::any_of(completions, [](const rows::Completion& completion) {
        return completion.finish == rows::Finish::length;
      });
      const auto bytes = static_cast<std::uint32_t>(line.size());
      return {std::move(line), {.row = task.row, .line_bytes = bytes, .is_cut = is_cut}, {}};
    }
  } catch (const std::exception& error) {
    return fail(rows::problem_of(error));
  }
  return fail(
      fmt::format("the result is longer than {} bytes: lower max_tokens", result_bytes_max));
}

RowResult RowResults::error(std::uint64_t row, const rows::RowHeader& header, std::string_view code,
                            std::string_view reason) const {
  const std::uint64_t number = input_.line_number(row);
  std::string line = error_line(row, header, {code, number, reason});
  const auto bytes = static_cast<std::uint32_t>(line.size());
  return {std::move(line),
          {.row = row, .line_bytes = bytes, .is_error = true, .code = index_of_code(code)},
          fmt::format("line {}: {}", number, reason)};
}

}  // namespace sluice::batch
