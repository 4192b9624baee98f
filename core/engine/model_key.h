// What tells a model from all others: the headers and sizes of its files, and samples of every
// tensor, since a model that was trained further has the same header. Names and times of files do
// not count.
//
// A change of a tensor that leaves all its samples as they were is not seen. Training changes
// almost every block of what it changes at all; an edited byte of a large tensor may be missed,
// which only reading all of the model could find.
#pragma once

#include "core/engine/page_store.h"
#include "core/gguf/gguf.h"

namespace sluice::engine {

// Samples of a tensor: as many pieces, at equal distances from its first byte to its last. A tensor
// that is no larger than all of them is read whole.
inline constexpr std::uint64_t tensor_samples = 8;
inline constexpr std::uint64_t tensor_sample_bytes = 4096;

// Throws std::system_error.
PageKey model_key(const gguf::Model& model);

}  // namespace sluice::engine
