// Recurrent states in the cache: whatever happens to sequences, a step gives the bits that the same
// tokens give alone; a step that fails changes nothing; a sequence can go back to its checkpoints
// and says what else it can do; and memory is what planning is told.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>

#include "base/page.h"
#include "kvcache/kv_cache.h"
#include "tests/cached_tokens.h"
#include "tests/catch.h"
#include "tests/kernels_support.h"
#include "tests/sanitized.h"

namespace sluice::test {
namespace {

using kvcache::CacheConfig;
using kvcache::KvCache;
using kvcache::LayerShape;
using kvcache::Sequence;

// Layers with state alone, with keys and values alone, with both and with neither; odd sizes.
CacheConfig config_of(std::uint32_t checkpoints, kvcache::Window window = {}) {
  CacheConfig config;
  config.layers = {{0, 0, 0, 0, 33}, {1, 5, 3, 0, 0}, {2, 17, 24, 0, 16}, {}, {1, 8, 8, 40, 1}};
  config.positions = window.positions == 0 ? 150 : kvcache::unlimited;
  config.window = window;
  config.sequences = 3;
  config.step_columns = 40;
  config.checkpoints = checkpoints;
  return config;
}

// A sequence, its tokens, and the lengths that its checkpoints should be at.
struct Kept {
  Tracked tracked;
  std::vector<std::uint32_t> lengths;

  void go_back(std::uint32_t length) {
    tracked.tokens.resize(length);
    std::erase_if(lengths, [&](std::uint32_t kept) { return kept > length; });
  }
  // Whether its state of that length is there, by the words of the contract.
  bool has(std::uint32_t length) const {
    return length == 0 || length == tracked.tokens.size() ||
           std::ranges::find(lengths, length) != lengths.end();
  }
};

// A step that fails after some layers: they have written, and nothing advances.
void fail_step(KvCache& cache, Tracked& tracked, std::uint32_t columns, Rng& rng) {
  const std::vector<LayerShape>& layers = cache.config().layers;
  cache.prepare(tracked.sequence, columns);
  for (std::size_t l = 0; l < 1 + rng() % layers.size(); ++l) {
    std::ranges::fill(cache.next_state(tracked.sequence, l), not_a_number);
    std::vector<float> keys(layers[l].kv_heads * layers[l].key_dim, 7);
    std::vector<float> values(layers[l].kv_heads * layers[l].value_dim, 7);
    if (keys.empty()) continue;
    cache.write(tracked.sequence, l, tracked.sequence.length(), keys.data(), values.data());
  }
}

class RandomSequences {
 public:
  RandomSequences(const CacheConfig& config, Rng& rng)
      : config_(config), rng_(rng), cache_(config, table()) {}

  void turn() {
    const std::uint64_t action = rng_() % 12;
    if (all_.empty() || action == 0) return start();
    Kept& picked = *all_[rng_() % all_.size()];
    if (action == 1) return fork(picked);
    if (action == 2) return truncate(picked);
    if (action <= 4) return checkpoint(picked);
    if (action == 5 && rng_() % 2 == 0) {
      std::erase_if(all_, [&](const auto& kept) { return kept.get() == &picked; });
    } else {
      evaluate(picked);
    }
  }

  void end() {
    all_.clear();
    CHECK(cache_.pages_in_use() == 0);
    CHECK(cache_.free_positions() == config_.positions);
    for (std::uint32_t i = 0; i < config_.sequences; ++i) start();
    CHECK(all_.size() == config_.sequences);
    CHECK(cache_.free_positions() == 0);
    for (const auto& kept : all_) evaluate(*kept);
    all_.clear();
  }

 private:
  void start() {
    if (auto made = cache_.new_sequence(config_.positions)) {
      all_.push_back(std::make_unique<Kept>(Kept{{std::move(*made), {}}, {}}));
    }
  }

  // Any length, or one that the sequence says it can go back to.
  std::uint32_t random_length(const Kept& kept) {
    const Sequence& sequence = kept.tracked.sequence;
    const auto length = static_cast<std::uint32_t>(rng_() % (sequence.length() + 1));
    return rng_() % 4 == 0 ? length : sequence.reachable(length);
  }

  void fork(Kept& source) {
    const std::uint32_t prefix = random_length(source);
    const bool is_reachable = check_reachable(source, prefix);
    try {
      auto made = cache_.fork(source.tracked.sequence, prefix, config_.positions);
      CHECK(is_reachable);
      if (!made) return;
      CHECK(made->length() == prefix);
      auto kept =
          std::make_unique<Kept>(Kept{{std::move(*made), source.tracked.tokens}, source.lengths});
      kept->go_back(prefix);
      all_.push_back(std::move(kept));
    } catch (const std::length_error&) {
      CHECK_FALSE(is_reachable);
    }
  }

