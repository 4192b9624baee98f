#include "core/chat/families.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>
#include <utility>

#include "core/error.h"

namespace sluice::chat {
namespace {

Family chatml() {
  return {.name = "ChatML",
          .preamble = "",
          .system = {"<|im_start|>system\n", "<|im_end|>\n"},
          .user = {"<|im_start|>user\n", "<|im_end|>\n"},
          .generation_prompt = "<|im_start|>assistant\n",
          .answer_lead = "",
          .answer_after = "<|im_end|>\n",
          .markers = {"<|im_start|>", "<|im_end|>"}};
}

Family llama3() {
  return {.name = "Llama 3",
          .preamble = "",
          .system = {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
          .user = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
          .generation_prompt = "<|start_header_id|>assistant<|end_header_id|>\n\n",
          .answer_lead = "",
          .answer_after = "<|eot_id|>",
          .markers = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
          .trims_content = true,
          .wants_bos = true};
}

// For 7B v0.1 and v0.2, whose vocabulary has no token for [INST].
Family mistral_v1() {
  return {.name = "Mistral v1",
          .preamble = "",
          .system = {},
          .user = {"[INST] ", " [/INST]"},
          .generation_prompt = "",
          .answer_lead = " ",
          .answer_after = "</s>",
          .markers = {"[INST]", "[/INST]", "</s>"},
          .system_place = Family::SystemPlace::first_user_turn,
          .wants_bos = true};
}

Family mistral_v3() {
  Family family = mistral_v1();
  family.name = "Mistral v3";
  family.user.after = "[/INST]";
  return family;
}

Family mistral_v7() {
  Family family = mistral_v3();
  family.name = "Mistral v7";
  family.system = {"[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"};
  family.system_place = Family::SystemPlace::turn;
  family.markers.insert(family.markers.end(), {"[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"});
  return family;
}

// Byte-level vocabularies do not begin a text with a space, and neither do their templates.
Family for_tekken(Family family) {
  family.name += " (Tekken)";
  for (std::string* text :
       {&family.system.before, &family.user.before, &family.user.after, &family.answer_lead}) {
    std::erase(*text, ' ');
  }
  return family;
}

Family gemma() {
  return {.name = "Gemma",
          .preamble = "",
          .system = {},
          .user = {"<start_of_turn>user\n", "<end_of_turn>\n"},
          .generation_prompt = "<start_of_turn>model\n",
          .answer_lead = "",
          .answer_after = "<end_of_turn>\n",
          .markers = {"<start_of_turn>", "<end_of_turn>"},
          .system_place = Family::SystemPlace::first_user_turn,
          .trims_content = true,
          .wants_bos = true};
}

Family gemma4() {
  return {.name = "Gemma 4",
          .preamble = "",
          .system = {"<|turn>system\n", "<turn|>\n"},
          .user = {"<|turn>user\n", "<turn|>\n"},
          .generation_prompt = "<|turn>model\n",
          .answer_lead = "",
          .answer_after = "<turn|>\n",
          .markers = {"<|turn>", "<turn|>"},
          .trims_content = true,
          .wants_bos = true};
}

Family phi3() {
  return {.name = "Phi-3",
          .preamble = "",
          .system = {"<|system|>\n", "<|end|>\n"},
          .user = {"<|user|>\n", "<|end|>\n"},
          .generation_prompt = "<|assistant|>\n",
          .answer_lead = "",
          .answer_after = "<|end|>\n",
          .markers = {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>"}};
}

Family phi4_mini() {
  Family family = phi3();
  family.name = "Phi-4-mini";
  family.system = {"<|system|>", "<|end|>"};
  family.user = {"<|user|>", "<|end|>"};
  family.generation_prompt = "<|assistant|>";
  family.answer_after = "<|end|>";
  return family;
}

Family phi4() {
  return {.name = "Phi-4",
          .preamble = "",
          .system = {"<|im_start|>system<|im_sep|>", "<|im_end|>"},
          .user = {"<|im_start|>user<|im_sep|>", "<|im_end|>"},
          .generation_prompt = "<|im_start|>assistant<|im_sep|>",
          .answer_lead = "",
          .answer_after = "<|im_end|>",
          .markers = {"<|im_start|>", "<|im_sep|>", "<|im_end|>"}};
}

Family glm4() {
  return {.name = "GLM-4",
          .preamble = "[gMASK]<sop>",
          .system = {"<|system|>\n", ""},
          .user = {"<|user|>\n", ""},
          .generation_prompt = "<|assistant|>\n",
          .answer_lead = "",
          .answer_after = "",
          .markers = {"[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>",
                      "<|observation|>"}};
}

Family granite() {
  return {.name = "Granite",
          .preamble = "",
          .system = {"<|start_of_role|>system<|end_of_role|>", "<|end_of_text|>\n"},
          .user = {"<|start_of_role|>user<|end_of_role|>", "<|end_of_text|>\n"},
          .generation_prompt = "<|start_of_role|>assistant<|end_of_role|>",
          .answer_lead = "",
          .answer_after = "<|end_of_text|>\n",
          .markers = {"<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"}};
}

// Answers end with the token of an empty line, which the files of such models name.
Family rwkv_world() {
  return {.name = "RWKV World",
          .preamble = "",
          .system = {"System: ", "\n\n"},
          .user = {"User: ", "\n\n"},
          .generation_prompt = "Assistant:",
          .answer_lead = " ",
          .answer_after = "\n\n",
          .markers = {},
          .trims_content = true};
}

// For base models, which continue what looks like a script. The name of the next speaker is not a
// token; it ends an answer as a stop text.
Family plain() {
  return {.name = "plain",
          .preamble = "",
          .system = {"", "\n\n"},
          .user = {"User: ", "\n"},
          .generation_prompt = "Assistant:",
          .answer_lead = " ",
          .answer_after = "\n",
          .markers = {"\nUser:"},
          .trims_content = true};
}

bool has(std::string_view template_text, std::string_view part) {
  return template_text.find(part) != std::string_view::npos;
}

Family mistral_of(std::string_view text) {
  const bool has_spaces = has(text, "[INST] ") || has(text, "[SYSTEM_PROMPT] ");
  if (has(text, "[SYSTEM_PROMPT]")) return has_spaces ? mistral_v7() : for_tekken(mistral_v7());
  if (has(text, " [/INST]")) return mistral_v1();
  return has_spaces ? mistral_v3() : for_tekken(mistral_v3());
}

// Only Phi-3 writes newlines: characters of the template, or escapes in a text of it.
Family phi_of(std::string_view text) {
  const bool has_newline = has(text, "|>\n") || has(text, "'\n'") || has(text, "\\n");
  return has_newline ? phi3() : phi4_mini();
}

}  // namespace

// gpt-oss has <|end|> and Llama 2 has [INST] too, but they are other families.
std::optional<Family> find_family(std::string_view text) {
  const bool is_harmony = has(text, "<|channel|>") || has(text, "<|message|>");
  if (has(text, "[gMASK]<sop>")) return glm4();
  if (has(text, "<|start_header_id|>") && has(text, "<|eot_id|>")) return llama3();
  if (has(text, "<start_of_turn>")) return gemma();
  if (has(text, "<|turn>") && has(text, "<turn|>")) return gemma4();
  if (has(text, "<|start_of_role|>")) return granite();
  if (has(text, "<|im_start|>") && has(text, "<|im_sep|>")) return phi4();
  if (has(text, "<|im_start|>")) return chatml();
  if (has(text, "[INST]") && !has(text, "<<SYS>>")) return mistral_of(text);
  if (has(text, "<|end|>") && !is_harmony) return phi_of(text);
  return std::nullopt;
}

const std::vector<NamedFamily>& families() {
  static const std::vector<NamedFamily> all = {
      {"chatml", chatml()},
      {"llama3", llama3()},
      {"mistral-v1", mistral_v1()},
      {"mistral-v3", mistral_v3()},
      {"mistral-v3-tekken", for_tekken(mistral_v3())},
      {"mistral-v7", mistral_v7()},
      {"mistral-v7-tekken", for_tekken(mistral_v7())},
      {"gemma", gemma()},
      {"gemma4", gemma4()},
      {"phi3", phi3()},
      {"phi4-mini", phi4_mini()},
      {"phi4", phi4()},
      {"glm4", glm4()},
      {"granite", granite()},
      {"rwkv-world", rwkv_world()},
      {"plain", plain()},
  };
  return all;
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const NamedFamily& family : families()) names.push_back(family.name);
  return names;
}

bool is_family_name(std::string_view name) {
  return std::ranges::find(families(), name, &NamedFamily::name) != families().end();
}

Family family_named(std::string_view name) {
  const auto found = std::ranges::find(families(), name, &NamedFamily::name);
  if (found != families().end()) return found->family;
  throw UsageError(fmt::format("there is no chat format \"{}\"; there are {}", name,
                               fmt::join(family_names(), ", ")));
}

}  // namespace sluice::chat
