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
  // Of a layer with these sizes. Refers to `part`.
  PartSource(const Family& family, const Part& part, const Sizes& sizes);

  std::vector<std::uint64_t> shape() const;  // theirs, the contiguous dimension last
  std::vector<std::uint64_t> dims() const;   // ours, the contiguous dimension first

  // Where row `row` of ours is among theirs.
  std::uint64_t their_row(std::uint64_t row) const;

  // What happens to values; empty: nothing. Takes memory as the tensor's rows and columns, so the
  // tensor's shape is to be checked before. Throws ModelError on malformed multipliers.
  quant::RowChange change(const Config& config) const;

 private:
  std::uint64_t their_value_head_row(std::uint64_t row, std::uint64_t rows) const;

  const Part& part_;
  Sizes sizes_;
  std::uint64_t columns_, rows_;
  bool takes_turns_;  // rows, from the halves of a head
  float added_;
};

}  // namespace sluice::convert
