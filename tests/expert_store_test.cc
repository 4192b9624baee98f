// Experts that come and go: streaming/expert_policy.h, the tape with groups of experts against a
// fake disk, and whole mixtures in little memory.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <system_error>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/rehearsal.h"
#include "core/gguf/gguf.h"
#include "core/plan/planned_model.h"
#include "core/synth/synthetic_model.h"
#include "kernels/kernel_table.h"
#include "streaming/alignment.h"
#include "streaming/expert_policy.h"
#include "streaming/streamed_tape.h"
#include "tests/catch.h"
#include "tests/fake_reader.h"
#include "tests/mixture_tape.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"
#include "topology/thread_team.h"

namespace sluice::test {
namespace {

using namespace streaming;

// A tiny model whose tokens take 4 of 24 experts.
std::filesystem::path write_mixture(const TemporaryFolder& folder) {
  synth::Shape shape = synth::shape_by_name("tiny-qwen3moe");
  shape.experts = {.count = 24, .used = 4, .feed_forward = 256};
  auto file = folder.path() / "model.gguf";
  synth::SyntheticModel(shape, "Q8_0").write(file, 1, {});
  return file;
}

}  // namespace

TEST_CASE("the use of experts is added up over layers, and divided by tokens") {
  const std::vector<ExpertStatistics> groups = {{10, 40, 30, 1000, 5}, {10, 60, 50, 3000, 2}};
  const ExpertStatistics sum = sum_of(groups);
  CHECK(sum.tokens == 10);
  CHECK(sum.stall_ns == 7);
  CHECK(sum.hit_rate() == 0.8);
  CHECK(sum.bytes_read_per_token() == 400);
  CHECK(sum_of({}).hit_rate() == 1);
  CHECK(sum_of({}).bytes_read_per_token() == 0);
}

TEST_CASE("places go to experts that were used more, and each place has one expert") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const std::size_t experts = 1 + below(random, 40), places = below(random, experts + 1);
    ExpertPolicy policy(experts, places, 1 + static_cast<double>(below(random, 100)));
    std::vector<bool> has_place(experts);
    std::fill_n(has_place.begin(), places, true);
    for (int step = 0; step < 200; ++step) {
      const auto tokens = static_cast<std::uint32_t>(1 + below(random, 3) * below(random, 20));
      const auto uses = random_uses(experts, 1 + below(random, experts), tokens, random);
      const auto is_used = [&](std::uint32_t expert) {
        return std::ranges::find(uses, expert, &ExpertUse::expert) != uses.end();
      };
      for (const auto [gains, loses] : policy.use(uses, tokens, places)) {
        REQUIRE(is_used(gains));
        REQUIRE_FALSE(is_used(loses));
        REQUIRE_FALSE(has_place[gains]);
        REQUIRE(has_place[loses]);
        REQUIRE(policy.score(gains) > policy.score(loses));
        has_place[gains] = true;
        has_place[loses] = false;
      }
      // Whoever was used and has no place has no lower score beside it that has one.
      for (const ExpertUse& use : uses) {
        if (has_place[use.expert]) continue;
        for (std::uint32_t other = 0; other < experts; ++other) {
          if (!has_place[other] || is_used(other)) continue;
          REQUIRE(policy.score(other) >= policy.score(use.expert));
        }
      }
    }
  }
}

TEST_CASE("the score of an expert is the share of tokens that took it") {
  std::mt19937_64 random(1);
  ExpertPolicy policy(4, 2, 50);
  for (int step = 0; step < 2000; ++step) {
    std::vector<ExpertUse> uses = {{0, 10}};
    if (step % 2 == 0) uses.push_back({1, 5});
    policy.use(uses, 10, 2);
  }
  CHECK(policy.score(0) == Approx(1).margin(1e-6));
  CHECK(policy.score(1) == Approx(0.25).margin(0.05));
  CHECK(policy.score(2) == 0);
}

