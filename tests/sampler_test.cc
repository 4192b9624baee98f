// The sampler: each stage against a reference that sorts everything, the draw against the softmax
// that it should follow, and the input that a broken model may give.
#include "core/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "core/error.h"
#include "core/gguf/gguf.h"
#include "core/gguf/gguf_writer.h"
#include "core/sampling/logprobs.h"
#include "core/sampling/model_defaults.h"
#include "core/sampling/penalties.h"
#include "tests/catch.h"
#include "tests/german_locale.h"

namespace sluice::sampling {
namespace {

using tokenizer::Token;

constexpr float nan_logit = std::numeric_limits<float>::quiet_NaN();
constexpr float infinite = std::numeric_limits<float>::infinity();

const SamplerOptions plain{.temperature = 1,
                           .top_k = 0,
                           .top_p = 1,
                           .min_p = 0,
                           .repeat_penalty = 1,
                           .repeat_last_n = 64,
                           .seed = 1};

// The probabilities after all stages, by the plainest means. Tokens that were filtered out are
// absent.
std::map<Token, double> reference(const std::vector<float>& logits, const SamplerOptions& options) {
  std::vector<std::pair<double, Token>> kept;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > -infinite) kept.emplace_back(-logits[i], static_cast<Token>(i));
  }
  std::sort(kept.begin(), kept.end());
  if (options.top_k > 0 && kept.size() > options.top_k) kept.resize(options.top_k);
  double total = 0;
  for (const auto& [negative, token] : kept) total += std::exp(kept[0].first - negative);
  double sum = 0;
  std::size_t count = 0;
  while (count < kept.size()) {
    const double weight = std::exp(kept[0].first - kept[count].first);
    if (count > 0 && weight < options.min_p) break;
    sum += weight;
    ++count;
    if (options.top_p < 1 && sum >= options.top_p * total) break;
  }
  kept.resize(count);
  std::map<Token, double> result;
  total = 0;
  for (const auto& [negative, token] : kept) {
    result[token] = std::exp((kept[0].first - negative) / options.temperature);
    total += result[token];
  }
  for (auto& [token, probability] : result) probability /= total;
  return result;
}

// Pearson's statistic less its mean, in standard deviations of the chi-square distribution.
double chi_square_excess(const std::map<Token, double>& expected,
                         const std::map<Token, int>& counts, int draws) {
  double statistic = 0;
  double degrees = -1;
  for (const auto& [token, probability] : expected) {
    const double mean = probability * draws;
    if (mean < 5) continue;  // too rare for the approximation
    const auto found = counts.find(token);
    const double seen = found == counts.end() ? 0 : found->second;
    statistic += (seen - mean) * (seen - mean) / mean;
    ++degrees;
  }
  return degrees < 1 ? 0 : (statistic - degrees) / std::sqrt(2 * degrees);
}

void check_distribution(const std::vector<float>& logits, const SamplerOptions& options,
                        int draws) {
  const std::map<Token, double> expected = reference(logits, options);
  Sampler sampler(options);
  std::map<Token, int> counts;
  for (int i = 0; i < draws; ++i) ++counts[sampler.sample(logits)];
  for (const auto& [token, count] : counts) {
    INFO("token " << token);
    CHECK(expected.count(token) == 1);
  }
  CHECK(chi_square_excess(expected, counts, draws) < 5);
}

std::vector<float> random_logits(std::size_t n, std::mt19937& random, double step) {
  std::normal_distribution<double> normal(0, 2);
  std::vector<float> logits(n);
  // Rounded to a multiple of `step`, so that there are ties.
  for (float& logit : logits) {
    logit = static_cast<float>(std::round(normal(random) / step) * step);
  }
  return logits;
}

}  // namespace

TEST_CASE("greedy takes the greatest logit, the lowest id of equals") {
  SamplerOptions options = plain;
  options.temperature = 0;
  Sampler sampler(options);
  CHECK(sampler.sample(std::vector<float>{1, 3, 2, 3}) == 1);
  CHECK(sampler.sample(std::vector<float>{nan_logit, -5, nan_logit, -4}) == 3);
  CHECK(sampler.sample(std::vector<float>{-infinite, -1, -infinite}) == 1);
  CHECK(sampler.sample(std::vector<float>{0, infinite, infinite}) == 1);
  CHECK(sampler.sample(std::vector<float>{-std::numeric_limits<float>::max()}) == 0);
}

