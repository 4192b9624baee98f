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
#endif

namespace sluice::kernels {
namespace {

// In the order of Isa.
constexpr std::string_view isa_names[] = {"scalar", "avx2", "avxvnni", "avx512", "avx512vbmi",
                                          "amx",    "neon", "dotprod", "i8mm"};

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

// Bit 4 of eax in subleaf 1 of leaf 7; not all compilers name it.
bool has_avxvnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & 1u << 4) != 0;
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

bool has_usable_amx() {
  return has_amx() && may_use_tiles();
}

// Why a tier that the CPU supports is not offered, for messages; empty for other tiers.
std::string_view refusal(Isa isa) {
  const bool is_refused = isa == Isa::amx && highest_isa() != Isa::amx && has_amx();
  return is_refused ? " (the CPU has AMX, but the operating system refuses its tile registers)"
                    : "";
}

#else

std::string_view refusal(Isa) {
  return "";
}

#endif

#ifdef SLUICE_HAVE_ARM_TIERS

bool has_dotprod() {
  return (::getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}

bool has_i8mm() {
  return (::getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
}

#endif

struct Tier {
  Isa isa;
  Isa base;                    // whose kernels it has where it has none of its own
  void (*fill)(KernelTable&);  // puts its own into a table of its base
  bool (*is_offered)();        // whether CPU and operating system have what the base does not need
};

bool always() {
  return true;
}

// A base comes before what is based on it, and of two that a CPU has the better one comes last.
constexpr Tier tiers[] = {
    {Isa::scalar, Isa::scalar, fill_scalar, always},
#ifdef SLUICE_HAVE_X86_TIERS
    {Isa::avx2, Isa::scalar, fill_avx2, has_avx2},
    {Isa::avxvnni, Isa::avx2, fill_avxvnni, has_avxvnni},
    {Isa::avx512, Isa::avx2, fill_avx512, has_avx512},
    {Isa::avx512vbmi, Isa::avx512, fill_avx512vbmi, has_vbmi},
    {Isa::amx, Isa::avx512vbmi, fill_amx, has_usable_amx},
#endif
#ifdef SLUICE_HAVE_ARM_TIERS
    {Isa::neon, Isa::scalar, fill_neon, always},  // every CPU of aarch64 that runs Linux has it
    {Isa::dotprod, Isa::neon, fill_dotprod, has_dotprod},
    {Isa::i8mm, Isa::dotprod, fill_i8mm, has_i8mm},
#endif
};

const Tier& tier(Isa isa) {
  return *std::find_if(std::begin(tiers), std::end(tiers),
                       [&](const Tier& each) { return each.isa == isa; });
}

std::vector<Isa> detect() {
  std::vector<Isa> isas;
  for (const Tier& each : tiers) {
    const bool has_base =
        each.base == each.isa || std::find(isas.begin(), isas.end(), each.base) != isas.end();
    if (has_base && each.is_offered()) isas.push_back(each.isa);
  }
  return isas;
}

bool is_offered(Isa isa) {
  const std::span<const Isa> offered = offered_isas();
  return std::find(offered.begin(), offered.end(), isa) != offered.end();
}

// The table of a tier that is offered: without the instructions of a tier, even the code that fills
// its table must not run.
void fill_with_base(const Tier& of, KernelTable& table) {
  if (of.base != of.isa) fill_with_base(tier(of.base), table);
  of.fill(table);
}

KernelTable make_table(Isa isa) {
  KernelTable table{};
  table.isa = isa;
  fill_with_base(tier(isa), table);
  table.matmul.policy = chosen_policy();
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
  const std::optional<Isa> isa = find_isa(name);
  if (isa && is_offered(*isa)) return *isa;
  const std::string_view reason = isa ? refusal(*isa) : "";
  throw std::invalid_argument("SLUICE_ISA=" + std::string(name) +
                              " is not an instruction set of this CPU" + std::string(reason) +
                              "; set it to " + available_names() + ", or unset it");
}

}  // namespace

std::string_view isa_name(Isa isa) {
  return isa_names[static_cast<std::size_t>(isa)];
}

std::optional<Isa> find_isa(std::string_view name) {
  const auto* found = std::find(std::begin(isa_names), std::end(isa_names), name);
  if (found == std::end(isa_names)) return std::nullopt;
  return static_cast<Isa>(found - std::begin(isa_names));
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
  static const auto tables = [] {
    std::array<KernelTable, std::size(isa_names)> made{};
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
