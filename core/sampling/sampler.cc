#include "core/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <random>
#include <utility>

#include "core/error.h"
#include "core/sampling/logprobs.h"

namespace sluice::sampling {
namespace {

using tokenizer::Token;

constexpr float lowest = -std::numeric_limits<float>::infinity();

// Written so that NaN, which fails every comparison, is unusable too.
bool usable(float logit) {
  return logit > lowest;
}

// The probability of a logit relative to the best one. Both are finite or +infinity; two infinities
// count as equal.
double weight_of(float logit, float best, double temperature = 1) {
  if (logit == best) return 1;
  return std::exp((static_cast<double>(logit) - static_cast<double>(best)) / temperature);
}

// The greatest usable logit, the lowest id among equals.
Token greatest(std::span<const float> logits) {
  float best = lowest;
  Token token = -1;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > best) {
      best = logits[i];
      token = static_cast<Token>(i);
    }
  }
  return token;
}

[[noreturn]] void throw_nothing_usable(std::span<const float> logits) {
  if (std::ranges::any_of(logits, usable)) {
    throw UsageError(
        "none of the tokens that may come next can be chosen: a form of the text, the least number "
        "of tokens and the tokens that are ruled out leave none");
  }
  throw_no_numbers(logits.size());
}

// Options are named as members of a request, in quotation marks: an error tells its member.
void check(bool in_range, const char* option, double value, const char* range) {
  if (in_range) return;
  throw UsageError(fmt::format("{} is {}, but must be {}", option, value, range));
}

}  // namespace

std::uint64_t random_seed() {
  return std::random_device{}();
}

double RandomGenerator::uniform() {
  return static_cast<double>(next() >> 11) * 0x1p-53;
}

Sampler::Sampler(const SamplerOptions& options, std::shared_ptr<SamplerScratch> scratch)
    : options_(options),
      scratch_(scratch ? std::move(scratch) : std::make_shared<SamplerScratch>()) {
  if (!options_.random) options_.random = std::make_shared<RandomGenerator>(options.seed);
  const auto finite = [](double value) { return std::isfinite(value); };
  check(finite(options.temperature) && options.temperature >= 0, R"("temperature")",
        options.temperature, "0 or more");
  check(options.top_p >= 0 && options.top_p <= 1, R"("top_p")", options.top_p, "from 0 to 1");
  check(options.min_p >= 0 && options.min_p <= 1, R"("min_p")", options.min_p, "from 0 to 1");
  check(finite(options.repeat_penalty) && options.repeat_penalty > 0, R"("repeat_penalty")",
        options.repeat_penalty, "more than 0");
  check(finite(options.presence_penalty), R"("presence_penalty")", options.presence_penalty,
        "finite");
  check(finite(options.frequency_penalty), R"("frequency_penalty")", options.frequency_penalty,
        "finite");
  for (const LogitBias& entry : options.logit_bias) {
    check(finite(entry.bias), "a bias of a logit", entry.bias, "finite");
  }
}

void Sampler::accept_prompt(Token token) {
  if (options_.repeat_penalty != 1 && options_.repeat_last_n != 0) remember(token);
}

void Sampler::accept(Token token) {
  accept_prompt(token);
  if (options_.presence_penalty != 0 || options_.frequency_penalty != 0) ++use_of(token).generated;
}

TokenUse& Sampler::use_of(Token token) {
  const auto at = std::ranges::lower_bound(uses_, token, {}, &TokenUse::token);
  if (at != uses_.end() && at->token == token) return *at;
  return *uses_.insert(at, {token, 0, 0});
}

// Records the token as the newest that the repeat penalty looks at; the oldest may drop out.
void Sampler::remember(Token token) {
  ++use_of(token).recent;
  if (options_.repeat_last_n == SamplerOptions::whole_text) return;
  if (recent_.size() < options_.repeat_last_n) {
    recent_.push_back(token);
    return;
  }
  TokenUse& displaced = use_of(recent_[recent_next_]);
  --displaced.recent;
  if (displaced.recent == 0 && displaced.generated == 0) {
    uses_.erase(uses_.begin() + (&displaced - uses_.data()));
  }
  recent_[recent_next_] = token;
  recent_next_ = (recent_next_ + 1) % recent_.size();
}

Token Sampler::sample(std::span<const float> logits, std::span<const Token> banned,
                      std::span<const std::uint64_t> allowed) {
  const std::span<const float> changed = change(logits, banned, allowed);
  if (options_.temperature == 0) {
    const Token token = greatest(changed);
    if (token < 0) throw_nothing_usable(logits);
    return token;
  }
  std::vector<Candidate>& candidates = scratch_->candidates_;
  candidates.reserve(logits.size());
  candidates.clear();
  if (options_.top_k > 0 && options_.top_k < logits.size()) {
    keep_top_k(changed);
  } else {
    keep_all(changed);
  }
  if (candidates.empty()) throw_nothing_usable(logits);
  filter_by_probability();
  return draw();
}

