// What others see of a job: status segments of living, dead and hostile processes, progress, the
// choice of --parallel, and the merging of parts.
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/batch/job_state.h"
#include "core/batch/merge.h"
#include "core/batch/parallel_choice.h"
#include "core/batch/progress.h"
#include "core/batch/result.h"
#include "core/batch/status_segment.h"
#include "core/error.h"
#include "tests/catch.h"
#include "tests/temporary_folder.h"

namespace {

using namespace sluice::batch;
using namespace sluice::rows;
using sluice::test::content;
using sluice::test::TemporaryFolder;
using sluice::test::write;
namespace fs = std::filesystem;

std::optional<LivingStatus> status_of(pid_t pid) {
  for (const LivingStatus& living : living_statuses()) {
    if (living.pid == static_cast<std::uint64_t>(pid)) return living;
  }
  return std::nullopt;
}

std::uint64_t pid_namespace() {
  struct stat facts {};
  REQUIRE(::stat("/proc/self/ns/pid", &facts) == 0);
  return facts.st_ino;
}

fs::path segment_file(pid_t pid, std::uint64_t name_space = pid_namespace()) {
  return fs::path("/dev/shm") /
         ("sluice-status-" + std::to_string(name_space) + "-" + std::to_string(pid));
}

// A child that publishes and waits to be killed.
pid_t publishing_child() {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    StatusPublisher publisher;
    publisher.publish({"batch", "child", 1, 2, 3.5, 4, 5, 6});
    static_cast<void>(::write(ends[1], "x", 1));
    while (true) ::pause();
  }
  char byte = 0;
  REQUIRE(::read(ends[0], &byte, 1) == 1);
  ::close(ends[0]);
  ::close(ends[1]);
  return child;
}

std::string line(std::uint64_t row) {
  return result_line(row, {}, "", {"row " + std::to_string(row), Finish::stop, 1, 2, 0});
}

}  // namespace

TEST_CASE("a status is seen while its process lives, and never after") {
  if (!fs::is_directory("/dev/shm")) SLUICE_SKIP("no /dev/shm");
  {
    StatusPublisher publisher;
    CHECK_FALSE(status_of(::getpid()));  // it has not said anything yet
    const std::string long_name(500, 'm');
    publisher.publish({"batch", long_name, 10, 20, 2.5, 3, 7, 4});
    const auto seen = status_of(::getpid());
    REQUIRE(seen);
    CHECK(seen->status.command == "batch");
    CHECK(seen->status.model == std::string(127, 'm'));
    CHECK(seen->status.budget_bytes == 10);
    CHECK(seen->status.memory_bytes == 20);
    CHECK(seen->status.tokens_per_s == 2.5);
    CHECK(seen->status.rows_done == 3);
    CHECK(seen->status.rows == 7);
    CHECK(seen->status.sequences == 4);
    CHECK_FALSE(seen->status.experts);
    CHECK(seen->seconds >= 0);

    publisher.publish({"run", "mixture", 10, 20, 2.5, 0, 0, 1, Status::Experts{0.75, 1e9}});
    const auto experts = status_of(::getpid())->status.experts;
    REQUIRE(experts);
    CHECK(experts->hit_rate == 0.75);
    CHECK(experts->bytes_read_per_token == 1e9);
    CHECK_FALSE(status_of(::getpid())->status.seconds_left);
    publisher.publish({"batch", "m", 0, 0, 0, 1, 2, 1, {}, 12.5});
    CHECK(status_of(::getpid())->status.seconds_left == 12.5);

    CHECK_FALSE(status_of(::getpid())->status.guesses);
    publisher.publish(
        {"run", "m", 0, 0, 0, 0, 0, 1, {}, {}, Status::Guesses{1.5, {{{9, 4}, {0, 0}, {3, 3}}}}});
    const auto guesses = status_of(::getpid())->status.guesses;
    REQUIRE(guesses);
    CHECK(guesses->tokens_per_step == 1.5);
    CHECK(guesses->by_kind[0].drafted == 9);
    CHECK(guesses->by_kind[0].accepted == 4);
    CHECK(guesses->by_kind[2].accepted == 3);
  }
  CHECK_FALSE(status_of(::getpid()));

  const pid_t child = publishing_child();
  CHECK(status_of(child)->status.model == "child");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK(fs::exists(segment_file(child)));
  CHECK_FALSE(status_of(child));
  CHECK_FALSE(fs::exists(segment_file(child)));  // taken away
}

