#include "core/convert/import_tokenizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <iterator>
#include <optional>
#include <span>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/number.h"
#include "core/convert/chat_templates.h"
#include "core/convert/json_file.h"
#include "core/convert/post_processor.h"
#include "core/convert/pretokenizer_name.h"
#include "core/convert/text_preparation.h"
#include "core/convert/tiktoken.h"
#include "core/convert/world_vocabulary.h"
#include "core/gguf/gguf.h"
#include "core/text/keyed_hash.h"
#include "core/text/quoted.h"
#include "core/text/utf8.h"
#include "core/tokenizer/pretokenizer.h"
#include "core/tokenizer/tokenizer.h"

namespace sluice::convert {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t tokenizer_bytes_max = 256'000'000;

enum TokenType : std::int32_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

// tokenizer.json calls these marks of Gemma 4 special, but whoever reads a chat has to see them.
constexpr std::string_view visible_marks[] = {
    "<|channel>",       "<channel|>",       "<|tool_call>", "<tool_call|>",
    "<|tool_response>", "<tool_response|>", "<|\"|>"};

// Two tokens that become one.
struct MergedPair {
  std::string left, right;
};

bool is_byte_token(const std::string& text) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
  return text.size() == 6 && text.starts_with("<0x") && is_digit(text[3]) && is_digit(text[4]) &&
         text[5] == '>';
}

class TokenizerImport {
 public:
  TokenizerImport(const fs::path& folder, const Config& config, std::uint64_t vocabulary,
                  TokenizerUse use)
      : world_(find_world_vocabulary(folder)),
        source_((folder / (world_ ? "tokenizer_config.json" : "tokenizer.json")).string()),
        config_(config),
        settings_(read_config(folder / "tokenizer_config.json")),
        tokenizer_(read_tokenizer(folder), source_),
        generation_(read_config(folder / "generation_config.json")),
        folder_(folder),
        use_(use),
        tokens_(vocabulary),
        types_(vocabulary, unused) {}

  // Returns warnings.
  std::vector<std::string> write(gguf::Writer& writer) {
    write_kind(writer);
    if (!rstripped_.empty()) {
      writer.add_array("tokenizer.ggml.rstrip_token_ids",
                       std::span<const std::int32_t>(rstripped_));
    }
    check_readable(writer);
    return std::move(warnings_);
  }

 private:
  // Each line once, and of very many the first ones.
  void warn(const Config& place, const char* key, const std::string& what) {
    constexpr std::size_t warnings_max = 100;
    if (warnings_.size() > warnings_max) return;
    const std::string line = place.error(key, what).what();
    if (std::ranges::find(warnings_, line) != warnings_.end()) return;
    const bool is_full = warnings_.size() == warnings_max;
    warnings_.push_back(is_full ? fmt::format("{}: there are more warnings", source_) : line);
  }

  // What was written has to make a tokenizer.
  void check_readable(const gguf::Writer& writer) const {
    const std::vector<std::byte> bytes = writer.header();
    tokenizer::Tokenizer::from_metadata(gguf::parse_header(bytes, source_).metadata);
  }

