#include "core/tokenizer/vocabulary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <span>
#include <unordered_map>

#include "base/number.h"
#include "core/text/keyed_hash.h"
#include "core/text/quoted.h"

namespace sluice::tokenizer {

namespace {

using TokenByText = std::unordered_map<std::string_view, Token, text::KeyedHash>;

constexpr std::string_view tokens_key = "tokenizer.ggml.tokens";
constexpr std::string_view types_key = "tokenizer.ggml.token_type";
constexpr std::string_view scores_key = "tokenizer.ggml.scores";
constexpr std::string_view merges_key = "tokenizer.ggml.merges";

// Texts with which models end a turn or a text.
constexpr std::array<std::string_view, 22> end_texts = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<end_of_turn>",
    "<turn|>",
    "</s>",
    "<|endoftext|>",
    "<|tool_response>",
    "<eos>",
    "<|eom_id|>",
    "<EOT>",
    "<|end_of_text|>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
};

// Texts of the tokens that frame fill-in-the-middle. The last three kinds also end a generation: a
// model that writes one has begun another file.
constexpr std::array<std::string_view, 24> fim_texts = {
    "<|fim_prefix|>",  "<fim-prefix>",   "<fim_prefix>",    "<｜fim▁begin｜>", "<|code_prefix|>",
    "<|prefix|>",      "<PRE>",          "▁<PRE>",          "<|fim_suffix|>",  "<fim-suffix>",
    "<fim_suffix>",    "<｜fim▁hole｜>", "<|code_suffix|>", "<|suffix|>",      "<SUF>",
    "▁<SUF>",          "<|fim_middle|>", "<fim-middle>",    "<fim_middle>",    "<｜fim▁end｜>",
    "<|code_middle|>", "<|middle|>",     "<MID>",           "▁<MID>",
};
constexpr std::array<std::string_view, 5> fim_pad_texts = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>",
                                                           "<PAD>", "[PAD]"};
constexpr std::array<std::string_view, 5> fim_rep_texts = {"<|fim_repo|>", "<|repo_name|>",
                                                           "<fim-repo>", "<REPO>", "<reponame>"};
constexpr std::array<std::string_view, 1> fim_sep_texts = {"<|file_sep|>"};

// Texts of gpt-oss that are markup to be read, and are printed.
constexpr std::array<std::string_view, 4> printed_texts = {"<|channel|>", "<|message|>",
                                                           "<|start|>", "<|constrain|>"};

TokenByText index_texts(const Vocabulary& vocabulary) {
  TokenByText by_text;
  by_text.reserve(vocabulary.tokens.size());
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const std::string& text = vocabulary.tokens[i];
    if (text.empty()) continue;  // padding; many may be
    const auto [other, is_new] = by_text.emplace(text, static_cast<Token>(i));
    if (!is_new) {
      throw vocabulary_error(vocabulary, tokens_key,
                             fmt::format("token {} is {}, as token {} is already", i,
                                         text::quoted(text), other->second));
    }
  }
  return by_text;
}

std::optional<Token> find_text(const TokenByText& by_text, std::string_view text) {
  const auto found = by_text.find(text);
  if (found == by_text.end()) return std::nullopt;
  return found->second;
}

void check_length(const Vocabulary& vocabulary, std::string_view key, std::size_t length) {
  if (length == vocabulary.tokens.size()) return;
  throw vocabulary_error(vocabulary, key,
                         fmt::format("has {} elements; expected one for each of the {} tokens",
                                     length, vocabulary.tokens.size()));
}

void check_byte_tokens(const Vocabulary& vocabulary) {
  for (std::size_t i = 0; i < vocabulary.types.size(); ++i) {
    if (vocabulary.types[i] != TokenType::byte) continue;
    if (byte_token_value(vocabulary.tokens[i])) continue;
    throw vocabulary_error(
        vocabulary, tokens_key,
        fmt::format("token {} is of type byte and reads {}; expected <0xHH>, two "
                    "hexadecimal digits",
                    i, text::quoted(vocabulary.tokens[i])));
  }
}

