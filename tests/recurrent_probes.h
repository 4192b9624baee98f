// The kernels of recurrent layers, as tests/checkkernels.cc checks and times them.
#pragma once

#include <string>
#include <vector>

#include "tests/kernel_probes.h"
#include "tests/recurrent_support.h"

namespace sluice::test {

class ConvolutionProbe : public Probe {
 public:
  ConvolutionProbe(std::size_t positions, std::size_t channels, std::size_t taps, Data data,
                   Rng& rng)
      : case_(positions, channels, taps, data, rng), data_(data) {}
  std::string name() const override { return case_.name() + " " + data_name(data_); }
  void run(const KernelTable& table) override { result_ = case_.run(table.convolution); }
  std::vector<float> result() const override { return result_; }
  double bytes() const override { return static_cast<double>(case_.x.size() * sizeof(float)); }
  double multiplications() const override {
    return static_cast<double>(case_.positions * case_.channels * case_.tap_count);
  }

 private:
  ConvolutionCase case_;
  Data data_;
  std::vector<float> result_;
};

class RecurrenceProbe : public Probe {
 public:
  RecurrenceProbe(Rule rule, std::size_t positions, std::size_t key_dim, std::size_t value_dim,
                  Data data, Rng& rng)
      : case_(rule, positions, key_dim, value_dim, data, rng), data_(data) {}
  std::string name() const override { return case_.name() + " " + data_name(data_); }
  void run(const KernelTable& table) override { result_ = case_.run(table.recurrence); }
  std::vector<float> result() const override { return result_; }
  double bytes() const override { return static_cast<double>(case_.state.size() * sizeof(float)); }
  double multiplications() const override {
    const double of_element = case_.rule == Rule::scan ? 2 : 3;
    return of_element * static_cast<double>(case_.state.size() * case_.positions);
  }

 private:
  RecurrenceCase case_;
  Data data_;
  std::vector<float> result_;
};

}  // namespace sluice::test
