// What a model keeps of the past tokens of one or several sequences: keys and values, and the
// states of recurrent layers, in one allocation made at the start (kvcache/layout.h).
//
// A sequence is a table of pages for each group of layers. Sequences that begin with the same
// tokens can share pages. Positions are absolute and never stop growing: in a group with a window,
// pages that no token will see again are reused, so memory stays constant.
//
// Sinks (StreamingLLM, Xiao et al. 2023): with a window of N positions of which the first S stay,
// the token at position t >= N sees the sinks as if it stood at position N - 1, so that they lie
// directly before the window. Keys are stored rotated at their absolute positions. As rotary
// positions are relative, it is enough to multiply the sinks with a query rotated at N - 1. As long
// as no position has slid out of the window, results are those without a window, bit for bit.
//
// Recurrent states cannot be undone. A sequence has its states at its own length, at 0 (zeros) and
// at its checkpoints, and can be forked at or truncated to these lengths only.
//
// int8: the caller transforms queries with hadamard_queries() before attend(), and outputs with
// hadamard() after it. write() transforms keys and values itself (kernels/kv_rows.h says why).
//
// Threads: these may run at the same time: write() for different positions, layers or sequences;
// attend() on positions that are written; reads and writes of the states of different layers or
// sequences. Everything else is called by the thread that leads a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/kernel_table.h"
#include "kvcache/layout.h"
#include "kvcache/page_pool.h"
#include "kvcache/state_store.h"
#include "topology/aligned_bytes.h"

namespace sluice::kvcache {

class KvCache;

// One sequence of positions. Made by a cache, which must outlive it. The destructor gives its pages
// back to the cache.
class Sequence {
 public:
  ~Sequence();
  Sequence(Sequence&& other) noexcept;
  Sequence& operator=(Sequence&& other) noexcept;

  std::uint32_t length() const { return length_; }
  std::uint32_t capacity() const { return capacity_; }

  // Forgets the positions from `length` on. Throws std::length_error when positions that the next
  // token would see have slid out of the window, when there is no recurrent state of that length,
  // or when shared pages would have to be copied and the cache has no room for the copies.
  void truncate(std::uint32_t length);

  // Changes how many positions there is room for: to `positions`, or to length() if that is more.
  // Returns false, and changes nothing, when the cache does not have so much free, or when a
  // sequence cannot be so long. A sequence without limit stays as it is.
  bool reserve(std::uint32_t positions);

  // Keeps the recurrent states of the present length, so that truncate() and fork() can go back to
  // it. The newest `CacheConfig::checkpoints` of them are kept. Nothing is copied.
  void checkpoint();

  // The largest length <= `length` that truncate() and fork() can go back to, if there is room for
  // the copies they make.
  std::uint32_t reachable(std::uint32_t length) const;

  // Whether its keys are rotated as those of a long text (model::RotarySpec). The cache only
  // remembers it; forks inherit it. May be changed while there are no positions.
  bool is_long() const { return is_long_; }
  void set_long(bool is_long);

 private:
  friend class KvCache;

  // The pages of a group, by ascending positions: first those of the sinks, then the newest ones.
  // `dropped` pages between these two parts have slid out of the window.
  struct Table {
    std::vector<std::uint32_t> pages;
    std::uint32_t dropped = 0;
  };

  Sequence(KvCache& cache, std::uint32_t capacity);

  KvCache* cache_;  // null when moved from
  std::vector<Table> tables_;
  SequenceState state_;
  std::uint32_t length_ = 0;
  std::uint32_t capacity_;
  bool is_long_ = false;
};

// Positions [begin, end).
struct PositionRange {
  std::uint32_t begin, end;
};

// Some query heads that share one head of keys, of one token or of several in a row; see
// kernels/attention.h.
struct Queries {
  const float* near;      // [columns][heads][key_dim], rotated at the positions of the tokens
  const float* at_sinks;  // the same, rotated at sink_query_position(); unused before the window
                          // slides
  std::size_t columns;    // see KvCache::columns_together
  std::size_t heads;
  std::size_t query_stride;  // floats from one token to the next
  std::size_t out_stride;
  float scale;
  float softcap;                // 0: none
  const float* sink_logits;     // [heads], learned; null: none
  float* scores;                // scratch [columns][heads][score_stride]
  std::size_t score_stride;     // at least query_scratch()
  kernels::AttentionRun* runs;  // scratch [runs_max]
  float* out;                   // [columns][heads][value_dim]
  // If not empty, the token, which is alone then, sees these positions alone of those in its
  // window, and the sinks; ascending. `runs` then has room for each page that a range touches, and
  // `score_stride` is kernels::attention_scratch() of as many runs.
  std::span<const PositionRange> visible;
};

class KvCache {
 public:
  // Allocates bytes(config) of zeroed memory; the system provides pages when they are first
  // written. `kernels` must outlive the cache. Throws as kvcache::bytes does, and std::system_error
  // when the system refuses the memory.
  KvCache(CacheConfig config, const kernels::KernelTable& kernels);
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  // An empty sequence with room for `positions` reserved; nothing when there is not enough room.
  std::optional<Sequence> new_sequence(std::uint32_t positions);

  // The same, beginning with the first `prefix` positions of `source`. Whole pages are shared; the
  // last one is copied when the prefix has only a part of it. Checkpoints within the prefix are
  // shared too. Throws std::length_error when `source` cannot go back to `prefix`.
  std::optional<Sequence> fork(const Sequence& source, std::uint32_t prefix,
                               std::uint32_t positions);

  // The largest sequence that there is room for, in positions.
  std::uint32_t free_positions() const;

