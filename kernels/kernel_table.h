// Run-time choice of the instruction set. A table of function pointers is filled by the tier that
// another one is based on and then by that, up to the best that the CPU has (or that SLUICE_ISA
// names). It is constant after the first use; any thread may read it.
//
// Every tier computes every float result with the same operations in the same order (16 virtual
// lanes, explicit fused multiply-add, exact integer dot products), so all tiers give bit-identical
// results. Tests check that.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "kernels/tiers.h"

namespace sluice::kernels {

std::string_view isa_name(Isa isa);  // "scalar", "avx2", ...
std::optional<Isa> find_isa(std::string_view name);

// The tiers that this CPU and operating system can run, scalar first and the highest last. On Linux
// a process has to request the tile registers of AMX: the first call does that, for all threads. If
// Linux refuses, AMX is not offered.
std::span<const Isa> offered_isas();

// The last of these.
Isa highest_isa();

// The table of one tier. Throws std::invalid_argument when this CPU cannot run it.
const KernelTable& kernel_table(Isa isa);

// The table in use: the highest tier, or the one that the environment variable SLUICE_ISA names
// (as isa_name() has it). Throws std::invalid_argument when it names no tier or one this CPU
// lacks. Both functions throw what chosen_policy() does.
const KernelTable& kernel_table();

}  // namespace sluice::kernels
