#include "kvcache/kv_cache.h"

#include <cassert>
#include <cerrno>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <system_error>
#include <utility>

namespace sluice::kvcache {
namespace {

constexpr std::size_t run_alignment = 64;
constexpr std::size_t page_bytes = 4096;
// Half of the address space: sums and round-ups of two such numbers cannot wrap.
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

std::size_t round_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Bytes of one head's run of rows.
std::size_t run_bytes(const CacheConfig& config, std::size_t dim) {
  const std::size_t row = product(dim, element_bytes(config.type), config);
  return round_up(product(row, config.positions, config), run_alignment);
}

// Bytes of all the runs of one kind in a layer.
std::size_t layer_bytes(const CacheConfig& config, std::size_t kv_heads, std::size_t dim) {
  return kv_heads == 0 ? 0 : product(run_bytes(config, dim), kv_heads, config);
}

std::size_t sum(std::size_t a, std::size_t b, const CacheConfig& config) {
  if (a + b > bytes_max) throw_too_large(config);
  return a + b;
}

std::byte* map(std::size_t size) {
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::system_error(errno, std::generic_category(),
                            "cannot allocate " + std::to_string(size) +
                                " bytes for keys and values; lower the context");
  }
  // Attention walks through all of it: fewer TLB misses. A kernel without huge pages may refuse.
  (void)::madvise(memory, size, MADV_HUGEPAGE);
  return static_cast<std::byte*>(memory);
}

}  // namespace

std::size_t element_bytes(ElementType type) {
  return type == ElementType::f32 ? sizeof(float) : sizeof(std::uint16_t);
}

std::size_t bytes(const CacheConfig& config) {
  std::size_t total = 0;
  for (const LayerShape& layer : config.layers) {
    total = sum(total, layer_bytes(config, layer.kv_heads, layer.key_dim), config);
    total = sum(total, layer_bytes(config, layer.kv_heads, layer.value_dim), config);
  }
  return round_up(total, page_bytes);
}

KvCache::KvCache(CacheConfig config, const kernels::AttentionKernels& kernels)
    : config_(std::move(config)), kernels_(&kernels), bytes_(kvcache::bytes(config_)) {
  if (config_.positions == 0) {
    throw std::invalid_argument("a KV cache needs room for at least one position");
  }
  places_.reserve(config_.layers.size());
  std::size_t at = 0;
  for (const LayerShape& layer : config_.layers) {
    LayerPlace place{};
    if (layer.kv_heads != 0) {
      place.key_run = run_bytes(config_, layer.key_dim);
      place.value_run = run_bytes(config_, layer.value_dim);
      place.keys = at;
      place.values = at + layer.kv_heads * place.key_run;
      at = place.values + layer.kv_heads * place.value_run;
    }
    places_.push_back(place);
  }
  if (bytes_ != 0) memory_ = map(bytes_);
}

KvCache::~KvCache() {
  if (memory_) ::munmap(memory_, bytes_);
}

KvCache::KvCache(KvCache&& other) noexcept
    : config_(std::move(other.config_)),
      kernels_(other.kernels_),
      places_(std::move(other.places_)),
      memory_(std::exchange(other.memory_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      length_(std::exchange(other.length_, 0)) {}

KvCache& KvCache::operator=(KvCache&& other) noexcept {
  std::swap(config_, other.config_);
  std::swap(kernels_, other.kernels_);
  std::swap(places_, other.places_);
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  std::swap(length_, other.length_);
  return *this;
}

void KvCache::store(const float* row, std::size_t size, std::byte* at) const {
  if (config_.type == ElementType::f32) {
    std::memcpy(at, row, size * sizeof(float));
  } else {
    kernels_->f32_to_f16(row, size, reinterpret_cast<std::uint16_t*>(at));
  }
}

void KvCache::write(std::size_t layer, std::size_t position, const float* keys,
                    const float* values) {
  assert(layer < places_.size() && position < config_.positions);
  const LayerShape& shape = config_.layers[layer];
  const LayerPlace& place = places_[layer];
  const std::size_t element = element_bytes(config_.type);
  for (std::size_t h = 0; h < shape.kv_heads; ++h) {
    store(keys + h * shape.key_dim, shape.key_dim,
          memory_ + place.keys + h * place.key_run + position * shape.key_dim * element);
    store(values + h * shape.value_dim, shape.value_dim,
          memory_ + place.values + h * place.value_run + position * shape.value_dim * element);
  }
}

HeadView KvCache::head(std::size_t layer, std::size_t kv_head) const {
  assert(layer < places_.size() && kv_head < config_.layers[layer].kv_heads);
  const LayerPlace& place = places_[layer];
  return {memory_ + place.keys + kv_head * place.key_run,
          memory_ + place.values + kv_head * place.value_run};
}

void KvCache::require_room(std::size_t more) const {
  const std::size_t left = config_.positions - length_;
  if (more <= left) return;
  throw std::length_error(std::to_string(more) + " more tokens do not fit in the context: " +
                          std::to_string(length_) + " of " + std::to_string(config_.positions) +
                          " positions are in use; shorten the prompt or raise the context");
}

void KvCache::set_length(std::size_t length) {
  assert(length <= config_.positions);
  length_ = length;
}

}  // namespace sluice::kvcache
