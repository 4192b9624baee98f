// The KV cache: what is written is what a view shows, nothing else changes, and the bytes are the
// bytes that planning is told.
#include "kvcache/kv_cache.h"

#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include "kernels/dequantise.h"
#include "kernels/kernel_table.h"
#include "tests/catch.h"
#include "tests/kernels_support.h"

namespace sluice::test {
namespace {

using kvcache::CacheConfig;
using kvcache::ElementType;
using kvcache::KvCache;

// Layers of different shapes, one without attention.
CacheConfig mixed_config(ElementType type, std::size_t positions) {
  return {{{2, 5, 3}, {0, 0, 0}, {4, 64, 64}, {1, 1, 7}, {3, 80, 96}}, positions, type};
}

const kernels::AttentionKernels& attention() {
  return kernels::kernel_table().attention;
}

float stored(const void* rows, ElementType type, std::size_t index) {
  if (type == ElementType::f32) return static_cast<const float*>(rows)[index];
  return kernels::half_to_float(static_cast<const std::uint16_t*>(rows)[index]);
}

// What was written, found again by plain indexing.
struct Expected {
  std::vector<float> keys, values;  // [position][kv_head][dim] of one layer
};

TEST_CASE("a view shows what was written, for every layer, head and position") {
  for (const ElementType type : {ElementType::f32, ElementType::f16}) {
    constexpr std::size_t positions = 37;
    const CacheConfig config = mixed_config(type, positions);
    KvCache cache(config, attention());
    Rng rng(51);
    std::vector<Expected> written;
    for (const kvcache::LayerShape& s : config.layers) {
      written.push_back({random_floats(positions * s.kv_heads * s.key_dim, Data::normal, rng),
                         random_floats(positions * s.kv_heads * s.value_dim, Data::normal, rng)});
    }
    for (std::size_t p = positions; p-- > 0;) {  // any order
      for (std::size_t l = 0; l < config.layers.size(); ++l) {
        const kvcache::LayerShape& s = config.layers[l];
        cache.write(l, p, written[l].keys.data() + p * s.kv_heads * s.key_dim,
                    written[l].values.data() + p * s.kv_heads * s.value_dim);
      }
    }
    const auto rounded = [type](float x) {
      return type == ElementType::f32 ? x : kernels::half_to_float(kernels::float_to_half(x));
    };
    std::size_t wrong = 0;
    for (std::size_t l = 0; l < config.layers.size(); ++l) {
      const kvcache::LayerShape& s = config.layers[l];
      for (std::size_t h = 0; h < s.kv_heads; ++h) {
        const kvcache::HeadView view = cache.head(l, h);
        CHECK(reinterpret_cast<std::uintptr_t>(view.keys) % 64 == 0);
        CHECK(reinterpret_cast<std::uintptr_t>(view.values) % 64 == 0);
        for (std::size_t p = 0; p < positions; ++p) {
          for (std::size_t k = 0; k < s.key_dim; ++k) {
            const float x = written[l].keys[(p * s.kv_heads + h) * s.key_dim + k];
            wrong += !same(stored(view.keys, type, p * s.key_dim + k), rounded(x));
          }
          for (std::size_t k = 0; k < s.value_dim; ++k) {
            const float x = written[l].values[(p * s.kv_heads + h) * s.value_dim + k];
            wrong += !same(stored(view.values, type, p * s.value_dim + k), rounded(x));
          }
        }
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("bytes are those of the numbers, rounded up to whole runs and pages") {
  for (const std::size_t positions : {1, 2, 63, 64, 1000}) {
    std::size_t least = 0, runs = 0;
    const CacheConfig config = mixed_config(ElementType::f16, positions);
    for (const kvcache::LayerShape& s : config.layers) {
      least += s.kv_heads * (s.key_dim + s.value_dim) * positions * 2;
      runs += 2 * s.kv_heads;
    }
    const std::size_t bytes = kvcache::bytes(config);
    CHECK(bytes >= least);
    CHECK(bytes < least + runs * 64 + 4096);
    CHECK(bytes % 4096 == 0);
  }
  // Yi-1.5-9B: 96 KiB per token in f16.
  const CacheConfig yi = {std::vector(48, kvcache::LayerShape{4, 128, 128}), 4096,
                          ElementType::f16};
  CHECK(kvcache::bytes(yi) == std::size_t{96} * 1024 * 4096);
}

TEST_CASE("the last position of a head ends before the next head begins") {
  const CacheConfig config = mixed_config(ElementType::f32, 9);
  const KvCache cache(config, attention());
  std::vector<std::pair<const std::byte*, std::size_t>> runs;
  for (std::size_t l = 0; l < config.layers.size(); ++l) {
    for (std::size_t h = 0; h < config.layers[l].kv_heads; ++h) {
      const kvcache::HeadView view = cache.head(l, h);
      runs.emplace_back(static_cast<const std::byte*>(view.keys), config.layers[l].key_dim * 9 * 4);
      runs.emplace_back(static_cast<const std::byte*>(view.values),
                        config.layers[l].value_dim * 9 * 4);
    }
  }
  std::sort(runs.begin(), runs.end());
  for (std::size_t i = 1; i < runs.size(); ++i) {
    CHECK(runs[i - 1].first + runs[i - 1].second <= runs[i].first);
  }
  CHECK(static_cast<std::size_t>(runs.back().first + runs.back().second - runs.front().first) <=
        kvcache::bytes(config));
}

TEST_CASE("length, clear and room") {
  KvCache cache(mixed_config(ElementType::f16, 10), attention());
  CHECK(cache.length() == 0);
  CHECK(cache.positions() == 10);
  cache.set_length(7);
  CHECK_NOTHROW(cache.require_room(3));
  CHECK_THROWS_AS(cache.require_room(4), std::length_error);
  CHECK_THROWS_AS(cache.require_room(std::numeric_limits<std::size_t>::max()), std::length_error);
  cache.set_length(10);
  CHECK_NOTHROW(cache.require_room(0));
  cache.clear();
  CHECK(cache.length() == 0);
  CHECK_NOTHROW(cache.require_room(10));
}

TEST_CASE("a cache moves with its memory") {
  KvCache first(mixed_config(ElementType::f32, 4), attention());
  const std::vector<float> row(400, 2.5f);
  first.write(2, 3, row.data(), row.data());
  first.set_length(4);
  KvCache second(std::move(first));
  CHECK(second.length() == 4);
  CHECK(stored(second.head(2, 0).keys, ElementType::f32, 3 * 64) == 2.5f);
  KvCache third(mixed_config(ElementType::f16, 1), attention());
  third = std::move(second);
  CHECK(third.positions() == 4);
  CHECK(stored(third.head(2, 3).values, ElementType::f32, 3 * 64 + 63) == 2.5f);
}

TEST_CASE("impossible caches are refused") {
  constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
  CHECK_THROWS_AS(KvCache(mixed_config(ElementType::f16, 0), attention()), std::invalid_argument);
  CHECK_THROWS_AS(kvcache::bytes(mixed_config(ElementType::f16, most)), std::invalid_argument);
  CHECK_THROWS_AS(kvcache::bytes(mixed_config(ElementType::f16, most / 256)),
                  std::invalid_argument);
  const CacheConfig wide = {{{most / 2, 128, 128}}, 4, ElementType::f32};
  CHECK_THROWS_AS(kvcache::bytes(wide), std::invalid_argument);
  // Fits in a size_t, but in no machine.
  const CacheConfig vast = {{{1, std::size_t{1} << 20, 1}}, std::size_t{1} << 38, ElementType::f32};
  CHECK_THROWS_AS(KvCache(vast, attention()), std::system_error);
}

TEST_CASE("layers without attention take no memory") {
  const CacheConfig config = {{{0, 128, 128}, {0, 0, 0}}, 1000, ElementType::f16};
  CHECK(kvcache::bytes(config) == 0);
  CHECK_NOTHROW(KvCache(config, attention()));
}

}  // namespace
}  // namespace sluice::test