  void write_kind(gguf::Writer& writer) {
    if (world_) return write_world(writer);
    const Config model = require_object(tokenizer_, "model");
    const std::string type = model.find_text("type").value_or("");
    if (type == "WordPiece") return write_word_pieces(model, writer);
    if (type == "Unigram") return write_unigram(model, writer);
    if (type != "BPE") throw model.error("type", "is not BPE, Unigram or WordPiece");
    const bool has_bytes = model.find_flag("byte_fallback").value_or(false);
    const bool has_scores = has_bytes && !use_.keeps_merges;
    const char* kind = has_scores ? "llama" : has_bytes ? "gemma4" : "gpt2";
    writer.add("tokenizer.ggml.model", kind);
    const std::string_view pre =
        has_bytes ? "default" : pretokenizer_name(tokenizer_, looks_up_words(model));
    writer.add("tokenizer.ggml.pre", pre);
    read_vocabulary(model);
    read_added_tokens();
    const std::vector<MergedPair> merges = read_merges(model);
    if (!has_bytes) {
      require_no_preparation(tokenizer_);
      check_whole_words(model, pre, merges);
    }
    if (has_bytes) {
      write_space_prefix(space_rules(tokenizer_), writer);
      write_unknown(model, writer);
      mark_bytes(model);
    }
    std::vector<float> scores;
    if (has_scores) scores = scores_of(model, merges);
    fill_gaps();
    writer.add_array("tokenizer.ggml.tokens", std::span<const std::string>(tokens_));
    writer.add_array("tokenizer.ggml.token_type", std::span<const std::int32_t>(types_));
    if (has_scores) {
      writer.add_array("tokenizer.ggml.scores", std::span<const float>(scores));
    } else {
      write_merges(merges, writer);
    }
    write_special_tokens(writer);
    write_chat_templates(folder_, settings_, writer);
  }

  // tokenizer.json, or what it would be for tiktoken.model or the list of tokens in vocab.txt.
  json read_tokenizer(const fs::path& folder) const {
    if (world_) return {{"added_tokens", settings_tokens()}};
    const bool has_json = fs::exists(folder / "tokenizer.json");
    const fs::path ranks = folder / "tiktoken.model";
    if (!has_json && fs::exists(ranks)) {
      json tokenizer = read_tiktoken(ranks, settings_);
      tokenizer["added_tokens"] = settings_tokens();
      return tokenizer;
    }
    if (has_json) return read_json(folder / "tokenizer.json", tokenizer_bytes_max);
    if (!fs::exists(folder / "vocab.txt")) {
      const bool has_model = fs::exists(folder / "tokenizer.model");
      throw ModelError(fmt::format(
          "{}: tokenizer.json is missing; {}", folder.string(),
          has_model ? "tokenizer.model alone is not read: load it with AutoTokenizer of "
                      "transformers and save it again with save_pretrained()"
                    : "get it too"));
    }
    std::istringstream lines(read_file(folder / "vocab.txt", tokenizer_bytes_max));
    json vocabulary = json::object(), added = json::array();
    std::size_t id = 0;
    for (std::string line; std::getline(lines, line); ++id) {
      if (line.ends_with('\r')) line.pop_back();
      vocabulary[line] = id;
    }
    for (const auto& [key, text] : word_piece_marks) {
      const auto found = vocabulary.find(text);
      if (found == vocabulary.end()) continue;
      added.push_back({{"id", *found}, {"content", text}, {"special", true}});
    }
    const bool lowercase = settings_.find_flag("do_lower_case").value_or(true);
    return {{"normalizer", {{"type", "BertNormalizer"}, {"lowercase", lowercase}}},
            {"added_tokens", added},
            {"model", {{"type", "WordPiece"}, {"unk_token", "[UNK]"}, {"vocab", vocabulary}}}};
  }

  // The special tokens of tokenizer_config.json, each with its id.
  json settings_tokens() const {
    constexpr const char* key = "added_tokens_decoder";
    json added = json::array();
    const json* special = settings_.find(key);
    if (special == nullptr) return added;
    for (const auto& [id, one] : special->items()) {
      const auto index = base::whole_number<std::uint64_t>(id);
      if (!index || !one.is_object()) {
        throw settings_.error(key, "has an entry that is no token under its id");
      }
      added.push_back(one);
      added.back()["id"] = *index;
    }
    return added;
  }

  // --- RWKV: the longest tokens ---

