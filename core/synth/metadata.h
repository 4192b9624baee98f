// The keys of a model of some shape, as converters write them to GGUF files.
#pragma once

#include "core/gguf/gguf_writer.h"
#include "core/synth/shapes.h"

namespace sluice::synth {

// Adds general.architecture, the keys of the architecture and those of the tokenizer, which has a
// toy vocabulary.
void add_metadata(const Shape& shape, gguf::Writer& writer);

}  // namespace sluice::synth
