// What attention takes of a step: all layers and KV heads over a cache that is filled without
// computing what would be in it, on the threads that the engine would choose.
//
//   build/release/bench/bench_attention                       the shape of Yi 1.5 9B
//   build/release/bench/bench_attention --heads 32 --kv-heads 32 --layers 32
//
// "decode" is one token after so many positions; "prefill" a chunk of a prompt at its end, also
// under a window, where tokens look at the cache together or, for comparison, one at a time. "ms"
// is the time of all layers, once for the step; "GB/s" what is read of the cache. A cache of 48
// layers is beyond all caches of the CPU, as it is in a run.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <fmt/format.h>

#include "bench/support.h"
#include "kvcache/kv_cache.h"
#include "topology/machine.h"
#include "topology/thread_team.h"

namespace sluice::bench {
namespace {

using benchmark::State;
using kvcache::ElementType;

struct Shape {
  std::size_t layers = 48, heads = 32, kv_heads = 4, dim = 128;
  unsigned threads = 0;
  std::size_t group() const { return heads / kv_heads; }
};

struct Step {
  ElementType type;
  std::uint32_t positions, columns, together;  // columns that look at the cache together
  std::uint32_t window = 0;
};

kvcache::CacheConfig cache_config(const Shape& shape, const Step& step) {
  kvcache::CacheConfig config;
  config.layers.assign(shape.layers, {shape.kv_heads, shape.dim, shape.dim, step.window});
  config.positions = step.positions;
  config.step_columns = step.positions;
  config.type = step.type;
  return config;
}

// Rows are drawn from a pool: what they are does not change the time, and drawing takes some.
// The last `columns` are written, but not part of the sequence yet, as in a step.
void fill_cache(kvcache::KvCache& cache, kvcache::Sequence& sequence, const Shape& shape,
                std::uint32_t columns) {
  constexpr std::size_t pool = 61;
  const std::size_t size = shape.kv_heads * shape.dim;
  Aligned<float> rows(pool * size), keys(size), values(size);
  fill_normal(rows.span());
  std::size_t next = 0;
  const auto draw = [&](Aligned<float>& row) {
    std::copy_n(rows.data() + next++ % pool * size, size, row.data());
  };
  cache.prepare(sequence, sequence.capacity());
  for (std::size_t l = 0; l < shape.layers; ++l) {
    for (std::uint32_t p = 0; p < sequence.capacity(); ++p) {
      draw(keys);
      draw(values);
      cache.write(sequence, l, p, keys.data(), values.data());
    }
  }
  cache.advance(sequence, sequence.capacity() - columns);
}

class Attention {
 public:
  Attention(const Shape& shape, const Step& step, topology::ThreadTeam& team)
      : shape_(shape),
        step_(step),
        team_(team),
        cache_(cache_config(shape, step), kernels::kernel_table()),
        sequence_(*cache_.new_sequence(step.positions)),
        queries_(shape.heads * shape.dim * step.columns),
        out_(queries_.size()),
        score_stride_(kvcache::query_scratch(cache_.config(), shape.dim)),
        scores_(team.size() * step.together * shape.group() * score_stride_),
        runs_(team.size() * kvcache::runs_max(cache_.config())) {
    fill_normal(queries_.span());
    fill_cache(cache_, sequence_, shape, step.columns);
  }

  void run() {
    const std::size_t blocks = (step_.columns + step_.together - 1) / step_.together;
    for (std::size_t layer = 0; layer < shape_.layers; ++layer) {
      team_.run([&](std::size_t member) {
        const auto part = topology::split(blocks * shape_.kv_heads, 1, team_.size(), member);
        for (std::size_t i = part.begin; i < part.end; ++i) {
          attend(layer, i / blocks, i % blocks * step_.together, member);
        }
      });
    }
  }

