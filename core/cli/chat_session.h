// A conversation with a model over one sequence of its engine. What the sequence already holds is
// never computed again: of each turn only the new tokens are.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat/chat_format.h"
#include "core/chat/conversation.h"
#include "core/cli/generation.h"
#include "core/cli/options.h"
#include "core/cli/output.h"

namespace sluice::cli {

class ChatSession {
 public:
  // `engine`, `format` and `status` must outlive the session.
  ChatSession(engine::Engine& engine, const chat::ChatFormat& format,
              const SamplingOptions& sampling, std::uint64_t seed, std::int64_t tokens_max,
              RunStatus& status);

  // Adds a message and its answer to the conversation, and gives the answer to `write` as it comes;
  // `write` returns false to end it. An interrupted answer stays as far as it came; when there is
  // none yet the message is taken back. Throws UsageError, with the conversation as it was, when
  // the message does not fit the context.
  GenerationEnd answer(const std::string& message,
                       const std::function<bool(std::string_view)>& write, Progress& progress);

  const chat::Conversation& conversation() const { return conversation_; }
  void set_conversation(chat::Conversation conversation);

  const GenerationCounts& counts() const { return counts_; }
  std::uint64_t reused_tokens() const { return reused_tokens_; }  // of prompts, not computed again

 private:
  void keep(std::size_t tokens);
  std::span<const float> evaluate(Progress& progress);
  GenerationEnd generate_answer(std::span<const float> logits,
                                const std::function<bool(std::string_view)>& write);

  engine::Engine& engine_;
  const chat::ChatFormat& format_;
  RunStatus& status_;
  engine::Sampler sampler_;
  GenerationOptions generation_;
  chat::Conversation conversation_;
  std::vector<tokenizer::Token> held_;  // the tokens that the sequence holds
  GenerationCounts counts_;
  std::uint64_t reused_tokens_ = 0;
};

}  // namespace sluice::cli
