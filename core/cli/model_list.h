// The list of well-known models that `sluice recommend` chooses from: core/cli/models.json, or a
// file of the user's in the same form.
//
//   {"models": [{"name": "Qwen3 8B", "repository": "hf:Qwen/Qwen3-8B-GGUF",
//                "quants": ["Q8_0", "Q4_K_M"], "tasks": ["chat"], "shape": "qwen3-8b"}, ...]}
//
// Sizes and speeds follow from the shape, one of `sluice synth --list`; the list claims none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::cli {

inline constexpr std::string_view known_tasks[] = {"chat", "code", "embed"};

struct KnownModel {
  std::string name;
  std::string repository;           // a reference: hf:OWNER/REPO
  std::vector<std::string> quants;  // files of the repository, and names of quant::QuantMix
  std::vector<std::string> tasks;   // of known_tasks
  std::string shape;                // of synth::shapes()

  bool is_for(std::string_view task) const;
};

// The list in a text; `source` names it in messages. Throws UsageError, which names the model and
// the member that is wrong.
std::vector<KnownModel> parse_model_list(std::string_view text, std::string_view source);

// The text of the list that comes with the program.
std::string_view shipped_models();

}  // namespace sluice::cli
