// What files of one architecture say in different ways, or leave unsaid: a table of pairs of files
// that mean the same model and must give the same bits, one of pairs that do not, and files that
// would give a wrong text and must be refused.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/synth/shapes.h"
#include "core/synth/synthetic_model.h"
#include "tests/catch.h"
#include "tests/model_content.h"
#include "tests/sanitized.h"
#include "tests/small_shapes.h"
#include "tests/temporary_folder.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
using Change = std::function<void(Content&)>;

const Change as_it_is = [](Content&) {};

template <typename T>
Change set(const char* key, T value) {
  return [=](Content& content) { content.set(key, value); };
}

template <typename T>
Change list(const char* key, std::vector<T> values) {
  return [=](Content& content) { content.set_all(key, values); };
}

Change drop(const char* key) {
  return [=](Content& content) { content.remove_key(key); };
}

// Removes tensors whose names begin alike.
Change without(const std::string& beginning, const std::vector<std::string>& ends) {
  return [=](Content& content) {
    for (const std::string& end : ends) content.remove(beginning + end);
  };
}

Change both(const Change& a, const Change& b) {
  return [=](Content& content) {
    a(content);
    b(content);
  };
}

const Change without_ngrams =
    both(without("blk.1.ple_", {"key.weight", "value.weight", "norm_key.weight",
                                "norm_query.weight", "norm_conv.weight", "conv1d.weight"}),
         without("per_layer_", {"token_embd.weight"}));

// Two files of a shape.
struct Pair {
  const char* what;
  const char* shape;
  Change first, second;
};

// Writes small models, and changes them.
class Models {
 public:
  std::vector<float> logits(const std::string& shape, const Change& change) {
    return logits_of(write(shape, change));
  }

  std::string refusal(const std::string& shape, const Change& change) {
    try {
      logits(shape, change);
    } catch (const ModelError& error) {
      return error.what();
    }
    return "accepted";
  }

  // What the engine notes about such a file.
  std::vector<std::string> notes(const std::string& shape, const Change& change) {
    return engine::Engine::open(write(shape, change), options_for_logits())->facts().notes;
  }

 private:
  fs::path write(const std::string& shape, const Change& change) {
    const fs::path original = folder_.path() / (shape + ".gguf");
    if (!fs::exists(original)) {
      synth::SyntheticModel(small_shape(shape), "F32").write(original, 3, {});
    }
    Content content(original);
    change(content);
    const fs::path changed = folder_.path() / "changed.gguf";
    content.write(changed);
    return changed;
  }

  TemporaryFolder folder_;
};

// What the names of a block's tensors begin with.
std::string block_name(std::size_t block) {
  return fmt::format("blk.{}.", block);
}

Change in_all_blocks(const std::function<void(Content&, const std::string& block)>& change) {
  return [=](Content& content) {
    const auto exists = [&](const std::string& block) {
      return std::ranges::any_of(
          content.tensors, [&](const Stored& tensor) { return tensor.name.starts_with(block); });
    };
    for (std::size_t i = 0; exists(block_name(i)); ++i) change(content, block_name(i));
  };
}

// Puts tensors of a block below each other, as one.
void stack(Content& content, const std::string& block, const std::vector<std::string>& parts,
           const std::string& name) {
  if (!content.has(block + parts.front())) return;
  Stored all = content.find(block + parts.front());
  all.name = block + name;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const Stored& part = content.find(block + parts[i]);
    all.dims.back() += part.dims.back();
    all.bytes.insert(all.bytes.end(), part.bytes.begin(), part.bytes.end());
  }
  for (const std::string& part : parts) content.remove(block + part);
  content.tensors.push_back(all);
}

const Change fuse_attention = in_all_blocks([](Content& content, const std::string& block) {
  for (const std::string kind : {".weight", ".bias"}) {
    stack(content, block, {"attn_q" + kind, "attn_k" + kind, "attn_v" + kind}, "attn_qkv" + kind);
  }
});

const Change fuse_feed_forward = in_all_blocks([](Content& content, const std::string& block) {
  stack(content, block, {"ffn_gate.weight", "ffn_up.weight"}, "ffn_up.weight");
});

// A block at the end that predicts further tokens: a copy of block `like` and some more.
Change add_predicting_block(const std::string& architecture, std::uint32_t blocks,
                            std::size_t like) {
  return [=](Content& content) {
    const std::string from = block_name(like), to = block_name(blocks);
    const std::vector<Stored> before = content.tensors;
    for (Stored tensor : before) {
      if (!tensor.name.starts_with(from)) continue;
      tensor.name = replaced(tensor.name, from, to);
      content.tensors.push_back(tensor);
    }
    content.add_values(to + "nextn.enorm.weight", {3}, {1, 2, 3});
    content.set(architecture + ".block_count", blocks + 1);
    content.set(architecture + ".nextn_predict_layers", std::uint32_t{1});
  };
}

Change add(const char* name) {
  return [=](Content& content) { content.add_values(name, {2}, {NAN, 1}); };
}

// Values that must not matter.
Change spoil(const std::vector<std::string>& names) {
  return [=](Content& content) {
    for (const std::string& name : names) std::ranges::fill(content.values(name), NAN);
  };
}

Change rename(const std::string& from, const std::string& to) {
  return in_all_blocks([=](Content& content, const std::string& block) {
    if (content.has(block + from)) content.find(block + from).name = block + to;
  });
}

