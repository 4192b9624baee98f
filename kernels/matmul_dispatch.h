// The choice of kernel by weight format, written once for all instruction sets. Included by the
// file of each tier after it has defined IntegerKernel<Format>, SmallKernel<Format> and
// FloatKernel<Format>.
#pragma once

#include "kernels/matmul_few.h"

namespace sluice::kernels {
namespace {

// Packed rows times few columns.
template <template <typename, int, int> typename Product, typename Kernel, typename Format>
void multiply_few(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride) {
  typename Kernel::Column columns[few_columns];
  for (std::size_t c = 0; c < few_columns; ++c) {
    columns[c] = Kernel::column(x, smaller(c, x.columns() - 1));
  }
  FewColumns<Product, Format, typename Kernel::Column>(w, columns, x.columns(), y, y_stride).run();
}

// y = w x with the kernels of this tier: IntegerKernel, SmallKernel and FloatKernel.
void multiply_in_tier(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride,
                      const MatmulScratch& scratch) {
  if (w.rows < panel_rows) {  // less than a panel: the scalar tier gives the same result
    MatmulKernels scalar;
    fill_matmul_scalar(scalar);
    return scalar.multiply(w, x, y, y_stride, scratch);
  }
  const bool has_few = w.is_packed && x.columns() <= few_columns;
  const auto run_integer = [&]<typename Format>(Format) {
    using Kernel = IntegerKernel<Format>;
    if (has_few) return multiply_few<FewIntegerColumns, Kernel, Format>(w, x, y, y_stride);
    multiply_panels<Kernel>(w, x, y, y_stride, scratch);
  };
  const auto run_small = [&]<typename Format>(Format) {
    using Kernel = SmallKernel<Format>;
    if (has_few) return multiply_few<FewSmallColumns, Kernel, Format>(w, x, y, y_stride);
    multiply_panels<Kernel>(w, x, y, y_stride, scratch);
  };
  const auto run_float = [&]<BlockType type, std::size_t weights, std::size_t bytes>(
                             FloatFormat<type, weights, bytes> format) {
    multiply_panels<FloatKernel<decltype(format)>>(w, x, y, y_stride, scratch);
  };
  if (visit_quantised(w.type, run_integer, run_small)) return;
  switch (w.type) {
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
    default:
      return;
  }
}

}  // namespace
}  // namespace sluice::kernels