TEST_CASE("a segment left by a dead process is not taken for one with the same id") {
  if (!fs::is_directory("/dev/shm")) SLUICE_SKIP("no /dev/shm");
  const pid_t dead = publishing_child();
  const std::string left = content(segment_file(dead));
  ::kill(dead, SIGKILL);
  ::waitpid(dead, nullptr, 0);
  living_statuses();
  const pid_t living = publishing_child();
  std::string forged = left;  // pid of the living, start of the dead
  forged.replace(0, 16, content(segment_file(living)).substr(0, 16));
  forged[22] = static_cast<char>(forged[22] ^ 1);  // far from any start of these moments
  write(segment_file(living), forged);
  CHECK_FALSE(status_of(living));
  CHECK_FALSE(fs::exists(segment_file(living)));
  ::kill(living, SIGKILL);
  ::waitpid(living, nullptr, 0);
}

TEST_CASE("segments that are none are passed over") {
  if (!fs::is_directory("/dev/shm")) SLUICE_SKIP("no /dev/shm");
  const fs::path own = segment_file(::getpid());
  for (const std::string& text :
       {std::string(), std::string("x"), std::string(4096, '\xff'), std::string(4096, '\0')}) {
    write(own, text);
    CHECK_FALSE(status_of(::getpid()));
  }
  const fs::path odd = segment_file(12).string() + "x";
  write(odd, "x");
  CHECK_NOTHROW(living_statuses());
  CHECK(fs::exists(odd));
  fs::remove(odd);
  StatusPublisher publisher;  // takes the place of what is there
  publisher.publish({});
  CHECK(status_of(::getpid()));
}

