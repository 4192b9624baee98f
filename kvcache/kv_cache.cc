#include "kvcache/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/check.h"
#include "kernels/dequantise.h"

namespace sluice::kvcache {
namespace {

auto kernel_for(ElementType type, const kernels::AttentionKernels& kernels) {
  if (type == ElementType::f32) return kernels.f32;
  return type == ElementType::f16 ? kernels.f16 : kernels.int8;
}

std::uint32_t pages_until(std::uint32_t position) {
  return position / page_positions + (position % page_positions != 0 ? 1 : 0);
}

// The first page beyond the sinks that the token at `position` sees.
std::uint32_t first_page_seen(const Window& window, std::uint32_t position) {
  return std::max(window.sink_pages(), window.begin(position) / page_positions);
}

// The index of a page in the table of a sequence of which `dropped` pages have slid out.
std::size_t index_of(std::uint32_t page, const Window& window, std::uint32_t dropped) {
  return page < window.sink_pages() ? page : page - dropped;
}

}  // namespace

Sequence::Sequence(KvCache& cache, std::uint32_t capacity)
    : cache_(&cache), tables_(cache.groups_.size()), capacity_(capacity) {}

Sequence::Sequence(Sequence&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      tables_(std::move(other.tables_)),
      state_(std::move(other.state_)),
      length_(other.length_),
      capacity_(other.capacity_),
      is_long_(other.is_long_) {}

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  std::swap(cache_, other.cache_);
  std::swap(tables_, other.tables_);
  std::swap(state_, other.state_);
  std::swap(length_, other.length_);
  std::swap(capacity_, other.capacity_);
  std::swap(is_long_, other.is_long_);
  return *this;
}

Sequence::~Sequence() {
  if (cache_ == nullptr) return;
  for (std::size_t g = 0; g < tables_.size(); ++g) {
    KvCache::Group& group = cache_->groups_[g];
    for (const std::uint32_t page : tables_[g].pages) group.pool.give_back(page);
    group.pool.cancel(sequence_pages(group.layout.window, capacity_));
  }
  cache_->states_.end(state_);
}

void Sequence::truncate(std::uint32_t length) {
  if (length < length_) cache_->truncate(*this, length);
}

bool Sequence::reserve(std::uint32_t positions) {
  return capacity_ == unlimited || cache_->reserve(*this, std::max(positions, length_));
}

void Sequence::set_long(bool is_long) {
  base::check(length_ == 0, "a sequence that has begun is made a long one, or a short one");
  is_long_ = is_long;
}

void Sequence::checkpoint() {
  cache_->states_.checkpoint(state_, length_);
}

std::uint32_t Sequence::reachable(std::uint32_t length) const {
  return cache_->reachable(*this, length);
}

KvCache::KvCache(CacheConfig config, const kernels::KernelTable& kernels)
    : config_(std::move(config)),
      kernels_(kernels),
      attention_(kernel_for(config_.type, kernels.attention)),
      places_(config_.layers.size()),
      memory_(kvcache::bytes(config_), " for keys, values and states; lower the context"),
      states_(config_, memory_.data() + kvcache::bytes(config_) - state_bytes(config_)) {
  const std::size_t scale_bytes = page_scale_bytes(config_.type);
  std::size_t offset = 0;
  for (LayerGroup& layout : layer_groups(config_)) {
    std::size_t at = 0;
    for (const std::size_t l : layout.layers) {
      const LayerShape& shape = config_.layers[l];
      LayerPlace& place = places_[l];
      place.group = groups_.size();
      place.offset = at;
      place.key_scales = page_key_bytes(config_.type, shape.key_dim);
      place.values = place.key_scales + scale_bytes;
      place.value_scales = place.values + page_value_bytes(config_.type, shape.value_dim);
      place.head_bytes = shape.keys_hold_values ? place.values : place.value_scales + scale_bytes;
      at += place.head_bytes * shape.kv_heads;
    }
    base::check(at == layout.page_bytes, "a page is laid out in another size than was planned");
    PagePool pool(layout.pages, layout.window.positions != 0, layout.step_pages);
    const std::size_t group_bytes = layout.bytes();
    groups_.push_back({std::move(layout), std::move(pool), offset});
    offset += group_bytes;
  }
  base::check(offset + state_bytes(config_) == memory_.size(),
              "pages and states do not fill the memory of the cache");
}

std::optional<Sequence> KvCache::new_sequence(std::uint32_t positions) {
  if (!states_.has_room()) return {};
  for (const Group& group : groups_) {
    if (sequence_pages(group.layout.window, positions) > group.pool.available()) return {};
  }
  for (Group& group : groups_) {
    group.pool.reserve(sequence_pages(group.layout.window, positions));
  }
  Sequence made(*this, positions);
  made.state_ = states_.start();
  return made;
}

std::optional<Sequence> KvCache::fork(const Sequence& source, std::uint32_t prefix,
                                      std::uint32_t positions) {
  base::check(source.cache_ == this && prefix <= source.length_ && prefix <= positions,
              "a fork shares what its source does not have");
  check_reachable(source, prefix);
  if (!states_.has_room()) return {};
  const std::uint32_t whole = prefix / page_positions;
  for (const Group& group : groups_) {
    const std::size_t shared = group.pool.slides() ? 0 : whole;
    if (sequence_pages(group.layout.window, positions) > group.pool.available() + shared) return {};
  }
  Sequence made(*this, positions);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Window& window = groups_[g].layout.window;
    PagePool& pool = groups_[g].pool;
    const Sequence::Table& from = source.tables_[g];
    pool.reserve(sequence_pages(window, positions));
    std::vector<std::uint32_t>& pages = made.tables_[g].pages;
    const std::uint32_t seen = std::min(first_page_seen(window, prefix), pages_until(prefix));
    for (std::uint32_t p = 0; p < pages_until(prefix); ++p) {
      if (p >= window.sink_pages() && p < seen) continue;
      const std::uint32_t page = from.pages[index_of(p, window, from.dropped)];
      if (p < whole) pool.share(page);
      pages.push_back(p < whole ? page : copy(g, page));
    }
    made.tables_[g].dropped = seen - std::min(seen, window.sink_pages());
  }
  made.state_ = states_.fork(source.state_, prefix);
  made.length_ = prefix;
  made.is_long_ = source.is_long_;
  return made;
}

