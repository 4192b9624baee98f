// The KV cache: attention over what was written is that of the definition in double arithmetic,
// with windows and sinks; sequences that share pages, slide, go back and end do not touch each
// other; all pages come back; and bytes are what planning is told.
#include "kvcache/kv_cache.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/page.h"
#include "kernels/dequantise.h"
#include "kernels/kernel_table.h"
#include "tests/cached_tokens.h"
#include "tests/catch.h"
#include "tests/kernels_support.h"
#include "tests/kv_pages.h"
#include "tests/sanitized.h"

namespace sluice::test {
namespace {

using kvcache::CacheConfig;
using kvcache::ElementType;
using kvcache::KvCache;
using kvcache::LayerShape;
using kvcache::PositionRange;
using kvcache::Sequence;
using kvcache::Window;

constexpr ElementType all_types[] = {ElementType::f32, ElementType::f16, ElementType::int8};
// Layers of different shapes, odd ones too; one without attention, some with a window of their own.
std::vector<LayerShape> mixed_layers() {
  return {{2, 5, 3, 0},
          {0, 0, 0, 0},
          {1, 64, 64, 40},
          {1, 33, 80, 0},
          {3, 24, 17, 7},
          {2, 88, 64, 0, 0, true},
          {1, 40, 32, 7, 0, true},
          {2, 8, 8, 13, 0, false, true}};
}

CacheConfig config_of(ElementType type, std::uint32_t positions, Window window = {}) {
  CacheConfig config;
  config.layers = mixed_layers();
  config.positions = positions;
  config.window = window;
  config.sequences = 3;
  config.step_columns = 70;
  config.type = type;
  return config;
}

// Where the second part of a key begins, which has a scale of its own; and where it has a transform
// of its own.
std::size_t middle_of(const LayerShape& s) {
  return s.keys_hold_values ? s.value_dim : kernels::first_half(s.key_dim);
}
void transform_key(const LayerShape& s, float* row) {
  const kernels::KvRowKernels& scalar = kernels::kernel_table(kernels::Isa::scalar).kv_rows;
  const std::size_t first = s.keys_hold_values ? s.value_dim : s.key_dim;
  scalar.hadamard(row, first);
  if (first < s.key_dim) scalar.hadamard(row + first, s.key_dim - first);
}

// A row as it comes back from the cache. int8: of a transformed row, with the second scale from
// `middle` on.
std::vector<double> kept(std::vector<float> row, ElementType type, std::size_t middle) {
  const kernels::KvRowKernels& scalar = kernels::kernel_table(kernels::Isa::scalar).kv_rows;
  std::vector<std::int8_t> q(row.size());
  std::uint16_t scales[2] = {};
  if (type == ElementType::int8) {
    kernels::RowPlace place = kernels::contiguous_place(row.size());
    if (row.size() > kernels::short_row_max) place = {middle, {0, middle}, 4, 1};
    scalar.quantise(row.data(), row.size(), q.data(), place, scales, 1);
    kernels::dequantise_row(q.data(), place, row.size(), scales, 1, row.data());
  }
  if (type == ElementType::f16) {
    for (float& x : row) x = kernels::half_to_float(kernels::float_to_half(x));
  }
  return {row.begin(), row.end()};
}

// The key and the value of a head at a position, in the basis that they are kept in.
std::pair<std::vector<double>, std::vector<double>> kept_rows(const LayerShape& s,
                                                              std::vector<float> key,
                                                              std::vector<float> value,
                                                              ElementType type) {
  if (type == ElementType::int8) {
    transform_key(s, key.data());
    kernels::kernel_table(kernels::Isa::scalar).kv_rows.hadamard(value.data(), value.size());
  }
  const std::vector<double> kept_key = kept(std::move(key), type, middle_of(s));
  const auto values_end = kept_key.begin() + static_cast<std::ptrdiff_t>(s.value_dim);
  if (s.keys_hold_values) return {kept_key, {kept_key.begin(), values_end}};
  return {kept_key, kept(std::move(value), type, kernels::first_half(s.value_dim))};
}

std::vector<float> part(const std::vector<float>& rows, std::size_t index, std::size_t dim) {
  const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(index * dim);
  return {begin, begin + static_cast<std::ptrdiff_t>(dim)};
}

double largest_magnitude(const std::vector<double>& row) {
  double largest = 0;
  for (const double x : row) largest = std::max(largest, std::abs(x));
  return largest;
}

// What the last token of `tokens` sees, by the words of the contract.
bool is_visible(const LayerShape& s, Window window, std::uint32_t t, std::uint32_t p) {
  if (s.window != 0 && (window.positions == 0 || s.window <= window.positions)) {
    return s.has_chunks ? p / s.window == t / s.window : t - p < s.window;
  }
  if (window.positions == 0) return true;
  return p < window.sinks || t - p < window.positions - window.sinks || t < window.positions;
}

bool is_sink(const LayerShape& s, Window window, std::uint32_t t, std::uint32_t p) {
  const bool narrow = s.window != 0 && s.window <= window.positions;
  return !narrow && p < window.sinks && t >= window.positions;
}

bool is_within(std::span<const PositionRange> ranges, std::uint32_t p) {
  return std::ranges::any_of(
      ranges, [p](const PositionRange& range) { return p >= range.begin && p < range.end; });
}

// The outputs of the last token, and how far a float computation may be from them. Of positions
// that are no sinks it sees those of `chosen` alone, if there are any.
void oracle(const CacheConfig& config, const std::vector<std::uint32_t>& tokens,
            std::vector<double>& expected, std::vector<double>& tolerance,
            std::span<const PositionRange> chosen = {}) {
  const auto t = static_cast<std::uint32_t>(tokens.size() - 1);
  const bool has_words = config.type == ElementType::int8;
  for (std::size_t l = 0; l < config.layers.size(); ++l) {
    const LayerShape& s = config.layers[l];
    if (s.kv_heads == 0) continue;
    const TokenRows own = rows_of(s, l, tokens[t], t);
    std::vector<std::pair<std::uint32_t, TokenRows>> visible;
    for (std::uint32_t p = 0; p <= t; ++p) {
      const bool is_chosen =
          chosen.empty() || is_within(chosen, p) || is_sink(s, config.window, t, p);
      if (is_chosen && is_visible(s, config.window, t, p)) {
        visible.emplace_back(p, rows_of(s, l, tokens[p], p));
      }
    }
    for (std::size_t h = 0; h < s.kv_heads * query_heads; ++h) {
      std::vector<double> weights;
      std::vector<std::vector<double>> values;
      double error = 0;
      for (const auto& [p, rows] : visible) {
        const auto [key, value] =
            kept_rows(s, part(rows.keys, h / query_heads, s.key_dim),
                      part(rows.values, h / query_heads, s.value_dim), config.type);
        values.push_back(value);
        const std::vector<float>& queries =
            is_sink(s, config.window, t, p) ? own.sink_queries : own.queries;
        std::vector<float> query = part(queries, h, s.key_dim);
        if (config.type == ElementType::int8) transform_key(s, query.data());
        const std::vector<double> rounding =
            word_rounding(query.data(), query.size(), middle_of(s));
        double score = 0, magnitude = 0, rounded = 0;
        for (std::size_t k = 0; k < s.key_dim; ++k) {
          score += query[k] * key[k];
          magnitude += std::abs(query[k] * key[k]);
          if (has_words) rounded += rounding[k] * std::abs(key[k]);
        }
        weights.push_back(score * 0.2f);
        error = std::max(
            error,
            0.2 * (magnitude * epsilon * (static_cast<double>(s.key_dim) / 16 + 20) + rounded));
      }
      const float* logits = sink_logits_of(l);
      const double sink_logit = logits ? logits[h % query_heads] : -INFINITY;
      const double top = std::max(sink_logit, *std::max_element(weights.begin(), weights.end()));
      double sum = std::exp(sink_logit - top);
      for (double& w : weights) sum += w = std::exp(w - top);
      // What a probability is rounded by as a word, times the largest element of a row of values.
      double largest = 0, total = 0;
      for (std::size_t i = 0; has_words && i < weights.size(); ++i) {
        const double product = weights[i] / sum * largest_magnitude(values[i]);
        largest = std::max(largest, product);
        total += product;
      }
      const double words =
          0.51 * double(weights.size()) * std::max(largest / 32639, total * 0x1p-23);
      for (std::size_t v = 0; v < s.value_dim; ++v) {
        double mixed = 0, magnitude = 0;
        for (std::size_t i = 0; i < weights.size(); ++i) {
          mixed += weights[i] / sum * values[i][v];
          magnitude += std::abs(weights[i] / sum * values[i][v]);
        }
        expected.push_back(mixed);
        // Probabilities may be too small for a float.
        tolerance.push_back(magnitude *
                                (4 * error + epsilon * (1.2 * double(weights.size()) + 20)) +
                            words + 1e-30);
      }
    }
  }
}

TEST_CASE("attention over pages is that of the definition, with windows and sinks") {
  Rng rng(71);
  for (const ElementType type : all_types) {
    // 40 and 13 are also windows that layers have of their own.
    for (const Window window :
         {Window{0, 0}, {10, 0}, {50, 4}, {70, 40}, {33, 32}, {40, 4}, {13, 6}}) {
      const std::uint32_t positions = window.positions == 0 ? 200 : kvcache::unlimited;
      CacheConfig config = config_of(type, positions, window);
      KvCache cache(config, table());
      Tracked tracked = start(cache);
      while (tracked.tokens.size() < 130) {
        const std::size_t columns = 1 + (rng() % 3 == 0 ? rng() % 20 : 0);
        const auto outputs = step(cache, tracked, random_tokens(columns, rng));
        std::vector<double> expected, tolerance;
        oracle(config, tracked.tokens, expected, tolerance);
        INFO("type " << static_cast<int>(type) << ", window " << window.positions << " with "
                     << window.sinks << " sinks, " << tracked.tokens.size() << " tokens");
        REQUIRE(outputs.back().size() == expected.size());
        CHECK(beyond(outputs.back().data(), expected, tolerance).value_or("") == "");
      }
    }
  }
}

// Ranges of one position, of several pages, from the begin of the window and up to the token.
std::vector<PositionRange> random_ranges(std::uint32_t begin, std::uint32_t end, Rng& rng) {
  std::vector<PositionRange> ranges;
  for (std::uint32_t at = begin; at < end;) {
    if (rng() % 4 != 0) at += static_cast<std::uint32_t>(rng() % 20);
    if (at >= end) break;
    const auto count = static_cast<std::uint32_t>(1 + (rng() % 3 == 0 ? rng() % 70 : 0));
    ranges.push_back({at, std::min(at + count, end)});
    at += count + 1;
  }
  if (ranges.empty()) ranges.push_back({end - 1, end});
  return ranges;
}

TEST_CASE("a token with chosen positions sees those of its window, and the sinks") {
  Rng rng(75);
  for (const ElementType type : all_types) {
    for (const Window window : {Window{0, 0}, {50, 4}, {70, 40}, {33, 32}, {120, 0}}) {
      const std::uint32_t positions = window.positions == 0 ? 300 : kvcache::unlimited;
      CacheConfig config = config_of(type, positions, window);
      std::erase_if(config.layers, [](const LayerShape& s) { return s.window != 0; });
      KvCache cache(config, table());
      Tracked tracked = start(cache);
      while (tracked.tokens.size() < 200) {
        step(cache, tracked, random_tokens(1 + rng() % 20, rng));
        const auto position = static_cast<std::uint32_t>(tracked.tokens.size());
        const std::vector<PositionRange> chosen =
            random_ranges(cache.window_begin(0, position), position + 1, rng);
        const auto outputs = step(cache, tracked, random_tokens(1, rng), {1, chosen});
        std::vector<double> expected, tolerance;
        oracle(config, tracked.tokens, expected, tolerance, chosen);
        INFO("type " << static_cast<int>(type) << ", window " << window.positions << " with "
                     << window.sinks << " sinks, " << tracked.tokens.size() << " tokens, "
                     << chosen.size() << " ranges from " << chosen.front().begin << " on");
        REQUIRE(outputs.back().size() == expected.size());
        CHECK(beyond(outputs.back().data(), expected, tolerance).value_or("") == "");
      }
    }
  }
}

// Chunks shorter and longer than windows, cut into blocks at random.
TEST_CASE("tokens that look at the cache together get the bits of each alone") {
  Rng rng(76);
  for (const ElementType type : all_types) {
    for (const Window window : {Window{0, 0}, {10, 0}, {50, 4}, {70, 40}, {33, 32}}) {
      const CacheConfig config =
          config_of(type, window.positions == 0 ? 200 : kvcache::unlimited, window);
      KvCache one_cache(config, table()), together_cache(config, table());
      Tracked one = start(one_cache), together = start(together_cache);
      while (one.tokens.size() < 140) {
        const std::vector<std::uint32_t> tokens = random_tokens(1 + rng() % 60, rng);
        const auto columns = static_cast<std::uint32_t>(1 + rng() % 45);
        const auto expected = step(one_cache, one, tokens);
        const auto found = step(together_cache, together, tokens, {columns});
        INFO("type " << static_cast<int>(type) << ", window " << window.positions << " with "
                     << window.sinks << " sinks, " << one.tokens.size() << " tokens, " << columns
                     << " together");
        for (std::size_t c = 0; c < tokens.size(); ++c) {
          CHECK(difference(found[c].data(), expected[c].data(), found[c].size()).value_or("") ==
                "");
        }
      }
    }
  }
}

TEST_CASE("tokens look together under windows too, but not over the border of the sinks") {
  CacheConfig config = config_of(ElementType::int8, kvcache::unlimited, {50, 4});
  const KvCache cache(config, table());
  CHECK(cache.columns_together(0, 0, 20) == 20);
  CHECK(cache.columns_together(0, 45, 20) == 5);
  CHECK(cache.columns_together(0, 50, 20) == 20);
  CHECK(cache.columns_together(0, 1000, 70) == kvcache::window_columns_max);
  CHECK(cache.columns_together(4, 0, 20) == 20);  // a window of its own, without sinks
  CHECK(cache.columns_together(4, 45, 20) == 20);
  CHECK(cache.columns_together(7, 0, 20) == 13);  // chunks of 13
  CHECK(cache.columns_together(7, 25, 20) == 1);
}

TEST_CASE("queries at sinks stand where the window begins to slide") {
  const KvCache windowed(config_of(ElementType::f32, kvcache::unlimited, {50, 4}), table());
  const KvCache whole(config_of(ElementType::f32, 200), table());
  for (const std::uint32_t position : {0u, 48u, 49u, 50u, 51u, 1000u}) {
    CHECK(windowed.sink_query_position(position) == std::min(position, 49u));
    CHECK(whole.sink_query_position(position) == position);
  }
}

TEST_CASE("the memory of a page is that of its positions, for as long as they are seen") {
  CacheConfig config = config_of(ElementType::f32, kvcache::unlimited, {40, 4});
  config.layers = {{1, 8, 8, 0}};
  KvCache cache(config, table());
  Tracked tracked = start(cache);
  Rng rng(79);
  int slid = 0;
  while (tracked.tokens.size() < 300) {
    step(cache, tracked, random_tokens(1 + rng() % 30, rng));
    const auto length = static_cast<std::uint32_t>(tracked.tokens.size());
    for (std::uint32_t page = 0; page * 32 < length + 64; ++page) {
      const auto parts = cache.page_memory(tracked.sequence, page);
      INFO("page " << page << " of " << length << " tokens");
      if (parts.empty()) {
        const std::uint32_t end = std::min(length, page * 32 + 32);
        for (std::uint32_t p = page * 32; p < end; ++p) {
          CHECK_FALSE(is_visible(config.layers[0], config.window, length, p));
        }
        slid += page * 32 < length ? 1 : 0;
        continue;
      }
      REQUIRE(page * 32 < length);
      const std::vector<float> key =
          rows_of(config.layers[0], 0, tracked.tokens[page * 32], page * 32).keys;
      CHECK(std::memcmp(parts[0].data(), key.data(), key.size() * sizeof(float)) == 0);
    }
  }
  CHECK(slid > 0);
}

TEST_CASE("a key is read as it is kept") {
  for (const ElementType type : all_types) {
    CacheConfig config = config_of(type, 100);
    config.layers = {{1, 33, 20, 0}, {1, 64, 8, 0}, {1, 128, 16, 0}};
    KvCache cache(config, table());
    Tracked tracked = start(cache);
    Rng rng(78);
    step(cache, tracked, random_tokens(70, rng));
    for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
      const LayerShape& s = config.layers[layer];
      for (std::uint32_t position = 0; position < 70; ++position) {
        const TokenRows rows = rows_of(s, layer, tracked.tokens[position], position);
        std::vector<float> key = rows.keys;
        if (type == ElementType::int8) transform_key(s, key.data());
        std::vector<float> found(s.key_dim);
        cache.read_key(tracked.sequence, layer, position, found.data());
        INFO("type " << static_cast<int>(type) << ", layer " << layer << ", " << position);
        CHECK(std::vector<double>(found.begin(), found.end()) == kept(key, type, middle_of(s)));
      }
    }
  }
}

// Sequences that start, grow, split, go back and end at random: each step gives the bits that the
// same tokens give alone, and in the end all pages are free.
TEST_CASE("sequences that share pages do not notice each other") {
  constexpr int turns = is_sanitized ? 25 : 80;
  Rng rng(72);
  for (const Window window : {Window{0, 0}, {40, 4}}) {
    for (const ElementType type : {ElementType::int8, ElementType::f16}) {
      const std::uint32_t positions = window.positions == 0 ? 150 : kvcache::unlimited;
      const CacheConfig config = config_of(type, positions, window);
      KvCache cache(config, table());
      std::vector<std::unique_ptr<Tracked>> all;
      for (int turn = 0; turn < turns; ++turn) {
        const std::size_t pick = all.empty() ? 0 : rng() % all.size();
        const std::uint64_t action = rng() % 10;
        const auto wanted = static_cast<std::uint32_t>(
            positions == kvcache::unlimited ? positions : 1 + rng() % positions);
        if (all.empty() || action == 0) {
          if (auto made = cache.new_sequence(wanted)) {
            all.push_back(std::make_unique<Tracked>(Tracked{std::move(*made), {}}));
          }
        } else if (action == 1) {
          Tracked& source = *all[pick];
          const auto prefix = static_cast<std::uint32_t>(rng() % (source.tokens.size() + 1));
          try {
            if (auto made = cache.fork(source.sequence, prefix, positions)) {
              CHECK(made->length() == prefix);
              all.push_back(std::make_unique<Tracked>(Tracked{
                  std::move(*made), {source.tokens.begin(), source.tokens.begin() + prefix}}));
            }
          } catch (const std::length_error&) {  // the window of a layer has slid
          }
        } else if (action == 2) {
          const auto length = static_cast<std::uint32_t>(rng() % (all[pick]->tokens.size() + 1));
          try {
            all[pick]->sequence.truncate(length);
            all[pick]->tokens.resize(length);
          } catch (const std::length_error&) {
          }
          CHECK(all[pick]->sequence.length() == all[pick]->tokens.size());
        } else if (action == 8) {
          Sequence& sequence = all[pick]->sequence;
          const std::uint32_t before = sequence.capacity();
          const bool is_done = sequence.reserve(wanted);
          CHECK(sequence.capacity() == (is_done ? std::max(wanted, sequence.length()) : before));
          CHECK((is_done || wanted > before));
        } else if (action == 9) {  // a step that fails
          Sequence& sequence = all[pick]->sequence;
          const std::size_t before = cache.pages_in_use();
          cache.prepare(sequence, std::min(sequence.capacity() - sequence.length(), 60U));
          cache.abandon(sequence);
          CHECK(cache.pages_in_use() == before);
        } else if (action == 3 && rng() % 2 == 0) {
          all.erase(all.begin() + static_cast<std::ptrdiff_t>(pick));
        } else {
          Tracked& tracked = *all[pick];
          const std::size_t room =
              std::min<std::size_t>(tracked.sequence.capacity() - tracked.tokens.size(), 40);
          if (room == 0) continue;
          const auto outputs = step(cache, tracked, random_tokens(1 + rng() % room, rng));
          const std::vector<float> expected = alone(config, tracked.tokens);
          INFO("turn " << turn << ", window " << window.positions);
          CHECK(difference(outputs.back().data(), expected.data(), expected.size()).value_or("") ==
                "");
        }
      }
      all.clear();
      CHECK(cache.pages_in_use() == 0);
      CHECK(cache.free_positions() == positions);
    }
  }
}

TEST_CASE("what a sequence has set aside is never taken by another") {
  CacheConfig config = config_of(ElementType::int8, 128);
  config.layers = {{1, 8, 8, 0}};
  KvCache cache(config, table());  // 12 pages
  Rng rng(73);
  Tracked first = start(cache);
  CHECK(cache.free_positions() == 128);  // as large as a sequence may be
  std::optional<Sequence> second = cache.new_sequence(100), third = cache.new_sequence(128);
  REQUIRE((second && third));
  CHECK(cache.free_positions() == 0);
  CHECK_FALSE(cache.new_sequence(1));
  step(cache, first, random_tokens(70, rng));
  CHECK_FALSE(cache.fork(first.sequence, 70, 96));  // two pages are shared, but it needs a third
  CHECK(cache.fork(first.sequence, 64, 64));        // nothing but what is shared
  third.reset();
  std::optional<Sequence> fork = cache.fork(first.sequence, 70, 128);
  REQUIRE(fork);
  CHECK(cache.free_positions() == 64);  // the two pages that it shares
  std::optional<Sequence> fourth = cache.new_sequence(64);
  REQUIRE(fourth);
  // The fork holds pages that the first would have to make anew.
  CHECK_THROWS_AS(first.sequence.truncate(40), std::length_error);
  CHECK(first.sequence.length() == 70);
  CHECK_NOTHROW(first.sequence.truncate(64));
  fourth.reset();
  CHECK_NOTHROW(first.sequence.truncate(40));
  CHECK(first.sequence.length() == 40);
}

TEST_CASE("what is set aside grows while there is room, and shrinks to what is held") {
  CacheConfig config = config_of(ElementType::int8, 128);
  config.layers = {{1, 8, 8, 0}};
  KvCache cache(config, table());  // 12 pages
  Rng rng(74);
  Tracked first = {cache.new_sequence(40).value(), {}};
  std::optional<Sequence> second = cache.new_sequence(128), third = cache.new_sequence(128);
  REQUIRE((second && third));
  step(cache, first, random_tokens(40, rng));
  CHECK(first.sequence.reserve(64));  // the page is there already
  CHECK(first.sequence.capacity() == 64);
  CHECK_FALSE(first.sequence.reserve(129));  // longer than a sequence may be
  CHECK(first.sequence.reserve(128));
  CHECK_FALSE(cache.new_sequence(1));
  CHECK(first.sequence.reserve(0));
  CHECK(first.sequence.capacity() == 40);
  CHECK(cache.free_positions() == 64);
  second.reset();
  CHECK(cache.new_sequence(128));
  CHECK(first.sequence.length() == 40);
}

TEST_CASE("with a window memory is constant for ever") {
  constexpr int turns = is_sanitized ? 100 : 400;
  for (const Window window : {Window{40, 4}, {64, 0}, {65, 33}}) {
    CacheConfig config = config_of(ElementType::int8, kvcache::unlimited, window);
    config.layers = {{1, 8, 8, 0}, {1, 4, 4, 16}};
    config.sequences = 2;
    KvCache cache(config, table());
    Tracked a = start(cache), b = start(cache);
    Rng rng(74);
    std::size_t most = 0;
    for (int turn = 0; turn < turns; ++turn) {
      // As many tokens as a step may have, of both sequences.
      const std::size_t split = 1 + rng() % (config.step_columns - 1);
      step(cache, a, random_tokens(split, rng));
      step(cache, b, random_tokens(config.step_columns - split, rng));
      if (turn == 20) most = cache.pages_in_use();
      if (turn > 20) CHECK(cache.pages_in_use() <= most + 8);
    }
    CHECK(a.tokens.size() + b.tokens.size() == turns * 70);
    CHECK_THROWS_AS(a.sequence.truncate(a.sequence.length() - 65), std::length_error);
    CHECK_NOTHROW(a.sequence.truncate(0));
    a.tokens.clear();
    CHECK(a.sequence.length() == 0);
    const std::vector<std::uint32_t> tokens = random_tokens(50, rng);
    const std::vector<float> expected = alone(config, tokens);
    const auto outputs = step(cache, a, tokens);
    CHECK(difference(outputs.back().data(), expected.data(), expected.size()).value_or("") == "");
  }
}

// The token behind such a border sees no page before it but the sinks.
TEST_CASE("a sequence goes back to the border of a chunk within what it has set aside") {
  struct Case {
    LayerShape layer;
    Window window;
  };
  for (const Case& c : {Case{{1, 8, 8, 64, 0, false, true}, {}}, {{1, 8, 8, 0}, {33, 32}}}) {
    CacheConfig config = config_of(ElementType::int8, 512, c.window);
    config.layers = {c.layer};
    KvCache cache(config, table());
    Rng rng(77);
    Tracked tracked = start(cache);
    const std::size_t most = kvcache::sequence_pages(kvcache::layer_groups(config)[0].window, 512);
    for (const std::uint32_t border : {64u, 128u, 320u}) {
      while (tracked.tokens.size() < border + 5) step(cache, tracked, random_tokens(1, rng));
      tracked.sequence.truncate(border);
      tracked.tokens.resize(border);
      INFO("window " << c.window.positions << ", border " << border);
      cache.prepare(tracked.sequence, 1);
      CHECK(cache.pages_in_use() <= most);
      cache.abandon(tracked.sequence);
      const auto outputs = step(cache, tracked, random_tokens(3, rng));
      const std::vector<float> expected = alone(config, tracked.tokens);
      CHECK(difference(outputs.back().data(), expected.data(), expected.size()).value_or("") == "");
    }
  }
}

TEST_CASE("bytes are those of the numbers: at most four a row beyond the elements of int8") {
  const auto in_pages = [](std::size_t bytes) {
    return (bytes + base::page_bytes - 1) / base::page_bytes * base::page_bytes;
  };
  for (const std::uint32_t positions : {32u, 64u, 1024u}) {
    for (const ElementType type : all_types) {
      CacheConfig config = config_of(type, positions);
      for (LayerShape& layer : config.layers) layer.window = 0;
      config.sequences = 1;
      std::size_t expected = 0;
      for (const LayerShape& s : config.layers) {
        const bool is_int8 = type == ElementType::int8;
        const std::size_t element = type == ElementType::f32 ? 4 : (is_int8 ? 1 : 2);
        const std::size_t padding = is_int8 && s.key_dim > 16 ? (4 - s.key_dim % 4) % 4 : 0;
        const std::size_t scales = is_int8 ? (s.keys_hold_values ? 4 : 2 * 4) : 0;
        const std::size_t elements = s.key_dim + (s.keys_hold_values ? 0 : s.value_dim);
        expected += positions * s.kv_heads * (element * elements + padding + scales);
      }
      CHECK(kvcache::bytes(config) == in_pages(expected));
    }
  }
  CacheConfig yi = {std::vector(48, LayerShape{4, 128, 128, 0}), 4096};
  CHECK(kvcache::bytes(yi) == in_pages(std::size_t{48} * 4 * 2 * (128 + 4) * 4096));
  yi.window = {256, 4};
  yi.positions = kvcache::unlimited;
  CHECK(kvcache::bytes(yi) == in_pages(std::size_t{48} * 4 * 2 * (128 + 4) * 32 * (1 + 8 + 2)));
}

TEST_CASE("layers with a short window allocate a short cache") {
  CacheConfig config = config_of(ElementType::f16, 4096);
  config.layers = {{1, 8, 8, 512}, {1, 8, 8, 0}, {1, 8, 8, 512}, {1, 8, 8, 8192}};
  config.sequences = 1;
  const auto groups = kvcache::layer_groups(config);
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].layers == std::vector<std::size_t>{0, 2});
  CHECK(groups[1].layers == std::vector<std::size_t>{1, 3});  // a window beyond the context is none
  CHECK(groups[1].pages == 128);
  CHECK(groups[0].pages == 16 + 2 + 2);  // and 70 tokens of a step
  // As long as a sequence, or longer by one.
  config.layers = {{1, 8, 8, 4096}, {1, 8, 8, 4095}};
  const auto ends = kvcache::layer_groups(config);
  REQUIRE(ends.size() == 2);
  CHECK(ends[0].window == Window{});
  CHECK(ends[1].window == Window{4095});
}

