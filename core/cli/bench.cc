#include "core/cli/bench.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "core/cli/interrupt.h"
#include "core/cli/output.h"
#include "core/cli/report.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

using tokenizer::Token;

// Tokens per second in each repeat; empty when nothing was measured.
struct Rates {
  std::vector<double> prefill;
  std::vector<double> decode;
};

std::optional<double> median(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// The same tokens in every run of the program. No two of a step or of a measurement depend on each
// other: tokens that come again find their experts in memory.
class RandomTokens {
 public:
  explicit RandomTokens(std::uint32_t vocabulary) : vocabulary_(vocabulary) {}

  std::vector<Token> next(std::size_t count) {
    std::vector<Token> tokens(count);
    for (Token& token : tokens) token = static_cast<Token>(random_.next() % vocabulary_);
    return tokens;
  }

 private:
  std::uint32_t vocabulary_;
  sampling::RandomGenerator random_{1};
};

using Sequences = std::vector<std::unique_ptr<engine::Sequence>>;

// Evaluates a prompt of one sequence in as few steps as possible.
void evaluate_prompt(engine::Engine& engine, engine::Sequence& sequence,
                     std::span<const Token> prompt) {
  while (!prompt.empty()) {
    const std::size_t count = std::min<std::size_t>(prompt.size(), engine.step_columns());
    const engine::SequenceWork work{&sequence, prompt.first(count), count == prompt.size()};
    engine.step({&work, 1});
    prompt = prompt.subspan(count);
  }
}

// Evaluates a prompt, and then steps with a token of each sequence, as run and batch do, but
// without sampling. The other sequences begin as forks of the first.
void measure_once(engine::Engine& engine, const BenchOptions& options, RandomTokens& random,
                  Rates& rates) {
  const std::uint32_t length = options.prompt_tokens + options.generated_tokens;
  const std::vector<Token> prompt = random.next(options.prompt_tokens);
  Sequences sequences;
  sequences.push_back(engine.new_sequence(length));
  sequences.back()->expect(options.prompt_tokens);
  const Stopwatch prefill;
  evaluate_prompt(engine, *sequences.front(), prompt);
  if (const auto speed = rate(prompt.size(), prefill.seconds())) rates.prefill.push_back(*speed);
  while (sequences.size() < options.parallel) {
    sequences.push_back(engine.fork(*sequences.front(), options.prompt_tokens, length));
  }
  std::vector<engine::SequenceWork> works;
  const Stopwatch decode;
  for (std::uint32_t i = 0; i < options.generated_tokens; ++i) {
    throw_if_interrupted();
    const std::vector<Token> tokens = random.next(sequences.size());
    works.clear();
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      works.push_back({sequences[s].get(), std::span(tokens).subspan(s, 1), true});
    }
    engine.step(works);
  }
  const std::uint64_t decoded = std::uint64_t{options.generated_tokens} * sequences.size();
  if (const auto speed = rate(decoded, decode.seconds())) rates.decode.push_back(*speed);
}

Rates measure(const BenchOptions& options, engine::Engine& engine) {
  RandomTokens random(engine.facts().vocabulary);
  Progress progress(options.common.quiet);
  progress.show_now("bench: warming up");
  evaluate_prompt(engine, *engine.new_sequence(1), random.next(1));
  Rates rates;
  for (std::uint32_t i = 0; i < options.repeat; ++i) {
    throw_if_interrupted();
    progress.show_now(fmt::format("bench: repeat {} of {}", i + 1, options.repeat));
    measure_once(engine, options, random, rates);
  }
  return rates;
}

std::string describe(const std::vector<double>& rates) {
  const auto [least, most] = std::minmax_element(rates.begin(), rates.end());
  return fmt::format("{:.2f} tokens/s ({:.2f} to {:.2f})", *median(rates), *least, *most);
}

