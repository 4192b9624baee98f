// The kernels on one thread, beside what the CPU and its memory could do at best.
//
//   build/release/bench/bench_kernels
//   build/release/bench/bench_kernels --benchmark_filter='matmul/Q4_K/'
//   SLUICE_ISA=avx2 build/release/bench/bench_kernels --benchmark_filter=swiglu
//   SLUICE_PREFETCH=8192:l2:4 build/release/bench/bench_kernels     (kernels/core_policy.h)
//
// Attention has a program of its own, bench_attention. Matrices have 4096 columns. "/cache": the
// same rows over and over, half of the L2 cache long.
// "/dram": as many rows at a time, each time the next ones of a buffer that no cache holds
// (--dram-mib). "/packed": in the layout of kernels/panel_packing.h, else in that of the file.
// "cols" counts columns of activations: 1 is decoding, 512 a chunk of a prompt.
//
// The context that is printed first holds the limits, measured at the start on the same thread:
// multiply-adds of the tier's 8-bit dot product, and reading the buffer of "/dram". "%peak" and
// "%dram" are shares of them; F16, BF16 and F32 multiply floats and have no "%peak".
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <fmt/format.h>
#include <optional>
#include <utility>
#include <vector>

#include "bench/support.h"
#include "core/synth/random_blocks.h"
#include "kernels/kernel_table.h"
#include "kernels/panel_packing.h"
#include "streaming/arena.h"
#include "topology/machine.h"

