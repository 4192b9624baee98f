// The numbers that shape a model, read from GGUF metadata and checked against each other, so that
// whoever computes with them need not check again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/gguf/gguf.h"

namespace sluice::model {

enum class RopeScaling { none, linear, yarn };

// Rotary position embedding; see rope.h for the equations.
struct RopeParameters {
  std::uint32_t dimensions = 0;  // of a head that are rotated, even
  float base = 10000;
  RopeScaling scaling = RopeScaling::none;
  float factor = 1;  // s: positions are compressed by it
  std::uint32_t original_context = 0;
  float attention_factor = 1;  // multiplies cosines and sines, with what YaRN adds
  float yarn_beta_fast = 32;
  float yarn_beta_slow = 1;
  float yarn_extrapolation = 1;
  float yarn_log_multiplier = 0;  // not 0: the magnitude correction is left to the model
};

struct HyperParameters {
  std::string architecture;  // general.architecture
  std::uint32_t layers = 0;
  std::uint32_t embedding = 0;     // E, width of the residual stream
  std::uint32_t feed_forward = 0;  // F
  std::uint32_t heads = 0;         // H, query heads
  std::uint32_t kv_heads = 0;      // G, divides H
  std::uint32_t key_dim = 0;       // of a query or key head
  std::uint32_t value_dim = 0;
  std::uint32_t context = 0;     // positions the model was trained for
  std::uint32_t vocabulary = 0;  // rows of token_embd
  float norm_epsilon = 0;
  RopeParameters rope;
  // [layers], how many positions a layer sees, 0 for all; empty when all layers see all. Read by
  // the architectures that are run with windows: files of others may name one that is not used
  // (Mistral 7B v0.1 as "llama").
  std::vector<std::uint32_t> windows;

  std::uint32_t window(std::size_t layer) const { return windows.empty() ? 0 : windows[layer]; }
};

// Reads the keys that all decoder architectures share ("<architecture>.block_count", ...). Throws
// ModelError where a key is missing, of a wrong type or makes no sense.
HyperParameters read_hyper_parameters(const gguf::Model& model);

}  // namespace sluice::model
