// The text stream: whatever the cut into pieces, the same text comes out, and it ends where a
// simple search over the whole text says.
#include "core/sampling/text_stream.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/text/utf8.h"
#include "tests/catch.h"

namespace sluice::sampling {
namespace {

const std::string replacement = "\xEF\xBF\xBD";

struct Result {
  std::string text;
  bool stopped = false;
};

Result stream_pieces(const std::vector<std::string>& pieces,
                     const std::vector<std::string>& stop = {}) {
  TextStream stream(stop);
  Result result;
  for (const std::string& piece : pieces) {
    const std::string_view ready = stream.push(piece);
    CHECK(utf8::valid_prefix(ready) == ready.size());
    result.text += ready;
  }
  result.text += stream.finish();
  result.stopped = stream.stopped();
  return result;
}

std::vector<std::string> cut(const std::string& text, std::mt19937& random, double chance) {
  std::vector<std::string> pieces(1);
  for (const char byte : text) {
    if (std::uniform_real_distribution<>(0, 1)(random) < chance) pieces.emplace_back();
    pieces.back() += byte;
  }
  return pieces;
}

// By definition: look at every beginning of the text, the shortest first, until one ends with a
// stop text; the output ends before the longest stop text that it ends with.
Result reference(const std::string& text, const std::vector<std::string>& stop) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& candidate : stop) {
      if (candidate.size() <= end &&
          text.compare(end - candidate.size(), candidate.size(), candidate) == 0) {
        longest = std::max(longest, candidate.size());
      }
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

}  // namespace

TEST_CASE("every cut of a text into two or three pieces gives the text") {
  const std::string text = "a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80z";  // 1, 2, 3 and 4 bytes
  for (std::size_t first = 0; first <= text.size(); ++first) {
    for (std::size_t second = first; second <= text.size(); ++second) {
      const Result result = stream_pieces(
          {text.substr(0, first), text.substr(first, second - first), text.substr(second)});
      CHECK(result.text == text);
      CHECK_FALSE(result.stopped);
    }
  }
}

TEST_CASE("a character is given out with its last byte and not later") {
  TextStream stream;
  CHECK(stream.push("x\xE2") == "x");
  CHECK(stream.push("\x82").empty());
  CHECK(stream.push("\xAC") == "\xE2\x82\xAC");
  CHECK(stream.finish().empty());
}

TEST_CASE("bytes that are not UTF-8 become replacement characters") {
  struct Case {
    std::string bytes;
    std::size_t replaced;  // maximal parts, by Unicode 3.9, table 3-7
    std::string after;
  };
  const std::vector<Case> cases{
      {"\x80", 1, ""},
      {"\xFF\xFE", 2, ""},
      {"\xC0\xAF", 2, ""},          // overlong
      {"\xE0\x80\xAF", 3, ""},      // overlong
      {"\xED\xA0\x80", 3, ""},      // a surrogate
      {"\xF4\x90\x80\x80", 4, ""},  // above U+10FFFF
      {"\xF0\x9F\x98", 1, ""},      // cut off at the end
      {"\xF0\x9F\x98z", 1, "z"},    // cut off by another character
      {"\xE2\x82\xE2\x82\xAC", 1, "\xE2\x82\xAC"},
      {"\xC3\xC3\xA4", 1, "\xC3\xA4"},
  };
  for (const Case& c : cases) {
    std::string expected;
    for (std::size_t i = 0; i < c.replaced; ++i) expected += replacement;
    expected += c.after;
    CHECK(stream_pieces({c.bytes}).text == expected);
    std::vector<std::string> bytes;
    for (const char byte : c.bytes) bytes.emplace_back(1, byte);
    CHECK(stream_pieces(bytes).text == expected);
  }
}

TEST_CASE("random bytes: valid UTF-8 comes out, the same for every cut") {
  std::mt19937 random(1);
  const std::string alphabet = "a\x80\xBF\xC2\xE0\xA0\xED\x9F\xF0\x90\xF4\x8F\xFF";
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (std::size_t n = random() % 12; n > 0; --n) text += alphabet[random() % alphabet.size()];
    const std::string whole = stream_pieces({text}).text;
    CHECK(stream_pieces(cut(text, random, 0.5)).text == whole);
    if (utf8::valid_prefix(text) == text.size()) CHECK(whole == text);
  }
}

TEST_CASE("stop texts agree with a search over the whole text, for random cuts") {
  std::mt19937 random(2);
  const std::vector<std::string> letters{"a", "b", "\xC3\xA4"};
  const auto random_text = [&](std::size_t length) {
    std::string text;
    for (; length > 0; --length) text += letters[random() % letters.size()];
    return text;
  };
  int stopped = 0;
  for (int round = 0; round < 5000; ++round) {
    const std::string text = random_text(random() % 24);
    std::vector<std::string> stop;
    for (std::size_t n = random() % 4; n > 0; --n) stop.push_back(random_text(1 + random() % 6));
    const Result expected = reference(text, stop);
    const Result result = stream_pieces(cut(text, random, 0.4), stop);
    CHECK(result.text == expected.text);
    CHECK(result.stopped == expected.stopped);
    stopped += result.stopped ? 1 : 0;
  }
  CHECK(stopped > 1000);
  CHECK(stopped < 4000);
}

TEST_CASE("no more than the beginning of a stop text is held back") {
  TextStream stream({"stop", "top hat"});
  CHECK(stream.push("a sto") == "a ");
  CHECK(stream.push("ne, to") == "stone, ");
  CHECK(stream.push("p h") == "");
  CHECK(stream.push("ot") == "top ho");
  CHECK(stream.finish() == "t");
}

TEST_CASE("after a stop text nothing comes, and what was held back is dropped with it") {
  TextStream stream({"END"});
  CHECK(stream.push("text E") == "text ");
  CHECK(stream.push("ND more").empty());
  CHECK(stream.stopped());
  CHECK(stream.push("and more").empty());
  CHECK(stream.finish().empty());
}

TEST_CASE("an unfinished character at the end may complete a stop text") {
  const Result result = stream_pieces({"a\xE2\x82"}, {replacement});
  CHECK(result.text == "a");
  CHECK(result.stopped);
}

TEST_CASE("stop texts that cannot be found are refused") {
  CHECK_THROWS_AS(TextStream({"fine", ""}), UsageError);
  CHECK_THROWS_AS(TextStream({"\xC3"}), UsageError);
}

}  // namespace sluice::sampling