TEST_CASE("sequences together have the room that was asked for, and full windows") {
  CacheConfig config = config_of(ElementType::f16, 200);
  config.layers = {{1, 8, 8, 0}, {1, 8, 8, 33}};
  const auto pages = [&](std::uint64_t total) {
    config.total_positions = total;
    const auto groups = kvcache::layer_groups(config);
    CHECK(groups.at(1).pages == 3 * 3 + 2);
    return groups[0].pages;
  };
  CHECK(pages(0) == 3 * 7);
  CHECK(pages(200) == 7);
  CHECK(pages(225) == 8);
  CHECK(pages(3 * 224) == 3 * 7);
  CHECK(pages(std::uint64_t{1} << 40) == 3 * 7);
  CHECK_THROWS_AS(pages(199), std::invalid_argument);
}

TEST_CASE("pages and slots have numbers of 32 bits, of which one stands for none") {
  // 65535 * 65537 = 2^32 - 1.
  CacheConfig config = {{LayerShape{1, 1, 1, 0}}, 65535 * kvcache::page_positions};
  config.sequences = 65537;
  CHECK_THROWS_AS(kvcache::layer_groups(config), std::invalid_argument);
  config.positions = 2 * kvcache::page_positions;
  config.sequences = 0x7FFFFFFF;
  CHECK(kvcache::layer_groups(config)[0].pages == 0xFFFFFFFE);

  config.layers = {{0, 0, 0, 0, 1}};
  CHECK(kvcache::state_bytes(config) == std::size_t{0x100000000} * 64);  // in whole pages
  config.sequences = 65537;
  config.checkpoints = 65533;
  CHECK_THROWS_AS(kvcache::state_bytes(config), std::invalid_argument);
}

