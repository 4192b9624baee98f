#include "core/cli/bench.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "core/cli/bench_allowance.h"
#include "core/cli/bench_result.h"
#include "core/cli/interrupt.h"
#include "core/cli/output.h"
#include "core/cli/report.h"
#include "core/cli/sandbox.h"
#include "core/cli/speculation.h"
#include "core/error.h"
#include "topology/cpu_use.h"

namespace sluice::cli {
namespace {

using tokenizer::Token;

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

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Waits some seconds for others to let the CPUs rest, if they do not.
void wait_for_quiet() {
  constexpr double patience = 3;
  constexpr auto look = std::chrono::milliseconds(200);
  for (const Stopwatch waited; waited.seconds() < patience;) {
    const topology::OthersWatch others;
    std::this_thread::sleep_for(look);
    if (others.share().value_or(0) < topology::quiet_share_max) return;
    throw_if_interrupted();
  }
}

// Evaluates a prompt, and then steps with a token of each sequence, as run and batch do, but
// without sampling. The other sequences begin as forks of the first.
void measure_once(engine::Engine& engine, const BenchOptions& options, RandomTokens& random,
                  BenchAllowance& allowance, BenchResult& result) {
  const std::uint32_t length = result.prompt_tokens + result.generated_tokens;
  const std::vector<Token> prompt = random.next(result.prompt_tokens);
  Sequences sequences;
  sequences.push_back(engine.new_sequence(length));
  sequences.back()->expect(result.prompt_tokens);
  const Stopwatch prefill;
  evaluate_prompt(engine, *sequences.front(), prompt);
  if (const auto speed = rate(prompt.size(), prefill.seconds())) result.prefill.push_back(*speed);
  while (sequences.size() < options.parallel) {
    sequences.push_back(engine.fork(*sequences.front(), result.prompt_tokens, length));
  }
  std::vector<engine::SequenceWork> works;
  const Stopwatch decode;
  std::uint32_t steps = 0;
  for (; steps < result.generated_tokens && allowance.wants_step(seconds_now(), steps); ++steps) {
    throw_if_interrupted();
    const std::vector<Token> tokens = random.next(sequences.size());
    works.clear();
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      works.push_back({sequences[s].get(), std::span(tokens).subspan(s, 1), true});
    }
    engine.step(works);
    allowance.end_step();
  }
  result.decoded_tokens = std::min(result.decoded_tokens, steps);
  const std::uint64_t decoded = std::uint64_t{steps} * sequences.size();
  if (const auto speed = rate(decoded, decode.seconds())) result.decode.push_back(*speed);
}

std::uint32_t repeats_with_drafts(const BenchOptions& options) {
  return options.repeat != 0 ? options.repeat : BenchAllowance::repeats;
}

// The longest prompt, and then a token of each step that is measured with guesses.
std::uint32_t positions_with_drafts(const BenchOptions& options) {
  const std::uint32_t most = options.common.speculate.draft_max;
  return std::ranges::max(options.prompt_tokens) + (1 + most) * repeats_with_drafts(options) + most;
}

// Measures steps of a token and so many guesses, all of them wrong.
double seconds_with_drafts(const BenchOptions& options, engine::Engine& engine,
                           engine::Sequence& sequence, std::size_t drafts, RandomTokens& random) {
  std::vector<double> seconds;
  for (std::uint32_t i = 0; i < repeats_with_drafts(options); ++i) {
    throw_if_interrupted();
    const std::vector<Token> tokens = random.next(1 + drafts);
    const engine::SequenceWork work{&sequence, tokens, true, {}, drafts};
    const Stopwatch watch;
    engine.step({&work, 1});
    seconds.push_back(watch.seconds());
    if (drafts != 0) sequence.accept(0);
  }
  return *median(seconds);
}

// Seconds of a step of one token of a text, and of steps that check 1, 2, ... guesses beside it.
std::vector<double> measure_drafts(const BenchOptions& options, engine::Engine& engine) {
  std::vector<double> seconds;
  if (options.common.speculate.is_off() || !engine.facts().takes_drafts) return seconds;
  RandomTokens random(engine.facts().vocabulary);
  Progress progress(options.common.quiet);
  progress.show_now("bench: steps with guesses");
  const std::uint32_t most = std::min(
      {options.common.speculate.draft_max, engine.step_logits() - 1, engine.step_columns() - 1});
  const auto sequence = engine.new_sequence(positions_with_drafts(options));
  if (!sequence) return seconds;
  evaluate_prompt(engine, *sequence, random.next(std::ranges::max(options.prompt_tokens)));
  for (std::size_t drafts = 0; drafts <= most; ++drafts) {
    seconds.push_back(seconds_with_drafts(options, engine, *sequence, drafts, random));
  }
  return seconds;
}

// Every -p with every -n, but for those that measure nothing.
std::vector<BenchResult> combinations(const BenchOptions& options) {
  std::vector<BenchResult> results;
  for (const std::uint32_t prompt : options.prompt_tokens) {
    for (const std::uint32_t generated : options.generated_tokens) {
      if (prompt == 0 && generated == 0) continue;
      results.push_back({prompt, generated, {}, {}, {}, generated});
    }
  }
  if (results.empty()) throw UsageError("there is nothing to measure: -p and -n are both 0");
  return results;
}

void measure(const BenchOptions& options, engine::Engine& engine,
             std::vector<BenchResult>& results) {
  RandomTokens random(engine.facts().vocabulary);
  Progress progress(options.common.quiet);
  progress.show_now("bench: warming up");
  evaluate_prompt(engine, *engine.new_sequence(1), random.next(1));
  BenchAllowance allowance(options.repeat, results.size(), engine.facts().work.streamed_bytes);
  wait_for_quiet();
  for (BenchResult& result : results) {
    allowance.begin_result(seconds_now());
    for (std::uint32_t i = 0; allowance.wants_repeat(seconds_now(), i, result.quiet_repeats());
         ++i) {
      throw_if_interrupted();
      progress.show_now(fmt::format("bench: -p {} -n {}, repeat {}", result.prompt_tokens,
                                    result.generated_tokens, i + 1));
      const topology::OthersWatch others;
      allowance.begin_repeat(seconds_now());
      measure_once(engine, options, random, allowance, result);
      allowance.end_repeat(seconds_now());
      result.others.push_back(others.share().value_or(0));
    }
  }
}

}  // namespace

