// The choice of kernel by weight format, written once for all instruction sets. Included by the
// file of each tier after it has defined IntegerKernel<Format> and SmallKernel<Format>.
#pragma once

#include "kernels/matmul_few.h"

namespace sluice::kernels {
namespace {

// y = w x for packed rows and at most few_columns columns.
template <template <typename, int, int> typename Product, typename Kernel, typename Format>
void multiply_few(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride,
                  const Prefetch& prefetch) {
  typename Kernel::Column columns[few_columns];
  for (std::size_t c = 0; c < few_columns; ++c) {
    columns[c] = Kernel::column(x, smaller(c, x.columns() - 1));
  }
  FewColumns<Product, Format, typename Kernel::Column>(w, columns, x.columns(), y, y_stride)
      .run(prefetch);
}

// y = w x with the kernels of this tier.
void multiply_in_tier(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride,
                      const MatmulScratch& scratch, const PrefetchPolicy& policy) {
  if (w.rows < panel_rows) {  // less than a panel: use the scalar tier, which gives the same result
    MatmulKernels scalar;
    fill_matmul_scalar(scalar);
    return scalar.kernel(w, x, y, y_stride, scratch, policy);
  }
  const Prefetch& prefetch = policy.for_columns(x.columns());
  const bool has_few = w.is_packed && x.columns() <= few_columns;
  const auto run_integer = [&]<typename Format>(Format) {
    using Kernel = IntegerKernel<Format>;
    if (has_few)
      return multiply_few<FewIntegerColumns, Kernel, Format>(w, x, y, y_stride, prefetch);
    multiply_panels<Kernel>(w, x, y, y_stride, scratch, prefetch);
  };
  const auto run_small = [&]<typename Format>(Format) {
    using Kernel = SmallKernel<Format>;
    if (has_few) return multiply_few<FewSmallColumns, Kernel, Format>(w, x, y, y_stride, prefetch);
    multiply_panels<Kernel>(w, x, y, y_stride, scratch, prefetch);
  };
  const auto run_float = [&]<BlockType type>(FloatFormat<type>) {
    using Format = FloatFormat<type>;
    using Kernel = FloatKernel<Format>;
    if (has_few) return multiply_few<FewFloatColumns, Kernel, Format>(w, x, y, y_stride, prefetch);
    multiply_panels<Kernel>(w, x, y, y_stride, scratch, prefetch);
  };
  if (visit_quantised(w.type, run_integer, run_small)) return;
  if (w.type == BlockType::f16) return run_float(FloatFormat<BlockType::f16>{});
  if (w.type == BlockType::bf16) return run_float(FloatFormat<BlockType::bf16>{});
  run_float(FloatFormat<BlockType::f32>{});
}

}  // namespace
}  // namespace sluice::kernels
