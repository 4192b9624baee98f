#include "core/chat/chat_format.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/chat/prompt_encoder.h"
#include "core/error.h"

namespace sluice::chat {
namespace {

using tokenizer::TextPart;
using tokenizer::Token;

std::string_view stripped(std::string_view text) {
  constexpr std::string_view spaces = " \t\n\v\f\r";
  const std::size_t begin = text.find_first_not_of(spaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(spaces) + 1 - begin);
}

// The token of a marker in this vocabulary, or -1 if it has to be written with ordinary tokens.
Token marker_token(const tokenizer::Tokenizer& tokenizer, std::string_view marker) {
  const TextPart part{marker, true};
  const std::vector<Token> tokens = tokenizer.encode_parts({&part, 1}, {}, false);
  const bool is_token = tokens.size() == 1 && tokenizer.piece(tokens[0], true) == marker;
  return is_token ? tokens[0] : -1;
}

// The number of system messages at the beginning of the conversation.
std::size_t count_leading_systems(std::span<const Message> messages) {
  const auto is_system = [](const Message& message) { return message.role == Role::system; };
  return static_cast<std::size_t>(std::ranges::find_if_not(messages, is_system) - messages.begin());
}

// A format that writes the system text into the first user turn has no place for a second one.
void check_systems(const Family& family, std::span<const Message> messages) {
  if (family.system_place == Family::SystemPlace::turn) return;
  for (std::size_t i = count_leading_systems(messages); i < messages.size(); ++i) {
    if (messages[i].role != Role::system) continue;
    throw UsageError("this chat format has a place for system messages only at the beginning");
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
  // Many files declare control tokens as user-defined ones, which are recognised in any text.
  barred_ = tokens_like_control(tokenizer);
  barred_.insert(barred_.end(), marker_tokens_.begin(), marker_tokens_.end());
  std::ranges::sort(barred_);
}

std::vector<Token> ChatFormat::encode(std::span<const Message> messages,
                                      bool add_generation_prompt) const {
  check_systems(family_, messages);
  std::vector<Token> tokens;
  const bool with_bos = tokenizer_->adds_bos() || family_.wants_bos;
  if (const auto bos = tokenizer_->bos(); bos && with_bos) tokens.push_back(*bos);
  append(std::array<TextPart, 1>{{{family_.preamble, true}}}, tokens);

  const auto append_turn = [&](const Family::Turn& turn, std::string_view lead,
                               std::string_view content) {
    const std::string_view joint = lead.empty() || content.empty() ? "" : "\n\n";
    append(std::array<TextPart, 5>{{{turn.before, true},
                                    {lead, false},
                                    {joint, false},
                                    {content, false},
                                    {turn.after, true}}},
           tokens);
  };
  // System messages at the beginning become one text; later ones, if allowed, become turns of their
  // own.
  const std::size_t systems = count_leading_systems(messages);
  std::string system;
  for (const Message& message : messages.first(systems)) {
    system.append(system.empty() ? "" : "\n\n").append(content_of(message));
  }
  const bool is_merged = family_.system_place == Family::SystemPlace::first_user_turn;
  std::string_view merged;  // to be put in front of the first user message
  if (is_merged) merged = system;
  if (!is_merged && systems != 0) append_turn(family_.system, {}, system);
  for (const Message& message : messages.subspan(systems)) {
    if (message.role == Role::assistant) {
      if (!merged.empty()) append_turn(family_.user, {}, std::exchange(merged, {}));
      append_answer(message, tokens);
    } else if (message.role == Role::system) {
      append_turn(family_.system, {}, content_of(message));
    } else {
      append_turn(family_.user, std::exchange(merged, {}), content_of(message));
    }
  }
  if (add_generation_prompt) {
    if (!merged.empty()) append_turn(family_.user, {}, merged);
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

// Appends tokens and never changes the tokens before them. So the tokens of a conversation are a
// prefix of those of its continuation.
void ChatFormat::append(std::span<const TextPart> parts, std::vector<Token>& tokens) const {
  const bool continues = !tokens.empty() && !tokenizer_->piece(tokens.back()).empty() &&
                         !std::ranges::binary_search(marker_tokens_, tokens.back());
  const std::vector<Token> more = tokenizer_->encode_parts(parts, barred_, continues);
  tokens.insert(tokens.end(), more.begin(), more.end());
}

std::string_view ChatFormat::content_of(const Message& message) const {
  return family_.trims_content ? stripped(message.content) : std::string_view(message.content);
}

}  // namespace sluice::chat
