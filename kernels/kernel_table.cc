#include "kernels/kernel_table.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#ifdef SLUICE_HAVE_X86_TIERS
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#ifdef SLUICE_HAVE_ARM_TIERS
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "kernels/arm_tiers.h"
#endif

namespace sluice::kernels {
namespace {

constexpr std::array all_isas = {Isa::scalar, Isa::avx2, Isa::avx512,  Isa::avx512vbmi,
                                 Isa::amx,    Isa::neon, Isa::dotprod, Isa::i8mm};

void fill_scalar(KernelTable& table) {
  fill_matmul_scalar(table.matmul);
  fill_quantise_scalar(table.quantise);
  fill_encode_scalar(table.encode);
  fill_vector_ops_scalar(table.vector_ops);
  fill_attention_scalar(table.attention);
  fill_kv_rows_scalar(table.kv_rows);
  fill_convolution_scalar(table.convolution);
  fill_recurrence_scalar(table.recurrence);
  fill_peak_scalar(table.peak);
}

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

// Cascade Lake and Cooper Lake have VNNI, but not VBMI.
bool has_vbmi() {
  return __builtin_cpu_supports("avx512vbmi");
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

std::vector<Isa> detect() {
  if (!has_avx2()) return {Isa::scalar};
  if (!has_avx512()) return {Isa::scalar, Isa::avx2};
  if (!has_vbmi()) return {Isa::scalar, Isa::avx2, Isa::avx512};
  if (!has_amx() || !may_use_tiles()) {
    return {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512vbmi};
  }
  return {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512vbmi, Isa::amx};
}

// Why a tier that the CPU supports is not offered, for messages; empty for other tiers.
std::string_view refusal(Isa isa) {
  const bool is_refused = isa == Isa::amx && highest_isa() == Isa::avx512vbmi && has_amx();
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

// Overwrites the kernels of lower tiers.
void fill_tier(Isa isa, KernelTable& table) {
  if (isa == Isa::avx2) fill_avx2(table);
  if (isa == Isa::avx512) fill_avx512(table);
  if (isa == Isa::avx512vbmi) fill_matmul_avx512vbmi(table.matmul);
  if (isa == Isa::amx) fill_amx(table);
}

#elif defined(SLUICE_HAVE_ARM_TIERS)

// Every CPU of aarch64 that runs Linux has NEON.
std::vector<Isa> detect() {
  const bool has_dotprod = (::getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  const bool has_i8mm = (::getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
  if (!has_dotprod) return {Isa::scalar, Isa::neon};
  if (!has_i8mm) return {Isa::scalar, Isa::neon, Isa::dotprod};
  return {Isa::scalar, Isa::neon, Isa::dotprod, Isa::i8mm};
}

std::string_view refusal(Isa) {
  return "";
}

void fill_neon(KernelTable& table) {
  fill_matmul_neon(table.matmul);
  fill_quantise_neon(table.quantise);
  fill_encode_neon(table.encode);
  fill_vector_ops_neon(table.vector_ops);
  fill_attention_neon(table.attention);
  fill_kv_rows_neon(table.kv_rows);
  fill_convolution_neon(table.convolution);
  fill_recurrence_neon(table.recurrence);
  fill_peak_neon(table.peak);
}

// Overwrites the kernels of lower tiers.
void fill_tier(Isa isa, KernelTable& table) {
  if (isa == Isa::neon) fill_neon(table);
  if (isa == Isa::dotprod) {
    fill_matmul_dotprod(table.matmul);
    fill_attention_dotprod(table.attention);
    fill_peak_dotprod(table.peak);
  }
  if (isa == Isa::i8mm) {
    fill_matmul_i8mm(table.matmul);
    fill_peak_i8mm(table.peak);
  }
}

#else

std::vector<Isa> detect() {
  return {Isa::scalar};
}
std::string_view refusal(Isa) {
  return "";
}
void fill_tier(Isa, KernelTable&) {}

#endif

bool is_offered(Isa isa) {
  const std::span<const Isa> offered = offered_isas();
  return std::find(offered.begin(), offered.end(), isa) != offered.end();
}

// The table of a tier that is offered: without the instructions of a tier, even the code that fills
// its table must not run.
KernelTable make_table(Isa isa) {
  KernelTable table{};
  table.isa = isa;
  fill_scalar(table);
  for (const Isa each : offered_isas()) {
    if (each <= isa) fill_tier(each, table);
  }
  table.matmul.prefetch = chosen_prefetch();
  return table;
}

// The tiers this CPU can run, separated by `|`.
std::string available_names() {
  std::string names;
  for (const Isa isa : offered_isas()) {
    names += (names.empty() ? "" : "|") + std::string(isa_name(isa));
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
    if (is_offered(isa)) return isa;
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
    case Isa::avx512vbmi:
      return "avx512vbmi";
    case Isa::amx:
      return "amx";
    case Isa::neon:
      return "neon";
    case Isa::dotprod:
      return "dotprod";
    case Isa::i8mm:
      return "i8mm";
  }
  return "unknown";
}

std::span<const Isa> offered_isas() {
  static const std::vector<Isa> isas = detect();
  return isas;
}

Isa highest_isa() {
  return offered_isas().back();
}

const KernelTable& kernel_table(Isa isa) {
  if (!is_offered(isa)) {
    throw std::invalid_argument("this CPU cannot run " + std::string(isa_name(isa)) + " kernels" +
                                std::string(refusal(isa)) + "; it offers " + available_names());
  }
  static const std::array<KernelTable, all_isas.size()> tables = [] {
    std::array<KernelTable, all_isas.size()> made{};
    for (const Isa each : offered_isas()) made[static_cast<std::size_t>(each)] = make_table(each);
    return made;
  }();
  return tables[static_cast<std::size_t>(isa)];
}

const KernelTable& kernel_table() {
  static const KernelTable& table = kernel_table(chosen_isa());
  return table;
}

}  // namespace sluice::kernels
