#include "core/convert/pretokenizer_name.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/convert/tiktoken.h"
#include "core/text/quoted.h"

namespace sluice::convert {
namespace {

using nlohmann::json;

struct KnownPattern {
  std::string_view regex;
  std::string_view pre;                // tokenizer.ggml.pre
  std::string_view pre_whole_words{};  // the same where whole words are looked up before merging
};

// How a pre-tokenizer splits text, and the name under which GGUF files have it.
constexpr KnownPattern patterns[] = {
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
     R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "qwen2"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
     R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "qwen35"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
     R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "smaug-bpe", "llama-bpe"},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
     R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "tekken"},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "gpt-4o"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}|)"
     R"( ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)",
     "seed-coder"},
    {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}|)"
     R"( ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)",
     "bailingmoe2"},
    {kimi_regex, "kimi-k2"},
};

// Pre-tokenizers that split in several steps, each what those before it left whole. A regex that
// ends in "..." is told by its beginning: DeepSeek lists all letters that have a case.
constexpr std::string_view ideographs = "[一-龥ࠀ-一가-퟿]+";
constexpr std::string_view deepseek_v3_regexes[] = {
    R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr std::string_view deepseek_regexes[] = {R"([\r\n])", R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺ...)",
                                                 R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)",
                                                 ideographs};
constexpr std::string_view deepseek_coder_regexes[] = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
                                                       ideographs};
struct KnownSteps {
  std::span<const std::string_view> regexes;
  bool splits_digits;
  std::string_view pre;
};
constexpr KnownSteps sequences[] = {{deepseek_v3_regexes, false, "deepseek-v3"},
                                    {deepseek_regexes, true, "deepseek-llm"},
                                    {deepseek_coder_regexes, true, "deepseek-coder"}};

bool is_regex(std::string_view found, std::string_view known) {
  const bool is_beginning = known.ends_with("...");
  if (is_beginning) known.remove_suffix(3);
  return is_beginning ? found.starts_with(known) : found == known;
}

// Line ends as a regex writes them, where a file has the characters themselves.
std::string with_escaped_line_ends(std::string_view regex) {
  std::string escaped;
  for (const char c : regex) {
    if (c == '\r') {
      escaped += R"(\r)";
    } else if (c == '\n') {
      escaped += R"(\n)";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

// What the steps of a pre-tokenizer do.
struct Steps {
  std::vector<std::string> regexes;
  bool is_byte_level = false;  // bytes become letters
  bool has_own_regex = false;  // that of the step for bytes
  bool splits_digits = false;  // each becomes a part of its own
};

void collect(const Config& tokenizer, const json& node, Steps& steps) {
  if (!node.is_structured()) return;
  const json type = node.is_object() ? node.value("type", json()) : json();
  if (type == "ByteLevel") {
    if (node.value("add_prefix_space", json()) == true) {
      throw tokenizer.error("pre_tokenizer",
                            "puts a space in front of a text (add_prefix_space), which is not "
                            "supported on bytes");
    }
    steps.is_byte_level = true;
    steps.has_own_regex |= node.value("use_regex", json(true)) == true;
  } else if (type == "Digits" && node.value("individual_digits", json()) == true) {
    steps.splits_digits = true;
  } else if (type.is_string() && type != "Sequence" && type != "Split") {
    throw tokenizer.error("pre_tokenizer",
                          fmt::format("has a step {}, which is not known here",
                                      text::quoted(type.get_ref<const std::string&>())));
  }
  if (node.is_object() && node.contains("Regex") && node["Regex"].is_string()) {
    steps.regexes.push_back(with_escaped_line_ends(node["Regex"].get<std::string>()));
  }
  for (const json& child : node) collect(tokenizer, child, steps);
}

}  // namespace

std::string_view pretokenizer_name(const Config& tokenizer, bool looks_up_words) {
  Steps steps;
  if (const json* node = tokenizer.find("pre_tokenizer")) collect(tokenizer, *node, steps);
  const auto& [regexes, is_byte_level, has_own_regex, splits_digits] = steps;
  if (!is_byte_level) {
    throw tokenizer.error("pre_tokenizer", "is not byte-level, the only kind that is supported");
  }
  if (regexes.empty() && has_own_regex) return splits_digits ? "smollm" : "gpt-2";
  for (const KnownSteps& known : sequences) {
    const bool is_known = splits_digits == known.splits_digits && !has_own_regex &&
                          std::ranges::equal(regexes, known.regexes, is_regex);
    if (is_known) return known.pre;
  }
  if (splits_digits) {
    throw tokenizer.error("pre_tokenizer", "splits digits in a way that is not known here");
  }
  for (const KnownPattern& known : patterns) {
    if (regexes.size() != 1 || has_own_regex || regexes[0] != known.regex) continue;
    return looks_up_words && !known.pre_whole_words.empty() ? known.pre_whole_words : known.pre;
  }
  throw tokenizer.error("pre_tokenizer", "splits text in a way that is not known here");
}

}  // namespace sluice::convert