TEST_CASE("logits that are no numbers are never chosen, and if all are so it is said") {
  const std::vector<float> logits{nan_logit, 1, -infinite, 1, nan_logit};
  for (const std::uint32_t top_k : {0U, 1U, 2U, 4U, 40U}) {
    SamplerOptions options = plain;
    options.top_k = top_k;
    options.top_p = 0.99;
    Sampler sampler(options);
    for (int i = 0; i < 100; ++i) {
      const Token token = sampler.sample(logits);
      CHECK((token == 1 || token == 3));
    }
    CHECK_THROWS_AS(sampler.sample(std::vector<float>{nan_logit, -infinite}), ModelError);
    CHECK_THROWS_AS(sampler.sample(std::vector<float>{}), ModelError);
    CHECK(sampler.sample(std::vector<float>{0, infinite, 1}) == 1);
  }
  SamplerOptions greedy = plain;
  greedy.temperature = 0;
  CHECK_THROWS_AS(Sampler(greedy).sample(std::vector<float>{nan_logit, nan_logit}), ModelError);
}

TEST_CASE("the draw follows the softmax of what the stages leave") {
  std::mt19937 random(3);
  for (const double step : {1e-6, 0.5, 2.0}) {
    const std::vector<float> logits = random_logits(50, random, step);
    SamplerOptions options = plain;
    options.seed = random();
    check_distribution(logits, options, 20000);
    options.temperature = 0.5;
    check_distribution(logits, options, 20000);
    options.temperature = 3;
    check_distribution(logits, options, 20000);
    options.top_k = 7;
    check_distribution(logits, options, 20000);
    options.top_p = 0.8;
    check_distribution(logits, options, 20000);
    options.top_k = 0;
    check_distribution(logits, options, 20000);
    options.min_p = 0.2;
    check_distribution(logits, options, 20000);
    options.top_p = 1;
    check_distribution(logits, options, 20000);
  }
}

// A high temperature makes all tokens that are left nearly equally probable, so that a few hundred
// draws see each of them.
TEST_CASE("exactly the tokens of the reference are left, ties included") {
  std::mt19937 random(4);
  for (int round = 0; round < 300; ++round) {
    const std::vector<float> logits =
        random_logits(1 + random() % 300, random, round % 2 == 0 ? 0.5 : 1e-6);
    SamplerOptions options = plain;
    options.temperature = 1e6;
    options.seed = random();
    options.top_k = random() % 3 == 0 ? 0 : static_cast<std::uint32_t>(1 + random() % 20);
    options.top_p = random() % 3 == 0 ? 1 : 0.05 + 0.9 * static_cast<double>(random() % 100) / 100;
    options.min_p = random() % 3 == 0 ? 0 : static_cast<double>(random() % 100) / 100;
    const std::map<Token, double> expected = reference(logits, options);
    Sampler sampler(options);
    std::map<Token, int> counts;
    const std::size_t draws = 40 * expected.size();
    for (std::size_t i = 0; i < draws; ++i) ++counts[sampler.sample(logits)];
    INFO("round " << round << ", top-k " << options.top_k << ", top-p " << options.top_p
                  << ", min-p " << options.min_p);
    CHECK(counts.size() == expected.size());
    for (const auto& [token, count] : counts) CHECK(expected.count(token) == 1);
  }
}

TEST_CASE("the extremes of the options leave the best token") {
  const std::vector<float> logits{0, 2, 1, 2};
  SamplerOptions options = plain;
  SECTION("top-k 1") {
    options.top_k = 1;
  }
  SECTION("top-p 0") {
    options.top_p = 0;
  }
  SECTION("a temperature near 0") {
    options.temperature = 1e-300;
    options.top_k = 1;
  }
  Sampler sampler(options);
  for (int i = 0; i < 50; ++i) CHECK(sampler.sample(logits) == 1);
}

