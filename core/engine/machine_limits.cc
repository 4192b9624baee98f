#include "core/engine/machine_limits.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <span>
#include <utility>

#include "base/sanitizer.h"
#include "core/engine/expert_routes.h"
#include "kernels/kernel_table.h"
#include "streaming/disk_speed.h"
#include "topology/thread_team.h"

namespace sluice::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t MiB = std::size_t{1} << 20;
constexpr auto dram_time = std::chrono::milliseconds(300);
constexpr auto peak_time = std::chrono::milliseconds(100);
constexpr auto disk_time = std::chrono::milliseconds(500);
constexpr int quick_divisor = 16;
constexpr std::size_t dram_least = 1024 * MiB, dram_most = 2048 * MiB;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr std::size_t words_a_line = 8, line_bytes = words_a_line * sizeof(std::uint64_t);

constexpr std::size_t streams = 4, words_ahead = 256;

// One pass over whole cache lines, in the way the matrix kernels read: several streams in turn,
// each prefetched some lines ahead, because otherwise too few requests are in flight. The sums are
// independent, so additions never wait for each other and only the loads take time. `words` is a
// multiple of `streams` lines.
std::uint64_t sum_lines(std::span<const std::uint64_t> words) {
  std::array<std::uint64_t, words_a_line> sums{};
  const std::size_t stream_words = words.size() / streams;
  for (std::size_t i = 0; i < stream_words; i += words_a_line) {
    for (std::size_t s = 0; s < streams; ++s) {
      const std::uint64_t* line = words.data() + s * stream_words + i;
      __builtin_prefetch(line + words_ahead, 0, 3);
      for (std::size_t j = 0; j < words_a_line; ++j) sums[j] += line[j];
    }
  }
  return std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
}

// The best of several passes: a disturbance only makes a pass slower.
double measure_dram_bytes_per_s(const topology::CpuList& cpus, std::size_t buffer_bytes) {
  DramReader reader(cpus, buffer_bytes);
  double best = 0;
  const Clock::time_point start = Clock::now();
  do {
    best = std::max(best, reader.read());
  } while (Clock::now() - start < measuring_time(dram_time));
  return best;
}

std::uint64_t last_cache(const topology::Machine& machine) {
  return machine.caches.l3_bytes.value_or(machine.caches.l2_bytes.value_or(0));
}

}  // namespace

bool measures_quickly() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing changes it
  static const bool is_asked_for = std::getenv("SLUICE_QUICK_MEASURES") != nullptr;
  return base::is_sanitized || is_asked_for;
}

std::chrono::milliseconds measuring_time(std::chrono::milliseconds duration) {
  return measures_quickly() ? duration / quick_divisor : duration;
}

double measure_int8_macs_per_s(const topology::CpuList& cpus, const kernels::KernelTable& table) {
  constexpr std::uint64_t rounds = 20'000;
  const auto duration = measuring_time(peak_time);
  topology::ThreadTeam team(cpus);
  std::atomic<std::uint64_t> macs = 0;
  const Clock::time_point start = Clock::now();
  team.run([&](std::size_t) {
    while (Clock::now() - start < duration) macs += table.peak.int8_macs(rounds);
  });
  return static_cast<double>(macs) / seconds_since(start);
}

double read_memory(topology::ThreadTeam& team, std::span<const std::byte> bytes) {
  constexpr std::size_t unit = 8192;  // words
  const std::span all(reinterpret_cast<const std::uint64_t*>(bytes.data()),
                      bytes.size() / sizeof(std::uint64_t));
  std::atomic<std::uint64_t> sink = 0;  // keeps the sums from being optimised away
  const Clock::time_point start = Clock::now();
  // Threads take units as they become free, as they do when they read weights.
  topology::for_each_part(team, all.size() / unit,
                          [&](std::size_t, std::size_t begin, std::size_t end) {
                            sink += sum_lines(all.subspan(begin * unit, (end - begin) * unit));
                          });
  return static_cast<double>(bytes.size()) / seconds_since(start);
}

// A quota stops threads for the rest of each period; the best pass does not show that, because it
// falls into the running part.
double share_of_time(const topology::Machine& machine, std::size_t threads) {
  if (!machine.quota) return 1;
  return std::min(1.0, machine.quota->cpus / static_cast<double>(threads));
}

