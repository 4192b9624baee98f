// The tokens of a vocabulary by their bytes, as a tree: tokens that begin alike share the path from
// the root, so that an automaton reads their common bytes once.
//
// Only ordinary tokens are in it (see Tokenizer::is_ordinary), and white space of any kind of
// token: control tokens are no text. Besides them there are marks: control tokens that a grammar
// names. Their bytes begin with one that no UTF-8 has, so no other grammar ever allows them, and no
// other token stands for a part of them.
//
// Threads: immutable after construction; any number of threads may use one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tokenizer/tokenizer.h"

namespace sluice::constrain {

// The bytes that stand for a control token in a grammar.
std::string mark_bytes(tokenizer::Token token);

class TokenTrie {
 public:
  // The nodes stand in the order of a walk (children behind their parent). The root is not stored.
  struct Node {
    std::uint32_t end;       // the node behind the last descendant
    tokenizer::Token token;  // that ends here; -1: none
    std::uint16_t depth;     // bytes from the root, at least 1
    std::uint8_t byte;
  };

  // Reads the pieces of `tokenizer`, which is not needed afterwards.
  explicit TokenTrie(const tokenizer::Tokenizer& tokenizer,
                     std::span<const tokenizer::Token> marks = {});

  const std::vector<Node>& nodes() const { return nodes_; }
  // Pairs of tokens with the same bytes; the first of them is in the tree.
  const std::vector<std::pair<tokenizer::Token, tokenizer::Token>>& twins() const { return twins_; }
  std::size_t vocabulary_size() const { return pieces_end_.size(); }
  std::size_t longest() const { return longest_; }  // bytes of a token

  // The bytes of a token; empty when the token is not in the tree.
  std::string_view piece(tokenizer::Token token) const;

  std::size_t bytes() const {  // held in memory
    return nodes_.capacity() * sizeof(Node) + pieces_.capacity() +
           pieces_end_.capacity() * sizeof(std::uint32_t) + twins_.capacity() * sizeof(twins_[0]);
  }

 private:
  void add_nodes(const std::vector<tokenizer::Token>& sorted);

  std::vector<Node> nodes_;
  std::vector<std::pair<tokenizer::Token, tokenizer::Token>> twins_;
  std::string pieces_;  // end to end
  std::vector<std::uint32_t> pieces_end_;
  std::size_t longest_ = 0;
};

}  // namespace sluice::constrain
