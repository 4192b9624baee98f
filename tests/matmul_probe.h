// Matrix products on random weights, as tests/checkkernels.cc checks and times them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/dequantise.h"
#include "kernels/matmul.h"
#include "kernels/panel_packing.h"
#include "tests/kernel_probes.h"
#include "tests/kernels_support.h"

namespace sluice::test {

using kernels::BlockType;

struct MatmulShape {
  BlockType type;
  std::size_t rows, size, columns;
};

// How the bits of blocks are chosen. Sane ones have scales near 0.01 in all their half floats; so
// have the largest, whose integers are nearly all as far from zero as they can be.
enum class WeightBits { sane, largest, any };

inline std::vector<std::byte> random_weights(const MatmulShape& shape, WeightBits bits, Rng& rng) {
  const kernels::BlockTraits& t = kernels::traits(shape.type);
  std::vector<std::byte> bytes(shape.rows * kernels::row_bytes(shape.type, shape.size));
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
  if (bits == WeightBits::any) return bytes;
  if (bits == WeightBits::largest) {
    const std::byte end = rng() % 2 ? std::byte{0} : std::byte{0xff};
    for (std::byte& b : bytes) {
      if (rng() % 16 != 0) b = end;
    }
  }
  std::uniform_real_distribution<float> scale(0.005f, 0.02f);
  const auto set_half = [&](std::byte* at) {
    const std::uint16_t half = kernels::float_to_half(rng() % 2 ? scale(rng) : -scale(rng));
    std::memcpy(at, &half, sizeof half);
  };
  // The half of IQ1_M: four bits of it above the twelve lower ones of each of four words.
  const auto set_nibbles_of_half = [&](std::byte* at) {
    std::byte half[2];
    set_half(half);
    for (int i = 0; i < 4; ++i) {
      const std::byte nibble = i % 2 ? half[i / 2] & std::byte{0xf0} : half[i / 2] << 4;
      at[2 * i + 1] = (at[2 * i + 1] & std::byte{15}) | nibble;
    }
  };
  for (std::size_t at = 0; at < bytes.size(); at += t.bytes_per_block) {
    std::byte* block = bytes.data() + at;
    const float value = sample(Data::normal, rng);
    switch (shape.type) {
      case BlockType::f32:
        std::memcpy(block, &value, sizeof value);
        break;
      case BlockType::bf16:
        std::memcpy(block, reinterpret_cast<const std::byte*>(&value) + 2, 2);
        break;
      case BlockType::mxfp4:
        block[0] = static_cast<std::byte>(118 + rng() % 4);
        break;
      case BlockType::nvfp4:
        for (int i = 0; i < 4; ++i) block[i] = static_cast<std::byte>(rng() % 24);
        break;
      case BlockType::q4_1:
      case BlockType::q5_1:
      case BlockType::q4_k:
      case BlockType::q5_k:
        set_half(block);
        set_half(block + 2);
        break;
      case BlockType::q2_k:
        set_half(block + 80);
        set_half(block + 82);
        break;
      case BlockType::q3_k:
        set_half(block + 108);
        break;
      case BlockType::tq1_0:
      case BlockType::tq2_0:
      case BlockType::ptq1_0:
        set_half(block + t.bytes_per_block - 2);
        break;
      case BlockType::iq1_m:
        set_nibbles_of_half(block + 48);
        break;
      case BlockType::q6_k:
        if (bits == WeightBits::largest) std::memset(block + 192, rng() % 2 ? 0x7f : 0x80, 16);
        set_half(block + 208);
        break;
      default:
        set_half(block);
    }
  }
  return bytes;
}

class MatmulProbe : public Probe {
 public:
  MatmulProbe(const MatmulShape& shape, WeightBits bits, Data data, Rng& rng)
      : shape_(shape),
        bits_(bits),
        data_(data),
        row_bytes_(kernels::row_bytes(shape.type, shape.size)),
        weights_(random_weights(shape, bits, rng), 1),
        x_(shape.size, shape.columns, data, rng),
        y_stride_(shape.rows + 3),
        y_(shape.columns * y_stride_, 1),
        scratch_(kernels::MatmulScratch::bytes + 64) {}
  std::string name() const override {
    return "matmul " + std::string(kernels::traits(shape_.type).name) + ", " +
           std::to_string(shape_.rows) + " rows of " + std::to_string(shape_.size) + " times " +
           std::to_string(shape_.columns) + " columns " +
           (bits_ == WeightBits::any       ? "(random bits) "
            : bits_ == WeightBits::largest ? "(largest integers) "
                                           : "") +
           data_name(data_);
  }
  void run(const KernelTable& table) override {
    x_.quantise(table, kernels::traits(shape_.type).activation_form);
    multiply_rows(table, x_, 0, shape_.rows, y_.data());
  }
  std::vector<float> result() const override {
    std::vector<float> all;
    for (std::size_t c = 0; c < shape_.columns; ++c) {
      all.insert(all.end(), column(c), column(c) + shape_.rows);
    }
    return all;
  }
  double bytes() const override { return static_cast<double>(shape_.rows * row_bytes_); }
  double multiplications() const override {
    return static_cast<double>(shape_.rows * shape_.size * shape_.columns);
  }
  std::optional<std::string> flaw(const KernelTable& table) override {
    if (!y_.intact()) return "wrote outside its output";
    if (!same_rows_apart(table)) return "a part of the rows differs from the whole";
    if (!same_column_alone(table)) return "a column alone differs from the whole";
    if (!same_packed(table)) return "packed panels give another result";
    return bits_ == WeightBits::sane && data_ == Data::normal ? beyond_tolerance() : std::nullopt;
  }