TEST_CASE("experts that no place is usable for are not kept") {
  ExpertPolicy policy(6, 3);
  const std::vector<ExpertUse> uses = {{4, 1}, {5, 1}};
  CHECK(policy.use(uses, 1, 0).empty());
  CHECK(policy.use(uses, 1, 1).size() == 1);
  // The other one gets a place as soon as there is one more.
  const auto exchanges = policy.use(uses, 1, 2);
  REQUIRE(exchanges.size() == 1);
  CHECK(exchanges[0].gains == 5);
}

TEST_CASE("a plan counts the experts that the tokens of a step need and that have no place") {
  constexpr std::size_t experts = 16, used = 2;
  constexpr std::uint64_t bytes = 4096;
  std::vector<Segment> segments;
  for (std::uint64_t i = 0; i < 1 + experts; ++i) segments.push_back({0, i * bytes, bytes});
  const std::vector<ExpertGroup> groups = {{1, experts, 1, used}};
  for (const std::size_t places : {0U, 4U, 15U, 16U}) {
    for (const std::uint32_t tokens : {1U, 8U, 64U}) {
      INFO(places << " places, " << tokens << " tokens");
      TapeOptions options;
      options.pinned_bytes_max = (1 + places) * bytes;
      options.step_tokens = tokens;
      const TapePlan plan = plan_tape(segments, options, page_bytes, false, groups);
      const double needed = experts * (1 - std::pow(1 - double{used} / experts, tokens));
      const double missed = needed * static_cast<double>(experts - places) / experts;
      CHECK(static_cast<double>(plan.streamed_expert_bytes_per_step) ==
            Approx(missed * bytes).margin(1));
      CHECK(plan.streamed_bytes_per_step == plan.streamed_expert_bytes_per_step);
    }
  }
}

TEST_CASE("experts have the right bytes with every budget, fault and order") {
  std::uint64_t hits = 0, misses = 0, failed = 0;
  for (std::uint64_t seed = 0; seed < (is_sanitized ? 60 : 200); ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    Mixture mixture(random);
    mixture.disk.maps_files = below(random, 4) == 0;
    mixture.disk.short_reads = 0.1 * static_cast<double>(below(random, 6));
    mixture.disk.late = 0.1 * static_cast<double>(below(random, 11));
    TapeOptions options;
    options.pinned_bytes_max = below(random, mixture.bytes() * 5 / 4);
    options.held_max = 1;
    options.slots = 2 + static_cast<std::uint32_t>(below(random, 12));
    StreamedTape tape(mixture.segments, std::make_unique<FakeReader>(mixture.disk, seed), options,
                      {}, mixture.groups);
    tape.load();
    Consumer consumer(mixture, tape);
    for (int step = 0; step < 12; ++step) {
      if (below(random, 4) == 0) {
        const Segment& bad = mixture.segments[below(random, mixture.segments.size())];
        mixture.disk.bad = {{0, bad.offset, bad.offset + bad.bytes}};
      }
      try {
        consumer.step(below(random, 3) == 0 ? 5 : 1, random);
      } catch (const std::system_error&) {
        ++failed;  // the next step begins anew
      }
      mixture.disk.bad.clear();
      if (below(random, 3) == 0) {
        tape.limit_pinned_bytes(below(random, tape.plan().pinned_bytes + 1));
      }
      REQUIRE(tape.pinned_bytes() <= tape.plan().pinned_bytes);
    }
    ExpertStatistics counted;
    for (const ExpertStatistics& group : tape.statistics().experts) {
      counted.tokens += group.tokens;
      counted.hits += group.hits;
      counted.uses += group.uses;
      counted.missed_bytes += group.missed_bytes;
    }
    CHECK(counted.tokens == consumer.tokens_of_all_groups);
    CHECK(counted.hits == consumer.hits);
    CHECK(counted.uses == consumer.hits + consumer.misses);
    CHECK(counted.missed_bytes == consumer.missed_bytes);
    if (mixture.disk.maps_files) {
      REQUIRE(mixture.disk.resident_bytes_max <= tape.plan().peak_bytes());
    }
    hits += consumer.hits;
    misses += consumer.misses;
  }
  CHECK(hits > 100);
  CHECK(misses > 100);
  CHECK(failed > 20);
}