  // A step of a sequence adds `columns` positions from length() on, up to capacity() at most. Call
  // prepare() before the first write() and advance() after the last attend(). When a step fails in
  // between, call abandon(): it gives back what prepare() took, which other sequences may need for
  // their next step. The step may then be prepared again.
  void prepare(Sequence& sequence, std::uint32_t columns);
  void advance(Sequence& sequence, std::uint32_t columns);
  void abandon(Sequence& sequence);

  // The memory of page number `page` of a sequence, which holds the positions from 32 * page on:
  // one span for each group of layers, in the order of layer_groups(). Empty when some group does
  // not hold that page. Used to save full pages, and to fill a page instead of calling write(),
  // between prepare() and advance(). Valid until the sequence changes.
  std::vector<std::span<std::byte>> page_memory(const Sequence& sequence, std::uint32_t page) const;

  // The recurrent state of a layer, [state_floats], 64-byte aligned. state() is the state after
  // length() positions, zeros at length 0. next_state() is where a step writes all of the new
  // state, which becomes state() at advance(); what it holds before is undefined.
  std::span<const float> state(const Sequence& sequence, std::size_t layer) const;
  std::span<float> next_state(const Sequence& sequence, std::size_t layer) const;

  // The states of all layers in one piece. state_memory() is for saving: those after length()
  // positions or after a checkpoint, empty for other lengths. next_state_memory() is for restoring,
  // between prepare() and advance(). Both are empty when no layer has a state. Valid until the
  // sequence changes.
  std::span<const std::byte> state_memory(const Sequence& sequence, std::uint32_t length) const;
  std::span<std::byte> next_state_memory(const Sequence& sequence) const;

  // Stores the keys [kv_heads][key_dim] and values [kv_heads][value_dim] of one position of one
  // layer. May overwrite both arrays: their contents are undefined afterwards. `values` is not used
  // where keys hold the values, or where there are none.
  void write(const Sequence& sequence, std::size_t layer, std::uint32_t position, float* keys,
             float* values) const;

  // The key [key_dim] of one position of a layer with one head, as queries are multiplied with it.
  void read_key(const Sequence& sequence, std::size_t layer, std::uint32_t position,
                float* key) const;

  // The first position of a layer that the token at `position` sees, apart from the sinks.
  std::uint32_t window_begin(std::size_t layer, std::uint32_t position) const {
    return groups_[places_[layer].group].layout.window.begin(position);
  }

  // Attention of queries.columns tokens from `position` on, for one head of keys. Each token sees
  // the positions of its window up to its own. Writes queries.out.
  void attend(const Sequence& sequence, std::size_t layer, std::size_t kv_head,
              std::uint32_t position, const Queries& queries) const;

  // How many of `columns` tokens from `position` on one call of attend() may take. Without a window
  // all of them. With one, at most window_columns_max; and tokens that see the sinks from their own
  // positions do not share a call with later tokens that do not.
  std::uint32_t columns_together(std::size_t layer, std::uint32_t position,
                                 std::uint32_t columns) const;

  // Transforms the queries [heads][key_dim] of a layer, or outputs [heads][dim], in place. Do
  // nothing for types other than int8.
  void hadamard_queries(std::size_t layer, float* rows, std::size_t heads) const;
  void hadamard(float* rows, std::size_t heads, std::size_t dim) const;

  // The position at which the query of the token at `position` is rotated for the sinks.
  std::uint32_t sink_query_position(std::uint32_t position) const;

  const CacheConfig& config() const { return config_; }
  std::size_t pages_in_use() const;  // of all groups

 private:
  friend class Sequence;

  // A group and its pages; the first page is at memory_ + offset.
  struct Group {
    LayerGroup layout;
    PagePool pool;
    std::size_t offset;
  };
  // Where a layer lies in the pages of its group, in bytes: `offset` of its first head in a page,
  // head_bytes from head to head, and within a head the offsets of the parts after the keys.
  struct LayerPlace {
    std::size_t group, offset, head_bytes, key_scales, values, value_scales;
  };

  std::byte* page(std::size_t group, std::uint32_t number) const;
  std::byte* head(const Sequence& sequence, const LayerPlace& place, std::uint32_t position,
                  std::size_t kv_head) const;
  // A row of keys or values. Elements from `part` on are transformed by themselves.
  struct Row {
    float* elements;
    std::size_t size, part;
  };
  void hadamard_parts(const Row& row) const;
  void store(const Row& row, std::byte* rows, std::byte* scales, const kernels::RowPlace& place,
             std::size_t position_in_page) const;
  std::uint32_t copy(std::size_t group, std::uint32_t number);
  void drop_unseen(Sequence& sequence);
  bool reserve(Sequence& sequence, std::uint32_t positions);
  void truncate(Sequence& sequence, std::uint32_t length);
  std::uint32_t with_windows(const Sequence& sequence, std::uint32_t length) const;
  std::uint32_t with_state(const Sequence& sequence, std::uint32_t length) const;
  std::uint32_t reachable(const Sequence& sequence, std::uint32_t length) const;
  void check_reachable(const Sequence& sequence, std::uint32_t length) const;
  kernels::AttentionRun* add_runs(const Sequence& sequence, const LayerPlace& place,
                                  std::size_t kv_head, std::uint32_t begin, std::uint32_t end,
                                  const float* queries, kernels::AttentionRun* runs) const;

  CacheConfig config_;
  const kernels::KernelTable& kernels_;
  void (*attention_)(const kernels::AttentionArgs&);
  std::vector<Group> groups_;
  std::vector<LayerPlace> places_;
  topology::AlignedBytes memory_;  // null when no layer keeps anything
  StateStore states_;
};

}  // namespace sluice::kvcache
