// The numbers that every decoder has, read from GGUF metadata and checked against each other. Pages
// read the keys that only some architectures have, with Keys.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/model/keys.h"
#include "core/model/rope.h"

namespace sluice::model {

struct HyperParameters {
  std::string architecture;      // general.architecture
  std::uint32_t layers = 0;      // without the blocks behind them
  std::uint32_t predicting = 0;  // blocks that predict further tokens (MTP)
  std::uint32_t predictors = 0;  // of these, those that are used, behind the layers: 0 or 1
  std::uint32_t embedding = 0;   // E, width of the residual stream
  std::uint32_t context = 0;     // positions the model was trained for
  std::uint32_t vocabulary = 0;  // V, rows of token_embd
  float norm_epsilon = 0;        // of norms
  bool norms_subtract_mean = false;
  // Tokens see the whole text, also what comes after them. Such a model makes vectors of texts and
  // writes none; it has no cache, and computes a text in one step.
  bool is_encoder = false;

  // The layers, and the predictor.
  std::uint32_t blocks() const { return layers + predictors; }
};

// What the keys of an architecture do not say.
struct ModelKind {
  bool subtracts_mean = false;        // norms do; it tells the name of the key
  std::optional<float> epsilon = {};  // where the file has none; without it the key is required
  bool is_encoder = false;
};

// The tokens of the longest texts that the model was trained with. Throws as below.
std::uint32_t trained_context(const Keys& keys);

// Throws ModelError when a key is missing, has a wrong type or makes no sense.
HyperParameters read_hyper_parameters(const Keys& keys, const ModelKind& kind = {});

// The heads of one attention layer.
struct Heads {
  std::uint32_t query = 0;      // H; 0: the layer has no attention
  std::uint32_t kv = 0;         // G, divides H
  std::uint32_t key_dim = 0;    // of a query or key head
  std::uint32_t value_dim = 0;  // of a value head
};

// Reads "attention.head_count" and the related keys, for each layer and the predictor.
std::vector<Heads> read_heads(const Keys& keys, const HyperParameters& hp);

// The heads of the first layer that has attention, for models whose attention layers are all alike.
Heads first_heads(const std::vector<Heads>& heads);

// Reads "rope.dimension_count", "rope.freq_base" and "rope.scaling.*". `key_dim` is the size of the
// heads that are rotated; where the file has no dimension count, all of it is rotated.
RopeParameters read_rope(const Keys& keys, const HyperParameters& hp, std::uint32_t key_dim);

// Queries at position p are multiplied by 1 + beta ln(1 + floor((p + ahead) / length)) (Ministral
// 3; Llama 4 is ahead by 1).
struct QueryTemperature {
  float beta = 0;  // 0: never
  std::uint32_t length = 1;
  std::uint32_t ahead = 0;

  float factor(std::uint32_t position) const {
    const std::uint32_t whole_lengths = (position + ahead) / length;
    return 1 + beta * std::log(1 + static_cast<float>(whole_lengths));
  }
};

// Reads "attention.temperature_scale" and "attention.temperature_length", which is the original
// context of `rope` where the file does not say it.
QueryTemperature read_query_temperature(const Keys& keys, const RopeParameters& rope);

}  // namespace sluice::model
