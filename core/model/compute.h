// What an architecture computes with: matrix products with weights from the tape, and loops over
// columns, both spread over the thread team.
//
// A column is the activations of one token. All buffers are laid out [column][feature].
//
// An exception that leaves multiply() leaves nothing held; the step that it ends may be run again.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "core/model/aligned_bytes.h"
#include "core/model/matrix_input.h"
#include "core/model/weights.h"
#include "kernels/kernel_table.h"
#include "streaming/tape.h"
#include "topology/thread_team.h"

namespace sluice::model {

// A matrix product of the step: y[c * y_stride + r] = w[r] . x[c] (+ bias[r]).
struct Product {
  const Matrix* w;
  float* y;
  std::size_t y_stride;
  Vector bias = {};
};

class Compute {
 public:
  // None is owned. `size_max` and `columns_max`: the widest and the most columns that multiply()
  // will be given. `ring_held_max`: how many segments of the tape's ring are held at once, at least
  // one; see streaming::TapeOptions.
  Compute(const kernels::KernelTable& kernels, topology::ThreadTeam& team, streaming::Tape& tape,
          std::size_t size_max, std::size_t columns_max, std::size_t ring_held_max);

  // Called before each wave, many times a step, by the thread that leads it; what `check` throws
  // ends the step.
  void set_stop_check(std::function<void()> check) { stop_check_ = std::move(check); }

  // Told of the input of each matrix before it is multiplied with.
  void set_watch(MatrixWatch watch) { watch_ = std::move(watch); }

  // Bytes that a Compute of this shape allocates.
  static std::size_t bytes(std::size_t size_max, std::size_t columns_max, std::size_t threads);

  const kernels::VectorOps& ops() const { return kernels_.vector_ops; }
  const kernels::KernelTable& kernels() const { return kernels_; }
  std::size_t threads() const { return team_.size(); }

  // Multiplies the columns x[c * x_stride ...] of `size` features with several matrices in one
  // pass. `size` is the columns of every matrix. Throws what the tape and the stop check throw.
  void multiply(const float* x, std::size_t x_stride, std::size_t size, std::size_t columns,
                std::span<const Product> products);

  // Calls f(member, begin, end) on the members of the team, as often as they get on, for parts of
  // 0..count. A single item is done by the caller without waking anyone.
  template <typename F>
  void for_each(std::size_t count, F&& f) {
    if (count == 1 || team_.size() == 1) return f(std::size_t{0}, std::size_t{0}, count);
    topology::SharedRange items(count, team_.size());
    team_.run([&](std::size_t member) {
      for (auto part = items.take(); !part.empty(); part = items.take()) {
        f(member, part.begin, part.end);
      }
    });
  }

 private:
  // A slice that is in memory, and the product it belongs to.
  struct HeldSlice {
    const Product* product;
    const Slice* slice;
    const std::byte* data;
    bool is_packed;
    topology::WorkRange groups;  // of rows, among those of all slices that are held
  };

  void quantise(const kernels::Activations& x, std::span<const Product> products);
  void hold(const Product& product, const Slice& slice);
  void release_held() noexcept;
  void multiply_held(const kernels::Activations& x);
  void multiply_rows(const HeldSlice& held, const topology::WorkRange& range,
                     const kernels::Activations& x, const kernels::MatmulScratch& scratch);

  const kernels::KernelTable& kernels_;
  topology::ThreadTeam& team_;
  streaming::Tape& tape_;
  std::size_t ring_held_max_;
  std::function<void()> stop_check_;
  MatrixWatch watch_;
  AlignedBytes quantised_;
  AlignedBytes scratch_;         // kernels::MatmulScratch::bytes for each thread
  std::vector<HeldSlice> held_;  // the wave at hand; empty outside of multiply()
  std::size_t ring_held_ = 0;    // of these, the ones in the ring
};

}  // namespace sluice::model
