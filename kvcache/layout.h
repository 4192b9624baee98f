// How keys and values are laid out in memory, and how many bytes they take. Used by the cache, and
// to plan one beforehand.
//
// Layers that keep the same positions form a group. A page holds 32 positions of all layers of one
// group: [layer][kv head]{keys, scales of keys, values, scales of values}, each part a multiple of
// 32 bytes; without the last two where keys hold the values. Keys are [position][key_dim], values
// [position][value_dim]. For int8 their order is that of kernels/kv_rows.h, and scales are half
// floats [2][position]; other types have no scales. The pages of a group lie one after the other.
// The slots of recurrent state come after all pages (kvcache/state_store.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/kv_rows.h"

namespace sluice::kvcache {

// How a number is stored. int8: a row of n numbers takes n + 4 bytes (keys of more than 16 numbers
// are padded to a multiple of four).
enum class ElementType { f32, f16, int8 };
std::optional<ElementType> parse_element_type(std::string_view name);  // "f32", "f16", "int8"

inline constexpr std::size_t latent_unit = 32;
inline constexpr std::uint32_t page_positions = kernels::kv_page_positions;
inline constexpr std::uint32_t unlimited = std::numeric_limits<std::uint32_t>::max();

// Which positions the token at position t sees, its own included: all of them when there is no
// window or t < positions; else the first `sinks` and the newest `positions - sinks`. With chunks
// the window does not slide, but jumps: t sees those of its own chunk of `positions` positions.
struct Window {
  std::uint32_t positions = 0;  // 0: none
  std::uint32_t sinks = 0;      // less than positions; 0 with chunks
  bool is_chunk = false;

  // The first position that t sees, apart from the sinks.
  std::uint32_t begin(std::uint32_t t) const {
    if (positions == 0 || t < positions) return 0;
    return is_chunk ? t - t % positions : t - (positions - sinks) + 1;
  }
  bool has_slid(std::uint32_t t) const { return begin(t) != 0; }
  std::uint32_t sink_pages() const { return (sinks + page_positions - 1) / page_positions; }
  bool operator==(const Window&) const = default;
};

// What a layer keeps: keys and values, recurrent state, both or neither.
struct LayerShape {
  std::size_t kv_heads = 0;  // 0: a layer without attention
  std::size_t key_dim = 0;
  std::size_t value_dim = 0;     // 0: keys alone
  std::uint32_t window = 0;      // the model's own: positions that the layer sees; 0: all
  std::size_t state_floats = 0;  // for each sequence, whatever its length; 0: no state
  // Values are the first value_dim elements of the keys, and are stored once. value_dim is a
  // multiple of latent_unit then, and less than key_dim. With int8 this part of a key has a scale
  // and a Hadamard transform of its own, and so has the rest.
  bool keys_hold_values = false;
  bool has_chunks = false;  // the window is the chunk of the token, as Window has it
};

struct CacheConfig {
  std::vector<LayerShape> layers;
  // The most positions of a sequence. `unlimited` is possible when every layer has a window.
  std::uint32_t positions = 0;
  Window window = {};           // for layers with no window of their own, or a wider one
  std::uint32_t sequences = 1;  // how many sequences of `positions` there is room for
  // The room of layers without a window for all sequences together, in positions, rounded up to
  // whole pages; may be less than that of full sequences. At least `positions`; 0: sequences *
  // positions.
  std::uint64_t total_positions = 0;
  std::uint32_t step_columns = 1;  // most tokens of a step: a window needs room for them too
  ElementType type = ElementType::int8;
  std::uint32_t checkpoints = 0;  // how many checkpoints a sequence keeps
};

// Layers that keep the same positions.
struct LayerGroup {
  Window window;                    // with 0 positions everything is kept
  std::vector<std::size_t> layers;  // indices, ascending
  std::size_t page_bytes = 0;
  std::size_t pages = 0;
  std::size_t step_pages = 0;  // part of `pages`: for the tokens of a step, beyond the window

  std::size_t bytes() const;  // a multiple of page_bytes of memory
};

// The groups, in the order of their first layers. Throws std::invalid_argument when the config is
// inconsistent or needs more memory than there are addresses.
std::vector<LayerGroup> layer_groups(const CacheConfig& config);

// The most pages of a group that one sequence of `positions` positions holds between two steps.
std::size_t sequence_pages(const Window& window, std::uint32_t positions);

// How many bytes a cache with this config allocates. Throws as layer_groups does.
std::size_t bytes(const CacheConfig& config);

// The part of bytes() that recurrent states take, a multiple of a page of memory. Each of
// `sequences` has state_slots_each() slots: the current state, the one that a step writes, and the
// checkpoints.
std::size_t state_bytes(const CacheConfig& config);
std::size_t state_slots_each(const CacheConfig& config);
// Bytes of a slot, which has the states of all layers, and bytes of one layer in it.
std::size_t state_slot_bytes(const CacheConfig& config);
std::size_t layer_state_bytes(const LayerShape& layer);

// The most tokens in one call of attention on a layer with a window. A limit is needed because
// scratch must have room for the scores of all positions that any of them sees.
inline constexpr std::uint32_t window_columns_max = page_positions;

// The most positions that the tokens of one call of attention see, and the most runs that these
// positions form.
std::size_t visible_positions_max(const CacheConfig& config);
std::size_t runs_max(const CacheConfig& config);

// How many floats of scratch attention needs for each query.
std::size_t query_scratch(const CacheConfig& config, std::size_t key_dim);

// Bytes of a head's keys in a page, of its values, and of the scales of one of the two.
std::size_t page_key_bytes(ElementType type, std::size_t key_dim);
std::size_t page_value_bytes(ElementType type, std::size_t value_dim);
std::size_t page_scale_bytes(ElementType type);

// Whether some token sees the sinks from a position other than its own.
inline bool moves_sinks(const CacheConfig& config) {
  return config.window.sinks != 0 && config.window.positions < config.positions;
}

}  // namespace sluice::kvcache