std::string table(const BenchOptions& options, const Rates& rates,
                  const nlohmann::ordered_json& report) {
  const auto number = [&](const char* name) { return report[name].get<double>(); };
  const auto bytes = [&](const char* name) {
    return report[name].is_null() ? "unknown" : format_bytes(report[name].get<std::uint64_t>());
  };
  const auto speed = [&](const char* name) {
    return fmt::format("{:.2f} GB/s", number(name) / 1e9);
  };
  std::vector<std::pair<std::string, std::string>> facts;
  facts.emplace_back("model", fmt::format("{} ({})", options.common.model.string(),
                                          report["architecture"].get<std::string>()));
  facts.emplace_back(
      "runs on", fmt::format("{} threads, {}, {}", report["threads"].get<unsigned>(),
                             report["isa"].get<std::string>(), report["io"].get<std::string>()));
  if (!rates.prefill.empty()) {
    facts.emplace_back(fmt::format("prefill of {}", options.prompt_tokens),
                       describe(rates.prefill));
  }
  if (!rates.decode.empty()) {
    const std::string together =
        options.parallel == 1 ? "" : fmt::format(", {} sequences together", options.parallel);
    facts.emplace_back(fmt::format("decode of {}{}", options.generated_tokens, together),
                       describe(rates.decode));
  }
  facts.emplace_back("decode as planned",
                     fmt::format("{:.2f} tokens/s", number("predicted_decode_tokens_per_s")));
  facts.emplace_back("decode at best",
                     fmt::format("{:.2f} tokens/s", number("bound_tokens_per_s")));
  facts.emplace_back("DRAM", speed("dram_bytes_per_s"));
  facts.emplace_back("int8 multiply-adds",
                     fmt::format("{:.0f} G/s", number("int8_macs_per_s") / 1e9));
  facts.emplace_back("disk", speed("disk_bytes_per_s"));
  for (const auto& note : report["disk_notes"]) facts.emplace_back("", note.get<std::string>());
  facts.emplace_back("weights", fmt::format("{}, {} read for a token, {} of it from the disk",
                                            bytes("weights_bytes"), bytes("hot_bytes"),
                                            bytes("streamed_bytes_per_step")));
  if (report.contains("expert_hit_rate")) {
    facts.emplace_back(
        "experts",
        fmt::format("{:.0f} % of those needed were in memory, {} read for a token, {:.2f} s waited",
                    100 * number("expert_hit_rate"),
                    format_bytes(static_cast<std::uint64_t>(number("expert_bytes_read_per_token"))),
                    number("expert_stall_seconds")));
  }
  facts.emplace_back(
      "memory at its peak",
      fmt::format("{} ({} planned)", bytes("measured_peak_bytes"), bytes("planned_peak_bytes")));
  return format_facts(facts);
}

}  // namespace

CLI::App* add_bench(CLI::App& program, BenchOptions& options) {
  CLI::App* command = add_command(
      program, "bench", "Measure the speed of a model and the limits of the machine",
      "Evaluates -p random tokens together (prefill) and then -n tokens one by one (decode), from\n"
      "an empty context, --repeat times after one untimed token; shows the median and the range.\n"
      "With --parallel N, N sequences decode together, and the speed is that of all together.\n"
      "Then measures how fast this machine reads memory and the model's disk, since no program\n"
      "can decode faster than it reads the weights. Shows what `sluice plan` predicts, too.\n\n"
      "Example:\n"
      "  sluice bench model.gguf -p 512 -n 64 --repeat 5 --json");
  add_common_options(*command, options.common, "-p and -n together");
  add_trace_option(*command, options.common);
  const auto count = [&](const char* name, std::uint32_t& value, std::uint32_t least,
                         const char* help) {
    command->add_option(name, value, help)
        ->type_name("N")
        ->check(count_between(least, std::uint32_t{1} << 30))
        ->capture_default_str();
  };
  count("-p,--prompt-tokens", options.prompt_tokens, 0,
        "Number of prompt tokens; 0 measures no prefill");
  count("-n,--tokens", options.generated_tokens, 0,
        "Number of tokens to decode; 0 measures no decode");
  count("--parallel", options.parallel, 1, "Number of sequences that decode together");
  count("--repeat", options.repeat, 1, "Number of measurements");
  add_json_option(*command, options.json);
  return command;
}

int run_bench(const BenchOptions& options) {
  const std::uint32_t total = options.prompt_tokens + options.generated_tokens;
  if (total == 0) throw UsageError("there is nothing to measure: -p and -n are both 0");
  if (options.common.context != 0 && options.common.window == 0 && options.common.context < total) {
    throw UsageError(fmt::format("--ctx is {}, but -p and -n need {}: leave it out",
                                 options.common.context, total));
  }
  const RunWatch run;
  const InterruptGuard guard;
  engine::EngineOptions engine_settings = engine_options(options.common);
  if (engine_settings.context == 0 && engine_settings.window == 0) {
    engine_settings.context = total;
  }
  engine_settings.parallel = options.parallel;
  std::unique_ptr<engine::Engine> engine = open_engine(options.common, engine_settings);

  const Rates rates = measure(options, *engine);
  const RunRecord record(*engine);
  engine.reset();  // frees its memory for measuring the limits

  nlohmann::ordered_json report = run.report(
      options.common, record,
      {.prefill_tokens_per_s = median(rates.prefill), .decode_tokens_per_s = median(rates.decode)});
  const double step_seconds = engine::rehearse_run(options.common.model, engine_settings).seconds;
  report["predicted_decode_tokens_per_s"] = options.parallel / step_seconds;
  report["prompt_tokens"] = options.prompt_tokens;
  report["generated_tokens"] = options.generated_tokens;
  report["prefill_tokens_per_s_each"] = rates.prefill;
  report["decode_tokens_per_s_each"] = rates.decode;
  write_output(options.json ? json_text(report) : fit_terminal(table(options, rates, report)));
  write_report_file(options.common, report);
  return 0;
}

}  // namespace sluice::cli
