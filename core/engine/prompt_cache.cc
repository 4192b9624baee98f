#include "core/engine/prompt_cache.h"

#include <algorithm>
#include <fmt/format.h>
#include <system_error>

namespace sluice::engine {
namespace {

using kvcache::page_positions;
using tokenizer::Token;

// Changed whenever the same model and settings give other bytes than before.
constexpr std::uint64_t snapshot_version = 4;

PageKey derive(const PageKey& key, std::span<const std::uint64_t> numbers) {
  return key.derive(std::as_bytes(numbers));
}

// The part of a page's name that stands for the model and the settings. Which layers form a group
// depends on the context too: a window that is longer than the context counts as none.
PageKey settings_key(const PageKey& model, const kvcache::CacheConfig& config) {
  std::vector<std::uint64_t> numbers = {snapshot_version, page_positions, config.window.positions,
                                        config.window.sinks,
                                        static_cast<std::uint64_t>(config.type)};
  for (const kvcache::LayerShape& layer : config.layers) {
    numbers.insert(numbers.end(), {layer.kv_heads, layer.key_dim, layer.value_dim, layer.window,
                                   layer.state_floats});
  }
  for (const kvcache::LayerGroup& group : kvcache::layer_groups(config)) {
    numbers.insert(numbers.end(),
                   {group.window.positions, group.window.sinks, group.layers.size()});
    numbers.insert(numbers.end(), group.layers.begin(), group.layers.end());
  }
  return derive(model, numbers);
}

}  // namespace

PromptCache::PromptCache(const PromptCacheOptions& options, const PageKey& model,
                         kvcache::KvCache& cache)
    : cache_(cache),
      warn_(options.on_warning ? options.on_warning : [](const std::string&) {}),
      store_(options.folder, options.bytes_max, warn_),
      root_(settings_key(model, cache.config())) {
  store_.trim();
}

// Restores page after page as steps would compute them, but with keys and values read from the
// store. Only the state after the last page is read, so a model with states gets all pages or none.
std::uint32_t PromptCache::restore(kvcache::Sequence& sequence, std::span<const Token> tokens) {
  const std::size_t room = std::min<std::size_t>(tokens.size(), sequence.capacity());
  kept_ = keys_of(sequence, tokens.first(room));
  const std::size_t pages = restorable_pages();
  std::size_t page = 0;
  for (; page < pages; ++page) {
    cache_.prepare(sequence, page_positions);
    const auto memory = cache_.page_memory(sequence, static_cast<std::uint32_t>(page));
    const auto of_page = tokens.subspan(page * page_positions, page_positions);
    if (!store_.read(kept_[page], of_page, memory)) break;
    const std::array state{cache_.next_state_memory(sequence)};
    const bool needs_state = has_states() && page + 1 == pages;
    if (needs_state && !store_.read(state_key(kept_[page]), of_page, state)) break;
    cache_.advance(sequence, page_positions);
  }
  if (page < pages) cache_.abandon(sequence);  // a page was prepared for what could not be read
  if (has_states() && page < pages) {
    sequence.truncate(0);
    page = 0;
  }
  kept_.resize(page);
  touch_kept();
  return sequence.length();
}

std::size_t PromptCache::restorable_pages() const {
  std::size_t pages = 0;
  while (pages < kept_.size() && store_.contains(kept_[pages])) ++pages;
  while (has_states() && pages > 0 && !store_.contains(state_key(kept_[pages - 1]))) --pages;
  return pages;
}

void PromptCache::save(const kvcache::Sequence& sequence, std::span<const Token> tokens) {
  if (!writes_) return;
  const std::vector<PageKey> keys = keys_of(sequence, tokens);
  const auto known = std::ranges::mismatch(kept_, keys).in2 - keys.begin();
  auto page = static_cast<std::size_t>(known);
  bool is_new = false;
  try {
    while (page < keys.size() && keep(sequence, tokens, keys[page], page)) ++page;
    is_new = keep_state(sequence, tokens, std::span(keys).first(page));
  } catch (const std::system_error& error) {
    writes_ = false;
    warn_(fmt::format("nothing more is kept in the prompt cache: {}", error.what()));
  }
  kept_.assign(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(page));
  if (page == static_cast<std::size_t>(known) && !is_new) return;
  touch_kept();
  store_.trim_if_due();
}

// Stores a page unless it is there. Returns whether the store has it now.
bool PromptCache::keep(const kvcache::Sequence& sequence, std::span<const Token> tokens,
                       const PageKey& key, std::size_t page) const {
  if (store_.contains(key)) return true;
  const auto memory = cache_.page_memory(sequence, static_cast<std::uint32_t>(page));
  // Without layers that have keys a page is empty, and a state is behind it.
  if (memory.empty() && !kvcache::layer_groups(cache_.config()).empty()) return false;
  const std::vector<std::span<const std::byte>> parts(memory.begin(), memory.end());
  store_.write(key, tokens.subspan(page * page_positions, page_positions), parts);
  return true;
}

// Stores the recurrent states after the last of these pages for which the sequence has them.
// Returns whether they are new in the store.
bool PromptCache::keep_state(const kvcache::Sequence& sequence, std::span<const Token> tokens,
                             std::span<const PageKey> pages) const {
  for (std::size_t count = pages.size(); count > 0; --count) {
    const auto length = static_cast<std::uint32_t>(count * page_positions);
    const std::array state{cache_.state_memory(sequence, length)};
    if (state[0].empty()) continue;
    const PageKey key = state_key(pages[count - 1]);
    if (store_.contains(key)) return false;
    store_.write(key, tokens.subspan(length - page_positions, page_positions), state);
    return true;
  }
  return false;
}

// A state is useless without its pages, and large: it comes last, so that it is removed first.
void PromptCache::touch_kept() const {
  std::vector<PageKey> keys = kept_;
  if (has_states() && !keys.empty()) keys.push_back(state_key(keys.back()));
  store_.touch(keys);
}

bool PromptCache::has_states() const {
  return kvcache::state_slot_bytes(cache_.config()) != 0;
}

PageKey PromptCache::state_key(const PageKey& page) {
  return derive(page, std::array<std::uint64_t, 1>{0});
}

std::vector<PageKey> PromptCache::keys_of(const kvcache::Sequence& sequence,
                                          std::span<const Token> tokens) const {
  std::vector<PageKey> keys;
  PageKey key = derive(root_, std::array<std::uint64_t, 1>{sequence.is_long() ? 1u : 0u});
  for (; tokens.size() >= page_positions; tokens = tokens.subspan(page_positions)) {
    key = key.derive(tokens.first(page_positions));
    keys.push_back(key);
  }
  return keys;
}

}  // namespace sluice::engine
