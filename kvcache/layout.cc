#include "kvcache/layout.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "base/page.h"
#include "kernels/attention.h"

namespace sluice::kvcache {
namespace {

constexpr std::size_t state_alignment = 64;
// Half of the address space, so that adding two such numbers or rounding one up cannot wrap.
constexpr std::size_t bytes_max = std::numeric_limits<std::size_t>::max() / 2;

[[noreturn]] void throw_too_large(const CacheConfig& config) {
  throw std::invalid_argument("a KV cache of " + std::to_string(config.layers.size()) +
                              " layers and " + std::to_string(config.positions) +
                              " positions is larger than the address space; lower the context");
}

std::size_t product(std::size_t a, std::size_t b, const CacheConfig& config) {
  if (b != 0 && a > bytes_max / b) throw_too_large(config);
  return a * b;
}

std::size_t sum(std::size_t a, std::size_t b, const CacheConfig& config) {
  if (a + b > bytes_max) throw_too_large(config);
  return a + b;
}

std::size_t in_memory_pages(std::size_t bytes) {
  return (bytes + base::page_bytes - 1) / base::page_bytes * base::page_bytes;
}

std::size_t pages_for(std::size_t positions) {
  return (positions + page_positions - 1) / page_positions;
}

void check(const CacheConfig& config) {
  if (config.positions == 0 || config.sequences == 0 || config.step_columns == 0) {
    throw std::invalid_argument(
        "a KV cache needs room for at least one position of one sequence in one step");
  }
  if (config.window.positions != 0 && config.window.sinks >= config.window.positions) {
    throw std::invalid_argument("a window of " + std::to_string(config.window.positions) +
                                " positions cannot keep " + std::to_string(config.window.sinks) +
                                " of them for ever: keep fewer, or widen the window");
  }
  for (const LayerShape& layer : config.layers) {
    if (!layer.keys_hold_values) continue;
    if (layer.value_dim % latent_unit != 0 || layer.value_dim >= layer.key_dim) {
      throw std::invalid_argument("keys of " + std::to_string(layer.key_dim) +
                                  " elements cannot hold values of " +
                                  std::to_string(layer.value_dim));
    }
  }
  if (config.total_positions != 0 && config.total_positions < config.positions) {
    throw std::invalid_argument("a KV cache of " + std::to_string(config.total_positions) +
                                " positions cannot hold a sequence of " +
                                std::to_string(config.positions));
  }
}

std::size_t group_pages(const Window& window, const CacheConfig& config) {
  const std::size_t all =
      product(sequence_pages(window, config.positions), config.sequences, config);
  if (window.positions != 0 || config.total_positions == 0) return all;
  return std::min(all, pages_for(config.total_positions));
}

// The window of a layer: its own or that of the config, whichever is narrower. A window as long as
// a sequence counts as none.
Window window_of(const LayerShape& layer, const CacheConfig& config) {
  Window window = config.window;
  const bool has_narrower =
      layer.window != 0 && (window.positions == 0 || layer.window <= window.positions);
  if (has_narrower) window = {layer.window, 0, layer.has_chunks};
  return window.positions >= config.positions ? Window{} : window;
}

std::size_t element_bytes(ElementType type) {
  if (type == ElementType::f32) return sizeof(float);
  return type == ElementType::f16 ? sizeof(std::uint16_t) : 1;
}

std::size_t layer_page_bytes(const LayerShape& layer, const CacheConfig& config) {
  // Throws when the byte counts of a page would wrap.
  for (const std::size_t dim : {layer.key_dim, layer.value_dim}) {
    product(dim, page_positions * sizeof(float), config);
  }
  const std::size_t scales = page_scale_bytes(config.type);
  const std::size_t values =
      layer.keys_hold_values ? 0 : page_value_bytes(config.type, layer.value_dim) + scales;
  const std::size_t head = sum(page_key_bytes(config.type, layer.key_dim) + scales, values, config);
  return product(head, layer.kv_heads, config);
}

}  // namespace

std::optional<ElementType> parse_element_type(std::string_view name) {
  if (name == "f32") return ElementType::f32;
  if (name == "f16") return ElementType::f16;
  if (name == "int8") return ElementType::int8;
  return std::nullopt;
}

std::size_t page_key_bytes(ElementType type, std::size_t key_dim) {
  if (type == ElementType::int8) return kernels::key_page_bytes(key_dim);
  return key_dim * element_bytes(type) * page_positions;
}

std::size_t page_value_bytes(ElementType type, std::size_t value_dim) {
  if (type == ElementType::int8) return kernels::value_page_bytes(value_dim);
  return value_dim * element_bytes(type) * page_positions;
}

std::size_t page_scale_bytes(ElementType type) {
  return type == ElementType::int8 ? 2 * page_positions * sizeof(std::uint16_t) : 0;
}

std::size_t LayerGroup::bytes() const {
  return in_memory_pages(page_bytes * pages);
}

// n consecutive positions lie in at most ceil((n - 1) / 32) + 1 pages. One page more makes up for
// rounding step_pages down when the tokens of a step belong to several sequences.
std::size_t sequence_pages(const Window& window, std::uint32_t positions) {
  const std::size_t all = pages_for(positions);
  if (window.positions == 0) return all;
  return std::min(all, window.sink_pages() + pages_for(window.positions - window.sinks - 1) + 2);
}

std::vector<LayerGroup> layer_groups(const CacheConfig& config) {
  check(config);
  std::vector<LayerGroup> groups;
  for (std::size_t l = 0; l < config.layers.size(); ++l) {
    const LayerShape& layer = config.layers[l];
    if (layer.kv_heads == 0) continue;
    const Window window = window_of(layer, config);
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const LayerGroup& g) { return g.window == window; });
    if (group == groups.end()) group = groups.insert(groups.end(), LayerGroup{window, {}, 0, 0, 0});
    group->layers.push_back(l);
    group->page_bytes = sum(group->page_bytes, layer_page_bytes(layer, config), config);
  }
  for (LayerGroup& group : groups) {
    if (group.window.positions == 0 && config.positions == unlimited) throw_too_large(config);
    if (group.window.positions != 0) group.step_pages = config.step_columns / page_positions;
    group.pages = group_pages(group.window, config) + group.step_pages;
    product(group.pages, group.page_bytes, config);
    if (group.pages >= unlimited) throw_too_large(config);  // pages have 32-bit numbers
  }
  return groups;
}