// Vectors as BF16, after they have been rounded to it, or in F32 all the same.
Change round_vectors(bool stores_them) {
  return [=](Content& content) {
    for (Stored& tensor : content.tensors) {
      if (tensor.dims.size() != 1) continue;
      std::vector<std::byte> halves;
      for (float& value : content.values(tensor.name)) {
        auto bits = std::bit_cast<std::uint32_t>(value);
        bits &= 0xFFFF0000u;
        value = std::bit_cast<float>(bits);
        for (const int shift : {16, 24}) {
          halves.push_back(static_cast<std::byte>(bits >> shift & 0xFF));
        }
      }
      if (!stores_them) continue;
      constexpr std::uint32_t bf16 = 30;
      tensor.type = bf16;
      tensor.bytes = halves;
    }
  };
}

// Everything that is about keys.
using U = std::uint32_t;
using I = std::int32_t;
const std::vector<Pair> same_metadata = {
    {"any width of integers", "tiny-qwen3", set("qwen3.block_count", std::uint64_t{3}),
     set("qwen3.embedding_length", I{64})},
    {"one number, or one of each layer", "tiny-qwen3", as_it_is,
     both(list<U>("qwen3.attention.head_count", {4, 4, 4}),
          both(list<U>("qwen3.attention.head_count_kv", {2, 2, 2, 2}),
               list<I>("qwen3.feed_forward_length", {128, 128, 128})))},
    {"layers without heads, as unsigned numbers", "tiny-lfm2", as_it_is,
     list<U>("lfm2.attention.head_count_kv", {0, 2, 0, 0, 2, 0})},
    {"a pattern of windows in numbers", "tiny-gemma4", as_it_is,
     list<I>("gemma4.attention.sliding_window_pattern", {1, 0, 1, 1, 0, 1, 1, 0})},
    {"a period, and what it stands for", "tiny-olmo3", as_it_is,
     set("olmo2.attention.sliding_window_pattern", U{4})},
    {"the period of gpt-oss", "tiny-gpt-oss", as_it_is,
     list<U>("gpt-oss.attention.sliding_window_pattern", {1, 0, 1, 0})},
    {"the base of layers with a window", "tiny-gpt-oss", as_it_is,
     set("gpt-oss.rope.freq_base_swa", 1e4f)},
    {"Gemma 3 without an epsilon", "tiny-gemma3",
     set("gemma3.attention.layer_norm_rms_epsilon", 1e-6f),
     drop("gemma3.attention.layer_norm_rms_epsilon")},
    {"Gemma 3's bases, by their defaults", "tiny-gemma3", set("gemma3.rope.freq_base_swa", 1e4f),
     drop("gemma3.rope.freq_base")},
    {"Gemma 3's bases, by other names", "tiny-gemma3",
     both(set("gemma3.rope.freq_base", 7e5f), set("gemma3.rope.freq_base_swa", 3e3f)),
     both(drop("gemma3.rope.freq_base"), both(set("gemma3.rope.global.freq_base", 7e5f),
                                              set("gemma3.rope.local.freq_base", 3e3f)))},
    {"no window in Gemma 3, and a window of 0", "tiny-gemma3",
     drop("gemma3.attention.sliding_window"), set("gemma3.attention.sliding_window", U{0})},
    {"Gemma 3 without a window, and with one that is longer than the text and rotates alike",
     "tiny-gemma3",
     both(set("gemma3.rope.scaling.factor", 1.f), drop("gemma3.attention.sliding_window")),
     both(set("gemma3.rope.scaling.factor", 1.f),
          both(set("gemma3.attention.sliding_window", U{1000}),
               set("gemma3.rope.freq_base_swa", 1e6f)))},
    {"the rotation of Gemma 3's windows, where there is none", "tiny-gemma3",
     drop("gemma3.attention.sliding_window"),
     both(drop("gemma3.attention.sliding_window"), set("gemma3.rope.freq_base_swa", 3e3f))},
    {"no window, as 0", "tiny-lfm2", as_it_is, set("lfm2.attention.sliding_window", U{0})},
    {"no window, as 0", "tiny-olmo2", as_it_is, set("olmo2.attention.sliding_window", U{0})},
    {"optional counts, as 0", "tiny-qwen3", as_it_is,
     set("qwen3.rope.scaling.original_context_length", U{0})},
    {"optional counts, as 0", "tiny-deepseek2", as_it_is,
     both(set("deepseek2.expert_group_count", U{0}),
          set("deepseek2.expert_group_used_count", U{0}))},
    {"a period of 0: all layers", "tiny-gpt-oss",
     list<U>("gpt-oss.attention.sliding_window_pattern", {1, 1, 1, 1}),
     set("gpt-oss.attention.sliding_window_pattern", U{0})},
    {"a temperature that begins behind the text", "tiny-deepseek2", as_it_is,
     both(set("deepseek2.attention.temperature_scale", 0.5f),
          set("deepseek2.attention.temperature_length", U{1000}))},
    {"the length of a temperature, by the original context", "tiny-deepseek2-v3",
     both(set("deepseek2.rope.scaling.original_context_length", U{7}),
          set("deepseek2.attention.temperature_scale", 0.5f)),
     both(set("deepseek2.rope.scaling.original_context_length", U{7}),
          both(set("deepseek2.attention.temperature_scale", 0.5f),
               set("deepseek2.attention.temperature_length", U{7})))},
    {"the length of a temperature, by the original context", "tiny-mistral3", as_it_is,
     set("mistral3.attention.temperature_length", U{6})},
    {"Gemma 2's caps, by their defaults", "tiny-gemma2",
     both(set("gemma2.attn_logit_softcapping", 50.f), set("gemma2.final_logit_softcapping", 30.f)),
     both(drop("gemma2.attn_logit_softcapping"), drop("gemma2.final_logit_softcapping"))},
    {"multipliers of Granite that are 1", "tiny-granite",
     both(set("granite.embedding_scale", 1.f), set("granite.residual_scale", 1.f)),
     both(drop("granite.embedding_scale"), set("granite.residual_scale", 0.f))},
    {"the scale of attention, by its default", "tiny-granite",
     set("granite.attention.scale", 0.25f), drop("granite.attention.scale")},
    {"rotation, by its default", "tiny-granite", as_it_is,
     set("granite.rope.scaling.finetuned", true)},
    {"the rotation of Bamba, by its default", "tiny-granitehybrid",
     set("granitehybrid.rope.scaling.finetuned", true),
     drop("granitehybrid.rope.scaling.finetuned")},
    {"keys of a rotation that Nemotron does not have", "tiny-nemotron_h", as_it_is,
     both(set("nemotron_h.rope.freq_base", 77.f),
          both(set("nemotron_h.rope.scaling.finetuned", true),
               set("nemotron_h.attention.layer_norm_epsilon", 0.5f)))},
    {"Nemotron's scale of attention, by its default", "tiny-nemotron_h", as_it_is,
     set("nemotron_h.attention.scale", 0.25f)},
    {"keys of a rotation that Jamba does not have", "tiny-jamba", as_it_is,
     both(set("jamba.rope.freq_base", 77.f), set("jamba.rope.dimension_count", U{3}))},
    {"the growth of Llama 4's queries, by its defaults", "tiny-llama4", as_it_is,
     both(set("llama4.attention.temperature_scale", 0.1f),
          set("llama4.attention.temperature_length", U{8192}))},
    {"the chunks of Llama 4, by their default", "tiny-llama4",
     set("llama4.attention.sliding_window", U{8192}), drop("llama4.attention.sliding_window")},
    {"the layers of Llama 4 that have experts, by their tensors", "tiny-llama4", as_it_is,
     drop("llama4.interleave_moe_layer_step")},
    {"tensors of RWKV's first layer that some files lack", "tiny-rwkv7", as_it_is,
     without("blk.0.time_mix_", {"v0.weight", "v1.weight", "v2.weight"})},
    {"Gemma 3n's cap and the base of its windows, by their defaults", "tiny-gemma3n",
     set("gemma3n.rope.freq_base_swa", 1e4f),
     both(drop("gemma3n.final_logit_softcapping"), drop("gemma3n.rope.freq_base_swa"))},
    {"keys and values of layers that share others", "tiny-gemma3n", as_it_is,
     without("blk.9.attn_", {"k.weight", "v.weight", "k_norm.weight"})},
    {"delta nets of Qwen 3.8 by a list", "tiny-qwen4exp", as_it_is,
     list<std::int32_t>("qwen4exp.attention.recurrent_layers", {1, 1, 0, 1, 1})},
    {"the token of images", "tiny-qwen4exp", as_it_is, set("qwen4exp.ple.image_token_id", U{7})},
    {"blocks of which none is left out, and an indexer of no use", "tiny-qwen4exp",
     set("qwen4exp.attention.indexer.top_k", U{600}),
     list<std::int32_t>("qwen4exp.attention.compress_ratios", {0, 0, 0, 0, 0})},
    {"no layer with n-grams, and no list of them", "tiny-qwen4exp",
     both(list<std::int32_t>("qwen4exp.ple.layers", {}), without_ngrams),
     both(drop("qwen4exp.ple.layers"), without_ngrams)},
    {"factors of Ministral that do nothing", "tiny-mistral3",
     both(set("mistral3.rope.scaling.yarn_log_multiplier", 0.f),
          set("mistral3.attention.temperature_scale", 0.f)),
     both(drop("mistral3.rope.scaling.yarn_log_multiplier"),
          drop("mistral3.attention.temperature_scale"))},
    {"keys of YaRN that OLMo's files have and do not mean", "tiny-olmo3", as_it_is,
     both(set("olmo2.rope.scaling.yarn_beta_fast", 4.f),
          both(set("olmo2.rope.scaling.yarn_beta_slow", 0.1f),
               set("olmo2.rope.scaling.yarn_attn_factor", 1.5f)))},
    {"windows that were not used in training", "tiny-phi3", as_it_is,
     set("phi3.attention.sliding_window", U{3})},
    {"the window of the first Mistral", "tiny-llama", as_it_is,
     set("llama.attention.sliding_window", U{3})},
    {"delta nets by a list", "tiny-qwen35", drop("qwen35.full_attention_interval"),
     list<U>("qwen35.attention.recurrent_layers", {1, 1, 1, 0, 1})},
    {"delta nets by layers without heads", "tiny-qwen35", as_it_is,
     both(set("qwen35.full_attention_interval", U{1}),
          list<I>("qwen35.attention.head_count_kv", {0, 0, 0, 2, 0}))},
    {"weights of experts are divided by their sum, whatever the file says", "tiny-qwen3moe",
     as_it_is, set("qwen3moe.expert_weights_norm", false)},
    {"the width of experts, by another name", "tiny-qwen3moe", as_it_is,
     both(set("qwen3moe.feed_forward_length", U{64}), drop("qwen3moe.expert_feed_forward_length"))},
    {"the scores of DeepSeek's router, by its bias", "tiny-deepseek2", as_it_is,
     both(drop("deepseek2.expert_gating_func"), set("deepseek2.expert_group_count", U{1}))},
    {"the scores of DeepSeek's router without one", "tiny-deepseek2-lite", as_it_is,
     both(drop("deepseek2.expert_gating_func"), drop("deepseek2.expert_weights_norm"))},
    {"LFM2's scores are sigmoids", "tiny-lfm2moe", as_it_is, drop("lfm2moe.expert_gating_func")},
    {"GLM's scores are sigmoids", "tiny-glm4moe", as_it_is, drop("glm4moe.expert_gating_func")},
    {"Laguna's scores are sigmoids", "tiny-laguna", as_it_is, drop("laguna.expert_gating_func")},
    {"Step's scores are sigmoids, and the base of its windows has a default", "tiny-step35",
     as_it_is, both(drop("step35.expert_gating_func"), drop("step35.rope.freq_base_swa"))},
    {"sections of a rotation, for texts", "tiny-qwen3vl", as_it_is,
     both(drop("qwen3vl.rope.dimension_sections"), set("qwen3vl.n_deepstack_layers", U{3}))},
    {"sections of a rotation, for texts", "tiny-glm4moe", as_it_is,
     list<I>("glm4moe.rope.dimension_sections", {2, 1, 1, 0})},
    {"the window of SmallThinker is always the same", "tiny-smallthinker-window", as_it_is,
     both(set("smallthinker.attention.sliding_window", U{77}),
          set("smallthinker.attention.sliding_window_pattern", U{2}))},
    {"a period, and what it stands for", "tiny-exaone4", as_it_is,
     set("exaone4.attention.sliding_window_pattern", U{4})},
    {"a period, and what it stands for", "tiny-cohere2", as_it_is,
     set("cohere2.attention.sliding_window_pattern", U{4})},
    {"a period, and what it stands for", "tiny-muse-glimmer", as_it_is,
     set("muse-glimmer.attention.sliding_window_pattern", U{4})},
    {"a factor that is YaRN's own", "tiny-mellum", as_it_is,
     set("mellum.rope.scaling.yarn_attn_factor", 1.3f)},
    {"MiniCPM's multipliers, by their defaults", "tiny-minicpm",
     both(set("minicpm.embedding_scale", 12.f),
          both(set("minicpm.residual_scale", 1.4f / std::sqrt(3.f)),
               set("minicpm.logit_scale", 0.25f))),
     both(drop("minicpm.embedding_scale"),
          both(drop("minicpm.residual_scale"), drop("minicpm.logit_scale")))},
    {"what the tensors of StableLM say", "tiny-stablelm", as_it_is,
     set("stablelm.use_parallel_residual", true)},
    {"the step of mixtures that have experts everywhere", "tiny-ernie4_5-moe", as_it_is,
     set("ernie4_5-moe.interleave_moe_layer_step", U{1})},
    {"the width of a shared expert, by its tensors", "tiny-hunyuan-moe", as_it_is,
     drop("hunyuan-moe.expert_shared_feed_forward_length")},
    {"the rank of queries, by their tensors", "tiny-bailingmoe3", as_it_is,
     drop("bailingmoe3.attention.q_lora_rank")},
    {"the width of experts, by another name", "tiny-olmoe", as_it_is,
     set("olmoe.expert_feed_forward_length", U{64})},
};

