#include "core/cli/chat_session.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <utility>

#include "core/error.h"
#include "core/rows/answer_guide.h"

namespace sluice::cli {

using tokenizer::Token;

ChatSession::ChatSession(const engine::Engine& engine, const chat::ChatSource& source,
                         const ChatSettings& settings, TextWriter& writer)
    : tokenizer_(engine.tokenizer()), source_(source), writer_(writer) {
  set_settings(settings);
}

// The answers go on with one sequence of random numbers, until the settings change.
void ChatSession::set_settings(const ChatSettings& settings) {
  ChatSettings changed = settings;
  changed.sampling.sampler.random = std::make_shared<sampling::RandomGenerator>(settings.seed);
  const sampling::Sampler checked(changed.sampling.sampler);
  dialogue_ = std::make_shared<const chat::Dialogue>(source_, tokenizer_,
                                                     dialogue_options(settings.thinking.think));
  settings_ = std::move(changed);
}

// White space at the beginning of an answer belongs to the format, and is not shown.
GenerationEnd ChatSession::answer(const std::string& message, AnswerOutput& output) {
  conversation_.push_back({chat::Role::user, message});
  chat::DialoguePrompt prompt = encode();
  chat::Message answer{chat::Role::assistant, {}};
  chat::AnswerReader reader(*dialogue_, prompt.opens_thought, nullptr, {},
                            settings_.constraint != nullptr);
  const auto take = [&](const chat::SplitText& split) {
    answer.thought += split.thought;
    output.thought(split.thought);
    std::string_view text = split.answer;
    if (answer.content.empty()) {
      text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    }
    answer.content += text;
    return output.text(text);
  };
  const auto take_token = [&](const rows::TokenEvent& event) {
    if (event.token) answer.tokens.push_back(*event.token);
    return take(reader.feed(event.text));
  };
  const GenerationEnd end = write(make_task(std::move(prompt)), take_token);
  take(reader.finish());
  if (end == GenerationEnd::interrupted && answer.tokens.empty()) {
    conversation_.pop_back();
    return end;
  }
  // The tokens include the stop text, the content does not.
  if (end == GenerationEnd::stop_text) answer.tokens.clear();
  conversation_.push_back(std::move(answer));
  return end;
}

// A message that cannot be answered is forgotten, so that the next one stands behind an answer.
GenerationEnd ChatSession::write(rows::Task task, TextWriter::Output output) {
  try {
    return writer_.write(std::move(task), settings_.tokens_max, std::move(output));
  } catch (...) {
    conversation_.pop_back();
    throw;
  }
}

std::string ChatSession::undo() {
  const auto is_user = [](const chat::Message& m) { return m.role == chat::Role::user; };
  const auto last = std::find_if(conversation_.rbegin(), conversation_.rend(), is_user);
  if (last == conversation_.rend()) throw UsageError("there is no message yet");
  std::string message = std::move(last->content);
  conversation_.erase(last.base() - 1, conversation_.end());
  return message;
}

void ChatSession::set_conversation(chat::Conversation conversation) {
  conversation_ = std::move(conversation);
}

// The tokens of the conversation, up to where its answer begins. If it cannot be answered, its last
// message is removed.
chat::DialoguePrompt ChatSession::encode() {
  try {
    chat::DialoguePrompt prompt = dialogue_->encode(conversation_);
    if (!prompt.warning.empty() && !std::exchange(has_warned_, true)) warn(prompt.warning);
    if (prompt.tokens.size() <= writer_.positions_max()) return prompt;
    throw ContextFull(fmt::format(
        "{} {} tokens, but the context holds {}",
        conversation_.size() == 1 ? "the message has" : "the conversation, with this message, has",
        prompt.tokens.size(), writer_.positions_max()));
  } catch (const UsageError&) {
    conversation_.pop_back();
    throw;
  }
}

rows::Task ChatSession::make_task(chat::DialoguePrompt prompt) const {
  rows::Task task;
  task.prompt = std::move(prompt.tokens);
  task.sampler = settings_.sampling.sampler;
  task.stop = settings_.sampling.stop;
  std::ranges::copy(dialogue_->stop_texts(), std::back_inserter(task.stop));
  task.end_tokens = std::make_shared<const std::vector<Token>>(tokenizer::tokens_where(
      tokenizer_, [this](Token token) { return dialogue_->ends_answer(token); }));
  task.piece = [this](Token token) { return dialogue_->piece(token, false); };
  if (const auto& most = settings_.thinking.tokens_max) {
    task.watch = [this, opens_thought = prompt.opens_thought, most = *most] {
      return rows::limit_thought(dialogue_, opens_thought, most);
    };
  }
  if (settings_.constraint) {
    task.guide = [this, ends = task.end_tokens, opens_thought = prompt.opens_thought] {
      return std::make_unique<constrain::Guide>(
          settings_.constraint, ends,
          rows::thought_gate(*dialogue_, opens_thought, dialogue_->thought_openers()));
    };
  }
  return task;
}

}  // namespace sluice::cli