// What the columns of a call see together, by the words of the contract.
TEST_CASE("a call of attention sees as many positions and runs of them as a plan has room for") {
  for (const Window window : {Window{0, 0}, {10, 0}, {50, 4}, {70, 40}, {33, 32}, {100, 33}}) {
    for (const std::uint32_t step_columns : {1U, 7U, 70U}) {
      CacheConfig config = config_of(ElementType::int8, 200, window);
      config.step_columns = step_columns;
      const KvCache cache(config, table());
      std::size_t positions_max = 0, runs_max = 0;
      for (std::size_t l = 0; l < config.layers.size(); ++l) {
        if (config.layers[l].kv_heads == 0) continue;
        for (std::uint32_t first = 0; first < config.positions; ++first) {
          const std::uint32_t columns =
              cache.columns_together(l, first, std::min(step_columns, config.positions - first));
          std::size_t positions = 0, runs = 0;
          bool was_seen = false;
          for (std::uint32_t p = 0; p < first + columns; ++p) {
            bool is_seen = false;
            for (std::uint32_t t = std::max(first, p); t < first + columns; ++t) {
              is_seen = is_seen || is_visible(config.layers[l], window, t, p);
            }
            positions += is_seen ? 1 : 0;
            runs += is_seen && (!was_seen || p % kvcache::page_positions == 0) ? 1 : 0;
            was_seen = is_seen;
          }
          positions_max = std::max(positions_max, positions);
          runs_max = std::max(runs_max, runs);
        }
      }
      INFO("window " << window.positions << " with " << window.sinks << " sinks, " << step_columns
                     << " columns");
      CHECK(kvcache::visible_positions_max(config) == positions_max);
      CHECK(kvcache::runs_max(config) >= runs_max);
      CHECK(kvcache::runs_max(config) <= runs_max + 3);
    }
  }
}

