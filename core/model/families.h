// The architectures that sluice runs. Each has one page, a file that reads like the model's paper.
//
// A page has a maker, which returns a decoder with its tensors declared in `layout`. To add an
// architecture, add a page and a line in families.cc.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "core/model/decoder.h"
#include "core/model/keys.h"
#include "core/model/weights.h"

namespace sluice::model {

// Makes the decoder of the architecture that general.architecture names, with the block that
// predicts further tokens if it `predicts` (core/model/predictor.h). Throws ModelError when that is
// not supported, or when a tensor is missing, wrong or unknown.
std::unique_ptr<Decoder> make_decoder(const gguf::Model& model, WeightLayout& layout,
                                      bool predicts = false);

struct Family {
  std::string_view architecture;  // general.architecture
  std::unique_ptr<Decoder> (*make)(const Keys& keys, WeightLayout& layout);
};
std::span<const Family> families();

}  // namespace sluice::model
