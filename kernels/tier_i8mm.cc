// The matrix product of bytes of Armv8.6, with smmla: only products are written for it.
#include "kernels/peak_arm.h"
#include "kernels/tiers.h"

namespace sluice::kernels {

void fill_i8mm(KernelTable& table) {
  fill_matmul_i8mm(table.matmul);
  table.peak.int8_macs = [](std::uint64_t rounds) {  // 32 multiply-adds an instruction
    return repeat_dot<32>(
        rounds, [](int32x4_t sum, int8x16_t w, int8x16_t x) { return vmmlaq_s32(sum, w, x); });
  };
}

}  // namespace sluice::kernels