// Whether each request from `first` on is for a segment that every step reads, or for an expert
// that the consumer needed.
bool reads_what_is_needed(const Mixture& mixture, const Consumer& consumer, std::size_t first) {
  const std::span<const ExpertGroup> groups = mixture.groups;
  const auto is_needed = [&](const ReadRequest& request) {
    return std::ranges::any_of(mixture.segments, [&](const Segment& segment) {
      const auto turn = static_cast<std::size_t>(&segment - mixture.segments.data());
      return request.offset == round_down(segment.offset, page_bytes) &&
             (find_group(groups, turn) == groups.end() || consumer.needed.contains(turn));
    });
  };
  return std::ranges::all_of(std::span(mixture.disk.requests).subspan(first), is_needed);
}

TEST_CASE("a step of one token reads no expert that it does not need") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    Mixture mixture(random);
    for (ExpertGroup& group : mixture.groups) group.used = 1 + (group.experts - 1) / 3;
    TapeOptions options;
    options.pinned_bytes_max = below(random, mixture.bytes());
    options.held_max = 1;
    options.slots = 6;
    StreamedTape tape(mixture.segments, std::make_unique<FakeReader>(mixture.disk, seed), options,
                      {}, mixture.groups);
    if (tape.plan().streamed_segments == 0) continue;
    tape.load();
    Consumer consumer(mixture, tape);
    const std::size_t before = mixture.disk.requests.size();
    for (int step = 0; step < 20; ++step) consumer.step(1, random);
    REQUIRE(reads_what_is_needed(mixture, consumer, before));
    CHECK(tape.statistics().streaming.dropped == 0);
  }
}

TEST_CASE("experts of steps before anything was streamed are forgotten") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    Mixture mixture(random);
    for (ExpertGroup& group : mixture.groups) group.used = 1 + (group.experts - 1) / 3;
    TapeOptions options;
    options.pinned_bytes_max = 2 * mixture.bytes() + (1 << 20);
    options.held_max = 1;
    options.slots = 40;
    StreamedTape tape(mixture.segments, std::make_unique<FakeReader>(mixture.disk, seed), options,
                      {}, mixture.groups);
    tape.load();
    REQUIRE(tape.plan().streamed_segments == 0);
    Consumer consumer(mixture, tape);
    consumer.step(1, random);
    tape.limit_pinned_bytes(0);
    consumer.needed.clear();
    const std::size_t before = mixture.disk.requests.size();
    consumer.step(1, random);
    REQUIRE(mixture.disk.requests.size() > before);
    REQUIRE(reads_what_is_needed(mixture, consumer, before));
  }
}

TEST_CASE("experts are read from the moment that they are known") {
  std::mt19937_64 random(6);
  FakeDisk disk;
  std::vector<Segment> segments;
  for (std::uint64_t i = 0; i < 54; ++i) segments.push_back({0, i * page_bytes, page_bytes});
  disk.files.push_back(random_bytes(54 * page_bytes, 5));
  // Two layers, each a segment that every step reads, 13 experts of 2 segments each.
  const std::vector<ExpertGroup> groups = {{1, 13, 2, 3}, {28, 13, 2, 3}};
  TapeOptions options;
  options.held_max = 1;
  options.slots = 8;
  StreamedTape tape(segments, std::make_unique<FakeReader>(disk, 1), options, {}, groups);
  tape.load();
  const auto read = [&](std::size_t turn) {
    tape.acquire(turn);
    tape.release(turn);
  };
  for (int step = 0; step < 5; ++step) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      read(groups[g].first_turn - 1);
      const std::vector<ExpertUse> uses = random_uses(13, 3, 1, random);
      const std::size_t before = disk.requests.size();
      tape.expect_experts(g, uses, 1);
      std::vector<std::size_t> needed;
      for (const ExpertUse& use : uses) {
        const std::size_t first = groups[g].first_turn_of(use.expert);
        needed.insert(needed.end(), {first, first + 1});
      }
      std::vector<std::size_t> asked_for;
      for (std::size_t i = before; i < disk.requests.size(); ++i) {
        asked_for.push_back(disk.requests[i].offset / page_bytes);
      }
      // And after them what the step, or the next one, begins with.
      needed.push_back(groups[1 - g].first_turn - 1);
      CHECK(asked_for == needed);
      needed.pop_back();
      for (const std::size_t turn : needed) read(turn);
    }
  }
}

