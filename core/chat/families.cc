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

// The text of a template, made easy to search: escaped newlines become newlines, and literals that
// are added to each other become one.
class TemplateText {
 public:
  explicit TemplateText(std::string_view text) : text_(text) {
    replace("\\n", "\n");
    for (const char* joint : {"' + '", "'+'", "\" + \"", "\"+\""}) replace(joint, "");
  }

  bool has(std::string_view part) const { return text_.find(part) != std::string::npos; }

  // The text between `before` and `after`, at the first place where it is plain text and not part
  // of the program; empty when there is none. In linear time.
  std::string plain_text_between(std::string_view before, std::string_view after) const {
    const std::string_view all = text_;
    for (std::size_t at = all.find(before); at != std::string_view::npos;) {
      const std::size_t begin = at + before.size();
      const std::size_t end = std::min(all.find_first_of("'\"{}", begin), all.size());
      const std::size_t size = all.substr(begin, end - begin + after.size()).find(after);
      if (size != std::string_view::npos) return std::string(all.substr(begin, size));
      // What begins further on in the same plain text does not end in it either.
      at = all.find(before, std::max(at + 1, end - std::min(end, before.size())));
    }
    return {};
  }

  // Whether the last `part` is followed by a newline that is printed; "{%-" would remove it.
  bool ends_line(std::string_view part) const {
    const std::size_t at = text_.rfind(part);
    if (at == std::string::npos) return false;
    const std::string_view rest = std::string_view(text_).substr(at + part.size());
    const std::size_t next = rest.find_first_not_of(" \n");
    if (!rest.starts_with('\n') || next == std::string_view::npos) return false;
    return !rest.substr(next).starts_with("{%-") && !rest.substr(next).starts_with("{{-");
  }

 private:
  void replace(std::string_view from, std::string_view to) {
    std::string replaced;
    std::size_t kept = 0;
    for (std::size_t at = text_.find(from); at != std::string::npos; at = text_.find(from, kept)) {
      replaced.append(text_, kept, at - kept).append(to);
      kept = at + from.size();
    }
    text_ = replaced.append(text_, kept);
  }

  std::string text_;
};

// Reasoning models begin an answer with a thought, which the template opens.
Family chatml_of(const TemplateText& text) {
  Family family = chatml();
  family.default_system = text.plain_text_between("<|im_start|>system\n", "<|im_end|>");
  if (text.has("<|im_start|>assistant\n<think>\n'") || text.has("{{- '<think>\n' }}")) {
    family.generation_prompt += "<think>\n";
  }
  return family;
}

// Since 3.1 there is always a system turn, which begins with two dates. The second should be the
// present date; the template's own default keeps conversations reproducible.
Family llama3_of(const TemplateText& text) {
  Family family = llama3();
  if (!text.has("Cutting Knowledge Date: December 2023")) return family;
  const std::string date = text.plain_text_between("date_string = \"", "\"");
  family.name = "Llama 3.1";
  family.always_has_system = true;
  family.system.before += fmt::format("Cutting Knowledge Date: December 2023\nToday Date: {}\n\n",
                                      date.empty() ? "26 Jul 2024" : date);
  return family;
}

Family mistral_of(const TemplateText& text) {
  const bool has_spaces = text.has("[INST] ") || text.has("[SYSTEM_PROMPT] ");
  if (text.has("[SYSTEM_PROMPT]")) return has_spaces ? mistral_v7() : for_tekken(mistral_v7());
  if (text.has(" [/INST]")) return mistral_v1();
  return has_spaces ? mistral_v3() : for_tekken(mistral_v3());
}

Family glm4_of(const TemplateText& text) {
  Family family = glm4();
  if (!text.has("add_generation_prompt") || text.ends_line("<|assistant|>")) return family;
  family.generation_prompt = "<|assistant|>";
  family.answer_lead = "\n";
  return family;
}

Family phi_of(const TemplateText& text) {
  return text.has("<|end|>\n") ? phi3() : phi4_mini();
}

// gpt-oss has <|end|> and Llama 2 has [INST] too, but they are other families.
std::optional<Family> family_of(const TemplateText& text) {
  const bool is_harmony = text.has("<|channel|>") || text.has("<|message|>");
  if (text.has("[gMASK]<sop>")) return glm4_of(text);
  if (text.has("<|start_header_id|>") && text.has("<|eot_id|>")) return llama3_of(text);
  if (text.has("<start_of_turn>")) return gemma();
  if (text.has("<|turn>") && text.has("<turn|>")) return gemma4();
  if (text.has("<|start_of_role|>")) return granite();
  if (text.has("<|im_start|>") && text.has("<|im_sep|>")) return phi4();
  if (text.has("<|im_start|>")) return chatml_of(text);
  if (text.has("[INST]") && !text.has("<<SYS>>")) return mistral_of(text);
  if (text.has("<|end|>") && !is_harmony) return phi_of(text);
  return std::nullopt;
}

}  // namespace

std::optional<Family> find_family(std::string_view template_text) {
  if (is_family_name(template_text)) return family_named(template_text);
  return family_of(TemplateText(template_text));
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

Family recognise_family(std::string_view template_text) {
  const std::string remedy =
      fmt::format("name one with --chat-format ({})", fmt::join(family_names(), ", "));
  if (template_text.empty()) {
    throw UsageError(
        "the model file has no chat template; if it is a base model, --chat-format plain holds a "
        "plain dialogue, or else " +
        remedy);
  }
  std::optional<Family> family = find_family(template_text);
  if (!family) {
    throw UsageError("the model's chat template belongs to no family that is known: " + remedy);
  }
  if (template_text.find("bos_token") != std::string_view::npos) family->wants_bos = true;
  return *std::move(family);
}

}  // namespace sluice::chat
