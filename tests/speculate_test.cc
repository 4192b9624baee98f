// Where drafts come from, and how many of them a step gets.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "core/speculate/acceptance.h"
#include "core/speculate/likeliest.h"
#include "core/speculate/share_columns.h"
#include "core/speculate/shared_texts.h"
#include "core/speculate/step_times.h"
#include "core/speculate/suffix_source.h"
#include "tests/catch.h"
#include "tests/fake_drafts.h"
#include "tests/random_seed.h"

namespace sluice::speculate {
namespace {

using tokenizer::Token;
using Tokens = std::vector<Token>;

std::vector<Draft> proposed(Source& source, std::size_t most) {
  std::vector<Draft> drafts;
  source.propose({.most = most}, drafts);
  return drafts;
}

// What an oracle proposes that looks at all places: the longest agreement, and the newest of them.
Tokens expected_drafts(const Tokens& text, std::size_t most) {
  std::size_t best = 0, from = 0;
  for (std::size_t next = text.size(); next-- > 1;) {
    std::size_t count = 0;
    while (count < next && text[next - 1 - count] == text[text.size() - 1 - count]) ++count;
    if (count > best) best = count, from = next;
  }
  Tokens out;
  if (best < 2) return out;
  Tokens longer = text;
  for (std::size_t i = 0; i < most; ++i) {
    out.push_back(longer[from + i]);
    longer.push_back(out.back());
  }
  return out;
}

// A step of so many columns takes the time that `seconds` says.
template <class Function>
StepTimes times_of(const Function& seconds) {
  StepTimes times(1);
  for (std::size_t columns = 1; columns <= 32; ++columns) times.measured(columns, seconds(columns));
  return times;
}

std::vector<Draft> drafts_of_grade(std::uint8_t grade, std::size_t count) {
  return std::vector<Draft>(count, Draft{1, grade});
}

}  // namespace

TEST_CASE("drafts of a text are what came behind its longest repetition") {
  std::mt19937_64 random(test::random_seed());
  for (int round = 0; round < 300; ++round) {
    const auto alphabet = static_cast<Token>(2 + random() % 5);
    SuffixSource source;
    Tokens text;
    const std::size_t size = random() % 60;
    while (text.size() < size) {
      Tokens part(1 + random() % 5);
      for (Token& token : part) token = static_cast<Token>(random()) % alphabet;
      source.accepted(part);
      text.insert(text.end(), part.begin(), part.end());
      const std::size_t most = random() % 12;
      const std::vector<Draft> drafts = proposed(source, most);
      Tokens tokens;
      for (const Draft& draft : drafts) tokens.push_back(draft.token);
      REQUIRE(tokens == expected_drafts(text, most));
      CHECK(std::ranges::is_sorted(drafts, {}, &Draft::grade));
    }
    source.forget();
    CHECK(proposed(source, 5).empty());
  }
}

TEST_CASE("drafts of a long text come from its newest part, and its repetitions are found") {
  std::mt19937_64 random(test::random_seed());
  SuffixSource source;
  Tokens text(SuffixSource::tokens_max / 4);
  for (Token& token : text) token = static_cast<Token>(random() % 100000);
  std::size_t wrong = 0;
  for (int time = 0; time < 9; ++time) {
    for (std::size_t i = 0; i < text.size(); i += 8) {
      const std::vector<Draft> drafts = proposed(source, 8);
      const std::span<const Token> next = std::span(text).subspan(i, 8);
      const bool is_right =
          std::ranges::equal(drafts, next, {}, [](const Draft& draft) { return draft.token; });
      if (time != 0 && i != 0) wrong += is_right ? 0 : 1;
      source.accepted(next);
    }
  }
  CHECK(wrong < text.size() / 8 / 100);
}

TEST_CASE("a text that was expected is proposed from its beginning") {
  SuffixSource source({5, 6, 7, 8, 9});
  source.accepted(Tokens{1, 2, 3});
  CHECK(proposed(source, 3).empty());
  source.accepted(Tokens{5});
  const std::vector<Draft> drafts = proposed(source, 3);
  REQUIRE(drafts.size() == 3);
  CHECK(drafts[0].token == 6);
  CHECK(drafts[2].token == 8);
  source.forget();
  source.accepted(Tokens{4, 7, 8});
  REQUIRE(proposed(source, 1).size() == 1);
  CHECK(proposed(source, 1)[0].token == 9);
}

TEST_CASE("texts that have ended help those of their group, and no others") {
  struct Text {
    std::uint32_t group;
    Tokens tokens;
  };
  std::mt19937_64 random(test::random_seed());
  const auto any_text = [&](std::size_t size_max) {
    Tokens text(1 + random() % size_max);
    for (Token& token : text) token = static_cast<Token>(random() % 3);
    return text;
  };
  std::size_t helped = 0;
  for (int round = 0; round < 300; ++round) {
    SharedTexts shared;
    std::vector<Text> texts;
    for (std::size_t count = random() % 6; texts.size() < count;) {
      texts.push_back({static_cast<std::uint32_t>(random() % 2), any_text(9)});
      const Text& added = texts.back();
      shared.add(added.group, added.tokens, 1 + random() % added.tokens.size());
    }
    const auto group = static_cast<std::uint32_t>(random() % 2);
    const Tokens text = any_text(12);
    const SharedTexts::Found found = shared.find(group, text);
    // The newest of the longest agreements in a text of this group.
    std::size_t best = 1;
    Tokens next;
    for (const Text& other : texts) {
      for (std::size_t at = 1; at < other.tokens.size(); ++at) {
        std::size_t count = 0;
        while (count < std::min(at, text.size()) &&
               other.tokens[at - 1 - count] == text[text.size() - 1 - count]) {
          ++count;
        }
        if (other.group != group || count < std::max<std::size_t>(best, 2)) continue;
        best = count;
        next.assign(other.tokens.begin() + static_cast<std::ptrdiff_t>(at), other.tokens.end());
      }
    }
    CHECK(found.agreement == (next.empty() ? 0 : best));
    CHECK(std::ranges::equal(found.next, next));
    helped += next.empty() ? 0 : 1;
  }
  CHECK(helped > 30);
}

TEST_CASE("of many texts the newest are kept, and of each what tells where it belongs") {
  std::mt19937_64 random(test::random_seed());
  SharedTexts shared;
  const auto next_of = [&](const Tokens& text, std::size_t end) {
    return shared.find(7, std::span(text).first(end)).next;
  };
  Tokens first, text;
  for (int added = 0; added < 400; ++added) {
    text.resize(300 + random() % 2000);
    for (Token& token : text) token = static_cast<Token>(random() % 1'000'000);
    if (first.empty()) first = text;
    constexpr std::size_t written = 100;
    shared.add(static_cast<std::uint32_t>(random() % 2), Tokens{1, 2}, 0);  // nothing was written
    shared.add(7, text, written);
    const std::size_t begin = text.size() - written;
    CHECK(std::ranges::equal(next_of(text, begin), std::span(text).last(written)));
    CHECK(next_of(text, text.size()).empty());
    CHECK(next_of(text, begin - 2 * TokenIndex::agreement_max).empty());
    CHECK(shared.find(6, std::span(text).first(begin)).next.empty());
  }
  CHECK(next_of(first, first.size() - 10).empty());
  text.resize(3 * SharedTexts::tokens_max, 5);
  shared.add(7, text, text.size());  // more than there is room for: the last of it
  CHECK(next_of(text, text.size() - 1).size() == 1);
}

TEST_CASE("drafts are kept to what may come, with what has to come among them") {
  std::mt19937_64 random(test::random_seed());
  constexpr Token vocabulary = 30;
  for (int round = 0; round < 500; ++round) {
    const std::size_t place = random() % 9, most = random() % 9, end = place + random() % 12;
    std::vector<Draft> drafts;
    for (std::size_t i = random() % 9; i > 0; --i) {
      test::FakeChoices choices(place + drafts.size(), vocabulary);
      const bool is_forced = random() % 4 != 0 && choices.only().has_value();
      drafts.push_back({is_forced ? *choices.only() : static_cast<Token>(random() % vocabulary),
                        static_cast<std::uint8_t>(random() % grades)});
    }
    std::vector<Draft> kept = drafts;
    test::FakeChoices choices(place, vocabulary, end);
    keep_to(choices, most, kept);
    // Every token may come. It is the draft, or the only one; and behind a draft that is another
    // one than had to come there are none.
    test::FakeChoices again(place, vocabulary, end);
    bool follows = true;
    REQUIRE(kept.size() <= most);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const bool is_only = again.only().has_value();
      CHECK((kept[i].grade == certain_grade) == is_only);
      if (!is_only) {
        REQUIRE(follows);
        REQUIRE(i < drafts.size());
        CHECK(kept[i].grade == drafts[i].grade);
      }
      follows = follows && i < drafts.size() && kept[i].token == drafts[i].token;
      CHECK((is_only || follows));
      REQUIRE(again.take(kept[i].token));
    }
    // It ends where it has to: nothing that could come was left out.
    if (kept.size() == most || again.is_over()) continue;
    CHECK_FALSE(again.only());
    if (follows && kept.size() < drafts.size()) {
      CHECK_FALSE(again.may_come(drafts[kept.size()].token));
    }
  }
}