// And everything that is about tensors.
// Doubles a matrix of all blocks, or of a stack the first half of the matrices.
Change doubled(const std::string& stem) {
  return in_all_blocks([=](Content& content, const std::string& block) {
    if (!content.has(block + stem + ".weight")) return;
    const std::span<float> all = content.values(block + stem + ".weight");
    const bool is_stack = content.find(block + stem + ".weight").dims.size() > 2;
    for (float& value : all.first(is_stack ? all.size() / 2 : all.size())) value *= 2;
  });
}

// The same by a scale in a tensor beside it.
Change doubled_beside(const std::string& stem, const std::string& suffix) {
  return in_all_blocks([=](Content& content, const std::string& block) {
    if (!content.has(block + stem + ".weight")) return;
    const std::vector<std::uint64_t>& dims = content.find(block + stem + ".weight").dims;
    const std::size_t matrices = dims.size() > 2 ? dims[2] : 1;
    std::vector<float> scales(matrices, 1.0f), of_inputs(matrices, 0.3f);
    std::fill_n(scales.begin(), (matrices + 1) / 2, 2.0f);
    for (const auto& [name, values] : {std::pair(".scale", scales), {".input_scale", of_inputs}}) {
      const auto bytes = std::as_bytes(std::span(values));
      content.tensors.push_back(
          {block + stem + suffix + name, {matrices}, 0, {bytes.begin(), bytes.end()}});
    }
  });
}

