// The tape against a fake reader: the right bytes or a clean error, whatever the disk does.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "streaming/alignment.h"
#include "streaming/segment_sums.h"
#include "streaming/streamed_tape.h"
#include "tests/catch.h"
#include "tests/fake_reader.h"

using namespace sluice::streaming;
using sluice::test::FakeDisk;
using sluice::test::FakeReader;
using sluice::test::random_bytes;

namespace {

std::uint64_t below(std::mt19937_64& random, std::uint64_t bound) {
  return random() % bound;
}

// Two files, and segments that cover most of them: of a byte, of some pages, of several pieces, in
// an order that is mostly that of the file. Gaps are what a GGUF header or padding would be.
std::vector<Segment> random_segments(FakeDisk& disk, std::mt19937_64& random) {
  std::vector<Segment> segments;
  for (std::uint32_t file = 0; file < 2; ++file) {
    std::uint64_t at = 32 * below(random, 300);
    const std::uint64_t count = 1 + below(random, 40);
    for (std::uint64_t i = 0; i < count; ++i) {
      std::uint64_t bytes = 1 + below(random, 20'000);
      if (below(random, 8) == 0) bytes = 1;
      if (below(random, 20) == 0) bytes = piece_bytes_max + below(random, 700'000);
      segments.push_back({file, at, bytes});
      at += below(random, 3) == 0 ? round_up(bytes, 32) + 32 * below(random, 200) : bytes;
    }
    disk.files.push_back(random_bytes(at + below(random, 5000), random()));
  }
  for (int i = 0; i < 3; ++i) {
    std::swap(segments[below(random, segments.size())], segments[below(random, segments.size())]);
  }
  return segments;
}

std::uint64_t bytes_of(const std::vector<Segment>& segments) {
  std::uint64_t bytes = 0;
  for (const Segment& segment : segments) bytes += segment.bytes;
  return bytes;
}

bool is_right(std::span<const std::byte> bytes, const Segment& segment, const FakeDisk& disk) {
  const std::byte* const expected = disk.files[segment.file].data() + segment.offset;
  return bytes.size() == segment.bytes && std::memcmp(bytes.data(), expected, bytes.size()) == 0;
}

std::unique_ptr<FakeReader> fake(FakeDisk& disk, std::uint64_t seed) {
  return std::make_unique<FakeReader>(disk, seed);
}

// A step that visits some turns in ascending order and holds several at once. Bytes are compared
// after the acquire and again before the release.
void take_step(StreamedTape& tape, const std::vector<Segment>& segments, const FakeDisk& disk,
               std::uint32_t held_max, double skip, std::mt19937_64& random) {
  struct Held {
    std::size_t turn;
    std::span<const std::byte> bytes;
  };
  std::vector<Held> held;
  const auto release = [&](std::size_t which) {
    REQUIRE(is_right(held[which].bytes, segments[held[which].turn], disk));
    tape.release(held[which].turn);
    held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
  };
  for (std::size_t turn = 0; turn < segments.size(); ++turn) {
    if (std::uniform_real_distribution<>(0, 1)(random) < skip) continue;
    // Pages that neighbours share are given up in order, see StreamedTape.
    const bool in_order = disk.maps_files;
    while (held.size() >= 1 + below(random, held_max)) {
      release(in_order ? 0 : below(random, held.size()));
    }
    held.push_back({turn, tape.acquire(turn).bytes});
    REQUIRE(is_right(held.back().bytes, segments[turn], disk));
  }
  while (!held.empty()) release(0);
}

// Equal segments without gaps: what tests about counts need.
struct PlainTape {
  explicit PlainTape(std::size_t count, std::uint64_t segment_bytes = 10'000) {
    disk.files.push_back(random_bytes(count * segment_bytes, 7));
    for (std::size_t i = 0; i < count; ++i) {
      segments.push_back({0, i * segment_bytes, segment_bytes});
    }
  }
  FakeDisk disk;
  std::vector<Segment> segments;
};

}  // namespace

TEST_CASE("bytes are right with every ring, budget, fault and order of completion") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    FakeDisk disk;
    const std::vector<Segment> segments = random_segments(disk, random);
    disk.maps_files = below(random, 3) == 0;
    disk.short_reads = 0.1 * static_cast<double>(below(random, 6));
    disk.interruptions = 0.1 * static_cast<double>(below(random, 6));
    disk.late = 0.1 * static_cast<double>(below(random, 11));
    TapeOptions options;
    options.pinned_bytes_max = below(random, bytes_of(segments) * 5 / 4);
    options.held_max = static_cast<std::uint32_t>(1 + below(random, 8));
    options.slots = options.held_max + static_cast<std::uint32_t>(1 + below(random, 12));
    if (disk.maps_files) options.held_max = 1;
    StreamedTape tape(segments, fake(disk, seed), options);
    tape.load();
    for (int step = 0; step < 4; ++step) {
      const double skip = below(random, 2) == 0 ? 0 : 0.2 * static_cast<double>(below(random, 5));
      take_step(tape, segments, disk, options.held_max, skip, random);
    }
    if (disk.maps_files) REQUIRE(disk.resident_bytes_max <= tape.plan().peak_bytes());
  }
}