TEST_CASE("the likeliest token is one that may come") {
  std::mt19937_64 random(test::random_seed());
  for (int round = 0; round < 100; ++round) {
    std::vector<float> logits(1 + random() % 150), masked;
    std::vector<std::uint64_t> allowed((logits.size() + 63) / 64);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      logits[i] = static_cast<float>(random() % 1000) / 100;
      const bool may_come = random() % 3 == 0;
      if (may_come) allowed[i / 64] |= std::uint64_t{1} << (i % 64);
      masked.push_back(may_come ? logits[i] : -1e30f);
    }
    const bool is_any = std::ranges::any_of(allowed, [](std::uint64_t word) { return word != 0; });
    const Likeliest found = likeliest_of(logits, allowed);
    if (!is_any) {
      CHECK(found.probability == 0);
      continue;
    }
    CHECK(found.token == likeliest_of(masked).token);
    CHECK(found.probability == likeliest_of(masked).probability);
  }
}

TEST_CASE("acceptance follows what is seen, each grade for itself") {
  Acceptance acceptance;
  for (std::uint8_t grade = 1; grade < grades; ++grade) {
    CHECK(acceptance.rate(grade) > acceptance.rate(static_cast<std::uint8_t>(grade - 1)));
  }
  const double before = acceptance.rate(3);
  for (int i = 0; i < 100; ++i) {
    acceptance.learn(2, true);
    acceptance.learn(grades + 1, false);
  }
  CHECK(acceptance.rate(2) > 0.95);
  CHECK(acceptance.rate(grades - 1) < 0.05);
  CHECK(acceptance.rate(3) == before);
  acceptance.learn(certain_grade, false);
  CHECK(acceptance.rate(certain_grade) == 1);
}

