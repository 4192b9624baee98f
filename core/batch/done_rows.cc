#include "core/batch/done_rows.h"

#include <utility>

namespace sluice::batch {

DoneRows::DoneRows(std::uint64_t input_rows, const Shard& shard, std::span<const ResultFacts> found,
                   ErrorExamples examples)
    : shard_(shard),
      rows_(shard.size(input_rows)),
      is_done_(input_rows, false),
      examples_(std::move(examples)) {
  for (const ResultFacts& facts : found) {
    if (facts.row <= input_rows && shard.has(facts.row)) add(facts);
  }
}

void DoneRows::add(const ResultFacts& facts, std::string_view message) {
  if (is_done_[facts.row - 1]) return;
  is_done_[facts.row - 1] = true;
  ++count_;
  cut_ += facts.is_cut ? 1 : 0;
  if (!facts.is_error) return;
  ++errors_;
  ++by_code_[facts.code];
  ErrorExample& example = examples_[facts.code];
  if (example.row == 0) example = {facts.row, std::string(message)};
}

}  // namespace sluice::batch