TEST_CASE("caches that make no sense are refused") {
  CHECK_THROWS_AS(kvcache::bytes(config_of(ElementType::f16, 0)), std::invalid_argument);
  CHECK_THROWS_AS(kvcache::bytes(config_of(ElementType::f16, 100, {8, 8})), std::invalid_argument);
  // No end, and a layer that keeps everything.
  CHECK_THROWS_AS(kvcache::bytes(config_of(ElementType::f16, kvcache::unlimited)),
                  std::invalid_argument);
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  for (const LayerShape& wide : {LayerShape{1, most, 1, 0},
                                 {1, most / 64, most / 64, 0},
                                 {most / 4, 64, 64, 0},
                                 {1, 1, most / 8, 0}}) {
    const CacheConfig config = {{wide, wide}, 4096};
    CHECK_THROWS_AS(kvcache::bytes(config), std::invalid_argument);
    CHECK_THROWS_AS(KvCache(config, table()), std::invalid_argument);
  }
  for (const LayerShape& odd : {LayerShape{1, 64, 48, 0, 0, true}, {1, 64, 64, 0, 0, true}}) {
    CHECK_THROWS_AS(kvcache::bytes(CacheConfig{{odd}, 64}), std::invalid_argument);
  }
  const CacheConfig large = {{LayerShape{1 << 20, 1 << 20, 1 << 20, 0}}, 1 << 12};
  CHECK_THROWS_AS(KvCache(large, table()), std::system_error);
}

TEST_CASE("a cache without attention holds nothing") {
  const CacheConfig config = {std::vector(3, LayerShape{}), 100};
  CHECK(kvcache::bytes(config) == 0);
  KvCache cache(config, table());
  Tracked tracked = start(cache);
  Rng rng(75);
  step(cache, tracked, random_tokens(100, rng));
  CHECK(tracked.sequence.length() == 100);
}

}  // namespace
}  // namespace sluice::test