const std::vector<Pair> same_tensors = {
    {"a scale beside a matrix", "tiny-llama", doubled("ffn_up"), doubled_beside("ffn_up", "")},
    {"a scale beside a matrix with a bias", "tiny-llama-biased", doubled("attn_output"),
     doubled_beside("attn_output", ".weight")},
    {"scales of experts", "tiny-qwen3moe", doubled("ffn_up_exps"),
     doubled_beside("ffn_up_exps", "")},
    {"scales of experts' outputs", "tiny-qwen3moe", doubled("ffn_down_exps"),
     doubled_beside("ffn_down_exps", "")},
    {"scales of experts' outputs with a bias", "tiny-gpt-oss", doubled("ffn_down_exps"),
     doubled_beside("ffn_down_exps", "")},
    {"scales of outputs of experts whose inputs are weighed", "tiny-llama4",
     doubled("ffn_down_exps"), doubled_beside("ffn_down_exps", "")},
    {"scales of keys that other layers' are used for", "tiny-gemma4", doubled("attn_k"),
     doubled_beside("attn_k", "")},
    {"scales of heads", "tiny-deepseek2", doubled("attn_k_b"), doubled_beside("attn_k_b", "")},
    {"gate and up in one", "tiny-llama", as_it_is, fuse_feed_forward},
    {"a head that is a copy of the table", "tiny-granite", as_it_is,
     [](Content& content) {
       content.tensors.push_back(content.find("token_embd.weight"));
       content.tensors.back().name = "output.weight";
     }},
    {"factors of 1", "tiny-llama", [](Content& content) { content.remove("rope_freqs.weight"); },
     [](Content& content) { std::ranges::fill(content.values("rope_freqs.weight"), 1.f); }},
    {"the norm at the end of LFM2, by its usual name", "tiny-lfm2", as_it_is,
     [](Content& content) { content.find("token_embd_norm.weight").name = "output_norm.weight"; }},
    {"a bias without a suffix", "tiny-qwen35", as_it_is, rename("ssm_dt.bias", "ssm_dt")},
    {"keys and values that other layers' are used for", "tiny-gemma4",
     spoil({"blk.5.attn_k.weight", "blk.6.attn_v.weight", "blk.7.attn_k_norm.weight"}),
     [](Content& content) {
       for (const std::string block : {"blk.5.", "blk.6.", "blk.7."}) {
         for (const char* name : {"attn_k.weight", "attn_v.weight", "attn_k_norm.weight"}) {
           content.remove(block + name);
         }
       }
     }},
    {"factors for texts that are longer", "tiny-phi3",
     set("phi3.rope.scaling.original_context_length", std::uint32_t{64}),
     both(set("phi3.rope.scaling.original_context_length", std::uint32_t{64}),
          spoil({"rope_factors_long.weight"}))},
    {"matrices of heads below each other", "tiny-deepseek2", as_it_is,
     in_all_blocks([](Content& content, const std::string& block) {
       for (const char* name : {"attn_k_b.weight", "attn_v_b.weight"}) {
         std::vector<std::uint64_t>& dims = content.find(block + name).dims;
         dims = {dims[0], dims[1] * dims[2]};
       }
     })},
    {"vectors in another type", "tiny-nemotron_h", round_vectors(false), round_vectors(true)},
    {"vectors in another type, with biases", "tiny-llama-biased", round_vectors(false),
     round_vectors(true)},
};

