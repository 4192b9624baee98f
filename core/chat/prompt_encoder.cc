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

// The places of a text where a tag may begin, in alphabetical order: a vocabulary may have very
// many tags, and a template be long.
class Tags {
 public:
  explicit Tags(std::string_view text) {
    for (std::size_t at = text.find_first_of("<["); at != std::string_view::npos;
         at = text.find_first_of("<[", at + 1)) {
      places_.push_back(text.substr(at, bytes_max));
    }
    std::ranges::sort(places_);
  }

  // Longer ones than bytes_max count as there.
  bool has(std::string_view tag) const {
    const auto place = std::ranges::lower_bound(places_, tag);
    return tag.size() > bytes_max || (place != places_.end() && place->starts_with(tag));
  }

 private:
  static constexpr std::size_t bytes_max = 64;
  std::vector<std::string_view> places_;
};

}  // namespace

std::vector<Token> tokens_like_control(const tokenizer::Tokenizer& tokenizer) {
  return tokens_that(tokenizer, looks_like_control);
}

PromptEncoder::PromptEncoder(const tokenizer::Tokenizer& tokenizer,
                             const ChatTemplate& chat_template)
    : tokenizer_(&tokenizer),
      barred_(
          tokens_that(tokenizer, [tags = Tags(chat_template.sources())](std::string_view piece) {
            if (looks_like_control(piece)) return true;
            const bool is_tag = is_between(piece, "<", ">") || is_between(piece, "[", "]");
            return is_tag && tags.has(piece);
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
