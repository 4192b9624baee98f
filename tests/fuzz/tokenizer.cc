// Vocabularies, and what they make of texts: SETTINGS, TOKENS, MERGES, TEXT, CHOICES. Tokens and
// merges are lists, separated by the byte 0x1F.
#include "core/tokenizer/tokenizer.h"

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/gguf/gguf.h"
#include "core/gguf/gguf_writer.h"
#include "core/synth/toy_vocabulary.h"
#include "core/text/byte_alphabet.h"
#include "tests/fuzz/fuzz.h"

namespace sluice::fuzz {
namespace {

using tokenizer::Token;

std::vector<std::string> list_of(std::string_view text) {
  std::vector<std::string> all;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\x1f'), text.size());
    all.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return all;
}

struct Made {
  std::vector<std::byte> file;
  bool is_whole = false;  // any text can be written in it, and comes back
};

// A double array of any units, most of which are near what leads to them, and replacements.
std::string character_map(Choices& settings, const std::vector<std::string>& replacements) {
  std::string map;
  const auto add_u32 = [&](std::uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8) map += static_cast<char>(value >> shift & 255);
  };
  const std::size_t units = 256 * settings.below(3) + settings.below(256);
  add_u32(static_cast<std::uint32_t>(4 * units));
  for (std::size_t i = 0; i < units; ++i) {
    const std::size_t kind = settings.below(4);
    const auto byte = static_cast<std::uint32_t>(settings.byte());
    const std::uint32_t label = kind == 3 ? byte : i & 255;
    add_u32(kind == 0 ? std::uint32_t{1} << 31 | byte : byte << 10 | (byte & 1) << 8 | label);
  }
  for (const std::string& text : replacements) map += text + '\0';
  return map;
}

// `settings` say which kind of vocabulary it is, and what its keys hold.
Made make(Choices settings, std::vector<std::string> tokens,
          const std::vector<std::string>& merges) {
  const char* const models[] = {"llama", "gpt2", "gemma4", "bert", "t5", "rwkv", "none"};
  const char* const pres[] = {"default", "llama-bpe", "qwen2",     "gpt-2",        "gpt-4o",
                              "tekken",  "smollm",    "falcon",    "deepseek-llm", "glm4",
                              "qwen35",  "other",     "jina-v2-de"};
  const std::size_t model = settings.below(std::size(models));
  const bool is_whole = settings.below(4) != 0 && model < 2;
  gguf::Writer writer;
  writer.add("tokenizer.ggml.model", models[model]);
  writer.add("tokenizer.ggml.pre", pres[settings.below(std::size(pres))]);
  std::vector<std::int32_t> types(tokens.size(), 1);
  std::vector<float> scores;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    scores.push_back(-static_cast<float>(settings.byte()));
    const std::size_t type = settings.below(10);
    types[i] = is_whole ? (type == 4 ? 4 : 1) : static_cast<std::int32_t>(type > 7 ? 1 : type);
  }
  if (is_whole) {
    std::vector<std::string> first;
    for (int byte = 0; byte < 256; ++byte) {
      first.push_back(text::encode_byte_alphabet(std::string(1, static_cast<char>(byte))));
    }
    std::vector<std::int32_t> first_types(first.size(), 1);
    std::vector<float> first_scores(first.size(), 0);
    if (model == 0) {
      synth::Vocabulary toy = synth::toy_vocabulary(synth::unprintable_tokens + 100);
      first = toy.tokens, first_types = toy.types, first_scores = toy.scores;
    }
    std::set<std::string> seen(first.begin(), first.end());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i].empty() || !seen.insert(tokens[i]).second) continue;
      first.push_back(tokens[i]);
      first_types.push_back(types[i]);
      first_scores.push_back(scores[i]);
    }
    tokens = first, types = first_types, scores = first_scores;
  }
  writer.add_array("tokenizer.ggml.tokens", std::span<const std::string>(tokens));
  if (is_whole || settings.below(3) != 0) {
    writer.add_array("tokenizer.ggml.token_type", std::span<const std::int32_t>(types));
  }
  if (model == 0 || settings.below(2) != 0) {
    writer.add_array("tokenizer.ggml.scores", std::span<const float>(scores));
  }
  if (model != 0) writer.add_array("tokenizer.ggml.merges", std::span<const std::string>(merges));
  for (const char* const name : {"bos_token_id", "eos_token_id", "unknown_token_id",
                                 "seperator_token_id", "eot_token_id", "fim_pad_token_id"}) {
    const std::size_t choice = settings.below(8);
    if (choice >= 4) continue;
    const auto id = static_cast<std::uint32_t>(choice == 3 ? 0xFFFFFFFF : settings.below(400));
    writer.add("tokenizer.ggml." + std::string(name), id);
  }
  if (settings.below(2) != 0) {
    const std::string map = character_map(settings, merges);
    writer.add_array("tokenizer.ggml.precompiled_charsmap",
                     std::span(reinterpret_cast<const std::int8_t*>(map.data()), map.size()));
  }
  for (const char* const name :
       {"add_bos_token", "add_space_prefix", "add_eos_token", "remove_extra_whitespaces"}) {
    if (settings.below(3) == 0) {
      writer.add("tokenizer.ggml." + std::string(name), settings.below(2) != 0);
    }
  }
  return {writer.header(), is_whole};
}