TEST_CASE("files that mean the same model give the same bits") {
  Models models;
  std::vector<Pair> pairs = same_metadata;
  pairs.insert(pairs.end(), same_tensors.begin(), same_tensors.end());
  for (const char* shape : {"tiny-llama", "tiny-llama-biased", "tiny-qwen2", "tiny-qwen3",
                            "tiny-gemma2", "tiny-glm4", "tiny-lfm2", "tiny-falcon-h1",
                            "tiny-glm4moe", "tiny-laguna", "tiny-phi2", "tiny-starcoder2"}) {
    pairs.push_back({"queries, keys and values in one", shape, as_it_is, fuse_attention});
  }
  for (std::size_t i = 0; i < pairs.size(); i += sample_step) {
    const Pair& pair = pairs[i];
    INFO(pair.shape << ": " << pair.what);
    const std::vector<float> first = models.logits(pair.shape, pair.first);
    CHECK(are_same_bits(first, models.logits(pair.shape, pair.second)));
    CHECK(std::ranges::all_of(first, [](float x) { return std::isfinite(x); }));
  }
}

TEST_CASE("what a file says of its model changes the logits") {
  const std::vector<Pair> pairs = {
      {"rotation", "tiny-granite", as_it_is, set("granite.rope.scaling.finetuned", false)},
      {"rotation", "tiny-granitehybrid", as_it_is,
       set("granitehybrid.rope.scaling.finetuned", true)},
      {"halves of heads that rotate", "tiny-glm4", as_it_is,
       list<std::int32_t>("glm4.rope.dimension_sections", {2, 1, 1, 0})},
      {"how much of a head rotates", "tiny-glm4", as_it_is, drop("glm4.rope.dimension_count")},
      {"the divisor of logits", "tiny-granite", as_it_is, set("granite.logit_scale", 4.f)},
      {"the scale of attention", "tiny-nemotron_h", as_it_is,
       set("nemotron_h.attention.scale", 0.3f)},
      {"a window", "tiny-lfm2", as_it_is, set("lfm2.attention.sliding_window", U{3})},
      {"which layers have a window", "tiny-gpt-oss", as_it_is,
       set("gpt-oss.attention.sliding_window_pattern", U{3})},
      {"the base of layers with a window", "tiny-gpt-oss", as_it_is,
       set("gpt-oss.rope.freq_base_swa", 2e4f)},
      {"the base of layers with a window", "tiny-olmo3", as_it_is,
       set("olmo2.rope.freq_base_swa", 2e4f)},
      {"the first key of OLMo's magnitude", "tiny-olmo3", as_it_is,
       set("olmo2.rope.scaling.attn_factor", 1.2f)},
      {"whether there are windows", "tiny-gemma3", as_it_is,
       drop("gemma3.attention.sliding_window")},
      {"a temperature", "tiny-deepseek2", as_it_is,
       both(set("deepseek2.attention.temperature_scale", 0.5f),
            set("deepseek2.attention.temperature_length", U{3}))},
      {"the length of a temperature", "tiny-mistral3", as_it_is,
       set("mistral3.attention.temperature_length", U{3})},
      {"the ramp of YaRN", "tiny-mistral3", as_it_is,
       set("mistral3.rope.scaling.yarn_beta_fast", 5.f)},
      {"the length of a temperature", "tiny-llama4", as_it_is,
       set("llama4.attention.temperature_length", U{4})},
      {"where a temperature begins, one ahead", "tiny-llama4",
       set("llama4.attention.temperature_length", U{20}),
       set("llama4.attention.temperature_length", U{21})},
      {"the length of chunks", "tiny-llama4", as_it_is,
       set("llama4.attention.sliding_window", U{9})},
      {"whether there are chunks", "tiny-llama4", as_it_is,
       set("llama4.attention.sliding_window", U{0})},
      {"sparse activations", "tiny-gemma3n", as_it_is, drop("gemma3n.activation_sparsity_scale")},
      {"the base of layers with a window", "tiny-gemma3n", as_it_is,
       set("gemma3n.rope.freq_base_swa", 2e4f)},
      {"layers that share keys", "tiny-gemma3n", as_it_is,
       set("gemma3n.attention.shared_kv_layers", U{3})},
      {"blocks of attention", "tiny-qwen4exp", as_it_is,
       list<std::int32_t>("qwen4exp.attention.compress_ratios", {0, 0, 2, 0, 0})},
      {"how much attention sees", "tiny-qwen4exp", as_it_is,
       set("qwen4exp.attention.indexer.top_k", U{3})},
      {"the hashes of n-grams", "tiny-qwen4exp", as_it_is,
       list<std::uint64_t>("qwen4exp.ple.layer_multipliers", {1, 2, 3})},
      {"what stands before a text", "tiny-qwen4exp", as_it_is,
       set("qwen4exp.ple.eos_token_id", U{9})},
      {"n-grams", "tiny-qwen4exp", as_it_is, both(drop("qwen4exp.ple.layers"), without_ngrams)},
      {"a cap of logits", "tiny-gemma3", as_it_is, set("gemma3.final_logit_softcapping", 5.f)},
      {"what divides the weights of experts", "tiny-deepseek2", as_it_is,
       set("deepseek2.expert_weights_norm", false)},
      {"what multiplies the weights of experts", "tiny-nemotron_h_moe", as_it_is,
       set("nemotron_h_moe.expert_weights_scale", 1.5f)},
      {"what divides the weights of experts", "tiny-glm4moe", as_it_is,
       drop("glm4moe.expert_weights_norm")},
      {"what multiplies logits", "tiny-command-r", as_it_is, set("command-r.logit_scale", 0.3f)},
      {"how much of a head rotates", "tiny-minimax-m2", as_it_is,
       drop("minimax-m2.rope.dimension_count")},
      {"the base of layers with a window", "tiny-laguna", as_it_is,
       set("laguna.rope.freq_base_swa", 2e4f)},
      {"which layers have a window", "tiny-muse-glimmer", as_it_is,
       set("muse-glimmer.attention.sliding_window_pattern", U{2})},
      {"limits of experts", "tiny-step35", as_it_is, drop("step35.swiglu_clamp_exp")},
      {"limits of other networks", "tiny-step35", as_it_is, drop("step35.swiglu_clamp_shexp")},
      {"whether there are windows", "tiny-smallthinker-window", as_it_is,
       drop("smallthinker.attention.sliding_window")},
      {"the scores of a router", "tiny-minimax-m2", as_it_is,
       set("minimax-m2.expert_gating_func", U{1})},
      {"the numbers of an activation", "tiny-apertus", as_it_is,
       [](Content& content) { content.set("xielu.beta", 0.7f); }},
      {"factors of rotation", "tiny-gemma4", as_it_is,
       [](Content& content) { std::ranges::fill(content.values("rope_freqs.weight"), 1.f); }},
  };
  Models models;
  for (std::size_t i = 0; i < pairs.size(); i += sample_step) {
    const Pair& pair = pairs[i];
    INFO(pair.shape << ": " << pair.what);
    CHECK_FALSE(are_same_bits(models.logits(pair.shape, pair.first),
                              models.logits(pair.shape, pair.second)));
  }
}