TEST_CASE("the plan is what the tape allocates") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 random(seed);
    FakeDisk disk;
    const std::vector<Segment> segments = random_segments(disk, random);
    TapeOptions options;
    options.pinned_bytes_max = below(random, bytes_of(segments));
    const TapePlan plan = plan_tape(segments, options, page_bytes, false);
    StreamedTape tape(segments, fake(disk, seed), options);
    tape.load();
    REQUIRE(plan.pinned_bytes <= options.pinned_bytes_max);
    REQUIRE(plan.pinned_bytes == tape.plan().pinned_bytes);
    REQUIRE(plan.ring_bytes == options.slots * plan.slot_bytes);
    REQUIRE(plan.pinned_bytes == tape.statistics().pinned_bytes);
    REQUIRE(disk.buffer_bytes == plan.ring_bytes);
    std::uint64_t streamed_bytes = 0;
    for (std::size_t turn = 0; turn < segments.size(); ++turn) {
      streamed_bytes += tape.is_in_memory(turn) ? 0 : segments[turn].bytes;
    }
    REQUIRE(streamed_bytes == plan.streamed_bytes_per_step);
    REQUIRE(bytes_of(segments) == streamed_bytes + tape.statistics().loaded_bytes);
  }
}

TEST_CASE("with everything pinned the ring is given back and nothing is read any more") {
  PlainTape plain(30);
  StreamedTape tape(plain.segments, fake(plain.disk, 1), {1 << 20, 9, 8});
  tape.load();
  CHECK(plain.disk.buffer_bytes == 0);
  CHECK(plain.disk.requests.size() == 30);
  std::mt19937_64 random(1);
  for (int step = 0; step < 3; ++step) {
    take_step(tape, plain.segments, plain.disk, 8, 0, random);
  }
  CHECK(plain.disk.requests.size() == 30);
  CHECK(tape.statistics().streaming.reads == 0);
}

