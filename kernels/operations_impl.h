// All operations but the matrix product, on the lanes of one tier; included after its lanes_*.h.
#pragma once

#include "kernels/attention_impl.h"
#include "kernels/convolution_impl.h"
#include "kernels/encode_impl.h"
#include "kernels/kv_rows_impl.h"
#include "kernels/quantise_impl.h"
#include "kernels/recurrence_impl.h"
#include "kernels/tiers.h"
#include "kernels/vector_ops_impl.h"

namespace sluice::kernels {
namespace {

inline void fill_operations(KernelTable& table) {
  fill(table.attention);
  fill(table.convolution);
  fill(table.encode);
  fill(table.kv_rows);
  fill(table.quantise);
  fill(table.recurrence);
  fill(table.vector_ops);
}

}  // namespace
}  // namespace sluice::kernels