TEST_CASE("min-p 1 leaves the best and its equals") {
  SamplerOptions options = plain;
  options.min_p = 1;
  check_distribution({0, 2, 1, 2}, options, 2000);
}

TEST_CASE("the repeat penalty lowers recent tokens once, and only those") {
  SamplerOptions options = plain;
  options.temperature = 0;
  options.repeat_penalty = 2;
  options.repeat_last_n = 3;
  Sampler sampler(options);
  const std::vector<float> logits{4, 3, -1, 1.5};
  CHECK(sampler.sample(logits) == 0);
  sampler.accept(0);  // 4 -> 2
  CHECK(sampler.sample(logits) == 1);
  sampler.accept(1);  // 3 -> 1.5
  CHECK(sampler.sample(logits) == 0);
  sampler.accept(0);  // seen twice, still 2
  CHECK(sampler.sample(logits) == 0);
  sampler.accept(3);  // the window is 1, 0, 3
  sampler.accept(3);
  sampler.accept(3);  // 0 and 1 have left it
  CHECK(sampler.sample(logits) == 0);

  Sampler negative(options);
  negative.accept(1);  // -1 -> -2
  CHECK(negative.sample(std::vector<float>{-1.5, -1}) == 0);
}

TEST_CASE("the repeat penalty bears tokens and logits that make no sense") {
  SamplerOptions options = plain;
  options.temperature = 0;
  options.repeat_penalty = 1e300;
  Sampler sampler(options);
  for (const Token token : {-1, 1000000, 0, 1, 2}) sampler.accept(token);
  const std::vector<float> logits{-infinite, nan_logit, -3e38F, -infinite};
  CHECK(sampler.sample(logits) == 2);
  options.repeat_last_n = 0;
  Sampler blind(options);
  blind.accept(1);
  CHECK(blind.sample(std::vector<float>{1, 2}) == 1);
}

TEST_CASE("penalties are what their definitions say, for any text") {
  std::mt19937 random(8);
  const std::vector<float> logits = random_logits(20, random, 0.01);
  for (int round = 0; round < 50; ++round) {
    SamplerOptions options = plain;
    options.temperature = 0;
    options.repeat_penalty = round % 3 == 0 ? 1 : 1.5;
    options.repeat_last_n = round % 2 == 0 ? SamplerOptions::whole_text : 5;
    options.presence_penalty = round % 5 == 0 ? 0 : 0.4;
    options.frequency_penalty = round % 7 == 0 ? 0 : -0.3;
    options.logit_bias = {{3, 1.5F}, {4, -2}, {1000, 5}};
    Sampler sampler(options);
    std::vector<Token> prompt(random() % 12), text(random() % 12);
    for (Token& token : prompt) sampler.accept_prompt(token = static_cast<Token>(random() % 20));
    for (Token& token : text) sampler.accept(token = static_cast<Token>(random() % 20));

    std::vector<Token> all = prompt;
    all.insert(all.end(), text.begin(), text.end());
    const auto recent =
        static_cast<std::ptrdiff_t>(std::min<std::size_t>(all.size(), options.repeat_last_n));
    std::vector<float> expected = logits;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const auto token = static_cast<Token>(i);
      if (token == 3) expected[i] = static_cast<float>(logits[i] + 1.5);
      if (token == 4) expected[i] = static_cast<float>(logits[i] - 2.0);
      double value = expected[i];
      if (std::find(all.end() - recent, all.end(), token) != all.end()) {
        value = value > 0 ? value / options.repeat_penalty : value * options.repeat_penalty;
      }
      if (const auto count = std::count(text.begin(), text.end(), token); count != 0) {
        value -= options.presence_penalty + options.frequency_penalty * static_cast<double>(count);
      }
      expected[i] = static_cast<float>(value);
    }
    const std::vector<Token> banned = {static_cast<Token>(random() % 20), -1, 500};
    expected[static_cast<std::size_t>(banned[0])] = -infinite;
    SamplerOptions greedy = plain;
    greedy.temperature = 0;
    CHECK(sampler.sample(logits, banned) == Sampler(greedy).sample(expected));
    // The same bits, not only the same choice.
    std::vector<float> changed = logits;
    std::vector<TokenUse> uses;
    for (Token token = 0; token < 20; ++token) {
      uses.push_back({token,
                      static_cast<std::uint32_t>(std::count(all.end() - recent, all.end(), token)),
                      static_cast<std::uint32_t>(std::count(text.begin(), text.end(), token))});
    }
    apply_biases(options.logit_bias, changed);
    apply_penalties({options.repeat_penalty, options.presence_penalty, options.frequency_penalty},
                    uses, changed);
    ban(banned, changed);
    CHECK(changed == expected);
  }
}

