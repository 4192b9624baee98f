#include "core/cli/plan_choice.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/cli/json.h"
#include "core/cli/output.h"
#include "core/error.h"
#include "core/text/quoted.h"

namespace sluice::cli {
namespace {

constexpr double bits_most = 9;  // a weight of Q8_0 takes 8.5 with its scale

std::string shown(const Candidate& candidate) {
  return text::escaped(candidate.name, 60);
}

}  // namespace

double Candidate::bits_per_weight() const {
  return 8 * static_cast<double>(weights_bytes) /
         static_cast<double>(std::max<std::uint64_t>(weights, 1));
}

Candidate planned_candidate(std::string name, std::string quant, std::uint64_t bytes,
                            const engine::RunPlanner& planner, const QuickPlan& quick) {
  Candidate out;
  out.name = std::move(name);
  out.quant = std::move(quant);
  out.bytes = bytes;
  out.weights = planner.header().elements();
  out.weights_bytes = planner.header().data_bytes();
  out.fits = quick.run.plan.fits();
  out.least_budget_bytes = quick.run.plan.least_budget_bytes;
  out.streamed_bytes = quick.work.streamed_bytes;
  return out;
}

std::string enough_text(const ChoiceRule& rule) {
  return fmt::format("the {} that {} {:.0f} tokens/s, up to 8 bits a weight",
                     rule.prefers_large_models ? "largest model" : "most precise", rule.does,
                     rule.enough_tokens_per_s);
}

Choice choose(const std::vector<Candidate>& candidates, const ChoiceRule& rule) {
  const auto speed = [](const Candidate& one) { return one.tokens_per_s.value_or(0); };
  const auto best = [&](auto&& is_taken, auto&& value) {
    const Candidate* found = nullptr;
    for (const Candidate& one : candidates) {
      if (!one.fits || !is_taken(one)) continue;
      if (found == nullptr || value(*found) < value(one)) found = &one;
    }
    return found;
  };
  const Candidate* large = best(
      [&](const Candidate& one) {
        return speed(one) >= rule.enough_tokens_per_s && one.bits_per_weight() <= bits_most;
      },
      [&](const Candidate& one) {
        return std::pair(rule.prefers_large_models ? one.weights : 0, one.bytes);
      });
  if (large != nullptr) {
    return {large, enough_text(rule)};
  }
  return {best([](const Candidate&) { return true; }, speed), "the fastest that fits"};
}

std::string candidate_table(const std::vector<Candidate>& candidates, const Choice& choice,
                            std::string_view what, std::string_view step) {
  std::size_t width = what.size();
  for (const Candidate& one : candidates) width = std::max(width, shown(one).size());
  const auto line = [&](std::string_view mark, std::string_view name, std::string_view size,
                        std::string_view quant, std::string_view memory, std::string_view speed) {
    return fmt::format("{:1} {:<{}}{:>12}  {:<10}{:>26}{:>10}\n", mark, name, width, size, quant,
                       memory, speed);
  };
  std::string out = line("", what, "size", "quant", "memory", "tokens/s");
  for (const Candidate& one : candidates) {
    const std::string memory =
        !one.fits ? fmt::format("needs {}", format_bytes(one.least_budget_bytes))
        : one.streamed_bytes == 0
            ? "fits"
            : fmt::format("reads {} a {}", format_bytes(one.streamed_bytes), step);
    out += line(choice.candidate == &one ? "*" : "", shown(one), format_bytes(one.bytes),
                text::escaped(one.quant, 10), memory,
                one.tokens_per_s ? format_speed(*one.tokens_per_s)
                : one.fits       ? "-"
                                 : "");
  }
  return out;
}

nlohmann::ordered_json candidate_json(const Candidate& candidate, const Choice& choice,
                                      const char* speed_name) {
  nlohmann::ordered_json json = {{"name", candidate.name},
                                 {"bytes", candidate.bytes},
                                 {"quant", candidate.quant},
                                 {"fits", candidate.fits},
                                 {"least_budget_bytes", candidate.least_budget_bytes}};
  json["streamed_bytes_per_step"] =
      or_null(candidate.fits ? std::optional(candidate.streamed_bytes) : std::nullopt);
  json[speed_name] = or_null(candidate.tokens_per_s);
  json["is_choice"] = choice.candidate == &candidate;
  return json;
}

void throw_none_fits(std::string_view what, std::uint64_t budget_bytes,
                     const std::vector<Candidate>& candidates) {
  const auto least = std::ranges::min_element(candidates, {}, &Candidate::least_budget_bytes);
  throw Error(
      ExitCode::budget,
      fmt::format("none of the {} fits a budget of {}: the least that one needs is {}", what,
                  format_bytes(budget_bytes), format_bytes(least->least_budget_bytes)));
}

}  // namespace sluice::cli
