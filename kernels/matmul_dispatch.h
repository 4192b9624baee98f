// The choice of kernel by weight format, written once for all instruction sets. Included by the
// file of each tier after it has defined IntegerKernel<Format> and SmallKernel<Format>. That file
// is compiled once for each part of the formats (kernels/CMakeLists.txt); matmul_parts.cc joins
// them.
#pragma once

#include "kernels/matmul_few.h"
#include "kernels/tiers.h"

namespace sluice::kernels {
namespace {

template <typename Format>
constexpr bool unpacks_first = [] {
  if constexpr (requires { Format::unpacks_first; }) return Format::unpacks_first;
  return false;
}();

// y = w x with the kernels of a format: Few for packed rows and at most few_columns_of columns,
// else Kernel.
template <typename Format, typename Kernel, template <typename, int, int> typename Few>
void multiply_format(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride,
                     const MatmulScratch& scratch, const Prefetch& prefetch) {
  if constexpr (!unpacks_first<Format>) {
    constexpr std::size_t most = few_columns_of<Format>;
    if (w.is_packed && x.columns() <= most) {
      return multiply_few<Few, Format, most>(w, x, y, y_stride, prefetch, Kernel::column);
    }
  }
  multiply_panels<Kernel>(w, x, y, y_stride, scratch, prefetch);
}

// y = w x with the kernels of this tier, for the formats of one part.
template <std::size_t part>
void multiply_in_tier(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride,
                      const MatmulScratch& scratch, const CorePolicy& policy) {
  if (w.rows < panel_rows) {  // less than a panel: use the scalar tier, which gives the same result
    MatmulKernels scalar;
    fill_matmul_scalar(scalar);
    return scalar.kernel(w, x, y, y_stride, scratch, policy);
  }
  visit_format_of_part<part>(w.type, [&]<typename Format>(Format) {
    const Prefetch& prefetch = policy.prefetch.for_columns(x.columns(), unpacks_first<Format>);
    constexpr ActivationForm form = form_of<Format>();
    if constexpr (form == ActivationForm::a256) {
#ifdef SLUICE_HAS_DWORD_PRODUCTS
      // Floats that add up a whole block are as fast.
      if constexpr (Format::exact_run * Format::sub_block < static_cast<int>(k_block)) {
        if (policy.has_fast_dword_products) {
          using Kernel = IntegerKernel<Format, DwordSum<Format>>;
          return multiply_format<Format, Kernel, FewIntegerColumns>(w, x, y, y_stride, scratch,
                                                                    prefetch);
        }
      }
#endif
      if constexpr (has_grid_product<Format>) {
        multiply_format<Format, IntegerKernel<Format>, FewGridColumns>(w, x, y, y_stride, scratch,
                                                                       prefetch);
      } else {
        multiply_format<Format, IntegerKernel<Format>, FewIntegerColumns>(w, x, y, y_stride,
                                                                          scratch, prefetch);
      }
    } else if constexpr (form == ActivationForm::a32) {
      multiply_format<Format, SmallKernel<Format>, FewSmallColumns>(w, x, y, y_stride, scratch,
                                                                    prefetch);
    } else {
      multiply_format<Format, FloatKernel<Format>, FewFloatColumns>(w, x, y, y_stride, scratch,
                                                                    prefetch);
    }
  });
}

}  // namespace
}  // namespace sluice::kernels