void check_scores(const Vocabulary& vocabulary) {
  check_length(vocabulary, scores_key, vocabulary.scores.size());
  const bool are_summed = vocabulary.kind == VocabularyKind::unigram;
  for (std::size_t i = 0; i < vocabulary.scores.size(); ++i) {
    if (std::isnan(vocabulary.scores[i])) {
      throw vocabulary_error(vocabulary, scores_key, fmt::format("element {} is not a number", i));
    }
    if (are_summed && std::isinf(vocabulary.scores[i])) {
      throw vocabulary_error(vocabulary, scores_key, fmt::format("element {} is not finite", i));
    }
  }
}

void check_merges(const Vocabulary& vocabulary) {
  if (vocabulary.merges.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw vocabulary_error(vocabulary, merges_key, "has more than 2^32-1 elements");
  }
  for (std::size_t i = 0; i < vocabulary.merges.size(); ++i) {
    if (split_merge(vocabulary.merges[i])) continue;
    throw vocabulary_error(vocabulary, merges_key,
                           fmt::format("merge {} is {}; expected two parts with a space between", i,
                                       text::quoted(vocabulary.merges[i])));
  }
}

void check_id(const Vocabulary& vocabulary, std::string_view name, std::optional<Token> id) {
  if (!id || (*id >= 0 && static_cast<std::size_t>(*id) < vocabulary.tokens.size())) return;
  throw vocabulary_error(
      vocabulary, fmt::format("tokenizer.ggml.{}_token_id", name),
      fmt::format("is {}; the vocabulary has {} tokens", *id, vocabulary.tokens.size()));
}

// For a file without tokenizer.ggml.token_type.
void guess_types(Vocabulary& vocabulary) {
  vocabulary.types.assign(vocabulary.tokens.size(), TokenType::normal);
  const auto set = [&](std::optional<Token> id, TokenType type) {
    if (id) vocabulary.types[static_cast<std::size_t>(*id)] = type;
  };
  if (vocabulary.kind != VocabularyKind::byte_level) {
    for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
      if (byte_token_value(vocabulary.tokens[i])) vocabulary.types[i] = TokenType::byte;
    }
    set(vocabulary.bos, TokenType::control);
    set(vocabulary.eos, TokenType::control);
    set(vocabulary.unknown, TokenType::unknown);
  }
}

// The token of one of the texts, where the file does not name it by a key.
void find_by_text(std::optional<Token>& id, const TokenByText& by_text,
                  std::span<const std::string_view> texts) {
  for (std::size_t i = 0; i < texts.size() && !id; ++i) id = find_text(by_text, texts[i]);
}

void collect_end_of_generation(Vocabulary& vocabulary, const TokenByText& by_text) {
  std::vector<Token>& ends = vocabulary.end_of_generation;
  const auto type_of = [&](Token id) -> TokenType& {
    return vocabulary.types[static_cast<std::size_t>(id)];
  };
  ends = vocabulary.more_ends;
  for (const auto& id : {vocabulary.eos, vocabulary.eot, vocabulary.eom, vocabulary.fim_pad,
                         vocabulary.fim_rep, vocabulary.fim_sep}) {
    if (id) ends.push_back(*id);
  }
  for (const std::string_view text : end_texts) {
    if (const auto id = find_text(by_text, text)) {
      ends.push_back(*id);
      type_of(*id) = TokenType::control;
    }
  }
  const auto has = [&](std::string_view text) { return find_text(by_text, text).has_value(); };
  const auto keep_out = [&](std::string_view text, TokenType type) {
    if (const auto id = find_text(by_text, text)) {
      std::erase(ends, *id);
      type_of(*id) = type;
    }
  };
  // In gpt-oss and Solar Open <|end|> closes a message, not the turn.
  const bool has_call = has("<|call|>") || has("<|calls|>");
  if (has_call && (has("<|return|>") || has("<|flush|>"))) {
    keep_out("<|end|>", TokenType::user_defined);
  }
  // In Gemma 4 </s> is the tag of struck-out text.
  if (has("<|tool_response>")) keep_out("</s>", TokenType::normal);

  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
}

