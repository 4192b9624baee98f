// The vocabulary of RWKV: what a line means, which lines are refused, and what tokens texts have
// with a file that was imported.
#include "core/convert/world_vocabulary.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/convert/import.h"
#include "core/error.h"
#include "core/gguf/gguf.h"
#include "core/text/utf8.h"
#include "core/tokenizer/tokenizer.h"
#include "tests/catch.h"
#include "tests/random_seed.h"
#include "tests/synthetic_checkpoint.h"
#include "tests/temporary_folder.h"

namespace sluice::convert {
namespace {

using nlohmann::json;
using tokenizer::Token;

std::vector<std::string> read(const std::string& lines, std::uint64_t ids = 65536) {
  const test::TemporaryFolder folder;
  std::ofstream(folder / "rwkv_vocab_v1.txt", std::ios::binary) << lines;
  return read_world_vocabulary(*find_world_vocabulary(folder.path()), ids);
}

std::string refusal(const std::string& lines, std::uint64_t ids = 65536) {
  try {
    read(lines, ids);
  } catch (const ModelError& error) {
    return error.what();
  }
  return "accepted";
}

// As Python's repr() writes it: text where the bytes are text.
std::string literal(const std::string& bytes) {
  const bool is_text = utf8::valid_prefix(bytes) == bytes.size();
  const bool has_single = bytes.find('\'') != std::string::npos;
  const char quote = has_single && bytes.find('"') == std::string::npos ? '"' : '\'';
  std::string out = is_text ? "" : "b";
  out += quote;
  for (const char c : bytes) {
    const auto value = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (value < 32 || value == 127 || (value > 127 && !is_text)) {
      out += fmt::format("\\x{:02x}", value);
    } else {
      out += c;
    }
  }
  return out + quote;
}

// A checkpoint of RWKV-7 with a vocabulary like the published one: first the 256 bytes, of ids 1 to
// 256, and the end of a turn is token 261.
struct WorldCheckpoint {
  const test::CheckpointFolder made{test::checkpoint_family("RWKV7ForCausalLM")};
  std::vector<std::string> pieces = {""};  // by their ids; 0 has none
  std::string more;                        // lines behind those of the pieces
  json settings = json::object();

  WorldCheckpoint() {
    for (int byte = 0; byte < 256; ++byte) pieces.emplace_back(1, static_cast<char>(byte));
    for (const char* piece :
         {"\t\t", "\r\n", "  ", "the", "\n\n", " the", "ther", "", "\u4e2d", "\xE4\xB8", "\xB8\xAD",
          "\u4e2d\u6587", "'\"", "\\n", "\\\\", "\u200b", "\xFF\xFE", "User:", "\n\n\n"}) {
      pieces.emplace_back(piece);
    }
  }

  void import() const {
    std::string lines;
    for (std::size_t id = 1; id < pieces.size(); ++id) {
      lines += fmt::format("{} {} {}\n", id, literal(pieces[id]), pieces[id].size());
    }
    test::write(made.path() / "rwkv_vocab_v20230424.txt", lines + more);
    test::write(made.path() / "tokenizer_config.json", settings.dump());
    std::filesystem::remove(made.path() / "tokenizer.json");
    std::filesystem::remove(made.output);
    import_checkpoint(made.path(), made.output, {"F32"});
  }

  std::unique_ptr<tokenizer::Tokenizer> tokenizer() const {
    import();
    return tokenizer::Tokenizer::from_metadata(gguf::Model::open(made.output).metadata());
  }

  // The longest piece, again and again.
  std::vector<Token> tokens_of(std::string_view text) const {
    std::vector<Token> tokens;
    while (!text.empty()) {
      std::size_t best = 0;
      for (std::size_t id = 1; id < pieces.size(); ++id) {
        if (pieces[id].size() > pieces[best].size() && text.starts_with(pieces[id])) best = id;
      }
      tokens.push_back(static_cast<Token>(best));
      text.remove_prefix(pieces[best].size());
    }
    return tokens;
  }

