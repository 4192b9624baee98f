// One kind of decoder: which tensors it has, and what a step computes with them. A new
// architecture is one new file that implements this interface and one line in architecture.cc.
//
// Usage: make it from the header of a model; it declares its tensors in the order in which a step
// reads them. Allocate the buffers it asks for; then run steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/gguf/gguf.h"
#include "core/model/compute.h"
#include "core/model/hyper_parameters.h"
#include "core/model/weights.h"
#include "kvcache/kv_cache.h"

namespace sluice::model {

// A token of a step: to which sequence it belongs, and its place there.
struct Column {
  const kvcache::Sequence* sequence;
  std::uint32_t position;
};

// One step: some tokens, of one or of several sequences, through all layers. The tokens of a
// sequence stand together, by ascending positions; KvCache::prepare() has made room for them.
struct Step {
  std::span<const Column> columns;
  const kvcache::KvCache& cache;
  float* x;  // [columns][embedding]: in, the embedded tokens; out, the last layer
};

class Architecture {
 public:
  virtual ~Architecture() = default;

  virtual const HyperParameters& hyper_parameters() const = 0;

  // What each layer keeps of a token.
  virtual std::vector<kvcache::LayerShape> cache_layers() const = 0;

  // The widest input of a matrix, for Compute.
  virtual std::size_t size_max() const = 0;

  // Memory for steps of up to `columns` tokens over such a cache on `threads` threads: how much,
  // and taking it.
  virtual std::size_t buffer_bytes(std::size_t columns, const kvcache::CacheConfig& cache,
                                   std::size_t threads) const = 0;
  virtual void allocate(std::size_t columns, const kvcache::CacheConfig& cache,
                        std::size_t threads) = 0;

  // Runs all layers of a step, and writes the positions of its columns in the cache.
  virtual void run_layers(Compute& compute, const Step& step) = 0;

  // The turn of the tape at which run_head() begins: run_layers() needs those before it.
  virtual std::size_t head_turn() const = 0;

  // Logits [columns][vocabulary] of the rows of x, which are changed.
  virtual void run_head(Compute& compute, float* x, std::size_t columns, float* logits) = 0;
};

// The architecture that general.architecture names, with its tensors declared in `layout`. Throws
// ModelError when it is not supported or a tensor is missing or wrong.
std::unique_ptr<Architecture> make_architecture(const gguf::Model& model, WeightLayout& layout);

}  // namespace sluice::model