bool KvCache::reserve(Sequence& sequence, std::uint32_t positions) {
  if (positions > config_.positions) return false;
  const auto pages = [](const Group& group, std::uint32_t count) {
    return sequence_pages(group.layout.window, count);
  };
  for (const Group& group : groups_) {
    const std::size_t before = pages(group, sequence.capacity_);
    if (pages(group, positions) > before + group.pool.available()) return false;
  }
  for (Group& group : groups_) {
    group.pool.reserve(pages(group, positions));
    group.pool.cancel(pages(group, sequence.capacity_));
  }
  sequence.capacity_ = positions;
  return true;
}

std::uint32_t KvCache::free_positions() const {
  if (!states_.has_room()) return 0;
  std::uint32_t least = config_.positions;
  for (const Group& group : groups_) {
    const std::size_t available = group.pool.available();
    if (available >= sequence_pages(group.layout.window, config_.positions)) continue;
    least = std::min(least, static_cast<std::uint32_t>(available) * page_positions);
  }
  return least;
}

void KvCache::prepare(Sequence& sequence, std::uint32_t columns) {
  base::check(sequence.cache_ == this && columns <= sequence.capacity_ - sequence.length_,
              "a step adds more positions than a sequence has reserved");
  const std::uint32_t end = pages_until(sequence.length_ + columns);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Sequence::Table& table = sequence.tables_[g];
    while (table.pages.size() + table.dropped < end) table.pages.push_back(groups_[g].pool.take());
  }
}

