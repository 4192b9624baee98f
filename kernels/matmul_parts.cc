// Joins the parts in which the products of a tier are compiled. The file of a tier defines its
// function of each part (kernels/matmul_dispatch.h).
#include <type_traits>

#include "kernels/formats/all.h"
#include "kernels/matmul.h"

namespace sluice::kernels {

using MatmulKernel = std::remove_pointer_t<decltype(MatmulKernels::kernel)>;

MatmulKernel multiply_avx2_0, multiply_avx2_1, multiply_avx2_2, multiply_avx2_3, multiply_avx2_4,
    multiply_avx2_5;
MatmulKernel multiply_avx512vnni_0, multiply_avx512vnni_1, multiply_avx512vnni_2,
    multiply_avx512vnni_3, multiply_avx512vnni_4, multiply_avx512vnni_5;

namespace {

template <MatmulKernel*... parts>
void multiply(const WeightRows& w, const Activations& x, float* y, std::size_t y_stride,
              const MatmulScratch& scratch, const PrefetchPolicy& policy) {
  static_assert(sizeof...(parts) == format_parts);
  static constexpr MatmulKernel* all[] = {parts...};
  all[part_of(Formats{}, w.type)](w, x, y, y_stride, scratch, policy);
}

}  // namespace

void fill_matmul_avx2(MatmulKernels& table) {
  table = {multiply<multiply_avx2_0, multiply_avx2_1, multiply_avx2_2, multiply_avx2_3,
                    multiply_avx2_4, multiply_avx2_5>,
           true};
}

void fill_matmul_avx512vnni(MatmulKernels& table) {
  table = {multiply<multiply_avx512vnni_0, multiply_avx512vnni_1, multiply_avx512vnni_2,
                    multiply_avx512vnni_3, multiply_avx512vnni_4, multiply_avx512vnni_5>,
           true};
}

}  // namespace sluice::kernels
