#include <array>
#include <fmt/format.h>
#include <limits>

#include "core/gguf/metadata.h"
#include "core/text/lower_case.h"
#include "core/text/quoted.h"
#include "core/tokenizer/character_bpe.h"
#include "core/tokenizer/pretokenizer.h"
#include "core/tokenizer/vocabulary.h"

namespace sluice::tokenizer {

namespace {

std::string key_of(std::string_view name) {
  return fmt::format("tokenizer.ggml.{}", name);
}

VocabularyKind kind_of(const gguf::Metadata& metadata) {
  const std::string key = key_of("model");
  const std::string_view model = metadata.require_string(key);
  if (model == "llama") return VocabularyKind::sentencepiece;
  if (model == "gpt2") {
    const auto pre = metadata.find_string(key_of("pre"));
    const bool has_characters = pre && find_character_traits(*pre);
    return has_characters ? VocabularyKind::character_level : VocabularyKind::byte_level;
  }
  if (model == "gemma4") return VocabularyKind::character_level;
  if (model == "bert") return VocabularyKind::word_pieces;
  if (model == "rwkv") return VocabularyKind::longest_pieces;
  if (model == "t5") return VocabularyKind::unigram;

  struct Known {
    std::string_view model;
    std::string_view name;
  };
  static constexpr std::array<Known, 3> others = {{
      {"plamo2", "PLaMo-2"},
      {"no_vocab", "no vocabulary at all"},
      {"none", "no vocabulary at all"},
  }};
  std::string what = text::quoted(model);
  for (const Known& known : others) {
    if (known.model == model) what += fmt::format(" ({})", known.name);
  }
  throw metadata.error(key, fmt::format("the kind of tokenizer {} is not supported; supported are "
                                        "'llama' (SentencePiece BPE), 'gpt2' (byte-level BPE), "
                                        "'gemma4' (BPE on characters), 'bert' (WordPiece), "
                                        "'t5' (SentencePiece unigram) and 'rwkv' (RWKV world)",
                                        what));
}

std::vector<std::string> load_texts(const gguf::Metadata& metadata, std::string_view name) {
  const std::string key = key_of(name);
  const gguf::StringArray strings = metadata.require_strings(key);
  if (strings.size() > entries_max) {
    throw metadata.error(
        key, fmt::format("has {} elements; expected at most {}", strings.size(), entries_max));
  }
  std::vector<std::string> result;
  result.reserve(strings.size());
  for (const std::string_view text : strings) result.emplace_back(text);
  return result;
}

std::optional<int> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

// The bytes of a text of RWKV's vocabulary: \t, \n, \r, \xHH, and a character behind \ for itself.
// Nothing where an escape is cut short.
std::optional<std::string> without_escapes(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    if (++i == text.size()) return std::nullopt;
    if (text[i] == 'x') {
      if (i + 2 >= text.size()) return std::nullopt;
      const auto high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
      if (!high || !low) return std::nullopt;
      out += static_cast<char>(*high << 4 | *low);
      i += 2;
      continue;
    }
    out += text[i] == 't' ? '\t' : text[i] == 'n' ? '\n' : text[i] == 'r' ? '\r' : text[i];
  }
  return out;
}

void remove_escapes(const gguf::Metadata& metadata, std::vector<std::string>& tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto bytes = without_escapes(tokens[i]);
    if (!bytes) {
      throw metadata.error(key_of("tokens"),
                           fmt::format("element {} is {}, whose last escape is not whole", i,
                                       text::quoted(tokens[i])));
    }
    tokens[i] = *bytes;
  }
}

std::vector<TokenType> load_types(const gguf::Metadata& metadata) {
  const std::string key = key_of("token_type");
  const auto values = metadata.find_integers(key);
  if (!values) return {};
  std::vector<TokenType> types;
  types.reserve(values->size());
  for (std::size_t i = 0; i < values->size(); ++i) {
    const std::int64_t value = (*values)[i];
    if (value < 0 || value > static_cast<std::int64_t>(TokenType::byte)) {
      throw metadata.error(key, fmt::format("element {} is {}; expected 0 to 6", i, value));
    }
    types.push_back(static_cast<TokenType>(value));
  }
  return types;
}

std::vector<float> load_scores(const gguf::Metadata& metadata) {
  const gguf::FloatArray values = metadata.require_floats(key_of("scores"));
  std::vector<float> scores(values.size());
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = values[i];
  return scores;
}

// An array of bytes, signed or not; empty where it is missing.
std::string load_character_map(const gguf::Metadata& metadata) {
  const std::string key = key_of("precompiled_charsmap");
  const auto values = metadata.find_integers(key);
  if (!values) return {};
  std::string bytes(values->size(), '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::int64_t value = (*values)[i];
    if (value < -128 || value > 255) {
      throw metadata.error(key, fmt::format("element {} is {}; expected a byte", i, value));
    }
    bytes[i] = static_cast<char>(value);
  }
  return bytes;
}