void KvCache::advance(Sequence& sequence, std::uint32_t columns) {
  if (columns == 0) return;
  const std::uint32_t length = sequence.length_ + columns;
  for (const Sequence::Table& table : sequence.tables_) {
    base::check(table.pages.size() + table.dropped >= pages_until(length),
                "a sequence advances to positions without pages");
  }
  sequence.length_ = length;
  drop_unseen(sequence);
  states_.advance(sequence.state_);
}

void KvCache::abandon(Sequence& sequence) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Sequence::Table& table = sequence.tables_[g];
    while (table.pages.size() + table.dropped > pages_until(sequence.length_)) {
      groups_[g].pool.give_back(table.pages.back());
      table.pages.pop_back();
    }
  }
}

std::vector<std::span<std::byte>> KvCache::page_memory(const Sequence& sequence,
                                                       std::uint32_t page_number) const {
  std::vector<std::span<std::byte>> parts;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Sequence::Table& table = sequence.tables_[g];
    const Window& window = groups_[g].layout.window;
    const std::uint32_t sinks = window.sink_pages();
    const bool has_slid = page_number >= sinks && page_number < sinks + table.dropped;
    const std::size_t index = index_of(page_number, window, table.dropped);
    if (has_slid || index >= table.pages.size()) return {};
    parts.emplace_back(page(g, table.pages[index]), groups_[g].layout.page_bytes);
  }
  return parts;
}

void KvCache::drop_unseen(Sequence& sequence) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Window& window = groups_[g].layout.window;
    Sequence::Table& table = sequence.tables_[g];
    const std::uint32_t first = window.sink_pages() + table.dropped;
    const std::uint32_t seen = first_page_seen(window, sequence.length_);
    if (seen <= first) continue;
    const auto begin = table.pages.begin() + window.sink_pages();
    const auto end = begin + std::min<std::ptrdiff_t>(seen - first, table.pages.end() - begin);
    for (auto page = begin; page != end; ++page) groups_[g].pool.give_back(*page);
    table.dropped += static_cast<std::uint32_t>(end - begin);
    table.pages.erase(begin, end);
  }
}

// Returns `length` when every page that the token at `length` sees is still there. Otherwise
// earlier tokens would see even older pages, so the sequence can only go back to its sinks.
std::uint32_t KvCache::with_windows(const Sequence& sequence, std::uint32_t length) const {
  std::uint32_t found = length;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const Window& window = groups_[g].layout.window;
    const std::uint32_t kept = window.sink_pages() + sequence.tables_[g].dropped;
    if (first_page_seen(window, length) >= kept) continue;
    found = std::min(found, window.sink_pages() * page_positions);
  }
  return found;
}

// The largest length <= `length` whose recurrent state is kept.
std::uint32_t KvCache::with_state(const Sequence& sequence, std::uint32_t length) const {
  if (states_.is_empty() || length == sequence.length_) return length;
  std::uint32_t found = 0;
  for (const SequenceState::Checkpoint& kept : sequence.state_.checkpoints) {
    if (kept.length <= length) found = kept.length;
  }
  return found;
}

std::uint32_t KvCache::reachable(const Sequence& sequence, std::uint32_t length) const {
  std::uint32_t found = std::min(length, sequence.length_);
  for (;;) {
    const std::uint32_t least = with_state(sequence, with_windows(sequence, found));
    if (least == found) return found;
    found = least;
  }
}

void KvCache::check_reachable(const Sequence& sequence, std::uint32_t length) const {
  const std::uint32_t nearest = reachable(sequence, length);
  if (nearest == length) return;
  const bool has_slid = with_windows(sequence, length) != length;
  throw std::length_error("a sequence of " + std::to_string(sequence.length_) +
                          " tokens cannot go back to " + std::to_string(length) + ": " +
                          (has_slid ? "what came before has slid out of its window"
                                    : "its recurrent state is not kept there") +
                          "; go back to " + std::to_string(nearest) +
                          " and evaluate what follows again");
}

