// What a file is that should be the output of a batch, judged from its bytes alone: results with
// whatever a crash does to them are recognised, and nothing else is.
#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "core/batch/journal_scan.h"
#include "tests/catch.h"
#include "tests/random_seed.h"

namespace {

using namespace sluice::batch;
using namespace sluice::rows;

std::string random_result(std::mt19937_64& random, std::uint64_t row) {
  const auto text = [&] {
    std::string made(random() % 60, ' ');
    for (char& c : made) c = static_cast<char>(random());
    return made;
  };
  const std::array<Form, 3> forms = {Form::plain, Form::completions, Form::chat};
  const RowHeader header{forms[random() % forms.size()], text(), ""};
  if (random() % 4 == 0) return error_line(row, header, {"cannot_run", row, text()});
  return result_line(row, header, "model", {text(), Finish::stop, 1, 2, random() % 2});
}

std::vector<std::string> random_results(std::mt19937_64& random, std::size_t count) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < count; ++i) lines.push_back(random_result(random, i + 1));
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

// The same bytes in pieces of random sizes.
JournalScan scan_in_pieces(std::string_view bytes, std::mt19937_64& random) {
  JournalScanner scanner;
  while (!bytes.empty()) {
    const std::size_t size = std::min<std::size_t>(1 + random() % 50, bytes.size());
    if (!scanner.add(bytes.substr(0, size))) break;
    bytes.remove_prefix(size);
  }
  return scanner.finish();
}

// What holds of any bytes at all.
JournalScan check_invariants(const std::string& bytes, std::mt19937_64& random) {
  const JournalScan scan = scan_journal(bytes);
  const JournalScan in_pieces = scan_in_pieces(bytes, random);
  CHECK(in_pieces.verdict == scan.verdict);
  CHECK(in_pieces.whole_bytes == scan.whole_bytes);
  CHECK(in_pieces.found.size() == scan.found.size());
  CHECK(in_pieces.foreign_line == scan.foreign_line);
  CHECK(scan.whole_bytes <= bytes.size());
  CHECK((scan.verdict == JournalVerdict::empty) == bytes.empty());
  CHECK((scan.verdict == JournalVerdict::foreign) == (scan.foreign_line != 0));
  // The results end where it says, and each is one.
  std::uint64_t offset = 0;
  for (const ResultFacts& facts : scan.found) {
    const auto again = read_result(std::string_view(bytes).substr(offset, facts.line_bytes - 1));
    REQUIRE(again);
    CHECK(again->row == facts.row);
    offset += facts.line_bytes;
    CHECK(bytes[offset - 1] == '\n');
  }
  CHECK(offset == scan.whole_bytes);
  // What is kept is a journal by itself.
  const JournalScan kept = scan_journal(std::string_view(bytes).substr(0, scan.whole_bytes));
  CHECK(kept.found.size() == scan.found.size());
  CHECK(kept.verdict == (scan.found.empty() ? JournalVerdict::empty : JournalVerdict::results));
  return scan;
}

}  // namespace

TEST_CASE("a journal that ends anywhere keeps its whole lines") {
  std::mt19937_64 random(sluice::test::random_seed());
  for (int round = 0; round < 20; ++round) {
    const std::vector<std::string> lines = random_results(random, 1 + random() % 4);
    const std::string whole = joined(lines);
    for (std::size_t end = 0; end <= whole.size(); ++end) {
      const JournalScan scan = check_invariants(whole.substr(0, end), random);
      const auto kept = static_cast<std::size_t>(std::ranges::count(whole.substr(0, end), '\n'));
      CHECK(scan.found.size() == kept);
      const JournalVerdict partial = end == 0 ? JournalVerdict::empty : JournalVerdict::torn;
      CHECK(scan.verdict == (kept != 0 ? JournalVerdict::results : partial));
    }
  }
}

TEST_CASE("a journal with blocks that were never written keeps what stands before the first") {
  std::mt19937_64 random(sluice::test::random_seed());
  for (int round = 0; round < 500; ++round) {
    std::string bytes = joined(random_results(random, 1 + random() % 6));
    std::size_t first = bytes.size();
    for (auto holes = 1 + random() % 3; holes > 0; --holes) {
      const std::size_t begin = random() % bytes.size();
      const std::size_t size = std::min<std::size_t>(1 + random() % 200, bytes.size() - begin);
      bytes.replace(begin, size, size, '\0');
      first = std::min(first, begin);
    }
    bytes.resize(bytes.size() - random() % 10);
    const JournalScan scan = check_invariants(bytes, random);
    CHECK(scan.verdict != JournalVerdict::foreign);
    const std::string front = bytes.substr(0, first);
    CHECK(scan.found.size() == static_cast<std::size_t>(std::ranges::count(front, '\n')));
  }
}

TEST_CASE("bytes that no batch writes make a file foreign, wherever they stand") {
  std::mt19937_64 random(sluice::test::random_seed());
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> lines = random_results(random, random() % 5);
    const std::size_t at = random() % (lines.size() + 1);
    const std::vector<std::string> strange = {
        "\n",          "\r\n",  "notes\n",       "{}\n",         "[1]\n",
        "{\"a\":1}\n", "\tx\n", "\x01\n",        "GGUF\n",       " {\"row\":1}\n",
        "null\n",      "#!/\n", "{\"row\":x}\n", "{\"row\":,\n", "\xff\xfe\n"};
    lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(at), strange[random() % 15]);
    const JournalScan scan = check_invariants(joined(lines), random);
    CHECK(scan.verdict == JournalVerdict::foreign);
    CHECK(scan.foreign_line == at + 1);
    CHECK(scan.found.size() == at);
  }
  for (const std::string& tail :
       {std::string("notes"), std::string("{\"a"), std::string("\r"), std::string(" "),
        std::string("{\"row\":1x"), std::string("{\"row\":1,\"text"), std::string("{\"row\":,"),
        std::string("{\"id\":\"other"), std::string("{\"row\":1\n"), std::string("\0\0x\ny", 5),
        std::string("\0a\x01", 3), std::string("\0\n\n", 3),
        std::string("{\"row\":12,\"id\":\t")}) {
    for (const std::string& front : {std::string(), random_result(random, 1)}) {
      INFO(tail);
      CHECK(check_invariants(front + tail, random).verdict == JournalVerdict::foreign);
    }
  }
}

TEST_CASE("any bytes are judged, and changed journals too") {
  std::mt19937_64 random(sluice::test::random_seed());
  constexpr char letters[] = "\0\n{}\":,row1id x\x80\xff";
  const std::string alphabet(letters, sizeof letters - 1);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    if (round % 2 == 0) bytes = joined(random_results(random, 1 + random() % 3));
    for (auto changes = random() % 8; changes > 0; --changes) {
      const std::size_t at = random() % (bytes.size() + 1);
      const std::string piece(1 + random() % 3, alphabet[random() % alphabet.size()]);
      if (random() % 3 == 0) {
        bytes.erase(at, random() % 30);
      } else {
        bytes.insert(at, piece);
      }
    }
    check_invariants(bytes, random);
  }
}

TEST_CASE("a line that is longer than any result is not held") {
  JournalScanner scanner;
  const std::string piece = "{\"row\":1,\"id\":\"" + std::string((1U << 20) - 15, 'x');
  CHECK(scanner.add(piece));
  const std::string more(1U << 20, 'x');
  std::size_t pieces = 1;
  while (scanner.add(more)) ++pieces;
  CHECK(pieces == result_bytes_max / more.size());
  CHECK(scanner.finish().verdict == JournalVerdict::foreign);
}