TEST_CASE("loading reports its progress to the last byte") {
  PlainTape plain(30);
  std::vector<std::uint64_t> reported;
  std::uint64_t total_bytes = 0;
  StreamedTape tape(plain.segments, fake(plain.disk, 1), {200'000, 9, 8});
  tape.load([&](std::uint64_t loaded, std::uint64_t total) {
    reported.push_back(loaded);
    total_bytes = total;
  });
  REQUIRE_FALSE(reported.empty());
  CHECK(std::is_sorted(reported.begin(), reported.end()));
  CHECK(reported.back() == total_bytes);
  CHECK(total_bytes == tape.statistics().loaded_bytes);
}

TEST_CASE("a step reads each streamed segment once, and the next step's before its own end") {
  const auto begin = std::chrono::steady_clock::now();
  PlainTape plain(40, page_bytes * 5 / 2);
  const TapeOptions options{27 * page_bytes, 6, 2};
  StreamedTape tape(plain.segments, fake(plain.disk, 3), options);
  tape.load();
  const std::size_t streamed = tape.plan().streamed_segments;
  REQUIRE(streamed == 30);
  std::mt19937_64 random(3);
  take_step(tape, plain.segments, plain.disk, 1, 0, random);
  // One step, and as much of the next as the ring holds.
  CHECK(tape.statistics().streaming.reads == streamed + options.slots);
  for (int step = 0; step < 4; ++step) {
    take_step(tape, plain.segments, plain.disk, 1, 0, random);
  }
  CHECK(tape.statistics().streaming.reads == 5 * streamed + options.slots);
  CHECK(tape.statistics().streaming.dropped == 0);
  // This disk was always ready when asked; one that never is makes acquire wait.
  CHECK(tape.statistics().streaming.stalls == 0);
  plain.disk.late = 1;
  take_step(tape, plain.segments, plain.disk, 1, 0, random);
  CHECK(tape.statistics().streaming.stalls > 0);
  CHECK(tape.statistics().streaming.stalls <= 6 * streamed);
  CHECK(tape.statistics().streaming.stall_ns > 0);
  const auto all = std::chrono::steady_clock::now() - begin;
  CHECK(std::chrono::nanoseconds(tape.statistics().streaming.stall_ns) <= all);
}

TEST_CASE("a skipped segment is read in vain, and nothing else is") {
  PlainTape plain(40);
  StreamedTape tape(plain.segments, fake(plain.disk, 3), {0, 6, 2});
  tape.load();
  for (std::size_t step = 1; step <= 5; ++step) {
    for (std::size_t turn = 0; turn < 40; ++turn) {
      if (turn == 17) continue;
      REQUIRE(is_right(tape.acquire(turn).bytes, plain.segments[turn], plain.disk));
      tape.release(turn);
    }
    REQUIRE(tape.statistics().streaming.dropped == step);
    REQUIRE(tape.statistics().streaming.reads == step * 40 + 6);
  }
}

TEST_CASE("a step that ends early costs nothing when it is announced") {
  PlainTape plain(40);
  const auto dropped = [&](bool is_announced) {
    StreamedTape tape(plain.segments, fake(plain.disk, 4), {0, 6, 2});
    tape.load();
    if (is_announced) tape.expect_step_end(30);
    for (int step = 0; step < 3; ++step) {
      for (std::size_t turn = 0; turn < 30; ++turn) {
        REQUIRE(is_right(tape.acquire(turn).bytes, plain.segments[turn], plain.disk));
        tape.release(turn);
      }
    }
    const std::uint64_t before = tape.statistics().streaming.dropped;
    // The last step goes on to the end, announced or not.
    if (is_announced) tape.expect_step_end(40);
    for (std::size_t turn = 0; turn < 40; ++turn) {
      REQUIRE(is_right(tape.acquire(turn).bytes, plain.segments[turn], plain.disk));
      tape.release(turn);
    }
    CHECK((is_announced ? tape.statistics().streaming.dropped : 0) == 0);
    return before;
  };
  CHECK(dropped(true) == 0);
  CHECK(dropped(false) > 0);
}

TEST_CASE("an error surfaces where its segment is acquired, and only there") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    PlainTape plain(40, page_bytes * (2 + below(random, 3)));
    plain.disk.late = 0.5;
    plain.disk.maps_files = below(random, 2) == 0;
    const std::size_t victim = below(random, 40);
    StreamedTape tape(plain.segments, fake(plain.disk, seed), {0, 9, 8});
    tape.load();
    take_step(tape, plain.segments, plain.disk, 1, 0, random);
    const Segment& bad = plain.segments[victim];
    plain.disk.bad = {{0, bad.offset, bad.offset + bad.bytes}};
    std::size_t failures = 0;
    for (int step = 0; step < 3; ++step) {
      for (std::size_t turn = 0; turn < 40; ++turn) {
        try {
          const std::span<const std::byte> bytes = tape.acquire(turn).bytes;
          REQUIRE(is_right(bytes, plain.segments[turn], plain.disk));
          tape.release(turn);
        } catch (const std::system_error& error) {
          REQUIRE(turn == victim);
          REQUIRE(error.code() == std::errc::io_error);
          const std::string what = error.what();
          REQUIRE(what.find("fake-0.gguf") != std::string::npos);
          REQUIRE(what.find("offset " + std::to_string(bad.offset)) != std::string::npos);
          ++failures;
        }
      }
    }
    // In the first step the segment may have been read before it went bad.
    REQUIRE(failures >= 2);
    plain.disk.bad.clear();
    // The failed read may still be in the window; the one after it is a new one.
    try {
      tape.acquire(victim);
      tape.release(victim);
    } catch (const std::system_error&) {
    }
    REQUIRE_NOTHROW(take_step(tape, plain.segments, plain.disk, 1, 0, random));
  }
}