  void truncate(Kept& kept) {
    const std::uint32_t length = random_length(kept);
    const bool is_reachable = check_reachable(kept, length);
    try {
      kept.tracked.sequence.truncate(length);
      CHECK(is_reachable);
      kept.go_back(length);
    } catch (const std::length_error&) {
      CHECK_FALSE(is_reachable);  // there is always room for copies: no total_positions
    }
    CHECK(kept.tracked.sequence.length() == kept.tracked.tokens.size());
  }

  // Whether the sequence says that it can go back to a length.
  bool check_reachable(const Kept& kept, std::uint32_t length) {
    const Sequence& sequence = kept.tracked.sequence;
    const std::uint32_t nearest = sequence.reachable(length);
    CHECK(nearest <= length);
    CHECK(kept.has(nearest));
    CHECK(sequence.reachable(nearest) == nearest);
    for (std::uint32_t l = nearest + 1; l <= length; ++l) CHECK(sequence.reachable(l) == nearest);
    if (config_.window.positions == 0 && kept.has(length)) {
      const bool may_have_slid = length + 40 < sequence.length();  // out of the layer's own window
      CHECK((nearest == length || may_have_slid));
    }
    return nearest == length;
  }

  void checkpoint(Kept& kept) {
    kept.tracked.sequence.checkpoint();
    const auto length = static_cast<std::uint32_t>(kept.tracked.tokens.size());
    if (kept.has(length) && std::ranges::find(kept.lengths, length) != kept.lengths.end()) return;
    if (length != 0) kept.lengths.push_back(length);
    if (kept.lengths.size() > config_.checkpoints) kept.lengths.erase(kept.lengths.begin());
  }

  void evaluate(Kept& kept) {
    Tracked& tracked = kept.tracked;
    const std::size_t room =
        std::min<std::size_t>(config_.positions - tracked.tokens.size(), config_.step_columns);
    if (room == 0) return;
    const std::vector<std::uint32_t> tokens = random_tokens(1 + rng_() % room, rng_);
    if (rng_() % 3 == 0) {
      fail_step(cache_, tracked, static_cast<std::uint32_t>(1 + rng_() % room), rng_);
    }
    const auto outputs = step(cache_, tracked, tokens);
    const std::vector<float> expected = alone(config_, tracked.tokens);
    REQUIRE(outputs.back().size() == expected.size());
    CHECK(difference(outputs.back().data(), expected.data(), expected.size()).value_or("") == "");
  }