CLI::App* add_bench(CLI::App& program, BenchOptions& options) {
  CLI::App* command = add_command(
      program, "bench", "Measure the speed of a model and the limits of the machine",
      "Evaluates -p random tokens together (prefill) and then -n tokens one by one (decode), from\n"
      "an empty context, --repeat times after one untimed token; shows the median and the range.\n"
      "Without --repeat it measures 3 times, or as often as fits into 30 s and 32 GB read from "
      "the\n"
      "disk, and ends a decode early that would take longer. It prefers moments in which others\n"
      "leave the processors alone, and says when it found none.\n"
      "With --parallel N, N sequences decode together, and the speed is that of all together.\n"
      "-p 64,128 -n 16,32 measures each prompt with each length.\n"
      "Then measures how fast this machine reads memory and the model's disk, since no program\n"
      "can decode faster than it reads the weights. Shows what `sluice plan` predicts, too.\n"
      "Random tokens have no guesses; with --speculate auto it measures how long steps take that\n"
      "check 1 to --draft-max of them, and with --draft how long it takes to find one.\n\n"
      "Examples:\n"
      "  sluice bench model.gguf -p 512 -n 64 --repeat 5 --json\n"
      "  sluice bench model.gguf -p 64,128 -n 16,32 --format md");
  add_common_options(*command, options.common, "-p and -n together");
  add_trace_option(*command, options.common);
  add_speculate_options(*command, options.common, "off");
  constexpr std::uint32_t most = std::uint32_t{1} << 30;
  const auto counts = [&](const char* name, std::vector<std::uint32_t>& values, const char* help) {
    add_number_list(*command, name, values, help, count_between(0, most))
        ->type_name("N,N")
        ->default_str(std::to_string(values.front()));
  };
  counts("-p,--prompt-tokens", options.prompt_tokens,
         "Numbers of prompt tokens; 0 measures no prefill");
  counts("-n,--tokens", options.generated_tokens,
         "Numbers of tokens to decode; 0 measures no decode. Each is measured behind each prompt");
  const auto count = [&](const char* name, std::uint32_t& value, const char* help) {
    return command->add_option(name, value, help)->type_name("N")->check(count_between(1, most));
  };
  count("--parallel", options.parallel, "Number of sequences that decode together")
      ->capture_default_str();
  count("--repeat", options.repeat,
        "Number of measurements, each of which is then made whole (default: up to 3 in 30 s)");
  CLI::Option* format = command
                            ->add_option("--format", options.format,
                                         "How to print the results; csv and md have a line for "
                                         "each, json all measurements")
                            ->check(one_of({"table", "csv", "md", "json"}))
                            ->type_name("table|csv|md|json")
                            ->capture_default_str();
  command->add_flag("--json", options.json, "The same as --format json")->excludes(format);
  return command;
}

