// The output of a batch after everything that can happen to it: torn tails, full disks, power
// losses, two writers.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "core/batch/job_state.h"
#include "core/batch/journal.h"
#include "core/error.h"
#include "tests/catch.h"
#include "tests/forgetful_disk.h"
#include "tests/random_seed.h"
#include "tests/recorded_calls.h"
#include "tests/temporary_folder.h"

namespace {

using namespace sluice::batch;
using namespace sluice::rows;
using sluice::UsageError;
using sluice::test::content;
using sluice::test::ForgetfulDisk;
using sluice::test::RecordedCalls;
using sluice::test::TemporaryFolder;
using sluice::test::write;

std::string line(std::uint64_t row) {
  return result_line(row, {}, "", {"text of row " + std::to_string(row), Finish::stop, 1, 2, 0});
}

// Loses the power before one of the calls that make a file and its name durable.
class DiskThatLosesPower : public ForgetfulDisk {
 public:
  using ForgetfulDisk::ForgetfulDisk;
  void lose_power_after(int calls) { calls_left_ = calls; }

  ssize_t write(int descriptor, const void* data, std::size_t bytes) override {
    count();
    return ForgetfulDisk::write(descriptor, data, bytes);
  }
  ssize_t pwrite(int descriptor, const void* data, std::size_t bytes, off_t offset) override {
    count();
    return ForgetfulDisk::pwrite(descriptor, data, bytes, offset);
  }
  int fsync(int descriptor) override {
    count();
    return ForgetfulDisk::fsync(descriptor);
  }
  int rename(const char* from, const char* to) override {
    count();
    return ForgetfulDisk::rename(from, to);
  }

 private:
  void count() {
    if (calls_left_ >= 0 && calls_left_-- == 0) lose_power();
  }
  int calls_left_ = -1;
};

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
      const std::string torn = whole + last.substr(0, kept) + std::string(hole, '\0');
      write(path, torn);
      const bool is_whole = kept == last.size();
      Journal journal(path);
      CHECK(content(path) == torn);  // opening changes nothing
      REQUIRE(journal.scan().found.size() == (is_whole ? 3U : 2U));
      CHECK(journal.scan().found[0].row == 3);
      CHECK(journal.go_on() == (is_whole ? 0 : kept + hole));
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
  CHECK(journal.scan().found.size() == 1);
  journal.go_on();
  CHECK(content(path) == line(1));
}

TEST_CASE("a file that no batch has written is not touched, whatever is asked for") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "out.jsonl";
  for (const std::string& text :
       {std::string("my notes\n"), std::string("my notes"), std::string("GGUF\3\0\0\0more", 12),
        line(1) + "x\n" + line(2), line(1) + "x", std::string("\n"), std::string("\n\n"),
        line(1) + "\n", std::string("\r")}) {
    write(path, text);
    {
      Journal journal(path);
      CHECK(journal.scan().verdict == JournalVerdict::foreign);
      CHECK_THROWS_AS(journal.go_on(), UsageError);
      CHECK_THROWS_AS(journal.begin_anew(), UsageError);
    }
    CHECK(content(path) == text);
  }
  CHECK_THROWS_AS(Journal(folder.path() / "no" / "out"), std::system_error);
  CHECK_THROWS_AS(Journal(folder.path()), std::system_error);
  CHECK_THROWS_AS(Journal("/dev/null"), UsageError);
  const std::filesystem::path fifo = folder.path() / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK_THROWS_AS(Journal(fifo), UsageError);
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
    CHECK(journal.scan().found.size() == 2);
    journal.go_on();
    journal.append(line(3));
    CHECK(content(path) == all);
  }
}

