// What the files of the tiers for aarch64 put into a table; see kernels/kernel_table.h for the
// choice between them. Only products and attention are written for dotprod apart from neon, and for
// i8mm only products: no other operation has much use for their instructions.
#pragma once

#include "kernels/kernel_table.h"

namespace sluice::kernels {

void fill_attention_neon(AttentionKernels& table);
void fill_attention_dotprod(AttentionKernels& table);
void fill_convolution_neon(ConvolutionKernels& table);
void fill_encode_neon(EncodeKernels& table);
void fill_kv_rows_neon(KvRowKernels& table);
void fill_quantise_neon(QuantiseKernels& table);
void fill_recurrence_neon(RecurrenceKernels& table);
void fill_vector_ops_neon(VectorOps& table);

void fill_matmul_neon(MatmulKernels& table);
void fill_matmul_dotprod(MatmulKernels& table);
void fill_matmul_i8mm(MatmulKernels& table);

void fill_peak_neon(PeakKernels& table);
void fill_peak_dotprod(PeakKernels& table);
void fill_peak_i8mm(PeakKernels& table);

}  // namespace sluice::kernels