 private:
  void attend(std::size_t layer, std::size_t kv_head, std::size_t column, std::size_t member) {
    const std::size_t width = shape_.heads * shape_.dim;
    const std::size_t at = column * width + kv_head * shape_.group() * shape_.dim;
    kvcache::Queries queries{};
    queries.near = queries_.data() + at;
    queries.columns = std::min<std::size_t>(step_.together, step_.columns - column);
    queries.heads = shape_.group();
    queries.query_stride = queries.out_stride = width;
    queries.scale = 0.088f;
    queries.scores = scores_.data() + member * (scores_.size() / team_.size());
    queries.score_stride = score_stride_;
    queries.runs = runs_.data() + member * (runs_.size() / team_.size());
    queries.out = out_.data() + at;
    const auto first = step_.positions - step_.columns + static_cast<std::uint32_t>(column);
    cache_.attend(sequence_, layer, kv_head, first, queries);
  }

  const Shape& shape_;
  Step step_;
  topology::ThreadTeam& team_;
  kvcache::KvCache cache_;
  kvcache::Sequence sequence_;
  Aligned<float> queries_, out_;
  std::size_t score_stride_;
  Aligned<float> scores_;
  std::vector<kernels::AttentionRun> runs_;
};

void measure(State& state, const Shape& shape, const Step& step, topology::ThreadTeam& team) {
  Attention attention(shape, step, team);
  const double seconds = time_iterations(state, [&] { attention.run(); });
  double seen = 0;
  for (std::uint32_t c = 0; c < step.columns; ++c) {
    const std::uint32_t all = step.positions - c;
    seen += step.window == 0 ? all : std::min(all, step.window);
  }
  const double macs = 2 * seen * static_cast<double>(shape.heads * shape.dim * shape.layers);
  state.counters["ms"] = seconds * 1e3;
  state.counters["GMAC/s"] = macs / seconds / 1e9;
  state.counters["GB/s"] =
      static_cast<double>(kvcache::bytes(cache_config(shape, step))) / seconds / 1e9;
}

void register_benchmarks(const Shape& shape) {
  const topology::Machine machine = topology::read_machine();
  const auto team =
      std::make_shared<topology::ThreadTeam>(topology::choose_threads(machine, shape.threads).cpus);
  benchmark::AddCustomContext("threads", std::to_string(team->size()));
  constexpr std::pair<const char*, ElementType> types[] = {
      {"f32", ElementType::f32}, {"f16", ElementType::f16}, {"int8", ElementType::int8}};
  const auto add_step = [&](const char* kind, const char* type, const Step& step) {
    const std::string window =
        step.window == 0 ? "" : fmt::format("/window:{}/together:{}", step.window, step.together);
    const std::string name =
        fmt::format("attention/{}/{}/positions:{}{}", kind, type, step.positions, window);
    add(name, [=](State& state) { measure(state, shape, step, *team); })->UseRealTime();
  };
  const auto together = static_cast<std::uint32_t>(std::max<std::size_t>(1, 32 / shape.group()));
  for (const auto& [name, type] : types) {
    for (const std::uint32_t positions : {64, 1024, 4096}) {
      add_step("decode", name, {type, positions, 1, 1});
    }
    for (const std::uint32_t positions : {64, 512, 2048}) {
      add_step("prefill", name, {type, positions, std::min(positions, 512U), together});
    }
    add_step("prefill", name, {type, 512, 512, together, 256});
    add_step("prefill", name, {type, 512, 512, 1, 256});
  }
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice::bench;
  Shape shape;
  Program program;
  program.description = "Measures attention over a cache of keys and values.";
  program.add_options = [&](CLI::App& app) {
    app.add_option("--layers", shape.layers)->check(CLI::PositiveNumber);
    app.add_option("--heads", shape.heads)->check(CLI::PositiveNumber);
    app.add_option("--kv-heads", shape.kv_heads)->check(CLI::PositiveNumber);
    app.add_option("--head-dim", shape.dim)->check(CLI::PositiveNumber);
    app.add_option("--threads", shape.threads, "0: as the engine chooses");
  };
  program.register_benchmarks = [&] { register_benchmarks(shape); };
  return run_program(program, argc, argv);
}
