#include "core/cli/bench_result.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string_view>
#include <utility>

#include "core/cli/json.h"
#include "core/cli/output.h"
#include "topology/cpu_use.h"

namespace sluice::cli {
namespace {

using nlohmann::ordered_json;
using Facts = std::vector<std::pair<std::string, std::string>>;

std::string describe(const BenchResult& result, const std::vector<double>& rates) {
  const auto [least, most] = std::minmax_element(rates.begin(), rates.end());
  return fmt::format("{} tokens/s ({} to {})", format_speed(*speed_of(result, rates)),
                     format_speed(*least), format_speed(*most));
}

std::string text_of(const ordered_json& report, const char* name) {
  return report[name].is_string() ? report[name].get<std::string>() : report[name].dump();
}

std::string bytes_of(const ordered_json& report, const char* name) {
  return report[name].is_null() ? "unknown" : format_bytes(report[name].get<std::uint64_t>());
}

// A field of CSV (RFC 4180).
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string field = "\"";
  for (const char c : text) field += c == '"' ? std::string("\"\"") : std::string(1, c);
  return field + "\"";
}

// A cell of a table in Markdown.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::string number_or_nothing(const std::optional<double>& middle) {
  return middle ? fmt::format("{:.3f}", *middle) : "";
}

void add_speeds(const ordered_json& report, const std::vector<BenchResult>& results, Facts& facts) {
  const auto parallel = report["parallel"].get<unsigned>();
  const std::string together =
      parallel == 1 ? "" : fmt::format(", {} sequences together", parallel);
  for (const BenchResult& result : results) {
    const std::string behind =
        results.size() == 1 ? "" : fmt::format(" behind {}", result.prompt_tokens);
    if (!result.prefill.empty()) {
      facts.emplace_back(fmt::format("prefill of {}", result.prompt_tokens),
                         describe(result, result.prefill));
    }
    if (!result.decode.empty()) {
      facts.emplace_back(fmt::format("decode of {}{}{}", result.generated_tokens, behind, together),
                         describe(result, result.decode));
    }
  }
}

// What is special about the measurements, if anything is.
void add_circumstances(const ordered_json& report, const std::vector<BenchResult>& results,
                       Facts& facts) {
  for (const BenchResult& result : results) {
    if (result.is_cut_short()) {
      facts.emplace_back("", fmt::format("decoding ended after {} of {} tokens, to save time; "
                                         "--repeat N decodes all",
                                         result.decoded_tokens, result.generated_tokens));
    }
    if (result.quiet_repeats() != 0 || result.others.empty()) continue;
    facts.emplace_back("", fmt::format("not from a quiet moment: others took {:.0f} % of the CPUs",
                                       100 * *median(result.others)));
  }
  if (report["machine"]["is_slow_now"].get<bool>()) {
    facts.emplace_back("",
                       "not from a quiet moment: memory or processors gave clearly less than "
                       "they have given before");
  }
}

void add_drafts(const ordered_json& report, Facts& facts) {
  const auto seconds = report["step_seconds_by_drafts"].get<std::vector<double>>();
  for (std::size_t drafts = 1; drafts < seconds.size(); ++drafts) {
    facts.emplace_back(fmt::format("a step with {} guess{}", drafts, drafts == 1 ? "" : "es"),
                       fmt::format("{:.2f} times a step without", seconds[drafts] / seconds[0]));
  }
}

// The limits of the machine, the prediction, and what the run has taken.
void add_limits(const ordered_json& report, Facts& facts) {
  const auto number = [&](const char* name) { return report[name].get<double>(); };
  const auto per_s = [&](const char* name) {
    return fmt::format("{} GB/s", format_speed(number(name) / 1e9));
  };
  const auto tokens = [&](const char* name) {
    return fmt::format("{} tokens/s", format_speed(number(name)));
  };
  facts.emplace_back("decode as planned", tokens("predicted_decode_tokens_per_s"));
  facts.emplace_back("decode at best", tokens("bound_tokens_per_s"));
  facts.emplace_back("DRAM", per_s("dram_bytes_per_s"));
  facts.emplace_back("int8 multiply-adds",
                     fmt::format("{:.0f} G/s", number("int8_macs_per_s") / 1e9));
  facts.emplace_back("disk", per_s("disk_bytes_per_s"));
  for (const auto& note : report["disk_notes"]) facts.emplace_back("", note.get<std::string>());
  facts.emplace_back("weights",
                     fmt::format("{}, {} read for a token, {} of it from the disk",
                                 bytes_of(report, "weights_bytes"), bytes_of(report, "hot_bytes"),
                                 bytes_of(report, "streamed_bytes_per_step")));
  if (report.contains("expert_hit_rate")) {
    facts.emplace_back(
        "experts",
        fmt::format("{:.0f} % of those needed were in memory, {} read for a token, {:.2f} s waited",
                    100 * number("expert_hit_rate"),
                    format_bytes(static_cast<std::uint64_t>(number("expert_bytes_read_per_token"))),
                    number("expert_stall_seconds")));
  }
  facts.emplace_back("memory at its peak",
                     fmt::format("{} ({} planned)", bytes_of(report, "measured_peak_bytes"),
                                 bytes_of(report, "planned_peak_bytes")));
}

}  // namespace

