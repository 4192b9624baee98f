// What a model keeps of the tokens so far, of one or several sequences: keys and values, and the
// states of recurrent layers, in one allocation made at the start (kvcache/layout.h).
//
// A sequence is a table of pages for each group of layers. Sequences that begin with the same
// tokens can share pages. Positions are absolute and never stop growing: where a group has a
// window, pages that no token will see again are used anew, and memory stays constant for ever.
//
// Sinks (StreamingLLM, Xiao et al. 2023): with a window of N positions of which the first S stay,
// the token at position t >= N sees the sinks as if it stood at position N - 1, so that they lie
// directly before the window. Keys are kept rotated at their absolute positions; as rotary
// positions are relative, it is enough to look at the sinks with a query that is rotated at N - 1.
// As long as nothing has slid out, all is as without a window, bit for bit.
//
// Recurrent states cannot be taken back. A sequence has them at its own length, at 0, where they
// are zeros, and at its checkpoints; nowhere else can it be forked or truncated to.
//
// int8: queries are transformed with hadamard() before attend(), and outputs after it; keys and
// values are as they are written (kernels/kv_rows.h says why).
//
// Threads: write() of different positions, layers or sequences, attend() of positions that are
// written, and whoever reads and writes the states of different layers or sequences, may run at the
// same time. All else belongs to the thread that leads a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/kernel_table.h"
#include "kvcache/layout.h"
#include "kvcache/page_pool.h"
#include "kvcache/state_store.h"

namespace sluice::kvcache {

class KvCache;

// One sequence of positions. Made by a cache, which must outlive it; gives its pages back when it
// is destroyed.
class Sequence {
 public:
  ~Sequence();
  Sequence(Sequence&& other) noexcept;
  Sequence& operator=(Sequence&& other) noexcept;

  std::uint32_t length() const { return length_; }
  std::uint32_t capacity() const { return capacity_; }

  // Forgets the positions from `length` on. Throws std::length_error when positions before them
  // have slid out that the next token would have to see, when there is no recurrent state of that
  // length, and when pages that are shared would have to be made anew and there is no room for
  // them.
  void truncate(std::uint32_t length);

  // Keeps the recurrent states of the present length, so that truncate() and fork() can go back to
  // it: of the newest `CacheConfig::checkpoints` lengths. Costs no time.
  void checkpoint();

  // The largest length, at most `length`, that truncate() and fork() can go back to, but for room.
  std::uint32_t reachable(std::uint32_t length) const;

 private:
  friend class KvCache;

  // The pages of a group, by ascending positions: those of the sinks, then without a gap the newest
  // ones, before which `dropped` have slid out.
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
};

// Some query heads that share one head of keys, of one token or of several in a row; see
// kernels/attention.h.
struct Queries {
  const float* near;      // [columns][heads][key_dim], rotated at the positions of the tokens
  const float* at_sinks;  // the same at sink_query_position(); unused before something has slid
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
};

class KvCache {
 public:
  // Allocates `bytes(config)`, zeroed by the system as it is first written. `kernels` must outlive
  // the cache. Throws as `bytes` does, and std::system_error when the system has no such memory.
  KvCache(CacheConfig config, const kernels::KernelTable& kernels);
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  // An empty sequence with room for `positions` set aside; nothing when there is not that much.
  std::optional<Sequence> new_sequence(std::uint32_t positions);

  // The same, beginning with the first `prefix` positions of `source`: whole pages are shared, the
  // last one is copied when only a part of it is wanted. Checkpoints within the prefix are shared
  // too. Throws std::length_error as Sequence::truncate does.
  std::optional<Sequence> fork(const Sequence& source, std::uint32_t prefix,
                               std::uint32_t positions);

  // The largest sequence that there is room for.
  std::uint32_t free_positions() const;

  // A step of a sequence: prepare() before the first write of `columns` positions from length() on,
  // which must not go beyond capacity(); advance() after the last attend(). A step that failed in
  // between may be prepared again.
  void prepare(Sequence& sequence, std::uint32_t columns);
  void advance(Sequence& sequence, std::uint32_t columns);

