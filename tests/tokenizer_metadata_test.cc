// How a vocabulary is read from metadata: defaults, warnings, and what is refused.
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/gguf/metadata.h"
#include "core/tokenizer/tokenizer.h"
#include "tests/catch.h"

namespace {

using namespace sluice;
using gguf::ValueType;

// Metadata in memory; owns the bytes that it points into.
class Builder {
 public:
  Builder& text(const std::string& key, const std::string& value) {
    return add(key, ValueType::string, ValueType::string, 1, value);
  }
  Builder& u32(const std::string& key, std::uint32_t value) {
    return add(key, ValueType::u32, ValueType::u32, 1, bytes_of(value));
  }
  Builder& i32(const std::string& key, std::int32_t value) {
    return add(key, ValueType::i32, ValueType::i32, 1, bytes_of(value));
  }
  Builder& boolean(const std::string& key, bool value) {
    return add(key, ValueType::boolean, ValueType::boolean, 1, std::string(1, value ? 1 : 0));
  }
  Builder& texts(const std::string& key, const std::vector<std::string>& values) {
    std::string bytes;
    for (const std::string& value : values) bytes += bytes_of(std::uint64_t{value.size()}) + value;
    return add(key, ValueType::array, ValueType::string, values.size(), bytes);
  }
  template <typename T>
  Builder& array(const std::string& key, ValueType type, const std::vector<T>& values) {
    std::string bytes;
    for (const T value : values) bytes += bytes_of(value);
    return add(key, ValueType::array, type, values.size(), bytes);
  }
  std::unique_ptr<tokenizer::Tokenizer> tokenizer() const {
    return tokenizer::Tokenizer::from_metadata(gguf::Metadata("test.gguf", entries_));
  }

 private:
  template <typename T>
  static std::string bytes_of(T value) {
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
  }
  Builder& add(const std::string& key, ValueType type, ValueType element, std::uint64_t count,
               const std::string& bytes) {
    const std::string& name = storage_.emplace_back("tokenizer.ggml." + key);
    const std::string& kept = storage_.emplace_back(bytes);
    entries_.push_back({name, gguf::Value(type, element, count,
                                          std::as_bytes(std::span(kept.data(), kept.size())), 0)});
    return *this;
  }

