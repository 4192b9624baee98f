#include "core/model/families.h"

#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string>
#include <vector>

#include "core/gguf/quoted.h"

namespace sluice::model {

// The pages: core/model/pages.
using Page = std::unique_ptr<Decoder>(const Keys& keys, WeightLayout& layout);
Page make_deepseek2, make_falcon_h1, make_gemma2, make_gemma3, make_gemma4, make_glm4, make_gpt_oss,
    make_granite, make_granitehybrid, make_lfm2, make_llama, make_mistral3, make_nemotron_h,
    make_olmo2, make_phi3, make_qwen2, make_qwen3, make_qwen35, make_smollm3;

namespace {

constexpr std::array known = {
    Family{"deepseek2", make_deepseek2},
    Family{"falcon-h1", make_falcon_h1},
    Family{"gemma2", make_gemma2},
    Family{"gemma3", make_gemma3},
    Family{"gemma4", make_gemma4},
    Family{"glm4", make_glm4},
    Family{"gpt-oss", make_gpt_oss},
    Family{"granite", make_granite},
    Family{"granitehybrid", make_granitehybrid},
    Family{"lfm2", make_lfm2},
    Family{"lfm2moe", make_lfm2},
    Family{"llama", make_llama},
    Family{"mistral3", make_mistral3},
    Family{"nemotron_h", make_nemotron_h},
    Family{"nemotron_h_moe", make_nemotron_h},
    Family{"olmo2", make_olmo2},
    Family{"phi3", make_phi3},
    Family{"qwen2", make_qwen2},
    Family{"qwen3", make_qwen3},
    Family{"qwen35", make_qwen35},
    Family{"qwen35moe", make_qwen35},
    Family{"qwen3moe", make_qwen3},
    Family{"smollm3", make_smollm3},
};

constexpr std::size_t unread_bytes_max = 500;  // of the names of keys in a note

}  // namespace

std::span<const Family> families() {
  return known;
}

std::unique_ptr<Decoder> make_decoder(const gguf::Model& model, WeightLayout& layout) {
  const Keys keys(model);
  for (const Family& family : known) {
    if (family.architecture != keys.architecture()) continue;
    std::unique_ptr<Decoder> decoder = family.make(keys, layout);
    decoder->finish();
    if (const std::vector<std::string> unread = keys.unread(); !unread.empty()) {
      layout.add_note(fmt::format(
          "these keys of the file are not used, so the text may differ from the model's: {}",
          gguf::escaped(fmt::format("{}", fmt::join(unread, ", ")), unread_bytes_max)));
    }
    return decoder;
  }
  std::string names;
  for (const Family& family : known) {
    names += (names.empty() ? "" : ", ") + std::string(family.architecture);
  }
  throw ModelError(fmt::format("{}: architecture {} is not supported; supported are: {}",
                               model.metadata().source(), gguf::quoted(keys.architecture()),
                               names));
}

}  // namespace sluice::model
