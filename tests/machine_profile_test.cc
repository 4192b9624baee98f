#include "core/engine/machine_profile.h"

#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/thread.h"
#include "core/engine/machine_limits.h"
#include "tests/catch.h"
#include "tests/random_seed.h"
#include "tests/temporary_folder.h"

namespace sluice::engine {
namespace {

constexpr std::int64_t day = 24 * 3600, today = 20000 * day;

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

MachineProfile opened(const std::filesystem::path& path, std::int64_t now = today) {
  return {path, "a machine, 2 CPUs", now};
}

// Adds samples a minute apart, the last one at `today`.
void add_all(const std::filesystem::path& path, const std::vector<double>& rates) {
  std::int64_t now = today - 60 * static_cast<std::int64_t>(rates.size());
  for (const double rate : rates) {
    MachineProfile profile = opened(path, now += 60);
    profile.add("dram", rate);
    REQUIRE(profile.save().empty());
  }
}

}  // namespace

TEST_CASE("a profile has the range of what was measured, and when") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "state" / "machine.json";
  CHECK_FALSE(opened(path).rate("dram"));
  add_all(path, {30, 50, 20, 31, 29, 28, 40});
  const auto range = opened(path).rate("dram");
  REQUIRE(range);
  CHECK(range->low == 20);
  CHECK(range->usual == 29);  // of 20, 31, 29, 28, 40
  CHECK(range->high == 31);   // 50 and 40 came once
  CHECK(range->samples == 7);
  CHECK(range->first_time == today - 6 * 60);
  CHECK(range->last_time == today);
  CHECK_FALSE(opened(path).rate("disk"));
}

TEST_CASE("one measurement alone is the range") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "machine.json";
  add_all(path, {30});
  const auto range = opened(path).rate("dram");
  REQUIRE(range);
  CHECK(range->low == 30);
  CHECK(range->usual == 30);
  CHECK(range->high == 30);
}

TEST_CASE("what a run has reached counts only where it is more than was known") {
  MachineProfile profile = opened({});
  profile.add("disk", 10);
  profile.add_reached("disk", 9);
  CHECK(profile.rate("disk")->samples == 1);
  profile.add_reached("disk", 10.5);
  CHECK(profile.rate("disk")->high == 10.5);
  profile.add_reached("other", 3);
  CHECK(profile.rate("other")->usual == 3);
  CHECK(profile.save().empty());  // there is no place to keep it
}

TEST_CASE("nothing but positive numbers is a rate") {
  MachineProfile profile = opened({});
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()}) {
    profile.add("dram", bad);
    profile.add_reached("dram", bad);
  }
  CHECK_FALSE(profile.rate("dram"));
}

TEST_CASE("old samples, and those of the future, are forgotten") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "machine.json";
  add_all(path, {30, 40});
  CHECK(opened(path, today + 29 * day).rate("dram")->samples == 2);
  CHECK_FALSE(opened(path, today + 31 * day).rate("dram"));
  CHECK_FALSE(opened(path, today - day).rate("dram"));
}

TEST_CASE("the profile of another machine is replaced") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "machine.json";
  add_all(path, {30, 40});
  MachineProfile other(path, "another machine, 8 CPUs", today);
  CHECK_FALSE(other.rate("dram"));
  other.add("dram", 80);
  REQUIRE(other.save().empty());
  CHECK_FALSE(opened(path).rate("dram"));
  CHECK(MachineProfile(path, "another machine, 8 CPUs", today).rate("dram")->usual == 80);
}

TEST_CASE("a damaged profile counts as empty, whatever it contains") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "machine.json";
  add_all(path, {30, 40, 50});
  const std::string whole = test::content(path);
  std::vector<std::string> texts = {"",
                                    "{",
                                    "[]",
                                    "null",
                                    "\xff\xfe",
                                    std::string(1 << 20, '['),
                                    std::string((1 << 20) + 1, ' ')};
  for (const char* rates : {"[]", "null", "{\"dram\":3}", "{\"dram\":[3]}", "{\"dram\":[[3]]}",
                            "{\"dram\":[[\"3\",3]]}", "{\"dram\":[[1e999,3]]}",
                            "{\"dram\":[[3,1e30]]}", "{\"\":[[3,3]]}"}) {
    texts.push_back(
        "{\"version\":1,\"machine\":\"a machine, 2 CPUs\",\"rates\":" + std::string(rates) + "}");
  }
  std::mt19937_64 random(test::random_seed());
  for (int i = 0; i < 300; ++i) {
    std::string damaged = whole;
    for (std::uint64_t n = 1 + random() % 3; n != 0; --n) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    if (random() % 2 == 0) damaged.resize(random() % damaged.size());
    texts.push_back(damaged);
  }
  for (const std::string& text : texts) {
    write(path, text);
    MachineProfile profile = opened(path);
    if (const auto range = profile.rate("dram")) {
      CHECK(range->low > 0);
      CHECK(range->low <= range->usual);
      CHECK(range->usual <= range->high);
    }
    profile.add("disk", 5);
    CHECK(profile.save().empty());
    CHECK(opened(path).rate("disk")->usual == 5);
  }
}

TEST_CASE("a place that cannot be written gives a line and no more") {
  const test::TemporaryFolder folder;
  write(folder.path() / "file", "x");
  MachineProfile profile = opened(folder.path() / "file" / "machine.json");
  profile.add("dram", 30);
  const std::string problem = profile.save();
  CHECK_FALSE(problem.empty());
  CHECK(problem.find('\n') == std::string::npos);
  CHECK(profile.rate("dram")->usual == 30);
}