TEST_CASE("log probabilities are those of the softmax, the best first") {
  std::mt19937 random(9);
  std::vector<float> logits = random_logits(300, random, 0.25);
  logits[7] = nan_logit;
  logits[8] = -infinite;
  double total = 0;
  std::vector<std::pair<float, Token>> sorted;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > -infinite)) continue;
    total += std::exp(static_cast<double>(logits[i]));
    sorted.emplace_back(-logits[i], static_cast<Token>(i));
  }
  std::sort(sorted.begin(), sorted.end());
  std::vector<TokenLogprob> found;
  append_logprobs(logits, 42, 20, found);
  REQUIRE(found.size() == 21);
  CHECK(found[0].token == 42);
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (i != 0) CHECK(found[i].token == sorted[i - 1].second);
    const double logit = logits[static_cast<std::size_t>(found[i].token)];
    CHECK(found[i].logprob == Approx(logit - std::log(total)).margin(1e-5));
  }
  found.clear();
  append_logprobs(std::vector<float>{nan_logit, 5, -infinite}, 0, 3, found);
  REQUIRE(found.size() == 4);
  CHECK(found[0].logprob == std::numeric_limits<float>::lowest());
  CHECK((found[3].token == 1 && found[3].logprob == 0));
  for (const std::uint32_t top : {0U, 3U}) {
    CHECK_THROWS_AS(append_logprobs(std::vector<float>{nan_logit, -infinite}, 0, top, found),
                    ModelError);
  }
  CHECK(found.size() == 4);
}

TEST_CASE("one seed gives one sequence, another seed another") {
  std::mt19937 random(5);
  const std::vector<float> logits = random_logits(1000, random, 0.25);
  const auto draw = [&](std::uint64_t seed) {
    SamplerOptions options;
    options.seed = seed;
    Sampler sampler(options);
    std::vector<Token> tokens;
    for (int i = 0; i < 50; ++i) tokens.push_back(sampler.sample(logits));
    return tokens;
  };
  CHECK(draw(7) == draw(7));
  CHECK(draw(7) != draw(8));
}

// The first outputs for a state that the authors' reference gives for splitmix64 started at 0
// (its own first outputs are published: e220a8397b1dcdaf 6e789e6aa1b965f4 06c45d188009454f
// f88bb8a8724c81ec), worked through by hand with the formula of the paper.
TEST_CASE("samplers that share a generator go on with its numbers") {
  const std::vector<float> logits(100, 1);
  Sampler one(plain);
  SamplerOptions shared = plain;
  shared.random = std::make_shared<RandomGenerator>(plain.seed);
  for (int text = 0; text < 20; ++text) {
    Sampler next(shared);
    for (int i = 0; i < text; ++i) CHECK(next.sample(logits) == one.sample(logits));
  }
}

TEST_CASE("the generator is xoshiro256** seeded by splitmix64") {
  const std::uint64_t s1 = 0x6e789e6aa1b965f4;
  const std::uint64_t product = s1 * 5;
  const std::uint64_t first = ((product << 7) | (product >> 57)) * 9;
  RandomGenerator random(0);
  CHECK(random.next() == first);
  // After one step the second word is s1 ^ s2 ^ s0.
  const std::uint64_t next_s1 = s1 ^ 0x06c45d188009454f ^ 0xe220a8397b1dcdaf;
  const std::uint64_t next_product = next_s1 * 5;
  CHECK(random.next() == ((next_product << 7) | (next_product >> 57)) * 9);

  double sum = 0;
  for (int i = 0; i < 100000; ++i) {
    const double value = random.uniform();
    REQUIRE(value >= 0);
    REQUIRE(value < 1);
    sum += value;
  }
  CHECK(sum / 100000 == Approx(0.5).margin(0.005));  // five standard deviations
}