std::size_t bytes(const CacheConfig& config) {
  std::size_t total = state_bytes(config);
  for (const LayerGroup& group : layer_groups(config)) total = sum(total, group.bytes(), config);
  return total;
}

std::size_t state_bytes(const CacheConfig& config) {
  const std::size_t slots = product(config.sequences, state_slots_each(config), config);
  const std::size_t bytes = product(slots, state_slot_bytes(config), config);
  if (bytes != 0 && slots >= unlimited) throw_too_large(config);  // slots have 32-bit numbers
  return in_memory_pages(bytes);
}

std::size_t state_slots_each(const CacheConfig& config) {
  return std::size_t{2} + config.checkpoints;
}

std::size_t state_slot_bytes(const CacheConfig& config) {
  std::size_t total = 0;
  for (const LayerShape& layer : config.layers) {
    product(layer.state_floats, state_alignment, config);  // throws when the bytes would wrap
    total = sum(total, layer_state_bytes(layer), config);
  }
  return total;
}

std::size_t layer_state_bytes(const LayerShape& layer) {
  const std::size_t bytes = layer.state_floats * sizeof(float);
  return (bytes + state_alignment - 1) / state_alignment * state_alignment;
}

std::size_t visible_positions_max(const CacheConfig& config) {
  std::size_t most = 0;
  for (const LayerGroup& group : layer_groups(config)) {
    std::size_t seen = config.positions;
    if (group.window.positions != 0) {
      const std::uint32_t columns = std::min(config.step_columns, window_columns_max);
      seen = std::min(seen, std::size_t{group.window.positions} + columns - 1);
    }
    most = std::max(most, seen);
  }
  return most;
}

std::size_t query_scratch(const CacheConfig& config, std::size_t key_dim) {
  return kernels::attention_scratch(visible_positions_max(config), runs_max(config), key_dim);
}

std::size_t runs_max(const CacheConfig& config) {
  return pages_for(visible_positions_max(config)) + 3;  // sinks and window: partial pages at ends
}

}  // namespace sluice::kvcache