TEST_CASE("parts of a file that are not for text are left aside, and named") {
  struct Part {
    const char *shape, *note;
    Change change;
  };
  const std::vector<Part> parts = {
      {"tiny-gemma3", "vision", add("v.blk.0.attn_q.weight")},
      {"tiny-gemma3", "vision", add("mm.0.weight")},
      {"tiny-gemma4", "audio", add("a.conv1d.0.weight")},
      {"tiny-qwen35", "token-predicting", add("mtp.fc.weight")},
      {"tiny-qwen35", "token-predicting", add_predicting_block("qwen35", 5, 3)},
      {"tiny-deepseek2", "token-predicting", add_predicting_block("deepseek2", 4, 2)},
      {"tiny-qwen35moe", "token-predicting", add_predicting_block("qwen35moe", 5, 3)},
      {"tiny-glm4", "token-predicting", add_predicting_block("glm4", 3, 1)},
      {"tiny-qwen4exp", "token-predicting", add_predicting_block("qwen4exp", 5, 2)},
      {"tiny-llama", nullptr, add("blk.1.attn_rot_embd")},
  };
  Models models;
  for (const Part& part : parts) {
    INFO(part.shape << ": " << (part.note == nullptr ? "nothing" : part.note));
    CHECK(
        are_same_bits(models.logits(part.shape, part.change), models.logits(part.shape, as_it_is)));
    const std::vector<std::string> notes = models.notes(part.shape, part.change);
    const auto wanted = fmt::format("this file's {} part is not used", part.note ? part.note : "");
    CHECK(std::ranges::count(notes, wanted) == (part.note == nullptr ? 0 : 1));
  }
}