  std::deque<std::string> storage_;
  std::vector<gguf::Metadata::Entry> entries_;
};

const std::vector<std::string> letters = {"a", "b", "c", "d", "e", "f", "g",
                                          "h", "i", "j", "k", "l", "ab"};

void begin_bpe(Builder& file) {
  file.text("model", "gpt2").texts("tokens", letters).texts("merges", {"a b"});
}

std::string refusal(const Builder& file) {
  try {
    file.tokenizer();
  } catch (const ModelError& error) {
    return error.what();
  }
  return "accepted";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("the texts of RWKV's vocabulary have escapes") {
  Builder file;
  file.text("model", "rwkv").texts("tokens", {"a", "\\n", "\\x00", "\\xFe\\t", "\\\\", "\\'b"});
  const auto tokenizer = file.tokenizer();
  const std::string pieces[] = {"a", "\n", std::string(1, '\0'), "\xFE\t", "\\", "'b"};
  for (int i = 0; i < 6; ++i) CHECK(std::string(tokenizer->piece(i, true)) == pieces[i]);
  for (int byte = 0; byte < 256; ++byte) {
    for (const char* form : {"\\x%02x", "\\x%02X"}) {
      char text[8];
      std::snprintf(text, sizeof text, form, byte);
      Builder one;
      one.text("model", "rwkv").texts("tokens", {text});
      CHECK(std::string(one.tokenizer()->piece(0, true)) == std::string(1, char(byte)));
    }
  }
  for (const char* text : {"\\", "\\x", "\\x1", "\\x1g", "\\x1G", "\\x1`", "\\x1@", "\\x1/",
                           "\\x1:", "\\xg1", "a\\"}) {
    Builder wrong;
    wrong.text("model", "rwkv").texts("tokens", {"a", text});
    CHECK(refusal(wrong).find("'tokenizer.ggml.tokens': element 1 is") != std::string::npos);
  }
}

TEST_CASE("more tokens or merges than any model has are refused") {
  const std::vector<std::string> empty((std::size_t{1} << 21) + 1);
  for (const std::string key : {"tokens", "merges"}) {
    Builder file;
    file.text("model", "gpt2").texts("tokens", key == "tokens" ? empty : letters);
    if (key == "merges") file.texts("merges", empty);
    INFO(key);
    CHECK(contains(refusal(file), "'tokenizer.ggml." + key + "': has 2097153 elements"));
  }
}

TEST_CASE("an unknown or missing pre-tokenizer is named in a warning") {
  Builder unknown;
  begin_bpe(unknown);
  unknown.text("pre", "brand-new").u32("eos_token_id", 3);
  REQUIRE(unknown.tokenizer()->warnings().size() == 1);
  CHECK(contains(unknown.tokenizer()->warnings()[0], "'brand-new'"));
  CHECK(contains(unknown.tokenizer()->warnings()[0], "'default'"));

  Builder missing;
  begin_bpe(missing);
  missing.u32("eos_token_id", 3);
  REQUIRE(missing.tokenizer()->warnings().size() == 1);
  CHECK(contains(missing.tokenizer()->warnings()[0], "tokenizer.ggml.pre is missing"));

  Builder prefix;
  begin_bpe(prefix);
  prefix.text("pre", "gpt-2").u32("eos_token_id", 3).boolean("add_space_prefix", true);
  REQUIRE(prefix.tokenizer()->warnings().size() == 1);
  CHECK(contains(prefix.tokenizer()->warnings()[0], "add_space_prefix has no effect"));
}

TEST_CASE("byte-level BPE: which BOS, and when it is added") {
  const auto open = [](const std::string& pre, std::optional<bool> add_bos) {
    Builder file;
    begin_bpe(file);
    file.text("pre", pre);
    if (add_bos) file.boolean("add_bos_token", *add_bos);
    return file.tokenizer();
  };
  CHECK(open("gpt-2", std::nullopt)->bos() == 11);
  CHECK(open("gpt-2", std::nullopt)->eos() == 11);
  CHECK_FALSE(open("gpt-2", std::nullopt)->adds_bos());
  CHECK(open("gpt-2", true)->adds_bos());
  CHECK(open("llama-bpe", std::nullopt)->adds_bos());
  CHECK_FALSE(open("llama-bpe", false)->adds_bos());
  CHECK(open("tekken", std::nullopt)->adds_bos());
  CHECK_FALSE(open("glm4", std::nullopt)->bos().has_value());
  CHECK_FALSE(open("glm4", true)->adds_bos());  // there is none to add, and a warning says so
  CHECK_FALSE(open("glm4", true)->warnings().empty());
  CHECK(open("llama-bpe", std::nullopt)->encode("ab", {}) == std::vector<tokenizer::Token>{11, 12});
}

TEST_CASE("byte-level BPE: which models want a separator between two texts") {
  const auto pair = [](const std::string& pre, std::optional<bool> add_separator) {
    Builder file;
    begin_bpe(file);
    file.text("pre", pre).u32("seperator_token_id", 10).boolean("add_eos_token", true);
    if (add_separator) file.boolean("add_sep_token", *add_separator);
    return file.tokenizer()->encode_pair("a", "b");
  };
  using Tokens = std::vector<tokenizer::Token>;
  for (const char* pre : {"roberta-bpe", "jina-v1-en", "jina-v2-code"}) {
    CHECK(pair(pre, std::nullopt) == Tokens{0, 11, 10, 1, 11});
    CHECK(pair(pre, false) == Tokens{0, 11, 1, 11});
  }
  CHECK(pair("modern-bert", std::nullopt) == Tokens{0, 11, 1, 11});
  CHECK(pair("modern-bert", true) == Tokens{0, 11, 10, 1, 11});
}

TEST_CASE("SentencePiece: defaults without types and ids, and ids that mean none") {
  Builder file;
  file.text("model", "llama").texts("tokens", {"<unk>", "<s>", "</s>", "a", "\u2581", "<0x41>"});
  file.array<float>("scores", ValueType::f32, {0, 0, 0, 0, 0, 0});
  const auto tokenizer = file.tokenizer();
  CHECK(tokenizer->bos() == 1);
  CHECK(tokenizer->eos() == 2);
  CHECK(tokenizer->encode("aA!", {}) == std::vector<tokenizer::Token>{1, 4, 3, 5, 0});
  CHECK(tokenizer->decode(std::vector<tokenizer::Token>{1, 4, 3, 5}) == "aA");
  CHECK(tokenizer->warnings().empty());

  file.u32("bos_token_id", 0xFFFFFFFFU).u32("eos_token_id", 77).boolean("add_space_prefix", false);
  const auto other = file.tokenizer();
  CHECK_FALSE(other->bos().has_value());
  CHECK_FALSE(other->eos().has_value());
  CHECK(other->encode("a", {}) == std::vector<tokenizer::Token>{3});
  CHECK(other->warnings().size() == 2);  // 77 is out of range; no BOS to add
}

void begin_gemma4(Builder& file, const std::string& model = "gemma4") {
  file.text("model", model).texts("tokens", {"<unk>", "<eos>", "<bos>", "a", "\u2581", "<0x42>"});
  file.array<std::int32_t>("token_type", ValueType::i32, {3, 3, 3, 1, 1, 6});
  file.texts("merges", {"\u2581 a"}).u32("unknown_token_id", 0);
}

TEST_CASE("Gemma 4 starts with BOS, whatever its file says") {
  Builder file;
  begin_gemma4(file);
  file.u32("bos_token_id", 2).u32("eos_token_id", 1);
  CHECK(file.tokenizer()->encode("a", {}) == std::vector<tokenizer::Token>{2, 3});
  CHECK(file.tokenizer()->warnings().empty());
  file.boolean("add_bos_token", false);
  CHECK(file.tokenizer()->encode("a B", {}) == std::vector<tokenizer::Token>{2, 3, 4, 5});
  REQUIRE(file.tokenizer()->warnings().size() == 1);
  CHECK(contains(file.tokenizer()->warnings()[0], "add_bos_token"));

  Builder without;
  begin_gemma4(without);
  CHECK_FALSE(without.tokenizer()->adds_bos());
  CHECK_FALSE(without.tokenizer()->eos().has_value());
  CHECK_FALSE(without.tokenizer()->warnings().empty());
}

TEST_CASE("some byte-level files have a vocabulary of characters, by their pre-tokenizer") {
  const auto open = [](const std::string& pre, std::optional<bool> add_bos) {
    Builder file;
    begin_gemma4(file, "gpt2");
    file.text("pre", pre).u32("bos_token_id", 2).u32("eos_token_id", 1);
    if (add_bos) file.boolean("add_bos_token", *add_bos);
    return file.tokenizer();
  };
  using Tokens = std::vector<tokenizer::Token>;
  for (const char* pre : {"gemma4", "granite-embed-multi-311m"}) {
    CHECK(open(pre, std::nullopt)->encode("a B", {}) == Tokens{2, 3, 4, 5});
    CHECK(open(pre, std::nullopt)->warnings().empty());
    CHECK(open(pre, false)->adds_bos());
  }
  CHECK(open("sarvam-moe", std::nullopt)->encode("B", {}) == Tokens{5});
  CHECK(open("mmbert", std::nullopt)->encode("B", {}) == Tokens{4, 5});
  CHECK(open("mmbert", true)->encode("B", {}) == Tokens{2, 4, 5});
}

TEST_CASE("several tokens may end a text, and EOS is never added to one") {
  Builder file;
  begin_gemma4(file);
  file.u32("bos_token_id", 2).u32("eos_token_id", 1).boolean("add_eos_token", true);
  file.array<std::int32_t>("eos_token_ids", ValueType::i32, {1, 3});
  const auto tokenizer = file.tokenizer();
  for (const tokenizer::Token id : {1, 3}) CHECK(tokenizer->is_end_of_generation(id));
  CHECK_FALSE(tokenizer->is_end_of_generation(4));
  CHECK(tokenizer->encode("a", {}) == std::vector<tokenizer::Token>{2, 3});
  REQUIRE(tokenizer->warnings().size() == 1);
  CHECK(contains(tokenizer->warnings()[0], "add_eos_token"));

  Builder wrong;
  begin_gemma4(wrong);
  wrong.array<std::int32_t>("eos_token_ids", ValueType::i32, {6});
  CHECK(contains(refusal(wrong), "tokenizer.ggml.eos_token_ids"));

  Builder spaces;
  begin_gemma4(spaces);
  spaces.array<std::int32_t>("rstrip_token_ids", ValueType::i32, {-1});
  CHECK(contains(refusal(spaces), "tokenizer.ggml.rstrip_token_ids"));
}

TEST_CASE("metadata that makes no vocabulary is refused by key") {
  for (const char* model : {"plamo2", "no_vocab", "surprise"}) {
    Builder file;
    file.text("model", model);
    CHECK(contains(refusal(file), "tokenizer.ggml.model"));
    CHECK(contains(refusal(file), model));
  }
  CHECK(contains(refusal(Builder()), "tokenizer.ggml.model"));
  Builder no_merges;
  no_merges.text("model", "gpt2").texts("tokens", letters);
  CHECK(contains(refusal(no_merges), "tokenizer.ggml.merges"));
  for (const char* model : {"llama", "t5"}) {
    Builder no_scores;
    no_scores.text("model", model).texts("tokens", letters);
    CHECK(contains(refusal(no_scores), "tokenizer.ggml.scores"));
  }
  Builder no_tokens;
  no_tokens.text("model", "gpt2").texts("tokens", {}).texts("merges", {});
  CHECK(contains(refusal(no_tokens), "tokenizer.ggml.tokens"));
  const auto with_type = [](std::int32_t type) {
    Builder file;
    begin_bpe(file);
    std::vector<std::int32_t> types(13, 1);
    types[4] = type;
    return refusal(file.array("token_type", ValueType::i32, types).u32("eos_token_id", 3));
  };
  for (const std::int32_t type : {0, 1, 5}) CHECK(with_type(type) == "accepted");
  CHECK(contains(with_type(6), "token 4 is of type byte and reads 'e'"));
  CHECK(contains(with_type(7), "token_type': element 4 is 7; expected 0 to 6"));
  CHECK(contains(with_type(-1), "token_type': element 4 is -1; expected 0 to 6"));
}

Builder begin_unigram() {
  Builder file;
  file.text("model", "t5").texts("tokens", {"<pad>", "</s>", "<unk>", "\u2581", "\u2581a"});
  return std::move(file.array<float>("scores", ValueType::f32, {0, 0, 0, -2, -1}));
}

TEST_CASE("unigram: defaults, and a map of characters that is one of bytes") {
  using Tokens = std::vector<tokenizer::Token>;
  const auto tokenizer = begin_unigram().tokenizer();
  CHECK(tokenizer->eos() == 1);
  CHECK_FALSE(tokenizer->bos().has_value());
  CHECK(tokenizer->encode(" a  a", {.add_end = true}) == Tokens{4, 3, 4, 1});
  CHECK(tokenizer->encode("a b", {}) == Tokens{2, 3, 2});
  const auto merges = begin_unigram().boolean("remove_extra_whitespaces", true).tokenizer();
  CHECK(merges->encode("a  a ", {.add_end = true}) == Tokens{4, 4, 1});
  const auto has_prefix = begin_unigram().boolean("add_space_prefix", true).tokenizer();
  CHECK(has_prefix->encode("a", {}) == Tokens{4});

  const auto with_map = [](std::int32_t value) {
    Builder file = begin_unigram();
    const std::vector<std::int32_t> map = {4, 0, 0, 0, 0, 0, 0, 0, 'x', value, 0};
    return refusal(file.array("precompiled_charsmap", ValueType::i32, map));
  };
  for (const std::int32_t value : {-128, 255}) CHECK(with_map(value) == "accepted");
  for (const std::int32_t value : {-129, 256}) {
    CHECK(contains(with_map(value), "precompiled_charsmap': element 9 is " + std::to_string(value) +
                                        "; expected a byte"));
  }
}

TEST_CASE("the id of a token is one of the vocabulary's, or means none") {
  const auto open = [](std::int32_t id) {
    Builder file;
    begin_bpe(file);
    return file.text("pre", "gpt-2").i32("eos_token_id", id).tokenizer();
  };
  CHECK(open(0)->eos() == 0);
  CHECK(open(12)->eos() == 12);
  CHECK(open(12)->warnings().empty());
  CHECK_FALSE(open(-1)->eos().has_value());
  CHECK(open(-1)->warnings().empty());
  for (const std::int32_t id : {13, -2}) {
    CHECK_FALSE(open(id)->eos().has_value());
    REQUIRE(open(id)->warnings().size() == 1);
    CHECK(open(id)->warnings()[0] == "tokenizer.ggml.eos_token_id is " + std::to_string(id) +
                                         ", but the vocabulary has 13 tokens: the model is run "
                                         "without this token");
  }
}

}  // namespace