 private:
  const float* column(std::size_t c) const { return y_.data() + c * y_stride_; }
  void multiply_rows(const KernelTable& table, const ActivationColumns& x, std::size_t first,
                     std::size_t rows, float* y) {
    kernels::WeightRows w{};
    w.type = shape_.type;
    w.data = weights_.data() + first * row_bytes_;
    w.rows = rows;
    w.columns = shape_.size;
    w.row_bytes = row_bytes_;
    table.matmul.multiply(w, x.get(), y, y_stride_, {ActivationColumns::aligned(scratch_.data())});
  }
  // The activation that the kernel multiplies with.
  double activation(std::size_t c, std::size_t k) const {
    switch (kernels::traits(shape_.type).activation_form) {
      case ActivationForm::f32:
        return x_.get().f32(c)[k];
      case ActivationForm::a256: {
        const kernels::ColumnA256 a = x_.get().a256(c);
        const kernels::BlockA256& block = a.blocks[k / 256 * a.stride];
        return static_cast<double>(block.d) * block.q[k % 256];
      }
      case ActivationForm::a32: {
        const kernels::ColumnA32 a = x_.get().a32(c);
        const kernels::BlockA32& block = a.blocks[k / 256 * a.stride];
        return static_cast<double>(block.d[k % 256 / 32]) * block.q[k % 256];
      }
    }
    return 0;
  }
  // Whether the last two thirds of the rows, computed alone, have the bits of the last run.
  bool same_rows_apart(const KernelTable& table) {
    const std::size_t first = shape_.rows / 3;
    std::vector<float> part(y_.size());
    multiply_rows(table, x_, first, shape_.rows - first, part.data());
    for (std::size_t c = 0; c < shape_.columns; ++c) {
      const float* found = part.data() + c * y_stride_;
      if (difference(found, column(c) + first, shape_.rows - first)) return false;
    }
    return true;
  }
  bool same_column_alone(const KernelTable& table) {
    const std::size_t c = shape_.columns / 2;
    const ActivationColumns x = x_.alone(c);
    x.quantise(table, kernels::traits(shape_.type).activation_form);
    std::vector<float> y(y_stride_);
    multiply_rows(table, x, 0, shape_.rows, y.data());
    return !difference(y.data(), column(c), shape_.rows);
  }
  // Packed panels of the same rows, without the last rows that make no panel; with all columns and
  // with one alone, whatever the policy is.
  bool same_packed(KernelTable table) {
    const std::size_t rows = shape_.rows / kernels::panel_rows * kernels::panel_rows;
    if (!table.matmul.reads_packed || !kernels::can_pack(rows)) return true;
    Guarded<std::byte> packed(std::vector<std::byte>(rows * row_bytes_), 1);
    kernels::pack_panels(shape_.type, rows, shape_.size, weights_.data(), packed.data());
    kernels::WeightRows w{shape_.type, packed.data(), rows, shape_.size, row_bytes_, true};
    std::vector<float> y(y_.size());
    const kernels::MatmulScratch scratch{ActivationColumns::aligned(scratch_.data())};
    const ActivationColumns x = x_.alone(0);
    x.quantise(table, kernels::traits(shape_.type).activation_form);
    for (const char* prefetch : {"2048:l1:4", "0:l1:1", "0:l2:4", "8192:l2:1", "700:l2:4"}) {
      kernels::CorePolicy& policy = table.matmul.policy;
      policy.prefetch = kernels::parse_prefetch(prefetch);
      policy.has_fast_dword_products = !policy.has_fast_dword_products;
      table.matmul.multiply(w, x_.get(), y.data(), y_stride_, scratch);
      for (std::size_t c = 0; c < shape_.columns; ++c) {
        if (difference(y.data() + c * y_stride_, column(c), rows)) return false;
      }
      table.matmul.multiply(w, x.get(), y.data(), y_stride_, scratch);
      if (difference(y.data(), column(0), rows)) return false;
    }
    return packed.intact();
  }
  std::optional<std::string> beyond_tolerance() const;

