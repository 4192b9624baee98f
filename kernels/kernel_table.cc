#include "kernels/kernel_table.h"

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string>

#ifdef SLUICE_HAVE_X86_TIERS
#include <cpuid.h>
#endif

namespace sluice::kernels {
namespace {

constexpr std::array<Isa, 3> all_isas = {Isa::scalar, Isa::avx2, Isa::avx512};

#ifdef SLUICE_HAVE_X86_TIERS

// Half-float conversions. Not every compiler knows a name for them in __builtin_cpu_supports; the
// operating system's part is the same as for AVX2, which is asked there.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi2") && has_f16c();
}

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

Isa detect() {
  if (!has_avx2()) return Isa::scalar;
  return has_avx512() ? Isa::avx512 : Isa::avx2;
}

void fill_avx2(KernelTable& table) {
  fill_matmul_avx2(table.matmul);
  fill_quantise_avx2(table.quantise);
  fill_vector_ops_avx2(table.vector_ops);
  fill_attention_avx2(table.attention);
  fill_peak_avx2(table.peak);
}

void fill_avx512(KernelTable& table) {
  fill_matmul_avx512vnni(table.matmul);
  fill_quantise_avx512(table.quantise);
  fill_vector_ops_avx512(table.vector_ops);
  fill_attention_avx512(table.attention);
  fill_peak_avx512vnni(table.peak);
}

#else

Isa detect() {
  return Isa::scalar;
}
void fill_avx2(KernelTable&) {}
void fill_avx512(KernelTable&) {}

#endif

KernelTable make_table(Isa isa) {
  KernelTable table{};
  table.isa = isa;
  fill_matmul_scalar(table.matmul);
  fill_quantise_scalar(table.quantise);
  fill_vector_ops_scalar(table.vector_ops);
  fill_attention_scalar(table.attention);
  fill_peak_scalar(table.peak);
  if (isa == Isa::scalar) return table;
  fill_avx2(table);
  if (isa == Isa::avx2) return table;
  fill_avx512(table);
  return table;
}

// The tiers this CPU can run, separated by `|`.
std::string available_names() {
  std::string names;
  for (const Isa isa : all_isas) {
    if (isa <= highest_isa()) names += (names.empty() ? "" : "|") + std::string(isa_name(isa));
  }
  return names;
}

Isa chosen_isa() {
  // Read once, before sluice starts a thread that could change the environment.
  const char* name = std::getenv("SLUICE_ISA");  // NOLINT(concurrency-mt-unsafe)
  if (!name || !*name) return highest_isa();
  for (const Isa isa : all_isas) {
    if (name == isa_name(isa) && isa <= highest_isa()) return isa;
  }
  throw std::invalid_argument("SLUICE_ISA=" + std::string(name) +
                              " is not an instruction set of this CPU; set it to " +
                              available_names() + ", or unset it");
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return "scalar";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
  }
  return "unknown";
}

Isa highest_isa() {
  static const Isa isa = detect();
  return isa;
}

const KernelTable& kernel_table(Isa isa) {
  if (isa > highest_isa()) {
    throw std::invalid_argument("this CPU cannot run " + std::string(isa_name(isa)) +
                                " kernels; it offers " + available_names());
  }
  static const std::array<KernelTable, 3> tables = [] {
    std::array<KernelTable, 3> made{};
    for (const Isa each : all_isas) made[static_cast<std::size_t>(each)] = make_table(each);
    return made;
  }();
  return tables[static_cast<std::size_t>(isa)];
}

const KernelTable& kernel_table() {
  static const KernelTable& table = kernel_table(chosen_isa());
  return table;
}

}  // namespace sluice::kernels