// These tokenizers try pieces of all lengths at each place of a text.
void check_piece_bytes(const Vocabulary& vocabulary) {
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const std::size_t bytes = vocabulary.tokens[i].size();
    if (bytes <= piece_bytes_max) continue;
    throw vocabulary_error(
        vocabulary, tokens_key,
        fmt::format("token {} has {} bytes; here it may have up to {}", i, bytes, piece_bytes_max));
  }
}

}  // namespace

std::optional<MergeParts> split_merge(std::string_view merge) {
  const std::size_t space = merge.find(' ', 1);
  if (space == std::string_view::npos || space + 1 == merge.size()) return std::nullopt;
  if (merge.find(' ', space + 1) != std::string_view::npos) return std::nullopt;
  return MergeParts{merge.substr(0, space), merge.substr(space + 1)};
}

std::optional<std::uint8_t> byte_token_value(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
  return base::whole_number<std::uint8_t>(text.substr(3, 2), 16);
}

ModelError vocabulary_error(const Vocabulary& vocabulary, std::string_view key,
                            std::string_view what) {
  return ModelError(fmt::format("{}: key '{}': {}", vocabulary.source, key, what));
}

void check_vocabulary(const Vocabulary& vocabulary) {
  if (vocabulary.tokens.empty()) throw vocabulary_error(vocabulary, tokens_key, "has no elements");
  if (vocabulary.tokens.size() > std::size_t{std::numeric_limits<Token>::max()} / 2) {
    throw vocabulary_error(vocabulary, tokens_key, "has more than 2^30 elements");
  }
  if (!vocabulary.types.empty()) check_length(vocabulary, types_key, vocabulary.types.size());
  check_byte_tokens(vocabulary);
  const bool is_unigram = vocabulary.kind == VocabularyKind::unigram;
  if (is_unigram || vocabulary.kind == VocabularyKind::sentencepiece) check_scores(vocabulary);
  const bool has_merges = vocabulary.kind == VocabularyKind::byte_level ||
                          vocabulary.kind == VocabularyKind::character_level;
  if (has_merges) check_merges(vocabulary);
  const bool tries_lengths = is_unigram || vocabulary.kind == VocabularyKind::word_pieces ||
                             vocabulary.kind == VocabularyKind::longest_pieces;
  if (tries_lengths) check_piece_bytes(vocabulary);
  check_id(vocabulary, "bos", vocabulary.bos);
  check_id(vocabulary, "eos", vocabulary.eos);
  check_id(vocabulary, "eot", vocabulary.eot);
  check_id(vocabulary, "eom", vocabulary.eom);
  check_id(vocabulary, "unknown", vocabulary.unknown);
  check_id(vocabulary, "fim_pad", vocabulary.fim_pad);
  check_id(vocabulary, "fim_rep", vocabulary.fim_rep);
  check_id(vocabulary, "fim_sep", vocabulary.fim_sep);
  for (const Token id : vocabulary.more_ends) check_id(vocabulary, "eos", id);
  index_texts(vocabulary);
}

void classify_tokens(Vocabulary& vocabulary) {
  const TokenByText by_text = index_texts(vocabulary);
  if (vocabulary.types.empty()) guess_types(vocabulary);
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.types[i] == TokenType::undefined) vocabulary.types[i] = TokenType::normal;
    if (vocabulary.tokens[i].empty()) vocabulary.types[i] = TokenType::unused;
  }
  const auto set_type = [&](std::span<const std::string_view> texts, TokenType type) {
    for (const std::string_view text : texts) {
      if (const auto id = find_text(by_text, text)) {
        vocabulary.types[static_cast<std::size_t>(*id)] = type;
      }
    }
  };
  for (const auto& texts : {std::span<const std::string_view>(fim_texts),
                            std::span<const std::string_view>(fim_pad_texts),
                            std::span<const std::string_view>(fim_rep_texts),
                            std::span<const std::string_view>(fim_sep_texts)}) {
    set_type(texts, TokenType::control);
  }
  set_type(printed_texts, TokenType::user_defined);
  find_by_text(vocabulary.fim_pad, by_text, fim_pad_texts);
  find_by_text(vocabulary.fim_rep, by_text, fim_rep_texts);
  find_by_text(vocabulary.fim_sep, by_text, fim_sep_texts);
  collect_end_of_generation(vocabulary, by_text);
}

}  // namespace sluice::tokenizer