TEST_CASE("a passing error is over when the segment is tried again") {
  PlainTape plain(20);
  plain.disk.bad = {{0, 50'000, 50'001}};
  StreamedTape tape(plain.segments, fake(plain.disk, 5), {0, 9, 8});
  tape.load();
  CHECK_THROWS_AS(tape.acquire(5), std::system_error);
  CHECK_THROWS_AS(tape.acquire(5), std::system_error);
  plain.disk.bad.clear();
  CHECK(is_right(tape.acquire(5).bytes, plain.segments[5], plain.disk));
  tape.release(5);
}

TEST_CASE("a file that is written to or shrinks gives an error that says so") {
  int places_told = 0;
  for (const bool maps_files : {false, true}) {
    for (const std::uint64_t pinned_bytes : {0, 1 << 20}) {
      for (const bool shrinks : {false, true}) {
        PlainTape plain(30);
        plain.disk.maps_files = maps_files;
        StreamedTape tape(plain.segments, fake(plain.disk, 6), {pinned_bytes, 9, 8});
        tape.load();
        plain.disk.is_written_to = !shrinks;
        if (shrinks) plain.disk.current_bytes = {123'456};
        // What was copied before is whole.
        const bool is_safe = !maps_files && pinned_bytes != 0;
        for (std::size_t turn = 9; turn < 30; ++turn) {
          try {
            const std::span<const std::byte> bytes = tape.acquire(turn).bytes;
            REQUIRE(is_right(bytes, plain.segments[turn], plain.disk));
            REQUIRE(is_safe);
            tape.release(turn);
          } catch (const std::system_error& error) {
            REQUIRE_FALSE(is_safe);
            const std::string said = error.what();
            REQUIRE(said.find("truncated") != std::string::npos);
            const std::string place =
                "ends before offset " + std::to_string(10'000 * (turn + 1)) + ",";
            const bool is_told_place = said.find("ends before") != std::string::npos;
            REQUIRE((!is_told_place || said.find(place) != std::string::npos));
            places_told += is_told_place ? 1 : 0;
            REQUIRE(said.find("fake-0.gguf") != std::string::npos);
          }
        }
      }
    }
  }
  CHECK(places_told > 0);
}

TEST_CASE("bytes that are read again and differ give an error, until they are right again") {
  for (const bool maps_files : {false, true}) {
    for (std::size_t victim = 0; victim < 30; ++victim) {
      PlainTape plain(30);
      plain.disk.maps_files = maps_files;
      StreamedTape tape(plain.segments, fake(plain.disk, 6), {maps_files ? 0U : 1U << 20, 9, 8});
      tape.load();
      std::mt19937_64 random(victim);
      take_step(tape, plain.segments, plain.disk, 1, 0, random);
      tape.limit_pinned_bytes(0);  // what was loaded is read again
      tape.expect_step_end(30);
      const std::uint64_t page = round_up(plain.segments[victim].offset, 4096);
      for (int step = 0; step < 4; ++step) {
        const bool is_wrong = step < 2;
        plain.disk.wrong.clear();
        if (is_wrong) plain.disk.wrong = {{0, page, page + 4096}};
        for (std::size_t turn = 0; turn < 30; ++turn) {
          try {
            const std::span<const std::byte> bytes = tape.acquire(turn).bytes;
            REQUIRE(is_right(bytes, plain.segments[turn], plain.disk));
            // In the first step it may have been read ahead before.
            if (turn == victim && is_wrong) REQUIRE(step == 0);
            tape.release(turn);
          } catch (const std::system_error& error) {
            REQUIRE(turn == victim);
            REQUIRE(step != 3);
            REQUIRE(error.code() == std::errc(ESTALE));
            REQUIRE(std::string(error.what()).find("fake-0.gguf") != std::string::npos);
          }
        }
      }
    }
  }
}

TEST_CASE("a sum has bytes of every page of a segment, and none besides") {
  constexpr std::uint64_t file_page = 4096;
  constexpr std::size_t beside = 64;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const std::uint64_t offset = below(random, 3 * file_page);
    const std::size_t bytes = 2 + below(random, (seed % 4 == 0 ? 300 : 3) * file_page);
    auto memory = random_bytes(bytes + 2 * beside, seed);
    const std::span<std::byte> segment = std::span(memory).subspan(beside, bytes);
    const auto flip = [](std::span<std::byte> part) {
      for (std::byte& byte : part) byte ^= std::byte{0xFF};
    };
    SegmentSums sums(2);
    REQUIRE(sums.are_as_before(1, offset, segment));
    flip(std::span(memory).first(beside));
    flip(std::span(memory).last(beside));
    REQUIRE(sums.are_as_before(1, offset, segment));
    REQUIRE_FALSE(sums.are_as_before(1, offset, segment.first(bytes - 1)));
    for (std::size_t begin = 0; begin < bytes;) {
      const std::size_t end = std::min(bytes, begin + file_page - (offset + begin) % file_page);
      flip(segment.subspan(begin, end - begin));
      REQUIRE_FALSE(sums.are_as_before(1, offset, segment));
      flip(segment.subspan(begin, end - begin));
      begin = end;
    }
    REQUIRE(sums.are_as_before(1, offset, segment));
    flip(segment);
    REQUIRE(sums.are_as_before(0, offset, segment));  // another segment
  }
}

TEST_CASE("an error while loading names the place, and the tape can go") {
  PlainTape plain(30);
  plain.disk.bad = {{0, 50'000, 50'001}};
  {
    StreamedTape tape(plain.segments, fake(plain.disk, 7), {1 << 20, 9, 8});
    CHECK_THROWS_AS(tape.load(), std::system_error);
  }
  CHECK(plain.disk.in_flight == 0);
}

TEST_CASE("a tape with reads in flight and segments held can be destroyed at any time") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    PlainTape plain(40);
    plain.disk.late = 1;
    StreamedTape tape(plain.segments, fake(plain.disk, seed), {0, 16, 8});
    tape.load();
    const std::size_t stop = below(random, 40);
    for (std::size_t turn = 0; turn < stop; ++turn) {
      tape.acquire(turn);
      if (turn >= 4) tape.release(turn - 4);
    }
    REQUIRE(plain.disk.in_flight > 0);
  }
}

