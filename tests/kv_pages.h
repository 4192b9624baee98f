// Rows of keys or values of one head in memory, as attention reads them: for the tests of kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/attention.h"
#include "kernels/dequantise.h"
#include "kernels/kv_rows.h"
#include "tests/kernels_support.h"

namespace sluice::test {

// How far elements of a query are at most from the words of 16 bits that stand for them.
// `middle`: where the second scale of a row begins.
inline std::vector<double> word_rounding(const float* query, std::size_t size, std::size_t middle) {
  std::vector<double> rounding(size);
  for (const auto& [begin, end] : {std::pair(std::size_t{0}, middle), {middle, size}}) {
    double top = 0;
    for (std::size_t i = begin; i < end; ++i) top = std::max<double>(top, std::abs(query[i]));
    for (std::size_t i = begin; i < end; ++i) rounding[i] = 0.51 * top / 32639;
  }
  return rounding;
}

enum class KvElement { f32, f16, int8 };

inline const char* kv_element_name(KvElement element) {
  constexpr const char* names[] = {"f32", "f16", "int8"};
  return names[static_cast<std::size_t>(element)];
}

inline auto attention_kernel(const kernels::AttentionKernels& table, KvElement element) {
  if (element == KvElement::f32) return table.f32;
  return element == KvElement::f16 ? table.f16 : table.int8;
}

// Quantised by the scalar tier. int8 rows lie in pages, of which the first begins with `offset`
// positions that nobody may look at, like those after the last row: they hold anything.
class KvPages {
 public:
  enum class Kind { keys, values };

  // `value_dim`: of keys whose first elements are the values; 0: they hold none.
  KvPages(Kind kind, const std::vector<float>& rows, std::size_t dim, KvElement element,
          std::size_t offset, Rng& rng, std::size_t value_dim = 0)
      : element_(element),
        dim_(dim),
        middle_(value_dim != 0 ? value_dim : kernels::first_half(dim)),
        floats_(rows, 3),
        halves_(rows.size(), 5) {
    const kernels::KernelTable& scalar = kernels::kernel_table(kernels::Isa::scalar);
    if (element == KvElement::f16) {
      scalar.attention.f32_to_f16(rows.data(), rows.size(), halves_.data());
      for (std::size_t i = 0; i < rows.size(); ++i) {
        floats_.data()[i] = kernels::half_to_float(halves_.data()[i]);
      }
    }
    if (element != KvElement::int8) return;
    offset_ = offset;
    page_bytes_ =
        kind == Kind::keys ? kernels::key_page_bytes(dim) : kernels::value_page_bytes(dim);
    const std::size_t count = rows.size() / dim;
    const std::size_t pages = (offset + count + page - 1) / page;
    bytes_.resize(pages * page_bytes_);
    scales_.resize(pages * 2 * page);
    for (std::int8_t& byte : bytes_) byte = static_cast<std::int8_t>(rng());
    for (std::uint16_t& scale : scales_) scale = static_cast<std::uint16_t>(rng());
    for (std::size_t r = 0; r < count; ++r) {
      const std::size_t at = offset + r, in_page = at % page;
      std::int8_t* const row_page = bytes_.data() + at / page * page_bytes_;
      std::uint16_t* const row_scales = scales_.data() + at / page * 2 * page + in_page;
      const kernels::RowPlace place = kind == Kind::values ? kernels::value_place(dim, in_page)
                                      : value_dim == 0
                                          ? kernels::key_place(dim, in_page)
                                          : kernels::parted_key_place(middle_, in_page);
      scalar.kv_rows.quantise(rows.data() + r * dim, dim, row_page, place, row_scales, page);
      kernels::dequantise_row(row_page, place, dim, row_scales, page, floats_.data() + r * dim);
    }
  }

  // Element i of a row, as the number that it stands for.
  float number(std::size_t row, std::size_t i) const { return floats_.data()[row * dim_ + i]; }
  // The difference between neighbours of it, of a long int8 row.
  float step(std::size_t row, std::size_t i) const {
    const std::size_t half = i < middle_ ? 0 : 1;
    return kernels::half_to_float(scales(row)[half * page + first(row)]);
  }

  std::size_t middle() const { return middle_; }

  // For a run that begins with a row: its page, and where in it the row lies.
  const void* rows(std::size_t row) const {
    if (element_ == KvElement::f32) return floats_.data();
    if (element_ == KvElement::f16) return halves_.data();
    return bytes_.data() + (offset_ + row) / page * page_bytes_;
  }
  const std::uint16_t* scales(std::size_t row) const {
    return element_ == KvElement::int8 ? scales_.data() + (offset_ + row) / page * 2 * page
                                       : nullptr;
  }
  std::size_t first(std::size_t row) const {
    return element_ == KvElement::int8 ? (offset_ + row) % page : row;
  }
  // The most rows of that run.
  std::size_t run_max(std::size_t row) const {
    return element_ == KvElement::int8 ? page - first(row) : kernels::attention_run_max;
  }
  std::size_t bytes() const {
    return element_ == KvElement::int8 ? bytes_.size()
                                       : floats_.size() * (element_ == KvElement::f32 ? 4 : 2);
  }

  static constexpr std::size_t page = kernels::kv_page_positions;

 private:
  KvElement element_;
  std::size_t dim_, middle_, offset_ = 0, page_bytes_ = 0;
  Guarded<float> floats_;
  Guarded<std::uint16_t> halves_;
  std::vector<std::int8_t> bytes_;
  std::vector<std::uint16_t> scales_;
};

// Rows [row, row + positions) with the queries that look at them.
inline kernels::AttentionRun run_of(const KvPages& keys, const KvPages& values, std::size_t row,
                                    std::size_t positions, const float* queries) {
  return {keys.rows(row),  values.rows(row), keys.scales(row), values.scales(row),
          keys.first(row), positions,        queries};
}

}  // namespace sluice::test
