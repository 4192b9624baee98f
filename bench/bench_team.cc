// What ThreadTeam::run costs, with 1 to n members that have nothing to do.
//
//   build/release/bench/bench_team
//
// "/at_once": run after run, so that members are met while they spin. "/after_pause": between two
// runs the caller works for longer than members spin, so that each run wakes them; only the run is
// timed, and so often that the pauses take a quarter of a second. n is the number of CPUs of this
// process; the CPUs are those that the engine would choose.
#include <chrono>
#include <fmt/format.h>

#include "bench/support.h"
#include "topology/machine.h"
#include "topology/thread_team.h"

namespace sluice::bench {
namespace {

using benchmark::State;
using topology::CpuList;
using topology::ThreadTeam;
using Clock = std::chrono::steady_clock;

void nothing(std::size_t /*member*/) {}

void run_at_once(State& state, const CpuList& cpus) {
  ThreadTeam team(cpus);
  const double seconds = time_iterations(state, [&] { team.run(nothing); });
  state.counters["runs/s"] = 1 / seconds;
}

constexpr int paused_runs = 2000;

void run_after_pause(State& state, const CpuList& cpus) {
  ThreadTeam team(cpus);
  std::chrono::duration<double> total{};
  for (auto _ : state) {
    const Clock::time_point pause_end = Clock::now() + 4 * ThreadTeam::kSpinBudget;
    while (Clock::now() < pause_end) continue;
    const Clock::time_point begin = Clock::now();
    team.run(nothing);
    const std::chrono::duration<double> elapsed = Clock::now() - begin;
    state.SetIterationTime(elapsed.count());
    total += elapsed;
  }
  state.counters["runs/s"] = static_cast<double>(state.iterations()) / total.count();
}

void register_benchmarks() {
  const topology::Machine machine = topology::read_machine();
  const auto count = static_cast<unsigned>(machine.allowed_cpus.size());
  const CpuList all = topology::choose_threads(machine, count).cpus;
  topology::pin_calling_thread(all.front());
  benchmark::AddCustomContext("CPUs, in the order of members", topology::format_cpu_list(all));
  for (std::size_t members = 1; members <= all.size(); ++members) {
    const CpuList cpus(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(members));
    add(fmt::format("team/members:{}/at_once", members), [=](State& s) {
      run_at_once(s, cpus);
    })->UseRealTime();
    if (members == 1) continue;  // nobody sleeps
    add(fmt::format("team/members:{}/after_pause", members),
        [=](State& s) { run_after_pause(s, cpus); })
        ->UseManualTime()
        ->Iterations(paused_runs);
  }
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  sluice::bench::Program program;
  program.description = "Measures what a run of a thread team costs.";
  program.register_benchmarks = sluice::bench::register_benchmarks;
  return run_program(program, argc, argv);
}
