// The kernels of recurrent layers: close to their definitions in double arithmetic, and the same
// bits on every tier, however a sequence is cut into calls.
#include <cmath>

#include "tests/catch.h"
#include "tests/recurrent_support.h"

namespace sluice::test {
namespace {

bool gaps_are_intact(const std::vector<float>& rows, std::size_t row_count, std::size_t size,
                     std::size_t gap) {
  for (std::size_t r = 0; r < row_count; ++r) {
    for (std::size_t i = size; i < size + gap; ++i) {
      if (rows[r * (size + gap) + i] != untouched) return false;
    }
  }
  return true;
}

// --- Convolution ---------------------------------------------------------------------------------

std::vector<ConvolutionCase> convolution_cases(Data data, Rng& rng) {
  std::vector<ConvolutionCase> cases;
  for (const std::size_t channels : {1, 15, 16, 17, 64, 255, 256, 257, 300, 530}) {
    for (std::size_t taps = 1; taps <= kernels::convolution_taps_max; ++taps) {
      cases.emplace_back(1 + rng() % 12, channels, taps, data, rng);
    }
  }
  return cases;
}

TEST_CASE("the convolution against double") {
  Rng rng(61);
  for (const ConvolutionCase& c : convolution_cases(Data::normal, rng)) {
    const std::size_t stride = c.channels + c.gap, rows = c.tap_count - 1 + c.positions;
    const std::vector<float> found = c.run(kernels::kernel_table().convolution);
    std::vector<float> inputs = c.tail;
    inputs.insert(inputs.end(), c.x.begin(), c.x.end());
    INFO(c.name());
    for (std::size_t p = 0; p < c.positions; ++p) {
      std::vector<double> expected(c.channels), tolerance(c.channels);
      for (std::size_t i = 0; i < c.channels; ++i) {
        double sum = c.has_bias ? c.bias[i] : 0, size = std::abs(sum);
        for (std::size_t j = 0; j < c.tap_count; ++j) {
          const double product =
              static_cast<double>(c.taps[i * c.tap_count + j]) * inputs[(p + j) * stride + i];
          sum += product;
          size += std::abs(product);
        }
        expected[i] = c.has_silu ? sum / (1 + std::exp(-sum)) : sum;
        // The slope of silu is at most 1.1; where exp overflows, the result is 0.
        tolerance[i] = epsilon * size * static_cast<double>(c.tap_count + 6) + 1e-36;
      }
      CHECK(beyond(found.data() + p * stride, expected, tolerance).value_or("") == "");
    }
    const std::vector<float> tail(found.begin() + static_cast<std::ptrdiff_t>(c.positions * stride),
                                  found.end());
    const std::vector<float> last(inputs.end() - static_cast<std::ptrdiff_t>(tail.size()),
                                  inputs.end());
    CHECK(tail == last);
    CHECK(gaps_are_intact(found, rows, c.channels, c.gap));
  }
}

TEST_CASE("the convolution has the same bits on every tier, for every cut") {
  Rng rng(62);
  const auto& scalar = kernels::kernel_table(kernels::Isa::scalar).convolution;
  for (const Data data : all_data) {
    for (const ConvolutionCase& c : convolution_cases(data, rng)) {
      const std::vector<float> expected = c.run(scalar);
      for (const kernels::Isa isa : all_tiers()) {
        const auto& kernels = kernels::kernel_table(isa).convolution;
        INFO(c.name() << " in " << kernels::isa_name(isa) << " on " << data_name(data));
        for (const std::size_t cut : {c.positions, std::size_t{7}, std::size_t{1}}) {
          for (const std::size_t part : {c.channels, std::size_t{100}}) {
            const std::vector<float> found = c.run(kernels, cut, part);
            CHECK(difference(found.data(), expected.data(), found.size()).value_or("") == "");
          }
        }
      }
    }
  }
}

// --- Recurrence ----------------------------------------------------------------------------------

// Around the borders of slices, of several slices at once, and of the largest key that four have.
std::vector<RecurrenceCase> recurrence_cases(Data data, Rng& rng) {
  std::vector<RecurrenceCase> cases;
  for (const Rule rule : all_rules) {
    for (const std::size_t value_dim : {1, 15, 16, 17, 32, 33, 64, 80, 97, 128}) {
      for (const std::size_t key_dim : {1, 16, 33, 128, 130}) {
        cases.emplace_back(rule, 1 + rng() % 20, key_dim, value_dim, data, rng);
      }
    }
  }
  return cases;
}

// S as [key][value], from slices.
std::vector<double> matrix_of(const float* state, std::size_t key_dim, std::size_t value_dim) {
  std::vector<double> matrix(key_dim * value_dim);
  for (std::size_t i = 0; i < key_dim; ++i) {
    for (std::size_t j = 0; j < value_dim; ++j) {
      matrix[i * value_dim + j] = state[(j / 16 * key_dim + i) * 16 + j % 16];
    }
  }
  return matrix;
}

// S^T x.
std::vector<double> read_out(const std::vector<double>& matrix, const float* x, std::size_t key_dim,
                             std::size_t value_dim) {
  std::vector<double> out(value_dim);
  for (std::size_t i = 0; i < key_dim; ++i) {
    for (std::size_t j = 0; j < value_dim; ++j) out[j] += matrix[i * value_dim + j] * x[i];
  }
  return out;
}

double length(const float* x, std::size_t size) {
  double squares = 0;
  for (std::size_t i = 0; i < size; ++i) squares += static_cast<double>(x[i]) * x[i];
  return std::sqrt(squares);
}

// Of each column.
std::vector<double> lengths(const std::vector<double>& matrix, std::size_t columns) {
  std::vector<double> squares(columns);
  for (std::size_t i = 0; i < matrix.size(); ++i) squares[i % columns] += matrix[i] * matrix[i];
  for (double& each : squares) each = std::sqrt(each);
  return squares;
}

// The definition, step by step. The error of a column of S is bounded by its length: a step shrinks
// it by the decay (the keys have length 1, and rates are in 0..1), the removal of a second key can
// add as much of it as that key is scaled by, and a step adds the roundings of what it sums.
void check_against_double(const RecurrenceCase& c, const std::vector<float>& found) {
  const std::size_t kd = c.key_dim, vd = c.value_dim, stride = vd + c.gap;
  const double roundings = epsilon * static_cast<double>(kd + 12);
  std::vector<double> matrix = matrix_of(c.state.data(), kd, vd), errors(vd);
  for (std::size_t p = 0; p < c.positions; ++p) {
    const float* key = c.keys.data() + p * (kd + c.gap);
    const float* query = c.queries.data() + p * (kd + c.gap);
    const float* value = c.values.data() + p * stride;
    const float* removed = c.removed_keys.data() + p * (kd + c.gap);
    const float* decays = c.decays.data() + p * c.decay_stride;
    const float* rates = c.rates.data() + p * c.rate_stride;
    const bool is_delta = c.rule == Rule::delta || c.rule == Rule::row_decay;
    const auto decay_of = [&](std::size_t i, std::size_t j) {
      if (c.rule != Rule::channels) return static_cast<double>(decays[c.has_row_decays() ? i : 0]);
      return std::exp(static_cast<double>(rates[j]) * c.logs[j * kd + i]);
    };
    const auto rate_of = [&](std::size_t j) {
      if (c.rule == Rule::removal) return 1.0;
      return static_cast<double>(rates[c.rule == Rule::channels ? j : 0]);
    };
    std::vector<float> scaled(kd);  // the removed key with its rates
    for (std::size_t i = 0; i < kd && c.rule == Rule::removal; ++i) {
      scaled[i] = removed[i] * c.removal_rates[p * (kd + c.gap) + i];
    }
    const double removal = length(scaled.data(), kd);
    const std::vector<double> before = lengths(matrix, vd);
    const std::vector<double> taken = read_out(matrix, removed, kd, vd);
    double decay = 0;  // the largest
    for (std::size_t i = 0; i < matrix.size(); ++i) {
      decay = std::max(decay, decay_of(i / vd, i % vd));
      matrix[i] *= decay_of(i / vd, i % vd);
    }
    const std::vector<double> held = read_out(matrix, key, kd, vd);
    for (std::size_t i = 0; i < kd; ++i) {
      for (std::size_t j = 0; j < vd; ++j) {
        matrix[i * vd + j] += key[i] * rate_of(j) * (value[j] - (is_delta ? held[j] : 0)) -
                              static_cast<double>(scaled[i]) * taken[j];
      }
    }
    std::vector<double> expected = read_out(matrix, query, kd, vd), tolerance(vd);
    for (std::size_t j = 0; j < vd; ++j) {
      const double skip = c.rule == Rule::scan ? c.skip : c.rule == Rule::channels ? c.skips[j] : 0;
      const double skipped = skip * value[j];
      const double added = roundings * ((decay + removal) * before[j] + std::abs(value[j]));
      expected[j] += skipped;
      errors[j] = (decay + removal) * errors[j] + added;
      tolerance[j] = (errors[j] + added) * length(query, kd) + epsilon * std::abs(skipped);
    }
    CHECK(beyond(found.data() + p * stride, expected, tolerance).value_or("") == "");
  }
  const std::vector<double> last = matrix_of(found.data() + c.positions * stride, kd, vd);
  const std::vector<float> as_floats(last.begin(), last.end());
  std::vector<double> tolerance(matrix.size());
  for (std::size_t i = 0; i < matrix.size(); ++i) tolerance[i] = errors[i % vd];
  CHECK(beyond(as_floats.data(), matrix, tolerance).value_or("") == "");
}

TEST_CASE("recurrences against double") {
  Rng rng(63);
  for (const RecurrenceCase& c : recurrence_cases(Data::normal, rng)) {
    INFO(c.name());
    const std::vector<float> found = c.run(kernels::kernel_table().recurrence);
    check_against_double(c, found);
    CHECK(gaps_are_intact(found, c.positions, c.value_dim, c.gap));
  }
}

TEST_CASE("recurrences have the same bits on every tier, for every cut") {
  Rng rng(64);
  const auto& scalar = kernels::kernel_table(kernels::Isa::scalar).recurrence;
  for (const Data data : all_data) {
    for (const RecurrenceCase& c : recurrence_cases(data, rng)) {
      const std::vector<float> expected = c.run(scalar);
      for (const kernels::Isa isa : all_tiers()) {
        const auto& kernels = kernels::kernel_table(isa).recurrence;
        INFO(c.name() << " in " << kernels::isa_name(isa) << " on " << data_name(data));
        for (const std::size_t cut : {c.positions, std::size_t{7}, std::size_t{1}}) {
          const std::vector<float> found = c.run(kernels, cut);
          CHECK(difference(found.data(), expected.data(), found.size()).value_or("") == "");
        }
      }
    }
  }
}

TEST_CASE("a value that was written in full is read back by its key") {
  Rng rng(65);
  RecurrenceCase c(Rule::delta, 2, 64, 48, Data::normal, rng);
  std::fill(c.decays.begin(), c.decays.end(), 1.0f);
  std::fill(c.rates.begin(), c.rates.end(), 1.0f);
  const std::size_t row = c.key_dim + c.gap;
  std::copy_n(c.keys.begin() + static_cast<std::ptrdiff_t>(row), c.key_dim,
              c.queries.begin() + static_cast<std::ptrdiff_t>(row));
  const std::vector<float> out = c.run(kernels::kernel_table().recurrence);
  for (std::size_t j = 0; j < c.value_dim; ++j) {
    const std::size_t at = c.value_dim + c.gap + j;
    CHECK(std::abs(out[at] - c.values[at]) < 1e-4f);
  }
}

}  // namespace
}  // namespace sluice::test
