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

#include "core/gguf/gguf.h"
#include "core/model/compute.h"
#include "core/model/hyper_parameters.h"
#include "core/model/weights.h"
#include "kvcache/kv_cache.h"

namespace sluice::model {

// One step: some consecutive tokens of a sequence through all layers.
struct Step {
  std::size_t columns;   // tokens of the step
  std::size_t position;  // of the first token
  kvcache::KvCache& cache;
  float* x;  // [columns][embedding]: in, the embedded tokens; out, the last layer
};

class Architecture {
 public:
  virtual ~Architecture() = default;

  virtual const HyperParameters& hyper_parameters() const = 0;

  // The cache that `positions` positions need.
  virtual kvcache::CacheConfig cache_config(std::size_t positions,
                                            kvcache::ElementType type) const = 0;

  // The widest input of a matrix, for Compute.
  virtual std::size_t size_max() const = 0;

  // Memory for steps of up to `columns` tokens over up to `positions` positions on `threads`
  // threads: how much, and taking it.
  virtual std::size_t buffer_bytes(std::size_t columns, std::size_t positions,
                                   std::size_t threads) const = 0;
  virtual void allocate(std::size_t columns, std::size_t positions, std::size_t threads) = 0;

  // Runs all layers of a step. Writes positions [position, position + columns) of the cache.
  virtual void run_layers(Compute& compute, const Step& step) = 0;

  // Logits [columns][vocabulary] of the rows of x, which are changed.
  virtual void run_head(Compute& compute, float* x, std::size_t columns, float* logits) = 0;
};

// The architecture that general.architecture names, with its tensors declared in `layout`. Throws
// ModelError when it is not supported or a tensor is missing or wrong.
std::unique_ptr<Architecture> make_architecture(const gguf::Model& model, WeightLayout& layout);

}  // namespace sluice::model
