#include "core/synth/architectures.h"

#include <fmt/format.h>
#include <stdexcept>

namespace sluice::synth {
namespace {

using S = Sizes;

constexpr Size one = &S::one;
constexpr Size embedding = &S::embedding;
constexpr Size head = &S::head;
constexpr Size query = &S::query;
constexpr Size key = &S::key;
constexpr Size feed_forward = &S::feed_forward;

constexpr Row norm(const char* name, Size size) {
  return {name, {size}, Fill::vector, 1.0f, 0.1f};
}

constexpr Row vector(const char* name, Few<Size, 4> dims, float mean, float deviation) {
  return {name, dims, Fill::vector, mean, deviation};
}

constexpr Row matrix(const char* name, Size columns, Size rows, TensorRole role = TensorRole::other,
                     float gain = 1) {
  return {name, {columns, rows}, Fill::matrix, 0, gain, role};
}

constexpr Row of_heads(const char* name, Size columns, Size rows) {
  return {name, {columns, rows, &S::heads}, Fill::matrix, 0, 1};
}

constexpr Row router() {
  return {"ffn_gate_inp.weight", {embedding, &S::experts}, Fill::router, 0, 1.6f};
}

constexpr Row experts(const char* name, Size columns, Size rows,
                      TensorRole role = TensorRole::other) {
  return {name, {columns, rows, &S::experts}, Fill::matrix, 0, 1, role};
}

constexpr Row attn_norm[] = {norm("attn_norm.weight", embedding)};
constexpr Row ffn_norm[] = {norm("ffn_norm.weight", embedding)};
constexpr Row unsuffixed_ffn_norm[] = {norm("ffn_norm", embedding)};
constexpr Row biased_attn_norm[] = {norm("attn_norm.weight", embedding),
                                    vector("attn_norm.bias", {embedding}, 0, 0.25f)};
constexpr Row biased_ffn_norm[] = {norm("ffn_norm.weight", embedding),
                                   vector("ffn_norm.bias", {embedding}, 0, 0.25f)};
constexpr Row post_attention_norm[] = {norm("post_attention_norm.weight", embedding)};
constexpr Row post_ffw_norm[] = {norm("post_ffw_norm.weight", embedding)};

constexpr Row attention[] = {
    matrix("attn_q.weight", embedding, query, TensorRole::attn_qk),
    matrix("attn_k.weight", embedding, key, TensorRole::attn_qk),
    matrix("attn_v.weight", embedding, key, TensorRole::attn_v),
    matrix("attn_output.weight", query, embedding, TensorRole::attn_output),
};
constexpr Row attention_biases[] = {
    vector("attn_q.bias", {query}, 0, 0.2f),
    vector("attn_k.bias", {key}, 0, 0.2f),
    vector("attn_v.bias", {key}, 0, 0.2f),
};
constexpr Row attention_sinks[] = {vector("attn_sinks.weight", {&S::heads}, 1, 1.5f)};
constexpr Row output_bias[] = {vector("attn_output.bias", {embedding}, 0, 0.2f)};
constexpr Row fused_bias[] = {vector("attn_qkv.bias", {&S::query_key_value}, 0, 0.2f)};
constexpr Row keys_as_values[] = {
    matrix("attn_q.weight", embedding, query, TensorRole::attn_qk),
    matrix("attn_k.weight", embedding, key, TensorRole::attn_qk),
    matrix("attn_output.weight", query, embedding, TensorRole::attn_output),
};
constexpr Row fused_attention[] = {
    matrix("attn_qkv.weight", embedding, &S::query_key_value, TensorRole::attn_qkv),
    matrix("attn_output.weight", query, embedding, TensorRole::attn_output),
};
constexpr Row gated_attention[] = {
    matrix("attn_q.weight", embedding, &S::gated_query, TensorRole::attn_qk),
    matrix("attn_k.weight", embedding, key, TensorRole::attn_qk),
    matrix("attn_v.weight", embedding, key, TensorRole::attn_v),
    matrix("attn_output.weight", query, embedding, TensorRole::attn_output),
};
constexpr Row head_norms[] = {norm("attn_q_norm.weight", head), norm("attn_k_norm.weight", head)};
// Far enough from 1 to tell on which side of the rotation they stand.
constexpr Row uneven_head_norms[] = {vector("attn_q_norm.weight", {head}, 1, 0.4f),
                                     vector("attn_k_norm.weight", {head}, 1, 0.4f)};
constexpr Row own_head_norms[] = {vector("attn_q_norm.weight", {head, &S::heads}, 1, 0.1f),
                                  vector("attn_k_norm.weight", {head, &S::key_heads}, 1, 0.1f)};
constexpr Row head_gate[] = {matrix("attn_gate.weight", embedding, &S::heads)};
constexpr Row element_gate[] = {matrix("attn_gate.weight", embedding, query)};
constexpr Row wide_norms[] = {norm("attn_q_norm.weight", query), norm("attn_k_norm.weight", key)};

constexpr Row latent_queries[] = {
    matrix("attn_q_a.weight", embedding, &S::query_rank),
    norm("attn_q_a_norm.weight", &S::query_rank),
    matrix("attn_q_b.weight", &S::query_rank, query),
};
constexpr Row direct_queries[] = {matrix("attn_q.weight", embedding, query, TensorRole::attn_qk)};
constexpr Row latent_attention[] = {
    matrix("attn_kv_a_mqa.weight", embedding, &S::latent_row),
    norm("attn_kv_a_norm.weight", &S::latent),
    of_heads("attn_k_b.weight", &S::plain, &S::latent),
    of_heads("attn_v_b.weight", &S::latent, &S::value),
    matrix("attn_output.weight", &S::values, embedding, TensorRole::attn_output),
};
constexpr Row old_latent_attention[] = {
    matrix("attn_kv_a_mqa.weight", embedding, &S::latent_row),
    norm("attn_kv_a_norm.weight", &S::latent),
    matrix("attn_kv_b.weight", &S::latent, &S::keys_and_values),
    matrix("attn_output.weight", &S::values, embedding, TensorRole::attn_output),
};

constexpr Row gated_ffn[] = {
    matrix("ffn_gate.weight", embedding, feed_forward),
    matrix("ffn_up.weight", embedding, feed_forward),
    matrix("ffn_down.weight", feed_forward, embedding, TensorRole::ffn_down),
};
constexpr Row ffn_biases[] = {
    vector("ffn_gate.bias", {feed_forward}, 0, 0.2f),
    vector("ffn_up.bias", {feed_forward}, 0, 0.2f),
    vector("ffn_down.bias", {embedding}, 0, 0.2f),
};
constexpr Row fused_ffn[] = {
    matrix("ffn_up.weight", embedding, &S::gate_and_up),
    matrix("ffn_down.weight", feed_forward, embedding, TensorRole::ffn_down),
};
constexpr Row plain_ffn[] = {
    matrix("ffn_up.weight", embedding, feed_forward),
    matrix("ffn_down.weight", feed_forward, embedding, TensorRole::ffn_down),
};

constexpr Row plain_ffn_biases[] = {
    vector("ffn_up.bias", {feed_forward}, 0, 0.4f),
    vector("ffn_down.bias", {embedding}, 0, 0.2f),
};

constexpr Row mixture[] = {
    router(),
    experts("ffn_gate_exps.weight", embedding, &S::expert),
    experts("ffn_up_exps.weight", embedding, &S::expert),
    experts("ffn_down_exps.weight", &S::expert, embedding, TensorRole::ffn_down),
};
constexpr Row choice_bias[] = {{"exp_probs_b.bias", {&S::experts}, Fill::router_bias, 0, 1}};
// Biases large enough to reach the clamps of gpt-oss.
constexpr Row mixture_biases[] = {
    {"ffn_gate_inp.bias", {&S::experts}, Fill::router_bias, 0, 1.7f},
    vector("ffn_gate_exps.bias", {&S::expert, &S::experts}, 0, 2.5f),
    vector("ffn_up_exps.bias", {&S::expert, &S::experts}, 0, 2.5f),
    vector("ffn_down_exps.bias", {embedding, &S::experts}, 0, 0.2f),
};
// The experts of Gemma 4, which stand beside a dense network.
constexpr Row fused_mixture[] = {
    router(),
    vector("ffn_gate_inp.scale", {embedding}, 1, 0.2f),
    experts("ffn_gate_up_exps.weight", embedding, &S::expert_gate_and_up),
    experts("ffn_down_exps.weight", &S::expert, embedding, TensorRole::ffn_down),
    vector("ffn_down_exps.scale", {&S::experts}, 1, 0.3f),
    norm("pre_ffw_norm_2.weight", embedding),
    norm("post_ffw_norm_1.weight", embedding),
    norm("post_ffw_norm_2.weight", embedding),
};
constexpr Row plain_mixture[] = {
    router(),
    experts("ffn_up_exps.weight", embedding, &S::expert),
    experts("ffn_down_exps.weight", &S::expert, embedding, TensorRole::ffn_down),
};
constexpr Row plain_shared_expert[] = {
    matrix("ffn_up_shexp.weight", embedding, &S::shared_expert),
    matrix("ffn_down_shexp.weight", &S::shared_expert, embedding, TensorRole::ffn_down),
};
constexpr Row shared_expert_gate[] = {
    vector("ffn_gate_inp_shexp.weight", {embedding}, 0, 0.1f),
};
constexpr Row shared_expert[] = {
    matrix("ffn_gate_shexp.weight", embedding, &S::shared_expert),
    matrix("ffn_up_shexp.weight", embedding, &S::shared_expert),
    matrix("ffn_down_shexp.weight", &S::shared_expert, embedding, TensorRole::ffn_down),
};

constexpr Row short_convolution[] = {
    matrix("shortconv.in_proj.weight", embedding, &S::gates_and_value),
    vector("shortconv.conv.weight", {&S::short_taps, embedding}, 0, 0.5f),
    matrix("shortconv.out_proj.weight", embedding, embedding),
};

// Decay factors exp(dt * a) between about a half and one.
constexpr Row mamba2[] = {
    matrix("ssm_in.weight", embedding, &S::mixer_input),
    vector("ssm_conv1d.weight", {&S::taps, &S::channels}, 0, 0.5f),
    vector("ssm_conv1d.bias", {&S::channels}, 0, 0.3f),
    vector("ssm_dt.bias", {&S::recurrent_heads}, -0.5f, 0.6f),
    vector("ssm_a", {one, &S::recurrent_heads}, -0.35f, 0.08f),
    vector("ssm_d", {one, &S::recurrent_heads}, 1.0f, 0.5f),
    vector("ssm_norm.weight", {&S::group, &S::groups}, 1.0f, 0.15f),
    matrix("ssm_out.weight", &S::inner, embedding),
};
constexpr Row mamba[] = {
    matrix("ssm_in.weight", embedding, &S::values_and_gates),
    vector("ssm_conv1d.weight", {&S::taps, &S::inner}, 0, 0.5f),
    vector("ssm_conv1d.bias", {&S::inner}, 0, 0.3f),
    matrix("ssm_x.weight", &S::inner, &S::steps_and_keys),
    norm("ssm_dt_norm.weight", &S::recurrent_heads),
    norm("ssm_b_norm.weight", &S::state),
    norm("ssm_c_norm.weight", &S::state),
    matrix("ssm_dt.weight", &S::recurrent_heads, &S::inner),
    vector("ssm_dt.bias", {&S::inner}, -1.0f, 0.5f),
    vector("ssm_a", {&S::state, &S::inner}, -0.7f, 0.15f),
    vector("ssm_d", {&S::inner}, 1.0f, 0.4f),
    matrix("ssm_out.weight", &S::inner, embedding),
};
constexpr Row delta_net[] = {
    matrix("attn_qkv.weight", embedding, &S::channels, TensorRole::attn_qkv),
    matrix("attn_gate.weight", embedding, &S::inner),
    vector("ssm_conv1d.weight", {&S::taps, &S::channels}, 0, 0.5f),
    matrix("ssm_alpha.weight", embedding, &S::recurrent_heads),
    matrix("ssm_beta.weight", embedding, &S::recurrent_heads),
    vector("ssm_dt.bias", {&S::recurrent_heads}, 0, 0.5f),
    vector("ssm_a", {&S::recurrent_heads}, -0.6f, 0.1f),
    norm("ssm_norm.weight", &S::state),
    matrix("ssm_out.weight", &S::inner, embedding),
};
// As Qwen 3 Next has it: alpha and beta in one matrix.
constexpr Row joint_delta_net[] = {
    matrix("attn_qkv.weight", embedding, &S::channels, TensorRole::attn_qkv),
    matrix("attn_gate.weight", embedding, &S::inner),
    vector("ssm_conv1d.weight", {&S::taps, &S::channels}, 0, 0.5f),
    matrix("ssm_ba.weight", embedding, &S::betas_and_alphas),
    vector("ssm_dt.bias", {&S::recurrent_heads}, 0, 0.5f),
    vector("ssm_a", {&S::recurrent_heads}, -0.6f, 0.1f),
    norm("ssm_norm.weight", &S::state),
    matrix("ssm_out.weight", &S::inner, embedding),
};

// Kimi delta attention, whose two gates are products of narrow matrices, or matrices.
constexpr Row kimi_delta_mixer[] = {
    matrix("attn_q.weight", embedding, &S::inner),
    matrix("attn_k.weight", embedding, &S::inner),
    matrix("attn_v.weight", embedding, &S::inner, TensorRole::attn_v),
    vector("ssm_conv1d_q.weight", {&S::taps, one, &S::inner}, 0, 0.5f),
    vector("ssm_conv1d_k.weight", {&S::taps, one, &S::inner}, 0, 0.5f),
    vector("ssm_conv1d_v.weight", {&S::taps, one, &S::inner}, 0, 0.5f),
    matrix("ssm_beta.weight", embedding, &S::recurrent_heads),
    vector("ssm_dt.bias", {&S::inner}, 0, 0.5f),
    norm("ssm_norm.weight", &S::state),
    matrix("attn_output.weight", &S::inner, embedding, TensorRole::attn_output),
};
constexpr Row narrow_gates[] = {
    matrix("ssm_f_a.weight", embedding, &S::state),
    matrix("ssm_f_b.weight", &S::state, &S::inner),
    matrix("ssm_g_a.weight", embedding, &S::state),
    matrix("ssm_g_b.weight", &S::state, &S::inner),
    vector("ssm_a", {one, &S::recurrent_heads}, -0.6f, 0.1f),
};
constexpr Row wide_gates[] = {
    matrix("ssm_f_a.weight", embedding, &S::inner),
    matrix("ssm_g_a.weight", embedding, &S::inner),
    vector("ssm_a", {one, &S::recurrent_heads}, 0.8f, 0.1f),
};

// Gemma 4 multiplies queries and keys without a scale, so their norms are small.
constexpr Row small_head_norms[] = {vector("attn_q_norm.weight", {head}, 0.4f, 0.05f),
                                    vector("attn_k_norm.weight", {head}, 0.4f, 0.05f)};
constexpr Row layer_embedding[] = {
    matrix("inp_gate.weight", embedding, &S::layer_embedding),
    matrix("proj.weight", &S::layer_embedding, embedding),
    norm("post_norm.weight", embedding),
};
constexpr Row layer_scale[] = {vector("layer_output_scale.weight", {one}, 0.9f, 0.1f)};

// RWKV-7. A decay, a rate and the gate of a value are each two narrow matrices and a bias.
constexpr Row time_mixing[] = {
    norm("attn_norm.weight", embedding),
    vector("attn_norm.bias", {embedding}, 0, 0.25f),
    vector("time_mix_lerp_fused.weight", {embedding, one, one, &S::mixtures}, 0.5f, 0.3f),
    vector("time_mix_w0.weight", {embedding}, -0.5f, 0.5f),
    matrix("time_mix_w1.weight", embedding, &S::decay_rank),
    matrix("time_mix_w2.weight", &S::decay_rank, embedding, TensorRole::other, 1.5f),
    vector("time_mix_a0.weight", {embedding}, 0.2f, 0.5f),
    matrix("time_mix_a1.weight", embedding, &S::rate_rank),
    matrix("time_mix_a2.weight", &S::rate_rank, embedding, TensorRole::other, 1.5f),
    vector("time_mix_v0.weight", {embedding}, 0.3f, 0.5f),
    matrix("time_mix_v1.weight", embedding, &S::value_rank),
    matrix("time_mix_v2.weight", &S::value_rank, embedding, TensorRole::other, 1.5f),
    matrix("time_mix_g1.weight", embedding, &S::gate_rank),
    matrix("time_mix_g2.weight", &S::gate_rank, embedding, TensorRole::other, 2.5f),
    vector("time_mix_k_k.weight", {embedding}, 0.9f, 0.2f),
    vector("time_mix_k_a.weight", {embedding}, 0.9f, 0.2f),
    vector("time_mix_r_k.weight", {embedding}, 0, 0.2f),
    norm("time_mix_ln.weight", embedding),
    vector("time_mix_ln.bias", {embedding}, 0, 0.25f),
    matrix("time_mix_receptance.weight", embedding, embedding),
    matrix("time_mix_key.weight", embedding, embedding),
    matrix("time_mix_value.weight", embedding, embedding),
    matrix("time_mix_output.weight", embedding, embedding),
};
constexpr Row channel_mixing[] = {
    norm("attn_norm_2.weight", embedding),
    vector("attn_norm_2.bias", {embedding}, 0, 0.25f),
    vector("channel_mix_lerp_k.weight", {embedding, one, one}, 0.5f, 0.3f),
    matrix("channel_mix_key.weight", embedding, feed_forward),
    matrix("channel_mix_value.weight", feed_forward, embedding),
};

// Gemma 3n. Norms of what is added are small, since streams are summed.
constexpr Row streams[] = {
    norm("altup_router_norm.weight", embedding),
    matrix("altup_router.weight", embedding, &S::streams),
    vector("altup_predict_coef.weight", {&S::streams, &S::stream_pairs}, 0, 0.15f),
    vector("altup_correct_coef.weight", {&S::streams, &S::streams}, 0, 0.3f),
    norm("altup_correct_scale.weight", embedding),
};
constexpr Row side_path[] = {
    matrix("laurel_l.weight", embedding, &S::side_rank, TensorRole::side_projection),
    matrix("laurel_r.weight", &S::side_rank, embedding, TensorRole::side_projection),
    vector("laurel_post_norm.weight", {embedding}, 0.3f, 0.06f),
};
// Qwen 3.8. The gates are not far from a half.
constexpr Row hyper_connections[] = {
    norm("hc_attn_norm.weight", &S::wide),
    matrix("hc_attn_down.weight", &S::wide, &S::side_rank, TensorRole::other, 4),
    matrix("hc_attn_up.weight", &S::side_rank, &S::wide, TensorRole::other, 2),
    matrix("hc_attn_inject.weight", &S::wide, &S::streams, TensorRole::other, 4),
    norm("hc_ffn_norm.weight", &S::wide),
    matrix("hc_ffn_down.weight", &S::wide, &S::side_rank, TensorRole::other, 4),
    matrix("hc_ffn_up.weight", &S::side_rank, &S::wide, TensorRole::other, 2),
    matrix("hc_ffn_inject.weight", &S::wide, &S::streams, TensorRole::other, 4),
};
constexpr Row sparse_indexer[] = {
    matrix("indexer.q_proj.weight", embedding, &S::index_queries, TensorRole::side_projection),
    matrix("indexer.k_proj.weight", embedding, &S::index_key, TensorRole::side_projection),
    norm("indexer.q_norm.weight", &S::index_key),
    norm("indexer.k_norm.weight", &S::index_key),
};
constexpr Row ngram_embedding[] = {
    matrix("ple_key.weight", &S::ngram, &S::wide),
    matrix("ple_value.weight", &S::ngram, embedding),
    norm("ple_norm_key.weight", &S::wide),
    norm("ple_norm_query.weight", &S::wide),
    norm("ple_norm_conv.weight", &S::wide),
    vector("ple_conv1d.weight", {&S::ngram_taps, &S::wide}, 0, 0.3f),
};
constexpr Row small_sandwich_norms[] = {
    norm("attn_norm.weight", embedding),
    vector("post_attention_norm.weight", {embedding}, 0.3f, 0.06f),
    norm("ffn_norm.weight", embedding),
    vector("post_ffw_norm.weight", {embedding}, 0.1f, 0.02f),
};

// Encoders that are built like BERT have norms behind the sums.
constexpr Row attention_sum_norm[] = {norm("attn_output_norm.weight", embedding),
                                      vector("attn_output_norm.bias", {embedding}, 0, 0.25f)};
constexpr Row feed_forward_sum_norm[] = {norm("layer_output_norm.weight", embedding),
                                         vector("layer_output_norm.bias", {embedding}, 0, 0.25f)};
constexpr Row down_bias[] = {vector("ffn_down.bias", {embedding}, 0, 0.2f)};
constexpr Row ungated_mixture[] = {
    router(),
    experts("ffn_up_exps.weight", embedding, feed_forward),
    experts("ffn_down_exps.weight", feed_forward, embedding, TensorRole::ffn_down),
};

constexpr Architecture architectures[] = {
    {.name = "bert",
     .layers = {{"*",
                 {attention, attention_biases, output_bias, attention_sum_norm, plain_ffn,
                  plain_ffn_biases, feed_forward_sum_norm}}},
     .final_norm = nullptr,
     .plain_heads = true,
     .subtracts_means = true,
     .has_embedding_norm = true,
     .has_position_table = true,
     .has_word_pieces = true},
    {.name = "nomic-bert",
     .layers = {{"*", {fused_attention, attention_sum_norm, gated_ffn, feed_forward_sum_norm}}},
     .final_norm = nullptr,
     .plain_heads = true,
     .subtracts_means = true,
     .has_embedding_norm = true,
     .has_word_pieces = true},
    {.name = "nomic-bert-moe",
     .layers = {{"*",
                 {fused_attention, fused_bias, output_bias, attention_sum_norm, ungated_mixture,
                  feed_forward_sum_norm}}},
     .dense = "jina-bert-v3",
     .final_norm = nullptr,
     .plain_heads = true,
     .subtracts_means = true,
     .has_embedding_norm = true},
    {.name = "jina-bert-v2",
     .layers = {{"*",
                 {attention, attention_biases, output_bias, attention_sum_norm, gated_ffn,
                  down_bias, feed_forward_sum_norm}}},
     .final_norm = nullptr,
     .plain_heads = true,
     .subtracts_means = true,
     .has_embedding_norm = true,
     .has_word_pieces = true},
    {.name = "jina-bert-v3",
     .layers = {{"*",
                 {fused_attention, fused_bias, output_bias, attention_sum_norm, plain_ffn,
                  plain_ffn_biases, feed_forward_sum_norm}}},
     .final_norm = nullptr,
     .plain_heads = true,
     .subtracts_means = true,
     .has_embedding_norm = true},
    {.name = "modern-bert",
     .layers = {{"*~", {attn_norm, fused_attention, ffn_norm, fused_ffn}}},
     .bare_norm = "attn_norm.weight",
     .plain_heads = true,
     .subtracts_means = true,
     .has_embedding_norm = true},
    {"gemma-embedding",
     {{"*~",
       {attn_norm, attention, head_norms, post_attention_norm, ffn_norm, gated_ffn,
        post_ffw_norm}}}},
    {"llama", {{"*", {attn_norm, attention, ffn_norm, gated_ffn}}}},
    {"llama-embed", {{"*", {attn_norm, attention, ffn_norm, gated_ffn}}}},
    {"eurobert", {{"*", {attn_norm, attention, ffn_norm, gated_ffn}}}},
    {"llama-biased",
     {{"*",
       {attn_norm, attention, attention_biases, output_bias, ffn_norm, gated_ffn, ffn_biases}}}},
    {"llama-fused", {{"*", {attn_norm, fused_attention, fused_bias, ffn_norm, gated_ffn}}}},
    {"mistral3", {{"*", {attn_norm, attention, ffn_norm, gated_ffn}}}},
    {"smollm3", {{"*", {attn_norm, attention, ffn_norm, gated_ffn}}}},
    {"granite", {{"*", {attn_norm, attention, ffn_norm, gated_ffn}}}},
    {"granitemoe", {{"*", {attn_norm, attention, ffn_norm, mixture}}}},
    {"granitemoe-shared", {{"*", {attn_norm, attention, ffn_norm, mixture, shared_expert}}}},
    {.name = "minicpm",
     .layers = {{"*", {attn_norm, attention, ffn_norm, gated_ffn}}},
     .plain_heads = true},
    {"ernie4_5", {{"*", {attn_norm, attention, ffn_norm, gated_ffn}}}},
    {.name = "ernie4_5-moe",
     .layers = {{"*", {attn_norm, attention, ffn_norm, mixture, choice_bias, shared_expert}}},
     .dense = "ernie4_5"},
    {.name = "internlm2",
     .layers = {{"*", {attn_norm, attention, ffn_norm, gated_ffn}}},
     .plain_heads = true},
    {"exaone", {{"*", {attn_norm, attention, ffn_norm, gated_ffn}}}},
    {.name = "exaone4",
     .layers = {{"*~", {attention, head_norms, post_attention_norm, gated_ffn, post_ffw_norm}}},
     .plain_heads = true,
     .has_window_pattern = true},
    {"arcee", {{"*", {attn_norm, attention, ffn_norm, plain_ffn}}}},
    {.name = "command-r",
     .layers = {{"*", {attn_norm, attention, gated_ffn}}},
     .plain_heads = true,
     .subtracts_means = true,
     .multiplies_logits = true},
    {.name = "command-r-norm",
     .layers = {{"*", {attn_norm, attention, own_head_norms, gated_ffn}}},
     .plain_heads = true,
     .subtracts_means = true,
     .multiplies_logits = true},
    {.name = "cohere2",
     .layers = {{"*~", {attn_norm, attention, gated_ffn}}},
     .plain_heads = true,
     .subtracts_means = true,
     .multiplies_logits = true},
    {.name = "starcoder2",
     .layers = {{"*",
                 {biased_attn_norm, attention, attention_biases, output_bias, biased_ffn_norm,
                  plain_ffn, plain_ffn_biases}}},
     .plain_heads = true,
     .subtracts_means = true,
     .has_norm_biases = true},
    {.name = "phi2",
     .layers = {{"*",
                 {biased_attn_norm, attention, attention_biases, output_bias, plain_ffn,
                  plain_ffn_biases}}},
     .plain_heads = true,
     .subtracts_means = true,
     .has_norm_biases = true,
     .has_head_bias = true},
    {.name = "stablelm",
     .layers = {{"*", {biased_attn_norm, attention, attention_biases, biased_ffn_norm, gated_ffn}}},
     .plain_heads = true,
     .subtracts_means = true,
     .has_norm_biases = true},
    {.name = "stablelm-parallel",
     .layers = {{"*", {biased_attn_norm, attention, own_head_norms, gated_ffn}}},
     .plain_heads = true,
     .subtracts_means = true,
     .has_norm_biases = true},
    {"apertus", {{"*", {attn_norm, attention, head_norms, ffn_norm, plain_ffn}}}},
    {"hunyuan-dense", {{"*", {attn_norm, attention, uneven_head_norms, ffn_norm, gated_ffn}}}},
    {"hunyuan-moe",
     {{"*", {attn_norm, attention, uneven_head_norms, ffn_norm, mixture, shared_expert}}}},
    {.name = "muse-glimmer",
     .layers = {{"*~",
                 {attn_norm, attention, head_norms, element_gate, post_attention_norm, ffn_norm,
                  gated_ffn, post_ffw_norm}}},
     .has_window_pattern = true,
     .multiplies_logits = true},
    {"smallthinker", {{"*~", {attn_norm, attention, ffn_norm, mixture}}}},
    {.name = "laguna",
     .layers = {{"*~",
                 {attn_norm, attention, head_norms, head_gate, ffn_norm, mixture, choice_bias,
                  shared_expert}}},
     .dense = "laguna-dense"},
    {"laguna-dense", {{"*~", {attn_norm, attention, head_norms, head_gate, ffn_norm, gated_ffn}}}},
    {.name = "laguna-elements",
     .layers = {{"*~",
                 {attn_norm, attention, head_norms, element_gate, ffn_norm, mixture, choice_bias,
                  shared_expert}}},
     .dense = "laguna-elements-dense"},
    {"laguna-elements-dense",
     {{"*~", {attn_norm, attention, head_norms, element_gate, ffn_norm, gated_ffn}}}},
    {.name = "step35",
     .layers = {{"*~",
                 {attn_norm, attention, head_norms, head_gate, ffn_norm, mixture, choice_bias,
                  shared_expert}}},
     .dense = "laguna-dense",
     .has_window_pattern = true},
    {"gemma", {{"*", {attn_norm, attention, ffn_norm, gated_ffn}}}},
    {.name = "qwen2",
     .layers = {{"*", {attn_norm, attention, attention_biases, ffn_norm, gated_ffn}}},
     .plain_heads = true},
    {.name = "qwen2moe",
     .layers = {{"*",
                 {attn_norm, attention, attention_biases, ffn_norm, mixture, shared_expert,
                  shared_expert_gate}}},
     .plain_heads = true},
    {"seed_oss", {{"*", {attn_norm, attention, attention_biases, post_attention_norm, gated_ffn}}}},
    {"qwen3", {{"*", {attn_norm, attention, head_norms, ffn_norm, gated_ffn}}}},
    {"qwen3vl", {{"*", {attn_norm, attention, head_norms, ffn_norm, gated_ffn}}}},
    {"qwen3moe", {{"*", {attn_norm, attention, head_norms, ffn_norm, mixture}}}},
    {"qwen3vlmoe", {{"*", {attn_norm, attention, head_norms, ffn_norm, mixture}}}},
    {.name = "mellum",
     .layers = {{"*~", {attn_norm, attention, head_norms, ffn_norm, mixture}}},
     .has_window_pattern = true},
    {.name = "dots1",
     .layers =
         {{"*", {attn_norm, attention, head_norms, ffn_norm, mixture, choice_bias, shared_expert}}},
     .dense = "qwen3",
     .counts_shared_experts = true},
    {.name = "bailingmoe2",
     .layers = {{"*",
                 {attn_norm, fused_attention, head_norms, ffn_norm, mixture, choice_bias,
                  shared_expert}}},
     .dense = "bailingmoe2-dense",
     .plain_heads = true},
    {.name = "bailingmoe2-dense",
     .layers = {{"*", {attn_norm, fused_attention, head_norms, ffn_norm, gated_ffn}}},
     .plain_heads = true},
    {.name = "glm4moe",
     .layers = {{"*",
                 {attn_norm, attention, attention_biases, head_norms, post_attention_norm, mixture,
                  choice_bias, shared_expert}}},
     .dense = "glm4moe-dense",
     .counts_shared_experts = true},
    {"glm4moe-dense",
     {{"*", {attn_norm, attention, attention_biases, head_norms, post_attention_norm, gated_ffn}}}},
    {.name = "glm4moe-air",
     .layers = {{"*",
                 {attn_norm, attention, attention_biases, post_attention_norm, mixture, choice_bias,
                  shared_expert}}},
     .dense = "seed_oss",
     .counts_shared_experts = true},
    {"minimax-m2", {{"*", {attn_norm, attention, wide_norms, ffn_norm, mixture, choice_bias}}}},
    {.name = "olmoe",
     .layers = {{"*", {attn_norm, attention, wide_norms, ffn_norm, mixture}}},
     .plain_heads = true},
    {.name = "mistral4",
     .layers = {{"*",
                 {attn_norm, latent_queries, latent_attention, ffn_norm, mixture, shared_expert}}},
     .counts_shared_experts = true},
    {.name = "phi3",
     .layers = {{"*", {attn_norm, fused_attention, ffn_norm, fused_ffn}}},
     .plain_heads = true},
    {"glm4",
     {{"*",
       {attn_norm, attention, attention_biases, post_attention_norm, ffn_norm, fused_ffn,
        post_ffw_norm}}}},
    {.name = "olmo2",
     .layers = {{"*~", {attention, wide_norms, post_attention_norm, gated_ffn, post_ffw_norm}}},
     .plain_heads = true,
     .has_window_pattern = true},
    {"gemma2",
     {{"*~", {attn_norm, attention, post_attention_norm, ffn_norm, gated_ffn, post_ffw_norm}}}},
    {"gemma3",
     {{"*~",
       {attn_norm, attention, head_norms, post_attention_norm, ffn_norm, gated_ffn,
        post_ffw_norm}}}},
    {"gemma4",
     {{"*~",
       {attn_norm, attention, small_head_norms, post_attention_norm, ffn_norm, gated_ffn,
        post_ffw_norm, layer_embedding, layer_scale}}}},
    {"gemma4-dense",
     {{"~",
       {attn_norm, attention, small_head_norms, post_attention_norm, ffn_norm, gated_ffn,
        post_ffw_norm, layer_scale}},
      {"*",
       {attn_norm, keys_as_values, small_head_norms, post_attention_norm, ffn_norm, gated_ffn,
        post_ffw_norm, layer_scale}}}},
    {"gemma4-moe",
     {{"~",
       {attn_norm, attention, small_head_norms, post_attention_norm, ffn_norm, gated_ffn,
        fused_mixture, post_ffw_norm, layer_scale}},
      {"*",
       {attn_norm, keys_as_values, small_head_norms, post_attention_norm, ffn_norm, gated_ffn,
        fused_mixture, post_ffw_norm, layer_scale}}}},
    {"qwen35",
     {{"M", {attn_norm, delta_net, post_attention_norm, gated_ffn}},
      {"*", {attn_norm, gated_attention, head_norms, post_attention_norm, gated_ffn}}}},
    {"qwen35moe",
     {{"M",
       {attn_norm, delta_net, post_attention_norm, mixture, shared_expert, shared_expert_gate}},
      {"*",
       {attn_norm, gated_attention, head_norms, post_attention_norm, mixture, shared_expert,
        shared_expert_gate}}}},
    {"qwen3next",
     {{"M",
       {attn_norm, joint_delta_net, post_attention_norm, mixture, shared_expert,
        shared_expert_gate}},
      {"*",
       {attn_norm, gated_attention, head_norms, post_attention_norm, mixture, shared_expert,
        shared_expert_gate}}}},
    {.name = "qwen4exp",
     .layers = {{"M", {hyper_connections, delta_net, mixture, shared_expert, shared_expert_gate}},
                {"*",
                 {hyper_connections, gated_attention, head_norms, sparse_indexer, mixture,
                  shared_expert, shared_expert_gate}}},
     .final_norm = nullptr,
     .ngrams = ngram_embedding},
    {.name = "kimi-linear",
     .layers = {{"M",
                 {attn_norm, kimi_delta_mixer, narrow_gates, ffn_norm, mixture, choice_bias,
                  shared_expert}},
                {"*",
                 {attn_norm, direct_queries, latent_attention, ffn_norm, mixture, choice_bias,
                  shared_expert}}},
     .dense = "kimi-linear-dense",
     .counts_shared_experts = true},
    {"kimi-linear-dense",
     {{"M", {attn_norm, kimi_delta_mixer, narrow_gates, ffn_norm, gated_ffn}},
      {"*", {attn_norm, direct_queries, latent_attention, ffn_norm, gated_ffn}}}},
    {.name = "bailingmoe3",
     .layers = {{"M",
                 {attn_norm, kimi_delta_mixer, wide_gates, ffn_norm, mixture, choice_bias,
                  shared_expert}},
                {"*",
                 {attn_norm, latent_queries, latent_attention, head_gate, ffn_norm, mixture,
                  choice_bias, shared_expert}}},
     .dense = "bailingmoe3-dense"},
    {"bailingmoe3-dense",
     {{"M", {attn_norm, kimi_delta_mixer, wide_gates, ffn_norm, gated_ffn}},
      {"*", {attn_norm, latent_queries, latent_attention, head_gate, ffn_norm, gated_ffn}}}},
    {.name = "deepseek2",
     .layers = {{"*",
                 {attn_norm, latent_queries, latent_attention, ffn_norm, mixture, choice_bias,
                  shared_expert}}},
     .dense = "deepseek2-dense",
     .counts_shared_experts = true},
    {"deepseek2-dense",
     {{"*", {attn_norm, latent_queries, latent_attention, ffn_norm, gated_ffn}}}},
    {.name = "deepseek2-direct",
     .layers = {{"*",
                 {attn_norm, direct_queries, latent_attention, ffn_norm, mixture, shared_expert}}},
     .dense = "deepseek2-direct-dense",
     .counts_shared_experts = true},
    {"deepseek2-direct-dense",
     {{"*", {attn_norm, direct_queries, latent_attention, ffn_norm, gated_ffn}}}},
    {.name = "deepseek2-lite",
     .layers = {{"*",
                 {attn_norm, direct_queries, old_latent_attention, ffn_norm, mixture,
                  shared_expert}}},
     .dense = "deepseek2-lite-dense",
     .counts_shared_experts = true},
    {"deepseek2-lite-dense",
     {{"*", {attn_norm, direct_queries, old_latent_attention, ffn_norm, gated_ffn}}}},
    {"gpt-oss",
     {{"*~",
       {attn_norm, attention, attention_biases, output_bias, attention_sinks, post_attention_norm,
        mixture, mixture_biases}}}},
    {.name = "lfm2moe",
     .layers = {{"M", {attn_norm, short_convolution, ffn_norm, mixture, choice_bias}},
                {"*", {attn_norm, attention, head_norms, ffn_norm, mixture, choice_bias}}},
     .dense = "lfm2",
     .final_norm = "token_embd_norm.weight",
     .plain_heads = true},
    {.name = "lfm2",
     .layers = {{"M", {attn_norm, short_convolution, ffn_norm, gated_ffn}},
                {"*", {attn_norm, attention, head_norms, ffn_norm, gated_ffn}}},
     .final_norm = "token_embd_norm.weight",
     .plain_heads = true},
    {"granitehybrid",
     {{"M", {attn_norm, mamba2, ffn_norm, gated_ffn}},
      {"*", {attn_norm, attention, ffn_norm, gated_ffn}}}},
    {"granitehybrid-moe",
     {{"M", {attn_norm, mamba2, ffn_norm, mixture, shared_expert}},
      {"*", {attn_norm, attention, ffn_norm, mixture, shared_expert}}}},
    {"nemotron_h",
     {{"M", {attn_norm, mamba2}}, {"*", {attn_norm, attention}}, {"-", {attn_norm, plain_ffn}}}},
    {"nemotron_h_moe",
     {{"M", {attn_norm, mamba2}},
      {"*", {attn_norm, attention}},
      {"-", {attn_norm, plain_mixture, choice_bias, plain_shared_expert}}}},
    {.name = "jamba",
     .layers = {{"M", {attn_norm, mamba, ffn_norm, mixture}},
                {"*", {attn_norm, attention, ffn_norm, mixture}}},
     .dense = "jamba-dense",
     .plain_heads = true},
    {.name = "jamba-dense",
     .layers = {{"M", {attn_norm, mamba, ffn_norm, gated_ffn}},
                {"*", {attn_norm, attention, ffn_norm, gated_ffn}}},
     .plain_heads = true},
    {.name = "llama4",
     .layers = {{"*~", {attn_norm, attention, ffn_norm, mixture, shared_expert}}},
     .dense = "llama4-dense"},
    {"llama4-dense", {{"*~", {attn_norm, attention, ffn_norm, gated_ffn}}}},
    {.name = "rwkv7",
     .layers = {{"M", {time_mixing, channel_mixing}}},
     .subtracts_means = true,
     .has_norm_biases = true,
     .has_embedding_norm = true},
    {.name = "gemma3n",
     .layers = {{"*~",
                 {small_sandwich_norms, attention, small_head_norms, gated_ffn, layer_embedding,
                  streams, side_path}}},
     .has_window_pattern = true},
    {"falcon-h1",  // its norm has a name without ".weight"
     {{"*", {attn_norm, attention, mamba2, unsuffixed_ffn_norm, gated_ffn}}}},
};

}  // namespace

Sizes::Sizes(const Shape& shape, std::uint32_t layer)
    : embedding(shape.embedding), vocabulary(shape.vocabulary) {
  const bool is_narrow = shape.kind(layer) == '~' && shape.window.head_size > 0;
  head = is_narrow ? shape.window.head_size : shape.heads.size;
  half_head = head / 2;
  half_rotated = (shape.rope.size > 0 ? shape.rope.size : head) / 2;
  const bool has_own_queries = shape.kind(layer) == '~' && shape.window.queries > 0;
  heads = has_own_queries ? shape.window.queries : shape.heads.queries;
  query = heads * head;
  gated_query = 2 * query;
  const bool has_own_keys = shape.kind(layer) == '~' && shape.window.keys > 0;
  key_heads = has_own_keys ? shape.window.keys : shape.heads.keys;
  key = key_heads * head;
  query_key_value = query + 2 * key;

  latent = shape.latent.rank;
  query_rank = shape.latent.query_rank;
  latent_row = latent + shape.rope.size;
  plain = head - shape.rope.size;
  value = shape.latent.value_size;
  values = heads * value;
  keys_and_values = heads * (plain + value);

  const bool is_wide = shape.is_shared(layer) && shape.shared_feed_forward > 0;
  feed_forward = is_wide ? shape.shared_feed_forward : shape.feed_forward;
  gate_and_up = 2 * feed_forward;

  short_taps = shape.short_convolution;
  gates_and_value = 3 * embedding;
  const Shape::Recurrence& recurrence = shape.recurrence;
  taps = recurrence.taps;
  inner = recurrence.inner;
  state = recurrence.state;
  recurrent_heads = recurrence.heads;
  betas_and_alphas = 2 * recurrent_heads;
  groups = recurrence.groups;
  group = groups > 0 ? inner / groups : 0;
  channels = inner + 2 * groups * state;
  mixer_input = inner + channels + recurrent_heads;
  values_and_gates = 2 * inner;
  steps_and_keys = recurrent_heads + 2 * state;

  decay_rank = shape.ranks.decay;
  rate_rank = shape.ranks.rate;
  // The first layer does not use its gate of values, which converters make of that of rates.
  value_rank = layer == 0 ? shape.ranks.rate : shape.ranks.value;
  gate_rank = shape.ranks.gate;
  streams = shape.streams;
  stream_pairs = streams * streams;
  side_rank = shape.side_rank;
  wide = streams * embedding;
  if (shape.ngrams.tokens > 0) {
    ngram = std::uint64_t{shape.ngrams.tokens - 1} * shape.ngrams.heads * shape.ngrams.width;
  }
  ngram_taps = shape.ngrams.taps;
  index_key = shape.indexer.size;
  index_queries = shape.indexer.heads * index_key;

  layer_embedding = shape.layer_embedding;
  layer_embeddings = layer_embedding * shape.layers;
  experts = shape.experts.count;
  expert = shape.experts.feed_forward > 0 ? shape.experts.feed_forward : shape.feed_forward;
  expert_gate_and_up = 2 * expert;
  shared_expert = shape.experts.shared_feed_forward;
}

const Architecture& architecture_by_name(std::string_view name) {
  for (const Architecture& architecture : architectures) {
    if (architecture.name == name) return architecture;
  }
  throw std::logic_error(fmt::format("no description of architecture {}", name));
}

const Architecture& architecture_of(const Shape& shape) {
  return architecture_by_name(shape.tensors.empty() ? shape.architecture : shape.tensors);
}

}  // namespace sluice::synth