void KvCache::truncate(Sequence& sequence, std::uint32_t length) {
  check_reachable(sequence, length);
  const std::uint32_t kept_pages = pages_until(length);
  const bool has_part = length % page_positions != 0;
  const auto keeps_sinks_only = [&](std::size_t g) {
    return kept_pages <= groups_[g].layout.window.sink_pages();
  };
  // How many pages of a group's table stay.
  const auto kept_of = [&](std::size_t g) {
    const Sequence::Table& table = sequence.tables_[g];
    return std::min<std::size_t>(table.pages.size(),
                                 keeps_sinks_only(g) ? kept_pages : kept_pages - table.dropped);
  };
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const std::vector<std::uint32_t>& pages = sequence.tables_[g].pages;
    const PagePool& pool = groups_[g].pool;
    const std::size_t first = kept_of(g) - (has_part ? 1 : 0);
    const auto needed = std::count_if(pages.begin() + static_cast<std::ptrdiff_t>(first),
                                      pages.end(), [&](auto p) { return pool.is_shared(p); });
    if (pool.slides() || static_cast<std::size_t>(needed) <= pool.available()) continue;
    throw std::length_error("a sequence that shares pages with others cannot go back to " +
                            std::to_string(length) + " tokens: the cache has no room for copies");
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Sequence::Table& table = sequence.tables_[g];
    PagePool& pool = groups_[g].pool;
    for (const std::size_t kept = kept_of(g); table.pages.size() > kept; table.pages.pop_back()) {
      pool.give_back(table.pages.back());
    }
    // Elsewhere pages stay dropped, also if no page behind them is left: a chunk begins there.
    if (keeps_sinks_only(g)) table.dropped = 0;
    // The page that is written next must not be shared.
    if (has_part && pool.is_shared(table.pages.back())) {
      const std::uint32_t shared = table.pages.back();
      pool.give_back(shared);
      table.pages.back() = copy(g, shared);
    }
  }
  states_.truncate(sequence.state_, length);
  sequence.length_ = length;
}

std::span<const float> KvCache::state(const Sequence& sequence, std::size_t layer) const {
  return states_.layer(sequence.state_.standing, layer);
}

std::span<float> KvCache::next_state(const Sequence& sequence, std::size_t layer) const {
  return states_.layer(sequence.state_.next, layer);
}

std::span<const std::byte> KvCache::state_memory(const Sequence& sequence,
                                                 std::uint32_t length) const {
  if (states_.is_empty()) return {};
  if (length == sequence.length_) return states_.memory(sequence.state_.standing);
  const auto slot = find_checkpoint(sequence.state_, length);
  if (!slot) return {};
  return states_.memory(*slot);
}

std::span<std::byte> KvCache::next_state_memory(const Sequence& sequence) const {
  if (states_.is_empty()) return {};
  return states_.memory(sequence.state_.next);
}

std::byte* KvCache::page(std::size_t group, std::uint32_t number) const {
  return memory_.data() + groups_[group].offset + number * groups_[group].layout.page_bytes;
}

std::uint32_t KvCache::copy(std::size_t group, std::uint32_t number) {
  const std::uint32_t made = groups_[group].pool.take();
  std::memcpy(page(group, made), page(group, number), groups_[group].layout.page_bytes);
  return made;
}

std::byte* KvCache::head(const Sequence& sequence, const LayerPlace& place, std::uint32_t position,
                         std::size_t kv_head) const {
  const Sequence::Table& table = sequence.tables_[place.group];
  const Window& window = groups_[place.group].layout.window;
  const std::size_t index = index_of(position / page_positions, window, table.dropped);
  base::check(index < table.pages.size(), "a position lies in no page of its sequence");
  return page(place.group, table.pages[index]) + place.offset + kv_head * place.head_bytes;
}