TEST_CASE("after a layer that needed three experts of four, all of the next are read ahead") {
  for (const std::uint32_t used : {11U, 12U}) {
    INFO(used << " of 16");
    FakeDisk disk;
    std::vector<Segment> segments;
    for (std::uint64_t i = 0; i < 34; ++i) segments.push_back({0, i * page_bytes, page_bytes});
    disk.files.push_back(random_bytes(34 * page_bytes, 5));
    TapeOptions options;
    options.held_max = 1;
    options.slots = 8;
    StreamedTape tape(segments, std::make_unique<FakeReader>(disk, 1), options, {},
                      {{1, 16, 1, 2}, {18, 16, 1, 2}});
    tape.load();
    std::vector<ExpertUse> uses;
    for (std::uint32_t expert = 0; expert < used; ++expert) uses.push_back({expert, 1});
    tape.expect_experts(0, uses, used);
    for (std::size_t turn = 0; turn <= used; ++turn) {
      tape.acquire(turn);
      tape.release(turn);
    }
    std::set<std::uint64_t> asked_for;
    for (const ReadRequest& request : disk.requests) asked_for.insert(request.offset / page_bytes);
    CHECK(asked_for.contains(17));  // between the layers
    CHECK(asked_for.contains(18) == (used == 12));
    CHECK_FALSE(asked_for.contains(used + 1));
  }
}

TEST_CASE("an expert is copied to its place by its holder, or when it is released") {
  std::mt19937_64 random(3);
  Mixture mixture(random);
  mixture.segments.clear();
  mixture.groups = {{0, 4, 1, 1}, {4, 4, 1, 1}};
  for (std::uint64_t i = 0; i < 8; ++i) mixture.segments.push_back({0, i * 4096, 4096});
  mixture.disk = {};
  mixture.disk.files.push_back(random_bytes(8 * 4096, 5));
  TapeOptions options;
  options.pinned_bytes_max = 2 * 4096;  // a place for one expert of each group
  options.held_max = 1;
  options.slots = 8;
  std::vector<std::size_t> copied;
  const auto copy = [&](std::size_t turn, std::span<const std::byte> from, std::byte* to) {
    copied.push_back(turn);
    std::memcpy(to, from.data(), from.size());
  };
  StreamedTape tape(mixture.segments, std::make_unique<FakeReader>(mixture.disk, 1), options, copy,
                    mixture.groups);
  tape.load();
  const auto acquire = [&](std::size_t turn) {
    tape.expect_experts(turn / 4, std::vector<ExpertUse>{{std::uint32_t(turn % 4), 1}}, 1);
    return tape.acquire(turn);
  };
  const auto is_as_on_disk = [&](const HeldSegment& held, std::size_t turn) {
    return std::memcmp(held.bytes.data(), mixture.disk.files[0].data() + 4096 * turn, 4096) == 0;
  };
  HeldSegment held = acquire(2);
  CHECK(held.storage == Storage::ring);
  REQUIRE(held.place != nullptr);
  CHECK(is_as_on_disk(held, 2));
  CHECK_FALSE(tape.is_in_memory(2));
  std::memset(held.place, 7, 4096);
  tape.keep(2);
  CHECK(copied.empty());
  CHECK_THROWS_AS(tape.release(2), std::logic_error);
  CHECK_THROWS_AS(tape.keep(2), std::logic_error);
  held = acquire(2);
  CHECK(held.storage == Storage::copied);
  CHECK(held.place == nullptr);
  CHECK(std::ranges::count(held.bytes, std::byte{7}) == 4096);
  tape.release(2);

  CHECK(is_as_on_disk(acquire(7), 7));
  tape.release(7);
  CHECK(copied == std::vector<std::size_t>{7});
  held = acquire(7);
  CHECK(held.storage == Storage::copied);
  CHECK(is_as_on_disk(held, 7));
  tape.release(7);

  // A place may be lost while its expert is copied.
  tape.limit_pinned_bytes(0);
  CHECK(acquire(2).place == nullptr);
  tape.release(2);
  for (const bool keeps : {false, true}) {
    tape.limit_pinned_bytes(options.pinned_bytes_max);
    held = acquire(2);
    REQUIRE(held.place != nullptr);
    tape.limit_pinned_bytes(0);
    tape.limit_pinned_bytes(options.pinned_bytes_max);
    std::memset(held.place, 7, 4096);
    CHECK(is_as_on_disk(held, 2));
    keeps ? tape.keep(2) : tape.release(2);
    CHECK_FALSE(tape.is_in_memory(2));
  }
}

