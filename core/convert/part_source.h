// How a tensor of a checkpoint becomes one of a GGUF file: what Part says, in numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "core/convert/config.h"
#include "core/convert/families.h"
#include "core/quant/row_converter.h"

namespace sluice::convert {

class PartSource {
 public:
  // Of a layer with these sizes. Refers to `part`. `is_of_blocks`: their tensor is in MXFP4.
  PartSource(const Family& family, const Part& part, const Sizes& sizes, bool is_of_blocks);

  std::vector<std::uint64_t> shape() const;  // theirs, the contiguous dimension last
  std::vector<std::uint64_t> dims() const;   // ours, the contiguous dimension first

  // How many of theirs become one of ours.
  std::uint64_t tensors() const { return is_of_many_ ? count_ : 1; }
  std::uint64_t rows_of_tensor() const;  // of theirs
  std::uint64_t stored_rows() const;     // of ours; those behind are 0

  // Where row `row` of ours is among theirs, of all tensors one after the other.
  std::uint64_t their_row(std::uint64_t row) const;

  // Where the values of a row of ours are far apart: in which part of their tensor, the first of
  // them in it, and how far it is to the next.
  struct Scattered {
    std::uint64_t part, first, step;
  };
  std::uint64_t values_of_part() const;  // 0: rows are as they are here
  Scattered scattered(std::uint64_t row) const;

  // What happens to values; empty: nothing. Takes memory as the tensor's rows and columns, so the
  // tensor's shape is to be checked before. Throws ModelError on malformed multipliers.
  quant::RowChange change(const Config& config) const;

 private:
  std::uint64_t their_rows() const;  // of one matrix
  std::uint64_t their_columns() const;
  bool is_transposed() const;
  std::uint64_t row_of_matrix(std::uint64_t row) const;
  std::uint64_t their_value_head_row(std::uint64_t row, std::uint64_t rows) const;
  std::uint64_t their_key_head_row(std::uint64_t row) const;
  std::uint64_t their_grouped_row(std::uint64_t row) const;

  const Part& part_;
  Sizes sizes_;
  std::uint64_t columns_, rows_, count_;
  Form form_;
  bool is_of_many_;   // tensors of theirs
  bool takes_turns_;  // rows, from the halves of a head
  float added_;
};

}  // namespace sluice::convert