TEST_CASE("a journal that is replaced by some of its results is the old one or the new one") {
  const std::vector<std::size_t> kept = {4, 0, 2};
  const std::string before = line(1) + line(2) + line(3) + line(4) + line(5);
  const std::string after = line(5) + line(1) + line(3);
  int old_ones = 0, new_ones = 0;
  for (std::uint64_t round = 0; round < 200; ++round) {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder.path() / "out.jsonl";
    DiskThatLosesPower disk(folder.path(), sluice::test::random_seed() ^ round);
    {
      Journal journal(path, disk);
      journal.go_on();
      journal.append(before);
      journal.sync();
      REQUIRE(journal.rescan().found.size() == 5);
      disk.lose_power_after(static_cast<int>(round % 10));
      try {
        journal.replace(kept);
        CHECK(content(path) == after);
      } catch (const std::system_error&) {
      }
      disk.lose_power();
    }
    disk.restart();
    disk.lose_power_after(-1);
    const std::string found = content(path);
    INFO("round " << round);
    CHECK((found == before || found == after));
    ++(found == before ? old_ones : new_ones);
    Journal journal(path, disk);
    journal.go_on();
    journal.append(line(6));
    CHECK(content(path) == found + line(6));
  }
  CHECK(old_ones > 0);
  CHECK(new_ones > 0);
}

TEST_CASE("to begin anew forgets the results that are there") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "out.jsonl";
  write(path, line(1) + line(3).substr(0, 20));
  Journal journal(path);
  journal.begin_anew();
  CHECK(journal.scan().found.empty());
  journal.append(line(2));
  CHECK(content(path) == line(2));
}

TEST_CASE("rows that end together are durable after a second, without one that ends later") {
  using namespace std::chrono_literals;
  const TemporaryFolder folder;
  RecordedCalls system;
  Journal journal(folder.path() / "out.jsonl", system);
  journal.go_on();
  Journal::Clock::time_point now = Journal::Clock::now();
  journal.sync_if_due(now);
  const std::uint64_t before = journal.durable_bytes();
  for (std::uint64_t row = 1; row <= 64; ++row) journal.append(line(row), now);
  for (const auto end = now + 900ms; now < end; now += 50ms) {
    journal.sync_if_due(now);
    CHECK(journal.durable_bytes() == before);
  }
  journal.sync_if_due(now + 50ms);
  CHECK(journal.durable_bytes() == std::filesystem::file_size(folder.path() / "out.jsonl"));
  const auto syncs = std::ranges::count(system.calls, "sync out.jsonl");
  for (int i = 2; i < 200; ++i) journal.sync_if_due(now + i * 50ms);
  CHECK(std::ranges::count(system.calls, "sync out.jsonl") == syncs);  // there is nothing to do
  // With steps of ten seconds a row is not left for the whole of the next.
  now += 100s;
  journal.sync_if_due(now);
  now += 10s;
  journal.append(line(65), now);
  journal.sync_if_due(now);
  CHECK(journal.durable_bytes() == std::filesystem::file_size(folder.path() / "out.jsonl"));
}

TEST_CASE("where synchronising fails, what is not known to be on the disk is computed again") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "out.jsonl";
  RecordedCalls system;
  Journal journal(path, system);
  journal.go_on();
  journal.append(line(1));
  journal.sync();
  journal.append(line(2));
  system.fault = [](const std::string& call, std::size_t) {
    return call == "sync out.jsonl" ? EIO : 0;
  };
  CHECK_THROWS_AS(journal.sync(), std::system_error);
  CHECK(content(path) == line(1));
}

TEST_CASE("a journal that goes on where synchronising fails keeps what it has") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "out.jsonl";
  const std::string whole = line(1) + line(2);
  write(path, whole + line(3).substr(0, 20));
  RecordedCalls system;
  Journal journal(path, system);
  system.fault = [](const std::string& call, std::size_t) {
    return call == "sync out.jsonl" ? EIO : 0;
  };
  CHECK_THROWS_AS(journal.go_on(), std::system_error);
  CHECK(content(path) == whole);
}

// Linux reports a failed write once, and counts what was to be written as written.
TEST_CASE("what a failed sync has lost is not taken for durable by the next process") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "out.jsonl";
  ForgetfulDisk disk(folder.path(), sluice::test::random_seed());
  {
    Journal journal(path, disk);
    journal.go_on();
    journal.append(line(1));
    journal.sync();
    journal.append(line(2));
    disk.lose_power();  // it was killed before it synchronised
  }
  disk.come_back();
  disk.fail_syncs(1);  // the one that takes up what it left
  std::string found;
  {
    Journal journal(path, disk);
    CHECK(journal.scan().found.size() == 1);
    CHECK(journal.go_on() == line(2).size());
    found = content(path);
    disk.lose_power();
  }
  disk.restart();
  CHECK(found == line(1));
  CHECK(content(path) == line(1));
}