TEST_CASE("what is used most stays in memory") {
  Mixture mixture = [] {
    std::mt19937_64 random(3);
    Mixture made(random);
    made.segments.clear();
    made.groups = {{0, 16, 1, 2}};
    for (std::uint64_t i = 0; i < 16; ++i) made.segments.push_back({0, i * 4096, 4096});
    made.disk.files[0] = random_bytes(16 * 4096, 5);
    made.disk.late = 1;
    return made;
  }();
  TapeOptions options;
  options.pinned_bytes_max = 4 * 4096;
  options.held_max = 1;
  options.slots = 4;
  StreamedTape tape(mixture.segments, std::make_unique<FakeReader>(mixture.disk, 1), options, {},
                    mixture.groups);
  tape.load();
  const auto use = [&](std::uint32_t expert) {
    tape.expect_experts(0, std::vector<ExpertUse>{{expert, 1}}, 1);
    tape.acquire(expert);
    tape.release(expert);
  };
  // Four that come often, and now and then another of the rest.
  for (std::uint32_t i = 0; i < 400; ++i) use(i % 5 != 0 ? 7 + i % 5 : i / 5 % 8);
  for (const std::size_t often : {8U, 9U, 10U, 11U}) CHECK(tape.is_in_memory(often));
  // And four others, from now on.
  for (std::uint32_t i = 0; i < 4000; ++i) use(12 + i % 4);
  for (const std::size_t often : {12U, 13U, 14U, 15U}) CHECK(tape.is_in_memory(often));
  // There was nothing else to wait for.
  const TapeStatistics statistics = tape.statistics();
  CHECK(statistics.streaming.stalls > 0);
  CHECK(sum_of(statistics.experts).stall_ns == statistics.streaming.stall_ns);
}

