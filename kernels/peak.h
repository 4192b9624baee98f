// The peak rate of 8-bit multiply-adds of an instruction set: its dot-product instruction on
// registers alone. Matrix products are compared with it.
#pragma once

#include <cstdint>

namespace sluice::kernels {

struct PeakKernels {
  // Runs `rounds` rounds and returns how many multiply-adds that were. Touches no memory.
  std::uint64_t (*int8_macs)(std::uint64_t rounds);
};

// The tiers; see kernels/kernel_table.h for the choice between them.
void fill_peak_scalar(PeakKernels& table);
void fill_peak_avx2(PeakKernels& table);
void fill_peak_avx512vnni(PeakKernels& table);
void fill_peak_amx(PeakKernels& table);

}  // namespace sluice::kernels
