// The work of a generation, which `run` and `chat` share: a prompt in, tokens out, until something
// ends it; and what it took.
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
#include "core/engine/engine.h"
#include "core/engine/sampler.h"

namespace sluice::cli {

struct GenerationCounts {
  std::size_t prompt_tokens = 0;    // that were computed
  std::size_t restored_tokens = 0;  // that the prompt cache had
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

// Brings a session that holds a part of `tokens`, from their beginning, up to all of them: from the
// prompt cache what an empty session can have of it, the rest by computing it; which the prompt
// cache then keeps. In parts, so that progress is seen and Ctrl-C is heeded. Gives no logits when
// interrupted; the session then holds the parts that were done. At least one token must be missing.
std::span<const float> evaluate_prompt(engine::Session& session,
                                       std::span<const tokenizer::Token> tokens,
                                       GenerationCounts& counts, Progress& progress,
                                       RunStatus& status);

struct GenerationOptions {
  std::uint64_t tokens_max = 0;
  std::vector<std::string> stop_texts;
  // Whether a token ends the text; it is then no part of it.
  std::function<bool(tokenizer::Token)> ends;
  // The text of a token; empty: as the tokenizer has it.
  std::function<std::string_view(tokenizer::Token)> piece;
  // Asked after each token of the model: these come next in its place, whatever `ends` says of
  // them.
  std::function<std::vector<tokenizer::Token>()> forced;
  // Told each token of the text, and the text that is certain with it, which may lag behind. False:
  // nobody wants more.
  std::function<bool(tokenizer::Token, std::string_view)> on_token;
  // Told the rest of the text when the generation has ended.
  std::function<void(std::string_view)> on_end;
};

enum class GenerationEnd {
  text,         // the model ended it
  stop_text,    // a stop text was found
  tokens_max,   // so many were asked for
  context,      // the context is full
  interrupted,  // by a signal
  unwanted,     // on_token said so
};

// Samples tokens, beginning with the logits of the prompt. The session then holds all tokens of the
// text but perhaps the last.
GenerationEnd generate(const GenerationOptions& options, engine::Engine& engine,
                       engine::Sampler& sampler, std::span<const float> logits,
                       GenerationCounts& counts, RunStatus& status);

}  // namespace sluice::cli