TEST_CASE("a status is read whole while it is being written") {
  if (!fs::is_directory("/dev/shm")) SLUICE_SKIP("no /dev/shm");
  StatusPublisher publisher;
  std::atomic<bool> ends = false;
  publisher.publish({"batch", "", 0, 0, 0, 0, 0, 0});
  std::thread writer([&] {
    for (std::uint64_t i = 1; !ends; ++i) {
      publisher.publish({"batch", "", i, i, 0, i, i, i});
      if (i % 256 == 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  int whole = 0;
  for (int i = 0; i < 200; ++i) {
    const auto seen = status_of(::getpid());
    if (!seen) continue;  // this writer hardly ever rests
    ++whole;
    CHECK(seen->status.budget_bytes == seen->status.sequences);
    CHECK(seen->status.rows_done == seen->status.rows);
    CHECK(seen->status.budget_bytes == seen->status.rows);
  }
  ends = true;
  writer.join();
  CHECK(whole > 0);
}

TEST_CASE("what a status says is printed only where it is printable text") {
  if (!fs::is_directory("/dev/shm")) SLUICE_SKIP("no /dev/shm");
  StatusPublisher publisher;
  const auto shown = [&](const std::string& text) {
    publisher.publish({"run", text, 0, 0, 0, 0, 0, 0});
    return status_of(::getpid())->status.model;
  };
  CHECK(shown("a b~") == "a b~");
  CHECK(shown("g\u00e9 \u4e2d \U0001f600") == "g\u00e9 \u4e2d \U0001f600");
  CHECK(shown("\x1b[31m\n\x7f") == "?[31m??");
  CHECK(shown("\u009b31m\u0085\u00a0") == "?31m?\u00a0");  // CSI and NEL as C1 controls
  CHECK(shown("\x9b"
              "31m\xc2") == "?31m?");  // the same in no encoding
  CHECK(shown("x\u202egpj.exe\u2066\u2028\ufeff") == "x?gpj.exe???");
  CHECK(shown("\xc0\x9b\xed\xa0\x80\xff") == "??????");
  CHECK(shown(std::string(126, 'm') + "\u00e9") == std::string(126, 'm'));  // cut between two
  constexpr double infinity = std::numeric_limits<double>::infinity();
  publisher.publish({"run", "m", 0, 0, infinity, 0, 0, 0});
  CHECK(status_of(::getpid())->status.tokens_per_s == 0);
  for (const Status::Experts& hostile :
       {Status::Experts{1.5, 0}, Status::Experts{-1, 0}, Status::Experts{0.5, infinity},
        Status::Experts{0.5, 1e30}, Status::Experts{0.5, -1}}) {
    publisher.publish({"run", "m", 0, 0, 0, 0, 0, 0, hostile});
    CHECK_FALSE(status_of(::getpid())->status.experts);
  }
  for (const Status::Guesses& hostile :
       {Status::Guesses{0.5, {}}, Status::Guesses{infinity, {}}, Status::Guesses{1e30, {}},
        Status::Guesses{2, {{{1, 2}, {0, 0}, {0, 0}}}}}) {
    publisher.publish({"run", "m", 0, 0, 0, 0, 0, 0, {}, {}, hostile});
    CHECK_FALSE(status_of(::getpid())->status.guesses);
  }
  for (const double hostile : {-1.0, 1e30, infinity}) {
    publisher.publish({"batch", "m", 0, 0, 0, 1, 2, 1, {}, hostile});
    CHECK_FALSE(status_of(::getpid())->status.seconds_left);
  }
}

TEST_CASE("a pipe, a link or a folder under the name of a segment holds nobody up") {
  if (!fs::is_directory("/dev/shm")) SLUICE_SKIP("no /dev/shm");
  const TemporaryFolder folder;
  const fs::path own = segment_file(::getpid());
  const pid_t child = publishing_child();
  const std::string sound = content(segment_file(child));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  living_statuses();
  // In a child that is ended if it waits.
  const auto reader_ends = [&] {
    const pid_t reader = ::fork();
    REQUIRE(reader >= 0);
    if (reader == 0) {
      ::alarm(20);
      living_statuses();
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(reader, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  };
  REQUIRE(::mkfifo(own.c_str(), 0644) == 0);
  CHECK(reader_ends());
  fs::remove(own);
  write(folder.path() / "behind", sound);
  fs::create_symlink(folder.path() / "behind", own);
  CHECK(reader_ends());
  fs::remove(own);
  fs::create_directory(own);
  CHECK(reader_ends());
  fs::remove(own);
}

TEST_CASE("a segment that is cut while it is read is passed over") {
  if (!fs::is_directory("/dev/shm")) SLUICE_SKIP("no /dev/shm");
  const pid_t victim = publishing_child();
  const fs::path file = segment_file(victim);
  const auto whole = fs::file_size(file);
  const pid_t cutter = ::fork();
  REQUIRE(cutter >= 0);
  if (cutter == 0) {
    while (true) {
      static_cast<void>(::truncate(file.c_str(), 0));
      static_cast<void>(::truncate(file.c_str(), static_cast<off_t>(whole)));
    }
  }
  for (int i = 0; i < 2000; ++i) CHECK_NOTHROW(living_statuses());
  for (const pid_t child : {cutter, victim}) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  living_statuses();
  CHECK_FALSE(fs::exists(file));
}

TEST_CASE("what a process of another namespace says is left alone") {
  if (!fs::is_directory("/dev/shm")) SLUICE_SKIP("no /dev/shm");
  const pid_t child = publishing_child();
  const std::string sound = content(segment_file(child));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const fs::path foreign = segment_file(child, pid_namespace() + 1);  // it may well live there
  write(foreign, sound);
  CHECK_FALSE(status_of(child));
  CHECK(fs::exists(foreign));
  CHECK_FALSE(fs::exists(segment_file(child)));
  fs::remove(foreign);
}

TEST_CASE("progress follows the last minute and does not count what was there before") {
  using namespace std::chrono_literals;
  const ProgressMeter::Clock::time_point start{};
  ProgressMeter meter(100, 40, start);
  CHECK_FALSE(meter.seconds_left());
  CHECK(meter.tokens_per_s() == 0);
  for (int second = 1; second <= 10; ++second) {
    meter.update(40 + 2 * second, 100 * second, start + second * 1s);
  }
  CHECK(meter.tokens_per_s() == Approx(100));
  CHECK(meter.seconds_left().value() == Approx(20));
  CHECK(meter.line() == "60 of 100 rows (60 %), 100.0 tokens/s, 20 s left");
  CHECK(meter.bar(10) == "[######....] " + meter.line());
  for (int second = 11; second <= 200; ++second) {  // slower from here on
    meter.update(60, 1000 + 10 * (second - 10), start + second * 1s);
  }
  CHECK(meter.tokens_per_s() == Approx(10));
  CHECK(ProgressMeter(0, 0).line().starts_with("0 of 0 rows (100 %)"));
  CHECK(format_duration(0) == "0 s");
  CHECK(format_duration(200) == "3 min 20 s");
  CHECK(format_duration(7500) == "2 h 05 min");
  CHECK(format_duration(90 * 3600) == "4 days");
}

TEST_CASE("steps between those that were measured take times between theirs") {
  const StepCurve curve({{1, 0.5}, {4, 0.5}, {16, 1.1}, {64, 3.5}});
  CHECK(curve.seconds(1) == Approx(0.5));
  CHECK(curve.seconds(4) == Approx(0.5));
  CHECK(curve.seconds(10) == Approx(0.8));
  CHECK(curve.seconds(64) == Approx(3.5));
  CHECK(curve.seconds(112) == Approx(5.9));  // the last line goes on
  CHECK(StepCurve({{1, 0.5}}).seconds(3) == Approx(1.5));
}

TEST_CASE("the number of sequences is the fewest with which a job takes hardly longer") {
  const StepCurve curve({{1, 0.5}, {16, 0.5}, {32, 1}, {64, 2}});  // arithmetic binds from 16 on
  const auto resident = [](std::uint32_t) { return std::optional<std::uint64_t>(0); };
  const auto streamed = [](std::uint32_t) { return std::optional<std::uint64_t>(2'000'000'000); };
  const Workload work{.rows = 1024, .prompt_tokens = 0, .generated_tokens = 65'536};
  CHECK(choose_parallel(curve, 1e9, work, resident).parallel == 16);
  // Two seconds of disk are as long as the arithmetic of 64 tokens.
  CHECK(choose_parallel(curve, 1e9, work, streamed).parallel == 64);
  // Prompts are a part of the arithmetic: as many tokens again.
  const Workload with_prompts{.rows = 1024, .prompt_tokens = 65'536, .generated_tokens = 65'536};
  CHECK(choose_parallel(curve, 1e9, with_prompts, streamed).parallel == 32);
  // No more than there are rows, and all of them in one turn rather than in two.
  CHECK(choose_parallel(curve, 1e9, {.rows = 5, .generated_tokens = 320}, streamed).parallel == 5);
  CHECK(choose_parallel(curve, 1e9, {.rows = 1, .generated_tokens = 64}, streamed).parallel == 1);

  const auto bounded = [&](std::uint32_t n) {
    return n <= 4 ? streamed(n) : std::optional<std::uint64_t>();
  };
  const ParallelChoice choice = choose_parallel(curve, 1e9, work, bounded);
  CHECK(choice.parallel == 4);
  CHECK(choice.reason.find("budget") != std::string::npos);
  // Pinned weights that have to go for more sequences cost more than these bring.
  const auto crowded = [&](std::uint32_t n) {
    return std::optional<std::uint64_t>(2'000'000'000ULL * (n < 4 ? 1 : n));
  };
  CHECK(choose_parallel(curve, 1e9, work, crowded).parallel == 2);
}

TEST_CASE(
    "rows of a mixture share few experts when they are few, and memory for them costs places") {
  const StepCurve curve({{1, 0.01}, {256, 0.02}});
  // Each token takes a sixteenth of the experts.
  const auto streamed = [](double bytes_for_each) {
    return [bytes_for_each](std::uint32_t n) {
      const double needed = 1 - std::pow(1 - 1.0 / 16, n);
      return std::optional(static_cast<std::uint64_t>((12e9 + bytes_for_each * n) * needed));
    };
  };
  const Workload few{.rows = 4, .generated_tokens = 400};
  const Workload many{.rows = 256, .generated_tokens = 25'600};
  CHECK(choose_parallel(curve, 1e9, few, streamed(0)).parallel == 4);
  // 3.64 s for a step of four, 0.81 s for one alone.
  CHECK(choose_parallel(curve, 1e9, few, streamed(1e9)).parallel == 1);
  CHECK(choose_parallel(curve, 1e9, many, streamed(0.25e9)).parallel == 256);
}

TEST_CASE("any number of parts is merged with a few open files") {
  const TemporaryFolder folder;
  constexpr std::uint64_t shards = 100, rows = 250;
  std::vector<fs::path> parts;
  std::string expected;
  for (std::uint64_t index = 1; index <= shards; ++index) {
    parts.push_back(folder.path() / std::to_string(index));
    std::string text;
    for (std::uint64_t row = index; row <= rows; row += shards) text = line(row) + text;
    write(parts.back(), text);
    write_state(parts.back(), {10, 20, rows, {index, shards}, nlohmann::ordered_json::object()});
  }
  for (std::uint64_t row = 1; row <= rows; ++row) expected += line(row);
  const fs::path out = folder.path() / "out";
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit limit{20, 20};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    int status = 1;
    try {
      status = merge_parts(parts, out).rows() == rows ? 0 : 2;
    } catch (...) {
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(content(out) == expected);
}

TEST_CASE("parts become the whole in the order of the input, or a reason why not") {
  const TemporaryFolder folder;
  const fs::path out = folder.path() / "out";
  const auto part = [&](std::uint64_t index) {
    return folder.path() / ("part-" + std::to_string(index));
  };
  const auto write_part = [&](std::uint64_t index, const std::string& text) {
    write(part(index), text);
    write_state(part(index), {10, 20, 7, {index, 3}, {{"--temp", 0.5}}});
  };
  const std::vector<fs::path> parts = {part(3), part(1), part(2)};
  const auto set_up = [&] {
    write_part(1, line(7) + line(1) + line(4));
    write_part(2, line(5) + line(2));
    write_part(3, line(3) + line(6));
  };
  std::string expected;
  for (std::uint64_t row = 1; row <= 7; ++row) expected += line(row);
  set_up();
  CHECK(merge_parts(parts, out).rows() == 7);
  // A part that is replaced while it is merged: its lines are elsewhere now.
  for (const std::size_t changed : {std::size_t{0}, parts.size() - 1}) {
    const std::string merged = content(out), before = content(parts[changed]);
    bool is_done = false;
    try {
      merge_parts(parts, out, [&] {
        if (!std::exchange(is_done, true)) write(parts[changed], before + " ");
      });
      FAIL("a part that was replaced was merged");
    } catch (const sluice::Error& error) {
      CHECK(error.code() == sluice::ExitCode::io);
    }
    CHECK(content(out) == merged);
    write(parts[changed], before);
  }
  CHECK(content(out) == expected);
  fs::remove(out);
  const auto check_fails = [&](const std::vector<fs::path>& given, const std::string& says) {
    try {
      merge_parts(given, out);
      FAIL("merged");
    } catch (const sluice::Error& error) {
      INFO(error.what());
      CHECK(std::string(error.what()).find(says) != std::string::npos);
    }
    CHECK_FALSE(fs::exists(out));
  };
  for (const std::string& text : {std::string("mine\n"), std::string("mine"), line(1) + "mine\n"}) {
    write(out, text);
    CHECK_THROWS_AS(merge_parts(parts, out), sluice::UsageError);
    CHECK(content(out) == text);
  }
  // What is replaced may be of another job, which must not go on with these results; and a merge
  // before may have been killed.
  write(out, line(3));
  write_state(out, {11, 21, 8, {}, {{"--temp", 0.6}}});
  write(out.string() + ".partial-abcdef", line(1));
  CHECK(merge_parts(parts, out).rows() == 7);
  CHECK(content(out) == expected);
  CHECK_FALSE(fs::exists(state_path(out)));
  CHECK_FALSE(fs::exists(out.string() + ".partial-abcdef"));
  fs::remove(out);
  check_fails({}, "no part");
  check_fails({part(1), part(2)}, "--shard 3/3");
  check_fails({part(1), part(2), part(3), part(2)}, part(2).string() + " is given twice");
  fs::copy_file(part(2), part(4));
  fs::copy_file(state_path(part(2)), state_path(part(4)));
  check_fails({part(1), part(2), part(3), part(4)}, "row 5 is there twice: in ");
  write(part(2), line(5) + line(2).substr(0, 30));  // torn
  check_fails(parts, "1 of 7 rows are missing, the first is row 2");
  write(part(2), line(5) + "x\n");
  check_fails(parts, "line 2: not a result");
  write(part(2), line(5) + line(8));
  check_fails(parts, "line 2: not a result");
  set_up();
  write_state(part(2), {10, 21, 7, {2, 3}, {{"--temp", 0.5}}});
  check_fails(parts, "input");
  write_state(part(2), {10, 20, 7, {2, 3}, {{"--temp", 0.6}}});
  check_fails(parts, "--temp");
  write_state(part(2), {10, 20, 7, {2, 4}, {{"--temp", 0.5}}});
  check_fails(parts, "--shard");
  fs::remove(state_path(part(2)));
  check_fails(parts, "state");
  fs::remove(part(2));
  CHECK_THROWS_AS(merge_parts(parts, out), std::system_error);
}
