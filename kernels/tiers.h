// The tiers: sets of kernels for the instructions of one kind of processor. A tier takes the
// kernels of its base (kernels/kernel_table.cc has one row for each tier) and puts its own in their
// place.
#pragma once

#include "kernels/attention.h"
#include "kernels/convolution.h"
#include "kernels/encode.h"
#include "kernels/kv_rows.h"
#include "kernels/matmul.h"
#include "kernels/peak.h"
#include "kernels/quantise.h"
#include "kernels/recurrence.h"
#include "kernels/vector_ops.h"

namespace sluice::kernels {

enum class Isa { scalar, avx2, avxvnni, avx512, avx512vbmi, amx, neon, dotprod, i8mm };

struct KernelTable {
  Isa isa = Isa::scalar;
  MatmulKernels matmul;
  QuantiseKernels quantise;
  EncodeKernels encode;
  VectorOps vector_ops;
  AttentionKernels attention;
  KvRowKernels kv_rows;
  ConvolutionKernels convolution;
  RecurrenceKernels recurrence;
  PeakKernels peak;
};

// The kernels of each tier, for the table of its base. Defined in kernels/tier_*.cc, which are
// compiled for the tier: they must not run on a CPU without it.
void fill_scalar(KernelTable& table);
void fill_avx2(KernelTable& table);
void fill_avxvnni(KernelTable& table);
void fill_avx512(KernelTable& table);
void fill_avx512vbmi(KernelTable& table);
void fill_amx(KernelTable& table);
void fill_neon(KernelTable& table);
void fill_dotprod(KernelTable& table);
void fill_i8mm(KernelTable& table);

// What is compiled in files of its own.
void fill_matmul_scalar(MatmulKernels& table);
void fill_matmul_avx2(MatmulKernels& table);
void fill_matmul_avxvnni(MatmulKernels& table);
void fill_matmul_avx512(MatmulKernels& table);
void fill_matmul_avx512vbmi(MatmulKernels& table);
void fill_matmul_amx(MatmulKernels& table);
void fill_matmul_neon(MatmulKernels& table);
void fill_matmul_dotprod(MatmulKernels& table);
void fill_matmul_i8mm(MatmulKernels& table);
void fill_attention_amx(AttentionKernels& table);  // the entries that tiles make faster

}  // namespace sluice::kernels
