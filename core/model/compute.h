// What the blocks compute with: matrix products with weights from the tape, and loops over columns.
// Both are spread over the thread team.
//
// A column is the activations of one token. All buffers are laid out [column][feature].
//
// When multiply() throws, no segment stays held, and the step may be run again.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "core/model/expert_watch.h"
#include "core/model/matrix_input.h"
#include "core/model/weights.h"
#include "kernels/kernel_table.h"
#include "streaming/tape.h"
#include "topology/aligned_bytes.h"
#include "topology/thread_team.h"

namespace sluice::model {

// A matrix product of the step: y[c * y_stride + r] = w[r] . x[c] (* scale of w) (+ bias[r]).
struct Product {
  const Matrix* w;
  float* y;
  std::size_t y_stride;
  Vector bias = {};
};

class Compute {
 public:
  // Owns none of its arguments. `size_max` and `columns_max` are the largest `size` and `columns`
  // that multiply() will be given, and `rotated_max` the largest size of those that are rotated (0:
  // none is). `ring_held_max` is the most segments of the tape's ring that are held at once, at
  // least one; see streaming::TapeOptions.
  Compute(const kernels::KernelTable& kernels, topology::ThreadTeam& team, streaming::Tape& tape,
          std::size_t size_max, std::size_t columns_max, std::size_t rotated_max,
          std::size_t ring_held_max);

  // `check` is called before each wave, many times a step, by the thread that calls multiply().
  // What it throws ends the step.
  void set_stop_check(std::function<void()> check) { stop_check_ = std::move(check); }
  const std::function<void()>& stop_check() const { return stop_check_; }

  // `watch` is called with the input of each matrix, before the product.
  void set_watch(MatrixWatch watch) { watch_ = std::move(watch); }

  void set_expert_watch(ExpertWatch watch) { expert_watch_ = std::move(watch); }
  const ExpertWatch& expert_watch() const { return expert_watch_; }  // may be empty

  void set_expert_chooser(ExpertChooser chooser) { expert_chooser_ = std::move(chooser); }
  const ExpertChooser& expert_chooser() const { return expert_chooser_; }  // may be empty

  // Bytes that a Compute of this shape allocates.
  static std::size_t bytes(std::size_t size_max, std::size_t columns_max, std::size_t rotated_max,
                           std::size_t threads);

  // What the constructor has made.
  std::size_t held_bytes() const { return quantised_.size() + scratch_.size() + rotated_.size(); }

  const kernels::VectorOps& ops() const { return kernels_.vector_ops; }
  const kernels::KernelTable& kernels() const { return kernels_; }
  const streaming::Tape& tape() const { return tape_; }
  std::size_t threads() const { return team_.size(); }

  // Multiplies `columns` columns of `size` features, x[c * x_stride ...], with several matrices in
  // one pass. Every matrix has `size` columns. Throws what the tape and the stop check throw.
  void multiply(const float* x, std::size_t x_stride, std::size_t size, std::size_t columns,
                std::span<const Product> products);

  // Multiplies each matrix with columns of its own: product i with x[i * apart + c * x_stride ...],
  // c < columns. Every matrix has `size` columns. Throws what multiply() throws.
  void multiply_each(const float* x, std::size_t apart, std::size_t x_stride, std::size_t size,
                     std::size_t columns, std::span<const Product> products);

  // See Tape::expect_experts.
  void expect_experts(std::size_t group, std::span<const streaming::ExpertUse> uses,
                      std::size_t tokens) {
    tape_.expect_experts(group, uses, tokens);
  }

  // The product with a transposed matrix: y[c * y_stride + i] = sum of w[r][i] * x[c * x_stride +
  // r] over its rows, in order. The matrix is one of WeightLayout::rows_of_matrix. Its weights are
  // taken as the floats that they stand for. Throws what the tape and the stop check throw.
  void multiply_transposed(const float* x, std::size_t x_stride, std::size_t columns,
                           const Matrix& w, float* y, std::size_t y_stride);

  // Splits 0..count over the threads; see topology::for_each_part().
  template <typename F>
  void for_each(std::size_t count, F&& f) {
    topology::for_each_part(team_, count, std::forward<F>(f));
  }

 private:
  // A slice that is in memory, and the product it belongs to.
  struct HeldSlice {
    const Product* product;
    const kernels::Activations* x;  // null in multiply_transposed()
    const Slice* slice;
    const std::byte* data;
    std::byte* place;            // where to pack the rows before they are multiplied, or null
    bool is_packed;              // `data` is; the rows at `place` are in any case
    topology::WorkRange groups;  // of rows, numbered over all held slices
  };

  // The arguments of multiply_transposed().
  struct Transposed {
    const float* x;
    std::size_t x_stride, columns;
    const Matrix& w;
    float* y;
    std::size_t y_stride;
  };

  void add_held_rows(const Transposed& product);
  void multiply_alike(const float* x, std::size_t x_stride, std::size_t size, std::size_t columns,
                      std::span<const Product> products);
  void show(const Product& product, const float* x, std::size_t x_stride, std::size_t size,
            std::size_t columns) const;
  void quantise(const kernels::Activations& x, std::span<const Product> products);
  // Held slices refer to products, and keep the ring from reading ahead.
  struct Release {
    Compute& compute;
    ~Release() { compute.release_held(false); }
  };
  void hold(const Product& product, const kernels::Activations* x, const Slice& slice);
  void hold_and_multiply(const Product& product, const kernels::Activations& x);
  // `are_packed`: the slices that have a place have been packed there.
  void release_held(bool are_packed) noexcept;
  void multiply_held();
  void multiply_rows(const HeldSlice& held, const topology::WorkRange& range,
                     const kernels::MatmulScratch& scratch);

  const kernels::KernelTable& kernels_;
  topology::ThreadTeam& team_;
  streaming::Tape& tape_;
  std::size_t ring_held_max_;
  std::function<void()> stop_check_;
  MatrixWatch watch_;
  ExpertWatch expert_watch_;
  ExpertChooser expert_chooser_;
  topology::AlignedBytes quantised_;
  topology::AlignedBytes rotated_;            // floats
  std::vector<kernels::Activations> inputs_;  // of multiply_each()
  topology::AlignedBytes scratch_;            // kernels::MatmulScratch::bytes for each thread
  std::vector<HeldSlice> held_;               // the current wave; empty outside of multiply()
  std::size_t ring_held_ = 0;                 // how many of them are in the ring
};

}  // namespace sluice::model
