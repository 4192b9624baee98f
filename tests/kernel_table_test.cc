// The choice of the instruction set, proved from outside: this program runs itself with SLUICE_ISA
// set, and the child compares the table in use with what the tier puts there.
#include "kernels/kernel_table.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/tiers.h"
#include "tests/catch.h"
#include "tests/kernels_support.h"
#include "tests/paths.h"

namespace sluice::test {
namespace {

using kernels::Isa;
using kernels::KernelTable;

constexpr const char* tier_in_child = "kernel table child: the tier named by SLUICE_ISA is in use";
constexpr const char* prefetch_in_child = "kernel table child: SLUICE_PREFETCH is in use";
constexpr const char* error_in_child = "kernel table child: a bad SLUICE_ISA is refused";

constexpr Isa all_isas[] = {Isa::scalar, Isa::avx2, Isa::avxvnni, Isa::avx512, Isa::avx512vbmi,
                            Isa::amx,    Isa::neon, Isa::dotprod, Isa::i8mm};

// The tiers that have all operations. The others take from one of them what they have no kernels
// for.
Isa operations_of(Isa isa) {
  switch (isa) {
    case Isa::avxvnni:
      return Isa::avx2;
    case Isa::avx512vbmi:
    case Isa::amx:
      return Isa::avx512;
    case Isa::dotprod:
    case Isa::i8mm:
      return Isa::neon;
    default:
      return isa;
  }
}

// What the files of a tier put into a table.
KernelTable own_kernels(Isa isa) {
  KernelTable table{};
  const auto fill = [&]([[maybe_unused]] Isa one) {
    if (one == Isa::scalar) kernels::fill_scalar(table);
#ifdef SLUICE_HAVE_ARM_TIERS
    if (one == Isa::neon) kernels::fill_neon(table);
    if (one == Isa::dotprod) kernels::fill_dotprod(table);
    if (one == Isa::i8mm) kernels::fill_i8mm(table);
#endif
#ifdef SLUICE_HAVE_X86_TIERS
    if (one == Isa::avx2) kernels::fill_avx2(table);
    if (one == Isa::avxvnni) kernels::fill_avxvnni(table);
    if (one == Isa::avx512) kernels::fill_avx512(table);
    if (one == Isa::avx512vbmi) kernels::fill_avx512vbmi(table);
    if (one == Isa::amx) kernels::fill_amx(table);
#endif
  };
  fill(operations_of(isa));
  if (isa == Isa::i8mm) fill(Isa::dotprod);
  fill(isa);
  return table;
}

void check_belongs_to(const KernelTable& table, Isa isa) {
  const KernelTable own = own_kernels(isa);
  CHECK(table.isa == isa);
  CHECK(table.matmul.kernel == own.matmul.kernel);
  CHECK(table.quantise.a256 == own.quantise.a256);
  CHECK(table.quantise.a32 == own.quantise.a32);
  CHECK(table.vector_ops.rms_norm == own.vector_ops.rms_norm);
  CHECK(table.vector_ops.l2_norm == own.vector_ops.l2_norm);
  CHECK(table.vector_ops.rope_norm == own.vector_ops.rope_norm);
  CHECK(table.vector_ops.rope_neox == own.vector_ops.rope_neox);
  CHECK(table.vector_ops.softmax == own.vector_ops.softmax);
  CHECK(table.vector_ops.swiglu == own.vector_ops.swiglu);
  CHECK(table.vector_ops.clamped_swiglu == own.vector_ops.clamped_swiglu);
  CHECK(table.vector_ops.geglu == own.vector_ops.geglu);
  CHECK(table.vector_ops.add == own.vector_ops.add);
  CHECK(table.vector_ops.add_scaled == own.vector_ops.add_scaled);
  CHECK(table.vector_ops.multiply == own.vector_ops.multiply);
  CHECK(table.vector_ops.multiply_by_sigmoid == own.vector_ops.multiply_by_sigmoid);
  CHECK(table.vector_ops.scale == own.vector_ops.scale);
  CHECK(table.vector_ops.softcap == own.vector_ops.softcap);
  CHECK(table.vector_ops.exp == own.vector_ops.exp);
  CHECK(table.vector_ops.sigmoid == own.vector_ops.sigmoid);
  CHECK(table.vector_ops.softplus == own.vector_ops.softplus);
  CHECK(table.vector_ops.relu_squared == own.vector_ops.relu_squared);
  CHECK(table.attention.f32 == own.attention.f32);
  CHECK(table.attention.f16 == own.attention.f16);
  CHECK(table.attention.int8 == own.attention.int8);
  CHECK(table.kv_rows.hadamard == own.kv_rows.hadamard);
  CHECK(table.kv_rows.quantise == own.kv_rows.quantise);
  CHECK(table.attention.f32_to_f16 == own.attention.f32_to_f16);
  CHECK(table.convolution.causal == own.convolution.causal);
  CHECK(table.recurrence.delta_rule == own.recurrence.delta_rule);
  CHECK(table.recurrence.state_scan == own.recurrence.state_scan);
  CHECK(table.recurrence.channel_scan == own.recurrence.channel_scan);
  CHECK(table.recurrence.removal_rule == own.recurrence.removal_rule);
  CHECK(table.matmul.kernel != nullptr);
  CHECK(table.vector_ops.relu_squared != nullptr);
}

// Runs one hidden test case of this program; true when it passes.
bool child_passes(const std::string& isa, const char* test_case) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = "SLUICE_ISA='" + isa + "' " + emulator + " '" + program + "' '" +
                              test_case + "' >/dev/null 2>&1";
  return std::system(command.c_str()) == 0;
}

TEST_CASE(tier_in_child, "[.child]") {
  const char* name = std::getenv("SLUICE_ISA");
  REQUIRE(name);
  const KernelTable& table = kernels::kernel_table();
  REQUIRE(std::string(name) == kernels::isa_name(table.isa));
  check_belongs_to(table, table.isa);
}

TEST_CASE(error_in_child, "[.child]") {
  const std::string name = std::getenv("SLUICE_ISA");
  std::string message;
  try {
    kernels::kernel_table();
  } catch (const std::invalid_argument& error) {
    message = error.what();
  }
  CHECK(message.find("SLUICE_ISA=" + name) != std::string::npos);
  CHECK(message.find("scalar") != std::string::npos);
}

TEST_CASE("SLUICE_ISA forces a tier, all of it") {
  const std::vector<Isa> offered = all_tiers();
  for (const Isa isa : all_isas) {
    const std::string name(kernels::isa_name(isa));
    INFO(name);
    if (std::find(offered.begin(), offered.end(), isa) != offered.end()) {
      CHECK(child_passes(name, tier_in_child));
      CHECK_FALSE(child_passes(name, error_in_child));
    } else {
      CHECK(child_passes(name, error_in_child));
    }
  }
}

TEST_CASE("SLUICE_ISA with a name that is no tier is refused") {
  for (const char* name : {"sse9", "AVX2", "avx512 ", "-"}) {
    INFO(name);
    CHECK(child_passes(name, error_in_child));
  }
}

TEST_CASE("a way to prefetch is read for all numbers of columns or for each class of them") {
  using kernels::CacheLevel;
  const kernels::PrefetchPolicy same = kernels::parse_prefetch("4096:l2:1");
  for (const kernels::Prefetch& one : same.of_class) {
    CHECK(one.bytes_ahead == 4096);
    CHECK(one.into == CacheLevel::l2);
    CHECK(one.panels_in_turn == 1);
  }
  const std::string text = "0:l1:1,1:l1:4,8192:l2:1,1048576:l2:4,2048:l1:4,64:l2:1";
  const kernels::PrefetchPolicy policy = kernels::parse_prefetch(text);
  CHECK(kernels::to_text(policy) == text);
  const std::size_t columns[][2] = {{1, 0},        {2, 1},     {4, 1},
                                    {5, 1 << 13},  {8, 8192},  {9, 1048576},
                                    {16, 1048576}, {17, 2048}, {512, 2048}};
  for (const auto [count, bytes] : columns) {
    CHECK(policy.for_columns(count).bytes_ahead == bytes);
    CHECK(policy.for_columns(count, true).bytes_ahead == (count <= 16 ? 64 : bytes));
  }
  for (const char* bad :
       {"", ",", "1:l1:4,", "x", "1", "1:l1", "1:l3:4", "1:l1:2", "1:l1:4x", "-1:l1:4",
        "1048577:l1:4", "4294967296:l1:4", "1:l1:4,1:l1:4", "1:l1:4,,1:l1:4,1:l1:4,1:l1:4",
        "1:l1:4:", "1:l1:1,1:l1:1,1:l1:1,1:l1:1,1:l1:1",
        "1:l1:1,1:l1:1,1:l1:1,1:l1:1,1:l1:1,1:l1:1,1:l1:1"}) {
    INFO(bad);
    std::string message;
    try {
      kernels::parse_prefetch(bad);
    } catch (const std::invalid_argument& error) {
      message = error.what();
    }
    CHECK(message.find("SLUICE_PREFETCH=" + std::string(bad) + " is no way") == 0);
  }
}

TEST_CASE(prefetch_in_child, "[.child]") {
  REQUIRE(std::getenv("SLUICE_PREFETCH"));
  CHECK(kernels::to_text(kernels::kernel_table().matmul.policy.prefetch) ==
        "77:l2:1,77:l2:1,77:l2:1,77:l2:1,77:l2:1,77:l2:1");
}

TEST_CASE("SLUICE_PREFETCH forces a way to prefetch") {
  const std::string name(kernels::isa_name(kernels::highest_isa()));
  CHECK(child_passes(name + "' SLUICE_PREFETCH='77:l2:1", prefetch_in_child));
  CHECK_FALSE(child_passes(name + "' SLUICE_PREFETCH='77:l2:2", prefetch_in_child));
}

TEST_CASE("an empty SLUICE_ISA means the highest tier") {
  const Isa highest = kernels::highest_isa();
  CHECK(kernels::kernel_table(highest).isa == highest);
  CHECK_FALSE(child_passes("", error_in_child));
}

TEST_CASE(
    "every table is of its tier, and tiers share no kernel but those that one has no part in") {
  const std::vector<Isa> isas = all_tiers();
  for (const Isa isa : isas) {
    INFO(kernels::isa_name(isa));
    check_belongs_to(kernels::kernel_table(isa), isa);
    for (const Isa other : isas) {
      if (other == isa) continue;
      const KernelTable &a = kernels::kernel_table(isa), &b = kernels::kernel_table(other);
      CHECK(a.matmul.kernel != b.matmul.kernel);
      // VBMI has the multiplications of AVX-512.
      const auto multiplies_as_avx512 = [](Isa tier) {
        return tier == Isa::avx512 || tier == Isa::avx512vbmi;
      };
      const bool is_alike = multiplies_as_avx512(isa) && multiplies_as_avx512(other);
      CHECK((a.peak.int8_macs == b.peak.int8_macs) == is_alike);
      if (operations_of(isa) == operations_of(other)) continue;
      CHECK(a.quantise.a256 != b.quantise.a256);
      CHECK(a.vector_ops.softmax != b.vector_ops.softmax);
      CHECK(a.attention.f16 != b.attention.f16);
      CHECK(a.attention.int8 != b.attention.int8);
      CHECK(a.kv_rows.hadamard != b.kv_rows.hadamard);
      CHECK(a.convolution.causal != b.convolution.causal);
      CHECK(a.recurrence.delta_rule != b.recurrence.delta_rule);
    }
  }
}

TEST_CASE("a tier that the CPU lacks is refused by name") {
  const std::vector<Isa> offered = all_tiers();
  for (const Isa isa : all_isas) {
    if (std::find(offered.begin(), offered.end(), isa) != offered.end()) continue;
    INFO(kernels::isa_name(isa));
    CHECK_THROWS_AS(kernels::kernel_table(isa), std::invalid_argument);
  }
}

}  // namespace
}  // namespace sluice::test
