// The guard against a made-up machine whose memory comes and goes, with a real tape.
#include "core/engine/memory_guard.h"

#include <fstream>
#include <string>
#include <vector>

#include "streaming/choose_reader.h"
#include "tests/catch.h"
#include "tests/temporary_folder.h"

namespace {

using sluice::engine::MemoryGuard;
using sluice::engine::MemoryReading;
using sluice::streaming::StreamedTape;
using std::chrono::seconds;

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;
constexpr std::uint64_t segment_bytes = 2 * MiB;
constexpr std::size_t segments = 64;
constexpr std::uint64_t others_bytes = 100 * MiB;

// Bytes that tell where they come from.
std::byte expected(std::uint64_t offset) {
  return static_cast<std::byte>(offset / 4096 * 37 + 11);
}

struct Bench {
  Bench() {
    file = folder.path() / "weights";
    std::ofstream out(file, std::ios::binary);
    std::vector<char> page(4096);
    for (std::uint64_t at = 0; at < segments * segment_bytes; at += page.size()) {
      std::fill(page.begin(), page.end(), static_cast<char>(expected(at)));
      out.write(page.data(), static_cast<std::streamsize>(page.size()));
    }
    out.close();
    std::vector<sluice::streaming::Segment> list;
    for (std::size_t i = 0; i < segments; ++i)
      list.push_back({0, i * segment_bytes, segment_bytes});
    const std::vector<std::filesystem::path> files{file};
    auto choice = sluice::streaming::choose_reader(sluice::streaming::Io::pread, files);
    const sluice::streaming::TapeOptions options{96 * MiB, 8, 4};
    tape = std::make_unique<StreamedTape>(list, std::move(choice.reader), options);
    plan.tape = tape->plan();
    plan.lines = {{"everything else", others_bytes, sluice::plan::Kind::anon},
                  {"pinned weights", plan.tape.pinned_bytes, sluice::plan::Kind::anon}};
    reading.usable_bytes = 1024 * MiB;
    guard.emplace(
        plan, *tape, [this](const std::string& line) { log.push_back(line); },
        [this] { return reading; });
  }

  // One step over the tape, with a look at every segment, and then the guard, a second later.
  void step() {
    for (std::size_t i = 0; i < segments; ++i) {
      const auto bytes = tape->acquire(i);
      REQUIRE(bytes.size() == segment_bytes);
      CHECK(bytes.front() == expected(i * segment_bytes));
      CHECK(bytes.back() == expected((i + 1) * segment_bytes - 1));
      tape->release(i);
    }
    now += seconds(1);
    guard->check(now);
  }

  std::uint64_t pinned() const { return tape->plan().pinned_bytes; }

  sluice::test::TemporaryFolder folder;
  std::filesystem::path file;
  std::unique_ptr<StreamedTape> tape;
  sluice::plan::MemoryPlan plan;
  MemoryReading reading;
  std::vector<std::string> log;
  std::optional<MemoryGuard> guard;
  MemoryGuard::Clock::time_point now{seconds(1000)};
};

}  // namespace

TEST_CASE("with memory enough the guard changes nothing") {
  Bench bench;
  for (int i = 0; i < 5; ++i) bench.step();
  CHECK(bench.pinned() == 96 * MiB);
  CHECK(bench.log.empty());
}

TEST_CASE("a plan that fills its budget to the last byte is left alone") {
  Bench bench;
  bench.reading.usable_bytes = others_bytes + 96 * MiB;
  for (int i = 0; i < 5; ++i) bench.step();
  CHECK(bench.pinned() == 96 * MiB);
}

TEST_CASE("weights are given up while memory is short and pinned again when it is back") {
  Bench bench;
  bench.step();
  bench.reading.usable_bytes = others_bytes + 60 * MiB;
  bench.step();
  CHECK(bench.pinned() <= 60 * MiB);
  CHECK(bench.pinned() >= 40 * MiB);
  REQUIRE(bench.log.size() == 1);
  bench.step();  // the same bytes arrive, streamed or pinned

  bench.reading.usable_bytes = 1024 * MiB;
  for (int i = 0; i < 5; ++i) bench.step();
  CHECK(bench.log.size() == 1);  // not at the first sign
  for (int i = 0; i < 10; ++i) bench.step();
  CHECK(bench.pinned() == 96 * MiB);
  CHECK(bench.log.size() == 2);
  bench.step();
}

TEST_CASE("with no memory left everything is streamed, and nothing breaks") {
  Bench bench;
  bench.reading.usable_bytes = 0;
  bench.step();
  CHECK(bench.pinned() == 0);
  bench.step();
}

TEST_CASE("refaults and pressure cost a little at a time, until they stop") {
  Bench bench;
  bench.step();
  bench.reading.refaults += MemoryGuard::refaults_max + 1;
  bench.step();
  CHECK(bench.pinned() == 32 * MiB);
  bench.step();  // no more of them
  CHECK(bench.pinned() == 32 * MiB);
  bench.reading.pressure_percent = 50;
  bench.step();
  CHECK(bench.pinned() == 0);
}

TEST_CASE("the guard looks no more than once a period") {
  Bench bench;
  bench.step();
  bench.reading.usable_bytes = 0;
  bench.guard->check(bench.now + std::chrono::milliseconds(500));
  CHECK(bench.pinned() == 96 * MiB);
}
