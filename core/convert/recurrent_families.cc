// Families with other recurrent layers: gated delta nets (Qwen 3.5), short convolutions (LFM2), the
// matrix states of RWKV-7.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <string>
#include <string_view>
#include <utility>

#include "core/convert/families.h"
#include "core/convert/family_tables.h"

namespace sluice::convert {
namespace {

// --- Qwen 3.5: gated delta nets, and gated attention in every n-th layer ---

constexpr Part delta_net[] = {
    {.theirs = "in_proj_qkv.weight",
     .ours = "attn_qkv.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::channels,
     .order = Order::value_head_rows,
     .unit = &Sizes::state},
    {.theirs = "in_proj_z.weight",
     .ours = "attn_gate.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::inner,
     .order = Order::value_head_rows,
     .unit = &Sizes::state},
    {.theirs = "conv1d.weight",
     .ours = "ssm_conv1d.weight",
     .columns = &Sizes::taps,
     .rows = &Sizes::channels,
     .order = Order::value_head_rows,
     .unit = &Sizes::state},
    {.theirs = "in_proj_a.weight",
     .ours = "ssm_alpha.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::recurrent_heads,
     .order = Order::value_head_rows,
     .unit = &Sizes::one},
    {.theirs = "in_proj_b.weight",
     .ours = "ssm_beta.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::recurrent_heads,
     .order = Order::value_head_rows,
     .unit = &Sizes::one},
    {.theirs = "dt_bias",
     .ours = "ssm_dt.bias",
     .columns = &Sizes::recurrent_heads,
     .order = Order::value_head_columns,
     .unit = &Sizes::one},
    {.theirs = "A_log",
     .ours = "ssm_a",
     .columns = &Sizes::recurrent_heads,
     .order = Order::value_head_columns,
     .unit = &Sizes::one,
     .change = Change::decay},
    {"norm.weight", "ssm_norm.weight", &Sizes::state},  // does not lack its 1
    {.theirs = "out_proj.weight",
     .ours = "ssm_out.weight",
     .columns = &Sizes::inner,
     .rows = &Sizes::embedding,
     .order = Order::value_head_columns,
     .unit = &Sizes::state},
};
// The rows of a head's queries, then those of its gate.
constexpr Part gated_attention[] = {
    {"self_attn.q_proj.weight", "attn_q.weight", &Sizes::embedding, &Sizes::gated_queries},
    {"self_attn.k_proj.weight", "attn_k.weight", &Sizes::embedding, &Sizes::keys},
    {"self_attn.v_proj.weight", "attn_v.weight", &Sizes::embedding, &Sizes::keys},
    {"self_attn.o_proj.weight", "attn_output.weight", &Sizes::queries, &Sizes::embedding},
};
constexpr Part qwen35_norm_of_feed_forward[] = {
    norm("post_attention_layernorm.weight", "post_attention_norm.weight", &Sizes::embedding),
};
constexpr Block qwen35_blocks[] = {norm_of_attention, gated_attention, head_norms,
                                   qwen35_norm_of_feed_forward, feed_forward};
constexpr Block qwen35_delta_net_blocks[] = {
    norm_of_attention, {delta_net, "linear_attn."}, qwen35_norm_of_feed_forward, feed_forward};
constexpr LayerKind qwen35_layers[] = {{"*", qwen35_blocks}, {"M", qwen35_delta_net_blocks}};
constexpr Aside qwen35_aside[] = {{"model.visual.", "the vision encoder"},
                                  {"mtp.", "layers that predict several tokens"}};

void read_qwen35(const Config& config, Sizes& sizes) {
  require_rope_base(config);
  require_flag(config, "attn_output_gate", true);
  sizes.taps = config.count("linear_conv_kernel_dim");
  sizes.groups = config.count("linear_num_key_heads");
  sizes.recurrent_heads = config.count("linear_num_value_heads");
  sizes.state = config.count("linear_key_head_dim");
  if (config.count("linear_value_head_dim") != sizes.state) {
    throw config.error("linear_value_head_dim", "is not linear_key_head_dim");
  }
  if (sizes.recurrent_heads % sizes.groups != 0) {
    throw config.error("linear_num_key_heads", "does not divide linear_num_value_heads");
  }
  sizes.inner = sizes.recurrent_heads * sizes.state;
  const auto rope = rope_settings(config);
  if (!config.contains("partial_rotary_factor") &&
      !(rope && rope->contains("partial_rotary_factor"))) {
    throw config.error("partial_rotary_factor", "is missing");
  }
}

// Readers know the interval of attention, not a list.
std::uint64_t qwen35_interval(const std::string& kinds) {
  return std::min(kinds.find('*'), kinds.size()) + 1;
}

std::string qwen35_kinds(const Config& config, const Sizes& sizes) {
  const auto given = config.find_count("full_attention_interval");
  std::string kinds;
  if (config.contains("layer_types")) kinds = kinds_from(config, mixer_names, sizes);
  const std::uint64_t interval = kinds.empty() ? given.value_or(4) : qwen35_interval(kinds);
  std::string expected(sizes.layers, 'M');
  for (std::uint64_t i = interval - 1; i < sizes.layers; i += interval) expected[i] = '*';
  if (!kinds.empty() && kinds != expected) {
    throw config.error("layer_types", "is not that every n-th layer is full_attention");
  }
  return expected;
}

void add_qwen35(const Config& config, const Sizes& sizes, const std::string& prefix,
                gguf::Writer& writer) {
  add_recurrence(sizes, prefix, writer);
  writer.add(prefix + ".full_attention_interval",
             static_cast<std::uint32_t>(qwen35_interval(qwen35_kinds(config, sizes))));
  // How many pairs turn by which coordinate of an image; of a text, all are the same.
  const auto pairs = static_cast<std::int32_t>(sizes.rotated / 2);
  const std::int32_t first = (pairs + 2) / 3, second = (pairs + 1) / 3;
  std::array<std::int32_t, 4> sections = {first, second, pairs - first - second, 0};
  const auto rope = rope_settings(config);
  if (const nlohmann::json* list = rope ? rope->find_list("mrope_section") : nullptr) {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      const bool is_count = list->size() == 3 && (*list)[i].is_number_unsigned();
      const std::uint64_t count = is_count ? (*list)[i].get<std::uint64_t>() : sizes.rotated;
      sections[i] = static_cast<std::int32_t>(std::min(count, sizes.rotated));
      sum += sections[i];
    }
    if (sum != pairs) {
      throw rope->error("mrope_section", fmt::format("is not three numbers of {} pairs", pairs));
    }
  }
  writer.add_array(prefix + ".rope.dimension_sections", std::span<const std::int32_t>(sections));
}

constexpr Family qwen35(std::string_view architecture, std::string_view stem) {
  return {.architecture = architecture,
          .ours = "qwen35",
          .layers = qwen35_layers,
          .norms_lack_one = true,
          .stem = stem,
          .aside = qwen35_aside,
          .read_sizes = read_qwen35,
          .kinds = qwen35_kinds,
          .add_keys = add_qwen35};
}

// --- Qwen 3.5 with experts in stacks, gate and up of each in one matrix ---

constexpr Part stacked_experts[] = {
    stacked_gate("mlp.experts.gate_up_proj"),
    stacked_up("mlp.experts.gate_up_proj"),
    expert("mlp.experts.down_proj", "ffn_down_exps.weight", &Sizes::expert, &Sizes::embedding),
};
constexpr Block qwen35moe_blocks[] = {norm_of_attention,           gated_attention, head_norms,
                                      qwen35_norm_of_feed_forward, router,          stacked_experts,
                                      gated_shared_expert};
constexpr Block qwen35moe_delta_net_blocks[] = {
    norm_of_attention, {delta_net, "linear_attn."}, qwen35_norm_of_feed_forward, router,
    stacked_experts,   gated_shared_expert};
constexpr LayerKind qwen35moe_layers[] = {{"*", qwen35moe_blocks},
                                          {"M", qwen35moe_delta_net_blocks}};

void read_qwen35moe(const Config& config, Sizes& sizes) {
  read_qwen35(config, sizes);
  read_qwen_experts(config, true, sizes);
  sizes.shared_expert = config.count("shared_expert_intermediate_size");
  if (sizes.feed_forward == 0) sizes.feed_forward = sizes.expert;  // no layer has another network
}

void add_qwen35moe(const Config& config, const Sizes& sizes, const std::string& prefix,
                   gguf::Writer& writer) {
  add_qwen35(config, sizes, prefix, writer);
  add_experts(sizes, prefix, writer);
}

constexpr Family qwen35moe(std::string_view architecture, std::string_view stem) {
  Family family = qwen35(architecture, stem);
  family.ours = "qwen35moe";
  family.layers = qwen35moe_layers;
  family.read_sizes = read_qwen35moe;
  family.add_keys = add_qwen35moe;
  return family;
}

// --- Qwen 3 Next: the same with experts, and the inputs of a delta net in two matrices ---

constexpr Part joint_delta_net[] = {
    {.theirs = "in_proj_qkvz.weight",
     .ours = "attn_qkv.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::channels,
     .order = Order::key_head_rows,
     .all_rows = &Sizes::delta_input},
    {.theirs = "in_proj_qkvz.weight",
     .ours = "attn_gate.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::inner,
     .order = Order::key_head_rows,
     .all_rows = &Sizes::delta_input,
     .first_row = &Sizes::channels},
    {"in_proj_ba.weight", "ssm_ba.weight", &Sizes::embedding, &Sizes::betas_and_alphas},
    {"conv1d.weight", "ssm_conv1d.weight", &Sizes::taps, &Sizes::channels},
    {"dt_bias", "ssm_dt.bias", &Sizes::recurrent_heads},
    {.theirs = "A_log",
     .ours = "ssm_a",
     .columns = &Sizes::recurrent_heads,
     .change = Change::decay},
    {"norm.weight", "ssm_norm.weight", &Sizes::state},  // does not lack its 1
    {"out_proj.weight", "ssm_out.weight", &Sizes::inner, &Sizes::embedding},
};
constexpr Block qwen3next_blocks[] = {norm_of_attention,           gated_attention, head_norms,
                                      qwen35_norm_of_feed_forward, router,          experts,
                                      gated_shared_expert};
constexpr Block qwen3next_delta_net_blocks[] = {norm_of_attention,
                                                {joint_delta_net, "linear_attn."},
                                                qwen35_norm_of_feed_forward,
                                                router,
                                                experts,
                                                gated_shared_expert};
constexpr LayerKind qwen3next_layers[] = {{"*", qwen3next_blocks},
                                          {"M", qwen3next_delta_net_blocks}};

void read_qwen3next(const Config& config, Sizes& sizes) {
  read_qwen35(config, sizes);
  read_qwen_experts(config, true, sizes);
  sizes.shared_expert = config.count("shared_expert_intermediate_size");
}

void add_qwen3next(const Config& config, const Sizes& sizes, const std::string& prefix,
                   gguf::Writer& writer) {
  add_recurrence(sizes, prefix, writer);
  add_experts(sizes, prefix, writer);
  writer.add(prefix + ".full_attention_interval",
             static_cast<std::uint32_t>(qwen35_interval(qwen35_kinds(config, sizes))));
}

// --- LFM2: gated short convolutions ---

constexpr Part lfm2_norms[] = {
    norm("operator_norm.weight", "attn_norm.weight", &Sizes::embedding),
    norm("ffn_norm.weight", "ffn_norm.weight", &Sizes::embedding),
};
constexpr Part short_convolution[] = {
    {"conv.in_proj.weight", "shortconv.in_proj.weight", &Sizes::embedding, &Sizes::gates_and_value},
    {"conv.conv.weight", "shortconv.conv.weight", &Sizes::taps, &Sizes::embedding},
    {"conv.out_proj.weight", "shortconv.out_proj.weight", &Sizes::embedding, &Sizes::embedding},
};
constexpr Part lfm2_attention[] = {
    {"self_attn.q_proj.weight", "attn_q.weight", &Sizes::embedding, &Sizes::queries},
    {"self_attn.k_proj.weight", "attn_k.weight", &Sizes::embedding, &Sizes::keys},
    {"self_attn.v_proj.weight", "attn_v.weight", &Sizes::embedding, &Sizes::keys},
    {"self_attn.out_proj.weight", "attn_output.weight", &Sizes::queries, &Sizes::embedding},
    norm("self_attn.q_layernorm.weight", "attn_q_norm.weight", &Sizes::head),
    norm("self_attn.k_layernorm.weight", "attn_k_norm.weight", &Sizes::head),
};
constexpr Part lfm2_feed_forward[] = {
    {"feed_forward.w1.weight", "ffn_gate.weight", &Sizes::embedding, &Sizes::feed_forward},
    {"feed_forward.w3.weight", "ffn_up.weight", &Sizes::embedding, &Sizes::feed_forward},
    {"feed_forward.w2.weight", "ffn_down.weight", &Sizes::feed_forward, &Sizes::embedding},
};
constexpr Block lfm2_blocks[] = {lfm2_norms, lfm2_attention, lfm2_feed_forward};
constexpr Block lfm2_convolution_blocks[] = {lfm2_norms, short_convolution, lfm2_feed_forward};
constexpr LayerKind lfm2_layers[] = {{"*", lfm2_blocks}, {"M", lfm2_convolution_blocks}};
constexpr Part lfm2_globals[] = {
    plain_globals[0],
    // The norm after the last layer.
    norm("embedding_norm.weight", "token_embd_norm.weight", &Sizes::embedding),
};

// The width of the network is given as that before it is made smaller and a round number.
void read_lfm2(const Config& config, Sizes& sizes) {
  require_rope_base(config);
  sizes.taps = config.count("conv_L_cache");
  if (const auto width = config.find_count("block_ff_dim")) sizes.feed_forward = *width;
  if (!config.find_flag("block_auto_adjust_ff_dim").value_or(true)) return;
  const std::uint64_t multiple = config.find_count("block_multiple_of").value_or(256);
  const double factor = config.find_number("block_ffn_dim_multiplier").value_or(1);
  const std::uint64_t two_thirds = 2 * sizes.feed_forward / 3;  // a whole number there too
  const double width = std::floor(factor * static_cast<double>(two_thirds));
  if (!(width >= 1 && width < 1u << 31)) {
    throw config.error("block_ffn_dim_multiplier", "gives no width");
  }
  sizes.feed_forward = (static_cast<std::uint64_t>(width) + multiple - 1) / multiple * multiple;
}

std::string lfm2_kinds(const Config& config, const Sizes& sizes) {
  constexpr std::pair<std::string_view, char> names[] = {{"full_attention", '*'}, {"conv", 'M'}};
  const nlohmann::json* indices = config.find_list("full_attn_idxs");
  if (indices == nullptr || config.contains("layer_types")) {
    return kinds_from(config, names, sizes);
  }
  std::string kinds(sizes.layers, 'M');
  for (const nlohmann::json& index : *indices) {
    if (!index.is_number_unsigned() || index.get<std::uint64_t>() >= sizes.layers) {
      throw config.error("full_attn_idxs", "is not a list of layers");
    }
    kinds[index.get<std::size_t>()] = '*';
  }
  return kinds;
}

void add_lfm2(const Config&, const Sizes& sizes, const std::string& prefix, gguf::Writer& writer) {
  writer.add(prefix + ".shortconv.l_cache", static_cast<std::uint32_t>(sizes.taps));
}

// --- LFM2 with experts behind the first layers ---

constexpr Part lfm2_experts[] = {
    {"feed_forward.gate.weight", "ffn_gate_inp.weight", &Sizes::embedding, &Sizes::experts},
    {"feed_forward.expert_bias", "exp_probs_b.bias", &Sizes::experts},
    expert("feed_forward.experts.{}.w1.weight", "ffn_gate_exps.weight", &Sizes::embedding,
           &Sizes::expert),
    expert("feed_forward.experts.{}.w3.weight", "ffn_up_exps.weight", &Sizes::embedding,
           &Sizes::expert),
    expert("feed_forward.experts.{}.w2.weight", "ffn_down_exps.weight", &Sizes::expert,
           &Sizes::embedding),
};
constexpr Block lfm2moe_blocks[] = {lfm2_norms, lfm2_attention, lfm2_experts};
constexpr Block lfm2moe_convolution_blocks[] = {lfm2_norms, short_convolution, lfm2_experts};
// The first layers, which have no experts: f attention, m a convolution
constexpr LayerKind lfm2moe_layers[] = {{"*", lfm2moe_blocks},
                                        {"M", lfm2moe_convolution_blocks},
                                        {"f", lfm2_blocks},
                                        {"m", lfm2_convolution_blocks}};

void read_lfm2moe(const Config& config, Sizes& sizes) {
  require_rope_base(config);
  require_flag(config, "use_expert_bias", true);
  require_flag(config, "norm_topk_prob", true);
  if (config.find_number("routed_scaling_factor").value_or(1) != 1) {
    throw config.error("routed_scaling_factor", "is not 1");
  }
  sizes.taps = config.count("conv_L_cache");
  read_experts(config, "num_experts", "num_experts_per_tok", "moe_intermediate_size", sizes);
  sizes.leading_dense = config.find_whole("num_dense_layers").value_or(0);
}

std::string lfm2moe_kinds(const Config& config, const Sizes& sizes) {
  std::string kinds = lfm2_kinds(config, sizes);
  if (sizes.leading_dense > kinds.size()) {
    throw config.error("num_dense_layers", "is more than all layers");
  }
  for (std::size_t i = 0; i < sizes.leading_dense; ++i) kinds[i] = kinds[i] == '*' ? 'f' : 'm';
  return kinds;
}

void add_lfm2moe(const Config& config, const Sizes& sizes, const std::string& prefix,
                 gguf::Writer& writer) {
  add_lfm2(config, sizes, prefix, writer);
  add_experts(sizes, prefix, writer);
  writer.add(prefix + ".expert_gating_func", std::uint32_t{2});  // the sigmoid
}

// --- RWKV-7, as flash-linear-attention stores it ---

constexpr Part rwkv7_globals[] = {
    {"embeddings.weight", "token_embd.weight", &Sizes::embedding, &Sizes::vocabulary},
    norm("layers.0.pre_norm.weight", "token_embd_norm.weight", &Sizes::embedding),
    norm("layers.0.pre_norm.bias", "token_embd_norm.bias", &Sizes::embedding),
    norm("norm.weight", "output_norm.weight", &Sizes::embedding),
    norm("norm.bias", "output_norm.bias", &Sizes::embedding),
};
constexpr Part rwkv7_older_lerps = {.theirs = "x_x",
                                    .ours = "time_mix_lerp_fused.weight",
                                    .columns = &Sizes::embedding,
                                    .count = &Sizes::mixtures};
constexpr Part rwkv7_mixing[] = {
    {.theirs = "x_{}",
     .ours = "time_mix_lerp_fused.weight",
     .columns = &Sizes::embedding,
     .count = &Sizes::mixtures,
     .letters = "rwkvag",
     .older = &rwkv7_older_lerps},
    {"w_lora.lora.2.bias", "time_mix_w0.weight", &Sizes::embedding},
    {"w_lora.lora.0.weight", "time_mix_w1.weight", &Sizes::embedding, &Sizes::decay_rank},
    {"w_lora.lora.2.weight", "time_mix_w2.weight", &Sizes::decay_rank, &Sizes::embedding},
    {"a_lora.lora.2.bias", "time_mix_a0.weight", &Sizes::embedding},
    {"a_lora.lora.0.weight", "time_mix_a1.weight", &Sizes::embedding, &Sizes::rate_rank},
    {"a_lora.lora.2.weight", "time_mix_a2.weight", &Sizes::rate_rank, &Sizes::embedding},
    {"g_lora.lora.0.weight", "time_mix_g1.weight", &Sizes::embedding, &Sizes::gate_rank},
    {"g_lora.lora.2.weight", "time_mix_g2.weight", &Sizes::gate_rank, &Sizes::embedding},
    {"k_k", "time_mix_k_k.weight", &Sizes::embedding},
    {"k_a", "time_mix_k_a.weight", &Sizes::embedding},
    {.theirs = "r_k",
     .ours = "time_mix_r_k.weight",
     .columns = &Sizes::embedding,
     .form = Form::heads},
    {"r_proj.weight", "time_mix_receptance.weight", &Sizes::embedding, &Sizes::embedding},
    {"k_proj.weight", "time_mix_key.weight", &Sizes::embedding, &Sizes::embedding},
    {"v_proj.weight", "time_mix_value.weight", &Sizes::embedding, &Sizes::embedding},
    {"o_proj.weight", "time_mix_output.weight", &Sizes::embedding, &Sizes::embedding},
    norm("g_norm.weight", "time_mix_ln.weight", &Sizes::embedding),
    norm("g_norm.bias", "time_mix_ln.bias", &Sizes::embedding),
};
constexpr Part rwkv7_value_gate[] = {
    {"v_lora.lora.2.bias", "time_mix_v0.weight", &Sizes::embedding},
    {"v_lora.lora.0.weight", "time_mix_v1.weight", &Sizes::embedding, &Sizes::value_rank},
    {"v_lora.lora.2.weight", "time_mix_v2.weight", &Sizes::value_rank, &Sizes::embedding},
};
// The first layer has none, but llama.cpp insists on one, of the rank of rates.
constexpr Part rwkv7_no_value_gate[] = {
    {"a_lora.lora.2.bias", "time_mix_v0.weight", &Sizes::embedding},
    {"a_lora.lora.0.weight", "time_mix_v1.weight", &Sizes::embedding, &Sizes::rate_rank},
    {"a_lora.lora.2.weight", "time_mix_v2.weight", &Sizes::rate_rank, &Sizes::embedding},
};
constexpr Part rwkv7_layer[] = {
    norm("attn_norm.weight", "attn_norm.weight", &Sizes::embedding),
    norm("attn_norm.bias", "attn_norm.bias", &Sizes::embedding),
    norm("ffn_norm.weight", "attn_norm_2.weight", &Sizes::embedding),
    norm("ffn_norm.bias", "attn_norm_2.bias", &Sizes::embedding),
    {"ffn.x_k", "channel_mix_lerp_k.weight", &Sizes::embedding},
    {"ffn.key.weight", "channel_mix_key.weight", &Sizes::embedding, &Sizes::feed_forward},
    {"ffn.value.weight", "channel_mix_value.weight", &Sizes::feed_forward, &Sizes::embedding},
};
constexpr Block rwkv7_first_blocks[] = {
    {rwkv7_mixing, "attn."}, {rwkv7_no_value_gate, "attn."}, rwkv7_layer};
constexpr Block rwkv7_blocks[] = {
    {rwkv7_mixing, "attn."}, {rwkv7_value_gate, "attn."}, rwkv7_layer};
// f the first layer
constexpr LayerKind rwkv7_layers[] = {{"f", rwkv7_first_blocks}, {"M", rwkv7_blocks}};
constexpr Aside rwkv7_aside[] = {
    {"model.layers.0.attn.v_lora.", "a gate of the first layer, which it does not use"}};

void read_rwkv7(const Config& config, Sizes& sizes) {
  for (const char* key : {"norm_first", "norm_bias"}) require_flag(config, key, true);
  if (config.contains("attn")) {
    throw config.error("attn", "is not null: layers with attention are not supported");
  }
  if (config.contains("value_dim") && same_in_layers(config, "value_dim") != sizes.embedding) {
    throw config.error("value_dim", "is not hidden_size");
  }
  // Of the norm behind the heads; a GGUF file has no key for it.
  const double epsilon = config.number("norm_eps") * static_cast<double>(sizes.head);
  if (std::abs(epsilon - 64e-5) > 1e-8) {
    throw config.error("norm_eps", "times head_dim is not 64e-5, the only one that is supported");
  }
  if (sizes.feed_forward == 0) {
    const double ratio = config.find_number("hidden_ratio").value_or(4);
    const double width = std::floor(ratio * static_cast<double>(sizes.embedding));
    if (!(width >= 1 && width < 1u << 31)) throw config.error("hidden_ratio", "gives no width");
    sizes.feed_forward = (static_cast<std::uint64_t>(width) + 31) / 32 * 32;
  }
  sizes.decay_rank = config.count("decay_low_rank_dim");
  sizes.rate_rank = config.count("a_low_rank_dim");
  sizes.value_rank = config.count("v_low_rank_dim");
  sizes.gate_rank = config.count("gate_low_rank_dim");
  sizes.positions = 1 << 20;  // there is no limit; the length in config.json was for training
}

std::string rwkv7_kinds(const Config&, const Sizes& sizes) {
  std::string kinds(sizes.layers, 'M');
  kinds.front() = 'f';
  return kinds;
}

void add_rwkv7(const Config&, const Sizes& sizes, const std::string& prefix, gguf::Writer& writer) {
  const auto add = [&](const char* key, std::uint64_t value) {
    writer.add(prefix + key, static_cast<std::uint32_t>(value));
  };
  add(".wkv.head_size", sizes.head);
  add(".attention.decay_lora_rank", sizes.decay_rank);
  add(".attention.iclr_lora_rank", sizes.rate_rank);
  add(".attention.value_residual_mix_lora_rank", sizes.value_rank);
  add(".attention.gate_lora_rank", sizes.gate_rank);
}

constexpr Family recurrent_family_table[] = {
    qwen35("Qwen3_5ForCausalLM", "model."),
    qwen35("Qwen3_5ForConditionalGeneration", "model.language_model."),
    qwen35moe("Qwen3_5MoeForCausalLM", "model."),
    qwen35moe("Qwen3_5MoeForConditionalGeneration", "model.language_model."),
    {.architecture = "Qwen3NextForCausalLM",
     .ours = "qwen3next",
     .layers = qwen3next_layers,
     .norms_lack_one = true,
     .aside = qwen35_aside,
     .read_sizes = read_qwen3next,
     .kinds = qwen35_kinds,
     .add_keys = add_qwen3next},
    {.architecture = "Lfm2ForCausalLM",
     .ours = "lfm2",
     .layers = lfm2_layers,
     .epsilon_key = "norm_eps",
     .globals = lfm2_globals,
     .read_sizes = read_lfm2,
     .kinds = lfm2_kinds,
     .fit_layer = fit_recurrent_layer,
     .add_keys = add_lfm2},
    {.architecture = "Lfm2MoeForCausalLM",
     .ours = "lfm2moe",
     .layers = lfm2moe_layers,
     .epsilon_key = "norm_eps",
     .globals = lfm2_globals,
     .read_sizes = read_lfm2moe,
     .kinds = lfm2moe_kinds,
     .fit_layer = fit_recurrent_layer,
     .add_keys = add_lfm2moe},
    {.architecture = "RWKV7ForCausalLM",
     .ours = "rwkv7",
     .layers = rwkv7_layers,
     .activation = "sqrelu",
     .epsilon_key = "norm_eps",
     .subtracts_means = true,
     .globals = rwkv7_globals,
     .aside = rwkv7_aside,
     .rotates = false,
     .has_attention = false,
     .read_sizes = read_rwkv7,
     .kinds = rwkv7_kinds,
     .add_keys = add_rwkv7},
};

}  // namespace

std::span<const Family> recurrent_families() {
  return recurrent_family_table;
}

}  // namespace sluice::convert
