// Operations of the kernel table on random data, as tests/checkkernels.cc checks and times them:
// vector operations, quantisation and attention. Matrix products are in matmul_probe.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/dequantise.h"
#include "kernels/kernel_table.h"
#include "tests/kernels_support.h"
#include "tests/kv_pages.h"

namespace sluice::test {

using kernels::ActivationForm;
using kernels::KernelTable;

// One operation on data of its own, to be run with the kernels of any tier.
class Probe {
 public:
  virtual ~Probe() = default;
  virtual std::string name() const = 0;                 // operation, type and size
  virtual void run(const KernelTable& table) = 0;       // what is timed
  virtual std::vector<float> result() const = 0;        // of the last run
  virtual double bytes() const = 0;                     // read by one run
  virtual double multiplications() const { return 0; }  // multiply-adds of one run
  // What is wrong with the last result, for operations that have an oracle of their own.
  virtual std::optional<std::string> flaw(const KernelTable&) { return std::nullopt; }
};

using VectorRun = void (*)(const kernels::VectorOps&, const float* x, float* y, std::size_t size);

// x and y have `size` elements; the result is left in y. Cosines and sines need not be of any angle
// for this.
struct VectorOperation {
  const char* name;
  VectorRun run;
};

inline constexpr VectorOperation vector_operations[] = {
    {"rms_norm", [](auto& o, auto* x, auto* y, auto n) { o.rms_norm(x, y, 1e-5f, n, y); }},
    {"rms_norm without weight",
     [](auto& o, auto* x, auto* y, auto n) { o.rms_norm(x, nullptr, 1e-6f, n, y); }},
    {"layer_norm", [](auto& o, auto* x, auto* y, auto n) { o.layer_norm(x, y, x, 1e-5f, n, y); }},
    {"layer_norm without bias",
     [](auto& o, auto* x, auto* y, auto n) { o.layer_norm(y, x, nullptr, 1e-5f, n, y); }},
    {"l2_norm", [](auto& o, auto* x, auto* y, auto n) { o.l2_norm(x, 1e-6f, 0.3f, n, y); }},
    {"rope_norm", [](auto& o, auto* x, auto* y, auto n) { o.rope_norm(y, x, x + n / 2, n / 2); }},
    {"rope_neox", [](auto& o, auto* x, auto* y, auto n) { o.rope_neox(y, x, x + n / 2, n / 2); }},
    {"softmax", [](auto& o, auto*, auto* y, auto n) { o.softmax(y, n); }},
    {"swiglu", [](auto& o, auto* x, auto* y, auto n) { o.swiglu(x, y, n, y); }},
    {"clamped_swiglu",
     [](auto& o, auto* x, auto* y, auto n) { o.clamped_swiglu(x, y, 1.702f, 7, n, y); }},
    {"geglu", [](auto& o, auto* x, auto* y, auto n) { o.geglu(x, y, n, y); }},
    {"reglu", [](auto& o, auto* x, auto* y, auto n) { o.reglu(x, y, n, y); }},
    {"limited_swiglu",
     [](auto& o, auto* x, auto* y, auto n) { o.limited_swiglu(x, y, 0.7f, n, y); }},
    {"add", [](auto& o, auto* x, auto* y, auto n) { o.add(x, n, y); }},
    {"add_scaled", [](auto& o, auto* x, auto* y, auto n) { o.add_scaled(x, 0.22f, n, y); }},
    {"multiply", [](auto& o, auto* x, auto* y, auto n) { o.multiply(x, n, y); }},
    {"multiply_by_sigmoid",
     [](auto& o, auto* x, auto* y, auto n) { o.multiply_by_sigmoid(x, n, y); }},
    {"scale", [](auto& o, auto*, auto* y, auto n) { o.scale(y, n, 0.22f); }},
    {"softcap", [](auto& o, auto*, auto* y, auto n) { o.softcap(y, n, 30); }},
    {"exp", [](auto& o, auto*, auto* y, auto n) { o.exp(y, n); }},
    {"sigmoid", [](auto& o, auto*, auto* y, auto n) { o.sigmoid(y, n); }},
    {"softplus", [](auto& o, auto*, auto* y, auto n) { o.softplus(y, n); }},
    {"relu_squared", [](auto& o, auto*, auto* y, auto n) { o.relu_squared(y, n); }},
    {"gelu", [](auto& o, auto*, auto* y, auto n) { o.gelu(y, n); }},
    {"xielu",
     [](auto& o, auto*, auto* y, auto n) {
       o.xielu(y, n, {0.8f, 0.9f, 0.5f, -1e-6f});
     }},
};

class VectorProbe : public Probe {
 public:
  VectorProbe(const VectorOperation& operation, std::size_t size, Data data, Rng& rng)
      : operation_(operation),
        data_(data),
        x_(random_floats(size, data, rng), rng() % 8),
        y_(random_floats(size, data, rng), rng() % 8),
        out_(y_) {}
  std::string name() const override {
    return std::string(operation_.name) + ", " + std::to_string(x_.size()) + " " + data_name(data_);
  }
  void run(const KernelTable& table) override {
    std::copy(y_.data(), y_.data() + y_.size(), out_.data());
    operation_.run(table.vector_ops, x_.data(), out_.data(), x_.size());
  }
  std::vector<float> result() const override { return {out_.data(), out_.data() + out_.size()}; }
  double bytes() const override { return static_cast<double>(x_.size()) * 2 * sizeof(float); }
  std::optional<std::string> flaw(const KernelTable&) override {
    return out_.intact() ? std::nullopt : std::optional<std::string>("wrote outside its output");
  }