TEST_CASE("a mixture gives the same logits with places for any number of its experts") {
  const TemporaryFolder folder;
  const auto model = write_mixture(folder);
  std::mt19937_64 random(4);
  std::vector<tokenizer::Token> tokens(48);
  for (auto& token : tokens) token = static_cast<tokenizer::Token>(3 + below(random, 290));

  engine::EngineOptions options;
  options.context = 64;
  options.threads = 2;
  options.chunk = 24;
  options.io = Io::pread;
  // Others may take memory meanwhile, and places with it: the guard says so.
  bool is_disturbed = false;
  options.on_change = [&](const std::string&) { is_disturbed = true; };
  std::uint64_t pinned_bytes = 0;
  const auto evaluate = [&](ExpertStatistics& sum) {
    std::vector<float> logits;
    const auto engine = engine::Engine::open(model, options);
    pinned_bytes = engine->plan().tape.pinned_bytes;
    // A prompt, a few tokens together, and single ones.
    for (std::size_t done = 0, count = 20; done < tokens.size();
         done += count, count = done < 30 ? 5 : 1) {
      count = std::min(count, tokens.size() - done);
      const auto last = engine->session().evaluate(std::span(tokens).subspan(done, count));
      logits.insert(logits.end(), last.begin(), last.end());
    }
    for (const ExpertStatistics& group : engine->tape_statistics().experts) {
      sum.uses += group.uses;
      sum.hits += group.hits;
    }
    return logits;
  };
  ExpertStatistics all;
  const std::vector<float> expected = evaluate(all);
  CHECK(all.hits == all.uses);
  CHECK(all.uses != 0);
  std::uint64_t hits_before = 0, pinned_before = 0;
  bool has_seen_both = false;
  for (const std::uint64_t more_mib : {4, 7, 10, 13}) {
    options.budget_bytes =
        engine::plan_run(model, options).plan.least_budget_bytes + (more_mib << 20);
    ExpertStatistics some;
    const std::vector<float> logits = evaluate(some);
    REQUIRE(logits.size() == expected.size());
    CHECK(std::memcmp(logits.data(), expected.data(), expected.size() * sizeof(float)) == 0);
    CHECK(some.uses == all.uses);
    // What the program itself holds comes out of the budget, and grows from engine to engine: by
    // megabytes under a sanitizer. So a larger budget need not leave more for places.
    if (pinned_bytes >= pinned_before && !is_disturbed) CHECK(some.hits >= hits_before);
    hits_before = some.hits;
    pinned_before = pinned_bytes;
    has_seen_both = has_seen_both || (some.hits != 0 && some.hits != some.uses);
  }
  CHECK((has_seen_both || is_disturbed));
}

// The machine's speeds are given, so the bound is a number that can be stated.
TEST_CASE("the bound of a mixture follows the share of its experts that are in memory") {
  const TemporaryFolder folder;
  const auto model = write_mixture(folder);
  engine::EngineOptions options;
  options.context = 64;
  options.io = Io::pread;
  options.budget_bytes = engine::plan_run(model, options).plan.least_budget_bytes + (7 << 20);
  const engine::DecodeWork work = engine::plan_run(model, options).work;
  REQUIRE(work.has_streamed_experts());
  CHECK(work.expert_places() > 0);
  CHECK(work.expert_places() < 1);
  CHECK(work.usual_hit_rate() >= work.expert_places());
  CHECK(work.expert_bytes >= work.hot_expert_bytes);
  CHECK(work.expert_read_bytes > 0);
  const std::uint64_t always_streamed = work.streamed_bytes - work.streamed_expert_bytes;
  CHECK(work.with_hit_rate(1).streamed_bytes == always_streamed);
  CHECK(work.with_hit_rate(0).streamed_bytes == always_streamed + work.hot_expert_bytes);

  const engine::MachineLimits slow_disk = {
      .dram_bytes_per_s = 1e10, .int8_macs_per_s = 1e12, .disk_bytes_per_s = 1e6, .disk_notes = {}};
  double before = 0;
  for (const double rate : {0.0, 0.25, 0.5, 0.75}) {
    const engine::DecodeWork some = work.with_hit_rate(rate);
    const engine::DecodeBound bound = engine::decode_bound(slow_disk, some);
    CHECK(bound.name == "disk");
    CHECK(bound.tokens_per_s == Approx(1e6 / static_cast<double>(some.streamed_bytes)));
    CHECK(bound.tokens_per_s > before);
    before = bound.tokens_per_s;
  }
  const engine::MachineLimits fast_disk = {.dram_bytes_per_s = 1e10,
                                           .int8_macs_per_s = 1e15,
                                           .disk_bytes_per_s = 1e15,
                                           .disk_notes = {}};
  for (const std::uint32_t parallel : {1U, 3U}) {
    const engine::DecodeBound bound = engine::decode_bound(fast_disk, work, parallel);
    CHECK(bound.name == "dram");
    CHECK(bound.tokens_per_s == Approx(parallel * 1e10 / static_cast<double>(work.hot_bytes)));
  }
}

