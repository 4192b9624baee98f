#include "core/model/families.h"

#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/quoted.h"

namespace sluice::model {

// The pages: core/model/pages.
using Page = std::unique_ptr<Decoder>(const Keys& keys, WeightLayout& layout);
Page make_apertus, make_arcee, make_bailingmoe3, make_bert, make_eurobert, make_gemma_embedding,
    make_jina_bert_v2, make_llama_embed, make_modern_bert, make_nomic_bert, make_cohere2,
    make_command_r, make_deepseek2, make_dots1, make_ernie4_5, make_exaone, make_exaone4,
    make_falcon_h1, make_gemma, make_gemma2, make_gemma3, make_gemma3n, make_gemma4, make_glm4,
    make_glm4moe, make_gpt_oss, make_granite, make_granitehybrid, make_hunyuan, make_jamba,
    make_kimi_linear, make_laguna, make_lfm2, make_llama, make_llama4, make_mellum, make_minicpm,
    make_minimax_m2, make_mistral3, make_muse_glimmer, make_nemotron_h, make_olmo2, make_olmoe,
    make_phi2, make_phi3, make_qwen2, make_qwen2moe, make_qwen3, make_qwen35, make_qwen3next,
    make_qwen4exp, make_rwkv7, make_seed_oss, make_smallthinker, make_smollm3, make_stablelm,
    make_starcoder2, make_step35;

namespace {

constexpr std::array known = {
    Family{"apertus", make_apertus},
    Family{"arcee", make_arcee},
    Family{"bailingmoe2", make_dots1},
    Family{"bailingmoe3", make_bailingmoe3},
    Family{"bert", make_bert},
    Family{"cohere2", make_cohere2},
    Family{"command-r", make_command_r},
    Family{"deepseek2", make_deepseek2},
    Family{"dots1", make_dots1},
    Family{"ernie4_5", make_ernie4_5},
    Family{"ernie4_5-moe", make_ernie4_5},
    Family{"eurobert", make_eurobert},
    Family{"exaone", make_exaone},
    Family{"exaone4", make_exaone4},
    Family{"falcon-h1", make_falcon_h1},
    Family{"gemma", make_gemma},
    Family{"gemma2", make_gemma2},
    Family{"gemma3", make_gemma3},
    Family{"gemma3n", make_gemma3n},
    Family{"gemma4", make_gemma4},
    Family{"gemma-embedding", make_gemma_embedding},
    Family{"glm4", make_glm4},
    Family{"glm4moe", make_glm4moe},
    Family{"gpt-oss", make_gpt_oss},
    Family{"granite", make_granite},
    Family{"granitehybrid", make_granitehybrid},
    Family{"granitemoe", make_granite},
    Family{"hunyuan-dense", make_hunyuan},
    Family{"hunyuan-moe", make_hunyuan},
    Family{"internlm2", make_llama},
    Family{"jamba", make_jamba},
    Family{"jina-bert-v2", make_jina_bert_v2},
    Family{"jina-bert-v3", make_nomic_bert},
    Family{"kimi-linear", make_kimi_linear},
    Family{"laguna", make_laguna},
    Family{"lfm2", make_lfm2},
    Family{"lfm2moe", make_lfm2},
    Family{"llama", make_llama},
    Family{"llama4", make_llama4},
    Family{"llama-embed", make_llama_embed},
    Family{"mellum", make_mellum},
    Family{"minicpm", make_minicpm},
    Family{"minimax-m2", make_minimax_m2},
    Family{"mistral3", make_mistral3},
    Family{"mistral4", make_deepseek2},
    Family{"modern-bert", make_modern_bert},
    Family{"muse-glimmer", make_muse_glimmer},
    Family{"nemotron_h", make_nemotron_h},
    Family{"nemotron_h_moe", make_nemotron_h},
    Family{"nomic-bert", make_nomic_bert},
    Family{"nomic-bert-moe", make_nomic_bert},
    Family{"olmo2", make_olmo2},
    Family{"olmoe", make_olmoe},
    Family{"phi2", make_phi2},
    Family{"phi3", make_phi3},
    Family{"qwen2", make_qwen2},
    Family{"qwen2moe", make_qwen2moe},
    Family{"qwen3", make_qwen3},
    Family{"qwen35", make_qwen35},
    Family{"qwen35moe", make_qwen35},
    Family{"qwen3moe", make_qwen3},
    Family{"qwen3next", make_qwen3next},
    Family{"qwen3vl", make_qwen3},
    Family{"qwen3vlmoe", make_qwen3},
    Family{"qwen4exp", make_qwen4exp},
    Family{"rwkv7", make_rwkv7},
    Family{"seed_oss", make_seed_oss},
    Family{"smallthinker", make_smallthinker},
    Family{"smollm3", make_smollm3},
    Family{"stablelm", make_stablelm},
    Family{"starcoder2", make_starcoder2},
    Family{"step35", make_step35},
};

constexpr std::size_t unread_bytes_max = 500;  // of the names of keys in a note

// Lays the model out as each page would, and says which gets farthest, and what stops it. New
// architectures are often a known one by another name, or one with a tensor more.
std::string nearest_to(const Keys& keys) {
  constexpr std::size_t any_slice_bytes = std::size_t{1} << 20;
  const gguf::Model& model = keys.model();
  std::string_view nearest;
  std::string problem, alike;
  std::size_t most = 0;
  for (const Family& family : known) {
    WeightLayout layout(model, any_slice_bytes);
    std::string stopped_by;
    try {
      family.make(keys, layout)->finish();
    } catch (const Error& error) {
      stopped_by = error.what();
    }
    if (stopped_by.empty()) {
      alike += fmt::format("{}'{}'", alike.empty() ? "" : " or ", family.architecture);
    }
    if (layout.declared() <= most) continue;
    most = layout.declared();
    nearest = family.architecture;
    problem = std::move(stopped_by);
  }
  if (!alike.empty()) {
    return fmt::format(
        ", but the file has all keys and tensors of {} and no others: if it is such a model by "
        "another name, it runs once general.architecture and its keys say so",
        alike);
  }
  if (most == 0) return ", and is like none that is (the README lists them)";
  const std::string file = model.metadata().source() + ": ";
  if (problem.starts_with(file)) problem.erase(0, file.size());
  return fmt::format("; nearest to it is '{}', which knows {} of its {} tensors, but: {}", nearest,
                     most, model.tensors().size(), problem);
}

}  // namespace

std::span<const Family> families() {
  return known;
}

std::unique_ptr<Decoder> make_decoder(const gguf::Model& model, WeightLayout& layout,
                                      bool predicts) {
  const Keys keys(model, predicts);
  for (const Family& family : known) {
    if (family.architecture != keys.architecture()) continue;
    std::unique_ptr<Decoder> decoder = family.make(keys, layout);
    decoder->finish();
    if (const std::vector<std::string> unread = keys.unread(); !unread.empty()) {
      layout.add_note(fmt::format(
          "these keys of the file are not used, so the text may differ from the model's: {}",
          text::escaped(fmt::format("{}", fmt::join(unread, ", ")), unread_bytes_max)));
    }
    return decoder;
  }
  throw ModelError(fmt::format("{}: architecture {} is not supported{}", model.metadata().source(),
                               text::quoted(keys.architecture()), nearest_to(keys)));
}

}  // namespace sluice::model