TEST_CASE("a step gets the drafts that are worth their time") {
  const Acceptance acceptance;
  const std::vector<Draft> sure = drafts_of_grade(grades - 1, 7), vague = drafts_of_grade(0, 7);
  const auto columns_for = [&](const std::vector<Draft>& drafts, const StepTimes* times,
                               std::size_t most = 20) {
    Share share{drafts, &acceptance};
    share_columns({&share, 1}, most, 1, 1, times);
    return share.columns;
  };
  const StepTimes flat = times_of([](std::size_t) { return 1.0; });
  const StepTimes steep = times_of([](std::size_t columns) { return double(columns); });
  const StepTimes stairs = times_of([](std::size_t columns) { return columns <= 4 ? 1.0 : 4.0; });
  const StepTimes unknown(0);
  CHECK(columns_for(sure, &flat) == 7);
  CHECK(columns_for(vague, &flat) > 2);
  CHECK(columns_for(sure, &flat, 4) == 4);
  CHECK(columns_for(sure, &steep) == 0);
  CHECK(columns_for(vague, &steep) == 0);
  CHECK(columns_for(sure, &stairs) == 3);
  CHECK(columns_for(sure, &unknown) == 0);
  CHECK(columns_for(vague, nullptr) == 7);
  CHECK(columns_for({}, nullptr) == 0);
}

