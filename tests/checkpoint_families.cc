// The architectures that `import` knows, as tests/synthetic_checkpoint.h wants them.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <set>
#include <string>
#include <utility>

#include "tests/checkpoint_parts.h"

namespace sluice::test {
namespace {

using nlohmann::json;

Names mamba_names(const std::string& prefix) {
  return {{"ssm_in", prefix + "in_proj"},
          {"ssm_out", prefix + "out_proj"},
          {"ssm_conv1d", prefix + "conv1d"},
          {"ssm_norm", prefix + "norm"},
          {"ssm_dt.bias", prefix + "dt_bias"},
          {"ssm_a", prefix + "A_log"},
          {"ssm_d", prefix + "D"}};
}

const Names qwen3 = with({{"ffn_norm", "post_attention_layernorm"},
                          {"attn_q_norm", "self_attn.q_norm"},
                          {"attn_k_norm", "self_attn.k_norm"}},
                         projections);
const Names seed = with({{"post_attention_norm", "post_attention_layernorm"}}, projections);
const Names starcoder = with({{"ffn_up", "mlp.c_fc"}, {"ffn_down", "mlp.c_proj"}}, plain);
const Names phi2 = with({{"attn_output", "self_attn.dense"},
                         {"ffn_up", "mlp.fc1"},
                         {"ffn_down", "mlp.fc2"},
                         {"output_norm", "final_layernorm"}},
                        plain);
const Names phi3 = with({{"attn_qkv", "self_attn.qkv_proj"},
                         {"ffn_up", "mlp.gate_up_proj"},
                         {"ffn_norm", "post_attention_layernorm"}},
                        projections);
const Names glm4 = with({{"ffn_up", "mlp.gate_up_proj"},
                         {"post_attention_norm", "post_self_attn_layernorm"},
                         {"ffn_norm", "post_attention_layernorm"},
                         {"post_ffw_norm", "post_mlp_layernorm"}},
                        projections);
const Names olmo = with({{"attn_q_norm", "self_attn.q_norm"},
                         {"attn_k_norm", "self_attn.k_norm"},
                         {"post_attention_norm", "post_attention_layernorm"},
                         {"post_ffw_norm", "post_feedforward_layernorm"}},
                        projections);
const Names granite4 = with({{"ffn_gate", "shared_mlp.gate"},
                             {"ffn_up", "shared_mlp.up"},
                             {"ffn_down", "shared_mlp.output_linear"}},
                            with(mamba_names("mamba."), plain));
const Names nemotron = with({{"token_embd", "embeddings"},
                             {"output_norm", "norm_f"},
                             {"attn_norm", "norm"},
                             {"attn_q", "mixer.q_proj"},
                             {"attn_k", "mixer.k_proj"},
                             {"attn_v", "mixer.v_proj"},
                             {"attn_output", "mixer.o_proj"},
                             {"ffn_up", "mixer.up_proj"},
                             {"ffn_down", "mixer.down_proj"}},
                            mamba_names("mixer."));
const Names falcon = with({{"output_norm", "final_layernorm"},
                           {"ffn_norm", "pre_ff_layernorm.weight"},
                           {"ffn_gate", "feed_forward.gate_proj"},
                           {"ffn_up", "feed_forward.up_proj"},
                           {"ffn_down", "feed_forward.down_proj"}},
                          with(mamba_names("mamba."), projections));
const Names qwen35 = with({{"attn_q_norm", "self_attn.q_norm"},
                           {"attn_k_norm", "self_attn.k_norm"},
                           {"attn_qkv", "linear_attn.in_proj_qkv"},
                           {"attn_gate", "linear_attn.in_proj_z"},
                           {"ssm_alpha", "linear_attn.in_proj_a"},
                           {"ssm_beta", "linear_attn.in_proj_b"},
                           {"post_attention_norm", "post_attention_layernorm"}},
                          with(mamba_names("linear_attn."), projections));
const Names lfm2 = with({{"token_embd_norm", "embedding_norm"},
                         {"attn_norm", "operator_norm"},
                         {"ffn_norm", "ffn_norm"},
                         {"attn_output", "self_attn.out_proj"},
                         {"attn_q_norm", "self_attn.q_layernorm"},
                         {"attn_k_norm", "self_attn.k_layernorm"},
                         {"ffn_gate", "feed_forward.w1"},
                         {"ffn_up", "feed_forward.w3"},
                         {"ffn_down", "feed_forward.w2"},
                         {"shortconv.in_proj.weight", "conv.in_proj.weight"},
                         {"shortconv.conv.weight", "conv.conv.weight"},
                         {"shortconv.out_proj.weight", "conv.out_proj.weight"}},
                        projections);
const Names gemma4 = with({{"layer_output_scale.weight", "layer_scalar"},
                           {"inp_gate", "per_layer_input_gate"},
                           {"proj", "per_layer_projection"},
                           {"post_norm", "post_per_layer_input_norm"},
                           {"per_layer_token_embd", "embed_tokens_per_layer"},
                           {"per_layer_model_proj", "per_layer_model_projection"},
                           {"per_layer_proj_norm", "per_layer_projection_norm"}},
                          gemma);

const Names gemma3n = with({{"altup_proj", "altup_projections.{}"},
                            {"altup_unembd_proj", "altup_unembed_projections.{}"},
                            {"altup_router_norm", "altup.router_norm"},
                            {"altup_router", "altup.modality_router"},
                            {"altup_predict_coef", "altup.prediction_coefs"},
                            {"altup_correct_coef", "altup.correction_coefs"},
                            {"altup_correct_scale.weight", "altup.correct_output_scale"},
                            {"laurel_l", "laurel.linear_left"},
                            {"laurel_r", "laurel.linear_right"},
                            {"laurel_post_norm", "laurel.post_laurel_norm"}},
                           gemma4);

// The gate of values of the first layer, which an import makes of that of rates.
const std::set<std::string> rwkv7_unused = {"blk.0.time_mix_v0.weight", "blk.0.time_mix_v1.weight",
                                            "blk.0.time_mix_v2.weight"};

// Each letter has two narrow matrices and, but for g, a bias.
Names rwkv7_names() {
  Names names = {{"token_embd", "embeddings"},
                 {"token_embd_norm", "layers.0.pre_norm"},
                 {"output_norm", "norm"},
                 {"attn_norm", "attn_norm"},
                 {"attn_norm_2", "ffn_norm"},
                 {"time_mix_lerp_fused.weight", "attn.x_x"},
                 {"time_mix_ln", "attn.g_norm"},
                 {"time_mix_receptance", "attn.r_proj"},
                 {"time_mix_key", "attn.k_proj"},
                 {"time_mix_value", "attn.v_proj"},
                 {"time_mix_output", "attn.o_proj"},
                 {"channel_mix_lerp_k.weight", "ffn.x_k"},
                 {"channel_mix_key", "ffn.key"},
                 {"channel_mix_value", "ffn.value"}};
  for (const char* name : {"k_k", "k_a", "r_k"}) {
    names[fmt::format("time_mix_{}.weight", name)] = fmt::format("attn.{}", name);
  }
  for (const char letter : {'w', 'a', 'v', 'g'}) {
    const std::string theirs = fmt::format("attn.{}_lora.lora.", letter);
    names[fmt::format("time_mix_{}0.weight", letter)] = theirs + "2.bias";
    names[fmt::format("time_mix_{}1", letter)] = theirs + "0";
    names[fmt::format("time_mix_{}2", letter)] = theirs + "2";
  }
  return names;
}

Names of_experts(const std::string& mlp, const std::string& shared) {
  return {{"ffn_gate_inp", mlp + "gate"},
          {"exp_probs_b.bias", mlp + "gate.e_score_correction_bias"},
          {"ffn_gate_exps", mlp + "experts.{}.gate_proj"},
          {"ffn_up_exps", mlp + "experts.{}.up_proj"},
          {"ffn_down_exps", mlp + "experts.{}.down_proj"},
          {"ffn_gate_shexp", mlp + shared + ".gate_proj"},
          {"ffn_up_shexp", mlp + shared + ".up_proj"},
          {"ffn_down_shexp", mlp + shared + ".down_proj"},
          {"ffn_gate_inp_shexp", mlp + "shared_expert_gate"}};
}
const Names qwen_experts = with(of_experts("mlp.", "shared_expert"), qwen3);
const Names glm4moe = with({{"post_attention_norm", "post_attention_layernorm"}},
                           with(of_experts("mlp.", "shared_experts"), qwen3));
const Names dots = with(of_experts("mlp.", "shared_experts"), qwen3);
const Names ernie = with({{"exp_probs_b.bias", "mlp.moe_statics.e_score_correction_bias"}}, dots);
const Names hunyuan = with({{"attn_q_norm", "self_attn.query_layernorm"},
                            {"attn_k_norm", "self_attn.key_layernorm"},
                            {"ffn_gate_inp", "mlp.gate.wg"}},
                           with(of_experts("mlp.", "shared_mlp"), qwen3));
const Names granitemoe = with({{"ffn_gate_inp", "block_sparse_moe.router.layer"},
                               {"ffn_gate_exps", "block_sparse_moe.gate"},
                               {"ffn_up_exps", "block_sparse_moe.up"},
                               {"ffn_down_exps", "block_sparse_moe.output_linear"},
                               {"ffn_gate_shexp", "shared_mlp.gate"},
                               {"ffn_up_shexp", "shared_mlp.up"},
                               {"ffn_down_shexp", "shared_mlp.output_linear"}},
                              plain);
const Names minimax = with({{"ffn_gate_inp", "block_sparse_moe.gate"},
                            {"exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias"},
                            {"ffn_gate_exps", "block_sparse_moe.experts.{}.w1"},
                            {"ffn_up_exps", "block_sparse_moe.experts.{}.w3"},
                            {"ffn_down_exps", "block_sparse_moe.experts.{}.w2"}},
                           qwen3);
const Names smallthinker = with({{"ffn_gate_inp", "block_sparse_moe.primary_router"},
                                 {"ffn_gate_exps", "block_sparse_moe.experts.{}.gate"},
                                 {"ffn_up_exps", "block_sparse_moe.experts.{}.up"},
                                 {"ffn_down_exps", "block_sparse_moe.experts.{}.down"}},
                                plain);
const Names qwen3next = with({{"attn_qkv", "linear_attn.qkv"},
                              {"attn_gate", "linear_attn.z"},
                              {"ssm_ba", "linear_attn.in_proj_ba"},
                              {"post_attention_norm", "post_attention_layernorm"}},
                             with(mamba_names("linear_attn."), qwen_experts));

const Names qwen35moe = with({{"ffn_gate_inp", "mlp.gate"},
                              {"ffn_gate_exps.weight", "mlp.experts.gate"},
                              {"ffn_up_exps.weight", "mlp.experts.up"},
                              {"ffn_down_exps.weight", "mlp.experts.down_proj"},
                              {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                              {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                              {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
                              {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"}},
                             qwen35);
const Names lfm2moe = with({{"ffn_gate_inp", "feed_forward.gate"},
                            {"exp_probs_b.bias", "feed_forward.expert_bias"},
                            {"ffn_gate_exps", "feed_forward.experts.{}.w1"},
                            {"ffn_up_exps", "feed_forward.experts.{}.w3"},
                            {"ffn_down_exps", "feed_forward.experts.{}.w2"}},
                           lfm2);
const Names bailing = with({{"token_embd", "word_embeddings"},
                            {"attn_qkv", "attention.query_key_value"},
                            {"attn_output", "attention.dense"},
                            {"attn_q_norm", "attention.query_layernorm"},
                            {"attn_k_norm", "attention.key_layernorm"},
                            {"exp_probs_b.bias", "mlp.gate.expert_bias"}},
                           dots);
const Names jamba = with({{"output_norm", "final_layernorm"},
                          {"ffn_norm", "pre_ff_layernorm"},
                          {"ffn_gate", "feed_forward.gate_proj"},
                          {"ffn_up", "feed_forward.up_proj"},
                          {"ffn_down", "feed_forward.down_proj"},
                          {"ffn_gate_inp", "feed_forward.router"},
                          {"ffn_gate_exps", "feed_forward.experts.{}.gate_proj"},
                          {"ffn_up_exps", "feed_forward.experts.{}.up_proj"},
                          {"ffn_down_exps", "feed_forward.experts.{}.down_proj"},
                          {"ssm_in", "mamba.in_proj"},
                          {"ssm_conv1d", "mamba.conv1d"},
                          {"ssm_x", "mamba.x_proj"},
                          {"ssm_dt_norm", "mamba.dt_layernorm"},
                          {"ssm_b_norm", "mamba.b_layernorm"},
                          {"ssm_c_norm", "mamba.c_layernorm"},
                          {"ssm_dt", "mamba.dt_proj"},
                          {"ssm_a", "mamba.A_log"},
                          {"ssm_d", "mamba.D"},
                          {"ssm_out", "mamba.out_proj"}},
                         projections);
const Names kimi = with({{"exp_probs_b.bias", "block_sparse_moe.gate.e_score_correction_bias"},
                         {"ffn_gate_inp", "block_sparse_moe.gate"},
                         {"ffn_gate_shexp", "block_sparse_moe.shared_experts.gate_proj"},
                         {"ffn_up_shexp", "block_sparse_moe.shared_experts.up_proj"},
                         {"ffn_down_shexp", "block_sparse_moe.shared_experts.down_proj"},
                         {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
                         {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
                         {"attn_k_b", "self_attn.k_b"},
                         {"attn_v_b", "self_attn.v_b"},
                         {"ssm_conv1d_q", "self_attn.q_conv1d"},
                         {"ssm_conv1d_k", "self_attn.k_conv1d"},
                         {"ssm_conv1d_v", "self_attn.v_conv1d"},
                         {"ssm_f_a", "self_attn.f_a_proj"},
                         {"ssm_f_b", "self_attn.f_b_proj"},
                         {"ssm_g_a", "self_attn.g_a_proj"},
                         {"ssm_g_b", "self_attn.g_b_proj"},
                         {"ssm_beta", "self_attn.b_proj"},
                         {"ssm_dt.bias", "self_attn.dt_bias"},
                         {"ssm_a", "self_attn.A_log"},
                         {"ssm_norm", "self_attn.o_norm"}},
                        minimax);
const Names apertus =
    with({{"attn_norm", "attention_layernorm"}, {"ffn_norm", "feedforward_layernorm"}}, qwen3);
const Names internlm = with({{"token_embd", "tok_embeddings"},
                             {"attn_norm", "attention_norm"},
                             {"attn_output", "attention.wo"},
                             {"ffn_norm", "ffn_norm"},
                             {"ffn_gate", "feed_forward.w1"},
                             {"ffn_up", "feed_forward.w3"},
                             {"ffn_down", "feed_forward.w2"}},
                            projections);
const Names qwen3vl_experts = with({{"ffn_gate_inp", "mlp.gate"},
                                    {"ffn_gate_exps.weight", "mlp.experts.gate"},
                                    {"ffn_up_exps.weight", "mlp.experts.up"},
                                    {"ffn_down_exps.weight", "mlp.experts.down_proj"}},
                                   qwen3);
const Names gpt_oss = with({{"attn_sinks.weight", "self_attn.sinks"},
                            {"post_attention_norm", "post_attention_layernorm"},
                            {"ffn_gate_inp", "mlp.router"},
                            {"ffn_gate_exps.bias", "mlp.experts.gate_bias"},
                            {"ffn_up_exps.bias", "mlp.experts.up_bias"},
                            {"ffn_down_exps.bias", "mlp.experts.down_proj_bias"}},
                           qwen3vl_experts);
const Names deepseek = with({{"attn_q_a", "self_attn.q_a_proj"},
                             {"attn_q_a_norm", "self_attn.q_a_layernorm"},
                             {"attn_q_b", "self_attn.q_b_proj"},
                             {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
                             {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
                             {"attn_k_b", "self_attn.k_b"},
                             {"attn_v_b", "self_attn.v_b"}},
                            dots);

// --- Values and shapes ---

void flatten(CheckpointTensor& tensor) {
  tensor.shape = {tensor.values.size()};
}

// A convolution of each row for itself: [rows, 1, taps].
void separate(CheckpointTensor& tensor) {
  tensor.shape = {tensor.shape[0], 1, tensor.shape[1]};
}

void take_logarithms(CheckpointTensor& tensor) {
  for (float& value : tensor.values) {
    value = static_cast<float>(std::log(-static_cast<double>(value)));
  }
}

template <typename Change>
void each(CheckpointTensors& tensors, const std::string& end, const Change& change) {
  for (auto& [name, tensor] : tensors) {
    if (name.ends_with(end)) change(tensor);
  }
}

void adapt_mamba(CheckpointTensors& tensors, const std::string& prefix) {
  each(tensors, prefix + "conv1d.weight", separate);
  each(tensors, prefix + "A_log", take_logarithms);
  for (const char* name : {"A_log", "D", "norm.weight"}) each(tensors, prefix + name, flatten);
}

// Of the last rows, `unit` for each head: from the order in which the heads of different groups
// take turns to that where those of a group stand together.
void group_heads(CheckpointTensor& tensor, std::size_t groups, std::size_t heads,
                 std::size_t unit) {
  const std::size_t rows = tensor.shape[0], columns = tensor.values.size() / rows;
  const std::size_t first = rows - heads * unit;
  const std::vector<float> ours = tensor.values;
  for (std::size_t group = 0; group < groups; ++group) {
    for (std::size_t member = 0; member < heads / groups; ++member) {
      const std::size_t to = group * (heads / groups) + member, from = member * groups + group;
      for (std::size_t i = 0; i < unit * columns; ++i) {
        tensor.values[(first + to * unit) * columns + i] =
            ours[(first + from * unit) * columns + i];
      }
    }
  }
}

void transpose(CheckpointTensor& tensor) {
  const std::size_t rows = tensor.shape[0], columns = tensor.shape[1];
  const std::vector<float> before = tensor.values;
  for (std::size_t i = 0; i < rows * columns; ++i) {
    tensor.values[i % columns * rows + i / columns] = before[i];
  }
  tensor.shape = {columns, rows};
}

// --- Families ---

// A vector as a matrix of one row.
void make_row(CheckpointTensor& tensor) {
  tensor.shape = {1, tensor.values.size()};
}

void set_experts(const SyntheticCheckpoint& model, json& config, const char* count,
                 const char* width) {
  const float own = model.number("expert_feed_forward_length");
  config[count] = model.count("expert_count");
  config["num_experts_per_tok"] = model.count("expert_used_count");
  config[width] = own > 0 ? static_cast<int>(own) : model.count("feed_forward_length");
}

void adapt_qwen_experts(const SyntheticCheckpoint& model, json& config,
                        CheckpointTensors& tensors) {
  set_experts(model, config, "num_experts", "moe_intermediate_size");
  const int shared = model.count("expert_shared_feed_forward_length");
  config["norm_topk_prob"] = config["architectures"] != json({"Qwen2MoeForCausalLM"});
  if (shared > 0) config["shared_expert_intermediate_size"] = shared;
  config["mlp_only_layers"] = json::array();
  each(tensors, "shared_expert_gate.weight", make_row);
}

void adapt_olmoe(const SyntheticCheckpoint& model, json& config, CheckpointTensors&) {
  set_experts(model, config, "num_experts", "intermediate_size");
  config["norm_topk_prob"] = false;
}

void adapt_sigmoid_mixture(const SyntheticCheckpoint& model, json& config,
                           CheckpointTensors& tensors) {
  set_experts(model, config, "n_routed_experts", "moe_intermediate_size");
  config.update({{"n_shared_experts", model.count("expert_shared_count")},
                 {"first_k_dense_replace", model.count("leading_dense_block_count")},
                 {"routed_scaling_factor", model.number("expert_weights_scale")},
                 {"norm_topk_prob", true},
                 {"num_nextn_predict_layers", 1},
                 {"n_group", 1}});
  const int behind = model.count("block_count");
  tensors[fmt::format("model.layers.{}.eh_proj.weight", behind)] = {{2, 2}, {1, 2, 3, 4}};
}

void adapt_ernie(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  set_experts(model, config, "moe_num_experts", "moe_intermediate_size");
  config.erase("num_experts_per_tok");
  config.update({{"moe_k", model.count("expert_used_count")},
                 {"moe_layer_start_index", model.count("leading_dense_block_count")},
                 {"moe_num_shared_experts", model.count("expert_shared_feed_forward_length") /
                                                model.count("expert_feed_forward_length")}});
  each(tensors, "e_score_correction_bias", make_row);
}

// A base that is given, stretched by another number.
void adapt_hunyuan(const SyntheticCheckpoint& model, json& config, CheckpointTensors&) {
  const double head = config["head_dim"].get<double>(), alpha = 16;
  config["use_qk_norm"] = true;
  config["rope_parameters"] = {
      {"rope_type", "dynamic"},
      {"alpha", alpha},
      {"rope_theta", model.number("rope.freq_base") / std::pow(alpha, head / (head - 2))}};
}

void adapt_hunyuan_mixture(const SyntheticCheckpoint& model, json& config,
                           CheckpointTensors& tensors) {
  adapt_hunyuan(model, config, tensors);
  const auto layers = static_cast<std::size_t>(model.count("block_count"));
  config["intermediate_size"] = model.count("expert_shared_feed_forward_length");
  config["moe_intermediate_size"] =
      std::vector<int>(layers, model.count("expert_feed_forward_length"));
  config["num_experts"] = model.count("expert_count");
  config["moe_topk"] = std::vector<int>(layers, model.count("expert_used_count"));
  config["num_shared_expert"] = std::vector<int>(layers, 1);
}

void adapt_granitemoe(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  set_experts(model, config, "num_local_experts", "intermediate_size");
  if (const int shared = model.count("expert_shared_feed_forward_length"); shared > 0) {
    config["shared_intermediate_size"] = shared;
  }
  for (int layer = 0; layer < model.count("block_count"); ++layer) {
    const std::string at = fmt::format("model.layers.{}.", layer);
    for (const std::string part : {"block_sparse_moe.", "shared_mlp."}) {
      if (!tensors.contains(at + part + "gate.weight")) continue;
      fuse_stacks(tensors, at + part + "gate.weight", at + part + "up.weight",
                  at + part + "input_linear.weight");
    }
  }
}

void adapt_minimax(const SyntheticCheckpoint& model, json& config, CheckpointTensors&) {
  set_experts(model, config, "num_local_experts", "intermediate_size");
  config.erase("partial_rotary_factor");
  config["rotary_dim"] = model.count("rope.dimension_count");
  config["scoring_func"] = "sigmoid";
}

// Windows of 4096 tokens, which readers take whatever a file says.
void adapt_smallthinker(const SyntheticCheckpoint& model, json& config, CheckpointTensors&) {
  config.erase("intermediate_size");
  const bool has_windows = config.contains("sliding_window");
  std::vector<int> windows, rotates;
  for (int layer = 0; layer < model.count("block_count"); ++layer) {
    windows.push_back(has_windows && layer % 4 != 0 ? 1 : 0);
    rotates.push_back(has_windows ? windows.back() : 1);
  }
  config.update({{"moe_num_primary_experts", model.count("expert_count")},
                 {"moe_num_active_primary_experts", model.count("expert_used_count")},
                 {"moe_ffn_hidden_size", model.count("expert_feed_forward_length")},
                 {"moe_primary_router_apply_softmax", model.count("expert_gating_func") == 1},
                 {"rope_layout", rotates},
                 {"sliding_window_layout", windows},
                 {"sliding_window_size", 4096},
                 {"rope_theta", model.number("rope.freq_base")}});
  for (const char* key : {"sliding_window", "rope_parameters"}) config.erase(key);
}

// Of each layer whether it has a window, and how each of the two kinds rotates.
void set_windows(const SyntheticCheckpoint& model, json& config) {
  json types = json::array();
  for (const auto slides : model.list("attention.sliding_window_pattern")) {
    types.push_back(slides != 0 ? "sliding_attention" : "full_attention");
  }
  const json local = {{"rope_type", "default"},
                      {"rope_theta", model.number("rope.freq_base_swa", 10000)}};
  config["layer_types"] = types;
  config["rope_parameters"] = {{"full_attention", config["rope_parameters"]},
                               {"sliding_attention", local}};
}

void adapt_mellum(const SyntheticCheckpoint& model, json& config, CheckpointTensors&) {
  set_experts(model, config, "num_local_experts", "moe_intermediate_size");
  set_windows(model, config);
  for (const char* key : {"mscale", "mscale_all_dim"}) {
    config["rope_parameters"]["full_attention"].erase(key);
  }
  config.erase("partial_rotary_factor");
  config["mlp_layer_types"] =
      std::vector<std::string>(static_cast<std::size_t>(model.count("block_count")), "sparse");
}

json layer_types(const SyntheticCheckpoint& model, const char* recurrent, const char* other) {
  json types = json::array();
  for (const auto heads : model.list("attention.head_count_kv")) {
    types.push_back(heads > 0 ? other : recurrent);
  }
  return types;
}

void fuse_gate_and_up(const SyntheticCheckpoint& model, CheckpointTensors& tensors) {
  for (int layer = 0; layer < model.count("block_count"); ++layer) {
    const std::string mlp = fmt::format("model.layers.{}.shared_mlp.", layer);
    CheckpointTensor both = tensors.at(mlp + "gate.weight");
    const CheckpointTensor& up = tensors.at(mlp + "up.weight");
    both.values.insert(both.values.end(), up.values.begin(), up.values.end());
    both.shape[0] *= 2;
    tensors[mlp + "input_linear.weight"] = std::move(both);
    tensors.erase(mlp + "gate.weight");
    tensors.erase(mlp + "up.weight");
  }
}

void adapt_granite4(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  config.update({{"layer_types", layer_types(model, "mamba", "attention")},
                 {"shared_intermediate_size", config["intermediate_size"]},
                 {"intermediate_size", 77},  // of experts
                 {"num_local_experts", 0},
                 {"position_embedding_type", "nope"},
                 {"mamba_d_conv", model.count("ssm.conv_kernel")},
                 {"mamba_expand", model.count("ssm.inner_size") / model.count("embedding_length")},
                 {"mamba_n_heads", model.count("ssm.time_step_rank")},
                 {"mamba_d_state", model.count("ssm.state_size")},
                 {"mamba_n_groups", model.count("ssm.group_count")}});
  adapt_mamba(tensors, "mamba.");
  fuse_gate_and_up(model, tensors);
}

void adapt_granite4_attention(const SyntheticCheckpoint& model, json& config,
                              CheckpointTensors& tensors) {
  config.update({{"layer_types",
                  json(static_cast<std::size_t>(model.count("block_count")), json("attention"))},
                 {"shared_intermediate_size", config["intermediate_size"]},
                 {"position_embedding_type", "rope"}});
  fuse_gate_and_up(model, tensors);
}

void adapt_nemotron(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  std::string pattern;
  const auto heads = model.list("attention.head_count_kv");
  const auto widths = model.list("feed_forward_length");
  for (std::size_t i = 0; i < heads.size(); ++i) {
    pattern += widths[i] > 0 ? '-' : heads[i] > 0 ? '*' : 'M';
  }
  config.update(
      {{"hybrid_override_pattern", pattern},
       {"layer_norm_epsilon", config["rms_norm_eps"]},
       {"mlp_hidden_act", "relu2"},
       {"attention_head_dim", config["head_dim"]},
       {"conv_kernel", model.count("ssm.conv_kernel")},
       {"mamba_num_heads", model.count("ssm.time_step_rank")},
       {"mamba_head_dim", model.count("ssm.inner_size") / model.count("ssm.time_step_rank")},
       {"ssm_state_size", model.count("ssm.state_size")},
       {"n_groups", model.count("ssm.group_count")}});
  config.erase("rms_norm_eps");
  config.erase("head_dim");
  adapt_mamba(tensors, "mixer.");
  tensors["mtp.layers.0.eh_proj.weight"] = {{2, 2}, {1, 2, 3, 4}};
}

// Multipliers are powers of two, so that nothing is rounded.
void adapt_falcon(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  const std::vector<float> of_input = {0.5f, 2, 0.25f, 4, 8};
  config.update({{"attention_in_multiplier", 2},
                 {"key_multiplier", 0.25},
                 {"attention_out_multiplier", 0.5},
                 {"ssm_in_multiplier", 4},
                 {"ssm_multipliers", of_input},
                 {"ssm_out_multiplier", 0.125},
                 {"mlp_multipliers", {16, 0.5}},
                 {"lm_head_multiplier", 0.0625},
                 {"embedding_multiplier", 32},
                 {"mamba_d_ssm", model.count("ssm.inner_size")},
                 {"mamba_d_conv", model.count("ssm.conv_kernel")},
                 {"mamba_n_heads", model.count("ssm.time_step_rank")},
                 {"mamba_d_state", model.count("ssm.state_size")},
                 {"mamba_n_groups", model.count("ssm.group_count")},
                 {"mamba_rms_norm", true},
                 {"mamba_norm_before_gate", false}});
  adapt_mamba(tensors, "mamba.");
  const std::map<std::string, float> divisors = {
      {"self_attn.q_proj.weight", 2.0f},       {"self_attn.k_proj.weight", 0.5f},
      {"self_attn.v_proj.weight", 2.0f},       {"self_attn.o_proj.weight", 0.5f},
      {"mamba.out_proj.weight", 0.125f},       {"feed_forward.gate_proj.weight", 16.0f},
      {"feed_forward.down_proj.weight", 0.5f}, {"lm_head.weight", 0.0625f},
      {"embed_tokens.weight", 32.0f}};
  for (const auto& [name, divisor] : divisors) {
    for (auto& [theirs, tensor] : tensors) {
      if (!theirs.ends_with(name)) continue;
      for (float& value : tensor.values) value /= divisor;
    }
  }
  const int inner = model.count("ssm.inner_size"), heads = model.count("ssm.time_step_rank");
  const int shared = model.count("ssm.group_count") * model.count("ssm.state_size");
  each(tensors, "mamba.in_proj.weight", [&](CheckpointTensor& tensor) {
    const std::size_t columns = tensor.shape[1];
    std::size_t at = 0;
    const int rows[] = {inner, inner, shared, shared, heads};
    for (std::size_t part = 0; part < 5; ++part) {
      for (std::size_t i = 0; i < static_cast<std::size_t>(rows[part]) * columns; ++i) {
        tensor.values[at++] /= 4 * of_input[part];
      }
    }
  });
}

// The queries, keys, values and output gates of each key head together.
void join_inputs(CheckpointTensors& tensors, const std::string& at, std::size_t groups,
                 std::size_t heads, std::size_t size) {
  const CheckpointTensor qkv = tensors.at(at + "qkv.weight"), z = tensors.at(at + "z.weight");
  const std::size_t columns = qkv.shape[1], own = heads / groups * size, keys = groups * size;
  CheckpointTensor joint{{qkv.shape[0] + z.shape[0], columns}, {}};
  const auto take = [&](const CheckpointTensor& from, std::size_t row, std::size_t rows) {
    const auto begin = from.values.begin() + static_cast<std::ptrdiff_t>(row * columns);
    joint.values.insert(joint.values.end(), begin,
                        begin + static_cast<std::ptrdiff_t>(rows * columns));
  };
  for (std::size_t head = 0; head < groups; ++head) {
    take(qkv, head * size, size);
    take(qkv, keys + head * size, size);
    take(qkv, 2 * keys + head * own, own);
    take(z, head * own, own);
  }
  tensors.erase(at + "qkv.weight");
  tensors.erase(at + "z.weight");
  tensors[at + "in_proj_qkvz.weight"] = std::move(joint);
}

void adapt_qwen3next(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  const auto groups = static_cast<std::size_t>(model.count("ssm.group_count"));
  const auto heads = static_cast<std::size_t>(model.count("ssm.time_step_rank"));
  const auto size = static_cast<std::size_t>(model.count("ssm.state_size"));
  adapt_qwen_experts(model, config, tensors);
  config.update({{"linear_conv_kernel_dim", model.count("ssm.conv_kernel")},
                 {"linear_num_key_heads", groups},
                 {"linear_num_value_heads", heads},
                 {"linear_key_head_dim", size},
                 {"linear_value_head_dim", size},
                 {"full_attention_interval", model.count("full_attention_interval")}});
  for (int layer = 0; layer < model.count("block_count"); ++layer) {
    const std::string at = fmt::format("model.layers.{}.linear_attn.", layer);
    if (tensors.contains(at + "qkv.weight")) join_inputs(tensors, at, groups, heads, size);
  }
  each(tensors, "linear_attn.conv1d.weight", separate);
  each(tensors, "linear_attn.A_log", take_logarithms);
  tensors["mtp.fc.weight"] = {{2, 2}, {1, 2, 3, 4}};
}

void adapt_qwen35(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  const auto groups = static_cast<std::size_t>(model.count("ssm.group_count"));
  const auto heads = static_cast<std::size_t>(model.count("ssm.time_step_rank"));
  const auto size = static_cast<std::size_t>(model.count("ssm.state_size"));
  config.update({{"linear_conv_kernel_dim", model.count("ssm.conv_kernel")},
                 {"linear_num_key_heads", groups},
                 {"linear_num_value_heads", heads},
                 {"linear_key_head_dim", size},
                 {"linear_value_head_dim", size},
                 {"attn_output_gate", true}});
  config["rope_parameters"]["mrope_section"] = model.list("rope.dimension_sections");
  config["rope_parameters"]["mrope_section"].erase(3);
  const auto group = [&](const std::string& name, std::size_t unit) {
    each(tensors, "linear_attn." + name,
         [&](CheckpointTensor& tensor) { group_heads(tensor, groups, heads, unit); });
  };
  for (const char* name : {"in_proj_qkv.weight", "in_proj_z.weight", "conv1d.weight"}) {
    group(name, size);
  }
  for (const char* name : {"in_proj_a.weight", "in_proj_b.weight", "dt_bias", "A_log"}) {
    group(name, 1);
  }
  each(tensors, "linear_attn.out_proj.weight", [&](CheckpointTensor& tensor) {
    transpose(tensor);
    group_heads(tensor, groups, heads, size);
    transpose(tensor);
  });
  each(tensors, "linear_attn.conv1d.weight", separate);
  each(tensors, "linear_attn.A_log", take_logarithms);
}

// The text of a model of several kinds of input.
json beside_images(const json& config) {
  json text = config;
  text.erase("architectures");
  text["eos_token_id"] = nullptr;
  return {{"architectures", config["architectures"]},
          {"text_config", text},
          {"vision_config", {{"hidden_size", 7}}},
          {"hidden_size", 9}};
}

void adapt_qwen35_with_images(const SyntheticCheckpoint& model, json& config,
                              CheckpointTensors& tensors) {
  adapt_qwen35(model, config, tensors);
  const int interval = model.count("full_attention_interval");
  config["layer_types"] = json::array();
  for (int i = 0; i < model.count("block_count"); ++i) {
    config["layer_types"].push_back((i + 1) % interval == 0 ? "full_attention"
                                                            : "linear_attention");
  }
  config = beside_images(config);
  tensors["model.visual.patch_embed.proj.weight"] = {{2, 2}, {1, 2, 3, 4}};
  tensors["mtp.fc.weight"] = {{2, 2}, {1, 2, 3, 4}};
}

void adapt_lfm2(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  const int width = model.count("feed_forward_length");
  config.update({{"layer_types", layer_types(model, "conv", "full_attention")},
                 {"norm_eps", config["rms_norm_eps"]},
                 {"conv_L_cache", model.count("shortconv.l_cache")},
                 // Two thirds of it, times 0.7, are 1.4 times half of the width.
                 {"block_ff_dim", width * 3 / 2},
                 {"block_ffn_dim_multiplier", 0.7},
                 {"block_multiple_of", width / 2},
                 {"block_auto_adjust_ff_dim", true}});
  for (const char* key : {"rms_norm_eps", "intermediate_size", "head_dim"}) config.erase(key);
  each(tensors, "conv.conv.weight", separate);
}

void adapt_gemma4(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  config["rope_parameters"].update(
      {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}});
  set_windows(model, config);
  config.update({{"head_dim", model.count("attention.key_length_swa")},
                 {"global_head_dim", model.count("attention.key_length")},
                 {"num_global_key_value_heads", nullptr},
                 {"attention_k_eq_v", false},
                 {"enable_moe_block", false},
                 {"use_double_wide_mlp", true},
                 {"num_kv_shared_layers", model.count("attention.shared_kv_layers")},
                 {"intermediate_size", model.list("feed_forward_length").front()},
                 {"hidden_size_per_layer_input", model.count("embedding_length_per_layer_input")},
                 {"vocab_size_per_layer_input", model.count("vocab_size")}});
  config.erase("partial_rotary_factor");
  static_cast<void>(tensors);
}

void adapt_gemma4_with_images(const SyntheticCheckpoint& model, json& config,
                              CheckpointTensors& tensors) {
  adapt_gemma4(model, config, tensors);
  config = beside_images(config);
  tensors["model.vision_tower.patch_embedder.weight"] = {{2, 2}, {1, 2, 3, 4}};
  tensors["model.embed_audio.scale"] = {{}, {1}};
}

void adapt_gemma3n(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  set_windows(model, config);
  const auto layers = static_cast<std::size_t>(model.count("block_count"));
  std::vector<double> pattern(layers);
  std::fill_n(pattern.begin(), 4, 0.95);
  config.update({{"num_kv_shared_layers", model.count("attention.shared_kv_layers")},
                 {"intermediate_size", std::vector<int>(layers, config["intermediate_size"])},
                 {"hidden_size_per_layer_input", model.count("embedding_length_per_layer_input")},
                 {"vocab_size_per_layer_input", model.count("vocab_size")},
                 {"activation_sparsity_pattern", pattern},
                 {"altup_active_idx", 0},
                 {"altup_correct_scale", true},
                 {"altup_num_inputs", model.count("altup.num_inputs")},
                 {"laurel_rank", tensors.at("model.layers.0.laurel.linear_left.weight").shape[0]}});
}

void adapt_minicpm(const SyntheticCheckpoint& model, json& config, CheckpointTensors&) {
  const auto layers = static_cast<float>(model.count("block_count"));
  const auto embedding = static_cast<float>(model.count("embedding_length"));
  config["scale_emb"] = model.number("embedding_scale");
  config["scale_depth"] = model.number("residual_scale") * std::sqrt(layers);
  config["dim_model_base"] = embedding / model.number("logit_scale");
}

void adapt_qwen3vl(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  std::vector<std::int64_t> sections = model.list("rope.dimension_sections");
  sections.pop_back();
  config["rope_parameters"]["mrope_section"] = sections;
  config = beside_images(config);
  tensors["model.visual.patch_embed.weight"] = {{2, 2}, {1, 2, 3, 4}};
}

// Rows of two stacks, or values of two matrices, take turns.
CheckpointTensor alternate(const CheckpointTensor& a, const CheckpointTensor& b) {
  CheckpointTensor both = a;
  const std::size_t run = a.shape.size() > 2 ? a.shape.back() : 1;
  both.shape[1] *= 2;
  both.values.clear();
  for (std::size_t i = 0; i < a.values.size(); i += run) {
    for (const CheckpointTensor* one : {&a, &b}) {
      const auto first = one->values.begin() + static_cast<std::ptrdiff_t>(i);
      both.values.insert(both.values.end(), first, first + static_cast<std::ptrdiff_t>(run));
    }
  }
  return both;
}

void adapt_qwen3vl_mixture(const SyntheticCheckpoint& model, json& config,
                           CheckpointTensors& tensors) {
  set_experts(model, config, "num_experts", "moe_intermediate_size");
  for (int layer = 0; layer < model.count("block_count"); ++layer) {
    const std::string at = fmt::format("model.language_model.layers.{}.mlp.experts.", layer);
    fuse_stacks(tensors, at + "gate", at + "up", at + "gate_up_proj");
  }
  each(tensors, "experts.gate_up_proj", transpose_stack);
  each(tensors, "experts.down_proj", transpose_stack);
  adapt_qwen3vl(model, config, tensors);
}

void adapt_gpt_oss(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  set_experts(model, config, "num_local_experts", "intermediate_size");
  config["attention_bias"] = true;
  config["swiglu_limit"] = 7.0;
  json types = json::array();
  for (int layer = 0; layer < model.count("block_count"); ++layer) {
    types.push_back(layer % 2 == 0 ? "sliding_attention" : "full_attention");
    const std::string at = fmt::format("model.layers.{}.mlp.experts.", layer);
    for (const std::string end : {"", "_bias"}) {
      tensors[at + "gate_up_proj" + end] =
          alternate(tensors.at(at + "gate" + end), tensors.at(at + "up" + end));
      for (const std::string name : {"gate", "up"}) tensors.erase(at + name + end);
    }
  }
  config["layer_types"] = types;
  json& rope = config["rope_parameters"];
  rope = {{"rope_type", "yarn"},
          {"rope_theta", rope["rope_theta"]},
          {"factor", rope["factor"]},
          {"beta_fast", 32.0},
          {"beta_slow", 1.0},
          {"truncate", false},
          {"original_max_position_embeddings", rope["original_max_position_embeddings"]}};
  each(tensors, "experts.gate_up_proj", transpose_stack);
  each(tensors, "experts.down_proj", transpose_stack);
}

// Of each head the rows that make its key, then those that make its value.
void join_keys_and_values(CheckpointTensors& tensors, const std::string& at) {
  CheckpointTensor keys = tensors.at(at + "k_b.weight");
  transpose_stack(keys);
  CheckpointTensor values = tensors.at(at + "v_b.weight");
  CheckpointTensor both{{keys.shape[0] * (keys.shape[1] + values.shape[1]), keys.shape[2]}, {}};
  for (std::size_t head = 0; head < keys.shape[0]; ++head) {
    for (CheckpointTensor* one : {&keys, &values}) {
      const auto size = static_cast<std::ptrdiff_t>(one->shape[1] * one->shape[2]);
      const auto first = one->values.begin() + static_cast<std::ptrdiff_t>(head) * size;
      both.values.insert(both.values.end(), first, first + size);
    }
  }
  for (const char* name : {"k_b.weight", "v_b.weight"}) tensors.erase(at + name);
  tensors[at + "kv_b_proj.weight"] = std::move(both);
}

void adapt_deepseek(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  adapt_sigmoid_mixture(model, config, tensors);
  const int rotated = model.count("rope.dimension_count");
  const bool is_sigmoid = model.number("expert_gating_func") == 2;
  config.update({{"num_key_value_heads", config["num_attention_heads"]},
                 {"q_lora_rank", model.count("attention.q_lora_rank")},
                 {"kv_lora_rank", model.count("attention.kv_lora_rank")},
                 {"qk_nope_head_dim", model.count("attention.key_length_mla") - rotated},
                 {"qk_rope_head_dim", rotated},
                 {"v_head_dim", model.count("attention.value_length_mla")},
                 {"scoring_func", is_sigmoid ? "sigmoid" : "softmax"},
                 {"norm_topk_prob", is_sigmoid},
                 {"n_group", std::max(1, model.count("expert_group_count"))},
                 {"topk_group", std::max(1, model.count("expert_group_used_count"))},
                 {"moe_layer_freq", 1}});
  if (model.count("attention.q_lora_rank") == 0) config["q_lora_rank"] = nullptr;
  for (const char* key : {"head_dim", "partial_rotary_factor"}) config.erase(key);
  json& rope = config["rope_parameters"];
  if (rope.contains("mscale_all_dim")) {
    rope["mscale"] = rope["mscale_all_dim"] = 10 * model.number("rope.scaling.yarn_log_multiplier");
  }
  for (int layer = 0; layer < model.count("block_count"); ++layer) {
    join_keys_and_values(tensors, fmt::format("model.layers.{}.self_attn.", layer));
  }
}

void adapt_kimi(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  set_experts(model, config, "num_experts", "moe_intermediate_size");
  json full = json::array(), delta = json::array();
  int layer = 0;
  for (const auto heads : model.list("attention.head_count_kv")) {
    (heads > 0 ? full : delta).push_back(++layer);
    if (heads > 0) {
      join_keys_and_values(tensors, fmt::format("model.layers.{}.self_attn.", layer - 1));
    }
  }
  const int rotated = model.count("rope.dimension_count");
  config.update({{"linear_attn_config",
                  {{"full_attn_layers", full},
                   {"kda_layers", delta},
                   {"head_dim", model.count("kda.head_dim")},
                   {"num_heads", config["num_attention_heads"]},
                   {"short_conv_kernel_size", model.count("ssm.conv_kernel")}}},
                 {"num_experts_per_token", config["num_experts_per_tok"]},
                 {"model_max_length", config["max_position_embeddings"]},
                 {"num_key_value_heads", config["num_attention_heads"]},
                 {"head_dim", 72},
                 {"q_lora_rank", nullptr},
                 {"kv_lora_rank", model.count("attention.kv_lora_rank")},
                 {"qk_nope_head_dim", model.count("attention.key_length_mla") - rotated},
                 {"qk_rope_head_dim", rotated},
                 {"v_head_dim", model.count("attention.value_length_mla")},
                 {"mla_use_nope", true},
                 {"moe_router_activation_func", "sigmoid"},
                 {"first_k_dense_replace", model.count("leading_dense_block_count")},
                 {"num_shared_experts", model.count("expert_shared_count")},
                 {"routed_scaling_factor", model.number("expert_weights_scale")}});
  for (const char* key : {"num_experts_per_tok", "max_position_embeddings", "partial_rotary_factor",
                          "rope_parameters"}) {
    config.erase(key);
  }
  each(tensors, "A_log", [](CheckpointTensor& tensor) {
    take_logarithms(tensor);
    tensor.shape = {1, 1, tensor.values.size(), 1};
  });
}

// Numbers of the activation are tensors of one value.
void adapt_apertus(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  config["hidden_act"] = "xielu";
  for (const std::string name : {"alpha_p", "alpha_n", "beta", "eps"}) {
    const std::vector<float> values = model.numbers("xielu." + name);
    for (std::size_t layer = 0; layer < values.size(); ++layer) {
      const bool is_parameter = name.starts_with("alpha");
      tensors[fmt::format("model.layers.{}.mlp.act_fn.{}", layer, name)] = {
          is_parameter ? std::vector<std::uint64_t>{1} : std::vector<std::uint64_t>{},
          {values[layer]}};
    }
  }
}

// Of each key head the rows of its queries, then of its key and its value.
void adapt_internlm(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  config["bias"] = false;
  for (const char* key : {"head_dim", "partial_rotary_factor"}) config.erase(key);
  const auto key_heads = static_cast<std::size_t>(model.count("attention.head_count_kv"));
  for (int layer = 0; layer < model.count("block_count"); ++layer) {
    const std::string at = fmt::format("model.layers.{}.", layer);
    CheckpointTensor all{{0, static_cast<std::uint64_t>(model.count("embedding_length"))}, {}};
    for (std::size_t head = 0; head < key_heads; ++head) {
      for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
        const CheckpointTensor& one = tensors.at(at + "self_attn." + name + ".weight");
        const auto size = static_cast<std::ptrdiff_t>(one.values.size() / key_heads);
        const auto first = one.values.begin() + static_cast<std::ptrdiff_t>(head) * size;
        all.values.insert(all.values.end(), first, first + size);
      }
    }
    for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
      tensors.erase(at + "self_attn." + name + ".weight");
    }
    all.shape[0] = all.values.size() / all.shape[1];
    tensors[at + "attention.wqkv.weight"] = std::move(all);
  }
  tensors["output.weight"] = tensors.at("lm_head.weight");
  tensors.erase("lm_head.weight");
}

// Those of Qwen 3.5, with experts in stacks.
void adapt_qwen35moe(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  adapt_qwen_experts(model, config, tensors);
  adapt_qwen35(model, config, tensors);
  config.erase("norm_topk_prob");
  config.erase("intermediate_size");
  for (int layer = 0; layer < model.count("block_count"); ++layer) {
    const std::string at = fmt::format("model.layers.{}.mlp.experts.", layer);
    fuse_stacks(tensors, at + "gate", at + "up", at + "gate_up_proj");
  }
}

void adapt_lfm2moe(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  set_experts(model, config, "num_experts", "moe_intermediate_size");
  config.update({{"layer_types", layer_types(model, "conv", "full_attention")},
                 {"norm_eps", config["rms_norm_eps"]},
                 {"conv_L_cache", model.count("shortconv.l_cache")},
                 {"num_dense_layers", model.count("leading_dense_block_count")},
                 {"use_expert_bias", true},
                 {"norm_topk_prob", true},
                 {"routed_scaling_factor", 1.0}});
  each(tensors, "conv.conv.weight", separate);
}

void adapt_bailing(const SyntheticCheckpoint& model, json& config, CheckpointTensors&) {
  set_experts(model, config, "num_experts", "moe_intermediate_size");
  config.update({{"first_k_dense_replace", model.count("leading_dense_block_count")},
                 {"num_shared_experts", 1},
                 {"score_function", "sigmoid"},
                 {"norm_topk_prob", true},
                 {"use_qk_norm", true},
                 {"routed_scaling_factor", model.number("expert_weights_scale")},
                 {"n_group", model.count("expert_group_count")},
                 {"topk_group", model.count("expert_group_used_count")}});
}

void adapt_jamba(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  set_experts(model, config, "num_experts", "intermediate_size");
  config.update({{"mamba_d_conv", model.count("ssm.conv_kernel")},
                 {"mamba_d_state", model.count("ssm.state_size")},
                 {"mamba_expand", model.count("ssm.inner_size") / model.count("embedding_length")},
                 {"mamba_dt_rank", model.count("ssm.time_step_rank")},
                 {"attn_layer_period", 3},
                 {"attn_layer_offset", 2},
                 {"expert_layer_period", 2},
                 {"expert_layer_offset", 1}});
  config.erase("rope_parameters");
  each(tensors, "mamba.conv1d.weight", separate);
  each(tensors, "mamba.A_log", take_logarithms);
}

// Without the expert that all tokens share.
synth::Shape granitemoe_shape() {
  synth::Shape shape = synth::shape_by_name("tiny-granitemoe");
  shape.tensors = "";
  shape.experts.shared_feed_forward = 0;
  return shape;
}

// As flash-linear-attention stored it for some weeks: the mixtures of a layer in one tensor, and a
// gate that the first layer does not use.
void adapt_older_rwkv7(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  for (const char* key : {"num_attention_heads", "num_key_value_heads", "rope_parameters"}) {
    config.erase(key);
  }
  const std::uint64_t embedding = config["hidden_size"], head = config["head_dim"];
  config.update({{"num_heads", 32},  // which nobody reads beside head_dim
                 {"max_position_embeddings", 2048},
                 {"norm_eps", config["layer_norm_eps"]},
                 {"norm_first", true},
                 {"norm_bias", true},
                 {"hidden_act", "sqrelu"},
                 {"attn", nullptr},
                 {"value_dim", std::vector<std::uint64_t>(config["num_hidden_layers"], embedding)},
                 {"decay_low_rank_dim", model.count("attention.decay_lora_rank")},
                 {"a_low_rank_dim", model.count("attention.iclr_lora_rank")},
                 {"v_low_rank_dim", model.count("attention.value_residual_mix_lora_rank")},
                 {"gate_low_rank_dim", model.count("attention.gate_lora_rank")}});
  for (auto& [name, tensor] : tensors) {
    if (name.ends_with("attn.x_x")) tensor.shape = {6, embedding};
    if (name.ends_with("ffn.x_k")) tensor.shape = {1, 1, embedding};
    if (name.ends_with("attn.r_k")) tensor.shape = {embedding / head, head};
  }
}

void adapt_rwkv7(const SyntheticCheckpoint& model, json& config, CheckpointTensors& tensors) {
  adapt_older_rwkv7(model, config, tensors);
  config["intermediate_size"] = nullptr;
  config["hidden_ratio"] = model.number("feed_forward_length") / model.number("embedding_length");
  for (int layer = 0; layer < model.count("block_count"); ++layer) {
    const std::string at = fmt::format("model.layers.{}.attn.", layer);
    const CheckpointTensor together = tensors.at(at + "x_x");
    tensors.erase(at + "x_x");
    const auto size = static_cast<std::ptrdiff_t>(together.shape[1]);
    auto first = together.values.begin();
    for (const char letter : {'r', 'w', 'k', 'v', 'a', 'g'}) {
      tensors[at + "x_" + letter] = {{1, 1, together.shape[1]}, {first, first + size}};
      first += size;
    }
    tensors.at(fmt::format("model.layers.{}.ffn.x_k", layer)).shape = {together.shape[1]};
  }
  for (const char* name : {"0.weight", "2.weight", "2.bias"}) {
    tensors.erase(fmt::format("model.layers.0.attn.v_lora.lora.{}", name));
  }
}

// Layers with attention at a fixed distance, as checkpoints can say it.
synth::Shape jamba_shape() {
  synth::Shape shape = synth::shape_by_name("tiny-jamba");
  shape.kinds = "MM*";
  shape.layers = 6;
  return shape;
}

// Without a rank of queries, and a router that takes shares.
synth::Shape deepseek_v2_shape() {
  synth::Shape shape = synth::shape_by_name("tiny-deepseek2");
  shape.tensors = "deepseek2-direct";
  shape.latent.query_rank = 0;
  shape.experts.is_sigmoid = false;
  return shape;
}

// Six value heads for two key heads: of fewer, grouping and taking turns are the same thing.
synth::Shape qwen35_shape(const char* name = "tiny-qwen35") {
  synth::Shape shape = synth::shape_by_name(name);
  shape.recurrence.heads = 6;
  shape.recurrence.inner = 6 * shape.recurrence.state;
  return shape;
}

}  // namespace

std::vector<CheckpointFamily> checkpoint_families() {
  const auto shape = [](const char* name) { return synth::shape_by_name(name); };
  const char* text = "model.language_model.";
  std::vector<CheckpointFamily> families = {
      {"SeedOssForCausalLM", shape("tiny-seed_oss"), seed},
      {"Ernie4_5ForCausalLM", shape("tiny-ernie4_5"), plain},
      {"Exaone4ForCausalLM", shape("tiny-exaone4"), olmo},
      {"ArceeForCausalLM", shape("tiny-arcee"), plain, true},
      {"GemmaForCausalLM", shape("tiny-gemma"), plain, false, true, 1e-4f},
      {"CohereForCausalLM", shape("tiny-command-r"), plain},
      {"Cohere2ForCausalLM", shape("tiny-cohere2"), plain},
      {"Starcoder2ForCausalLM", shape("tiny-starcoder2"), starcoder},
      {"PhiForCausalLM", shape("tiny-phi2"), phi2},
      {"StableLmForCausalLM", shape("tiny-stablelm"), plain},
      {"MiniCPMForCausalLM", shape("tiny-minicpm"), plain, true, false, 1e-4f, "model.", false,
       adapt_minicpm},
      {"Qwen3VLForConditionalGeneration", shape("tiny-qwen3vl"), qwen3, false, false, 0, text,
       false, adapt_qwen3vl},
      {"GptOssForCausalLM", shape("tiny-gpt-oss"), gpt_oss, false, false, 0, "model.", false,
       adapt_gpt_oss},
      {"Qwen3VLMoeForConditionalGeneration", shape("tiny-qwen3vlmoe"), qwen3vl_experts, false,
       false, 0, text, false, adapt_qwen3vl_mixture},
      {"DeepseekV2ForCausalLM", deepseek_v2_shape(), deepseek, false, false, 0, "model.", false,
       adapt_deepseek},
      {"DeepseekV3ForCausalLM", shape("tiny-deepseek2-v3"), deepseek, false, false, 1e-4f, "model.",
       false, adapt_deepseek},
      {"Glm4MoeLiteForCausalLM", shape("tiny-deepseek2"), deepseek, false, false, 0, "model.",
       false, adapt_deepseek},
      {"ApertusForCausalLM", shape("tiny-apertus"), apertus, false, false, 0, "model.", false,
       adapt_apertus},
      {"InternLM2ForCausalLM", shape("tiny-internlm2"), internlm, true, false, 0, "model.", false,
       adapt_internlm},
      {"LlamaForCausalLM", shape("tiny-llama"), plain, true},
      {"Qwen2ForCausalLM", shape("tiny-qwen2"), plain},
      {"Qwen3ForCausalLM", shape("tiny-qwen3"), qwen3},
      {"SmolLM3ForCausalLM", shape("tiny-smollm3"), plain, true},
      {"GraniteForCausalLM", shape("tiny-granite"), plain, true},
      {"Gemma2ForCausalLM", shape("tiny-gemma2"), gemma, false, true, 1e-4f},
      {"Gemma3ForCausalLM", shape("tiny-gemma3"), gemma, false, true, 1e-4f},
      {"Phi3ForCausalLM", shape("tiny-phi3"), phi3},
      {"Glm4ForCausalLM", shape("tiny-glm4"), glm4},
      {"Olmo2ForCausalLM", shape("tiny-olmo2"), olmo},
      {"Olmo3ForCausalLM", shape("tiny-olmo3"), olmo},
      {"Ministral3ForCausalLM", shape("tiny-mistral3"), plain, true},
      {"GraniteMoeHybridForCausalLM", shape("tiny-granitehybrid"), granite4, true, false, 1e-4f,
       "model.", false, adapt_granite4},
      {"GraniteMoeHybridForCausalLM", shape("tiny-granite"), granite4, true, false, 0, "model.",
       false, adapt_granite4_attention},
      {"NemotronHForCausalLM", shape("tiny-nemotron_h"), nemotron, false, false, 1e-4f, "backbone.",
       false, adapt_nemotron},
      {"FalconH1ForCausalLM", shape("tiny-falcon-h1"), falcon, false, false, 1e-4f, "model.", false,
       adapt_falcon},
      {"Qwen3_5ForCausalLM", qwen35_shape(), qwen35, false, true, 1e-4f, "model.", false,
       adapt_qwen35},
      {"Qwen3_5ForConditionalGeneration", qwen35_shape(), qwen35, false, true, 1e-4f, text, false,
       adapt_qwen35_with_images},
      {"Qwen3_5MoeForCausalLM", qwen35_shape("tiny-qwen35moe"), qwen35moe, false, true, 1e-4f,
       "model.", false, adapt_qwen35moe},
      {"Lfm2MoeForCausalLM", shape("tiny-lfm2moe"), lfm2moe, false, false, 0, "model.", false,
       adapt_lfm2moe},
      {"BailingMoeV2ForCausalLM", shape("tiny-bailingmoe2"), bailing, false, false, 0, "model.",
       false, adapt_bailing},
      {"Qwen3NextForCausalLM", shape("tiny-qwen3next"), qwen3next, false, true, 1e-4f, "model.",
       false, adapt_qwen3next},
      {"Qwen3MoeForCausalLM", shape("tiny-qwen3moe"), qwen_experts, false, false, 0, "model.",
       false, adapt_qwen_experts},
      {"Qwen2MoeForCausalLM", shape("tiny-qwen2moe"), qwen_experts, false, false, 0, "model.",
       false, adapt_qwen_experts},
      {"OlmoeForCausalLM", shape("tiny-olmoe"), qwen_experts, false, false, 0, "model.", false,
       adapt_olmoe},
      {"Glm4MoeForCausalLM", shape("tiny-glm4moe"), glm4moe, false, false, 0, "model.", false,
       adapt_sigmoid_mixture},
      {"Glm4MoeForCausalLM", shape("tiny-glm4moe-air"), glm4moe, false, false, 0, "model.", false,
       adapt_sigmoid_mixture},
      {"Dots1ForCausalLM", shape("tiny-dots1"), dots, false, false, 0, "model.", false,
       adapt_sigmoid_mixture},
      {"Ernie4_5_MoeForCausalLM", shape("tiny-ernie4_5-moe"), ernie, false, false, 0, "model.",
       false, adapt_ernie},
      {"HunYuanDenseV1ForCausalLM", shape("tiny-hunyuan-dense"), hunyuan, false, false, 1e-3f,
       "model.", false, adapt_hunyuan},
      {"HunYuanMoEV1ForCausalLM", shape("tiny-hunyuan-moe"), hunyuan, false, false, 1e-3f, "model.",
       false, adapt_hunyuan_mixture},
      {"GraniteMoeSharedForCausalLM", shape("tiny-granitemoe"), granitemoe, true, false, 0,
       "model.", false, adapt_granitemoe},
      {"GraniteMoeForCausalLM", granitemoe_shape(), granitemoe, true, false, 0, "model.", false,
       adapt_granitemoe},
      {"MiniMaxM2ForCausalLM", shape("tiny-minimax-m2"), minimax, false, false, 0, "model.", false,
       adapt_minimax},
      {"MellumForCausalLM", shape("tiny-mellum"), qwen_experts, false, false, 0, "model.", false,
       adapt_mellum},
      {"SmallThinkerForCausalLM", shape("tiny-smallthinker"), smallthinker, false, false, 0,
       "model.", false, adapt_smallthinker},
      {"SmallThinkerForCausalLM", shape("tiny-smallthinker-window"), smallthinker, false, false, 0,
       "model.", false, adapt_smallthinker},
      {"JambaForCausalLM", jamba_shape(), jamba, false, false, 1e-4f, "model.", false, adapt_jamba},
      {"KimiLinearForCausalLM", shape("tiny-kimi-linear"), kimi, false, false, 1e-4f, "model.",
       false, adapt_kimi},
      {"RWKV7ForCausalLM", shape("tiny-rwkv7"), rwkv7_names(), false, false, 0, "model.", false,
       adapt_rwkv7, "layers.", rwkv7_unused},
      {"RWKV7ForCausalLM", shape("tiny-rwkv7"), rwkv7_names(), false, false, 0, "model.", false,
       adapt_older_rwkv7, "layers.", rwkv7_unused},
      {"Lfm2ForCausalLM", shape("tiny-lfm2"), lfm2, false, false, 0, "model.", false, adapt_lfm2},
      {"Gemma3nForCausalLM", shape("tiny-gemma3n"), gemma3n, false, false, 0, "model.", false,
       adapt_gemma3n},
      {"Gemma4ForCausalLM", shape("tiny-gemma4"), gemma4, false, false, 0, "model.", true,
       adapt_gemma4},
      {"Gemma4ForConditionalGeneration", shape("tiny-gemma4"), gemma4, false, false, 0, text, true,
       adapt_gemma4_with_images}};
  for (CheckpointFamily& encoder : encoder_checkpoints()) families.push_back(std::move(encoder));
  return families;
}

}  // namespace sluice::test
