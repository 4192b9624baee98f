// The output of a batch after everything that can happen to it: torn tails, full disks, two
// writers.
#include <csignal>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "core/batch/job_state.h"
#include "core/batch/journal.h"
#include "core/error.h"
#include "tests/catch.h"
#include "tests/temporary_folder.h"

namespace {

using namespace sluice::batch;
using sluice::UsageError;
using sluice::test::TemporaryFolder;

std::string content(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string line(std::uint64_t row) {
  return result_line(row, {}, "", {"text of row " + std::to_string(row), Finish::stop, 1, 2, 0});
}

// The exit status of a child that runs `work`; 99 when it threw.
int status_of_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int status = 99;
    try {
      status = work();
    } catch (...) {
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("a journal torn at any byte of its last line goes on as if nothing had happened") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "out.jsonl";
  const std::string whole = line(3) + line(1);
  const std::string last = line(2);
  for (std::size_t kept = 0; kept <= last.size(); ++kept) {
    // What was never written may be missing, or be a hole.
    for (const std::size_t hole : {0, 1, 4096}) {
      if (hole != 0 && (kept == last.size() || kept % 8 != 0)) continue;  // disks are slow
      write(path, whole + last.substr(0, kept) + std::string(hole, '\0'));
      const bool is_whole = kept == last.size();
      Journal journal(path);
      REQUIRE(journal.found().size() == (is_whole ? 3U : 2U));
      CHECK(journal.found()[0].row == 3);
      CHECK(journal.cut_bytes() == (is_whole ? 0 : kept + hole));
      if (!is_whole) journal.append(last);
      CHECK(content(path) == whole + last);
    }
  }
}

TEST_CASE("what comes after a hole is cut off too") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "out.jsonl";
  write(path, line(1) + std::string(100, '\0') + "\n" + line(2));
  Journal journal(path);
  CHECK(journal.found().size() == 1);
  CHECK(content(path) == line(1));
}

TEST_CASE("a file that no batch has written is not touched") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "out.jsonl";
  for (const std::string& text :
       {std::string("my notes\n"), line(1) + "x\n" + line(2), std::string("\n"), line(1) + "\n"}) {
    write(path, text);
    CHECK_THROWS_AS(Journal(path), UsageError);
    CHECK(content(path) == text);
  }
  CHECK_THROWS_AS(Journal(folder.path() / "no" / "out"), std::system_error);
  CHECK_THROWS_AS(Journal(folder.path()), std::system_error);
}

TEST_CASE("one process at a time writes a journal") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "out.jsonl";
  const auto try_open = [&] {
    try {
      const Journal second(path);
      return 0;
    } catch (const UsageError&) {
      return 2;
    }
  };
  {
    Journal first(path);
    first.append(line(1));
    CHECK(status_of_child(try_open) == 2);
    CHECK(content(path) == line(1));
  }
  CHECK(status_of_child(try_open) == 0);
}

TEST_CASE("a full disk leaves whole lines, and the job goes on later") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "out.jsonl";
  const std::string two = line(1) + line(2);
  const std::string all = two + line(3);
  for (std::size_t limit = all.size() - 1; limit >= two.size(); limit -= 7) {
    std::filesystem::remove(path);
    const int status = status_of_child([&] {
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit size{limit, limit};
      ::setrlimit(RLIMIT_FSIZE, &size);
      Journal journal(path);
      journal.append(line(1));
      journal.append(line(2));
      try {
        journal.append(line(3));
      } catch (const std::system_error&) {
        return 5;
      }
      return 0;
    });
    CHECK(status == 5);
    CHECK(content(path) == two);
    Journal journal(path);
    CHECK(journal.found().size() == 2);
    journal.append(line(3));
    CHECK(content(path) == all);
  }
}

TEST_CASE("a restart forgets all that is there, whatever it is") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "out.jsonl";
  write(path, line(1) + "something else\n");
  Journal journal(path, true);
  CHECK(journal.found().empty());
  journal.append(line(2));
  CHECK(content(path) == line(2));
}

TEST_CASE("a state is what was written, and every change is named") {
  const TemporaryFolder folder;
  const std::filesystem::path output = folder.path() / "out.jsonl";
  CHECK_FALSE(read_state(output));
  const JobState state{100, ~std::uint64_t{0}, 7, {2, 3}, {{"--temp", 0.8}, {"model", "m\xff"}}};
  write_state(output, state);
  const auto again = read_state(output);
  REQUIRE(again);
  CHECK(differences(*again, *again).empty());
  CHECK(again->rows == 7);

  JobState other = *again;
  other.input_digest ^= 1;
  CHECK(differences(*again, other).size() == 1);
  other = *again;
  other.shard = {1, 3};
  CHECK(differences(*again, other) == std::vector<std::string>{"--shard was 2/3 and is 1/3"});
  CHECK(differences(*again, other, true).empty());
  other = *again;
  other.settings["--temp"] = 0.5;
  CHECK(differences(*again, other) == std::vector<std::string>{"--temp was 0.8 and is 0.5"});
  other = *again;
  other.settings["--stop"] = {"x"};
  CHECK(differences(*again, other).size() == 1);
  CHECK(differences(other, *again).size() == 1);

  for (const char* text : {"", "{}", "[]", "7", "{\"sluice_batch\":2}"}) {
    write(state_path(output), text);
    CHECK_THROWS_AS(read_state(output), UsageError);
  }
}

TEST_CASE("shards have every row once") {
  for (const std::uint64_t rows : {0, 1, 5, 16, 17}) {
    for (std::uint64_t count = 1; count <= 7; ++count) {
      std::uint64_t sizes = 0;
      for (std::uint64_t row = 1; row <= rows; ++row) {
        std::uint64_t owners = 0;
        for (std::uint64_t i = 1; i <= count; ++i) owners += Shard{i, count}.has(row) ? 1 : 0;
        CHECK(owners == 1);
      }
      for (std::uint64_t i = 1; i <= count; ++i) sizes += Shard{i, count}.size(rows);
      CHECK(sizes == rows);
    }
  }
  CHECK(parse_shard("2/3")->index == 2);
  for (const char* bad : {"", "/", "1", "0/3", "4/3", "1/0", "-1/3", "1/3x", "1/3/3", " 1/3"}) {
    INFO(bad);
    CHECK_FALSE(parse_shard(bad));
  }
}
