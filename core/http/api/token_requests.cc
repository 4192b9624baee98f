#include "core/http/api/token_requests.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/http/api/api_error.h"
#include "core/http/api/text_request.h"
#include "core/rows/row_json.h"

namespace sluice::http {
namespace {

using nlohmann::ordered_json;
using rows::RowJson;
using tokenizer::Token;

bool flag(const RowJson& body, std::string_view name) {
  const RowJson* value = rows::find_member(body, name);
  return value != nullptr && rows::truth_of(*value, name);
}

std::vector<Token> tokens_of_text(const tokenizer::Tokenizer& tokenizer, const RowJson& body) {
  const RowJson* content = rows::find_member(body, "content");
  if (content == nullptr) throw rows::BadRow("\"content\" is missing");
  const std::string text = rows::text_of(*content, "content");
  if (text.size() > tokenized_bytes_max) {
    throw rows::BadRow(
        fmt::format("\"content\" has {} bytes, the most is {}", text.size(), tokenized_bytes_max));
  }
  return tokenizer.encode(
      text, {.add_bos = flag(body, "add_special"), .parse_special = flag(body, "parse_special")});
}

}  // namespace

std::string tokenize_answer(const rows::TaskMaker& maker, const tokenizer::Tokenizer& tokenizer,
                            std::string_view body, std::uint64_t number) {
  try {
    const RowJson json = rows::parse_row_object(body);
    std::vector<Token> tokens;
    bool wants_pieces = false;
    if (rows::find_member(json, "messages") != nullptr) {
      tokens = read_text_request(maker, TextRoute::chat, body, number).tasks.front().prompt;
    } else {
      rows::check_members(json, {"content", "add_special", "parse_special", "with_pieces"});
      tokens = tokens_of_text(tokenizer, json);
      wants_pieces = flag(json, "with_pieces");
    }
    ordered_json answer = {{"tokens", tokens}, {"count", tokens.size()}};
    if (wants_pieces) answer["pieces"] = ordered_json::array();
    for (const Token token : tokens) {
      if (wants_pieces) answer["pieces"].push_back(tokenizer.piece(token, true));
    }
    return rows::json_text(answer);
  } catch (const rows::BadRow& bad) {
    throw ApiError(400, bad.what());
  }
}

std::string detokenize_answer(const tokenizer::Tokenizer& tokenizer, std::string_view body) {
  try {
    const RowJson json = rows::parse_row_object(body);
    rows::check_members(json, {"tokens"});
    const RowJson* list = rows::find_member(json, "tokens");
    if (list == nullptr) throw rows::BadRow("\"tokens\" is missing");
    if (!list->is_array()) rows::throw_wrong_type("tokens", "an array of token ids", *list);
    std::vector<Token> tokens;
    for (const RowJson& item : *list) {
      tokens.push_back(
          static_cast<Token>(rows::count_of(item, "tokens", tokenizer.vocabulary_size() - 1)));
    }
    return rows::json_text({{"content", tokenizer.decode(tokens, true)}});
  } catch (const rows::BadRow& bad) {
    throw ApiError(400, bad.what());
  }
}

}  // namespace sluice::http