TEST_CASE("a vocabulary of 250,000: the stages agree with the reference") {
  std::mt19937 random(6);
  std::vector<float> logits = random_logits(250000, random, 1e-3);
  SamplerOptions options;
  options.seed = 9;
  SECTION("the defaults") {}
  SECTION("ascending logits, the worst case of the threshold") {
    std::sort(logits.begin(), logits.end());
  }
  SECTION("no top-k, so that top-p sees everything") {
    options.top_k = 0;
  }
  SECTION("all logits equal") {
    std::fill(logits.begin(), logits.end(), 1.0F);
  }
  check_distribution(logits, options, 100);
}

TEST_CASE("only allowed tokens are chosen, as if the others had no logit") {
  std::mt19937_64 random(7);
  constexpr std::size_t vocabulary = 130;  // the last word has two bits
  for (int i = 0; i < 200; ++i) {
    std::vector<float> logits(vocabulary), masked(vocabulary, -infinite);
    std::vector<std::uint64_t> allowed(3);
    for (std::size_t token = 0; token < vocabulary; ++token) {
      logits[token] = static_cast<float>(random() % 1000) / 50;
      if (random() % 8 != 0) continue;
      allowed[token / 64] |= std::uint64_t{1} << (token % 64);
      masked[token] = logits[token];
    }
    if (allowed == std::vector<std::uint64_t>(3)) continue;
    SamplerOptions options;
    options.seed = random();
    options.temperature = i % 2;
    CHECK(Sampler(options).sample(logits, {}, allowed) == Sampler(options).sample(masked));
    // Words that are missing allow nothing.
    allowed.resize(1);
    if (allowed[0] != 0) CHECK(Sampler(options).sample(logits, {}, allowed) < 64);
  }
  const std::vector<std::uint64_t> none(3);
  CHECK_THROWS_AS(Sampler(plain).sample(std::vector<float>(vocabulary, 1), {}, none), UsageError);
}

TEST_CASE("options out of their range are refused") {
  const double not_a_number = std::numeric_limits<double>::quiet_NaN();
  const auto refused = [](auto change) {
    SamplerOptions options;
    change(options);
    CHECK_THROWS_AS(Sampler(options), UsageError);
  };
  for (const double bad : {-1.0, not_a_number, static_cast<double>(infinite)}) {
    refused([&](SamplerOptions& options) { options.temperature = bad; });
    refused([&](SamplerOptions& options) { options.top_p = bad; });
    refused([&](SamplerOptions& options) { options.min_p = bad; });
    refused([&](SamplerOptions& options) { options.repeat_penalty = bad; });
  }
  for (const double bad : {not_a_number, static_cast<double>(infinite)}) {
    refused([&](SamplerOptions& options) { options.presence_penalty = -bad; });
    refused([&](SamplerOptions& options) { options.frequency_penalty = bad; });
    refused([&](SamplerOptions& options) {
      options.logit_bias = {{3, 1.F}, {4, static_cast<float>(bad)}};
    });
  }
  refused([](SamplerOptions& options) { options.top_p = 1.01; });
  refused([](SamplerOptions& options) { options.min_p = 1.01; });
  refused([](SamplerOptions& options) { options.repeat_penalty = 0; });
  SamplerOptions extreme;
  extreme.temperature = extreme.top_p = 0;
  extreme.min_p = 1;
  extreme.repeat_penalty = 1e-300;
  CHECK_NOTHROW(Sampler(extreme));
  std::swap(extreme.top_p, extreme.min_p);
  CHECK_NOTHROW(Sampler(extreme));
}

