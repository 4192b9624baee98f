#include "core/cli/generation.h"

#include <algorithm>
#include <deque>
#include <fmt/format.h>
#include <iterator>
#include <optional>

#include "core/cli/interrupt.h"
#include "core/sampling/text_stream.h"

namespace sluice::cli {

using tokenizer::Token;

std::string generation_line(const GenerationCounts& counts) {
  const auto speed = [](std::optional<double> tokens_per_s) {
    return tokens_per_s ? fmt::format(" ({:.2f} tokens/s)", *tokens_per_s) : std::string();
  };
  const Throughput throughput = counts.throughput();
  const std::string restored =
      counts.restored_tokens == 0
          ? ""
          : fmt::format(" and {} from the prompt cache", counts.restored_tokens);
  return fmt::format("prompt {} tokens{}{}, generated {} tokens{}", counts.prompt_tokens,
                     speed(throughput.prefill_tokens_per_s), restored, counts.generated_tokens,
                     speed(throughput.decode_tokens_per_s));
}

std::span<const float> evaluate_prompt(engine::Session& session, std::span<const Token> tokens,
                                       std::uint64_t begin, GenerationCounts& counts,
                                       Progress& progress, RunStatus& status) {
  // The last token is always computed, for its logits.
  if (session.position() == 0) {
    counts.restored_tokens += session.restore(tokens.first(tokens.size() - 1));
  }
  const std::size_t held = session.position() - begin;
  const std::size_t part = engine::EngineOptions{}.chunk;
  const double seconds_before = counts.prompt_seconds;
  const Stopwatch watch;
  std::span<const float> logits;
  for (std::size_t done = held; done < tokens.size();) {
    const auto next = tokens.subspan(done, std::min(part, tokens.size() - done));
    progress.show(fmt::format("prompt: {} of {} tokens, {:.1f} tokens/s", begin + done,
                              begin + tokens.size(),
                              rate(done - held, watch.seconds()).value_or(0)));
    try {
      logits = session.evaluate(next, tokens.size() - done - next.size());
    } catch (const Interrupted&) {
      return {};
    }
    done += next.size();
    counts.prompt_tokens += next.size();
    status.add_tokens(next.size());
    counts.prompt_seconds = seconds_before + watch.seconds();
    if (begin == 0) session.save(tokens.first(done));
  }
  progress.clear();
  return logits;
}

namespace {

Token choose_token(constrain::Guide* guide, sampling::Sampler& sampler,
                   std::span<const float> logits) {
  if (guide == nullptr) return sampler.sample(logits);
  const std::optional<Token> only = guide->only_choice();
  return only ? *only : sampler.sample(logits, {}, guide->allowed());
}

GenerationEnd generate_tokens(const GenerationOptions& options, engine::Engine& engine,
                              sampling::Sampler& sampler, std::span<const float> logits,
                              sampling::TextStream& stream, GenerationCounts& counts,
                              RunStatus& status) {
  engine::Session& session = engine.session();
  const double seconds_before = counts.steps_seconds;
  const Stopwatch watch;
  std::deque<Token> forced;
  for (std::uint64_t generated = 0; generated < options.tokens_max;) {
    if (interrupt_signal() != 0) return GenerationEnd::interrupted;  // no step for the last token
    const bool is_forced = !forced.empty();
    const Token token = is_forced ? forced.front() : choose_token(options.guide, sampler, logits);
    if (is_forced) forced.pop_front();
    if (!is_forced && options.ends(token)) return GenerationEnd::text;
    ++generated;
    ++counts.generated_tokens;
    sampler.accept(token);
    const std::string_view piece =
        options.piece ? options.piece(token) : engine.tokenizer().piece(token);
    if (options.guide != nullptr) options.guide->take(token, piece);
    const std::string_view text = stream.push(piece);
    if (!options.on_token(token, text)) return GenerationEnd::unwanted;
    if (options.forced && forced.empty())
      std::ranges::copy(options.forced(), std::back_inserter(forced));
    if (stream.stopped()) return GenerationEnd::stop_text;
    if (options.guide != nullptr && options.guide->is_complete()) return GenerationEnd::text;
    if (generated == options.tokens_max) break;
    if (session.position() == session.capacity()) return GenerationEnd::context;
    try {
      logits = session.evaluate({&token, 1});
    } catch (const Interrupted&) {
      return GenerationEnd::interrupted;
    }
    ++counts.steps;
    status.add_tokens(1);
    counts.steps_seconds = seconds_before + watch.seconds();
  }
  return GenerationEnd::tokens_max;
}

}  // namespace

GenerationEnd generate(const GenerationOptions& options, engine::Engine& engine,
                       sampling::Sampler& sampler, std::span<const float> logits,
                       GenerationCounts& counts, RunStatus& status) {
  sampling::TextStream stream(options.stop_texts);
  const GenerationEnd end =
      generate_tokens(options, engine, sampler, logits, stream, counts, status);
  status.rest();
  options.on_end(stream.finish());
  return end;
}

}  // namespace sluice::cli