// The id under "NAME_token_id". `standard` is the id that other readers assume when the key is
// missing.
std::optional<Token> load_id(const gguf::Metadata& metadata, std::string_view name,
                             std::optional<Token> standard, Vocabulary& vocabulary) {
  const std::string key = key_of(fmt::format("{}_token_id", name));
  const auto in_range = [&](std::int64_t id) {
    return id >= 0 && static_cast<std::uint64_t>(id) < vocabulary.tokens.size();
  };
  const auto value = metadata.find_int(key);
  if (!value) return standard && in_range(*standard) ? standard : std::nullopt;
  if (*value == -1 || *value == std::int64_t{std::numeric_limits<std::uint32_t>::max()}) {
    return std::nullopt;
  }
  if (!in_range(*value)) {
    vocabulary.warnings.push_back(fmt::format(
        "{} is {}, but the vocabulary has {} tokens: the model is run without this token", key,
        *value, vocabulary.tokens.size()));
    return std::nullopt;
  }
  return static_cast<Token>(*value);
}

// Chooses the pre-tokenizer; adds a warning when it has to guess.
PretokenizerTraits choose_pretokenizer(Vocabulary& vocabulary) {
  if (const auto traits = find_pretokenizer(vocabulary.pre)) return *traits;
  vocabulary.warnings.push_back(
      vocabulary.pre.empty()
          ? std::string("tokenizer.ggml.pre is missing: text is split by the pre-tokenizer "
                        "'default', which may give other tokens than the model was trained with")
          : fmt::format("the pre-tokenizer {} (tokenizer.ggml.pre) is not known: text is split by "
                        "'default' instead, which may give other tokens than the model was trained "
                        "with",
                        text::quoted(vocabulary.pre)));
  return {};
}

struct Defaults {
  std::optional<Token> bos;
  std::optional<Token> eos;
  std::optional<Token> unknown;
  bool add_bos;
  bool add_separator = false;
};

Defaults defaults_of(Vocabulary& vocabulary) {
  if (vocabulary.kind == VocabularyKind::sentencepiece) return {1, 2, 0, true};
  if (vocabulary.kind == VocabularyKind::character_level) return {{}, {}, {}, false};
  if (vocabulary.kind == VocabularyKind::word_pieces) return {101, {}, 100, true, true};
  if (vocabulary.kind == VocabularyKind::longest_pieces) return {{}, {}, {}, false};
  if (vocabulary.kind == VocabularyKind::unigram) return {{}, 1, 2, false};
  const PretokenizerTraits traits = choose_pretokenizer(vocabulary);
  return {traits.has_bos ? std::optional<Token>(11) : std::nullopt, 11, std::nullopt,
          traits.adds_bos, traits.adds_separator};
}

// The list of ids under a key; empty where it is missing.
std::vector<Token> load_ids(const gguf::Metadata& metadata, const std::string& key,
                            const Vocabulary& vocabulary) {
  const auto values = metadata.find_integers(key);
  if (!values) return {};
  std::vector<Token> ids;
  for (std::size_t i = 0; i < values->size(); ++i) {
    const std::int64_t id = (*values)[i];
    if (id < 0 || static_cast<std::uint64_t>(id) >= vocabulary.tokens.size()) {
      throw metadata.error(key, fmt::format("element {} is {}; the vocabulary has {} tokens", i, id,
                                            vocabulary.tokens.size()));
    }
    ids.push_back(static_cast<Token>(id));
  }
  return ids;
}

void load_added_tokens(const gguf::Metadata& metadata, const Defaults& defaults,
                       Vocabulary& vocabulary) {
  const std::string bos_key = key_of("add_bos_token");
  vocabulary.add_bos = metadata.find_bool(bos_key).value_or(defaults.add_bos);
  // Files of the first months of Gemma 4 say otherwise, but the model does not work without it.
  if (vocabulary.kind == VocabularyKind::character_level &&
      character_traits(vocabulary.pre).needs_bos) {
    if (metadata.contains(bos_key) && !vocabulary.add_bos) {
      vocabulary.warnings.push_back(
          fmt::format("{} is false and is not followed: the model needs the BOS token", bos_key));
    }
    vocabulary.add_bos = true;
  }
  if (vocabulary.add_bos && !vocabulary.bos) {
    vocabulary.warnings.push_back(
        "the model wants a BOS token in front of a text, but tokenizer.ggml.bos_token_id names "
        "none: texts start without");
    vocabulary.add_bos = false;
  }
  const bool is_of_pieces = vocabulary.kind == VocabularyKind::word_pieces;
  const bool is_unigram = vocabulary.kind == VocabularyKind::unigram;
  vocabulary.add_eos = metadata.find_bool(key_of("add_eos_token")).value_or(is_unigram);
  vocabulary.add_separator =
      metadata.find_bool(key_of("add_sep_token")).value_or(defaults.add_separator);
  const std::string architecture(metadata.find_string("general.architecture").value_or(""));
  const bool makes_vectors = is_of_pieces || metadata.contains(architecture + ".pooling_type");
  if (vocabulary.add_eos && !makes_vectors) {
    vocabulary.warnings.push_back(
        "tokenizer.ggml.add_eos_token is followed for embeddings only: a prompt that ends in EOS "
        "has nothing to continue");
  }
}

