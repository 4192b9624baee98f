#include "core/cli/perplexity.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/cli/files.h"
#include "core/cli/interrupt.h"
#include "core/cli/output.h"
#include "core/cli/report.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

using tokenizer::Token;

constexpr std::uint32_t context_default = 512;  // as in published figures

// The negative log-likelihoods of the tokens scored so far.
class Score {
 public:
  void add(double nll) {
    ++count_;
    sum_ += nll;
    sum_of_squares_ += nll * nll;
  }
  std::uint64_t count() const { return count_; }
  double mean() const { return sum_ / static_cast<double>(count_); }
  double perplexity() const { return std::exp(mean()); }

  // One standard deviation of the perplexity, by the delta method: d exp(x) = exp(x) dx. Nothing
  // for a single token.
  std::optional<double> standard_error() const {
    if (count_ < 2) return std::nullopt;
    const double n = static_cast<double>(count_);
    const double variance = std::max(0.0, sum_of_squares_ / n - mean() * mean());
    return perplexity() * std::sqrt(variance / (n - 1));
  }

 private:
  std::uint64_t count_ = 0;
  double sum_ = 0;
  double sum_of_squares_ = 0;
};

// -log softmax(logits)[token]
double negative_log_likelihood(std::span<const float> logits, Token token) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - top);
  return std::log(sum) + top - logits[static_cast<std::size_t>(token)];
}

// The text, cut into windows that are evaluated separately.
struct Windows {
  std::size_t tokens = 0;  // in a window
  std::size_t count = 0;
  std::size_t first_scored = 0;  // index in the window of the first scored token
};

Windows plan_windows(std::size_t text_tokens, std::uint32_t context, std::uint64_t windows_max) {
  Windows windows;
  windows.tokens = std::min<std::size_t>(text_tokens, context);
  windows.count = text_tokens / windows.tokens;
  windows.first_scored = text_tokens <= context ? 1 : windows.tokens / 2 + 1;
  if (windows_max > 0) windows.count = std::min<std::size_t>(windows.count, windows_max);
  return windows;
}

void score_window(engine::Session& session, std::span<const Token> tokens, std::size_t first_scored,
                  Score& score) {
  session.clear();
  const std::size_t unscored = first_scored - 1;  // logits that predict no scored token
  if (unscored > 0) session.evaluate(tokens.first(unscored));
  const std::span<const Token> scored = tokens.subspan(unscored, tokens.size() - 1 - unscored);
  session.evaluate_all(scored, [&](std::size_t index, std::span<const float> logits) {
    throw_if_interrupted();
    score.add(negative_log_likelihood(logits, tokens[first_scored + index]));
  });
}

// Each window begins like a separate text: with BOS, if the model wants one.
Score score_text(engine::Engine& engine, std::vector<Token>& tokens, const Windows& windows,
                 Progress& progress) {
  const std::optional<Token> bos =
      engine.tokenizer().adds_bos() ? engine.tokenizer().bos() : std::nullopt;
  Score score;
  for (std::size_t i = 0; i < windows.count; ++i) {
    throw_if_interrupted();
    const auto so_far = score.count() ? fmt::format(", {:.4f} so far", score.perplexity()) : "";
    progress.show_now(fmt::format("perplexity: window {} of {}{}", i + 1, windows.count, so_far));
    const std::span<Token> window = std::span(tokens).subspan(i * windows.tokens, windows.tokens);
    if (bos) window.front() = *bos;
    score_window(engine.session(), window, windows.first_scored, score);
  }
  progress.clear();
  return score;
}

void print(const Score& score, const Windows& windows, bool json) {
  const std::optional<double> error = score.standard_error();
  if (json) {
    nlohmann::ordered_json result;
    result["perplexity"] = score.perplexity();
    result["standard_error"] = error ? nlohmann::ordered_json(*error) : nullptr;
    result["tokens_scored"] = score.count();
    result["windows"] = windows.count;
    result["window_tokens"] = windows.tokens;
    write_output(json_text(result));
    return;
  }
  write_output(
      fmt::format("perplexity {:.4f}{} ({} tokens scored in {} of {})\n", score.perplexity(),
                  error ? fmt::format(" +- {:.4f}", *error) : "", score.count(),
                  windows.count == 1 ? "one window" : fmt::format("{} windows", windows.count),
                  windows.tokens));
}

}  // namespace

CLI::App* add_perplexity(CLI::App& program, PerplexityOptions& options) {
  CLI::App* command = add_command(
      program, "perplexity", "Measure how well a model predicts a text",
      "The text is cut into windows of --ctx tokens, each evaluated for itself (a BOS token in\n"
      "place of its first, where the model wants one); the second half of each window is scored,\n"
      "so that every scored token has at least half a window before it. What is left at the end\n"
      "is not used. A text that fits into one window is scored from its second token on.\n"
      "+- is one standard error.\n\n"
      "Example:\n"
      "  sluice perplexity model.gguf -f wiki.test.raw --ctx 2048");
  add_common_options(*command, options.common, std::to_string(context_default));
  command
      ->add_option("-f,--file", options.file, "The file with the text; - reads the standard input")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--windows", options.windows_max, "Score only the first N windows; 0 scores all")
      ->type_name("N")
      ->check(count_between(0, std::numeric_limits<std::uint64_t>::max()))
      ->capture_default_str();
  add_json_option(*command, options.json);
  return command;
}

int run_perplexity(const PerplexityOptions& options) {
  const std::string text = read_text(options.file);
  const RunWatch run;
  const InterruptGuard guard;
  engine::EngineOptions engine_settings = engine_options(options.common);
  if (engine_settings.context == 0 && engine_settings.window == 0) {
    engine_settings.context = context_default;
  }
  const bool is_short = engine_settings.context < 4 && engine_settings.window == 0;
  if (is_short) throw UsageError("--ctx must be at least 4 to score a token");
  engine_settings.logits_columns = engine::logits_columns_for_all;
  std::unique_ptr<engine::Engine> engine = open_engine(options.common, engine_settings);
  std::vector<Token> tokens = engine->tokenizer().encode(text, {});
  if (tokens.size() < 2) {
    throw UsageError(fmt::format("{} has {} tokens: at least 2 are needed to score one",
                                 options.file.string(), tokens.size()));
  }

  const Windows windows =
      plan_windows(tokens.size(), engine->session().capacity(), options.windows_max);
  Progress progress(options.common.quiet);
  const Stopwatch watch;
  const Score score = score_text(*engine, tokens, windows, progress);
  const double seconds = watch.seconds();
  print(score, windows, options.json);
  const std::size_t evaluated = windows.count * (windows.tokens - 1);
  const RunRecord record(*engine);
  engine.reset();  // frees its memory for measuring the limits
  run.write_report(
      options.common, record,
      {.prefill_tokens_per_s = rate(evaluated, seconds), .decode_tokens_per_s = std::nullopt});
  return 0;
}

}  // namespace sluice::cli
