// The numbers that shape every decoder, read from GGUF metadata and checked against each other.
// What only some architectures have is read by their own pages, with Keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/model/keys.h"
#include "core/model/rope.h"

namespace sluice::model {

struct HyperParameters {
  std::string architecture;      // general.architecture
  std::uint32_t layers = 0;      // without blocks that predict further tokens (MTP)
  std::uint32_t embedding = 0;   // E, width of the residual stream
  std::uint32_t context = 0;     // positions the model was trained for
  std::uint32_t vocabulary = 0;  // V, rows of token_embd
  float norm_epsilon = 0;        // of the root mean square norms
};

// `norm_epsilon`: where the file has none; without it the key is required. Throws ModelError where
// a key is missing, of a wrong type or makes no sense.
HyperParameters read_hyper_parameters(const Keys& keys, std::optional<float> norm_epsilon = {});

// The heads of one attention layer.
struct Heads {
  std::uint32_t query = 0;      // H; 0: the layer has no attention
  std::uint32_t kv = 0;         // G, divides H
  std::uint32_t key_dim = 0;    // of a query or key head
  std::uint32_t value_dim = 0;  // of a value head
};

// "attention.head_count" and its kin, for each layer.
std::vector<Heads> read_heads(const Keys& keys, const HyperParameters& hp);

// Those of the first layer that has attention, where all that have are alike.
Heads first_heads(const std::vector<Heads>& heads);

// "rope.dimension_count", "rope.freq_base" and "rope.scaling.*". `key_dim`: of the heads that are
// rotated, and how many of their dimensions are where the file does not say.
RopeParameters read_rope(const Keys& keys, const HyperParameters& hp, std::uint32_t key_dim);

}  // namespace sluice::model
