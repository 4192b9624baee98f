// How a model is quantised, in the names that llama.cpp has for it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/gguf/gguf.h"

namespace sluice::gguf {

// What general.file_type says, such as "Q4_K_M", where the weights agree with it: a tenth of their
// bytes or more has the type that such a file is mostly of. Otherwise the type that most bytes
// have; empty for a model without tensors.
std::string quant_name(const Model& model);

// The general.file_type of a file that is called so: 15 for "Q4_K_M". Throws std::invalid_argument
// for a name that llama.cpp does not have.
std::uint32_t file_type_of(std::string_view name);

}  // namespace sluice::gguf