  MatmulShape shape_;
  WeightBits bits_;
  Data data_;
  std::size_t row_bytes_;
  Guarded<std::byte> weights_;
  ActivationColumns x_;
  std::size_t y_stride_;
  Guarded<float> y_;
  std::vector<std::byte> scratch_;
};

// Against the sum in double. What is added has at most the size 4 max|w| |x|, with the maximum over
// 32 weights: a weight is the difference of two such terms. The longest chain of roundings is that
// of four partial sums over k for float, and of the sub-blocks of 16 or 32 for integers.
inline std::optional<std::string> MatmulProbe::beyond_tolerance() const {
  const bool integer = kernels::traits(shape_.type).activation_form != ActivationForm::f32;
  const double roundings = static_cast<double>(shape_.size) / (integer ? 12 : 4) + 16;
  std::vector<float> w(shape_.size);
  for (std::size_t r = 0; r < shape_.rows; ++r) {
    kernels::dequantise(shape_.type, weights_.data() + r * row_bytes_, shape_.size, w.data());
    for (std::size_t c = 0; c < shape_.columns; ++c) {
      double sum = 0, magnitude = 0, largest = 0;
      for (std::size_t k = 0; k < shape_.size; ++k) {
        if (k % 32 == 0) {
          largest = 0;
          for (std::size_t i = k; i < std::min(k + 32, shape_.size); ++i) {
            largest = std::max(largest, std::abs(static_cast<double>(w[i])));
          }
        }
        const double x = activation(c, k);
        sum += w[k] * x;
        magnitude += 4 * largest * std::abs(x);
      }
      const double error = std::abs(column(c)[r] - sum);
      if (!(error <= epsilon * roundings * magnitude)) {
        return "row " + std::to_string(r) + ", column " + std::to_string(c) + " is " +
               std::to_string(column(c)[r]) + ", in double " + std::to_string(sum);
      }
    }
  }
  return std::nullopt;
}

}  // namespace sluice::test
