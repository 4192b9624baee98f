// The choice of kernel by weight format, written once for all instruction sets. Included by the
// file of each tier after it has defined IntegerKernel<Format>, SmallKernel<Format> and
// FloatKernel<Format>.
#pragma once

#include "kernels/matmul_formats.h"

namespace sluice::kernels {
namespace {

// y = w x with the kernels of this tier: IntegerKernel, SmallKernel and FloatKernel.
void multiply_in_tier(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride,
                      const MatmulScratch& scratch) {
  if (w.rows < panel_rows) {  // less than a panel: the scalar tier gives the same result
    MatmulKernels scalar;
    fill_matmul_scalar(scalar);
    return scalar.multiply(w, x, y, y_stride, scratch);
  }
  const auto run = [&]<typename Kernel>(Kernel) {
    PanelProduct<Kernel>(w, scratch).run(x, y, y_stride);
  };
  const auto run_float = [&]<BlockType type, std::size_t weights, std::size_t bytes>(
                             FloatFormat<type, weights, bytes> format) {
    run(FloatKernel<decltype(format)>{});
  };
  switch (w.type) {
    case BlockType::q4_k:
      return run(IntegerKernel<Q4_K>{});
    case BlockType::q5_k:
      return run(IntegerKernel<Q5_K>{});
    case BlockType::q6_k:
      return run(IntegerKernel<Q6_K>{});
    case BlockType::q4_0:
      return run(SmallKernel<Q4_0>{});
    case BlockType::q4_1:
      return run(SmallKernel<Q4_1>{});
    case BlockType::q5_0:
      return run(SmallKernel<Q5_0>{});
    case BlockType::q5_1:
      return run(SmallKernel<Q5_1>{});
    case BlockType::q8_0:
      return run(SmallKernel<Q8_0>{});
    case BlockType::f32:
      return run_float(FloatFormat<BlockType::f32, 1, 4>{});
    case BlockType::f16:
      return run_float(FloatFormat<BlockType::f16, 1, 2>{});
    case BlockType::bf16:
      return run_float(FloatFormat<BlockType::bf16, 1, 2>{});
    case BlockType::q2_k:
      return run_float(FloatFormat<BlockType::q2_k, 256, sizeof(BlockQ2_K)>{});
    case BlockType::q3_k:
      return run_float(FloatFormat<BlockType::q3_k, 256, sizeof(BlockQ3_K)>{});
    case BlockType::iq4_nl:
      return run_float(FloatFormat<BlockType::iq4_nl, 32, sizeof(BlockIQ4_NL)>{});
    case BlockType::iq4_xs:
      return run_float(FloatFormat<BlockType::iq4_xs, 256, sizeof(BlockIQ4_XS)>{});
    case BlockType::mxfp4:
      return run_float(FloatFormat<BlockType::mxfp4, 32, sizeof(BlockMXFP4)>{});
  }
}

}  // namespace
}  // namespace sluice::kernels