 private:
  VectorOperation operation_;
  Data data_;
  Guarded<float> x_, y_, out_;
};

// Columns of activations in a buffer of their own.
class ActivationColumns {
 public:
  ActivationColumns(std::size_t size, std::size_t columns, Data data, Rng& rng)
      : ActivationColumns(size, columns, random_floats(size * columns, data, rng)) {}
  ActivationColumns(std::size_t size, std::size_t columns, std::vector<float> x)
      : x_(std::move(x)),
        storage_(kernels::Activations::buffer_bytes(size, columns) + 64),
        activations_(x_.data(), size, size, columns, aligned(storage_.data())) {}
  void quantise(const KernelTable& table, ActivationForm form) const {
    for (std::size_t c = 0; c < activations_.columns(); ++c) {
      activations_.quantise(table.quantise, form, c);
    }
  }
  const kernels::Activations& get() const { return activations_; }
  // Column c on its own, not yet quantised.
  ActivationColumns alone(std::size_t c) const {
    const float* x = activations_.f32(c);
    return {activations_.size(), 1, std::vector<float>(x, x + activations_.size())};
  }
  // The first address from p on that is a multiple of 64.
  static std::byte* aligned(std::byte* p) {
    const auto address = reinterpret_cast<std::uintptr_t>(p);
    return p + (64 - address % 64) % 64;
  }

 private:
  std::vector<float> x_;
  std::vector<std::byte> storage_;
  kernels::Activations activations_;
};

class QuantiseProbe : public Probe {
 public:
  QuantiseProbe(ActivationForm form, std::size_t size, Data data, Rng& rng)
      : form_(form), size_(size), data_(data), columns_(size, 1, data, rng) {}
  std::string name() const override {
    return std::string("quantise ") + (form_ == ActivationForm::a256 ? "a256" : "a32") + ", " +
           std::to_string(size_) + " " + data_name(data_);
  }
  void run(const KernelTable& table) override { columns_.quantise(table, form_); }
  std::vector<float> result() const override {
    std::vector<float> all;
    const auto append = [&all](const auto* values, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) all.push_back(static_cast<float>(values[i]));
    };
    for (std::size_t at = 0; at < size_; at += 256) {
      const std::size_t count = std::min<std::size_t>(size_ - at, 256);
      if (form_ == ActivationForm::a256) {
        const kernels::ColumnA256 c = columns_.get().a256(0);
        const kernels::BlockA256& block = c.blocks[at / 256 * c.stride];
        append(block.q, count);
        append(&block.d, 1);
        append(block.sums_of_32, count / 32);
        append(block.minus_32_sums_of_16, count / 16);
      } else {
        const kernels::ColumnA32 c = columns_.get().a32(0);
        const kernels::BlockA32& block = c.blocks[at / 256 * c.stride];
        append(block.q, count);
        append(block.d, count / 32);
        append(block.d_sums, count / 32);
        append(block.minus_8_sums, count / 32);
        append(block.minus_16_sums, count / 32);
        append(block.minus_128_sums, count / 32);
      }
    }
    return all;
  }
  double bytes() const override { return static_cast<double>(size_ * sizeof(float)); }

