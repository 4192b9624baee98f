// How keys and values lie in memory, and how much they take: for the cache, and for whoever plans
// one beforehand.
//
// Layers that keep the same positions form a group, and a page holds 32 positions of all layers of
// one group: [layer][kv head]{keys, scales of keys, values, scales of values}, each part a multiple
// of 32 bytes. Keys are [position][key_dim], values [position][value_dim]; for int8 their order is
// that of kernels/kv_rows.h, and there are scales, halves [2][position]. The pages of a group lie
// one after the other. After them come the slots of recurrent state (kvcache/state_store.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/kv_rows.h"

namespace sluice::kvcache {

// How one number is kept. int8: a row of n numbers takes n + 4 bytes (keys of more than 16 are
// padded to a multiple of four).
enum class ElementType { f32, f16, int8 };

inline constexpr std::uint32_t page_positions = kernels::kv_page_positions;
inline constexpr std::uint32_t unlimited = std::numeric_limits<std::uint32_t>::max();

// The positions that the token at position t sees, itself included: all when there is no window or
// t < positions; else the first `sinks` and the newest `positions - sinks`.
struct Window {
  std::uint32_t positions = 0;  // 0: none
  std::uint32_t sinks = 0;      // less than positions

  // Where the newest positions that t sees begin: the sinks are not counted.
  std::uint32_t begin(std::uint32_t t) const {
    return positions == 0 || t < positions ? 0 : t - (positions - sinks) + 1;
  }
  bool has_slid(std::uint32_t t) const { return begin(t) != 0; }
  std::uint32_t sink_pages() const { return (sinks + page_positions - 1) / page_positions; }
  bool operator==(const Window&) const = default;
};

// What a layer keeps: keys and values, recurrent state, both or neither.
struct LayerShape {
  std::size_t kv_heads = 0;  // 0: a layer without attention
  std::size_t key_dim = 0;
  std::size_t value_dim = 0;
  std::uint32_t window = 0;      // of the model: positions that the layer sees; 0: all
  std::size_t state_floats = 0;  // of a sequence, whatever its length; 0: no state
};

struct CacheConfig {
  std::vector<LayerShape> layers;
  // The most positions of a sequence. `unlimited` is possible when every layer has a window.
  std::uint32_t positions = 0;
  Window window = {};           // for layers that see more than this of their own
  std::uint32_t sequences = 1;  // of so many positions that there is room for
  // Of all sequences together, where it should be less than that: what layers without a window have
  // room for, in whole pages. At least `positions`; 0: sequences * positions.
  std::uint64_t total_positions = 0;
  std::uint32_t step_columns = 1;  // tokens of a step, at most: a window needs room for them too
  ElementType type = ElementType::int8;
  std::uint32_t checkpoints = 0;  // states of earlier positions that a sequence keeps
};

// Layers that keep the same positions.
struct LayerGroup {
  Window window;                    // 0 positions: everything is kept
  std::vector<std::size_t> layers;  // indices, ascending
  std::size_t page_bytes = 0;
  std::size_t pages = 0;
  std::size_t step_pages = 0;  // of these, what the tokens of a step need beyond the window

  std::size_t bytes() const;  // a multiple of 4096
};

// The groups in the order of their first layers. Throws std::invalid_argument when the config makes
// no sense or needs more memory than there are addresses.
std::vector<LayerGroup> layer_groups(const CacheConfig& config);

// The most pages of a group that one sequence of so many positions holds between two steps.
std::size_t sequence_pages(const Window& window, std::uint32_t positions);

// Bytes that a cache of this shape allocates. Throws as layer_groups does.
std::size_t bytes(const CacheConfig& config);

// Of these, what recurrent states take, a multiple of 4096: so many slots for each of `sequences`,
// that stand, are written and are kept as checkpoints.
std::size_t state_bytes(const CacheConfig& config);
std::size_t state_slots_each(const CacheConfig& config);
// One slot, which has the states of all layers, and what a layer takes of it.
std::size_t state_slot_bytes(const CacheConfig& config);
std::size_t layer_state_bytes(const LayerShape& layer);

// How many tokens look at a layer with a window together, at most: they need room for the scores of
// what they see between them.
inline constexpr std::uint32_t window_columns_max = page_positions;

// The most positions that tokens which look together see, and the most runs of pages that they lie
// in.
std::size_t visible_positions_max(const CacheConfig& config);
std::size_t runs_max(const CacheConfig& config);

// Floats of scratch that attention needs for each query of a layer.
std::size_t query_scratch(const CacheConfig& config, std::size_t key_dim);

// Bytes of the keys and of the values of a head in a page, and of the scales of either.
std::size_t page_key_bytes(ElementType type, std::size_t key_dim);
std::size_t page_value_bytes(ElementType type, std::size_t value_dim);
std::size_t page_scale_bytes(ElementType type);

// Whether some token looks at the sinks from another position than its own.
inline bool moves_sinks(const CacheConfig& config) {
  return config.window.sinks != 0 && config.window.positions < config.positions;
}

}  // namespace sluice::kvcache
