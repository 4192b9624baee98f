#include "core/cli/chat_session.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <utility>

#include "core/error.h"
#include "core/rows/answer_guide.h"

namespace sluice::cli {
namespace {

using tokenizer::Token;

sampling::SamplerOptions sampler_options(const ChatSettings& settings) {
  sampling::SamplerOptions options = settings.sampling.sampler;
  options.seed = settings.seed;
  return options;
}

std::size_t common_prefix(std::span<const Token> a, std::span<const Token> b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

ChatSession::ChatSession(engine::Engine& engine, const chat::ChatSource& source,
                         const ChatSettings& settings, RunStatus& status)
    : engine_(engine),
      source_(source),
      settings_(settings),
      dialogue_(source, engine.tokenizer(), dialogue_options(settings.thinking.think)),
      status_(status),
      sampler_(sampler_options(settings)) {}

void ChatSession::set_settings(const ChatSettings& settings) {
  sampling::Sampler sampler(sampler_options(settings));
  chat::Dialogue dialogue(source_, engine_.tokenizer(), dialogue_options(settings.thinking.think));
  for (const Token token : held_) sampler.accept(token);
  sampler_ = std::move(sampler);
  dialogue_ = std::move(dialogue);
  settings_ = settings;
}

GenerationEnd ChatSession::answer(const std::string& message, AnswerOutput& output,
                                  Progress& progress) {
  conversation_.push_back({chat::Role::user, message});
  std::span<const float> logits;
  chat::DialoguePrompt prompt;
  try {
    prompt = dialogue_.encode(conversation_);
    if (!prompt.warning.empty() && !std::exchange(has_warned_, true)) warn(prompt.warning);
    logits = evaluate(prompt.tokens, progress);
  } catch (const UsageError&) {
    conversation_.pop_back();
    throw;
  }
  if (logits.empty()) {
    conversation_.pop_back();
    return GenerationEnd::interrupted;
  }
  return generate_answer(logits, prompt.opens_thought, output);
}

std::string ChatSession::undo() {
  const auto is_user = [](const chat::Message& m) { return m.role == chat::Role::user; };
  const auto last = std::find_if(conversation_.rbegin(), conversation_.rend(), is_user);
  if (last == conversation_.rend()) throw UsageError("there is no message to take back");
  std::string message = std::move(last->content);
  conversation_.erase(last.base() - 1, conversation_.end());
  return message;
}

void ChatSession::set_conversation(chat::Conversation conversation) {
  conversation_ = std::move(conversation);
}

// Evaluates all tokens up to the generation prompt. Returns no logits when interrupted.
std::span<const float> ChatSession::evaluate(const std::vector<Token>& tokens, Progress& progress) {
  engine::Session& session = engine_.session();
  if (tokens.size() > session.capacity()) {
    throw UsageError(fmt::format(
        "the conversation, with this message, has {} tokens, but the context holds {}: begin anew "
        "with /reset, or start with a larger --ctx or with a --window",
        tokens.size(), session.capacity()));
  }
  // The last token is always computed, for its logits.
  keep(std::min(common_prefix(held_, tokens), tokens.size() - 1));
  const std::size_t reused = session.position();
  reused_tokens_ += reused;
  for (std::size_t i = reused; i < tokens.size(); ++i) sampler_.accept(tokens[i]);
  held_ = tokens;
  const std::span<const float> logits =
      evaluate_prompt(session, tokens, 0, counts_, progress, status_);
  held_.resize(session.position());
  progress.clear();
  return logits;
}

// Keeps only the first tokens of the sequence; none if a window has slid past them.
void ChatSession::keep(std::size_t tokens) {
  if (tokens == held_.size()) return;
  engine::Session& session = engine_.session();
  try {
    session.truncate(static_cast<std::uint32_t>(tokens));
  } catch (const UsageError&) {
    session.clear();
  }
  held_.resize(session.position());
}

std::unique_ptr<constrain::Guide> ChatSession::make_guide(bool opens_thought) const {
  if (!settings_.constraint) return nullptr;
  auto ends = tokenizer::tokens_where(engine_.tokenizer(),
                                      [this](Token token) { return dialogue_.ends_answer(token); });
  return std::make_unique<constrain::Guide>(
      settings_.constraint, std::make_shared<const std::vector<Token>>(std::move(ends)),
      rows::thought_gate(dialogue_, opens_thought, dialogue_.thought_openers()));
}

// White space at the beginning of an answer belongs to the format, and is not shown.
GenerationEnd ChatSession::generate_answer(std::span<const float> logits, bool opens_thought,
                                           AnswerOutput& output) {
  chat::Message answer{chat::Role::assistant, {}};
  chat::AnswerReader reader(dialogue_, opens_thought, nullptr);
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
  std::uint64_t thought_tokens = 0;
  bool is_ended = false;  // whether the thought was ended in the model's place
  GenerationOptions generation;
  generation.tokens_max = static_cast<std::uint64_t>(settings_.tokens_max);  // -1: never reached
  generation.stop_texts = settings_.sampling.stop;
  std::ranges::copy(dialogue_.stop_texts(), std::back_inserter(generation.stop_texts));
  generation.ends = [&](Token token) { return dialogue_.ends_answer(token); };
  const std::unique_ptr<constrain::Guide> guide = make_guide(opens_thought);
  generation.guide = guide.get();
  generation.piece = [&](Token token) { return dialogue_.piece(token, false); };
  generation.on_token = [&](Token token, std::string_view text) {
    answer.tokens.push_back(token);
    const bool is_wanted = take(reader.feed(text));
    if (reader.is_thinking()) ++thought_tokens;
    return is_wanted;
  };
  generation.forced = [&]() -> std::vector<Token> {
    const bool is_over = settings_.thinking.tokens_max && reader.is_thinking() && !is_ended &&
                         thought_tokens >= *settings_.thinking.tokens_max;
    if (!is_over) return {};
    is_ended = true;
    return dialogue_.end_of_thought();
  };
  generation.on_end = [&](std::string_view text) {
    take(reader.feed(text));
    take(reader.finish());
  };
  const GenerationEnd end = generate(generation, engine_, sampler_, logits, counts_, status_);
  held_.insert(held_.end(), answer.tokens.begin(), answer.tokens.end());
  held_.resize(engine_.session().position());
  // The tokens include the stop text, the content does not.
  if (end == GenerationEnd::stop_text) answer.tokens.clear();
  conversation_.push_back(std::move(answer));
  return end;
}

}  // namespace sluice::cli
