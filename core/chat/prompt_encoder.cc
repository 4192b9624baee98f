#include "core/chat/prompt_encoder.h"

#include <algorithm>
#include <string_view>

namespace sluice::chat {
namespace {

using tokenizer::TextPart;
using tokenizer::Token;

bool is_between(std::string_view piece, std::string_view open, std::string_view close) {
  return piece.size() > open.size() + close.size() && piece.starts_with(open) &&
         piece.ends_with(close);
}

template <class Predicate>
std::vector<Token> tokens_that(const tokenizer::Tokenizer& tokenizer, Predicate predicate) {
  std::vector<Token> tokens;
  const auto size = static_cast<Token>(tokenizer.vocabulary_size());
  for (Token token = 0; token < size; ++token) {
    if (predicate(tokenizer.piece(token, true))) tokens.push_back(token);
  }
  return tokens;
}

bool looks_like_control(std::string_view piece) {
  return is_between(piece, "<|", "|>");
}

}  // namespace

std::vector<Token> tokens_like_control(const tokenizer::Tokenizer& tokenizer) {
  return tokens_that(tokenizer, looks_like_control);
}

PromptEncoder::PromptEncoder(const tokenizer::Tokenizer& tokenizer,
                             const ChatTemplate& chat_template)
    : tokenizer_(&tokenizer),
      barred_(tokens_that(tokenizer, [&chat_template](std::string_view piece) {
        if (looks_like_control(piece)) return true;
        const bool is_tag = is_between(piece, "<", ">") || is_between(piece, "[", "]");
        return is_tag && chat_template.mentions(piece);
      })) {}

std::vector<Token> PromptEncoder::encode(const jinja::Text& prompt) const {
  std::vector<TextPart> parts;
  std::size_t begin = 0;
  for (const jinja::Text::Run& run : prompt.runs()) {
    const auto text = std::string_view(prompt.bytes()).substr(begin, run.end - begin);
    parts.push_back({text, run.origin == jinja::Origin::markup});
    begin = run.end;
  }
  std::vector<Token> tokens = tokenizer_->encode_parts(parts, barred_, false);
  const auto bos = tokenizer_->adds_bos() ? tokenizer_->bos() : std::nullopt;
  const bool has_bos = !tokens.empty() && tokens[0] == bos;
  if (bos && !has_bos) tokens.insert(tokens.begin(), *bos);
  return tokens;
}

}  // namespace sluice::chat
