// Families with Mamba-2 (core/model/blocks/mamba2.h): Granite 4 hybrids, Nemotron-H, Falcon-H1; and
// Jamba, with Mamba.
#include <array>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/convert/families.h"
#include "core/convert/family_tables.h"
#include "core/text/quoted.h"

namespace sluice::convert {
namespace {

constexpr Part mamba2[] = {
    {"conv1d.weight", "ssm_conv1d.weight", &Sizes::taps, &Sizes::channels},
    {"conv1d.bias", "ssm_conv1d.bias", &Sizes::channels},
    {"dt_bias", "ssm_dt.bias", &Sizes::recurrent_heads},
    {.theirs = "A_log",
     .ours = "ssm_a",
     .columns = &Sizes::one,
     .rows = &Sizes::recurrent_heads,
     .change = Change::decay},
    {"D", "ssm_d", &Sizes::one, &Sizes::recurrent_heads},
    {.theirs = "norm.weight",
     .ours = "ssm_norm.weight",
     .columns = &Sizes::group,
     .rows = &Sizes::groups,
     .form = Form::flat,
     .when = &Sizes::has_mixer_norm},
};
constexpr Part mamba2_projections[] = {
    {"in_proj.weight", "ssm_in.weight", &Sizes::embedding, &Sizes::mixer_input},
    {"out_proj.weight", "ssm_out.weight", &Sizes::inner, &Sizes::embedding},
};

void check_mamba2(const Config& config, const Sizes& sizes) {
  if (sizes.recurrent_heads % sizes.groups != 0 || sizes.inner % sizes.recurrent_heads != 0) {
    throw config.error("hidden_size",
                       fmt::format("gives Mamba {} values, {} heads and {} groups, "
                                   "which do not divide each other",
                                   sizes.inner, sizes.recurrent_heads, sizes.groups));
  }
  const nlohmann::json* limit = config.find_list("time_step_limit");
  if (limit == nullptr) return;
  const bool is_open =
      limit->size() == 2 && (*limit)[0] == 0 && !(*limit)[1].is_number();  // infinite
  if (!is_open) throw config.error("time_step_limit", "limits time steps, which is not supported");
}

// --- Granite 4: "shared" is the only network where there are no experts ---

constexpr Part shared_feed_forward[] = {
    {.theirs = "shared_mlp.input_linear.weight",
     .ours = "ffn_gate.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::feed_forward,
     .all_rows = &Sizes::fused_feed_forward},
    {.theirs = "shared_mlp.input_linear.weight",
     .ours = "ffn_up.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::feed_forward,
     .all_rows = &Sizes::fused_feed_forward,
     .first_row = &Sizes::feed_forward},
    {"shared_mlp.output_linear.weight", "ffn_down.weight", &Sizes::feed_forward, &Sizes::embedding},
};
constexpr Block granite4_blocks[] = {norm_of_attention, attention, norm_of_feed_forward,
                                     shared_feed_forward};
constexpr Block granite4_mamba_blocks[] = {norm_of_attention,
                                           {mamba2_projections, "mamba."},
                                           {mamba2, "mamba."},
                                           norm_of_feed_forward,
                                           shared_feed_forward};
constexpr LayerKind granite4_layers[] = {{"*", granite4_blocks}, {"M", granite4_mamba_blocks}};

bool rotates(const Config& config) {
  return config.find_text("position_embedding_type").value_or("") == "rope";
}

// Some are called hybrids and are not; readers know them as Granite.
bool has_only_attention(const Config& config) {
  const nlohmann::json* list = layer_list(config);
  if (list == nullptr) return false;
  for (const nlohmann::json& one : *list) {
    if (one != "attention" && one != "full_attention") return false;
  }
  return true;
}

void read_granite4(const Config& config, Sizes& sizes) {
  if (config.find_whole("num_local_experts").value_or(0) != 0) {
    throw config.error("num_local_experts", "is not 0; mixtures of experts cannot be imported");
  }
  sizes.feed_forward = config.count("shared_intermediate_size");
  if (has_only_attention(config)) {
    if (!rotates(config)) throw config.error("position_embedding_type", "is not rope");
    return;
  }
  sizes.taps = config.count("mamba_d_conv");
  sizes.inner = std::uint64_t{config.count("mamba_expand")} * sizes.embedding;
  sizes.recurrent_heads = config.count("mamba_n_heads");
  sizes.state = config.count("mamba_d_state");
  sizes.groups = config.count("mamba_n_groups");
  sizes.has_mixer_norm = 1;
  check_mamba2(config, sizes);
}

std::string granite4_kinds(const Config& config, const Sizes& sizes) {
  return kinds_from(config, mixer_names, sizes);
}

void add_granitehybrid(const Config& config, const Sizes& sizes, const std::string& prefix,
                       gguf::Writer& writer) {
  add_granite_scales(config, sizes, prefix, writer);
  add_recurrence(sizes, prefix, writer);
  writer.add(prefix + ".rope.scaling.finetuned", rotates(config));
}

// --- Nemotron-H: one block in a layer ---

constexpr Part nemotron_norm[] = {norm("norm.weight", "attn_norm.weight", &Sizes::embedding)};
constexpr Part nemotron_attention[] = {
    {"q_proj.weight", "attn_q.weight", &Sizes::embedding, &Sizes::queries},
    {"k_proj.weight", "attn_k.weight", &Sizes::embedding, &Sizes::keys},
    {"v_proj.weight", "attn_v.weight", &Sizes::embedding, &Sizes::keys},
    {"o_proj.weight", "attn_output.weight", &Sizes::queries, &Sizes::embedding},
};
constexpr Part nemotron_feed_forward[] = {
    {"up_proj.weight", "ffn_up.weight", &Sizes::embedding, &Sizes::feed_forward},
    {"down_proj.weight", "ffn_down.weight", &Sizes::feed_forward, &Sizes::embedding},
};
constexpr Block nemotron_attention_blocks[] = {nemotron_norm, {nemotron_attention, "mixer."}};
constexpr Block nemotron_mamba_blocks[] = {
    nemotron_norm, {mamba2_projections, "mixer."}, {mamba2, "mixer."}};
constexpr Block nemotron_feed_forward_blocks[] = {nemotron_norm, {nemotron_feed_forward, "mixer."}};
constexpr LayerKind nemotron_layers[] = {{"*", nemotron_attention_blocks},
                                         {"M", nemotron_mamba_blocks},
                                         {"-", nemotron_feed_forward_blocks}};
constexpr Part nemotron_globals[] = {
    {"embeddings.weight", "token_embd.weight", &Sizes::embedding, &Sizes::vocabulary},
    norm("norm_f.weight", "output_norm.weight", &Sizes::embedding),
};
constexpr Aside nemotron_aside[] = {{"mtp.", "layers that predict several tokens"}};

void read_nemotron(const Config& config, Sizes& sizes) {
  require_text(config, "mamba_hidden_act", "silu");
  sizes.taps = config.count("conv_kernel");
  sizes.recurrent_heads = config.count("mamba_num_heads");
  sizes.inner = sizes.recurrent_heads * config.count("mamba_head_dim");
  sizes.state = config.count("ssm_state_size");
  sizes.groups = config.count("n_groups");
  sizes.has_mixer_norm = 1;
  check_mamba2(config, sizes);
}

std::string nemotron_kinds(const Config& config, const Sizes& sizes) {
  const auto pattern = config.find_text("hybrid_override_pattern");
  if (!pattern) {
    constexpr std::array<std::pair<std::string_view, char>, 5> names = {{{"mamba", 'M'},
                                                                         {"linear_attention", 'M'},
                                                                         {"attention", '*'},
                                                                         {"full_attention", '*'},
                                                                         {"mlp", '-'}}};
    return kinds_from(config, names, sizes);
  }
  if (pattern->size() != sizes.layers || pattern->find_first_not_of("M*-") != std::string::npos) {
    throw config.error("hybrid_override_pattern",
                       fmt::format("is {}, not one of M, * and - for each of {} layers",
                                   text::quoted(*pattern), sizes.layers));
  }
  return *pattern;
}

void fit_nemotron_layer(const Config&, char kind, Sizes& sizes) {
  if (kind != '*') sizes.key_heads = 0;
  if (kind != '-') sizes.feed_forward = 0;
}

void add_nemotron(const Config& config, const Sizes& sizes, const std::string& prefix,
                  gguf::Writer& writer) {
  add_recurrence(sizes, prefix, writer);
  writer.add(prefix + ".rope.scaling.finetuned", false);
  // Of no use, but llama.cpp insists on it.
  writer.add(prefix + ".attention.layer_norm_epsilon", config.number("layer_norm_epsilon"));
}

// --- Falcon-H1: attention and Mamba-2 side by side. A GGUF file has the multipliers in weights ---

float multiplier(const Config& config, const char* key) {
  return config.find_number(key).value_or(1);
}

float listed_multiplier(const Config& config, const char* key, std::size_t count,
                        std::size_t index) {
  const nlohmann::json* list = config.find_list(key);
  if (list == nullptr) return 1;
  const bool is_one = list->size() == count && (*list)[index].is_number();
  const float value = is_one ? (*list)[index].get<float>() : NAN;
  if (!std::isfinite(value)) {
    throw config.error(key, fmt::format("is not a list of {} numbers", count));
  }
  return value;
}

std::vector<float> falcon_embedding(const Config& config, const Sizes&) {
  return {multiplier(config, "embedding_multiplier")};
}
std::vector<float> falcon_head(const Config& config, const Sizes&) {
  return {multiplier(config, "lm_head_multiplier")};
}
std::vector<float> falcon_attention_input(const Config& config, const Sizes&) {
  return {multiplier(config, "attention_in_multiplier")};
}
std::vector<float> falcon_keys(const Config& config, const Sizes&) {
  return {multiplier(config, "attention_in_multiplier") * multiplier(config, "key_multiplier")};
}
std::vector<float> falcon_attention_output(const Config& config, const Sizes&) {
  return {multiplier(config, "attention_out_multiplier")};
}
std::vector<float> falcon_gate(const Config& config, const Sizes&) {
  return {listed_multiplier(config, "mlp_multipliers", 2, 0)};
}
std::vector<float> falcon_down(const Config& config, const Sizes&) {
  return {listed_multiplier(config, "mlp_multipliers", 2, 1)};
}
std::vector<float> falcon_mixer_output(const Config& config, const Sizes&) {
  return {multiplier(config, "ssm_out_multiplier")};
}

// The gate, x, B, C and the time steps have a multiplier each.
std::vector<float> falcon_mixer_input(const Config& config, const Sizes& sizes) {
  const std::uint64_t shared = sizes.groups * sizes.state;
  const std::uint64_t rows[] = {sizes.inner, sizes.inner, shared, shared, sizes.recurrent_heads};
  std::vector<float> scales;
  for (std::size_t i = 0; i < std::size(rows); ++i) {
    const float scale = listed_multiplier(config, "ssm_multipliers", std::size(rows), i) *
                        multiplier(config, "ssm_in_multiplier");
    scales.insert(scales.end(), rows[i], scale);
  }
  return scales;
}

constexpr Part falcon_attention[] = {
    {.theirs = "self_attn.q_proj.weight",
     .ours = "attn_q.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::queries,
     .scales = falcon_attention_input},
    {.theirs = "self_attn.k_proj.weight",
     .ours = "attn_k.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::keys,
     .scales = falcon_keys},
    {.theirs = "self_attn.v_proj.weight",
     .ours = "attn_v.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::keys,
     .scales = falcon_attention_input},
    {.theirs = "self_attn.o_proj.weight",
     .ours = "attn_output.weight",
     .columns = &Sizes::queries,
     .rows = &Sizes::embedding,
     .scales = falcon_attention_output},
};
constexpr Part falcon_projections[] = {
    {.theirs = "in_proj.weight",
     .ours = "ssm_in.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::mixer_input,
     .scales = falcon_mixer_input},
    {.theirs = "out_proj.weight",
     .ours = "ssm_out.weight",
     .columns = &Sizes::inner,
     .rows = &Sizes::embedding,
     .scales = falcon_mixer_output},
};
constexpr Part falcon_feed_forward[] = {
    norm("pre_ff_layernorm.weight", "ffn_norm", &Sizes::embedding),  // in all files without suffix
    {.theirs = "feed_forward.gate_proj.weight",
     .ours = "ffn_gate.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::feed_forward,
     .scales = falcon_gate},
    {"feed_forward.up_proj.weight", "ffn_up.weight", &Sizes::embedding, &Sizes::feed_forward},
    {.theirs = "feed_forward.down_proj.weight",
     .ours = "ffn_down.weight",
     .columns = &Sizes::feed_forward,
     .rows = &Sizes::embedding,
     .scales = falcon_down},
};
constexpr Block falcon_blocks[] = {norm_of_attention,
                                   falcon_attention,
                                   {falcon_projections, "mamba."},
                                   {mamba2, "mamba."},
                                   falcon_feed_forward};
constexpr LayerKind falcon_layers[] = {{"*", falcon_blocks}};
constexpr Part falcon_globals[] = {
    {.theirs = "embed_tokens.weight",
     .ours = "token_embd.weight",
     .columns = &Sizes::embedding,
     .rows = &Sizes::vocabulary,
     .scales = falcon_embedding},
    norm("final_layernorm.weight", "output_norm.weight", &Sizes::embedding),
};

void read_falcon(const Config& config, Sizes& sizes) {
  require_rope_base(config);
  sizes.taps = config.count("mamba_d_conv");
  sizes.inner = config.count("mamba_d_ssm");
  sizes.recurrent_heads = config.count("mamba_n_heads");
  sizes.state = config.count("mamba_d_state");
  sizes.groups = config.count("mamba_n_groups");
  sizes.has_mixer_norm = config.find_flag("mamba_rms_norm").value_or(false) ? 1 : 0;
  if (sizes.has_mixer_norm != 0 && config.find_flag("mamba_norm_before_gate").value_or(true)) {
    throw config.error("mamba_norm_before_gate", "is not false");
  }
  check_mamba2(config, sizes);
}

void add_falcon(const Config&, const Sizes& sizes, const std::string& prefix,
                gguf::Writer& writer) {
  add_recurrence(sizes, prefix, writer);
}

// --- Jamba: attention in some layers, experts in some; `recurrent_heads` are the rank of steps ---

constexpr Part mamba[] = {
    {"in_proj.weight", "ssm_in.weight", &Sizes::embedding, &Sizes::values_and_gates},
    {"conv1d.weight", "ssm_conv1d.weight", &Sizes::taps, &Sizes::inner},
    {"conv1d.bias", "ssm_conv1d.bias", &Sizes::inner},
    {"x_proj.weight", "ssm_x.weight", &Sizes::inner, &Sizes::steps_and_keys},
    norm("dt_layernorm.weight", "ssm_dt_norm.weight", &Sizes::recurrent_heads),
    norm("b_layernorm.weight", "ssm_b_norm.weight", &Sizes::state),
    norm("c_layernorm.weight", "ssm_c_norm.weight", &Sizes::state),
    {"dt_proj.weight", "ssm_dt.weight", &Sizes::recurrent_heads, &Sizes::inner},
    {"dt_proj.bias", "ssm_dt.bias", &Sizes::inner},
    {.theirs = "A_log",
     .ours = "ssm_a",
     .columns = &Sizes::state,
     .rows = &Sizes::inner,
     .change = Change::decay},
    {"D", "ssm_d", &Sizes::inner},
    {"out_proj.weight", "ssm_out.weight", &Sizes::inner, &Sizes::embedding},
};
constexpr Part jamba_norm[] = {
    norm("pre_ff_layernorm.weight", "ffn_norm.weight", &Sizes::embedding)};
constexpr Part jamba_network[] = {
    {"feed_forward.gate_proj.weight", "ffn_gate.weight", &Sizes::embedding, &Sizes::feed_forward},
    {"feed_forward.up_proj.weight", "ffn_up.weight", &Sizes::embedding, &Sizes::feed_forward},
    {"feed_forward.down_proj.weight", "ffn_down.weight", &Sizes::feed_forward, &Sizes::embedding},
};
constexpr Part jamba_experts[] = {
    {"feed_forward.router.weight", "ffn_gate_inp.weight", &Sizes::embedding, &Sizes::experts},
    expert("feed_forward.experts.{}.gate_proj.weight", "ffn_gate_exps.weight", &Sizes::embedding,
           &Sizes::expert),
    expert("feed_forward.experts.{}.up_proj.weight", "ffn_up_exps.weight", &Sizes::embedding,
           &Sizes::expert),
    expert("feed_forward.experts.{}.down_proj.weight", "ffn_down_exps.weight", &Sizes::expert,
           &Sizes::embedding),
};
constexpr Block jamba_blocks[] = {norm_of_attention, attention, jamba_norm, jamba_network};
constexpr Block jamba_mixture_blocks[] = {norm_of_attention, attention, jamba_norm, jamba_experts};
constexpr Block jamba_mamba_blocks[] = {
    norm_of_attention, {mamba, "mamba."}, jamba_norm, jamba_network};
constexpr Block jamba_mamba_mixture_blocks[] = {
    norm_of_attention, {mamba, "mamba."}, jamba_norm, jamba_experts};
// With experts: e attention, m Mamba
constexpr LayerKind jamba_layers[] = {{"*", jamba_blocks},
                                      {"e", jamba_mixture_blocks},
                                      {"M", jamba_mamba_blocks},
                                      {"m", jamba_mamba_mixture_blocks}};
constexpr Part jamba_globals[] = {
    plain_globals[0],
    norm("final_layernorm.weight", "output_norm.weight", &Sizes::embedding),
};

void read_jamba(const Config& config, Sizes& sizes) {
  require_flag(config, "mamba_conv_bias", true);
  require_flag(config, "mamba_proj_bias", false);
  sizes.taps = config.count("mamba_d_conv");
  sizes.state = config.count("mamba_d_state");
  sizes.inner = sizes.embedding * config.count("mamba_expand");
  sizes.recurrent_heads = config.count("mamba_dt_rank");
  read_experts(config, "num_experts", "num_experts_per_tok", nullptr, sizes);
}

std::string jamba_kinds(const Config& config, const Sizes& sizes) {
  const auto is_in = [&](std::uint64_t layer, const char* period, const char* offset) {
    const std::uint32_t first = config.find_whole(offset).value_or(0);
    return layer % config.count(period) == first;
  };
  std::string kinds;
  for (std::uint64_t i = 0; i < sizes.layers; ++i) {
    const bool attends = is_in(i, "attn_layer_period", "attn_layer_offset");
    const bool is_mixture =
        sizes.experts > 1 && is_in(i, "expert_layer_period", "expert_layer_offset");
    kinds += attends ? (is_mixture ? 'e' : '*') : is_mixture ? 'm' : 'M';
  }
  return kinds;
}

void add_jamba(const Config&, const Sizes& sizes, const std::string& prefix, gguf::Writer& writer) {
  add_recurrence(sizes, prefix, writer);
  if (sizes.experts == 1) return;
  writer.add(prefix + ".expert_count", static_cast<std::uint32_t>(sizes.experts));
  writer.add(prefix + ".expert_used_count", static_cast<std::uint32_t>(sizes.experts_used));
}

constexpr Family mamba_family_table[] = {
    {.architecture = "JambaForCausalLM",
     .ours = "jamba",
     .layers = jamba_layers,
     .globals = jamba_globals,
     .rotates = false,
     .read_sizes = read_jamba,
     .kinds = jamba_kinds,
     .fit_layer = fit_recurrent_layer,
     .add_keys = add_jamba},
    {.architecture = "GraniteMoeHybridForCausalLM",
     .ours = "granite",
     .layers = granite4_layers,
     .interleaves_heads = true,
     .applies = has_only_attention,
     .read_sizes = read_granite4,
     .add_keys = add_granite_scales},
    {.architecture = "GraniteMoeHybridForCausalLM",
     .ours = "granitehybrid",
     .layers = granite4_layers,
     .interleaves_heads = true,
     .read_sizes = read_granite4,
     .kinds = granite4_kinds,
     .fit_layer = fit_recurrent_layer,
     .add_keys = add_granitehybrid},
    {.architecture = "NemotronHForCausalLM",
     .ours = "nemotron_h",
     .layers = nemotron_layers,
     .activation_key = "mlp_hidden_act",
     .activation = "relu2",
     .epsilon_key = "layer_norm_epsilon",
     .stem = "backbone.",
     .globals = nemotron_globals,
     .aside = nemotron_aside,
     .read_sizes = read_nemotron,
     .kinds = nemotron_kinds,
     .fit_layer = fit_nemotron_layer,
     .add_keys = add_nemotron},
    {.architecture = "FalconH1ForCausalLM",
     .ours = "falcon-h1",
     .layers = falcon_layers,
     .globals = falcon_globals,
     .head = {.theirs = "lm_head.weight",
              .ours = "output.weight",
              .columns = &Sizes::embedding,
              .rows = &Sizes::vocabulary,
              .scales = falcon_head},
     .read_sizes = read_falcon,
     .add_keys = add_falcon},
};

}  // namespace

std::span<const Family> mamba_families() {
  return mamba_family_table;
}

}  // namespace sluice::convert