// A job that is interrupted by power losses: rows come in any order, some syncs happen, and the
// disk keeps no promise that it was not asked for.
TEST_CASE("no row that was durable is lost with the power, and none is made up") {
  const std::uint64_t seed = sluice::test::random_seed();
  constexpr std::uint64_t rows = 60;
  for (std::uint64_t round = 0; round < 60; ++round) {
    INFO("seed " << seed << ", round " << round);
    const TemporaryFolder folder;
    const std::filesystem::path path = folder.path() / "out.jsonl";
    std::mt19937_64 random(seed + round);
    ForgetfulDisk disk(folder.path(), seed ^ round);
    std::set<std::uint64_t> durable;
    const JobState state{1, 2, rows, {}, {{"--temp", 0.5}}};
    int losses = 0;
    for (std::set<std::uint64_t> done; done.size() < rows; ++losses) {
      {
        Journal journal(path, disk);
        REQUIRE(journal.scan().verdict != JournalVerdict::foreign);
        const bool is_begun = read_state(path).has_value();
        REQUIRE((is_begun || journal.scan().bytes == 0));
        journal.go_on();
        if (!is_begun) write_state(path, state, disk);
        done.clear();
        for (const ResultFacts& facts : journal.scan().found) CHECK(done.insert(facts.row).second);
        CHECK(std::ranges::includes(done, durable));
        durable = done;  // going on has synchronised them
        for (auto lives = random() % 20; lives > 0 && done.size() < rows; --lives) {
          std::uint64_t row = 1 + random() % rows;
          while (done.contains(row)) row = row % rows + 1;
          journal.append(line(row));
          done.insert(row);
          if (random() % 4 != 0) continue;
          journal.sync();
          durable = done;
        }
        if (done.size() == rows) journal.sync();
        disk.lose_power();
      }
      disk.restart();
      REQUIRE(losses < 1000);
    }
    std::vector<std::string> expected;
    for (std::uint64_t row = 1; row <= rows; ++row) expected.push_back(line(row));
    std::ranges::sort(expected);
    std::vector<std::string> found;
    std::ifstream in(path, std::ios::binary);
    for (std::string text; std::getline(in, text);) found.push_back(text + "\n");
    std::ranges::sort(found);
    CHECK(found == expected);
  }
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
  JobState sized = *again;
  other = *again;
  other.settings["--ctx"] = 0;
  sized.settings["--ctx"] = 300;
  CHECK(differences(other, sized) == std::vector<std::string>{"--ctx was not given and is 300"});
  other = *again;
  other.settings["--stop"] = {"x"};
  CHECK(differences(*again, other).size() == 1);
  CHECK(differences(other, *again).size() == 1);

  for (const char* text : {"", "{}", "[]", "7", "{\"sluice_batch\":2}"}) {
    write(state_path(output), text);
    CHECK_THROWS_AS(read_state(output), UsageError);
  }
  const auto begun_with = [&](const std::string& bytes, const std::string& settings) {
    write(state_path(output), R"({"sluice_batch":1,"input":{"bytes":)" + bytes +
                                  R"(,"digest":1,"rows":1},"shard":"1/1","settings":)" + settings +
                                  "}");
    return read_state(output);
  };
  CHECK_THROWS_AS(begun_with("-1", "{}"), UsageError);
  CHECK_THROWS_AS(begun_with("1e300", "{}"), UsageError);
  CHECK_THROWS_AS(begun_with("1", "[1]"), UsageError);
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  CHECK_THROWS_AS(begun_with("1", R"({"--temp":)" + deep + "}"), UsageError);
  const std::vector<std::string> found =
      differences(*begun_with("5", R"({"a\nb":1})"), *begun_with("5", R"({"a\nb":2})"));
  CHECK(found == std::vector<std::string>{R"(a\nb was 1 and is 2)"});
  std::filesystem::remove(state_path(output));
  REQUIRE(::mkfifo(state_path(output).c_str(), 0600) == 0);
  CHECK_THROWS_AS(read_state(output), UsageError);  // and is not waited for
  // A disk that fails has not written a foreign state: nobody is told to move it away.
  std::filesystem::remove(state_path(output));
  std::filesystem::create_symlink("/proc/self/mem", state_path(output));  // EIO at offset 0
  CHECK_THROWS_AS(read_state(output), std::system_error);
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

TEST_CASE("a journal whose file others write to says so, and leaves the file as it is") {
  namespace fs = std::filesystem;
  const auto fails = [](const std::function<void()>& work) {
    try {
      work();
    } catch (const sluice::Error& error) {
      return error.code() == sluice::ExitCode::io &&
             std::string(error.what()).find("out.jsonl was written to") != std::string::npos;
    }
    return false;
  };
  const std::size_t bytes = line(1).size() + line(2).size();
  for (const std::size_t length : {std::size_t{0}, bytes - 1, bytes + 1}) {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / "out.jsonl";
    Journal journal(path);
    journal.go_on();
    journal.append(line(1));
    journal.append(line(2));
    journal.sync();
    fs::resize_file(path, length);
    CHECK(fails([&] { journal.sync_if_due(Journal::Clock::now() + 3 * Journal::sync_period); }));
    CHECK(fails([&] { journal.sync(); }));
    CHECK(fails([&] { journal.rescan(); }));
    CHECK(fs::file_size(path) == length);
  }
  for (const char damage : {'\0', '\n'}) {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / "out.jsonl";
    Journal journal(path);
    journal.go_on();
    for (std::uint64_t row = 1; row <= 20; ++row) journal.append(line(row));
    journal.sync();
    std::string changed = content(path);
    changed[changed.size() / 2] = damage;
    std::fstream(path, std::ios::in | std::ios::out)
        .seekp(static_cast<std::streamoff>(changed.size() / 2))
        .put(damage);
    CHECK(fails([&] { journal.rescan(); }));
    CHECK(content(path) == changed);
  }
}

TEST_CASE("what killed processes have left of new versions goes when a journal is opened") {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "out.jsonl";
  const auto beside = [&](const std::string& end) { return path.string() + end; };
  write(beside(".partial-aB3xyZ"), line(1));
  const std::vector<std::string> kept = {".partial-aB3xy", ".partial-aB3xyZ4",
                                         ".state.partial-aB3xyZ", ".partial"};
  for (const std::string& end : kept) write(beside(end), "mine");
  fs::create_directory(beside(".partial-folder"));
  { Journal journal(path); }
  CHECK_FALSE(fs::exists(beside(".partial-aB3xyZ")));
  for (const std::string& end : kept) CHECK(content(beside(end)) == "mine");
  CHECK(fs::exists(beside(".partial-folder")));
}

TEST_CASE("a journal whose file was removed or replaced says so at every sync") {
  namespace fs = std::filesystem;
  const std::vector<std::function<void(const fs::path&)>> ways = {
      [](const fs::path& path) { fs::remove(path); },
      [](const fs::path& path) {  // as sed -i
        fs::copy_file(path, path.string() + ".new");
        fs::rename(path.string() + ".new", path);
      },
      [](const fs::path& path) { fs::rename(path, path.string() + ".old"); },
      [](const fs::path& path) {
        fs::rename(path.parent_path(), path.parent_path().string() + "x");
      },
      [](const fs::path& path) { fs::remove_all(path.parent_path()); }};
  for (const auto& way : ways) {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / "folder" / "out.jsonl";
    fs::create_directory(path.parent_path());
    Journal journal(path);
    journal.go_on();
    journal.append(line(1));
    journal.sync();
    const Journal::Clock::time_point now = Journal::Clock::now();
    journal.sync_if_due(now + Journal::sync_period);
    way(path);
    const auto fails = [](const std::function<void()>& work) {
      try {
        work();
      } catch (const sluice::Error& error) {
        return error.code() == sluice::ExitCode::io &&
               std::string(error.what()).find("out.jsonl was removed or replaced") !=
                   std::string::npos;
      }
      return false;
    };
    CHECK(fails([&] { journal.sync_if_due(now + 3 * Journal::sync_period); }));  // nothing is new
    journal.append(line(2));
    CHECK(fails([&] { journal.sync(); }));
    CHECK(fails([&] { journal.replace({}); }));
  }
}