void KvCache::store(const Row& row, std::byte* rows, std::byte* scales,
                    const kernels::RowPlace& place, std::size_t position_in_page) const {
  float* const x = row.elements;
  const std::size_t at = position_in_page * row.size;
  switch (config_.type) {
    case ElementType::f32:
      std::memcpy(rows + at * sizeof(float), x, row.size * sizeof(float));
      break;
    case ElementType::f16:
      kernels_.attention.f32_to_f16(x, row.size, reinterpret_cast<std::uint16_t*>(rows) + at);
      break;
    case ElementType::int8:
      hadamard_parts(row);
      kernels_.kv_rows.quantise(x, row.size, reinterpret_cast<std::int8_t*>(rows), place,
                                reinterpret_cast<std::uint16_t*>(scales) + position_in_page,
                                page_positions);
      break;
  }
}

void KvCache::write(const Sequence& sequence, std::size_t layer, std::uint32_t position,
                    float* keys, float* values) const {
  const LayerShape& shape = config_.layers[layer];
  const LayerPlace& place = places_[layer];
  const std::size_t in_page = position % page_positions;
  for (std::size_t h = 0; h < shape.kv_heads; ++h) {
    std::byte* at = head(sequence, place, position, h);
    float* const key = keys + h * shape.key_dim;
    if (shape.keys_hold_values) {
      store({key, shape.key_dim, shape.value_dim}, at, at + place.key_scales,
            kernels::parted_key_place(shape.value_dim, in_page), in_page);
      continue;
    }
    store({key, shape.key_dim, shape.key_dim}, at, at + place.key_scales,
          kernels::key_place(shape.key_dim, in_page), in_page);
    if (shape.value_dim == 0) continue;
    store({values + h * shape.value_dim, shape.value_dim, shape.value_dim}, at + place.values,
          at + place.value_scales, kernels::value_place(shape.value_dim, in_page), in_page);
  }
}

void KvCache::read_key(const Sequence& sequence, std::size_t layer, std::uint32_t position,
                       float* key) const {
  const LayerPlace& place = places_[layer];
  const std::size_t dim = config_.layers[layer].key_dim, in_page = position % page_positions;
  const std::byte* rows = head(sequence, place, position, 0);
  const auto* scales = reinterpret_cast<const std::uint16_t*>(rows + place.key_scales);
  switch (config_.type) {
    case ElementType::f32:
      std::memcpy(key, rows + in_page * dim * sizeof(float), dim * sizeof(float));
      break;
    case ElementType::f16: {
      const auto* halves = reinterpret_cast<const std::uint16_t*>(rows) + in_page * dim;
      std::transform(halves, halves + dim, key, kernels::half_to_float);
      break;
    }
    case ElementType::int8:
      kernels::dequantise_row(reinterpret_cast<const std::int8_t*>(rows),
                              kernels::key_place(dim, in_page), dim, scales + in_page,
                              page_positions, key);
      break;
  }
}

kernels::AttentionRun* KvCache::add_runs(const Sequence& sequence, const LayerPlace& place,
                                         std::size_t kv_head, std::uint32_t begin,
                                         std::uint32_t end, const float* queries,
                                         kernels::AttentionRun* runs) const {
  while (begin < end) {
    const std::byte* at = head(sequence, place, begin, kv_head);
    const std::uint32_t in_page = begin % page_positions;
    const std::uint32_t count = std::min(page_positions - in_page, end - begin);
    *runs++ = {at,
               at + place.values,
               reinterpret_cast<const std::uint16_t*>(at + place.key_scales),
               reinterpret_cast<const std::uint16_t*>(at + place.value_scales),
               in_page,
               count,
               queries};
    begin += count;
  }
  return runs;
}

