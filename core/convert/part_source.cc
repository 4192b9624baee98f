#include "core/convert/part_source.h"

#include <cmath>
#include <utility>

namespace sluice::convert {

PartSource::PartSource(const Family& family, const Part& part, const Sizes& sizes)
    : part_(part),
      sizes_(sizes),
      columns_(sizes.*part.columns),
      rows_(part.rows != nullptr ? sizes.*part.rows : 1),
      takes_turns_(family.interleaves_heads && part.order == Order::rotating_rows),
      added_(family.norms_lack_one && part.change == Change::norm ? 1 : 0) {}

std::vector<std::uint64_t> PartSource::shape() const {
  const std::uint64_t rows = part_.all_rows != nullptr ? sizes_.*part_.all_rows : rows_;
  if (part_.rows == nullptr) return {columns_};
  if (part_.form == Form::flat) return {rows * columns_};
  if (part_.form == Form::separate_columns) return {rows, 1, columns_};
  return {rows, columns_};
}

std::vector<std::uint64_t> PartSource::dims() const {
  if (part_.rows == nullptr) return {columns_};
  return {columns_, rows_};
}

std::uint64_t PartSource::their_row(std::uint64_t row) const {
  if (takes_turns_) {  // row 2 j + a of a head is row j of its half a
    const std::uint64_t place = row % sizes_.head;
    row = row - place + place % 2 * (sizes_.head / 2) + place / 2;
  }
  if (part_.order == Order::value_head_rows) row = their_value_head_row(row, rows_);
  return part_.first_row != nullptr ? row + sizes_.*part_.first_row : row;
}

// The value heads of key head g are g, g + groups, ... here; there they follow each other.
std::uint64_t PartSource::their_value_head_row(std::uint64_t row, std::uint64_t rows) const {
  const std::uint64_t heads = sizes_.recurrent_heads, unit = sizes_.*part_.unit;
  const std::uint64_t first = rows - heads * unit;
  if (row < first) return row;
  const std::uint64_t head = (row - first) / unit, place = (row - first) % unit;
  const std::uint64_t theirs =
      head % sizes_.groups * (heads / sizes_.groups) + head / sizes_.groups;
  return first + theirs * unit + place;
}

quant::RowChange PartSource::change(const Config& config) const {
  std::vector<std::uint64_t> columns;
  if (part_.order == Order::value_head_columns) {
    for (std::uint64_t i = 0; i < columns_; ++i) {
      columns.push_back(their_value_head_row(i, columns_));
    }
  }
  std::vector<float> scales;
  if (part_.scales != nullptr) scales = part_.scales(config, sizes_);
  const bool decays = part_.change == Change::decay;
  if (columns.empty() && scales.empty() && !decays && added_ == 0) return {};
  return [columns = std::move(columns), scales = std::move(scales), decays, added = added_](
             std::uint64_t row, std::span<float> values) {
    if (!columns.empty()) {
      const std::vector<float> theirs(values.begin(), values.end());
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = theirs[columns[i]];
    }
    const float scale = scales.empty() ? 1 : scales[scales.size() > 1 ? row : 0];
    for (float& value : values) {
      if (decays) value = -std::exp(value);
      value = value * scale + added;
    }
  };
}

}  // namespace sluice::convert
