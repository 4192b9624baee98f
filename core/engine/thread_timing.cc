#include "core/engine/thread_timing.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <vector>

#include "core/engine/machine_limits.h"
#include "kernels/kernel_table.h"
#include "kernels/matmul.h"
#include "topology/aligned_bytes.h"
#include "topology/thread_team.h"

namespace sluice::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t MiB = std::size_t{1} << 20;
// A quota is granted per period of 100 ms; timing a team has to cover several periods.
constexpr auto time_under_quota = std::chrono::milliseconds(200);
constexpr auto time_of_siblings = std::chrono::milliseconds(30);

// Multiplies rows of Q4_K with one column, over and over.
class ProductTimer {
 public:
  ProductTimer(std::size_t bytes, std::chrono::milliseconds time)
      : kernels_(kernels::kernel_table()),
        time_(time),
        row_bytes_(kernels::row_bytes(type, columns)),
        groups_(std::max<std::size_t>(1, bytes / (group_rows * row_bytes_))),
        weights_(groups_ * group_rows * row_bytes_),
        x_(columns, 1.0f),
        y_(groups_ * group_rows),
        quantised_(kernels::Activations::buffer_bytes(columns, 1)),
        activations_(x_.data(), columns, columns, 1, quantised_.data()) {
    std::memset(weights_.data(), 1, weights_.size());
    activations_.quantise(kernels_.quantise, kernels::traits(type).activation_form, 0);
  }

  // Groups of rows per second.
  double speed(const topology::CpuList& cpus) {
    topology::ThreadTeam team(cpus);
    const topology::ScopedPin pin(cpus.front());
    const topology::AlignedBytes scratch(kernels::MatmulScratch::bytes * cpus.size());
    std::size_t passes = 0;
    const Clock::time_point start = Clock::now();
    do {
      topology::for_each_part(
          team, groups_, [&](std::size_t member, std::size_t begin, std::size_t end) {
            multiply({begin, end}, {scratch.data() + member * kernels::MatmulScratch::bytes});
          });
      ++passes;
    } while (Clock::now() - start < time_);
    const std::chrono::duration<double> elapsed = Clock::now() - start;
    return static_cast<double>(passes * groups_) / elapsed.count();
  }

 private:
  static constexpr auto type = kernels::BlockType::q4_k;
  static constexpr std::size_t columns = 4096, group_rows = 64;

  void multiply(const topology::WorkRange& part, const kernels::MatmulScratch& scratch) {
    const std::size_t first = part.begin * group_rows;
    const kernels::WeightRows rows{
        type,       weights_.data() + first * row_bytes_, part.size() * group_rows, columns,
        row_bytes_, kernels_.matmul.reads_packed};
    kernels_.matmul.multiply(rows, activations_, y_.data() + first, y_.size(), scratch);
  }

  const kernels::KernelTable& kernels_;
  std::chrono::milliseconds time_;
  std::size_t row_bytes_, groups_;
  topology::AlignedBytes weights_;
  std::vector<float> x_, y_;
  topology::AlignedBytes quantised_;
  kernels::Activations activations_;
};

topology::ThreadChoice timed_choice(const topology::Machine& machine,
                                    const topology::ThreadChoice& choice,
                                    std::optional<std::uint64_t> budget_bytes) {
  std::size_t bytes = std::min(64 * MiB, dram_buffer_bytes(machine));
  if (budget_bytes) bytes = std::min<std::size_t>(bytes, *budget_bytes / 4);
  ProductTimer timer(bytes, machine.quota ? time_under_quota : time_of_siblings);
  return try_alternative(choice, [&](const topology::CpuList& cpus) { return timer.speed(cpus); });
}

}  // namespace

topology::ThreadChoice try_alternative(const topology::ThreadChoice& choice,
                                       const TeamSpeed& speed) {
  if (choice.alternative_cpus.empty()) return choice;
  double less = 0, more = 0;
  for (int turn = 0; turn < 2; ++turn) {
    less = std::max(less, speed(choice.cpus));
    more = std::max(more, speed(choice.alternative_cpus));
  }
  topology::ThreadChoice tried = choice;
  if (more > less) tried.cpus = choice.alternative_cpus;
  tried.alternative_cpus.clear();
  tried.reason = fmt::format("{}; {} were {:.2f} times as fast as {}", choice.reason,
                             choice.alternative_cpus.size(), more / less, choice.cpus.size());
  return tried;
}

topology::ThreadChoice choose_timed_threads(const topology::Machine& machine, unsigned requested,
                                            std::optional<std::uint64_t> budget_bytes) {
  topology::ThreadChoice choice = topology::choose_threads(machine, requested);
  if (choice.alternative_cpus.empty()) return choice;
  static const topology::ThreadChoice timed = timed_choice(machine, choice, budget_bytes);
  return timed;
}

}  // namespace sluice::engine
