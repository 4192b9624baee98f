// The architectures that sluice runs: one page each, which reads like the model's own.
//
// A page has a maker, which gives a decoder with its tensors declared in `layout`. A new
// architecture is a new page, and a line in families.cc.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "core/model/decoder.h"
#include "core/model/keys.h"
#include "core/model/weights.h"

namespace sluice::model {

// The decoder that general.architecture names. Throws ModelError when it is not supported or a
// tensor is missing, wrong or unknown.
std::unique_ptr<Decoder> make_decoder(const gguf::Model& model, WeightLayout& layout);

struct Family {
  std::string_view architecture;  // general.architecture
  std::unique_ptr<Decoder> (*make)(const Keys& keys, WeightLayout& layout);
};
std::span<const Family> families();

}  // namespace sluice::model