TEST_CASE("a key of the architecture that nothing reads is named, once for all") {
  const std::string beginning = "these keys of the file are not used";
  Models models;
  const auto named = [&](const std::string& shape, const Change& change) {
    std::string found;
    for (const std::string& note : models.notes(shape, change)) {
      if (note.starts_with(beginning)) found += note.substr(note.find(": ") + 2);
    }
    return found;
  };
  const std::vector<synth::Shape>& shapes = synth::shapes();
  for (std::size_t i = 0; i < shapes.size(); i += sample_step) {
    const synth::Shape& shape = shapes[i];
    if (!shape.name.starts_with("tiny-")) continue;
    INFO(shape.name);
    CHECK(named(shape.name, as_it_is) == "");
  }
  CHECK(named("tiny-qwen3", both(set("qwen3.attention.clamp_kqv", 5.f),
                                 set("qwen3.attention.sliding_window", U{4}))) ==
        "qwen3.attention.clamp_kqv, qwen3.attention.sliding_window");
  CHECK(named("tiny-llama", set("qwen3.attention.clamp_kqv", 5.f)) == "");
  CHECK(named("tiny-llama", both(set("llama.vocab_size", U{320}),
                                 both(set("llama.vision.block_count", U{2}),
                                      set("llama.attention.sliding_window", U{4})))) == "");
}

