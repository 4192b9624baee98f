// smmla: 32 multiply-adds an instruction.
#include "kernels/arm_tiers.h"
#include "kernels/peak_arm.h"

namespace sluice::kernels {

void fill_peak_i8mm(PeakKernels& table) {
  table.int8_macs = [](std::uint64_t rounds) {
    return repeat_dot<32>(
        rounds, [](int32x4_t sum, int8x16_t w, int8x16_t x) { return vmmlaq_s32(sum, w, x); });
  };
}

}  // namespace sluice::kernels
