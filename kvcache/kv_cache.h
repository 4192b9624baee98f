// The keys and values that one sequence has produced, in one allocation made at the start.
//
// Within a layer, a head's positions are consecutive: keys [kv head][position][key_dim], then
// values [kv head][position][value_dim]. Attention over one head thus reads one contiguous run of
// memory (kernels/attention.h). Every run starts at a multiple of 64 bytes.
//
// Threads: different positions, and different layers, may be written at the same time; a position
// may be read once its write is done. set_length and clear belong to the thread that leads a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"

namespace sluice::kvcache {

// How one number is kept.
enum class ElementType { f32, f16 };

std::size_t element_bytes(ElementType type);

struct LayerShape {
  std::size_t kv_heads = 0;  // 0: a layer without attention, which takes no memory
  std::size_t key_dim = 0;
  std::size_t value_dim = 0;
};

struct CacheConfig {
  std::vector<LayerShape> layers;
  std::size_t positions = 0;  // the most that the cache can hold
  ElementType type = ElementType::f16;
};

// Bytes that a cache of this shape allocates. Allocates nothing of size, so that a plan can ask.
// Throws std::invalid_argument when the number does not fit in memory addresses.
std::size_t bytes(const CacheConfig& config);

// The run of one head: position p is at keys + p * key_dim elements. Elements are float for f32,
// std::uint16_t (the bits of a half) for f16; choose the attention kernel by KvCache::type().
struct HeadView {
  const void* keys;
  const void* values;
};

class KvCache {
 public:
  // Allocates `bytes(config)`, zeroed by the system as it is first written. `kernels` converts what
  // is written; it must outlive the cache. Throws as `bytes` does, std::invalid_argument when there
  // is no position to hold, and std::system_error when the system has no such memory.
  KvCache(CacheConfig config, const kernels::AttentionKernels& kernels);
  ~KvCache();
  KvCache(KvCache&& other) noexcept;
  KvCache& operator=(KvCache&& other) noexcept;

  // Stores the keys [kv_heads][key_dim] and values [kv_heads][value_dim] of one position of one
  // layer. position < positions(). Does not change length(): a step does that when all its layers
  // are done.
  void write(std::size_t layer, std::size_t position, const float* keys, const float* values);

  // The positions of one head. Valid as long as the cache.
  HeadView head(std::size_t layer, std::size_t kv_head) const;

  // Throws std::length_error when `more` positions after the first length() do not fit. For the
  // start of a request: writing does not check.
  void require_room(std::size_t more) const;

  std::size_t length() const { return length_; }  // positions in use, from 0
  // Also shortens: what lies beyond is forgotten, and written anew. length <= positions().
  void set_length(std::size_t length);
  void clear() { set_length(0); }

  std::size_t positions() const { return config_.positions; }
  ElementType type() const { return config_.type; }
  const CacheConfig& config() const { return config_; }

 private:
  // Where the first head of a layer starts, in bytes from memory_, and what one head takes.
  struct LayerPlace {
    std::size_t keys, key_run, values, value_run;
  };

  void store(const float* row, std::size_t size, std::byte* at) const;

  CacheConfig config_;
  const kernels::AttentionKernels* kernels_;
  std::vector<LayerPlace> places_;
  std::byte* memory_ = nullptr;  // owned, mapped; null when no layer has attention
  std::size_t bytes_ = 0;
  std::size_t length_ = 0;
};

}  // namespace sluice::kvcache
