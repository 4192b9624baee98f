// Holds the kernels of every instruction set this CPU can run against the scalar ones, bit for bit,
// on odd sizes and hostile data drawn from a seed that it prints; matrix products also against
// double arithmetic. With --time it times the same operations.
//
// Ends with 0 when all agree; else names each operation, tier and size that does not, and ends
// with 1.
#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <random>

#include "tests/kernel_probes.h"
#include "tests/kernels_support.h"
#include "tests/matmul_probe.h"
#include "tests/recurrent_probes.h"

namespace sluice::test {
namespace {

using kernels::Isa;

std::size_t pick(Rng& rng, std::initializer_list<std::size_t> choices) {
  return *(choices.begin() + rng() % choices.size());
}

Data pick_data(Rng& rng) {
  return all_data[rng() % std::size(all_data)];
}

constexpr KvElement kv_elements[] = {KvElement::f32, KvElement::f16, KvElement::int8};

using Probes = std::vector<std::unique_ptr<Probe>>;

// Sizes that are multiples of a block, around the 256 weights that are unpacked together.
std::size_t random_matmul_size(BlockType type, Rng& rng) {
  const std::size_t block = kernels::traits(type).elements_per_block;
  if (block == 256) return 256 * (1 + rng() % 4);
  if (block == 64 || block == 128) return block * (1 + rng() % 8);
  if (block == 32) return 32 * pick(rng, {1, 2, 3, 7, 8, 9, 17, 24});
  return pick(rng, {1, 2, 5, 31, 32, 33, 255, 256, 257, 300, 515});
}

Probes random_probes(Rng& rng) {
  Probes probes;
  for (const VectorOperation& operation : vector_operations) {
    for (int i = 0; i < 100; ++i) {
      const std::size_t size = rng() % 20 == 0 ? 4099 : 1 + rng() % 300;
      probes.push_back(std::make_unique<VectorProbe>(operation, size, pick_data(rng), rng));
    }
  }
  for (const ActivationForm form : {ActivationForm::a256, ActivationForm::a32}) {
    for (int i = 0; i < 60; ++i) {
      const std::size_t size = (form == ActivationForm::a256 ? 256 : 32) * (1 + rng() % 17);
      probes.push_back(std::make_unique<QuantiseProbe>(form, size, pick_data(rng), rng));
    }
  }
  for (int i = 0; i < 120; ++i) {
    const std::size_t dim = pick(rng, {1, 7, 33, 63, 64, 80, 96, 128, 256});
    probes.push_back(std::make_unique<KvRowProbe>(1 + rng() % 300, pick_data(rng), rng));
    probes.push_back(std::make_unique<KvRowProbe>(dim, pick_data(rng), rng));
    probes.push_back(std::make_unique<AttentionProbe>(kv_elements[i % 3], 1 + rng() % 17, dim,
                                                      1 + rng() % 300, pick_data(rng), rng));
  }
  for (int i = 0; i < 60; ++i) {
    const Rule rule = all_rules[i % all_rules.size()];
    probes.push_back(std::make_unique<ConvolutionProbe>(1 + rng() % 40, 1 + rng() % 600,
                                                        1 + rng() % kernels::convolution_taps_max,
                                                        pick_data(rng), rng));
    probes.push_back(std::make_unique<RecurrenceProbe>(rule, 1 + rng() % 40, 1 + rng() % 140,
                                                       1 + rng() % 140, pick_data(rng), rng));
  }
  for (const kernels::BlockTraits& t : kernels::all_block_types()) {
    for (int i = 0; i < 24; ++i) {
      const MatmulShape shape = {
          t.type, pick(rng, {1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 65, 144}),
          random_matmul_size(t.type, rng),
          pick(rng, {1, 1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 17, 33, 49, 259})};
      const WeightBits bits = rng() % 4 != 0 ? WeightBits::sane : WeightBits::any;
      const Data data = rng() % 2 ? Data::normal : pick_data(rng);
      probes.push_back(std::make_unique<MatmulProbe>(shape, bits, data, rng));
    }
    // The ends of the range of exact sums.
    for (const std::size_t columns : {1, 5, 16}) {
      const MatmulShape shape = {t.type, 33, 512, columns};
      probes.push_back(std::make_unique<MatmulProbe>(shape, WeightBits::largest, Data::equal, rng));
    }
  }
  return probes;
}

Probes timed_probes(Rng& rng) {
  Probes probes;
  for (const VectorOperation& operation : vector_operations) {
    probes.push_back(std::make_unique<VectorProbe>(operation, 4096, Data::normal, rng));
  }
  for (const ActivationForm form : {ActivationForm::a256, ActivationForm::a32}) {
    probes.push_back(std::make_unique<QuantiseProbe>(form, 4096, Data::normal, rng));
  }
  probes.push_back(std::make_unique<KvRowProbe>(128, Data::normal, rng));
  for (const std::size_t positions : {1, 64}) {
    const Data data = Data::normal;
    probes.push_back(std::make_unique<ConvolutionProbe>(positions, 4096, 4, data, rng));
    for (const Rule rule : all_rules) {
      probes.push_back(std::make_unique<RecurrenceProbe>(rule, positions, 128, 128, data, rng));
    }
  }
  for (const std::size_t heads : {1, 4, 7, 8}) {
    for (const KvElement element : kv_elements) {
      probes.push_back(
          std::make_unique<AttentionProbe>(element, heads, 128, 1024, Data::normal, rng));
    }
  }
  for (const kernels::BlockTraits& t : kernels::all_block_types()) {
    for (const std::size_t columns : {1, 8, 64}) {
      const MatmulShape shape = {t.type, 256, 4096, columns};
      probes.push_back(std::make_unique<MatmulProbe>(shape, WeightBits::sane, Data::normal, rng));
    }
  }
  return probes;
}

// Compares all tiers with scalar, and returns the number of differences.
int check(Probe& probe) {
  int failures = 0;
  const auto fail = [&](Isa isa, const std::string& what) {
    std::printf("MISMATCH %.*s: %s: %s\n", static_cast<int>(kernels::isa_name(isa).size()),
                kernels::isa_name(isa).data(), probe.name().c_str(), what.c_str());
    ++failures;
  };
  std::vector<float> expected;
  std::vector<Isa> isas = tiers_above_scalar();
  isas.insert(isas.begin(), Isa::scalar);
  for (const Isa isa : isas) {
    const KernelTable& table = kernels::kernel_table(isa);
    probe.run(table);
    const std::vector<float> found = probe.result();
    if (isa == Isa::scalar) expected = found;
    if (const auto what = difference(found.data(), expected.data(), expected.size())) {
      fail(isa, *what);
    }
    if (const auto what = probe.flaw(table)) fail(isa, *what);
  }
  return failures;
}

// Nanoseconds of one run: the best of several batches.
double nanoseconds(Probe& probe, const KernelTable& table) {
  using Clock = std::chrono::steady_clock;
  double best = HUGE_VAL;
  int repeats = 1;
  for (const auto end = Clock::now() + std::chrono::milliseconds(20); Clock::now() < end;) {
    const auto start = Clock::now();
    for (int i = 0; i < repeats; ++i) probe.run(table);
    const double elapsed = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
    best = std::min(best, elapsed / repeats);
    if (elapsed < 1e6) repeats *= 2;
  }
  return best;
}

void time_all(Rng& rng) {
  std::vector<Isa> isas = tiers_above_scalar();
  isas.insert(isas.begin(), Isa::scalar);
  std::printf("%-70s %-7s %12s %8s %8s\n", "", "tier", "ns", "GB/s", "GMAC/s");
  for (const auto& probe : timed_probes(rng)) {
    for (const Isa isa : isas) {
      const double ns = nanoseconds(*probe, kernels::kernel_table(isa));
      std::printf("%-70s %-7.*s %12.0f %8.2f %8.2f\n", probe->name().c_str(),
                  static_cast<int>(kernels::isa_name(isa).size()), kernels::isa_name(isa).data(),
                  ns, probe->bytes() / ns, probe->multiplications() / ns);
    }
  }
}

}  // namespace
}  // namespace sluice::test

int main(int argc, char** argv) {
  using namespace sluice::test;
  CLI::App app("Checks the kernels of every instruction set of this CPU against the scalar ones.");
  std::uint64_t seed = std::random_device{}();
  bool timing = false;
  app.add_option("--seed", seed, "seed of the random sizes and data (default: a random one)");
  app.add_flag("--time", timing, "time the kernels instead of checking them");
  CLI11_PARSE(app, argc, argv);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Rng rng(seed);
  if (timing) {
    time_all(rng);
    return 0;
  }
  int failures = 0;
  const Probes probes = random_probes(rng);
  for (const auto& probe : probes) failures += check(*probe);
  std::printf("%zu operations, %d mismatches\n", probes.size(), failures);
  return failures == 0 ? 0 : 1;
}
