// What goes into a matrix product of a step, for those who watch it.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace sluice::model {

struct MatrixInput {
  std::string_view tensor;  // as the file names it: "blk.0.ffn_down_exps.weight"
  std::size_t matrix;       // which of those that the tensor stacks
  std::size_t matrices;     // that it stacks, at least one
  const float* x;           // [columns][x_stride], of which `size` count; valid for the call
  std::size_t x_stride;
  std::size_t size;     // the columns of the matrix
  std::size_t columns;  // tokens
};

// Called once for each matrix and each time that it is multiplied with, by the thread that leads
// the step. A tensor that holds several matrices one below the other (attn_qkv) is one.
using MatrixWatch = std::function<void(const MatrixInput&)>;

}  // namespace sluice::model