// The total order of all stages: the greater logit first, the lower id among equals.
bool Sampler::precedes(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// Stage 1. Returns `logits` themselves where nothing changes them.
std::span<const float> Sampler::change(std::span<const float> logits, std::span<const Token> banned,
                                       std::span<const std::uint64_t> allowed) {
  if (options_.logit_bias.empty() && uses_.empty() && banned.empty() && allowed.empty()) {
    return logits;
  }
  std::vector<float>& changed = scratch_->penalised_;
  changed.assign(logits.begin(), logits.end());
  apply_biases(options_.logit_bias, changed);
  apply_penalties({options_.repeat_penalty, options_.presence_penalty, options_.frequency_penalty},
                  uses_, changed);
  ban(banned, changed);
  if (!allowed.empty()) ban_others(allowed, changed);
  return changed;
}

// One pass with a threshold. Candidates gather until there are twice as many as wanted; then the
// better half stays, and its worst logit becomes the threshold. Most logits of a large vocabulary
// cost one comparison. Ids ascend, so a logit equal to the threshold comes later in the order and
// is rightly skipped.
void Sampler::keep_top_k(std::span<const float> logits) {
  std::vector<Candidate>& candidates = scratch_->candidates_;
  const std::size_t k = options_.top_k;
  const auto kept = static_cast<std::ptrdiff_t>(k);
  float threshold = lowest;
  const auto drop_the_rest = [&] {
    std::nth_element(candidates.begin(), candidates.begin() + kept - 1, candidates.end(), precedes);
    candidates.resize(k);
    threshold = candidates.back().logit;
  };
  const std::size_t most = std::min(2 * k, logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > threshold)) continue;
    candidates.push_back({logits[i], static_cast<Token>(i)});
    if (candidates.size() == most) drop_the_rest();
  }
  if (candidates.size() > k) drop_the_rest();
  // The order after nth_element differs between libraries; the order of a sum must not.
  std::sort(candidates.begin(), candidates.end(), precedes);
}

void Sampler::keep_all(std::span<const float> logits) {
  std::vector<Candidate>& candidates = scratch_->candidates_;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (usable(logits[i])) candidates.push_back({logits[i], static_cast<Token>(i)});
  }
}

// Top-p and min-p each keep a prefix of the same sorted sequence, so their order does not matter
// once the probabilities are fixed. Min-p goes first because it needs no sorting and leaves little
// to sort.
void Sampler::filter_by_probability() {
  std::vector<Candidate>& candidates = scratch_->candidates_;
  const float best = std::min_element(candidates.begin(), candidates.end(), precedes)->logit;
  double total = 0;
  if (options_.top_p < 1) {
    for (const Candidate& candidate : candidates) total += weight_of(candidate.logit, best);
  }
  if (options_.min_p > 0) {
    std::erase_if(candidates, [&](const Candidate& candidate) {
      return weight_of(candidate.logit, best) < options_.min_p;
    });
  }
  if (options_.top_p < 1) keep_top_p(total, best);
}

// `total` is the weight of everything that stage 2 kept. Sorts in growing pieces: a peaked
// distribution needs only a few tokens, and the rest is never sorted.
void Sampler::keep_top_p(double total, float best) {
  std::vector<Candidate>& candidates = scratch_->candidates_;
  const double wanted = options_.top_p * total;
  double sum = 0;
  std::size_t sorted = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (i == sorted) {
      sorted = std::min(candidates.size(), std::max<std::size_t>(128, 4 * sorted));
      const auto begin = candidates.begin();
      std::partial_sort(begin + static_cast<std::ptrdiff_t>(i),
                        begin + static_cast<std::ptrdiff_t>(sorted), candidates.end(), precedes);
    }
    sum += weight_of(candidates[i].logit, best);
    if (sum >= wanted) {
      candidates.resize(i + 1);
      return;
    }
  }
}

Token Sampler::draw() {
  const std::vector<Candidate>& candidates = scratch_->candidates_;
  const float best = std::min_element(candidates.begin(), candidates.end(), precedes)->logit;
  double total = 0;
  for (const Candidate& candidate : candidates) {
    total += weight_of(candidate.logit, best, options_.temperature);
  }
  const double target = options_.random->uniform() * total;
  double sum = 0;
  Token last = -1;
  for (const Candidate& candidate : candidates) {
    const double weight = weight_of(candidate.logit, best, options_.temperature);
    if (weight == 0) continue;
    last = candidate.token;
    sum += weight;
    if (target < sum) break;
  }
  return last;
}

}  // namespace sluice::sampling
