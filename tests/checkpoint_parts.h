// What the tables of checkpoints share: names of tensors there, and how stacks are laid out.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/synthetic_checkpoint.h"

namespace sluice::test {

// Names here, and what they are there, as CheckpointFamily::names.
using Names = std::map<std::string, std::string>;

// `more`, and of `others` what it does not have.
inline Names with(Names more, const Names& others) {
  more.insert(others.begin(), others.end());
  return more;
}

inline const Names globals = {{"token_embd", "embed_tokens"}, {"output_norm", "norm"}};
inline const Names attention = {{"attn_q", "self_attn.q_proj"},
                                {"attn_k", "self_attn.k_proj"},
                                {"attn_v", "self_attn.v_proj"},
                                {"attn_output", "self_attn.o_proj"}};
inline const Names projections = with({{"ffn_gate", "mlp.gate_proj"},
                                       {"ffn_up", "mlp.up_proj"},
                                       {"ffn_down", "mlp.down_proj"},
                                       {"attn_norm", "input_layernorm"}},
                                      with(attention, globals));
inline const Names plain = with({{"ffn_norm", "post_attention_layernorm"}}, projections);
inline const Names gemma = with({{"ffn_norm", "pre_feedforward_layernorm"},
                                 {"post_attention_norm", "post_attention_layernorm"},
                                 {"post_ffw_norm", "post_feedforward_layernorm"},
                                 {"attn_q_norm", "self_attn.q_norm"},
                                 {"attn_k_norm", "self_attn.k_norm"}},
                                projections);

// One stack of two, gate and up of each matrix one below the other.
inline void fuse_stacks(CheckpointTensors& tensors, const std::string& gate, const std::string& up,
                        const std::string& both) {
  const CheckpointTensor a = tensors.at(gate), b = tensors.at(up);
  CheckpointTensor fused{a.shape, {}};
  fused.shape[fused.shape.size() - 2] *= 2;
  const std::size_t count = a.shape.size() > 2 ? a.shape.front() : 1;
  const auto size = static_cast<std::ptrdiff_t>(a.values.size() / count);
  for (std::ptrdiff_t i = 0; i < static_cast<std::ptrdiff_t>(count); ++i) {
    for (const CheckpointTensor* one : {&a, &b}) {
      fused.values.insert(fused.values.end(), one->values.begin() + i * size,
                          one->values.begin() + (i + 1) * size);
    }
  }
  tensors.erase(gate);
  tensors.erase(up);
  tensors[both] = std::move(fused);
}

// Each matrix of a stack with rows and columns exchanged.
inline void transpose_stack(CheckpointTensor& tensor) {
  const std::size_t count = tensor.shape[0], rows = tensor.shape[1], columns = tensor.shape[2];
  const std::vector<float> before = tensor.values;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const std::size_t matrix = i / (rows * columns), place = i % (rows * columns);
    tensor.values[matrix * rows * columns + place % columns * rows + place / columns] = before[i];
  }
  tensor.shape = {count, columns, rows};
}

// Those of checkpoint_families() that are encoders (checkpoint_encoders.cc).
std::vector<CheckpointFamily> encoder_checkpoints();

}  // namespace sluice::test
