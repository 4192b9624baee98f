// Encoders that `import` knows, as tests/synthetic_checkpoint.h wants them.
#include <fmt/format.h>

#include "tests/checkpoint_parts.h"

namespace sluice::test {
namespace {

using nlohmann::json;

const Names bert = {{"token_embd", "embeddings.word_embeddings"},
                    {"position_embd", "embeddings.position_embeddings"},
                    {"token_types", "embeddings.token_type_embeddings"},
                    {"token_embd_norm", "embeddings.LayerNorm"},
                    {"attn_q", "attention.self.query"},
                    {"attn_k", "attention.self.key"},
                    {"attn_v", "attention.self.value"},
                    {"attn_output", "attention.output.dense"},
                    {"attn_output_norm", "attention.output.LayerNorm"},
                    {"ffn_up", "intermediate.dense"},
                    {"ffn_down", "output.dense"},
                    {"layer_output_norm", "output.LayerNorm"}};
const Names jina = with({{"ffn_gate", "mlp.gate"},
                         {"ffn_up", "mlp.up"},
                         {"ffn_down", "mlp.wo"},
                         {"layer_output_norm", "mlp.layernorm"}},
                        bert);
const Names nomic = {{"token_embd", "embeddings.word_embeddings"},
                     {"token_types", "embeddings.token_type_embeddings"},
                     {"token_embd_norm", "emb_ln"},
                     {"attn_qkv", "attn.Wqkv"},
                     {"attn_output", "attn.out_proj"},
                     {"attn_output_norm", "norm1"},
                     {"ffn_gate", "mlp.fc12"},
                     {"ffn_up", "mlp.fc11"},
                     {"ffn_down", "mlp.fc2"},
                     {"layer_output_norm", "norm2"}};
const Names roberta = with({{"cls.weight", "classifier.dense.weight"},
                            {"cls.bias", "classifier.dense.bias"},
                            {"cls.output.weight", "classifier.out_proj.weight"},
                            {"cls.output.bias", "classifier.out_proj.bias"}},
                           bert);
const Names nomic_moe = with({{"ffn_up", "mlp.fc1"},
                              {"ffn_gate_inp", "mlp.router.layer"},
                              {"ffn_up_exps.weight", "mlp.experts.mlp.w1"},
                              {"ffn_down_exps.weight", "mlp.experts.mlp.w2"}},
                             nomic);
const std::string adapted = ".parametrizations.weight.original";
const Names jina3 = with({{"token_embd.weight", "embeddings.word_embeddings" + adapted},
                          {"token_types.weight", "embeddings.token_type_embeddings" + adapted},
                          {"attn_qkv.weight", "mixer.Wqkv" + adapted},
                          {"attn_qkv", "mixer.Wqkv"},
                          {"attn_output.weight", "mixer.out_proj" + adapted},
                          {"attn_output", "mixer.out_proj"},
                          {"ffn_up.weight", "mlp.fc1" + adapted},
                          {"ffn_up", "mlp.fc1"},
                          {"ffn_down.weight", "mlp.fc2" + adapted},
                          {"ffn_down", "mlp.fc2"}},
                         nomic);
const Names modern = {{"token_embd", "embeddings.tok_embeddings"},
                      {"token_embd_norm", "embeddings.norm"},
                      {"output_norm", "final_norm"},
                      {"attn_norm", "attn_norm"},
                      {"attn_qkv", "attn.Wqkv"},
                      {"attn_output", "attn.Wo"},
                      {"ffn_norm", "mlp_norm"},
                      {"ffn_up", "mlp.Wi"},
                      {"ffn_down", "mlp.Wo"},
                      {"cls.weight", "head.dense.weight"},
                      {"cls.norm.weight", "head.norm.weight"},
                      {"cls.output.weight", "classifier.weight"},
                      {"cls.output.bias", "classifier.bias"}};

void adapt_bert(const SyntheticCheckpoint&, json& config, CheckpointTensors& tensors) {
  config["type_vocab_size"] = 2;
  config["hidden_act"] = "gelu";
  config.erase("rope_parameters");
  tensors["pooler.dense.weight"] = {{2, 2}, {1, 2, 3, 4}};
}

// In front of its positions are those of padding.
void adapt_roberta(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  adapt_bert(model, config, tensors);
  config["type_vocab_size"] = 1;
  config["pad_token_id"] = 1;
  config["max_position_embeddings"] = model.count("context_length") + 2;
  for (auto& [name, tensor] : tensors) {
    if (!name.ends_with("position_embeddings.weight")) continue;
    const std::vector<float> unused(2 * tensor.shape[1], 7);
    tensor.values.insert(tensor.values.begin(), unused.begin(), unused.end());
    tensor.shape[0] += 2;
  }
}

void adapt_jina3(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  config.update({{"type_vocab_size", 1},
                 {"hidden_act", "gelu"},
                 {"position_embedding_type", "rotary"},
                 {"pad_token_id", 1},
                 {"rotary_emb_base", model.number("rope.freq_base")}});
  config.erase("rope_parameters");
  for (const char* adapter : {"lora_A", "lora_B"}) {
    tensors[fmt::format("roberta.encoder.layers.0.mixer.Wqkv.parametrizations.weight.0.{}",
                        adapter)] = {{2, 2}, {1, 2, 3, 4}};
  }
}

void adapt_jina(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  config.update({{"type_vocab_size", 2},
                 {"hidden_act", "gelu"},
                 {"position_embedding_type", "alibi"},
                 {"feed_forward_type", "geglu"}});
  config.erase("rope_parameters");
  for (int layer = 0; layer < model.count("block_count"); ++layer) {
    const std::string at = fmt::format("encoder.layer.{}.mlp.", layer);
    fuse_stacks(tensors, at + "gate.weight", at + "up.weight", at + "gated_layers.weight");
  }
  tensors["pooler.dense.weight"] = {{2, 2}, {1, 2, 3, 4}};
}

void adapt_masked(const SyntheticCheckpoint&, json&, CheckpointTensors& tensors) {
  tensors["lm_head.weight"] = tensors.at("model.embed_tokens.weight");
}

void adapt_nomic(const SyntheticCheckpoint& model, json& config, CheckpointTensors&) {
  config = {{"architectures", config["architectures"]},
            {"n_embd", config["hidden_size"]},
            {"n_layer", config["num_hidden_layers"]},
            {"n_head", config["num_attention_heads"]},
            {"n_inner", config["intermediate_size"]},
            {"vocab_size", config["vocab_size"]},
            {"max_trained_positions", config["max_position_embeddings"]},
            {"n_positions", 99},
            {"layer_norm_epsilon", config["layer_norm_eps"]},
            {"rotary_emb_base", model.number("rope.freq_base")},
            {"rotary_emb_fraction", 1.0},
            {"activation_function", "swiglu"},
            {"prenorm", false},
            {"type_vocab_size", 2}};
}

// Experts are one below the other, and those that reduce also with rows for columns.
void adapt_nomic_moe(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  adapt_nomic(model, config, tensors);
  config.update({{"activation_function", "gelu"},
                 {"type_vocab_size", 1},
                 {"qkv_proj_bias", true},
                 {"mlp_fc1_bias", true},
                 {"mlp_fc2_bias", true},
                 {"num_experts", model.count("expert_count")},
                 {"moe_top_k", model.count("expert_used_count")},
                 {"moe_every_n_layers", model.count("moe_every_n_layers")}});
  for (auto& [name, tensor] : tensors) {
    if (name.ends_with("mlp.w2")) transpose_stack(tensor);
    if (tensor.shape.size() == 3) {
      tensor.shape = {tensor.shape[0] * tensor.shape[1], tensor.shape[2]};
    }
  }
  tensors["encoder.layers.1.mlp.experts.bias"] = {{2}, {1, 2}};
}

void adapt_modern(const SyntheticCheckpoint& model, json& config, CheckpointTensors&) {
  config["norm_eps"] = config["layer_norm_eps"];
  config["local_attention"] = model.count("attention.sliding_window");
  config["global_rope_theta"] = model.number("rope.freq_base");
  config["local_rope_theta"] = model.number("rope.freq_base_swa");
  config["classifier_pooling"] = "mean";
  config.erase("rope_parameters");
}

void adapt_gemma_embedding(const SyntheticCheckpoint&, json& config, CheckpointTensors&) {
  config["use_bidirectional_attention"] = true;
}

}  // namespace

std::vector<CheckpointFamily> encoder_checkpoints() {
  const auto shape = [](const char* name) { return synth::shape_by_name(name); };
  return {{"BertModel", shape("tiny-bert"), bert, false, false, 0, "", false, adapt_bert,
           "encoder.layer."},
          {"XLMRobertaModel", shape("tiny-xlm-roberta"), bert, false, false, 0, "", false,
           adapt_roberta, "encoder.layer."},
          {"XLMRobertaForSequenceClassification", shape("tiny-xlm-roberta-scores"), roberta, false,
           false, 0, "roberta.", false, adapt_roberta, "encoder.layer."},
          {"XLMRobertaModel", shape("tiny-jina-bert-v3"), jina3, false, false, 0, "roberta.", false,
           adapt_jina3, "encoder.layers."},
          {"JinaBertForMaskedLM", shape("tiny-jina-bert-v2"), jina, false, false, 0, "", false,
           adapt_jina, "encoder.layer."},
          {"EuroBertModel", shape("tiny-eurobert"), plain, false, false, 0, ""},
          {"EuroBertForMaskedLM", shape("tiny-eurobert"), plain, false, false, 0, "model.", false,
           adapt_masked},
          {"LlamaBidirectionalModel", shape("tiny-llama-embed"), plain, true, false, 0, ""},
          {"NomicBertModel", shape("tiny-nomic-bert"), nomic, false, false, 0, "", false,
           adapt_nomic, "encoder.layers."},
          {"NomicBertModel", shape("tiny-nomic-bert-moe"), nomic_moe, false, false, 0, "", false,
           adapt_nomic_moe, "encoder.layers."},
          {"ModernBertModel", shape("tiny-modern-bert"), modern, false, false, 0, "", false,
           adapt_modern},
          {"ModernBertForSequenceClassification", shape("tiny-modern-bert-scores"), modern, false,
           false, 0, "model.", false, adapt_modern},
          {"Gemma3TextModel", shape("tiny-gemma-embedding"), gemma, false, true, 1e-4f, "", false,
           adapt_gemma_embedding}};
}

}  // namespace sluice::test
