// A conversation with a model, in one sequence of its engine. Tokens that the sequence already
// holds are not computed again: each turn computes only its new tokens.
#pragma once

#include <string>
#include <vector>

#include "core/chat/dialogue.h"
#include "core/cli/chat_setup.h"
#include "core/cli/generation.h"
#include "core/cli/options.h"
#include "core/cli/output.h"

namespace sluice::cli {

struct ChatSettings {
  SamplingOptions sampling;
  std::uint64_t seed = 0;
  std::int64_t tokens_max = -1;  // of an answer; -1: as many as the context allows
  ThinkingOptions thinking;
  std::shared_ptr<const constrain::Constraint> constraint = {};  // of answers; null: they are free
};

class ChatSession {
 public:
  // `engine` and `status` must outlive the session. Throws as chat::Dialogue does.
  ChatSession(engine::Engine& engine, const chat::ChatSource& source, const ChatSettings& settings,
              RunStatus& status);

  // Adds a message and its answer to the conversation, and shows the answer while it is generated.
  // An interrupted answer is kept as far as it came; if there is none yet, the message is removed.
  // Throws UsageError, and leaves the conversation unchanged, when the message does not fit into
  // the context.
  GenerationEnd answer(const std::string& message, AnswerOutput& output, Progress& progress);

  // Removes the last message and its answer from the conversation, and returns the message. Throws
  // UsageError when there is none.
  std::string undo();

  const chat::Dialogue& dialogue() const { return dialogue_; }
  const chat::Conversation& conversation() const { return conversation_; }
  void set_conversation(chat::Conversation conversation);

  const ChatSettings& settings() const { return settings_; }
  void set_settings(const ChatSettings& settings);  // throws, with nothing changed

  const GenerationCounts& counts() const { return counts_; }
  std::uint64_t reused_tokens() const { return reused_tokens_; }  // found in the sequence

 private:
  void keep(std::size_t tokens);
  std::span<const float> evaluate(const std::vector<tokenizer::Token>& tokens, Progress& progress);
  std::unique_ptr<constrain::Guide> make_guide(bool opens_thought) const;
  GenerationEnd generate_answer(std::span<const float> logits, bool opens_thought,
                                AnswerOutput& output);

  engine::Engine& engine_;
  chat::ChatSource source_;
  ChatSettings settings_;
  chat::Dialogue dialogue_;
  RunStatus& status_;
  sampling::Sampler sampler_;
  chat::Conversation conversation_;
  std::vector<tokenizer::Token> held_;  // the tokens that the sequence holds
  GenerationCounts counts_;
  std::uint64_t reused_tokens_ = 0;
  bool has_warned_ = false;  // of a message that the template leaves out
};

}  // namespace sluice::cli
