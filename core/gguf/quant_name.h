// How a model is quantised, in the names that llama.cpp has for it.
#pragma once

#include <string>

#include "core/gguf/gguf.h"

namespace sluice::gguf {

// What general.file_type says, such as "Q4_K_M", where the weights agree with it: a tenth of their
// bytes or more has the type that such a file is mostly of. Otherwise the type that most bytes
// have; empty for a model without tensors.
std::string quant_name(const Model& model);

}  // namespace sluice::gguf
