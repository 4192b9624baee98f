// Finds tokens that are written out in a text: user-defined tokens always, control tokens on
// request. Longer tokens are found first, anywhere in the text; among tokens of equal length the
// leftmost.
#pragma once

#include <bitset>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/text/keyed_hash.h"
#include "core/tokenizer/vocabulary.h"

namespace sluice::tokenizer {

// A stretch of text: a token that is written out there, or ordinary text (token -1).
struct Fragment {
  std::size_t begin = 0;
  std::size_t end = 0;
  Token token = -1;
};

class SpecialTokens {
 public:
  // `vocabulary` must be classified. Throws ModelError when a token is above piece_bytes_max.
  explicit SpecialTokens(const Vocabulary& vocabulary);

  // The fragments of `text` in order; those of ordinary text are not empty. With `parse_special`
  // control and unknown tokens are found too. Takes time linear in the text, for each different
  // length of tokens.
  std::vector<Fragment> partition(std::string_view text, bool parse_special) const;

  // Whether a token is written out at a place, or anything there belongs to one, depends only on
  // what is before it and on so many bytes from it on.
  std::size_t reach(bool parse_special) const;

 private:
  struct Special {
    Token token;
    bool user_defined;
    bool takes_space;  // see Vocabulary::takes_space
  };
  struct Length {  // all tokens of one length
    std::size_t bytes;
    std::bitset<256> first_bytes;
    std::bitset<256> last_bytes;
    bool any_user_defined = false;
  };

  const Special* at(std::string_view text, std::size_t position, const Length& length,
                    bool parse_special) const;
  void cut(std::string_view text, Fragment fragment, const Length& length, bool parse_special,
           std::vector<Fragment>& out) const;

  std::unordered_map<std::string, Special, text::KeyedHash, std::equal_to<>> by_text_;
  std::vector<Length> lengths_;  // longest first
};

}  // namespace sluice::tokenizer