void KvCache::attend(const Sequence& sequence, std::size_t layer, std::size_t kv_head,
                     std::uint32_t position, const Queries& queries) const {
  const LayerShape& shape = config_.layers[layer];
  const LayerPlace& place = places_[layer];
  const Window& window = groups_[place.group].layout.window;
  const std::uint32_t last = position + static_cast<std::uint32_t>(queries.columns) - 1;
  const std::uint32_t begin = window.begin(position);
  const bool has_window = window.has_slid(last) && !window.is_chunk;
  const std::uint32_t sinks = has_window ? window.sinks : 0;
  base::check(queries.columns <=
                  columns_together(layer, position, static_cast<std::uint32_t>(queries.columns)),
              "tokens that see different windows are computed together");
  kernels::AttentionRun* end = queries.runs;
  end = add_runs(sequence, place, kv_head, 0, sinks, queries.at_sinks, end);
  const PositionRange all{begin, last + 1};
  const bool is_sparse = !queries.visible.empty();
  std::size_t positions = sinks;
  for (const PositionRange& range : is_sparse ? queries.visible : std::span(&all, 1)) {
    end = add_runs(sequence, place, kv_head, range.begin, range.end, queries.near, end);
    positions += range.end - range.begin;
  }

  kernels::AttentionArgs args{};
  args.runs = queries.runs;
  args.run_count = static_cast<std::size_t>(end - queries.runs);
  args.positions = positions;
  args.scale_stride = page_positions;
  args.columns = queries.columns;
  args.window = has_window && !is_sparse ? window.positions - window.sinks : 0;
  args.sinks = is_sparse ? 0 : sinks;
  args.query_heads = queries.heads;
  args.query_stride = queries.query_stride;
  args.out_stride = queries.out_stride;
  args.head_dim = shape.key_dim;
  args.value_dim = shape.value_dim;
  args.prefetch_into = kernels_.matmul.policy.prefetch.for_attention();
  args.keys_hold_values = shape.keys_hold_values;
  args.scale = queries.scale;
  args.softcap = queries.softcap;
  args.sink_logits = queries.sink_logits;
  args.scores = queries.scores;
  args.score_stride = queries.score_stride;
  args.out = queries.out;
  attention_(args);
}

std::uint32_t KvCache::columns_together(std::size_t layer, std::uint32_t position,
                                        std::uint32_t columns) const {
  const Window& window = groups_[places_[layer].group].layout.window;
  if (window.positions == 0) return columns;
  columns = std::min(columns, window_columns_max);
  if (window.is_chunk) return std::min(columns, window.positions - position % window.positions);
  if (window.sinks == 0 || position >= window.positions) return columns;
  return std::min(columns, window.positions - position);
}

void KvCache::hadamard_parts(const Row& row) const {
  kernels_.kv_rows.hadamard(row.elements, row.part);
  if (row.part < row.size) {
    kernels_.kv_rows.hadamard(row.elements + row.part, row.size - row.part);
  }
}

void KvCache::hadamard_queries(std::size_t layer, float* rows, std::size_t heads) const {
  if (config_.type != ElementType::int8) return;
  const LayerShape& shape = config_.layers[layer];
  const std::size_t part = shape.keys_hold_values ? shape.value_dim : shape.key_dim;
  for (std::size_t h = 0; h < heads; ++h) {
    hadamard_parts({rows + h * shape.key_dim, shape.key_dim, part});
  }
}

void KvCache::hadamard(float* rows, std::size_t heads, std::size_t dim) const {
  if (config_.type != ElementType::int8) return;
  for (std::size_t h = 0; h < heads; ++h) kernels_.kv_rows.hadamard(rows + h * dim, dim);
}

std::uint32_t KvCache::sink_query_position(std::uint32_t position) const {
  const std::uint32_t window = config_.window.positions;
  return window == 0 ? position : std::min(position, window - 1);
}

std::size_t KvCache::pages_in_use() const {
  std::size_t pages = 0;
  for (const Group& group : groups_) pages += group.pool.in_use();
  return pages;
}

}  // namespace sluice::kvcache
