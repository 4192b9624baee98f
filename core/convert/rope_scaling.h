// How a checkpoint scales its rotary angles for longer texts, as metadata and tensors of a GGUF
// file: the kinds of `rope_scaling` in config.json (default, dynamic, linear, yarn, llama3,
// longrope, proportional).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/convert/config.h"
#include "core/gguf/gguf_writer.h"

namespace sluice::convert {

struct RopeShape {
  std::string prefix;         // of keys: the architecture
  std::uint64_t rotated = 0;  // elements of a head
  bool is_latent = false;     // keys and values come of a latent vector, as in DeepSeek
};

// A tensor of divisors of the frequencies, one for each pair of elements.
struct RopeFactors {
  std::string name;
  std::vector<float> factors;
};

// `config` is config.json, here and below. Both throw ModelError.
std::vector<RopeFactors> rope_factors(const Config& config, std::uint64_t rotated);

// Writes the base of the frequencies and the keys of a scaling.
void write_rope(const Config& config, const RopeShape& shape, gguf::Writer& writer);

}  // namespace sluice::convert
