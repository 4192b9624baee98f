// The sampling settings that hold where nobody gives others: what the model file recommends, and
// for the rest the program's own.
//
// A file recommends settings under the keys that llama.cpp writes and reads: general.sampling.temp,
// top_k, top_p, min_p, penalty_repeat and penalty_last_n. A value that cannot be used is ignored,
// with a warning: a recommendation is no reason to refuse a model.
#pragma once

#include <string>
#include <vector>

#include "core/gguf/metadata.h"
#include "core/sampling/sampler.h"

namespace sluice::sampling {

struct ModelDefaults {
  SamplerOptions sampler;
  std::vector<std::string> recommended;  // by the file: "temperature 0.7"
  std::vector<std::string> warnings;     // a line each
};

ModelDefaults model_defaults(const gguf::Metadata& metadata);

}  // namespace sluice::sampling
