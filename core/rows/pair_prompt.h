// The prompt of a reranker: a query and a text that it rates.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/tokenizer/tokenizer.h"

namespace sluice::rows {

class PairPrompt {
 public:
  // `written` is the file's template (EngineFacts::rerank_template), or empty: then the two stand
  // one behind the other, as Tokenizer::encode_pair says. `tokenizer` must outlive this.
  PairPrompt(const tokenizer::Tokenizer& tokenizer, std::string_view written);

  // Control tokens written out in the query or the text are ordinary text.
  std::vector<tokenizer::Token> encode(std::string_view query, std::string_view text) const;

 private:
  // A piece of the template: markup, or a place for one of the two.
  struct Piece {
    enum class Kind { markup, query, text } kind;
    std::string markup = {};
  };

  const tokenizer::Tokenizer& tokenizer_;
  std::vector<Piece> pieces_;  // none: there is no template
};

}  // namespace sluice::rows