  // Id 0, which begins and ends texts, has no line; tokenizer_config.json may name it.
  void write_world(gguf::Writer& writer) {
    read_added_tokens();
    if (types_.front() == unused) set_token("<s>", 0U, control, "added_tokens");
    const std::vector<std::string> pieces = read_world_vocabulary(*world_, tokens_.size());
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const auto added = ids_.find(pieces[i]);
      if (pieces[i].empty() || (added != ids_.end() && added->second == i + 1)) continue;
      // transformers gives the end of a turn a second id, for which a model has no weights.
      if (added != ids_.end()) types_[added->second] = unused;
      set_token(pieces[i], i + 1, normal, "added_tokens");
    }
    fill_gaps();
    for (std::string& token : tokens_) token = with_escapes(token);
    writer.add("tokenizer.ggml.model", "rwkv");
    writer.add_array("tokenizer.ggml.tokens", std::span<const std::string>(tokens_));
    writer.add_array("tokenizer.ggml.token_type", std::span<const std::int32_t>(types_));
    // Where nobody has set them they are 1 and 2, which are bytes here.
    const auto special = [&](const char* key) -> std::uint32_t {
      const auto id = listed_token(key);
      return id && types_[*id] == control ? *id : 0;
    };
    writer.add("tokenizer.ggml.bos_token_id", special("bos_token_id"));
    writer.add("tokenizer.ggml.eos_token_id", special("eos_token_id"));
    const auto turn_end = ids_.find("\n\n");  // in all chats
    if (turn_end != ids_.end()) writer.add("tokenizer.ggml.eot_token_id", turn_end->second);
    write_chat_templates(folder_, settings_, writer);
  }

  // --- WordPiece ---

  static constexpr std::pair<const char*, const char*> word_piece_marks[] = {
      {"padding", "[PAD]"}, {"unknown", "[UNK]"},   {"bos", "[CLS]"},
      {"cls", "[CLS]"},     {"seperator", "[SEP]"}, {"mask", "[MASK]"}};

  void write_word_pieces(const Config& model, gguf::Writer& writer) {
    const Config normalizer = require_object(tokenizer_, "normalizer");
    if (normalizer.find_text("type").value_or("") != "BertNormalizer") {
      throw normalizer.error("type", "is not BertNormalizer");
    }
    for (const char* key : {"clean_text", "handle_chinese_chars"}) {
      if (!normalizer.find_flag(key).value_or(true)) throw normalizer.error(key, "is not true");
    }
    if (model.find_text("continuing_subword_prefix").value_or("##") != "##") {
      throw model.error("continuing_subword_prefix", "is not ##");
    }
    read_vocabulary(model);
    read_added_tokens();
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      std::string& token = tokens_[i];
      if (types_[i] != normal) continue;
      if (token.size() > 2 && token.starts_with("##")) {
        token.erase(0, 2);
      } else {
        token.insert(0, space_mark);
      }
    }
    fill_gaps();
    writer.add("tokenizer.ggml.model", "bert");
    writer.add("tokenizer.ggml.pre", "default");
    writer.add_array("tokenizer.ggml.tokens", std::span<const std::string>(tokens_));
    writer.add_array("tokenizer.ggml.token_type", std::span<const std::int32_t>(types_));
    const bool lowercase = normalizer.find_flag("lowercase").value_or(true);
    writer.add("tokenizer.ggml.normalizer.lowercase", lowercase);
    writer.add("tokenizer.ggml.normalizer.strip_accents",
               normalizer.find_flag("strip_accents").value_or(lowercase));
    // The name of the separator is misspelt in all files.
    for (const auto& [key, text] : word_piece_marks) {
      const auto found = ids_.find(text);
      if (found == ids_.end()) throw model.error("vocab", fmt::format("has no {}", text));
      writer.add(fmt::format("tokenizer.ggml.{}_token_id", key), found->second);
    }
  }

  // --- SentencePiece's unigram model ---

  void write_unigram(const Config& model, gguf::Writer& writer) {
    const UnigramRules rules = unigram_rules(tokenizer_);
    std::vector<float> scores = read_scored_vocabulary(model);
    read_added_tokens();
    const auto unknown_id = model.find_whole("unk_id");
    if (!unknown_id || *unknown_id >= tokens_.size() || types_[*unknown_id] == unused) {
      throw model.error("unk_id", "is no token of the vocabulary");
    }
    types_[*unknown_id] = unknown;
    if (model.find_flag("byte_fallback").value_or(false)) mark_bytes(model);
    fill_gaps();
    writer.add("tokenizer.ggml.model", "t5");
    writer.add("tokenizer.ggml.pre", "default");
    writer.add_array("tokenizer.ggml.tokens", std::span<const std::string>(tokens_));
    writer.add_array("tokenizer.ggml.token_type", std::span<const std::int32_t>(types_));
    writer.add_array("tokenizer.ggml.scores", std::span<const float>(scores));
    write_space_prefix(rules.spaces, writer);
    writer.add("tokenizer.ggml.remove_extra_whitespaces", rules.merges_spaces);
    if (!rules.character_map.empty()) {
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(rules.character_map.data());
      writer.add_array("tokenizer.ggml.precompiled_charsmap",
                       std::span<const std::uint8_t>(bytes, rules.character_map.size()));
    }
    writer.add("tokenizer.ggml.unknown_token_id", *unknown_id);
    write_special_tokens(writer);
    write_chat_templates(folder_, settings_, writer);
  }

  // A list of pairs, of a token and its score, in the order of ids. Gives the scores, a low one to
  // ids without a token.
  std::vector<float> read_scored_vocabulary(const Config& model) {
    const json* vocabulary = model.find_list("vocab");
    if (vocabulary == nullptr) throw model.error("vocab", "is missing");
    std::vector<float> scores(tokens_.size(), -10000);
    std::size_t id = 0;
    for (const json& pair : *vocabulary) {
      const bool is_pair = pair.is_array() && pair.size() == 2 && pair[0].is_string() &&
                           pair[1].is_number() && std::isfinite(pair[1].get<float>());
      if (!is_pair) {
        throw model.error("vocab", fmt::format("has no token with a score at {}", id));
      }
      set_token(pair[0].get<std::string>(), id, normal, "model");
      scores[id++] = pair[1].get<float>();
    }
    return scores;
  }

  static Config require_object(const Config& parent, const char* key) {
    auto object = parent.find_object(key);
    if (!object) throw parent.error(key, "is missing");
    return *object;
  }

  static bool looks_up_words(const Config& model) {
    return model.find_flag("ignore_merges").value_or(false);
  }

  // Where words are looked up before they are merged, some may be tokens that no merge makes.
  void check_whole_words(const Config& model, std::string_view pre,
                         const std::vector<MergedPair>& merges) {
    if (!looks_up_words(model)) return;
    if (tokenizer::find_pretokenizer(pre)->ignore_merges) return;
    std::unordered_set<std::string, text::KeyedHash> made;
    for (const MergedPair& merge : merges) made.insert(merge.left + merge.right);
    std::size_t count = 0;
    std::string first;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const bool is_character = utf8::character_bytes(tokens_[i]) == tokens_[i].size();
      if (types_[i] != normal || is_character || made.contains(tokens_[i])) continue;
      if (count++ == 0) first = tokens_[i];
    }
    if (count == 0) return;
    warn(model, "ignore_merges",
         fmt::format("is left aside: no merge makes {} tokens, such as {}, so text has others in "
                     "their place",
                     count, text::quoted(first)));
  }

  void set_token(const std::string& text, const json& id, TokenType type, const char* place) {
    const bool is_id = id.is_number_unsigned() && id.get<std::uint64_t>() < tokens_.size();
    if (!is_id) {
      throw tokenizer_.error(place, fmt::format("gives token {} an id outside of 0 to {}",
                                                text::quoted(text), tokens_.size() - 1));
    }
    const auto index = id.get<std::size_t>();
    if (types_[index] != unused && tokens_[index] != text) {
      throw tokenizer_.error(
          place, fmt::format("gives token {} the id {} of {}", text::quoted(text), index,
                             text::quoted(tokens_[index])));
    }
    tokens_[index] = text;
    types_[index] = type;
    ids_[text] = static_cast<std::uint32_t>(index);
  }

  void read_vocabulary(const Config& model) {
    const json* vocabulary = model.find("vocab");
    if (vocabulary == nullptr || !vocabulary->is_object()) {
      throw model.error("vocab", "is not an object of tokens and ids");
    }
    for (const auto& [text, id] : vocabulary->items()) set_token(text, id, normal, "model");
  }

  void read_added_tokens() {
    const json* added = tokenizer_.find_list("added_tokens");
    if (added == nullptr) return;
    for (const json& one : *added) {
      const Config token(one, source_ + ": added_tokens");
      const auto text = token.find_text("content");
      if (!text || text->empty()) throw token.error("content", "is missing");
      const bool is_visible = std::find(std::begin(visible_marks), std::end(visible_marks),
                                        *text) != std::end(visible_marks);
      const json id = one.value("id", json());
      // As in Gemma 3 without its eyes, whose tokenizer has a token for images.
      if (id.is_number_unsigned() && id.get<std::uint64_t>() >= tokens_.size()) {
        warn(token, "id",
             fmt::format("of {} is left aside: the model has {} tokens", text::quoted(*text),
                         tokens_.size()));
        continue;
      }
      const bool is_special = token.find_flag("special").value_or(false) && !is_visible;
      set_token(*text, id, is_special ? control : user_defined, "added_tokens");
      if (token.find_flag("rstrip").value_or(false)) {
        rstripped_.push_back(static_cast<std::int32_t>(ids_[*text]));
      }
      // Nobody writes a mask.
      if (token.find_flag("lstrip").value_or(false) && text_in_settings("mask_token") != *text) {
        warn(token, "lstrip",
             fmt::format("of {} is left aside: white space in front of it becomes tokens",
                         text::quoted(*text)));
      }
    }
  }

  void fill_gaps() {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (types_[i] != unused) continue;
      tokens_[i] = fmt::format("[PAD{}]", i);
      while (ids_.contains(tokens_[i])) tokens_[i].insert(0, "[");
    }
  }

  // Each is "left right", or in newer files a list of the two.
  static std::vector<MergedPair> read_merges(const Config& model) {
    const json* list = model.find_list("merges");
    if (list == nullptr) throw model.error("merges", "is missing");
    std::vector<MergedPair> merges;
    merges.reserve(list->size());
    for (const json& merge : *list) {
      MergedPair pair;
      if (merge.is_string()) {
        const auto text = merge.get<std::string>();
        const std::size_t space = std::min(text.find(' ', 1), text.size());
        pair = {text.substr(0, space), text.substr(std::min(space + 1, text.size()))};
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
                 merge[1].is_string()) {
        pair = {merge[0].get<std::string>(), merge[1].get<std::string>()};
      }
      if (pair.left.empty() || pair.right.empty()) {
        throw model.error("merges", fmt::format("has no pair at {}", merges.size()));
      }
      merges.push_back(std::move(pair));
    }
    return merges;
  }

  static void write_merges(const std::vector<MergedPair>& merges, gguf::Writer& writer) {
    std::vector<std::string> texts;
    texts.reserve(merges.size());
    for (const MergedPair& merge : merges) texts.push_back(merge.left + " " + merge.right);
    writer.add_array("tokenizer.ggml.merges", std::span<const std::string>(texts));
  }

  // --- BPE on characters, with bytes for those that are no token ---

  void write_space_prefix(const SpaceRules& rules, gguf::Writer& writer) {
    writer.add("tokenizer.ggml.add_space_prefix", rules.adds_prefix);
    if (rules.adds_prefix && rules.is_only_first) {
      warn(tokenizer_, "pre_tokenizer",
           "has the prepend_scheme first, which is followed as always: text behind a control token "
           "begins with a space too");
    }
  }

  void write_unknown(const Config& model, gguf::Writer& writer) {
    const auto text = model.find_text("unk_token");
    if (!text) return;
    const auto found = ids_.find(*text);
    if (found == ids_.end()) throw model.error("unk_token", "is no token of the vocabulary");
    types_[found->second] = unknown;
    writer.add("tokenizer.ggml.unknown_token_id", found->second);
  }

  void mark_bytes(const Config& model) {
    int bytes = 0;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (types_[i] == normal && is_byte_token(tokens_[i])) {
        types_[i] = byte;
        ++bytes;
      }
      // What is matched in a text before it is prepared has its spaces as they are.
      if (types_[i] == user_defined) tokens_[i] = with_spaces(tokens_[i]);
    }
    if (bytes != 256) {
      throw model.error("vocab", fmt::format("has {} of the 256 tokens for bytes", bytes));
    }
  }

  static std::string with_spaces(std::string_view text) {
    std::string out;
    for (std::size_t at = 0; (at = text.find(space_mark)) != text.npos;) {
      out.append(text.substr(0, at)) += ' ';
      text.remove_prefix(at + space_mark.size());
    }
    return out.append(text);
  }

  // SentencePiece merges the pair whose token has the greatest score, where tokenizer.json has a
  // list of pairs. A token gets the place of the first pair that makes it: the list was made from
  // scores, and has all pairs of a token together.
  std::vector<float> scores_of(const Config& model, const std::vector<MergedPair>& merges) const {
    const auto least = -static_cast<float>(merges.size() + 1);
    std::vector<float> scores(tokens_.size(), least);
    for (std::size_t i = merges.size(); i-- > 0;) {
      const auto found = ids_.find(merges[i].left + merges[i].right);
      if (found == ids_.end()) {
        throw model.error("merges", fmt::format("has a pair at {} that makes no token", i));
      }
      scores[found->second] = -static_cast<float>(i + 1);
    }
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (types_[i] != normal || scores[i] != least || !can_be_made(tokens_[i])) continue;
      throw model.error("merges", fmt::format("make token {} nowhere, so this is no SentencePiece",
                                              text::quoted(tokens_[i])));
    }
    return scores;
  }

  // Whether two tokens put together are this one. No SentencePiece has very long ones, which would
  // take long.
  bool can_be_made(const std::string& text) const {
    if (text.size() > token_bytes_max) return false;
    const auto is_part = [&](const std::string& part) {
      const auto found = ids_.find(part);
      return found != ids_.end() && types_[found->second] == normal;
    };
    for (std::size_t at = 1; at < text.size(); ++at) {
      if (is_part(text.substr(0, at)) && is_part(text.substr(at))) return true;
    }
    return false;
  }

  // A token of tokenizer_config.json: "X" or {"content": "X"}; null where it is something else.
  json text_in_settings(const char* key) const {
    const json* value = settings_.find(key);
    if (value == nullptr) return {};
    return value->is_object() ? value->value("content", json()) : *value;
  }

  // The token that tokenizer_config.json names by its text.
  std::optional<std::uint32_t> named_token(const char* key) {
    if (!settings_.contains(key)) return std::nullopt;
    const json text = text_in_settings(key);
    const auto found = text.is_string() ? ids_.find(text.get<std::string>()) : ids_.end();
    if (found != ids_.end()) return found->second;
    constexpr const char* problem = "is no token of the vocabulary";
    if (key != std::string_view("pad_token")) throw settings_.error(key, problem);
    warn(settings_, key, problem);  // and nothing is padded
    return std::nullopt;
  }

  // A number or a list of numbers. Negative ones say that there is no such token, and nothing is
  // padded; so these are left out with a warning.
  std::vector<std::int32_t> token_ids(const Config& config, const char* key) {
    const json* value = config.find(key);
    if (value == nullptr) return {};
    std::vector<std::int32_t> ids;
    for (const json& id : value->is_array() ? *value : json::array({*value})) {
      const bool is_whole = id.is_number_integer(), is_positive = id.is_number_unsigned();
      if (!is_positive || id.get<std::uint64_t>() >= tokens_.size()) {
        const std::string problem = fmt::format("is no id of the {} tokens", tokens_.size());
        const bool is_needless =
            is_whole && (!is_positive || key == std::string_view("pad_token_id"));
        if (!is_needless) throw config.error(key, problem);
        warn(config, key, fmt::format("is {}, which {} and is left out", id.dump(), problem));
        continue;
      }
      ids.push_back(id.get<std::int32_t>());
    }
    return ids;
  }

  // The texts of tokenizer_config.json go before the ids of the others.
  std::optional<std::uint32_t> special_token(const char* text_key, const char* id_key) {
    const auto named = named_token(text_key);
    return named ? named : listed_token(id_key);
  }

  std::optional<std::uint32_t> listed_token(const char* id_key) {
    for (const Config* config : std::array<const Config*, 2>{&generation_, &config_}) {
      const std::vector<std::int32_t> ids = token_ids(*config, id_key);
      if (!ids.empty()) return static_cast<std::uint32_t>(ids.front());
    }
    return std::nullopt;
  }

  void write_special_tokens(gguf::Writer& writer) {
    const auto add = [&](const char* key, std::optional<std::uint32_t> id) {
      if (id) writer.add(fmt::format("tokenizer.ggml.{}_token_id", key), *id);
    };
    add("bos", special_token("bos_token", "bos_token_id"));
    const auto last = use_.makes_vectors ? end_of_template() : std::nullopt;
    const auto end = last ? last : special_token("eos_token", "eos_token_id");
    add("eos", end);
    writer.add("tokenizer.ggml.add_eos_token", last.has_value());
    if (use_.makes_vectors && end && has_two_between_pair(tokenizer_, tokens_[*end])) {
      writer.add("tokenizer.ggml.add_sep_token", true);
      writer.add("tokenizer.ggml.seperator_token_id", *end);  // misspelt in all files
    }
    add("padding", special_token("pad_token", "pad_token_id"));
    std::vector<std::int32_t> ends = token_ids(generation_, "eos_token_id");
    if (ends.empty()) ends = token_ids(config_, "eos_token_id");
    // An answer may end with what the tokenizer calls its end, too.
    if (end && !ends.empty() &&
        std::ranges::find(ends, static_cast<std::int32_t>(*end)) == ends.end())
      ends.push_back(static_cast<std::int32_t>(*end));
    if (ends.size() > 1) {
      writer.add_array("tokenizer.ggml.eos_token_ids", std::span<const std::int32_t>(ends));
    }
    writer.add("tokenizer.ggml.add_bos_token", adds_bos());
  }

  // What stands behind a text by the template: of Qwen3-Embedding not the end that chats have.
  std::optional<std::uint32_t> end_of_template() const {
    const std::string token = token_behind_text(tokenizer_);
    const auto found = ids_.find(token);
    if (token.empty() || found == ids_.end()) return std::nullopt;
    return found->second;
  }

  // Whether a text begins with the token, by the setting or by the template. It is written in any
  // case: readers of a file that does not say have defaults of their own.
  bool adds_bos() {
    const auto bos = special_token("bos_token", "bos_token_id");
    if (!bos) return false;
    if (use_.keeps_merges) return true;  // Gemma 4 does not work without
    if (const auto adds = settings_.find_flag("add_bos_token")) return *adds;
    return begins_with_token(tokenizer_, tokens_[*bos]);
  }

  std::optional<fs::path> world_;  // the vocabulary of RWKV
  std::string source_;
  const Config& config_;
  Config settings_, tokenizer_, generation_;
  fs::path folder_;
  TokenizerUse use_;
  std::vector<std::string> tokens_;
  std::vector<std::int32_t> types_;
  std::vector<std::int32_t> rstripped_;  // tokens that take the white space behind them
  std::vector<std::string> warnings_;
  std::unordered_map<std::string, std::uint32_t, text::KeyedHash> ids_;
};

}  // namespace

std::vector<std::string> import_tokenizer(const fs::path& folder, const Config& config,
                                          std::uint64_t vocabulary, TokenizerUse use,
                                          gguf::Writer& writer) {
  return TokenizerImport(folder, config, vocabulary, use).write(writer);
}

}  // namespace sluice::convert
