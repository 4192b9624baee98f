#include "core/convert/text_preparation.h"

#include <nlohmann/json.hpp>

#include "core/text/base64.h"

namespace sluice::convert {
namespace {

using nlohmann::json;

// Whether `reads` is true of a normalizer or pre-tokenizer, or of each one in a sequence. There may
// be none.
template <typename Reads>
bool reads_steps(const json& node, const Reads& reads) {
  if (node.is_null()) return true;
  if (!node.is_object()) return false;
  if (node.value("type", json()) != "Sequence") return reads(node);
  for (const char* key : {"normalizers", "pretokenizers"}) {
    for (const json& one : node.value(key, json::array())) {
      if (!reads_steps(one, reads)) return false;
    }
  }
  return true;
}

// Reads one step; false if it does anything else to a text.
bool read_space_rules(const json& node, SpaceRules& rules) {
  const json type = node.value("type", json());
  const json pattern = node.value("pattern", json::object());
  const bool is_about_spaces = pattern.is_object() && pattern.value("String", json()) == " ";
  if (type == "Prepend" && node.value("prepend", json()) == space_mark) {
    rules.adds_prefix = true;
    return true;
  }
  if (type == "Replace" && is_about_spaces && node.value("content", json()) == space_mark) {
    rules.replaces_spaces = true;
    return true;
  }
  // By then there is no space left to split at.
  if (type == "Split" && is_about_spaces) return rules.replaces_spaces;
  if (type == "Metaspace" && node.value("replacement", json()) == space_mark) {
    const json scheme = node.value("prepend_scheme", json());
    rules.replaces_spaces = true;
    rules.adds_prefix =
        scheme.is_string() ? scheme != "never" : node.value("add_prefix_space", json(true)) == true;
    rules.is_only_first = scheme == "first";
    return true;
  }
  return false;
}

// Reads one step; false if it does anything else to a text.
bool read_unigram_rules(const json& node, UnigramRules& rules) {
  const json type = node.value("type", json());
  if (type == "Precompiled") {
    const json map = node.value("precompiled_charsmap", json());
    if (map.is_null()) return true;
    if (!map.is_string() || !rules.character_map.empty()) return false;
    rules.character_map = text::from_base64(map.get_ref<const std::string&>());
    return !rules.character_map.empty();
  }
  const json pattern = node.value("pattern", json::object());
  if (type == "Replace" && pattern.is_object() && pattern.value("Regex", json()) == " {2,}") {
    const json content = node.value("content", json());
    rules.merges_spaces = true;
    return content == " " || content == space_mark;
  }
  if (type == "WhitespaceSplit") {
    rules.merges_spaces = true;
    return true;
  }
  // Of the ends of a text, where white space means nothing once it is merged.
  if (type == "Strip") return true;
  return type == "Metaspace" && read_space_rules(node, rules.spaces);
}

// Reads the steps of one key. Throws ModelError where `reads` is false.
template <typename Reads>
void read_steps(const Config& tokenizer, const char* key, const Reads& reads) {
  const json* node = tokenizer.find(key);
  if (node == nullptr || reads_steps(*node, reads)) return;
  throw tokenizer.error(key, "changes text in a way that is not known here");
}

// Each step in front of a tokenizer.
template <typename Reads>
void read_preparation(const Config& tokenizer, const Reads& reads) {
  read_steps(tokenizer, "normalizer", reads);
  read_steps(tokenizer, "pre_tokenizer", reads);
}

}  // namespace

SpaceRules space_rules(const Config& tokenizer) {
  SpaceRules rules;
  read_preparation(tokenizer, [&](const json& step) { return read_space_rules(step, rules); });
  if (!rules.replaces_spaces) {
    throw tokenizer.error("normalizer", "does not replace spaces, so it is no SentencePiece");
  }
  return rules;
}

UnigramRules unigram_rules(const Config& tokenizer) {
  UnigramRules rules;
  read_preparation(tokenizer, [&](const json& step) { return read_unigram_rules(step, rules); });
  return rules;
}

void require_no_preparation(const Config& tokenizer) {
  read_steps(tokenizer, "normalizer",
             [](const json& step) { return step.value("type", json()) == "NFC"; });
}

}  // namespace sluice::convert
