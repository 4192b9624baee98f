// Llama and what is built like it: Llama 2 and 3, Mistral 7B, Yi, EuroLLM, Falcon 3 (general
// .architecture = "llama"). Touvron et al. 2023; grouped queries as in Llama 2 70B.
#pragma once

#include <memory>

#include "core/model/architecture.h"

namespace sluice::model {

std::unique_ptr<Architecture> make_llama(const gguf::Model& model, WeightLayout& layout);

}  // namespace sluice::model