void load_special_tokens(const gguf::Metadata& metadata, Vocabulary& vocabulary) {
  const Defaults defaults = defaults_of(vocabulary);
  vocabulary.bos = load_id(metadata, "bos", defaults.bos, vocabulary);
  vocabulary.eos = load_id(metadata, "eos", defaults.eos, vocabulary);
  vocabulary.unknown = load_id(metadata, "unknown", defaults.unknown, vocabulary);
  const bool is_of_pieces = vocabulary.kind == VocabularyKind::word_pieces;
  const auto separator = is_of_pieces ? std::optional<Token>(102) : std::nullopt;
  // The name of the key is misspelt in all files.
  vocabulary.separator = load_id(metadata, "seperator", separator, vocabulary);
  vocabulary.eot = load_id(metadata, "eot", std::nullopt, vocabulary);
  vocabulary.eom = load_id(metadata, "eom", std::nullopt, vocabulary);
  vocabulary.fim_pad = load_id(metadata, "fim_pad", std::nullopt, vocabulary);
  vocabulary.fim_rep = load_id(metadata, "fim_rep", std::nullopt, vocabulary);
  vocabulary.fim_sep = load_id(metadata, "fim_sep", std::nullopt, vocabulary);
  if (vocabulary.kind == VocabularyKind::byte_level && vocabulary.eos &&
      !metadata.contains(key_of("eos_token_id"))) {
    vocabulary.warnings.push_back(fmt::format(
        "tokenizer.ggml.eos_token_id is missing: token {} ({}) ends a text", *vocabulary.eos,
        text::quoted(vocabulary.tokens[static_cast<std::size_t>(*vocabulary.eos)])));
  }
  vocabulary.more_ends = load_ids(metadata, key_of("eos_token_ids"), vocabulary);  // of Ollama
  load_added_tokens(metadata, defaults, vocabulary);
}

bool is_phi3(const gguf::Metadata& metadata) {
  const std::string name = text::lower_case(metadata.find_string("general.name").value_or(""));
  return name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
}

}  // namespace

Vocabulary load_vocabulary(const gguf::Metadata& metadata) {
  Vocabulary vocabulary;
  vocabulary.source = metadata.source();
  vocabulary.kind = kind_of(metadata);
  vocabulary.pre = std::string(metadata.find_string(key_of("pre")).value_or(""));
  vocabulary.tokens = load_texts(metadata, "tokens");
  vocabulary.types = load_types(metadata);
  const auto space_prefix = metadata.find_bool(key_of("add_space_prefix"));
  if (vocabulary.kind == VocabularyKind::sentencepiece) {
    vocabulary.scores = load_scores(metadata);
    vocabulary.add_space_prefix = space_prefix.value_or(true);
    vocabulary.control_takes_space =
        is_phi3(metadata) && !metadata.contains(key_of("rstrip_token_ids"));
  } else if (vocabulary.kind == VocabularyKind::word_pieces) {
    vocabulary.add_space_prefix = false;
    vocabulary.makes_lowercase = metadata.find_bool(key_of("normalizer.lowercase")).value_or(true);
    vocabulary.strips_accents =
        metadata.find_bool(key_of("normalizer.strip_accents")).value_or(vocabulary.makes_lowercase);
  } else if (vocabulary.kind == VocabularyKind::unigram) {
    vocabulary.scores = load_scores(metadata);
    vocabulary.character_map = load_character_map(metadata);
    vocabulary.merges_spaces =
        metadata.find_bool(key_of("remove_extra_whitespaces")).value_or(false);
    vocabulary.add_space_prefix = space_prefix.value_or(false) || vocabulary.merges_spaces;
  } else if (vocabulary.kind == VocabularyKind::longest_pieces) {
    vocabulary.add_space_prefix = false;
    remove_escapes(metadata, vocabulary.tokens);
  } else {
    vocabulary.merges = load_texts(metadata, "merges");
    vocabulary.add_space_prefix = false;
    if (space_prefix.value_or(false)) {
      vocabulary.warnings.push_back(
          "tokenizer.ggml.add_space_prefix has no effect on BPE with merges");
    }
  }
  load_special_tokens(metadata, vocabulary);
  // A key of `sluice import`; other files have it of Phi-3 alone, by its name.
  vocabulary.takes_space = load_ids(metadata, key_of("rstrip_token_ids"), vocabulary);
  return vocabulary;
}

}  // namespace sluice::tokenizer
