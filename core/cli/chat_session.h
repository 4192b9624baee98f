// A conversation with a model. Each answer is a text of its own, which goes on with what is held of
// the one before it: each turn computes only its new tokens.
#pragma once

#include <memory>
#include <string>

#include "core/chat/dialogue.h"
#include "core/cli/chat_setup.h"
#include "core/cli/generation.h"
#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/error.h"

namespace sluice::cli {

struct ChatSettings {
  SamplingOptions sampling;
  std::uint64_t seed = 0;
  std::int64_t tokens_max = -1;  // of an answer; -1: as many as the context allows
  ThinkingOptions thinking;
  std::shared_ptr<const constrain::Constraint> constraint = {};  // of answers; null: they are free
};

// The conversation does not fit into the context.
struct ContextFull : UsageError {
  explicit ContextFull(const std::string& what)
      : UsageError(what + ": raise --ctx, or give a --window"), problem(what) {}
  std::string problem;  // without a remedy
};

class ChatSession {
 public:
  // `engine` and `writer` must outlive the session. Throws as chat::Dialogue does.
  ChatSession(const engine::Engine& engine, const chat::ChatSource& source,
              const ChatSettings& settings, TextWriter& writer);

  // Adds a message and its answer to the conversation, and shows the answer while it is generated.
  // An interrupted answer is kept as far as it came; if there is none yet, the message is removed.
  // Throws ContextFull when the message does not fit into the context, and leaves the conversation
  // unchanged whatever it throws.
  GenerationEnd answer(const std::string& message, AnswerOutput& output);

  // Removes the last message and its answer from the conversation, and returns the message. Throws
  // UsageError when there is none.
  std::string undo();

  const chat::Dialogue& dialogue() const { return *dialogue_; }
  const chat::Conversation& conversation() const { return conversation_; }
  void set_conversation(chat::Conversation conversation);

  const ChatSettings& settings() const { return settings_; }
  void set_settings(const ChatSettings& settings);  // throws, with nothing changed

 private:
  chat::DialoguePrompt encode();
  rows::Task make_task(chat::DialoguePrompt prompt) const;
  GenerationEnd write(rows::Task task, TextWriter::Output output);

  const tokenizer::Tokenizer& tokenizer_;
  chat::ChatSource source_;
  ChatSettings settings_;
  TextWriter& writer_;
  std::shared_ptr<const chat::Dialogue> dialogue_;
  chat::Conversation conversation_;
  bool has_warned_ = false;  // of a message that the template leaves out
};

}  // namespace sluice::cli
