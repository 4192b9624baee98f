// The choice of the next token from the logits.
//
// The stages run in the order of llama.cpp's default chain, so that the same settings mean the same
// thing in both programs:
//   1. biases           what the caller adds to logits
//      repeat penalty   logits of recently seen tokens: l / r if l > 0, else l * r (CTRL, Keskar
//                       2019)
//      presence and     logits of generated tokens: l - presence - frequency * count (the API of
//      frequency        OpenAI)
//   2. top-k            keep the k greatest logits
//   3. top-p            keep the fewest tokens whose probabilities reach p (Holtzman 2019)
//   4. min-p            keep tokens at least min_p times as probable as the best (Nguyen 2024)
//   5. temperature      divide the logits that are left by T, and draw one
// The probabilities of stages 3 and 4 are those of the tokens that stage 2 kept, at temperature 1.
// Each stage keeps at least one token. Equal logits are ordered by token id, the lower first.
//
// The same seed and the same logits give the same tokens on every platform: the class has its own
// generator, and all sums are made in double in a fixed order. Only the last bit of exp() is up to
// the platform's library.
//
// Threads: a sampler belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/random.h"
#include "core/sampling/penalties.h"
#include "core/tokenizer/tokenizer.h"

namespace sluice::sampling {

// A seed from the operating system's entropy. It has 32 bits, so that a person can type it again.
std::uint64_t random_seed();

class RandomGenerator {
 public:
  explicit RandomGenerator(std::uint64_t seed) : bits_(seed) {}
  std::uint64_t next() { return bits_.star_star(); }
  double uniform();  // [0, 1), 53 random bits

 private:
  Xoshiro256 bits_;
};

struct SamplerOptions {
  double temperature = 0.8;          // 0: always the most probable token
  std::uint32_t top_k = 40;          // 0: off
  double top_p = 0.95;               // 1: off
  double min_p = 0.05;               // 0: off
  double repeat_penalty = 1.0;       // 1: off
  std::uint32_t repeat_last_n = 64;  // how many of the last tokens it looks at; 0: off
  std::uint64_t seed = 0;
  double presence_penalty = 0;   // 0: off
  double frequency_penalty = 0;  // 0: off
  std::vector<LogitBias> logit_bias = {};
  // Where the numbers come from that choose; null: a generator of its own, begun with the seed. So
  // the answers of a conversation go on with one sequence of numbers.
  std::shared_ptr<RandomGenerator> random = {};

  static constexpr std::uint32_t whole_text = 0xFFFFFFFF;  // for repeat_last_n
};

// Working memory of a choice, as large as the vocabulary. Nothing in it lasts from one choice to
// the next, so all samplers of a thread can share one. Allocates when first used, or when the
// vocabulary grows.
class SamplerScratch {
 public:
  static constexpr std::size_t bytes_per_token = 12;  // of the vocabulary

 private:
  friend class Sampler;
  struct Candidate {
    float logit;
    tokenizer::Token token;
  };
  static_assert(bytes_per_token == sizeof(float) + sizeof(Candidate));
  std::vector<float> penalised_;       // the logits after stage 1
  std::vector<Candidate> candidates_;  // the tokens that remain after each stage
};

class Sampler {
 public:
  // Throws UsageError when an option is out of range. Without `scratch` it makes its own.
  explicit Sampler(const SamplerOptions& options, std::shared_ptr<SamplerScratch> scratch = {});

  // Chooses the next token. `logits`: [vocabulary]. NaN, -infinity and the tokens in `banned` are
  // never chosen, nor, unless `allowed` is empty, those without a bit in it (64 tokens a word, the
  // lowest bit first). When no other token is left it throws: ModelError if none of the logits can
  // be chosen, UsageError if some could be but for `banned` and `allowed`.
  tokenizer::Token sample(std::span<const float> logits,
                          std::span<const tokenizer::Token> banned = {},
                          std::span<const std::uint64_t> allowed = {});

  // Record for the penalties that a token is now part of the text: one that was generated, or one
  // of the prompt. Only the repeat penalty counts tokens of the prompt.
  void accept(tokenizer::Token token);
  void accept_prompt(tokenizer::Token token);

  // The most bytes that a sampler holds for each token of a text, when a penalty is on.
  static constexpr std::uint64_t penalty_bytes_per_token = 2 * sizeof(TokenUse) + 8;

 private:
  using Candidate = SamplerScratch::Candidate;
  static bool precedes(const Candidate& a, const Candidate& b);

  std::span<const float> change(std::span<const float> logits,
                                std::span<const tokenizer::Token> banned,
                                std::span<const std::uint64_t> allowed);
  TokenUse& use_of(tokenizer::Token token);
  void remember(tokenizer::Token token);
  void keep_top_k(std::span<const float> logits);
  void keep_all(std::span<const float> logits);
  void filter_by_probability();
  void keep_top_p(double total, float best);
  tokenizer::Token draw();

  SamplerOptions options_;
  std::vector<TokenUse> uses_;            // indexed by token, if a penalty is on
  std::vector<tokenizer::Token> recent_;  // a ring of the last repeat_last_n tokens
  std::size_t recent_next_ = 0;
  std::shared_ptr<SamplerScratch> scratch_;
};

}  // namespace sluice::sampling
