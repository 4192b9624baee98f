// A key that identifies a model: it is derived from the headers and sizes of its files, and from
// samples of every tensor, since a model that was trained further has the same header. Names and
// times of files do not matter.
//
// The key does not change when a tensor changes outside of its samples. Training changes almost
// every block of a tensor that it changes at all; a single edited byte of a large tensor may be
// missed. Only reading the whole model could find that.
#pragma once

#include "core/engine/page_store.h"
#include "core/gguf/gguf.h"

namespace sluice::engine {

// Samples of a tensor: this many pieces, at equal distances from its first byte to its last. A
// tensor that is no larger than all samples together is read whole.
inline constexpr std::uint64_t tensor_samples = 8;
inline constexpr std::uint64_t tensor_sample_bytes = 4096;

// Throws std::system_error.
PageKey model_key(const gguf::Model& model);

}  // namespace sluice::engine