std::optional<double> median(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::uint32_t BenchResult::quiet_repeats() const {
  return static_cast<std::uint32_t>(std::ranges::count_if(
      others, [](double share) { return share < topology::quiet_share_max; }));
}

std::optional<double> speed_of(const BenchResult& result, const std::vector<double>& rates) {
  std::vector<double> quiet;
  for (std::size_t i = 0; i < std::min(rates.size(), result.others.size()); ++i) {
    if (result.others[i] < topology::quiet_share_max) quiet.push_back(rates[i]);
  }
  return median(quiet.empty() ? rates : quiet);
}

ordered_json to_json(const BenchResult& result) {
  ordered_json json;
  json["prompt_tokens"] = result.prompt_tokens;
  json["generated_tokens"] = result.generated_tokens;
  json["prefill_tokens_per_s"] = or_null(speed_of(result, result.prefill));
  json["decode_tokens_per_s"] = or_null(speed_of(result, result.decode));
  json["prefill_tokens_per_s_each"] = result.prefill;
  json["decode_tokens_per_s_each"] = result.decode;
  json["decoded_tokens"] = result.decoded_tokens;
  json["cpu_share_of_others_each"] = result.others;
  json["is_quiet"] = result.quiet_repeats() != 0;
  return json;
}

std::string bench_table(const ordered_json& report, const std::vector<BenchResult>& results) {
  Facts facts;
  facts.emplace_back(
      "model", fmt::format("{} ({})", text_of(report, "model"), text_of(report, "architecture")));
  facts.emplace_back("runs on", fmt::format("{}: {} threads, {}, {}", text_of(report, "cpu"),
                                            text_of(report, "threads"), text_of(report, "isa"),
                                            text_of(report, "io")));
  facts.emplace_back("sluice",
                     fmt::format("{}, {}", text_of(report, "version"), text_of(report, "date")));
  add_speeds(report, results, facts);
  add_circumstances(report, results, facts);
  add_drafts(report, facts);
  add_limits(report, facts);
  return format_facts(facts);
}

std::string bench_csv(const ordered_json& report, const std::vector<BenchResult>& results) {
  constexpr std::array shared{"date",
                              "version",
                              "cpu",
                              "model",
                              "architecture",
                              "weights_bytes",
                              "isa",
                              "io",
                              "threads",
                              "parallel",
                              "streamed_bytes_per_step",
                              "measured_peak_bytes"};
  std::string text =
      fmt::format("{},prompt_tokens,generated_tokens,prefill_tokens_per_s,decode_tokens_per_s\n",
                  fmt::join(shared, ","));
  for (const BenchResult& result : results) {
    for (const char* name : shared) {
      text += (report[name].is_null() ? "" : csv_field(text_of(report, name))) + ",";
    }
    text += fmt::format("{},{},{},{}\n", result.prompt_tokens, result.generated_tokens,
                        number_or_nothing(speed_of(result, result.prefill)),
                        number_or_nothing(speed_of(result, result.decode)));
  }
  return text;
}

std::string bench_markdown(const ordered_json& report, const std::vector<BenchResult>& results) {
  std::string text =
      "| model | weights | cpu | isa | threads | parallel | prompt | prefill, tokens/s | generated "
      "| decode, tokens/s |\n"
      "| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";
  const auto speed = [](const std::optional<double>& middle) {
    return middle ? format_speed(*middle) : std::string();
  };
  for (const BenchResult& result : results) {
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
                        cell(text_of(report, "model")), bytes_of(report, "weights_bytes"),
                        cell(text_of(report, "cpu")), text_of(report, "isa"),
                        text_of(report, "threads"), text_of(report, "parallel"),
                        result.prompt_tokens, speed(speed_of(result, result.prefill)),
                        result.generated_tokens, speed(speed_of(result, result.decode)));
  }
  return text +
         fmt::format("\nsluice {}, {}\n", text_of(report, "version"), text_of(report, "date"));
}

}  // namespace sluice::cli