 private:
  ActivationForm form_;
  std::size_t size_;
  Data data_;
  ActivationColumns columns_;
};

class KvRowProbe : public Probe {
 public:
  KvRowProbe(std::size_t size, Data data, Rng& rng)
      : data_(data),
        x_(random_floats(size, data, rng), rng() % 8),
        transformed_(size, 3),
        q_(size, rng() % 8),
        scales_(2, 1) {}
  std::string name() const override {
    return "row of keys or values, " + std::to_string(x_.size()) + " " + data_name(data_);
  }
  void run(const KernelTable& table) override {
    std::copy(x_.data(), x_.data() + x_.size(), transformed_.data());
    table.kv_rows.hadamard(transformed_.data(), transformed_.size());
    table.kv_rows.quantise(transformed_.data(), transformed_.size(), q_.data(),
                           kernels::contiguous_place(transformed_.size()), scales_.data(), 1);
  }
  std::vector<float> result() const override {
    std::vector<float> all(transformed_.data(), transformed_.data() + transformed_.size());
    for (std::size_t i = 0; i < q_.size(); ++i) all.push_back(q_.data()[i]);
    for (int i = 0; i < 2; ++i) all.push_back(kernels::half_to_float(scales_.data()[i]));
    return all;
  }
  double bytes() const override { return static_cast<double>(x_.size() * sizeof(float)); }
  std::optional<std::string> flaw(const KernelTable&) override {
    const bool intact = transformed_.intact() && q_.intact() && scales_.intact();
    return intact ? std::nullopt : std::optional<std::string>("wrote outside its output");
  }

 private:
  Data data_;
  Guarded<float> x_, transformed_;
  Guarded<std::int8_t> q_;
  Guarded<std::uint16_t> scales_;
};

// Attention of some tokens over pages of 32 positions.
class AttentionProbe : public Probe {
 public:
  AttentionProbe(KvElement element, std::size_t heads, std::size_t dim, std::size_t positions,
                 Data data, Rng& rng, std::size_t columns = 1)
      : element_(element),
        data_(data),
        queries_(random_floats(columns * heads * dim, data, rng)),
        keys_(KvPages::Kind::keys, random_floats(positions * dim, data, rng), dim, element, 0, rng),
        values_(KvPages::Kind::values, random_floats(positions * dim, data, rng), dim, element, 0,
                rng),
        out_(columns * heads * dim) {
    for (std::size_t at = 0; at < positions; at += KvPages::page) {
      runs_.push_back(
          run_of(keys_, values_, at, std::min(KvPages::page, positions - at), queries_.data()));
    }
    args_.runs = runs_.data();
    args_.run_count = runs_.size();
    args_.positions = positions;
    args_.scale_stride = KvPages::page;
    args_.columns = columns;
    args_.query_heads = heads;
    args_.query_stride = args_.out_stride = heads * dim;
    args_.head_dim = args_.value_dim = dim;
    args_.scale = 1 / std::sqrt(static_cast<float>(dim));
    args_.softcap = rng() % 4 == 0 ? 50.0f : 0.0f;
    args_.score_stride = kernels::attention_scratch(positions, runs_.size(), dim);
    scores_.resize(columns * heads * args_.score_stride);
    args_.scores = scores_.data();
    args_.out = out_.data();
  }
  std::string name() const override {
    return std::string("attention ") + kv_element_name(element_) + ", " +
           std::to_string(args_.query_heads) + " heads of " + std::to_string(args_.head_dim) +
           ", " + std::to_string(args_.positions) + " positions " + data_name(data_);
  }
  void run(const KernelTable& table) override {
    attention_kernel(table.attention, element_)(args_);
  }
  std::vector<float> result() const override { return out_; }
  double bytes() const override { return static_cast<double>(keys_.bytes() + values_.bytes()); }
  double multiplications() const override {
    // The last token sees all positions, and each token before it one less.
    const std::size_t pairs =
        args_.columns * args_.positions - args_.columns * (args_.columns - 1) / 2;
    return 2 * static_cast<double>(pairs * args_.head_dim * args_.query_heads);
  }

 private:
  KvElement element_;
  Data data_;
  std::vector<float> queries_;
  KvPages keys_, values_;
  std::vector<kernels::AttentionRun> runs_;
  std::vector<float> scores_, out_;
  kernels::AttentionArgs args_{};
};

}  // namespace sluice::test
