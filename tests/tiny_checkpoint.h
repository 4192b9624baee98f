// A small checkpoint of Hugging Face, in a form that tests can spoil.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"

namespace sluice::test {

// One layer of Llama, whose weights count upwards, and a byte-level vocabulary of "a" and "b".
struct TinyCheckpoint {
  nlohmann::json config = {{"architectures", nlohmann::json::array({"LlamaForCausalLM"})},
                           {"hidden_size", 32},
                           {"num_hidden_layers", 1},
                           {"num_attention_heads", 4},
                           {"num_key_value_heads", 2},
                           {"intermediate_size", 64},
                           {"vocab_size", 256},
                           {"rms_norm_eps", 1e-5},
                           {"max_position_embeddings", 128},
                           {"tie_word_embeddings", true},
                           {"eos_token_id", 1}};
  nlohmann::json tokenizer = {
      {"pre_tokenizer", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}}}, {"merges", nlohmann::json::array()}}}};
  nlohmann::json header;
  std::string data;

  TinyCheckpoint() {
    const auto add = [&](const std::string& name, std::vector<std::uint64_t> shape) {
      std::uint64_t count = 1;
      for (const std::uint64_t dim : shape) count *= dim;
      const std::size_t begin = data.size();
      for (std::uint64_t i = 0; i < count; ++i) {
        const float value = static_cast<float>(i) / 64;
        data.append(reinterpret_cast<const char*>(&value), sizeof value);
      }
      header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
    };
    add("model.embed_tokens.weight", {256, 32});
    add("model.norm.weight", {32});
    const std::string layer = "model.layers.0.";
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
      add(layer + norm + ".weight", {32});
    }
    add(layer + "self_attn.q_proj.weight", {32, 32});
    add(layer + "self_attn.k_proj.weight", {16, 32});
    add(layer + "self_attn.v_proj.weight", {16, 32});
    add(layer + "self_attn.o_proj.weight", {32, 32});
    add(layer + "mlp.gate_proj.weight", {64, 32});
    add(layer + "mlp.up_proj.weight", {64, 32});
    add(layer + "mlp.down_proj.weight", {32, 64});
  }

  // Adds a tensor of any bytes.
  void add(const std::string& name, const std::string& dtype,
           const std::vector<std::uint64_t>& shape, const std::string& bytes) {
    const std::size_t begin = data.size();
    data += bytes;
    header[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, data.size()}}};
  }

  void write_weights(const std::filesystem::path& path) const {
    const std::string text = header.dump();
    const std::uint64_t length = text.size();
    write(path, std::string(reinterpret_cast<const char*>(&length), 8) + text + data);
  }

  void write_to(const std::filesystem::path& folder) const {
    write(folder / "config.json", config.dump());
    write(folder / "tokenizer.json", tokenizer.dump());
    write_weights(folder / "model.safetensors");
  }
};

}  // namespace sluice::test
