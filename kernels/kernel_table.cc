#include "kernels/kernel_table.h"

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string>

#ifdef SLUICE_HAVE_X86_TIERS
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace sluice::kernels {
namespace {

constexpr std::array<Isa, 4> all_isas = {Isa::scalar, Isa::avx2, Isa::avx512, Isa::amx};

#ifdef SLUICE_HAVE_X86_TIERS

// Whether the CPU has half-float conversions. Not every compiler has a name for them in
// __builtin_cpu_supports. They need the same support of the operating system as AVX2, which is
// checked with that function.
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

bool has_amx() {
  constexpr unsigned tile = 1u << 24, int8 = 1u << 25;  // of leaf 7; not all compilers name them
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & tile) != 0 &&
         (edx & int8) != 0;
}

// Requests the tile registers from Linux for this process (arch_prctl(2) and the kernel's
// Documentation/arch/x86/xstate). A kernel without AMX refuses the request.
bool may_use_tiles() {
#ifdef SYS_arch_prctl
  constexpr long request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

Isa detect() {
  if (!has_avx2()) return Isa::scalar;
  if (!has_avx512()) return Isa::avx2;
  return has_amx() && may_use_tiles() ? Isa::amx : Isa::avx512;
}

// Why a tier that the CPU supports is not offered, for messages; empty for other tiers.
std::string_view refusal(Isa isa) {
  const bool is_refused = isa == Isa::amx && highest_isa() == Isa::avx512 && has_amx();
  return is_refused ? " (the CPU has AMX, but the operating system refuses its tile registers)"
                    : "";
}

void fill_avx2(KernelTable& table) {
  fill_matmul_avx2(table.matmul);
  fill_quantise_avx2(table.quantise);
  fill_encode_avx2(table.encode);
  fill_vector_ops_avx2(table.vector_ops);
  fill_attention_avx2(table.attention);
  fill_kv_rows_avx2(table.kv_rows);
  fill_convolution_avx2(table.convolution);
  fill_recurrence_avx2(table.recurrence);
  fill_peak_avx2(table.peak);
}

void fill_avx512(KernelTable& table) {
  fill_matmul_avx512vnni(table.matmul);
  fill_quantise_avx512(table.quantise);
  fill_encode_avx512(table.encode);
  fill_vector_ops_avx512(table.vector_ops);
  fill_attention_avx512(table.attention);
  fill_kv_rows_avx512(table.kv_rows);
  fill_convolution_avx512(table.convolution);
  fill_recurrence_avx512(table.recurrence);
  fill_peak_avx512vnni(table.peak);
}

void fill_amx(KernelTable& table) {
  fill_matmul_amx(table.matmul);
  fill_attention_amx(table.attention);
  fill_peak_amx(table.peak);
}

#else

std::string_view refusal(Isa) {
  return "";
}
Isa detect() {
  return Isa::scalar;
}
void fill_avx2(KernelTable&) {}
void fill_avx512(KernelTable&) {}
void fill_amx(KernelTable&) {}

#endif

KernelTable table_of_tier(Isa isa) {
  KernelTable table{};
  table.isa = isa;
  fill_matmul_scalar(table.matmul);
  fill_quantise_scalar(table.quantise);
  fill_encode_scalar(table.encode);
  fill_vector_ops_scalar(table.vector_ops);
  fill_attention_scalar(table.attention);
  fill_kv_rows_scalar(table.kv_rows);
  fill_convolution_scalar(table.convolution);
  fill_recurrence_scalar(table.recurrence);
  fill_peak_scalar(table.peak);
  if (isa == Isa::scalar) return table;
  fill_avx2(table);
  if (isa == Isa::avx2) return table;
  fill_avx512(table);
  if (isa == Isa::avx512) return table;
  fill_amx(table);
  return table;
}

KernelTable make_table(Isa isa) {
  KernelTable table = table_of_tier(isa);
  table.matmul.prefetch = chosen_prefetch();
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
  std::string_view reason;
  for (const Isa isa : all_isas) {
    if (name != isa_name(isa)) continue;
    if (isa <= highest_isa()) return isa;
    reason = refusal(isa);
  }
  throw std::invalid_argument("SLUICE_ISA=" + std::string(name) +
                              " is not an instruction set of this CPU" + std::string(reason) +
                              "; set it to " + available_names() + ", or unset it");
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
    case Isa::amx:
      return "amx";
  }
  return "unknown";
}

Isa highest_isa() {
  static const Isa isa = detect();
  return isa;
}

const KernelTable& kernel_table(Isa isa) {
  if (isa > highest_isa()) {
    throw std::invalid_argument("this CPU cannot run " + std::string(isa_name(isa)) + " kernels" +
                                std::string(refusal(isa)) + "; it offers " + available_names());
  }
  static const std::array<KernelTable, all_isas.size()> tables = [] {
    std::array<KernelTable, all_isas.size()> made{};
    for (const Isa each : all_isas) {
      // Without the instructions of a tier, even the code that fills its table must not run.
      if (each <= highest_isa()) made[static_cast<std::size_t>(each)] = make_table(each);
    }
    return made;
  }();
  return tables[static_cast<std::size_t>(isa)];
}

const KernelTable& kernel_table() {
  static const KernelTable& table = kernel_table(chosen_isa());
  return table;
}

}  // namespace sluice::kernels
