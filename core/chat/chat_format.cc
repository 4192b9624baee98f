#include "core/chat/chat_format.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"

namespace sluice::chat {
namespace {

using tokenizer::TextPart;
using tokenizer::Token;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view white_space = " \t\n\v\f\r";
  const std::size_t begin = text.find_first_not_of(white_space);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(white_space) + 1 - begin);
}

// The token that a marker is in this vocabulary, or -1 when it is written with ordinary tokens.
Token marker_token(const tokenizer::Tokenizer& tokenizer, std::string_view marker) {
  const TextPart part{marker, true};
  const std::vector<Token> tokens = tokenizer.encode_parts({&part, 1}, {}, false);
  const bool is_token = tokens.size() == 1 && tokenizer.piece(tokens[0], true) == marker;
  return is_token ? tokens[0] : -1;
}

// Files often declare control tokens as user-defined ones, which are found in any text.
bool looks_like_control(std::string_view piece) {
  return piece.size() > 4 && piece.starts_with("<|") && piece.ends_with("|>");
}

void check_system_first(std::span<const Message> messages) {
  for (std::size_t i = 1; i < messages.size(); ++i) {
    if (messages[i].role != Role::system) continue;
    throw UsageError("a system message may only be the first one of a conversation");
  }
}

}  // namespace

ChatFormat::ChatFormat(Family family, const tokenizer::Tokenizer& tokenizer)
    : family_(std::move(family)), tokenizer_(&tokenizer) {
  for (const std::string& marker : family_.markers) {
    if (const Token token = marker_token(tokenizer, marker); token >= 0) {
      marker_tokens_.push_back(token);
    } else {
      stop_texts_.push_back(marker);
    }
  }
  std::ranges::sort(marker_tokens_);
  barred_ = marker_tokens_;
  const auto size = static_cast<Token>(tokenizer.vocabulary_size());
  for (Token token = 0; token < size; ++token) {
    if (looks_like_control(tokenizer.piece(token, true))) barred_.push_back(token);
  }
  std::ranges::sort(barred_);
}

std::vector<Token> ChatFormat::encode(std::span<const Message> messages,
                                      bool add_generation_prompt) const {
  check_system_first(messages);
  std::vector<Token> tokens;
  const bool with_bos = tokenizer_->adds_bos() || family_.wants_bos;
  if (const auto bos = tokenizer_->bos(); bos && with_bos) tokens.push_back(*bos);
  append(std::array<TextPart, 1>{{{family_.preamble, true}}}, tokens);

  const bool has_system = !messages.empty() && messages[0].role == Role::system;
  const std::string_view system = has_system ? content_of(messages[0]) : family_.default_system;
  std::string_view merged_system;  // still to be put in front of the first user message
  if (has_system || !system.empty() || family_.always_has_system) {
    if (family_.system_place == Family::SystemPlace::first_user_turn) {
      merged_system = system;
    } else {
      append(
          std::array<TextPart, 3>{
              {{family_.system.before, true}, {system, false}, {family_.system.after, true}}},
          tokens);
    }
  }
  for (const Message& message : messages.subspan(has_system ? 1 : 0)) {
    if (message.role == Role::assistant) {
      append_answer(message, tokens);
      continue;
    }
    append(std::array<TextPart, 5>{{{family_.user.before, true},
                                    {merged_system, false},
                                    {merged_system.empty() ? "" : "\n\n", false},
                                    {content_of(message), false},
                                    {family_.user.after, true}}},
           tokens);
    merged_system = {};
  }
  if (add_generation_prompt) {
    append(std::array<TextPart, 1>{{{family_.generation_prompt, true}}}, tokens);
  }
  return tokens;
}

bool ChatFormat::ends_answer(Token token) const {
  return tokenizer_->is_end_of_generation(token) ||
         std::ranges::binary_search(marker_tokens_, token);
}

void ChatFormat::append_answer(const Message& message, std::vector<Token>& tokens) const {
  append(std::array<TextPart, 1>{{{family_.generation_prompt, true}}}, tokens);
  if (message.tokens.empty()) {
    append(std::array<TextPart, 3>{{{family_.answer_lead, true},
                                    {content_of(message), false},
                                    {family_.answer_after, true}}},
           tokens);
    return;
  }
  tokens.insert(tokens.end(), message.tokens.begin(), message.tokens.end());
  append(std::array<TextPart, 1>{{{family_.answer_after, true}}}, tokens);
}

// What is appended depends on the tokens before, but never changes them: this is what makes the
// tokens of a conversation a prefix of those of its continuation.
void ChatFormat::append(std::span<const TextPart> parts, std::vector<Token>& tokens) const {
  const bool continues = !tokens.empty() && !tokenizer_->piece(tokens.back()).empty() &&
                         !std::ranges::binary_search(marker_tokens_, tokens.back());
  const std::vector<Token> more = tokenizer_->encode_parts(parts, barred_, continues);
  tokens.insert(tokens.end(), more.begin(), more.end());
}

std::string_view ChatFormat::content_of(const Message& message) const {
  return family_.trims_content ? trimmed(message.content) : std::string_view(message.content);
}

}  // namespace sluice::chat
