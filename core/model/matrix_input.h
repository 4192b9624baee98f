// The input of a matrix product of a step, for a MatrixWatch.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace sluice::model {

struct MatrixInput {
  std::string_view tensor;  // as the file names it: "blk.0.ffn_down_exps.weight"
  std::size_t matrix;       // its index among the matrices of the tensor
  std::size_t matrices;     // that the tensor stacks, at least one
  const float* x;  // [columns][x_stride]; the first `size` of a row count; valid for the call
  std::size_t x_stride;
  std::size_t size;     // the columns of the matrix
  std::size_t columns;  // tokens
};

// Called once for each product of a matrix, by the thread that runs the step. A tensor with several
// matrices one below the other (attn_qkv) counts as one matrix.
using MatrixWatch = std::function<void(const MatrixInput&)>;

}  // namespace sluice::model