int run_bench(const BenchOptions& options) {
  enter_sandbox(options.common, {});
  std::vector<BenchResult> results = combinations(options);
  const std::uint32_t total =
      std::ranges::max(options.prompt_tokens) + std::ranges::max(options.generated_tokens);
  if (options.common.context != 0 && options.common.window == 0 && options.common.context < total) {
    throw UsageError(fmt::format("--ctx is {}, but -p and -n need {}: leave it out",
                                 options.common.context, total));
  }
  const RunWatch run;
  const InterruptGuard guard;
  engine::EngineOptions engine_settings = engine_options(options.common);
  if (engine_settings.context == 0 && engine_settings.window == 0) {
    engine_settings.context = total;
    if (engine_settings.drafts != 0) {
      engine_settings.context = std::max(total, positions_with_drafts(options));
    }
  }
  engine_settings.parallel = options.parallel;
  std::unique_ptr<engine::Engine> engine = open_engine(options.common, engine_settings);

  measure(options, *engine, results);
  const std::vector<double> step_seconds_by_drafts = measure_drafts(options, *engine);
  const double draft_seconds_each = draft_seconds(options.common.speculate, *engine);
  const RunRecord record(*engine);
  close_draft_model(options.common.speculate);
  engine.reset();  // frees its memory for measuring the limits

  const BenchResult& first = results.front();
  Throughput throughput{.prefill_tokens_per_s = speed_of(first, first.prefill),
                        .decode_tokens_per_s = speed_of(first, first.decode)};
  if (throughput.decode_tokens_per_s) {
    throughput.steps_per_s = *throughput.decode_tokens_per_s / options.parallel;
  }
  nlohmann::ordered_json report = run.report(options.common, record, throughput);
  const double step_seconds =
      engine::RunPlanner(options.common.model)
          .rehearse_step(engine_settings, record.facts.work.usual_hit_rate())
          .seconds;
  report["predicted_decode_tokens_per_s"] = options.parallel / step_seconds;
  report.update(to_json(first));
  report["results"] = nlohmann::ordered_json::array();
  for (const BenchResult& result : results) report["results"].push_back(to_json(result));
  report_drafts(options.common.speculate, {}, report);
  report["step_seconds_by_drafts"] = step_seconds_by_drafts;
  if (draft_seconds_each > 0) report["draft_seconds_each"] = draft_seconds_each;
  const std::string format = options.json ? "json" : options.format;
  write_output(format == "json"  ? json_text(report)
               : format == "csv" ? bench_csv(report, results)
               : format == "md"  ? bench_markdown(report, results)
                                 : fit_terminal(bench_table(report, results)));
  write_report_file(options.common, report);
  options.common.trace->end();
  return 0;
}

}  // namespace sluice::cli