void encode(const tokenizer::Tokenizer& tokens, std::string_view text, bool is_whole,
            Choices choices) {
  const bool add_bos = choices.below(2) != 0;
  const tokenizer::EncodeOptions options{.add_bos = false, .parse_special = choices.below(2) != 0};
  const std::vector<Token> all = tokens.encode(text, options);
  for (const Token token : all) {
    require(token >= 0 && static_cast<std::size_t>(token) < tokens.vocabulary_size(),
            "tokens are in the vocabulary");
    static_cast<void>(tokens.piece(token, true));
  }
  const std::string back = tokens.decode(all);
  if (is_whole && !options.parse_special) require(back == text, "a text comes back");
  static_cast<void>(tokens.encode(text, {.add_bos = add_bos, .add_end = true}));
  // A long text that is encoded piece by piece gives the same tokens.
  std::vector<Token> pieces;
  tokenizer::EncodePosition position;
  std::string_view rest = text;
  for (std::size_t bytes = 1 + choices.below(40); !rest.empty();) {
    const bool is_last = bytes >= rest.size();
    const std::size_t taken =
        tokens.encode_piece(rest.substr(0, bytes), is_last, options, position, pieces);
    require(taken <= rest.size() && (!is_last || taken == rest.size()), "pieces end with the text");
    rest.remove_prefix(taken);
    if (taken == 0) bytes += 20;
  }
  if (!text.empty()) require(pieces == all, "pieces give the tokens of the whole");
  const std::size_t cut = choices.below(text.size() + 1);
  const tokenizer::TextPart parts[] = {{text.substr(0, cut), choices.below(2) != 0},
                                       {text.substr(cut), false}};
  static_cast<void>(tokens.encode_parts(parts, {}, choices.below(2) != 0));
  static_cast<void>(tokens.encode_pair(text.substr(0, cut), text.substr(cut)));
}

}  // namespace

void run(std::string_view input) {
  const auto parts = split(input, 5);
  if (parts[3].size() > 1500) return;
  const Made made = make(Choices(parts[0]), list_of(parts[1]), list_of(parts[2]));
  try {
    const gguf::Header header = gguf::parse_header(made.file, "file");
    const auto tokens = tokenizer::Tokenizer::from_metadata(header.metadata);
    encode(*tokens, parts[3], made.is_whole, Choices(parts[4]));
  } catch (const ModelError&) {
  }
}

std::vector<std::string> seeds() {
  const std::string text = "Hello  w\xC3\xB6rld's 1234 \n\n\xE4\xBD\xA0\xE5\xA5\xBD <s>\xFF\t ";
  std::vector<std::string> all;
  for (char model = 0; model < 4; ++model) {
    for (char pre = 0; pre < 13; ++pre) {
      const std::string settings = {model, '\1', pre, '\3', '\1', '\5', '\4', '\1', '\1'};
      all.push_back(joined({settings, "he\x1fll\x1fo\x1f\xE2\x96\x81w\x1f<s>\x1fhell\x1f##o",
                            "h e\x1fl l\x1fhe ll\x1f\xC4\xA0 w", text, "\1\1\x07\1\1"}));
    }
  }
  return all;
}

}  // namespace sluice::fuzz
