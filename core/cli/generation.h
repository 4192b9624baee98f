// Generation, as `run` and `chat` share it: evaluates a prompt, then generates tokens until
// something ends the text, and measures both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/cli/output.h"
#include "core/cli/report.h"
#include "core/cli/run_status.h"
#include "core/constrain/guide.h"
#include "core/engine/engine.h"
#include "core/sampling/sampler.h"

namespace sluice::cli {

struct GenerationCounts {
  std::size_t prompt_tokens = 0;    // computed
  std::size_t restored_tokens = 0;  // found in the prompt cache
  double prompt_seconds = 0;
  std::uint64_t generated_tokens = 0;
  std::uint64_t steps = 0;  // evaluations of one token: the last token needs none
  double steps_seconds = 0;

  Throughput throughput() const {
    return {.prefill_tokens_per_s = rate(prompt_tokens, prompt_seconds),
            .decode_tokens_per_s = rate(steps, steps_seconds)};
  }
};

// "prompt 12 tokens (80.00 tokens/s), generated 5 tokens (7.00 tokens/s)".
std::string generation_line(const GenerationCounts& counts);

// Brings a session that holds a prefix of a text up to the `tokens` that begin at position `begin`
// of it. An empty session first takes what the prompt cache has; the rest is computed, and the
// beginning of a text is then saved in the prompt cache. Works in parts, so that progress is shown
// and Ctrl-C is noticed. Returns no logits when interrupted; the session then holds the finished
// parts. At least one token must be missing.
std::span<const float> evaluate_prompt(engine::Session& session,
                                       std::span<const tokenizer::Token> tokens,
                                       std::uint64_t begin, GenerationCounts& counts,
                                       Progress& progress, RunStatus& status);

struct GenerationOptions {
  std::uint64_t tokens_max = 0;
  std::vector<std::string> stop_texts;
  // Whether a token ends the text. Such a token is not part of the text.
  std::function<bool(tokenizer::Token)> ends;
  // The text of a token; empty: the tokenizer's.
  std::function<std::string_view(tokenizer::Token)> piece;
  // Keeps the text to a grammar, at whose end the text ends; null: the text is free.
  constrain::Guide* guide = nullptr;
  // Called after each token of the model. The tokens that it returns come next, in the model's
  // place, whatever `ends` says about them.
  std::function<std::vector<tokenizer::Token>()> forced;
  // Called with each token of the text, and with the text that is now certain, which may lag
  // behind. Returns false to end the generation.
  std::function<bool(tokenizer::Token, std::string_view)> on_token;
  // Called with the rest of the text when the generation has ended.
  std::function<void(std::string_view)> on_end;
};

enum class GenerationEnd {
  text,         // the model ended the text
  stop_text,    // a stop text was found
  tokens_max,   // as many tokens as were asked for
  context,      // the context is full
  interrupted,  // by a signal
  unwanted,     // on_token returned false
};

// Samples tokens, the first from the logits of the prompt. Afterwards the session holds all tokens
// of the text, perhaps without the last.
GenerationEnd generate(const GenerationOptions& options, engine::Engine& engine,
                       sampling::Sampler& sampler, std::span<const float> logits,
                       GenerationCounts& counts, RunStatus& status);

}  // namespace sluice::cli
