// What the benchmark programs share: their main function, the clock behind their counters, and
// memory with content.
//
// The counters are figures with units in their names ("GB/s"), so that a line can be read alone.
// GB and GMAC are 10^9 bytes and multiply-adds.
#pragma once

#include <benchmark/benchmark.h>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>

namespace CLI {
class App;
}

namespace sluice::bench {

struct Program {
  std::string description;
  std::function<void(CLI::App& app)> add_options;  // may be empty
  std::function<void()> register_benchmarks;       // called when the options are known
};

// A main function: parses the program's options, hands all others to Google Benchmark, and runs.
// What is thrown becomes a line on stderr. Returns the exit status: 0, 1, or 2 for usage.
int run_program(const Program& program, int argc, char** argv);

using Body = std::function<void(benchmark::State& state)>;

// Registers `body` under a name such as "matmul/Q4_K/cols:16/dram".
// `auto`, because the name of what Google Benchmark returns differs between its versions.
inline auto* add(const std::string& name, Body body) {
  return benchmark::RegisterBenchmark(
      name.c_str(), [body = std::move(body)](benchmark::State& state) { body(state); });
}

// Runs `iteration` as often as Google Benchmark wants it and returns the seconds that one took, on
// the wall clock.
template <class Iteration>
double time_iterations(benchmark::State& state, Iteration&& iteration) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  for (auto _ : state) {
    iteration();
    benchmark::ClobberMemory();
  }
  const std::chrono::duration<double> elapsed = Clock::now() - begin;
  return elapsed.count() / static_cast<double>(state.iterations());
}

// The best of `tries` calls of `work`, in seconds, after one that does not count.
double best_seconds(int tries, const std::function<void()>& work);

// Elements of a plain type, zeroed, on a cache line.
template <class T>
class Aligned {
 public:
  static constexpr std::size_t alignment = 64;

  explicit Aligned(std::size_t size)
      : data_(static_cast<T*>(::operator new (size * sizeof(T), std::align_val_t{alignment}))),
        size_(size) {
    std::uninitialized_value_construct_n(data_.get(), size);
  }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  std::span<T> span() { return {data_.get(), size_}; }

 private:
  struct Free {
    void operator()(T* data) const { ::operator delete (data, std::align_val_t{alignment}); }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t size_;
};

// Numbers around 0 with a standard deviation of 1; always the same.
void fill_normal(std::span<float> out);

}  // namespace sluice::bench