DramReader::DramReader(const topology::CpuList& cpus, std::size_t buffer_bytes)
    : team_(cpus), buffer_(buffer_bytes) {
  // All threads write it, which spreads the memory over the nodes of a NUMA machine.
  team_.run([&](std::size_t member) {
    const auto range = topology::split(buffer_.size(), line_bytes, team_.size(), member);
    std::fill_n(buffer_.data() + range.begin, range.size(), std::byte{1});
  });
}

double DramReader::read() {
  return read_memory(team_, {buffer_.data(), buffer_.size()});
}

std::uint64_t measuring_bytes(const topology::Machine& machine, std::uint64_t memory_max) {
  const auto beside_own = [&](std::uint64_t all) { return all - std::min(all, machine.own_bytes); };
  const std::uint64_t bytes = beside_own(memory_max) / 2;
  const std::optional<topology::MemoryBound> bound = topology::usable_memory(machine);
  return bound ? std::min(bytes, beside_own(bound->usable_bytes()) / 4) : bytes;
}

std::size_t dram_buffer_bytes(const topology::Machine& machine, std::uint64_t memory_max) {
  std::uint64_t bytes = std::clamp<std::uint64_t>(last_cache(machine) * 4, dram_least, dram_most);
  if (measures_quickly()) bytes /= quick_divisor;
  bytes = std::min(bytes, measuring_bytes(machine, memory_max));
  return std::max<std::uint64_t>(bytes / MiB, 1) * MiB;
}

MachineLimits measure_machine_limits(const topology::CpuList& cpus,
                                     const std::filesystem::path& file,
                                     std::uint64_t scattered_bytes, std::uint64_t memory_max) {
  const topology::Machine machine = topology::read_machine();
  const std::size_t buffer = dram_buffer_bytes(machine, memory_max);
  const double dram_bytes_per_s = measure_dram_bytes_per_s(cpus, buffer);
  streaming::DiskSpeed disk;
  if (file.empty()) {
    disk.notes.emplace_back("there is no file to measure it with");
  } else {
    disk = streaming::measure_disk(file, measuring_time(disk_time), streaming::Io::automatic,
                                   scattered_bytes, measuring_bytes(machine, memory_max));
  }
  return {.dram_bytes_per_s = dram_bytes_per_s * share_of_time(machine, cpus.size()),
          .int8_macs_per_s = measure_int8_macs_per_s(cpus, kernels::kernel_table()),
          .disk_bytes_per_s = disk.bytes_per_s,
          .disk_notes = disk.notes,
          .has_left_caches = measures_quickly() || buffer >= 2 * last_cache(machine)};
}

double DecodeWork::expert_places() const {
  if (hot_expert_bytes == 0) return 1;
  return 1 - static_cast<double>(streamed_expert_bytes) / static_cast<double>(hot_expert_bytes);
}

double DecodeWork::usual_hit_rate() const {
  if (expert_bytes == 0) return 1;
  const double needed = static_cast<double>(hot_expert_bytes) / static_cast<double>(expert_bytes);
  return engine::usual_hit_rate(expert_places(), needed);
}

std::uint64_t DecodeWork::scattered_bytes() const {
  return 2 * streamed_expert_bytes > streamed_bytes ? expert_read_bytes : 0;
}

DecodeWork DecodeWork::with_hit_rate(double rate) const {
  DecodeWork out = *this;
  const double missed = (1 - rate) * static_cast<double>(hot_expert_bytes);
  out.streamed_expert_bytes = static_cast<std::uint64_t>(missed);
  out.streamed_bytes += out.streamed_expert_bytes;
  out.streamed_bytes -= streamed_expert_bytes;
  return out;
}

DecodeBound decode_bound(const MachineLimits& limits, const DecodeWork& work,
                         std::uint32_t parallel) {
  const auto seconds = [](std::uint64_t amount, double per_second) {
    return static_cast<double>(amount) / per_second;
  };
  const std::pair<double, std::string_view> terms[] = {
      {seconds(work.macs * parallel, limits.int8_macs_per_s), "compute"},
      {seconds(work.hot_bytes, limits.dram_bytes_per_s), "dram"},
      {seconds(work.streamed_bytes, limits.disk_bytes_per_s), "disk"}};
  const auto& slowest = *std::max_element(std::begin(terms), std::end(terms));
  return {parallel / slowest.first, slowest.second};
}

}  // namespace sluice::engine
