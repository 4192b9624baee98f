// NEON with the dot product of bytes (Armv8.2). Only products and attention are written for it
// apart from NEON: no other operation has much use for it.
// The lanes come first: the operations are written in terms of them.
// clang-format off
#include "kernels/lanes_neon.h"
#include "kernels/attention_impl.h"
#include "kernels/peak_arm.h"
#include "kernels/tiers.h"
// clang-format on

namespace sluice::kernels {

void fill_dotprod(KernelTable& table) {
  fill_matmul_dotprod(table.matmul);
  fill(table.attention);
  table.peak.int8_macs = [](std::uint64_t rounds) {  // sdot: 16 multiply-adds an instruction
    return repeat_dot<16>(
        rounds, [](int32x4_t sum, int8x16_t w, int8x16_t x) { return vdotq_s32(sum, w, x); });
  };
}

}  // namespace sluice::kernels
