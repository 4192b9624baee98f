#include "core/cli/perplexity.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/cli/files.h"
#include "core/cli/interrupt.h"
#include "core/cli/output.h"
#include "core/cli/report.h"
#include "core/cli/sandbox.h"
#include "core/cli/token_reader.h"
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
  std::uint64_t tokens = 0;  // in a window
  std::uint64_t count = 0;
};

// Evaluates tokens that go on with the sequence, and scores `next` and each of them but the first,
// by the logits of the token before it.
void score_tokens(engine::Session& session, std::span<const Token> tokens, Token next,
                  Score& score) {
  session.evaluate_all(tokens, [&](std::size_t index, std::span<const float> logits) {
    throw_if_interrupted();
    const Token scored = index + 1 < tokens.size() ? tokens[index + 1] : next;
    score.add(negative_log_likelihood(logits, scored));
  });
}

class Scoring {
 public:
  Scoring(engine::Engine& engine, TokenReader& text, bool quiet)
      : session_(engine.session()),
        text_(text),
        progress_(quiet),
        bos_(engine.tokenizer().adds_bos() ? engine.tokenizer().bos() : std::nullopt) {}

  // Scores the windows, up to `count_max`. `first` is the beginning of the text: one token more
  // than a window, if there are so many.
  Windows score(std::vector<Token> first, std::uint64_t count_max, Score& score) {
    const std::uint64_t capacity = session_.capacity();
    if (session_.capacity() == unlimited) return score_endless(std::move(first), score);
    Windows windows{std::min<std::uint64_t>(first.size(), capacity), 0};
    const std::size_t first_scored = first.size() <= capacity ? 1 : windows.tokens / 2 + 1;
    for (std::vector<Token>& window = first; window.size() >= windows.tokens;) {
      show(windows.count, score);
      score_window(std::span(window).first(windows.tokens), first_scored, score);
      ++windows.count;
      if (windows.count == count_max) break;
      window.erase(window.begin(), window.begin() + static_cast<std::ptrdiff_t>(windows.tokens));
      text_.read(windows.tokens - window.size(), window);
    }
    progress_.clear();
    return windows;
  }

  // How many tokens to read for score(); of a sequence without an end, as many as are scored
  // together.
  std::size_t first_tokens() const {
    return session_.capacity() == unlimited ? piece_tokens : std::size_t{session_.capacity()} + 1;
  }

 private:
  static constexpr std::uint32_t unlimited = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::size_t piece_tokens = 4096;

  // Each window begins like a separate text: with BOS, if the model wants one.
  void score_window(std::span<Token> tokens, std::size_t first_scored, Score& score) {
    throw_if_interrupted();
    if (bos_) tokens.front() = *bos_;
    session_.clear();
    const std::size_t unscored = first_scored - 1;  // logits that predict no scored token
    if (unscored > 0) session_.evaluate(tokens.first(unscored));
    score_tokens(session_, tokens.subspan(unscored, tokens.size() - 1 - unscored), tokens.back(),
                 score);
  }

  // The whole text as one window; `tokens` has at least two.
  Windows score_endless(std::vector<Token> tokens, Score& score) {
    if (bos_) tokens.front() = *bos_;
    session_.clear();
    while (tokens.size() > 1) {
      show(0, score);
      score_tokens(session_, std::span(tokens).first(tokens.size() - 1), tokens.back(), score);
      tokens.erase(tokens.begin(), tokens.end() - 1);
      text_.read(piece_tokens, tokens);
    }
    progress_.clear();
    return {score.count() + 1, 1};
  }

  void show(std::uint64_t window, const Score& score) {
    const auto so_far = score.count() ? fmt::format(", {:.4f} so far", score.perplexity()) : "";
    progress_.show_now(fmt::format("perplexity: window {}, {} of the text are read{}", window + 1,
                                   text_.progress(), so_far));
  }

  engine::Session& session_;
  TokenReader& text_;
  Progress progress_;
  std::optional<Token> bos_;
};

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
  enter_sandbox(options.common, {.read = {options.file}});
  TextInput input(options.file);
  const RunWatch run;
  const InterruptGuard guard;
  engine::EngineOptions engine_settings = engine_options(options.common);
  if (engine_settings.context == 0 && engine_settings.window == 0) {
    engine_settings.context = context_default;
  }
  if (options.windows_max != 0 && engine_settings.window != 0) {
    throw UsageError("--windows: with a --window the text is a single one: leave it out");
  }
  const bool is_short = engine_settings.context < 4 && engine_settings.window == 0;
  if (is_short) throw UsageError("--ctx must be at least 4 to score a token");
  engine_settings.logits_columns = engine::logits_columns_for_all;
  engine_settings.caller_bytes = TokenReader::bytes_max;
  std::unique_ptr<engine::Engine> engine = open_engine(options.common, engine_settings);
  const std::string name = input.name();
  TokenReader text(std::move(input), *engine, {});
  Scoring scoring(*engine, text, options.common.quiet);
  std::vector<Token> tokens;
  text.read(scoring.first_tokens(), tokens);
  if (tokens.size() < 2) {
    throw UsageError(
        fmt::format("{} has too little text, {} token{}: at least 2 are needed to "
                    "score one",
                    name, tokens.size(), tokens.size() == 1 ? "" : "s"));
  }

  const Stopwatch watch;
  Score score;
  const Windows windows = scoring.score(std::move(tokens), options.windows_max, score);
  const double seconds = watch.seconds();
  print(score, windows, options.json);
  const std::uint64_t evaluated = windows.count * (windows.tokens - 1);
  const RunRecord record(*engine);
  engine.reset();  // frees its memory for measuring the limits
  run.write_report(
      options.common, record,
      {.prefill_tokens_per_s = rate(evaluated, seconds), .decode_tokens_per_s = std::nullopt});
  return 0;
}

}  // namespace sluice::cli