TEST_CASE("of several rows, those whose drafts are likelier get the columns") {
  const Acceptance acceptance;
  const std::vector<Draft> sure = drafts_of_grade(grades - 1, 5), vague = drafts_of_grade(0, 5);
  std::vector<Share> shares = {{vague, &acceptance}, {sure, &acceptance}, {{}, &acceptance}};
  const StepTimes flat = times_of([](std::size_t) { return 1.0; });
  share_columns(shares, 6, 3, 3, &flat);
  CHECK(shares[1].columns == 5);
  CHECK(shares[0].columns == 1);
  CHECK(shares[2].columns == 0);
}

TEST_CASE("times of steps are between those that were measured, and old ones are forgotten") {
  StepTimes times(0.5);
  CHECK(times.seconds(3) == 0);
  times.measured(2, 2.0);
  CHECK(times.seconds(1) == 2.0);
  CHECK(times.seconds(4) == 4.0);  // two columns more, each half of the narrowest step
  times.measured(6, 3.0);
  CHECK(times.seconds(4) == 2.5);
  for (int i = 0; i < 300; ++i) times.measured(2, 2.0);
  CHECK(times.seconds(6) == 6.0);  // the guess again
  times.measured(0, 1.0);
  times.measured(1000, 1.0);
  times.measured(2, -1.0);
  CHECK(times.seconds(2) == 2.0);
}

TEST_CASE("the likeliest token has the probability of a softmax, and a grade for it") {
  std::vector<float> logits(1000, -30.0F);
  logits[7] = 2;
  logits[9] = 2 - std::log(3.0F);
  CHECK(likeliest_of(logits).token == 7);
  CHECK(std::abs(likeliest_of(logits).probability - 0.75) < 1e-6);
  CHECK(likeliest_of(std::vector<float>(4, 1.0F)).probability == 0.25);
  CHECK(grade_of(0) == 0);
  CHECK(grade_of(0.5) == grades / 2);
  CHECK(grade_of(1) == grades - 1);
}

TEST_CASE("a source that takes time is asked for as many drafts as pay for it") {
  std::mt19937_64 random(test::random_seed());
  const auto part = [&] { return static_cast<double>(random() % 1000) / 1000; };
  CHECK(worth_of(std::vector<double>(5, 1), 0, 1, 1, StepTimes(1)).drafts == 0);
  for (int round = 0; round < 200; ++round) {
    const double slope = round % 3 == 0 ? 0 : part() / 4;
    const StepTimes times =
        times_of([&](std::size_t columns) { return 1 + slope * static_cast<double>(columns); });
    std::vector<double> rates(random() % 10);
    for (double& rate : rates) rate = part();
    const double seconds_each = part() * part();
    const std::size_t columns = 1 + random() % 4;
    const Worth worth = worth_of(rates, seconds_each, columns, columns, times);
    REQUIRE(worth.drafts <= rates.size());
    const double alone = static_cast<double>(columns) / times.seconds(columns);
    double chance = 1, tokens = static_cast<double>(columns), best = 0, with_worth = 0;
    for (std::size_t count = 1; count <= rates.size(); ++count) {
      chance *= rates[count - 1];
      tokens += chance;
      const double speed =
          tokens / (times.seconds(columns + count) + static_cast<double>(count) * seconds_each);
      best = std::max(best, speed);
      if (count == worth.drafts) with_worth = speed;
    }
    INFO(worth.drafts << " of " << rates.size() << " drafts");
    if (worth.drafts == 0) {
      CHECK(best <= 1.06 * alone);
    } else {
      CHECK(with_worth == best);
      CHECK(worth.tokens_per_s == best);
      CHECK(best > alone);
    }
  }
}

}  // namespace sluice::speculate
