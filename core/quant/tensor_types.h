// Which tensors of a model a quantisation changes, by their names in a GGUF file, and to what.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/quant/quant_mix.h"

namespace sluice::quant {

struct NamedShape {
  std::string_view name;
  std::uint32_t rank = 0;
  std::uint64_t columns = 0;  // dims[0]
};

struct ModelFacts {
  std::uint32_t layers = 0;
  std::uint32_t heads_per_kv = 1;  // query heads that share one pair of keys and values
};

// Whether a quantisation changes a tensor. It leaves alone vectors, norms, routers, convolutions,
// whatever is no weight of a matrix product, and what llama.cpp's quantiser finds too small.
bool is_quantised(const NamedShape& tensor);

// The format of each tensor, in their order; nothing for one that keeps its own.
std::vector<std::optional<kernels::BlockType>> types_of(std::span<const NamedShape> tensors,
                                                        const QuantMix& mix,
                                                        const ModelFacts& facts);

}  // namespace sluice::quant