  // The memory of page number `page` of a sequence, which holds the positions from 32 * page on: a
  // part for each group of layers, in the order of layer_groups(). Nothing when the sequence does
  // not hold it in every group. For saving pages that are full; and for filling one instead of
  // writing, between prepare() and advance(). Valid until the sequence changes.
  std::vector<std::span<std::byte>> page_memory(const Sequence& sequence, std::uint32_t page) const;

  // The recurrent state of a layer, [state_floats], 64-byte aligned: after length() positions,
  // zeros if there are none; and where a step writes all of the new state, which stands after
  // advance(). The new one holds anything before.
  std::span<const float> state(const Sequence& sequence, std::size_t layer) const;
  std::span<float> next_state(const Sequence& sequence, std::size_t layer) const;

  // The same of all layers in one piece. For saving, after length() positions or those of a
  // checkpoint, nothing for other lengths; and for filling instead of writing, between prepare()
  // and advance(). Empty when no layer has a state. Valid until the sequence changes.
  std::span<const std::byte> state_memory(const Sequence& sequence, std::uint32_t length) const;
  std::span<std::byte> next_state_memory(const Sequence& sequence) const;

  // Stores the keys [kv_heads][key_dim] and values [kv_heads][value_dim] of one position of one
  // layer; what it leaves in them is not defined.
  void write(const Sequence& sequence, std::size_t layer, std::uint32_t position, float* keys,
             float* values) const;

  // Attention of the tokens from `position` on, each over what it sees, up to itself.
  void attend(const Sequence& sequence, std::size_t layer, std::size_t kv_head,
              std::uint32_t position, const Queries& queries) const;

  // How many of `columns` tokens from `position` on one call of attend() may take: all, but for two
  // bounds where a layer has a window. They are at most window_columns_max, and tokens that see the
  // sinks from their own positions are not together with later ones that do not.
  std::uint32_t columns_together(std::size_t layer, std::uint32_t position,
                                 std::uint32_t columns) const;

  // Transforms `heads` queries or outputs of `dim` numbers, in place. Nothing but for int8.
  void hadamard(float* rows, std::size_t heads, std::size_t dim) const;

  // Where the token at `position` stands when it looks at the sinks.
  std::uint32_t sink_query_position(std::uint32_t position) const;

  const CacheConfig& config() const { return config_; }
  std::size_t pages_in_use() const;  // of all groups

 private:
  friend class Sequence;

  // A group and its pages, the first of which is at memory_ + offset.
  struct Group {
    LayerGroup layout;
    PagePool pool;
    std::size_t offset;
  };
  // Where in a page the first head of a layer starts, and what follows in each head, in bytes.
  struct LayerPlace {
    std::size_t group, offset, head_bytes, key_scales, values, value_scales;
  };

  std::byte* page(std::size_t group, std::uint32_t number) const;
  std::byte* head(const Sequence& sequence, const LayerPlace& place, std::uint32_t position,
                  std::size_t kv_head) const;
  void store(float* row, std::size_t dim, std::byte* rows, std::byte* scales,
             const kernels::RowPlace& place, std::size_t position_in_page) const;
  std::uint32_t copy(std::size_t group, std::uint32_t number);
  void drop_unseen(Sequence& sequence);
  void truncate(Sequence& sequence, std::uint32_t length);
  std::uint32_t with_windows(const Sequence& sequence, std::uint32_t length) const;
  std::uint32_t with_state(const Sequence& sequence, std::uint32_t length) const;
  std::uint32_t reachable(const Sequence& sequence, std::uint32_t length) const;
  void check_reachable(const Sequence& sequence, std::uint32_t length) const;
  kernels::AttentionRun* add_runs(const Sequence& sequence, const LayerPlace& place,
                                  std::size_t kv_head, std::uint32_t begin, std::uint32_t end,
                                  const float* queries, kernels::AttentionRun* runs) const;

  struct Unmap {
    std::size_t bytes;
    void operator()(std::byte* memory) const;
  };
  using Memory = std::unique_ptr<std::byte, Unmap>;
  static Memory map(std::size_t bytes);

  CacheConfig config_;
  const kernels::KernelTable& kernels_;
  void (*attention_)(const kernels::AttentionArgs&);
  std::vector<Group> groups_;
  std::vector<LayerPlace> places_;
  Memory memory_;  // null when no layer keeps anything
  StateStore states_;
};

}  // namespace sluice::kvcache
