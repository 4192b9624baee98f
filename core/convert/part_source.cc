#include "core/convert/part_source.h"

#include <cmath>
#include <string_view>
#include <utility>

namespace sluice::convert {

PartSource::PartSource(const Family& family, const Part& part, const Sizes& sizes,
                       bool is_of_blocks)
    : part_(part),
      sizes_(sizes),
      columns_(sizes.*part.columns),
      rows_(part.rows != nullptr ? sizes.*part.rows : 1),
      count_(part.count != nullptr ? sizes.*part.count : 1),
      form_(part.form == Form::transposed && is_of_blocks ? Form::same : part.form),
      is_of_many_(part.theirs.find("{}") != std::string_view::npos),
      takes_turns_(family.interleaves_heads &&
                   (part.order == Order::rotating_rows || part.order == Order::grouped_rows)),
      added_(family.norms_lack_one && part.change == Change::norm ? 1 : 0) {}

std::uint64_t PartSource::their_rows() const {
  return part_.all_rows != nullptr ? sizes_.*part_.all_rows : rows_;
}

std::uint64_t PartSource::their_columns() const {
  return part_.all_columns != nullptr ? sizes_.*part_.all_columns : columns_;
}

bool PartSource::is_transposed() const {
  return form_ == Form::transposed || form_ == Form::transposed_stacked;
}

std::uint64_t PartSource::rows_of_tensor() const {
  return is_of_many_ ? their_rows() : their_rows() * count_;
}

std::uint64_t PartSource::stored_rows() const {
  return part_.stored_rows != nullptr ? sizes_.*part_.stored_rows : rows_ * count_;
}

std::vector<std::uint64_t> PartSource::shape() const {
  const std::uint64_t rows = part_.stored_rows != nullptr ? stored_rows() : their_rows();
  const std::uint64_t columns = their_columns();
  const bool is_stack = part_.count != nullptr && !is_of_many_;
  if (form_ == Form::heads) return {columns / sizes_.head, sizes_.head};
  if (part_.rows == nullptr && is_stack) return {count_, columns};
  if (part_.rows == nullptr) return {columns};
  if (form_ == Form::flat) return {rows * columns};
  if (form_ == Form::stacked) return {count_ * rows, columns};
  if (form_ == Form::transposed) return {count_, columns, rows};
  if (form_ == Form::transposed_stacked) return {count_ * columns, rows};
  if (is_stack) return {count_, rows, columns};
  return {rows, columns};
}

std::vector<std::uint64_t> PartSource::dims() const {
  if (part_.count != nullptr) {
    if (part_.rows == nullptr) return {columns_, 1, 1, count_};
    return {columns_, rows_, count_};
  }
  if (part_.rows == nullptr) return {columns_};
  return {columns_, rows_};
}

std::uint64_t PartSource::their_row(std::uint64_t row) const {
  return row / rows_ * their_rows() + row_of_matrix(row % rows_);
}

std::uint64_t PartSource::row_of_matrix(std::uint64_t row) const {
  const bool is_value = part_.order == Order::grouped_rows &&
                        part_.first_row == &Sizes::queries_and_keys;  // which does not rotate
  if (takes_turns_ && !is_value) {  // row 2 j + a of a head is row j of its half a
    const std::uint64_t place = row % sizes_.head;
    row = row - place + place % 2 * (sizes_.head / 2) + place / 2;
  }
  if (part_.order == Order::value_head_rows) row = their_value_head_row(row, rows_);
  if (part_.order == Order::alternating_rows) row *= 2;
  if (part_.first_row != nullptr) row += sizes_.*part_.first_row;
  if (part_.order == Order::grouped_rows) return their_grouped_row(row);
  return part_.order == Order::key_head_rows ? their_key_head_row(row) : row;
}

// Key head k has the rows of its queries, then of its key and its value.
std::uint64_t PartSource::their_grouped_row(std::uint64_t row) const {
  const std::uint64_t queries = sizes_.query_heads / sizes_.key_heads;  // of a key head
  const std::uint64_t head = row / sizes_.head, place = row % sizes_.head;
  std::uint64_t key_head = head / queries, member = head % queries;
  if (head >= sizes_.query_heads) {
    const std::uint64_t behind = head - sizes_.query_heads;
    key_head = behind % sizes_.key_heads;
    member = queries + behind / sizes_.key_heads;
  }
  return (key_head * (queries + 2) + member) * sizes_.head + place;
}

std::uint64_t PartSource::values_of_part() const {
  if (is_transposed()) return their_rows() * their_columns();
  return part_.order == Order::alternating_columns ? their_columns() : 0;
}

PartSource::Scattered PartSource::scattered(std::uint64_t row) const {
  if (is_transposed()) return {row / rows_, row_of_matrix(row % rows_), their_rows()};
  return {row, part_.first_row != nullptr ? sizes_.*part_.first_row : 0, 2};
}

// Key head h has its queries and keys, and the values and gates of its value heads.
std::uint64_t PartSource::their_key_head_row(std::uint64_t row) const {
  const std::uint64_t keys = sizes_.groups * sizes_.state, size = sizes_.state;
  const std::uint64_t values = sizes_.inner / sizes_.groups;  // of one key head
  const std::uint64_t widths[] = {size, size, values, values};
  std::uint64_t before = 0;  // of a key head's rows
  for (std::uint64_t part = 0; part < 4; ++part) {
    const std::uint64_t rows = part < 2 ? keys : sizes_.inner, width = widths[part];
    if (row < rows) return row / width * 2 * (size + values) + before + row % width;
    row -= rows;
    before += width;
  }
  return row;
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