TEST_CASE("a rehearsed prompt has logits of its last token alone, as one of a run") {
  const TemporaryFolder folder;
  const auto file = folder.path() / "model.gguf";
  synth::SyntheticModel(synth::shape_by_name("tiny-gemma2"), "Q8_0").write(file, 1, {});
  const gguf::Model model = gguf::Model::open(file);
  plan::Request request;
  request.context = 64;
  plan::PlannedModel planned = plan::plan_model(model, {}, request);
  // The caps of this model's logits tell how many there are.
  static std::size_t logits = 0;
  kernels::KernelTable table = kernels::kernel_table();
  table.vector_ops.softcap = [](float*, std::size_t size, float) { logits += size; };
  topology::ThreadTeam team(topology::CpuList{0});
  engine::Rehearsal rehearsal(planned, table, team, nullptr, 1 << 20);
  const std::size_t of_token = planned.decoder->hyper_parameters().vocabulary;
  const auto logits_of = [&](engine::LogitsOf wanted) {
    logits = 0;
    rehearsal.step_seconds(1, 16, wanted, std::chrono::milliseconds(0));
    return logits;
  };
  CHECK(logits_of(engine::LogitsOf::last_token) == of_token);
  CHECK(logits_of(engine::LogitsOf::all_tokens) == 16 * of_token);
}

TEST_CASE("tokens of a rehearsed step take all experts alike") {
  const TemporaryFolder folder;
  const auto file = write_mixture(folder);
  const gguf::Model model = gguf::Model::open(file);
  plan::Request request;
  request.context = 16;
  request.parallel = 4;
  request.budget_bytes = plan::plan_model(model, {}, request).plan.least_budget_bytes;
  plan::PlannedModel planned = plan::plan_model(model, {}, request);
  REQUIRE(planned.plan.tape.residency.pinned_expert_bytes == 0);

  FakeDisk disk;
  disk.files.emplace_back(std::filesystem::file_size(file));
  topology::ThreadTeam team(topology::CpuList{0});
  engine::Rehearsal rehearsal(planned, kernels::kernel_table(), team,
                              std::make_unique<FakeReader>(disk, 1), 1 << 20);
  const std::vector<Segment>& segments = planned.layout->segments();
  const std::vector<ExpertGroup>& groups = planned.layout->expert_groups();
  const auto is_experts = [&](const ReadRequest& read) {
    return std::ranges::any_of(groups, [&](const ExpertGroup& group) {
      return segments[group.first_turn].offset <= read.offset + page_bytes &&
             read.offset < segments[group.end_turn() - 1].offset;
    });
  };
  for (const std::size_t tokens : {1U, 4U}) {
    INFO(tokens << " tokens");
    const std::size_t before = disk.requests.size();
    constexpr int steps = 10;
    for (int step = 0; step < steps; ++step) {
      rehearsal.step_seconds(tokens, 1, engine::LogitsOf::all_tokens, std::chrono::milliseconds(0));
    }
    const auto reads = static_cast<double>(
        std::ranges::count_if(std::span(disk.requests).subspan(before), is_experts));
    double expected = 0;
    for (const ExpertGroup& group : groups) {
      expected += steps * group.share_needed(tokens) *
                  static_cast<double>(group.experts * group.turns_each);
    }
    CHECK(reads == Approx(expected).epsilon(0.15));
  }
}

}  // namespace sluice::test