  CacheConfig config_;
  Rng& rng_;
  KvCache cache_;
  std::vector<std::unique_ptr<Kept>> all_;
};

TEST_CASE("sequences with states that are shared, go back and fail do not notice it") {
  constexpr int turns = is_sanitized ? 40 : 150;
  const std::uint64_t seed = 91;
  Rng rng(seed);
  for (const kvcache::Window window : {kvcache::Window{0, 0}, {60, 4}}) {
    for (const std::uint32_t checkpoints : {0u, 1u, 3u}) {
      INFO("seed " << seed << ", window " << window.positions << ", " << checkpoints
                   << " checkpoints");
      RandomSequences sequences(config_of(checkpoints, window), rng);
      for (int turn = 0; turn < turns; ++turn) sequences.turn();
      sequences.end();
    }
  }
}

TEST_CASE("a sequence without a state to go back to says where it can go") {
  CacheConfig config = config_of(2);
  config.layers = {{1, 8, 8, 0, 5}};
  KvCache cache(config, table());
  Tracked tracked = start(cache);
  Rng rng(92);
  const auto message = [&](std::uint32_t length) -> std::string {
    try {
      tracked.sequence.truncate(length);
    } catch (const std::length_error& error) {
      return error.what();
    }
    return "";
  };
  step(cache, tracked, random_tokens(20, rng));
  CHECK(message(19) ==
        "a sequence of 20 tokens cannot go back to 19: its recurrent state is not kept there; go "
        "back to 0 and evaluate what follows again");
  tracked.sequence.checkpoint();
  step(cache, tracked, random_tokens(10, rng));
  tracked.sequence.checkpoint();
  step(cache, tracked, random_tokens(10, rng));
  tracked.sequence.checkpoint();  // the first one makes room
  CHECK(tracked.sequence.reachable(39) == 30);
  CHECK(tracked.sequence.reachable(29) == 0);
  CHECK(message(25).find("go back to 0 and") != std::string::npos);
  CHECK(message(35).find("go back to 30 and") != std::string::npos);
  CHECK(tracked.sequence.length() == 40);
  CHECK(message(30) == "");
  CHECK(tracked.sequence.length() == 30);
  CHECK(message(30) == "");
  CHECK(message(0) == "");
  for (const float x : cache.state(tracked.sequence, 0)) CHECK(x == 0);
}

TEST_CASE("states that are saved and restored give the bits of those that were computed") {
  const CacheConfig config = config_of(1);
  KvCache cache(config, table());
  Tracked source = start(cache), restored = start(cache);
  Rng rng(93);
  step(cache, source, random_tokens(32, rng));
  const auto saved_now = cache.state_memory(source.sequence, 32);
  const std::vector<std::byte> saved(saved_now.begin(), saved_now.end());
  CHECK(saved.size() == kvcache::state_slot_bytes(config));
  source.sequence.checkpoint();
  const std::vector<std::uint32_t> rest = random_tokens(9, rng);
  const auto expected = step(cache, source, rest);
  CHECK(std::ranges::equal(cache.state_memory(source.sequence, 32), saved));
  CHECK(cache.state_memory(source.sequence, 31).empty());

  cache.prepare(restored.sequence, 32);
  const auto from = cache.page_memory(source.sequence, 0);
  const auto to = cache.page_memory(restored.sequence, 0);
  for (std::size_t part = 0; part < to.size(); ++part) {
    std::ranges::copy(from[part], to[part].begin());
  }
  std::ranges::copy(saved, cache.next_state_memory(restored.sequence).begin());
  cache.advance(restored.sequence, 32);
  restored.tokens.assign(source.tokens.begin(), source.tokens.begin() + 32);
  const auto found = step(cache, restored, rest);
  CHECK(difference(found.back().data(), expected.back().data(), found.back().size()).value_or("") ==
        "");
}

TEST_CASE("a sequence takes its state and its checkpoints along") {
  KvCache cache(config_of(1), table());
  Tracked source = start(cache), other = start(cache);
  Rng rng(94);
  step(cache, source, random_tokens(10, rng));
  source.sequence.checkpoint();
  step(cache, source, random_tokens(7, rng));
  step(cache, other, random_tokens(5, rng));
  other = std::move(source);
  const std::vector<std::uint32_t> rest = random_tokens(6, rng);
  const auto check_is_right = [&] {
    const auto found = step(cache, other, rest);
    const std::vector<float> expected = alone(config_of(1), other.tokens);
    CHECK(difference(found.back().data(), expected.data(), expected.size()).value_or("") == "");
  };
  check_is_right();
  other.sequence.truncate(10);
  other.tokens.resize(10);
  check_is_right();
}

TEST_CASE("states take two slots a sequence and one for each checkpoint") {
  CacheConfig config = config_of(3);
  CacheConfig without = config;
  for (LayerShape& layer : without.layers) layer.state_floats = 0;
  CHECK(kvcache::state_slot_bytes(config) == 4 * (48 + 16 + 16));  // 33, 16 and 1 floats
  const std::uint64_t slots = 3 * (2 + 3) * 4 * (48 + 16 + 16);
  CHECK(kvcache::state_bytes(config) ==
        (slots + base::page_bytes - 1) / base::page_bytes * base::page_bytes);
  CHECK(kvcache::bytes(config) == kvcache::bytes(without) + kvcache::state_bytes(config));
  CHECK(kvcache::state_bytes(without) == 0);
  KvCache cache(config, table());
  const Tracked tracked = start(cache);
  for (std::size_t l = 0; l < config.layers.size(); ++l) {
    CHECK(cache.state(tracked.sequence, l).size() == config.layers[l].state_floats);
    CHECK(cache.next_state(tracked.sequence, l).size() == config.layers[l].state_floats);
    CHECK(reinterpret_cast<std::uintptr_t>(cache.state(tracked.sequence, l).data()) % 64 == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(cache.next_state(tracked.sequence, l).data()) % 64 == 0);
  }
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  for (const std::size_t floats : {most, most / 4, most / 64, most / 128}) {
    config.layers = {{0, 0, 0, 0, floats}, {0, 0, 0, 0, floats}};
    CHECK_THROWS_AS(kvcache::bytes(config), std::invalid_argument);
    CHECK_THROWS_AS(KvCache(config, table()), std::invalid_argument);
  }
}

// What is set aside for a sequence is never taken by another, however short they are.
TEST_CASE("there are as many sequences with states as there is room for states") {
  CacheConfig config = config_of(0);
  KvCache cache(config, table());
  std::vector<Sequence> all;
  for (std::uint32_t i = 0; i < config.sequences; ++i) {
    CHECK(cache.free_positions() == config.positions);
    auto made = cache.new_sequence(1);
    REQUIRE(made);
    all.push_back(std::move(*made));
  }
  CHECK(cache.free_positions() == 0);
  CHECK_FALSE(cache.new_sequence(1));
  CHECK_FALSE(cache.fork(all.front(), 0, 1));
  all.pop_back();
  CHECK(cache.fork(all.front(), 0, 1));
}

}  // namespace
}  // namespace sluice::test
