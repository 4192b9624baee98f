// The vocabulary of RWKV: what a line means, and which lines are refused.
#include "core/convert/world_vocabulary.h"

#include <fmt/format.h>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tests/catch.h"
#include "tests/temporary_folder.h"

namespace sluice::convert {
namespace {

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

}  // namespace sluice::convert