  std::string refusal() const {
    try {
      import();
    } catch (const ModelError& error) {
      CHECK_FALSE(std::filesystem::exists(made.output));
      return error.what();
    }
    return "accepted";
  }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a line of RWKV's vocabulary is a literal of text or of bytes") {
  CHECK(read("1 '\\x00' 1\n2 b'\\xfe\\t' 2\r\n3 \"'\" 1\n4 '\"\\'' 2\n5 ' \\\\n' 3\n6 '\\u200b' 3\n"
             "7 '\\x85' 2\n8 '\xE4\xB8\xAD ' 4\n9 '\\U0001f600' 4\n10 '' 0\n11 '\\n\\n' 2") ==
        std::vector<std::string>{std::string(1, '\0'), "\xFE\t", "'", "\"'", " \\n", "\u200b",
                                 "\u0085", "\u4e2d ", "\U0001f600", "", "\n\n"});
  CHECK(with_escapes(std::string("\0\t\n\r\\'\"a\xFE", 9)) == "\\x00\\t\\n\\r\\\\'\"a\\xfe");
}

TEST_CASE("a line of RWKV's vocabulary that is not whole is refused by its number") {
  const std::pair<std::string, std::string> cases[] = {
      {"3 'b' 1", "in place of 2: a line is missing"},
      {"1 'b' 1", "in place of 2: a line is there twice"},
      {"2 'a' 1", "the token of line 1 again"},
      {"2 'b' 2", "says that its token has 2 bytes, but it has 1"},
      {"2 '\\q' 1", "no escape of a character"},
      {"2 '\\x4' 1", "no escape of a character"},
      {"2 '\\ud800' 3", "no escape of a character"},
      {"2 '\\U00110000' 4", "no escape of a character"},
      {"2 b'\\u0041' 1", "no escape of a byte"},
      {"2 '\\", "no escape of a character"},
      {"2 b'\xC3\xA4' 2", "no byte behind b"},
      {"2 '\xFF' 1", "is not UTF-8"},
      {"2 'b", "ends within the token"},
      {"2 b 1", "is not an index"},
      {"2 'b' 1 ", "is not an index"},
      {"2  'b' 1", "is not an index"},
      {"2 'b' -1", "is not an index"},
      {"x 'b' 1", "is not an index"},
      {"", "is not an index"},
      {"2 '" + std::string(1025, 'b') + "' 1025", "the most is 1024"},
  };
  for (const auto& [line, expected] : cases) {
    const std::string found = refusal("1 'a' 1\n" + line + "\n");
    INFO(found);
    CHECK(found.find("rwkv_vocab_v1.txt: line 2 ") != std::string::npos);
    CHECK(found.find(expected) != std::string::npos);
    CHECK(found.find("get the file again") != std::string::npos);
  }
  CHECK(refusal("1 'a' 1\n2 'b' 1\n", 2).find("line 2 is beyond the vocab_size") !=
        std::string::npos);
  CHECK(refusal("1 'a' 1\n2 'b' 1\n", 3) == "accepted");
}

TEST_CASE("an imported vocabulary of RWKV cuts texts into the longest of its tokens") {
  const WorldCheckpoint world;
  const auto tokenizer = world.tokenizer();
  for (std::size_t id = 1; id < world.pieces.size(); ++id) {
    const auto token = static_cast<Token>(id);
    INFO("token " << id);
    CHECK(tokenizer->is_ordinary(token) == !world.pieces[id].empty());
    if (!world.pieces[id].empty()) CHECK(tokenizer->piece(token) == world.pieces[id]);
  }
  std::mt19937_64 random(test::random_seed());
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (int i = 0; i < 20; ++i) {
      const bool is_byte = random() % 2 == 0;
      const std::size_t first = is_byte ? 1 : 257, end = is_byte ? 257 : world.pieces.size();
      text += world.pieces[first + random() % (end - first)];
    }
    CAPTURE(text);
    const std::vector<Token> tokens = tokenizer->encode(text, {.add_bos = false});
    CHECK(tokens == world.tokens_of(text));
    CHECK(tokenizer->decode(tokens) == text);
  }
}

TEST_CASE("texts of RWKV begin and end with token 0, and turns with two line ends") {
  WorldCheckpoint world;
  const auto check = [&](const std::string& zero) {
    const auto tokenizer = world.tokenizer();
    CHECK(tokenizer->bos() == 0);
    CHECK(tokenizer->eos() == 0);
    CHECK_FALSE(tokenizer->is_ordinary(0));
    CHECK(tokenizer->piece(0, true) == zero);
    CHECK(tokenizer->encode(zero, {.add_bos = false, .parse_special = true}) ==
          std::vector<Token>{0});
    CHECK(tokenizer->encode("a" + zero + "\n\nb", {.add_bos = false}) ==
          world.tokens_of("a" + zero + "\n\nb"));
    CHECK(tokenizer::tokens_where(*tokenizer, [&](Token token) {
            return tokenizer->is_end_of_generation(token);
          }) == std::vector<Token>{0, 261});
    CHECK_FALSE(tokenizer->is_ordinary(299));
  };
  check("<s>");  // without any settings
  // As they are published. The second id of the end of a turn has no weights of its own.
  const char* end = "<|rwkv_tokenizer_end_of_text|>";
  world.settings = {{"eos_token", "\n\n"},
                    {"added_tokens_decoder",
                     {{"0", {{"content", end}, {"special", true}}},
                      {"299", {{"content", "\n\n"}, {"special", true}}}}}};
  check(end);
  // Of config.json, where they are the first bytes unless somebody has set them.
  json config = world.made.checkpoint.config();
  config["bos_token_id"] = 1;
  config["eos_token_id"] = 2;
  test::write(world.made.path() / "config.json", config.dump());
  check(end);
  test::write(world.made.path() / "generation_config.json", R"({"eos_token_id": 0})");
  check(end);
}

TEST_CASE("a token of RWKV's vocabulary goes before the name of token 0") {
  WorldCheckpoint world;
  world.pieces.emplace_back("<s>");
  const auto tokenizer = world.tokenizer();
  CHECK(tokenizer->encode("a<s>", {.parse_special = true}) == world.tokens_of("a<s>"));
  CHECK(tokenizer->bos() == 0);
  CHECK(tokenizer->is_end_of_generation(0));
  CHECK_FALSE(tokenizer->is_ordinary(0));
}

TEST_CASE("a checkpoint with a vocabulary of RWKV that does not fit is refused") {
  WorldCheckpoint world;
  const std::size_t last = world.pieces.size();
  const auto refuses = [&](const std::string& line, const std::string& expected) {
    world.more = line;
    const std::string found = world.refusal();
    INFO(found);
    CHECK(contains(found, expected));
    CHECK(std::ranges::none_of(found, [](char c) { return c < ' '; }));
    world.more.clear();
  };
  const std::string place = fmt::format("rwkv_vocab_v20230424.txt: line {} ", last);
  refuses(fmt::format("{} 'x\n", last), place + "ends within the token");
  refuses(fmt::format("{} 'the' 3\n", last), place + "has the token of line 260 again");
  refuses(fmt::format("{} 'new' 3\n", last + 1), place + "has the index");
  refuses(fmt::format("{} '\\\x1b]0;' 3\n", last), place + "has '\\\\\\x1b'");
  refuses(fmt::format("{} {} 3\n", last, std::string(100000, '9')), place + "is not an index");
  refuses("\n", place + "is not an index");
  std::string many;
  const auto ids = world.made.checkpoint.config()["vocab_size"].get<std::size_t>();
  for (std::size_t id = last; id <= ids; ++id) many += fmt::format("{} '' 0\n", id);
  refuses(many, fmt::format("line {} is beyond the vocab_size", ids));

  world.settings = {{"added_tokens_decoder", {{"260", {{"content", "<|x|>"}, {"special", true}}}}}};
  CHECK(contains(world.refusal(), "gives token 'the' the id 260 of '<|x|>'"));
  world.settings = json::object();
  test::write(world.made.path() / "rwkv_vocab_v2.txt", "1 'a' 1\n");
  CHECK(contains(world.refusal(),
                 "several vocabularies, rwkv_vocab_v2.txt and rwkv_vocab_v20230424.txt"));
  std::filesystem::remove(world.made.path() / "rwkv_vocab_v2.txt");
  // An added token without a row in the table is left aside.
  world.settings = {{"added_tokens_decoder", {{"70000", {{"content", "<|x|>"}}}}}};
  CHECK(world.refusal() == "accepted");
}

}  // namespace sluice::convert
