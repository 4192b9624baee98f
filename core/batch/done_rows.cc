#include "core/batch/done_rows.h"

namespace sluice::batch {

DoneRows::DoneRows(std::uint64_t input_rows, const Shard& shard, std::span<const ResultFacts> found)
    : shard_(shard), rows_(shard.size(input_rows)), is_done_(input_rows, false) {
  for (const ResultFacts& facts : found) {
    if (facts.row <= input_rows && shard.has(facts.row)) add(facts.row, facts.is_error);
  }
}

void DoneRows::add(std::uint64_t row, bool is_error) {
  if (is_done_[row - 1]) return;
  is_done_[row - 1] = true;
  ++count_;
  errors_ += is_error ? 1 : 0;
}

}  // namespace sluice::batch