namespace {

ModelDefaults defaults_of(const gguf::Writer& writer) {
  const std::vector<std::byte> bytes = writer.header();
  return model_defaults(gguf::parse_header(bytes, "m.gguf", {.header_only = true}).metadata);
}

}  // namespace

TEST_CASE("a model file's own settings replace the program's") {
  const gguf::Writer none;
  CHECK(defaults_of(none).recommended.empty());
  CHECK(defaults_of(none).sampler.top_k == 40);
  gguf::Writer all;
  all.add("general.sampling.temp", 0.7f);
  all.add("general.sampling.top_k", std::int32_t{-1});
  all.add("general.sampling.top_p", 0.8f);
  all.add("general.sampling.min_p", 0.f);
  all.add("general.sampling.penalty_repeat", 1.05f);
  all.add("general.sampling.penalty_last_n", std::int32_t{-1});
  all.add("general.sampling.mirostat", std::int32_t{0});
  const ModelDefaults defaults = defaults_of(all);
  CHECK(defaults.warnings.empty());
  REQUIRE(defaults.recommended.size() == 6);
  CHECK(defaults.recommended.front() == "temperature 0.7");
  CHECK(defaults.sampler.temperature == 0.7);
  CHECK(defaults.sampler.top_k == 0);
  CHECK(defaults.sampler.top_p == 0.8);
  CHECK(defaults.sampler.min_p == 0);
  CHECK(defaults.sampler.repeat_penalty == 1.05);
  CHECK(defaults.sampler.repeat_last_n == SamplerOptions::whole_text);
  gguf::Writer most;
  most.add("general.sampling.temp", 0.f);
  most.add("general.sampling.top_k", std::numeric_limits<std::int32_t>::max());
  most.add("general.sampling.top_p", 0.f);
  most.add("general.sampling.min_p", 1.f);
  most.add("general.sampling.penalty_last_n", std::uint16_t{4096});
  CHECK(defaults_of(most).warnings.empty());
  CHECK(defaults_of(most).sampler.top_k == 0x7FFFFFFF);
  CHECK(defaults_of(most).sampler.repeat_last_n == 4096);
}

TEST_CASE("a model file's own settings are the same in every locale") {
  const test::GermanLocale locale;
  if (!locale.is_set()) {
    WARN("there is no German locale here");
    return;
  }
  gguf::Writer writer;
  writer.add("general.sampling.temp", 0.7f);
  CHECK(defaults_of(writer).sampler.temperature == 0.7);
}

TEST_CASE("what a model file cannot mean is ignored, with a warning, and the rest holds") {
  const auto check = [](const std::string& key, auto value) {
    INFO(key);
    gguf::Writer writer;
    writer.add("general.sampling." + key, value);
    if (key != "top_k") writer.add("general.sampling.top_k", std::uint32_t{5});
    const ModelDefaults defaults = defaults_of(writer);
    REQUIRE(defaults.warnings.size() == 1);
    CHECK(defaults.warnings[0].find("general.sampling." + key) != std::string::npos);
    CHECK(defaults.warnings[0].find("ignored") != std::string::npos);
    const SamplerOptions usual;
    CHECK(defaults.sampler.temperature == usual.temperature);
    CHECK(defaults.sampler.top_p == usual.top_p);
    CHECK(defaults.sampler.min_p == usual.min_p);
    CHECK(defaults.sampler.repeat_penalty == usual.repeat_penalty);
    CHECK(defaults.sampler.repeat_last_n == usual.repeat_last_n);
    CHECK(defaults.sampler.top_k == (key == "top_k" ? usual.top_k : 5));
    static_cast<void>(Sampler(defaults.sampler));
  };
  check("temp", -1.f);
  check("temp", nan_logit);
  check("temp", infinite);
  check("temp", "hot");
  check("top_k", std::uint64_t{1} << 40);
  check("top_k", 3.f);
  check("top_p", 1.5f);
  check("min_p", -0.5f);
  check("penalty_repeat", 0.f);
  check("top_k", std::uint32_t{1} << 31);
  check("penalty_last_n", std::int32_t{4097});
  check("xtc_probability", 0.5f);
  check("mirostat", std::int32_t{2});
}

}  // namespace sluice::sampling