TEST_CASE("files that would give a wrong text are refused, by what is wrong") {
  struct Fault {
    const char *shape, *named;
    Change change;
  };
  const std::vector<Fault> faults = {
      {"tiny-lfm2", "'lfm2.attention.causal': is false", set("lfm2.attention.causal", false)},
      {"tiny-falcon-h1", "'falcon-h1.mlp_gate_multiplier'",
       set("falcon-h1.mlp_gate_multiplier", 0.5f)},
      {"tiny-llama", "'blk.1.attn_surprise.weight'", add("blk.1.attn_surprise.weight")},
      {"tiny-llama", "'blk.3.attn_norm.weight'", add("blk.3.attn_norm.weight")},
      {"tiny-nemotron_h_moe", "'blk.1.ffn_latent_down.weight'",
       add("blk.1.ffn_latent_down.weight")},
      {"tiny-qwen3", "'blk.0.attn_q.scale'", add("blk.0.attn_q.scale")},
      {"tiny-ernie4_5-moe", "'ernie4_5-moe.interleave_moe_layer_step': is 2",
       set("ernie4_5-moe.interleave_moe_layer_step", U{2})},
      {"tiny-modern-bert-scores", "'modern-bert.classifier.activation': is unknown",
       set("modern-bert.classifier.activation", "relu")},
      {"tiny-minicpm", "'minicpm.expert_count': is not 0", set("minicpm.expert_count", U{8})},
      {"tiny-apertus", "'xielu.beta': has 2 elements for 3 layers",
       list<float>("xielu.beta", {0.5f, 0.5f})},
      {"tiny-step35", "'step35.swiglu_clamp_exp': is not a finite number",
       set("step35.swiglu_clamp_exp", NAN)},
      {"tiny-stablelm", "'blk.0.attn_norm.surprise'", add("blk.0.attn_norm.surprise")},
      {"tiny-qwen35", "'qwen35.nextn_predict_layers'",
       set("qwen35.nextn_predict_layers", std::uint32_t{5})},
      {"tiny-mistral3", "'mistral3.rope.scaling.type'",
       set("mistral3.rope.scaling.type", "spiral")},
      {"tiny-gemma4", "'gemma4.attention.shared_kv_layers'",
       set("gemma4.attention.shared_kv_layers", std::uint32_t{8})},
      {"tiny-gemma4", "'gemma4.attention.head_count_kv': is 4 for layer 7",
       list<U>("gemma4.attention.head_count_kv", {2, 2, 2, 2, 2, 2, 2, 4})},
      {"tiny-gemma4", "'gemma4.attention.head_count_kv': is 1 for layer 5",
       list<U>("gemma4.attention.head_count_kv", {2, 2, 2, 2, 2, 1, 1, 1})},
      {"tiny-gemma4", "'blk.0.attn_v.weight' is missing, and keys of",
       both(set("gemma4.attention.value_length_swa", U{32}),
            [](Content& content) { content.remove("blk.0.attn_v.weight"); })},
      {"tiny-qwen35", "attn_q.weight' has a gate of", set("qwen35.attention.value_length", U{24})},
      {"tiny-qwen35", "'qwen35.nextn_predict_layers': makes block 4",
       set("qwen35.nextn_predict_layers", U{1})},
      {"tiny-qwen35", "'qwen35.nextn_predict_layers': makes block 4",
       both(add_predicting_block("qwen35", 5, 3), set("qwen35.nextn_predict_layers", U{2}))},
      {"tiny-rwkv7", "'rwkv7.wkv.head_size': is 24, which does not divide",
       set("rwkv7.wkv.head_size", U{24})},
      {"tiny-rwkv7", "'rwkv7.wkv.head_size': is 0", set("rwkv7.wkv.head_size", U{0})},
      {"tiny-rwkv7", "'rwkv7.attention.gate_lora_rank': is 0",
       set("rwkv7.attention.gate_lora_rank", U{0})},
      {"tiny-rwkv7", "'blk.0.time_mix_w1.weight' has shape",
       set("rwkv7.attention.decay_lora_rank", U{7})},
      {"tiny-gemma3n", "'gemma3n.altup.num_inputs': is 1", set("gemma3n.altup.num_inputs", U{1})},
      {"tiny-gemma3n", "'gemma3n.altup.num_inputs': is 9", set("gemma3n.altup.num_inputs", U{9})},
      {"tiny-gemma3n", "'altup_proj.weight' has shape", set("gemma3n.altup.num_inputs", U{3})},
      {"tiny-gemma3n", "'gemma3n.altup.active_idx': is not 0",
       set("gemma3n.altup.active_idx", U{2})},
      {"tiny-gemma3n", "'gemma3n.activation_sparsity_scale'",
       list<float>("gemma3n.activation_sparsity_scale", std::vector<float>(10, NAN))},
      {"tiny-gemma3n", "'gemma3n.activation_sparsity_scale'",
       list<float>("gemma3n.activation_sparsity_scale", {1.5f})},
      {"tiny-gemma3n", "'gemma3n.attention.shared_kv_layers'",
       set("gemma3n.attention.shared_kv_layers", U{8})},
      {"tiny-qwen4exp", "'qwen4exp.hyper_connection.count': is 1",
       set("qwen4exp.hyper_connection.count", U{1})},
      {"tiny-qwen4exp", "'qwen4exp.hyper_connection.count': is 9",
       set("qwen4exp.hyper_connection.count", U{9})},
      {"tiny-qwen4exp", "_norm.weight' has shape", set("qwen4exp.hyper_connection.count", U{2})},
      {"tiny-qwen4exp", "'qwen4exp.ple.layers': does not name one of the 5 layers",
       list<std::int32_t>("qwen4exp.ple.layers", {5})},
      {"tiny-qwen4exp", "'qwen4exp.ple.layers': does not name one of the 5 layers",
       list<std::int32_t>("qwen4exp.ple.layers", {1, 2})},
      {"tiny-qwen4exp", "'qwen4exp.ple.ngram_size': is 1", set("qwen4exp.ple.ngram_size", U{1})},
      {"tiny-qwen4exp", "'qwen4exp.ple.layer_multipliers': has 3 elements, expected 2",
       set("qwen4exp.ple.ngram_size", U{2})},
      {"tiny-qwen4exp", "'qwen4exp.ple.head_vocab_sizes': has 8 elements, expected 10",
       set("qwen4exp.ple.heads_per_ngram", U{5})},
      {"tiny-qwen4exp", "'qwen4exp.ple.head_vocab_sizes': has the element 0",
       list<std::uint64_t>("qwen4exp.ple.head_vocab_sizes", {9, 9, 9, 0, 9, 9, 9, 9})},
      {"tiny-qwen4exp", "'qwen4exp.ple.eos_token_id': is missing",
       drop("qwen4exp.ple.eos_token_id")},
      {"tiny-qwen4exp", "'per_layer_token_embd.weight' has ",
       list<std::uint64_t>("qwen4exp.ple.head_offsets", {0, 0, 0, 0, 0, 0, 0, 1u << 20})},
      {"tiny-qwen4exp", "'blk.2.indexer.k_proj.weight' belongs to blocks of 3 tokens",
       set("qwen4exp.attention.indexer.top_k", U{2})},
      {"tiny-qwen4exp", "'blk.2.indexer.q_proj.weight' has shape",
       set("qwen4exp.attention.indexer.head_count", U{7})},
      {"tiny-jamba", "'jamba.ssm.state_size': is 257", set("jamba.ssm.state_size", U{257})},
      {"tiny-jamba", "'jamba.ssm.time_step_rank': is 0", set("jamba.ssm.time_step_rank", U{0})},
      {"tiny-jamba", "'jamba.ssm.conv_kernel': is 9", set("jamba.ssm.conv_kernel", U{9})},
      {"tiny-jamba", "'blk.0.ssm_in.weight' has shape", set("jamba.ssm.inner_size", U{24})},
      {"tiny-nemotron_h", "'nemotron_h.attention.head_count_kv': gives layer 3 no heads",
       set("nemotron_h.attention.head_count_kv", U{0})},
      {"tiny-lfm2", "'lfm2.attention.head_count_kv': gives layer 4 no heads",
       list<U>("lfm2.attention.head_count_kv", {0, 2, 0, 0, 0, 0})},
  };
  Models models;
  for (const Fault& fault : faults) {
    const std::string reason = models.refusal(fault.shape, fault.change);
    INFO(fault.shape << ": " << reason);
    CHECK(reason.find(fault.named) != std::string::npos);
  }
}

TEST_CASE("the first file of a split model need not have tensors") {
  const TemporaryFolder folder;
  const fs::path whole = folder.path() / "whole.gguf";
  synth::SyntheticModel(small_shape("tiny-qwen3"), "F32").write(whole, 3, {});
  const Content content(whole);
  const std::size_t all = content.tensors.size();
  for (const std::uint16_t i : {std::uint16_t{0}, std::uint16_t{1}}) {
    content.write(folder.path() / fmt::format("m-{:05}-of-00002.gguf", i + 1), 0, i * all, i == 0,
                  [&](gguf::Writer& writer) {
                    writer.add("split.no", i);
                    writer.add("split.count", std::uint16_t{2});
                    writer.add("split.tensors.count", static_cast<std::int32_t>(all));
                  });
  }
  CHECK(are_same_bits(logits_of(folder.path() / "m-00001-of-00002.gguf"), logits_of(whole)));
}

}  // namespace
}  // namespace sluice::test