TEST_CASE("a profile does not grow without end") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "machine.json";
  for (int i = 0; i < 100; ++i) {
    MachineProfile profile = opened(path, today + i);
    for (int k = 0; k < 3; ++k) profile.add("rate " + std::to_string(3 * i + k), 1);
    profile.add("dram", 1 + i);
    REQUIRE(profile.save().empty());
  }
  CHECK(std::filesystem::file_size(path) < 10'000);
  CHECK(opened(path, today + 100).rate("dram")->samples == 16);
  CHECK(opened(path, today + 100).rate("rate 299"));
  CHECK_FALSE(opened(path, today + 100).rate("rate 0"));
}

TEST_CASE("processes that write a profile together leave a whole one") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "machine.json";
  constexpr int writers = 4, rounds = 25;
  {
    std::vector<base::Thread> threads;
    for (int writer = 0; writer < writers; ++writer) {
      threads.emplace_back([&path, writer] {
        for (int i = 0; i < rounds; ++i) {
          MachineProfile profile = opened(path);
          profile.add("rate " + std::to_string(writer), 1 + i);
          profile.save();
        }
      });
    }
  }
  std::size_t found = 0;
  for (int writer = 0; writer < writers; ++writer) {
    found += opened(path).rate("rate " + std::to_string(writer)) ? 1 : 0;
  }
  CHECK(found >= 1);
  CHECK(test::files_in(folder.path()) == 1);  // nothing temporary is left
}

TEST_CASE("memory is measured with no more than what a process may hold") {
  constexpr std::uint64_t MiB = 1024 * 1024;
  const topology::Machine machine = topology::read_machine();
  CHECK(dram_buffer_bytes(machine, 0) == MiB);
  CHECK(dram_buffer_bytes(machine, machine.own_bytes) == MiB);
  std::uint64_t least = 0;
  for (const std::uint64_t more : {8 * MiB, 40 * MiB, 1000 * MiB}) {
    const std::uint64_t bytes = dram_buffer_bytes(machine, machine.own_bytes + more);
    CHECK(bytes <= more / 2);
    CHECK(bytes >= least);
    least = bytes;
  }
  CHECK(dram_buffer_bytes(machine) >= least);
}

TEST_CASE("memory is measured with four times the last cache, and a quarter of what is free") {
  constexpr std::uint64_t MiB = 1024 * 1024;
  const std::uint64_t divisor = measures_quickly() ? 16 : 1;
  topology::Machine machine;
  machine.own_bytes = 50 * MiB;
  CHECK(dram_buffer_bytes(machine) == 1024 / divisor * MiB);
  machine.caches.l2_bytes = 300 * MiB;
  CHECK(dram_buffer_bytes(machine) == 1200 / divisor * MiB);
  machine.caches.l3_bytes = 320 * MiB;
  CHECK(dram_buffer_bytes(machine) == 1280 / divisor * MiB);
  machine.caches.l3_bytes = 1024 * MiB;
  CHECK(dram_buffer_bytes(machine) == 2048 / divisor * MiB);
  CHECK(dram_buffer_bytes(machine, 90 * MiB) == 20 * MiB);
  machine.memory_available_bytes = 104 * MiB;
  CHECK(dram_buffer_bytes(machine) == 26 * MiB);
  machine.memory_available_bytes = 104 * MiB - 1;
  CHECK(dram_buffer_bytes(machine) == 25 * MiB);
  CHECK(dram_buffer_bytes(machine, 50 * MiB + 14 * MiB) == 7 * MiB);
  machine.memory_available_bytes = 3 * MiB;
  CHECK(dram_buffer_bytes(machine) == MiB);
}

TEST_CASE("threads beyond a quota share its time") {
  topology::Machine machine;
  CHECK(share_of_time(machine, 8) == 1);
  machine.quota = topology::CpuQuota{1.5, "a test"};
  CHECK(share_of_time(machine, 1) == 1);
  CHECK(share_of_time(machine, 2) == 0.75);
  CHECK(share_of_time(machine, 6) == 0.25);
}

TEST_CASE("a bound is the slowest of its terms, and the disk is read as experts are") {
  DecodeWork work{.hot_bytes = 1000, .streamed_bytes = 300, .macs = 50};
  const MachineLimits limits = {
      .dram_bytes_per_s = 1e4, .int8_macs_per_s = 1e3, .disk_bytes_per_s = 1e3, .disk_notes = {}};
  const auto bound = [&](std::uint32_t parallel) {
    const DecodeBound found = decode_bound(limits, work, parallel);
    return std::string(found.name) + " " + std::to_string(std::lround(1000 * found.tokens_per_s));
  };
  // 0.1 s of memory, 0.3 s of the disk, 0.05 s of computing for each sequence.
  CHECK(bound(1) == "disk 3333");
  CHECK(bound(5) == "disk 16667");
  CHECK(bound(7) == "compute 20000");
  CHECK(bound(70) == "compute 20000");
  work.streamed_bytes = 0;
  CHECK(bound(1) == "dram 10000");

  CHECK(work.expert_places() == 1);
  CHECK(work.usual_hit_rate() == 1);
  work = {.hot_bytes = 1000,
          .streamed_bytes = 400,
          .hot_expert_bytes = 800,
          .streamed_expert_bytes = 200,
          .expert_read_bytes = 64};
  CHECK(work.expert_places() == 0.75);
  CHECK(work.scattered_bytes() == 0);
  work.streamed_expert_bytes = 201;  // more than half of what is streamed
  CHECK(work.scattered_bytes() == 64);
  CHECK(work.with_hit_rate(0.5).streamed_expert_bytes == 400);
  CHECK(work.with_hit_rate(0.5).streamed_bytes == 599);
}

}  // namespace sluice::engine
