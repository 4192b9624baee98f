#include "core/cli/chat_session.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "core/error.h"

namespace sluice::cli {
namespace {

using tokenizer::Token;

engine::SamplerOptions sampler_options(const SamplingOptions& sampling, std::uint64_t seed) {
  engine::SamplerOptions options = sampling.sampler;
  options.seed = seed;
  return options;
}

std::size_t common_prefix(std::span<const Token> a, std::span<const Token> b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

ChatSession::ChatSession(engine::Engine& engine, const chat::ChatFormat& format,
                         const SamplingOptions& sampling, std::uint64_t seed,
                         std::int64_t tokens_max, RunStatus& status)
    : engine_(engine), format_(format), status_(status), sampler_(sampler_options(sampling, seed)) {
  generation_.tokens_max = static_cast<std::uint64_t>(tokens_max);  // -1: never reached
  generation_.stop_texts = sampling.stop;
  generation_.stop_texts.insert(generation_.stop_texts.end(), format.stop_texts().begin(),
                                format.stop_texts().end());
  generation_.ends = [&](Token token) { return format_.ends_answer(token); };
}

GenerationEnd ChatSession::answer(const std::string& message,
                                  const std::function<bool(std::string_view)>& write,
                                  Progress& progress) {
  conversation_.push_back({chat::Role::user, message});
  std::span<const float> logits;
  try {
    logits = evaluate(progress);
  } catch (const UsageError&) {
    conversation_.pop_back();
    throw;
  }
  if (logits.empty()) {
    conversation_.pop_back();
    return GenerationEnd::interrupted;
  }
  return generate_answer(logits, write);
}

void ChatSession::set_conversation(chat::Conversation conversation) {
  conversation_ = std::move(conversation);
}

// Brings the sequence up to the generation prompt. Gives no logits when interrupted.
std::span<const float> ChatSession::evaluate(Progress& progress) {
  engine::Session& session = engine_.session();
  const std::vector<Token> tokens = format_.encode(conversation_, true);
  if (tokens.size() > session.capacity()) {
    throw UsageError(fmt::format(
        "the conversation, with this message, has {} tokens, but the context holds {}: begin anew "
        "with /reset, or start with a larger --ctx or with a --window",
        tokens.size(), session.capacity()));
  }
  // The last token is computed in any case, for its logits.
  keep(std::min(common_prefix(held_, tokens), tokens.size() - 1));
  const std::size_t reused = session.position();
  reused_tokens_ += reused;
  for (std::size_t i = reused; i < tokens.size(); ++i) sampler_.accept(tokens[i]);
  held_ = tokens;
  const std::span<const float> logits =
      evaluate_prompt(session, tokens, counts_, progress, status_);
  held_.resize(session.position());
  return logits;
}

// Forgets all but the first tokens of the sequence; or all of them, when a window has slid since.
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

// White space at the beginning of an answer belongs to the format, and is not given out.
GenerationEnd ChatSession::generate_answer(std::span<const float> logits,
                                           const std::function<bool(std::string_view)>& write) {
  chat::Message answer{chat::Role::assistant, {}};
  const auto take = [&](std::string_view text) {
    if (answer.content.empty()) {
      text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    }
    answer.content += text;
    return write(text);
  };
  generation_.on_token = [&](Token token, std::string_view text) {
    answer.tokens.push_back(token);
    return take(text);
  };
  generation_.on_end = [&](std::string_view text) { take(text); };
  const GenerationEnd end = generate(generation_, engine_, sampler_, logits, counts_, status_);
  held_.insert(held_.end(), answer.tokens.begin(), answer.tokens.end());
  held_.resize(engine_.session().position());
  // The tokens hold the stop text, which the content does not.
  if (end == GenerationEnd::stop_text) answer.tokens.clear();
  conversation_.push_back(std::move(answer));
  return end;
}

}  // namespace sluice::cli
