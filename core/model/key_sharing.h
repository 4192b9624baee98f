// Layers that read the keys and values of an earlier layer of their kind (Gemma 3n and 4): the last
// "attention.shared_kv_layers" of a model.
#pragma once

#include <cstdint>
#include <fmt/format.h>

#include "core/model/blocks/attention.h"
#include "core/model/hyper_parameters.h"
#include "core/model/keys.h"
#include "core/model/rotary_table.h"

namespace sluice::model {

// The attention of the layers of one kind: those with a window, or those without.
struct LayerKind {
  Heads size;  // its dimensions
  const RotaryTable* rope;
  std::uint32_t window;
  const Attention* last_with_keys;  // of the layers so far
};

// The block whose keys layer `layer` reads. A file that gives it other heads contradicts itself.
inline const Attention* shared_block(const Keys& keys, const LayerKind& kind, std::uint32_t layer,
                                     const Heads& heads, std::uint32_t sharing) {
  if (kind.last_with_keys == nullptr) {
    throw keys.error("attention.shared_kv_layers",
                     fmt::format("is {}, which leaves layer {} nothing to share", sharing, layer));
  }
  const std::uint32_t shared = kind.last_with_keys->heads().kv;
  if (heads.kv != shared) {
    throw keys.error("attention.head_count_kv",
                     fmt::format("is {} for layer {}, which shares the keys of a layer with {}",
                                 heads.kv, layer, shared));
  }
  return kind.last_with_keys;
}

}  // namespace sluice::model