TEST_CASE("eight segments can be held, a ninth is refused and misuse is named") {
  PlainTape plain(40);
  StreamedTape tape(plain.segments, fake(plain.disk, 8), {0, 9, 8});
  tape.load();
  for (std::size_t turn = 0; turn < 9; ++turn) tape.acquire(turn);
  CHECK_THROWS_AS(tape.acquire(9), std::logic_error);
  CHECK_THROWS_AS(tape.acquire(3), std::logic_error);
  CHECK_THROWS_AS(tape.load(), std::logic_error);  // while segments are held
  tape.release(3);
  CHECK_THROWS_AS(tape.release(3), std::logic_error);
  CHECK(is_right(tape.acquire(9).bytes, plain.segments[9], plain.disk));
  CHECK_THROWS_AS(tape.acquire(40), std::out_of_range);
}

TEST_CASE("configurations that cannot work are refused in clear words") {
  PlainTape plain(10);
  const auto refusal = [&](std::vector<Segment> segments, const TapeOptions& options) {
    try {
      const StreamedTape tape(std::move(segments), fake(plain.disk, 9), options);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  CHECK(refusal(plain.segments, {0, 8, 8}).find("at least 9") != std::string::npos);
  CHECK(refusal(plain.segments, {0, 0, 0}).find("at least 1") != std::string::npos);
  CHECK(refusal(plain.segments, {0, 9, 8}) == "accepted");
  CHECK(refusal({{0, 0, 0}}, {}).find("0 bytes") != std::string::npos);
  CHECK(refusal({{1, 0, 10}}, {}).find("file 1") != std::string::npos);
  CHECK(refusal({{0, 99'999, 2}}, {}).find("fake-0.gguf") != std::string::npos);
  CHECK(refusal({{0, UINT64_MAX - 5, 10}}, {}).find("offset 184467") != std::string::npos);
  CHECK(refusal({{0, 5, UINT64_MAX}}, {}) != "accepted");
  CHECK(refusal({}, {}) == "accepted");
  // The limits themselves.
  const auto plan = [](const Segment& segment) {
    return plan_tape({&segment, 1}, {0, 9, 8}, page_bytes, false).slot_bytes;
  };
  constexpr std::uint64_t largest = 1 << 30, farthest = INT64_MAX / 2;
  CHECK(plan({0, 0, largest}) == largest);
  CHECK_THROWS_AS(plan({0, 0, largest + 1}), std::invalid_argument);
  CHECK(plan({0, farthest, 1}) == page_bytes);
  CHECK_THROWS_AS(plan({0, farthest + 1, 1}), std::invalid_argument);
}

TEST_CASE("the limit of what is pinned changes at any moment of a step") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    FakeDisk disk;
    const std::vector<Segment> segments = random_segments(disk, random);
    disk.late = 0.5;
    StreamedTape tape(segments, fake(disk, seed), {bytes_of(segments) / 2, 9, 4});
    tape.load();
    std::vector<std::size_t> held;
    for (int step = 0; step < 8; ++step) {
      for (std::size_t turn = 0; turn < segments.size(); ++turn) {
        if (below(random, 4) == 0) tape.limit_pinned_bytes(below(random, bytes_of(segments)));
        REQUIRE(is_right(tape.acquire(turn).bytes, segments[turn], disk));
        held.push_back(turn);
        // What is held stays as it is, whatever the limit.
        if (below(random, 4) == 0) tape.limit_pinned_bytes(below(random, bytes_of(segments)));
        while (held.size() > below(random, 4)) {
          tape.release(held.front());
          held.erase(held.begin());
        }
      }
      while (!held.empty()) {
        tape.release(held.front());
        held.erase(held.begin());
      }
      tape.expect_step_end(segments.size());
    }
    tape.limit_pinned_bytes(0);
    REQUIRE(tape.pinned_bytes() == 0);
    take_step(tape, segments, disk, 4, 0, random);
  }
}

TEST_CASE("below a limit that rises again, segments are pinned without a read of their own") {
  PlainTape plain(40);
  const TapeOptions options{1 << 20, 6, 2};
  StreamedTape tape(plain.segments, fake(plain.disk, 3), options);
  tape.load();
  REQUIRE(tape.plan().streamed_segments == 0);
  REQUIRE(plain.disk.buffer_bytes == 0);
  std::mt19937_64 random(3);
  const std::size_t loaded = plain.disk.requests.size();
  tape.limit_pinned_bytes(200'000);
  CHECK(tape.pinned_bytes() <= 200'704);
  for (int step = 0; step < 2; ++step) {
    tape.expect_step_end(40);
    take_step(tape, plain.segments, plain.disk, 1, 0, random);
  }
  CHECK(plain.disk.buffer_bytes == tape.plan().ring_bytes);
  const std::size_t streamed = plain.disk.requests.size();
  CHECK(streamed > loaded);
  tape.limit_pinned_bytes(1 << 20);
  tape.expect_step_end(40);
  take_step(tape, plain.segments, plain.disk, 1, 0, random);
  for (std::size_t turn = 0; turn < 40; ++turn) CHECK(tape.is_in_memory(turn));
  CHECK(plain.disk.requests.size() <= streamed + 20);  // the ones that a step streamed
  tape.expect_step_end(40);
  CHECK(plain.disk.buffer_bytes == 0);
  const std::size_t all = plain.disk.requests.size();
  take_step(tape, plain.segments, plain.disk, 2, 0, random);
  CHECK(plain.disk.requests.size() == all);
}

TEST_CASE("memory may be short again and again") {
  PlainTape plain(40);
  StreamedTape tape(plain.segments, fake(plain.disk, 3), {1 << 20, 6, 2});
  tape.load();
  std::mt19937_64 random(3);
  for (int round = 0; round < 3; ++round) {
    for (const std::uint64_t limit : {200'000, 1 << 20}) {
      tape.limit_pinned_bytes(limit);
      tape.expect_step_end(40);
      take_step(tape, plain.segments, plain.disk, 1, 0, random);
    }
    tape.expect_step_end(40);
    CHECK(plain.disk.buffer_bytes == 0);
  }
}

TEST_CASE("what comes behind the end of steps is not read, when they begin to stream either") {
  PlainTape plain(40);
  StreamedTape tape(plain.segments, fake(plain.disk, 3), {1 << 20, 6, 2});
  tape.load();
  const std::size_t loaded = plain.disk.requests.size();
  tape.limit_pinned_bytes(0);
  tape.expect_step_end(30);
  for (int step = 0; step < 2; ++step) {
    for (std::size_t turn = 0; turn < 30; ++turn) {
      REQUIRE(is_right(tape.acquire(turn).bytes, plain.segments[turn], plain.disk));
      tape.release(turn);
    }
  }
  for (std::size_t i = loaded; i < plain.disk.requests.size(); ++i) {
    CHECK(plain.disk.requests[i].offset < 300'000);
  }
  CHECK(tape.statistics().streaming.dropped == 0);
}

TEST_CASE("loading stops at a limit that falls meanwhile") {
  PlainTape plain(40);
  StreamedTape tape(plain.segments, fake(plain.disk, 3), {1 << 20, 6, 2});
  tape.load([&](std::uint64_t loaded, std::uint64_t) {
    if (loaded == 150'000) tape.limit_pinned_bytes(80'000);
  });
  CHECK(tape.pinned_bytes() <= round_up(80'000, page_bytes));
  CHECK(tape.pinned_bytes() >= 70'000);
  CHECK(tape.statistics().loaded_bytes == 150'000);
  std::mt19937_64 random(3);
  take_step(tape, plain.segments, plain.disk, 2, 0, random);
}

TEST_CASE("a segment that cannot be read again for being pinned fails its own step, and no more") {
  PlainTape plain(40);
  StreamedTape tape(plain.segments, fake(plain.disk, 11), {1 << 20, 9, 8});
  tape.load();
  tape.limit_pinned_bytes(100'000);
  std::size_t victim = 39;
  while (tape.is_in_memory(victim)) --victim;
  const Segment& bad = plain.segments[victim];
  plain.disk.bad = {{0, bad.offset, bad.offset + bad.bytes}};
  tape.limit_pinned_bytes(1 << 20);
  CHECK_THROWS_AS(tape.acquire(victim), std::system_error);
  CHECK_FALSE(tape.is_in_memory(victim));
  plain.disk.bad.clear();
  std::mt19937_64 random(11);
  take_step(tape, plain.segments, plain.disk, 8, 0, random);
  CHECK(tape.is_in_memory(victim));
}

TEST_CASE("another thread may change the limit while steps run") {
  PlainTape plain(200, 9'001);
  StreamedTape tape(plain.segments, fake(plain.disk, 12), {4 << 20, 9, 8});
  std::atomic<bool> is_over = false;
  std::thread other([&] {
    std::mt19937_64 random(12);
    while (!is_over) tape.limit_pinned_bytes(below(random, 2'000'000));
  });
  tape.load();
  std::mt19937_64 random(13);
  for (int step = 0; step < 20; ++step) {
    tape.expect_step_end(200);
    take_step(tape, plain.segments, plain.disk, 8, 0, random);
  }
  is_over = true;
  other.join();
  tape.limit_pinned_bytes(0);
  CHECK(tape.pinned_bytes() == 0);
}
