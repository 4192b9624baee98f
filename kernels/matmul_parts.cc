// Joins the parts in which the products of a tier are compiled. The file of a tier defines its
// function of each part (kernels/matmul_dispatch.h).
#include <type_traits>

#include "kernels/formats/all.h"
#include "kernels/tiers.h"

namespace sluice::kernels {

using MatmulKernel = std::remove_pointer_t<decltype(MatmulKernels::kernel)>;

namespace {

template <MatmulKernel*... parts>
void multiply(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride,
              const MatmulScratch& scratch, const CorePolicy& policy) {
  static_assert(sizeof...(parts) == format_parts);
  static constexpr MatmulKernel* all[] = {parts...};
  all[part_of(Formats{}, w.type)](w, x, y, y_stride, scratch, policy);
}

}  // namespace

// Declares the parts of a tier, and defines the function that puts them into a table.
#define SLUICE_JOIN_PARTS(tier)                                                                    \
  MatmulKernel multiply_##tier##_0, multiply_##tier##_1, multiply_##tier##_2, multiply_##tier##_3, \
      multiply_##tier##_4, multiply_##tier##_5;                                                    \
  void fill_matmul_##tier(MatmulKernels& table) {                                                  \
    table = {multiply<multiply_##tier##_0, multiply_##tier##_1, multiply_##tier##_2,               \
                      multiply_##tier##_3, multiply_##tier##_4, multiply_##tier##_5>,              \
             true};                                                                                \
  }

#ifdef SLUICE_HAVE_X86_TIERS
SLUICE_JOIN_PARTS(avx2)
SLUICE_JOIN_PARTS(avxvnni)
SLUICE_JOIN_PARTS(avx512)
#endif
#ifdef SLUICE_HAVE_ARM_TIERS
SLUICE_JOIN_PARTS(neon)
SLUICE_JOIN_PARTS(dotprod)
SLUICE_JOIN_PARTS(i8mm)
#endif

}  // namespace sluice::kernels
