// Sequences that nobody runs, kept for rows that begin with the same tokens, and for rows that go
// on later.
//
// It is a list, searched from end to end: that costs microseconds where a step costs at least
// milliseconds. A tree of tokens would save no pages, since sequences that begin alike share theirs
// already: dropping one frees only what no other one has.
//
// Threads: used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "core/engine/engine.h"
#include "core/tokenizer/tokenizer.h"

namespace sluice::serve {

// How many tokens both begin with.
std::size_t common_tokens(std::span<const tokenizer::Token> a, std::span<const tokenizer::Token> b);

// The best of some sequences: it can be forked after its first `tokens` tokens.
struct PrefixMatch {
  const engine::Sequence* sequence = nullptr;
  std::uint32_t tokens;  // without a sequence: others must share more than this
  bool is_long = false;  // which kind of text it is for; others are no help

  // Takes a sequence that shares more of `wanted`. `held` are its tokens.
  void consider(const engine::Sequence& other, std::span<const tokenizer::Token> held,
                std::span<const tokenizer::Token> wanted);
};

class KeptPrefixes {
 public:
  explicit KeptPrefixes(std::size_t kept_max) : kept_max_(kept_max) {}

  // Makes the best of `match` and what is kept; what is taken counts as used.
  void find(std::span<const tokenizer::Token> wanted, PrefixMatch& match);

  // Keeps a sequence that holds `tokens`; its reservation shrinks to them. Drops those that have
  // become superfluous, and the one that was not used for longest when there are too many.
  void add(std::vector<tokenizer::Token> tokens, std::unique_ptr<engine::Sequence> sequence);

  // Takes the only sequence that is kept, if `match` is with it: what cannot be forked for lack of
  // room can go on in place. It has the tokens of the match then, and room for `positions`; null
  // when there is no room even for that.
  std::unique_ptr<engine::Sequence> take_only(const PrefixMatch& match, std::uint32_t positions);

  // Drops the sequence that was not used for longest. Returns false when there is none.
  bool drop_oldest();

  std::size_t tokens() const;  // of all sequences

 private:
  struct Kept {
    std::vector<tokenizer::Token> tokens;
    std::unique_ptr<engine::Sequence> sequence;
  };
  std::size_t kept_max_;
  std::list<Kept> kept_;  // the one that was used last at the end
};

}  // namespace sluice::serve