namespace sluice::bench {
namespace {

using benchmark::State;
using kernels::ActivationForm;
using kernels::BlockType;

constexpr std::size_t weights_per_row = 4096;
constexpr std::uint64_t mib = std::uint64_t{1} << 20;

const kernels::KernelTable& table() {
  return kernels::kernel_table();
}

// --- Limits of the machine -----------------------------------------------------------------------

struct Limits {
  double macs_per_s = 0;
  double dram_bytes_per_s = 0;
};

double measure_peak() {
  constexpr std::uint64_t rounds = 1'000'000;
  std::uint64_t macs = 0;
  const double seconds = best_seconds(5, [&] { macs = table().peak.int8_macs(rounds); });
  return static_cast<double>(macs) / seconds;
}

// Reads with independent sums, so that loads and not additions are what it waits for.
std::uint64_t sum_of(std::span<const std::byte> bytes) {
  constexpr std::size_t words = 32;
  std::array<std::uint64_t, words> sums{};
  for (std::size_t at = 0; at + sizeof sums <= bytes.size(); at += sizeof sums) {
    std::array<std::uint64_t, words> values;
    std::memcpy(values.data(), bytes.data() + at, sizeof values);
    for (std::size_t i = 0; i < words; ++i) sums[i] += values[i];
  }
  std::uint64_t total = 0;
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

double measure_reading(std::span<const std::byte> bytes) {
  volatile std::uint64_t sink = 0;
  const double seconds = best_seconds(3, [&] { sink = sum_of(bytes); });
  static_cast<void>(sink);
  return static_cast<double>(bytes.size()) / seconds;
}

// --- Matrix products -----------------------------------------------------------------------------

// Memory beyond the caches, which holds matrices of one type at a time.
class Weights {
 public:
  Weights(std::uint64_t dram_bytes, std::uint64_t cache_bytes)
      : cache_bytes_(cache_bytes), memory_(std::max(dram_bytes, 2 * cache_bytes)) {
    memory_.commit(std::max(dram_bytes, 2 * cache_bytes));
    std::memset(memory_.data(), 1, memory_.committed_bytes());
  }
  std::span<std::byte> bytes() { return memory_.bytes(); }

  // Rows of a type that fit into the cache, whole panels.
  std::size_t rows(BlockType type) const {
    const std::size_t panel = kernels::panel_rows * kernels::row_bytes(type, weights_per_row);
    return std::max<std::size_t>(1, cache_bytes_ / panel) * kernels::panel_rows;
  }

  // Fills the memory with copies of one random matrix of rows(type) rows, one after the other, and
  // returns how many there are. It is packed if that is wanted: other bytes in the place of a scale
  // may make numbers that are slow to compute with.
  std::size_t fill(BlockType type, bool is_packed) {
    const std::size_t bytes = rows(type) * kernels::row_bytes(type, weights_per_row);
    const std::size_t copies = memory_.committed_bytes() / bytes;
    if (filled_ == std::pair(type, is_packed)) return copies;
    constexpr float std_deviation = 0.02f;
    synth::Random random(1, static_cast<std::uint64_t>(type));
    std::vector<std::byte> made(bytes);
    synth::fill_random_blocks(type, made, std_deviation, random);
    if (is_packed) {
      kernels::pack_panels(type, rows(type), weights_per_row, made.data(), memory_.data());
    } else {
      std::memcpy(memory_.data(), made.data(), bytes);
    }
    for (std::size_t i = 1; i < copies; ++i) {
      std::memcpy(memory_.data() + i * bytes, memory_.data(), bytes);
    }
    filled_ = {type, is_packed};
    return copies;
  }

 private:
  std::uint64_t cache_bytes_;
  streaming::Arena memory_;
  std::optional<std::pair<BlockType, bool>> filled_;
};

struct Product {
  BlockType type;
  std::size_t columns;
  bool from_dram;
  bool is_packed;
};

void multiply(State& state, const Product& product, Weights& weights, const Limits& limits) {
  const ActivationForm form = kernels::traits(product.type).activation_form;
  const std::size_t columns = product.columns, rows = weights.rows(product.type);
  const std::size_t row_bytes = kernels::row_bytes(product.type, weights_per_row);
  const std::size_t filled = weights.fill(product.type, product.is_packed);
  const std::size_t copies = product.from_dram ? filled : 1;

  Aligned<float> x(columns * weights_per_row), y(columns * rows);
  fill_normal(x.span());
  Aligned<std::byte> buffer(kernels::Activations::buffer_bytes(weights_per_row, columns));
  Aligned<std::byte> scratch(kernels::MatmulScratch::bytes);
  const kernels::Activations activations(x.data(), weights_per_row, weights_per_row, columns,
                                         buffer.data());
  if (form != ActivationForm::f32) {
    for (std::size_t c = 0; c < columns; ++c) activations.quantise(table().quantise, form, c);
  }
  kernels::WeightRows w{product.type, weights.bytes().data(), rows, weights_per_row,
                        row_bytes,    product.is_packed};
  std::size_t copy = 0;
  const double seconds = time_iterations(state, [&] {
    w.data = weights.bytes().data() + copy * rows * row_bytes;
    copy = copy + 1 < copies ? copy + 1 : 0;
    table().matmul.multiply(w, activations, y.data(), rows, {scratch.data()});
  });

  const double bytes_per_s = static_cast<double>(rows * row_bytes) / seconds;
  const double macs_per_s = static_cast<double>(rows * weights_per_row * columns) / seconds;
  state.counters["GB/s"] = bytes_per_s / 1e9;
  state.counters["GMAC/s"] = macs_per_s / 1e9;
  if (form != ActivationForm::f32) state.counters["%peak"] = 100 * macs_per_s / limits.macs_per_s;
  if (product.from_dram) state.counters["%dram"] = 100 * bytes_per_s / limits.dram_bytes_per_s;
}

// What pinning costs: half of the memory is packed into the other half, matrix by matrix.
void pack(State& state, BlockType type, bool from_dram, Weights& weights) {
  const std::size_t rows = weights.rows(type);
  const std::size_t bytes = rows * kernels::row_bytes(type, weights_per_row);
  const std::size_t half = weights.fill(type, false) / 2, copies = from_dram ? half : 1;
  std::byte* const data = weights.bytes().data();
  std::size_t copy = 0;
  const double seconds = time_iterations(state, [&] {
    kernels::pack_panels(type, rows, weights_per_row, data + copy * bytes,
                         data + (half + copy) * bytes);
    copy = copy + 1 < copies ? copy + 1 : 0;
  });
  state.counters["GB/s"] = static_cast<double>(bytes) / seconds / 1e9;
}

void add_packing(const std::shared_ptr<Weights>& weights) {
  for (const kernels::BlockTraits& t : kernels::all_block_types()) {
    for (const bool from_dram : {false, true}) {
      add(fmt::format("pack/{}/{}", t.name, from_dram ? "dram" : "cache"),
          [=](State& state) { pack(state, t.type, from_dram, *weights); });
    }
  }
}

void add_products(const std::shared_ptr<Weights>& weights, const Limits& limits) {
  for (const kernels::BlockTraits& t : kernels::all_block_types()) {
    for (const bool is_packed : {false, true}) {
      if (is_packed && !table().matmul.reads_packed) continue;
      for (const bool from_dram : {false, true}) {
        for (const std::size_t columns : {1, 2, 4, 8, 16, 32, 512}) {
          const Product product = {t.type, columns, from_dram, is_packed};
          add(fmt::format("matmul/{}{}/cols:{}/{}", t.name, is_packed ? "/packed" : "", columns,
                          from_dram ? "dram" : "cache"),
              [=](State& state) { multiply(state, product, *weights, limits); });
        }
      }
    }
  }
}

// --- All others ----------------------------------------------------------------------------------

// Times an operation on `size` floats; `bytes` is what it reads and writes.
template <class Operation>
void report(State& state, std::size_t size, std::size_t bytes, Operation&& operation) {
  const double seconds = time_iterations(state, operation);
  state.counters["Gelements/s"] = static_cast<double>(size) / seconds / 1e9;
  state.counters["GB/s"] = static_cast<double>(bytes) / seconds / 1e9;
}

void quantise(State& state, ActivationForm form) {
  Aligned<float> x(weights_per_row);
  fill_normal(x.span());
  Aligned<std::byte> buffer(kernels::Activations::buffer_bytes(x.size(), 1));
  const kernels::Activations activations(x.data(), x.size(), x.size(), 1, buffer.data());
  report(state, x.size(), x.size() * (sizeof(float) + 1),
         [&] { activations.quantise(table().quantise, form, 0); });
}

// One row of weights, Gaussian as most are; the time of a weight is what quantising a model costs.
void encode(State& state, BlockType type) {
  Aligned<float> x(weights_per_row);
  fill_normal(x.span());
  Aligned<std::byte> blocks(kernels::row_bytes(type, x.size()));
  const double seconds = time_iterations(
      state, [&] { table().encode.blocks(type, x.data(), x.size(), nullptr, blocks.data()); });
  state.counters["ns/weight"] = seconds * 1e9 / static_cast<double>(x.size());
}

void rms_norm(State& state) {
  Aligned<float> x(4096), weight(x.size()), y(x.size());
  fill_normal(x.span());
  fill_normal(weight.span());
  report(state, x.size(), 3 * x.size() * sizeof(float),
         [&] { table().vector_ops.rms_norm(x.data(), weight.data(), 1e-5f, x.size(), y.data()); });
}

// One head of 128, turned by the same angle again and again, which leaves its length as it is.
void rope(State& state,
          void (*kernels::VectorOps::*rotate)(float*, const float*, const float*, std::size_t)) {
  Aligned<float> head(128), cosines(head.size() / 2), sines(head.size() / 2);
  fill_normal(head.span());
  std::fill_n(cosines.data(), cosines.size(), 0.8f);
  std::fill_n(sines.data(), sines.size(), 0.6f);
  report(state, head.size(), 3 * head.size() * sizeof(float), [&] {
    (table().vector_ops.*rotate)(head.data(), cosines.data(), sines.data(), cosines.size());
  });
}

// As many elements as the largest vocabularies have tokens. The result is the next input: nearly
// equal numbers, for which the kernel does the same work as for any others.
void softmax(State& state) {
  Aligned<float> x(250'000);
  fill_normal(x.span());
  report(state, x.size(), 2 * x.size() * sizeof(float),
         [&] { table().vector_ops.softmax(x.data(), x.size()); });
}

void swiglu(State& state) {
  Aligned<float> gate(11008), up(gate.size()), out(gate.size());
  fill_normal(gate.span());
  fill_normal(up.span());
  report(state, out.size(), 3 * out.size() * sizeof(float),
         [&] { table().vector_ops.swiglu(gate.data(), up.data(), out.size(), out.data()); });
}

// What one row of keys costs when it is written, and a query: the transform, then the rounding.
void kv_row(State& state) {
  Aligned<float> row(128);
  Aligned<std::int8_t> q(row.size());
  std::uint16_t scales[2] = {};
  fill_normal(row.span());
  report(state, row.size(), row.size() * sizeof(float), [&] {
    table().kv_rows.hadamard(row.data(), row.size());
    table().kv_rows.quantise(row.data(), row.size(), q.data(),
                             kernels::contiguous_place(row.size()), scales, 1);
  });
}

// Channels of a gated delta net with 16 heads of keys and 32 of values, each of 128.
void convolution(State& state, std::size_t positions) {
  constexpr std::size_t channels = 8192, tap_count = 4;
  Aligned<float> x(positions * channels), tail((tap_count - 1) * channels);
  Aligned<float> taps(channels * tap_count), bias(channels);
  std::fill_n(taps.data(), taps.size(), 0.2f);
  std::fill_n(bias.data(), bias.size(), 1.0f);  // the results, which are the next inputs, stay near
  kernels::ConvolutionArgs args{};
  args.x = x.data();
  args.taps = taps.data();
  args.bias = bias.data();
  args.tail = args.next_tail = tail.data();
  args.stride = args.tail_stride = args.channels = channels;
  args.positions = positions;
  args.tap_count = tap_count;
  args.has_silu = true;
  report(state, x.size(), 2 * x.size() * sizeof(float), [&] { table().convolution.causal(args); });
}

struct Head {
  void (*kernels::RecurrenceKernels::*operation)(const kernels::RecurrenceArgs&);
  std::size_t key_dim, value_dim;
  double macs;  // of one element of the state at one position
};

// The heads of a model, one after the other, so that no cache holds their states. All read the same
// rows, which lie as far apart as in a model with 8192 channels.
void recur(State& state, const Head& head, std::size_t positions) {
  constexpr std::size_t heads = 768, stride = 8192;
  const std::size_t state_floats = kernels::state_floats(head.key_dim, head.value_dim);
  Aligned<float> states(heads * state_floats), rows(positions * stride), rates(positions);
  Aligned<float> out(positions * head.value_dim);
  fill_normal(rows.span());
  for (float& x : rows.span()) x *= 0.05f;
  std::fill_n(rates.data(), rates.size(), 0.5f);
  kernels::RecurrenceArgs args{};
  args.queries = rows.data();
  args.keys = rows.data() + head.key_dim;
  args.values = rows.data() + 2 * head.key_dim;
  args.key_stride = args.value_stride = stride;
  args.decays = args.rates = rates.data();
  args.decay_stride = args.rate_stride = 1;
  args.out = out.data();
  args.out_stride = args.value_dim = head.value_dim;
  args.positions = positions;
  args.key_dim = head.key_dim;
  std::size_t at = 0;
  const double seconds = time_iterations(state, [&] {
    args.state = args.next_state = states.data() + at * state_floats;
    at = at + 1 < heads ? at + 1 : 0;
    (table().recurrence.*head.operation)(args);
  });
  const double elements = static_cast<double>(head.key_dim * head.value_dim);
  state.counters["GMAC/s"] = head.macs * elements * static_cast<double>(positions) / seconds / 1e9;
  state.counters["GB/s"] = 2 * elements * sizeof(float) / seconds / 1e9;  // of state, in and out
}

void add_recurrent() {
  const Head delta_rule = {&kernels::RecurrenceKernels::delta_rule, 128, 128, 3};
  const Head state_scan = {&kernels::RecurrenceKernels::state_scan, 128, 64, 2};
  for (const std::size_t positions : {1, 512}) {
    const std::string suffix = fmt::format("positions:{}", positions);
    add("convolution/8192/" + suffix, [=](State& s) { convolution(s, positions); });
    add("delta_rule/128x128/" + suffix, [=](State& s) { recur(s, delta_rule, positions); });
    add("state_scan/128x64/" + suffix, [=](State& s) { recur(s, state_scan, positions); });
  }
}

void add_others() {
  add("quantise/a256/4096", [](State& s) { quantise(s, ActivationForm::a256); });
  add("quantise/a32/4096", [](State& s) { quantise(s, ActivationForm::a32); });
  for (const kernels::BlockTraits& t : kernels::all_block_types()) {
    if (t.elements_per_block == 1 || !t.can_encode) continue;
    add(fmt::format("encode/{}/4096", t.name), [type = t.type](State& s) { encode(s, type); });
  }
  add("rms_norm/4096", rms_norm);
  add("rope_norm/128", [](State& s) { rope(s, &kernels::VectorOps::rope_norm); });
  add("rope_neox/128", [](State& s) { rope(s, &kernels::VectorOps::rope_neox); });
  add("softmax/250000", softmax);
  add("swiglu/11008", swiglu);
  add("kv_row/128", kv_row);
}

// Twice what the last cache holds, as far as a quarter of the memory goes.
std::uint64_t choose_dram_bytes(const topology::Machine& machine) {
  std::uint64_t bytes = std::max(256 * mib, 2 * machine.caches.l3_bytes.value_or(0));
  const std::optional<topology::MemoryBound> memory = topology::usable_memory(machine);
  if (memory) bytes = std::min(bytes, memory->usable_bytes() / 4);
  return bytes;
}

void register_benchmarks(std::uint64_t dram_mib) {
  const topology::Machine machine = topology::read_machine();
  const std::uint64_t l2_bytes = machine.caches.l2_bytes.value_or(mib);
  const std::uint64_t dram_bytes = dram_mib > 0 ? dram_mib * mib : choose_dram_bytes(machine);
  const auto weights = std::make_shared<Weights>(dram_bytes, l2_bytes / 2);
  const Limits limits = {measure_peak(), measure_reading(weights->bytes())};
  benchmark::AddCustomContext("kernels", std::string(kernels::isa_name(table().isa)));
  benchmark::AddCustomContext("prefetching", kernels::to_text(table().matmul.policy.prefetch));
  benchmark::AddCustomContext("8-bit multiply-adds at best",
                              fmt::format("{:.1f} GMAC/s", limits.macs_per_s / 1e9));
  benchmark::AddCustomContext("DRAM read",
                              fmt::format("{:.1f} GB/s over {} MiB", limits.dram_bytes_per_s / 1e9,
                                          weights->bytes().size() / mib));
  add_products(weights, limits);
  add_packing(weights);
  add_others();
  add_recurrent();
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice::bench;
  std::uint64_t dram_mib = 0;
  Program program;
  program.description = "Measures the kernels on one thread.";
  program.add_options = [&](CLI::App& app) {
    app.add_option("--dram-mib", dram_mib,
                   "memory for weights that no cache holds (default: twice the last cache)");
  };
  program.register_benchmarks = [&] { register_benchmarks(dram_mib); };
  return run_program(program, argc, argv);
}
