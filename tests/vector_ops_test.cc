// Vector operations: every tier equal to scalar bit for bit on any data, and scalar close to the
// definitions in double arithmetic.
#include "kernels/vector_ops.h"

// The functions behind them, in the scalar tier.
// clang-format off
#include "kernels/lanes_scalar.h"
#include "kernels/lanes_math.h"
// clang-format on
#include "tests/catch.h"
#include "tests/kernel_probes.h"
#include "tests/kernels_support.h"

namespace sluice::test {
namespace {

using kernels::VectorOps;

TEST_CASE("every tier computes the bits that scalar computes") {
  Rng rng(31);
  const VectorOps& scalar = kernels::kernel_table(kernels::Isa::scalar).vector_ops;
  for (const Data data : all_data) {
    for (const std::size_t size : odd_sizes()) {
      for (const std::size_t offset : {0, 1, 7}) {
        const Guarded<float> x(random_floats(size, data, rng), offset);
        const Guarded<float> y(random_floats(size, data, rng), offset);
        for (const VectorOperation& op : vector_operations) {
          Guarded<float> expected = y;
          op.run(scalar, x.data(), expected.data(), size);
          CHECK(expected.intact());
          for (const kernels::Isa isa : tiers_above_scalar()) {
            Guarded<float> found = y;
            op.run(kernels::kernel_table(isa).vector_ops, x.data(), found.data(), size);
            INFO(op.name << " in " << kernels::isa_name(isa) << " on " << data_name(data));
            CHECK(difference(found.data(), expected.data(), size).value_or("") == "");
            CHECK(found.intact());
          }
        }
      }
    }
  }
}

TEST_CASE("exp, tanh, sigmoid and softplus are as exact as they say") {
  const auto worst = [](auto function, auto reference, float begin, float end) {
    double worst_error = 0;
    const int steps = 400000;
    for (int i = 0; i < steps; i += 16) {
      kernels::F32x16 x;
      for (int k = 0; k < 16; ++k) {
        x.lane[k] = begin + (end - begin) * static_cast<float>(i + k) / static_cast<float>(steps);
      }
      const kernels::F32x16 y = function(x);
      for (int k = 0; k < 16; ++k) {
        const double expected = reference(static_cast<double>(x.lane[k]));
        const double error = std::abs(y.lane[k] - expected);
        const double spacing = std::numeric_limits<float>::denorm_min();
        worst_error = std::max(worst_error, (error - spacing) / std::abs(expected));
      }
    }
    return worst_error;
  };
  const auto exp_of = [](kernels::F32x16 x) { return kernels::exp(x); };
  const auto tanh_of = [](kernels::F32x16 x) { return kernels::tanh(x); };
  const auto exact_exp = [](double x) { return std::exp(x); };
  const auto exact_tanh = [](double x) { return std::tanh(x); };
  CHECK(worst(exp_of, exact_exp, -104, 88.7f) < epsilon);
  CHECK(worst(exp_of, exact_exp, -1, 1) < epsilon);
  CHECK(worst(tanh_of, exact_tanh, -20, 20) < 3 * epsilon);
  CHECK(worst(tanh_of, exact_tanh, -0.7f, 0.7f) < 3 * epsilon);
  CHECK(worst(tanh_of, exact_tanh, 1e-6f, 1e-3f) < 3 * epsilon);
  const auto sigmoid_of = [](kernels::F32x16 x) { return kernels::sigmoid(x); };
  const auto softplus_of = [](kernels::F32x16 x) { return kernels::softplus(x); };
  const auto exact_sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const auto exact_softplus = [](double x) {
    return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
  };
  CHECK(worst(sigmoid_of, exact_sigmoid, -87, 100) < 3 * epsilon);
  CHECK(worst(softplus_of, exact_softplus, -103, 100) < 4 * epsilon);
  CHECK(worst(softplus_of, exact_softplus, -3, 3) < 4 * epsilon);
}

float exp_of(float x) {
  return kernels::exp(kernels::broadcast(x)).lane[5];
}
float tanh_of(float x) {
  return kernels::tanh(kernels::broadcast(x)).lane[5];
}

float sigmoid_of(float x) {
  return kernels::sigmoid(kernels::broadcast(x)).lane[5];
}
float softplus_of(float x) {
  return kernels::softplus(kernels::broadcast(x)).lane[5];
}

TEST_CASE("exp, tanh, sigmoid and softplus at the ends") {
  CHECK(exp_of(0) == 1);
  CHECK(exp_of(-0.0f) == 1);
  CHECK(exp_of(-infinity) == 0);
  CHECK(exp_of(-1e30f) == 0);
  CHECK(exp_of(-103.9f) == std::numeric_limits<float>::denorm_min());
  CHECK(exp_of(-104.1f) == 0);
  CHECK(exp_of(infinity) == infinity);
  CHECK(exp_of(88.73f) == infinity);
  CHECK(std::isfinite(exp_of(88.72f)));
  CHECK(std::isnan(exp_of(not_a_number)));
  CHECK(tanh_of(infinity) == 1);
  CHECK(tanh_of(-infinity) == -1);
  CHECK(tanh_of(50) == 1);
  CHECK(std::isnan(tanh_of(not_a_number)));
  CHECK(tanh_of(1e-40f) == 1e-40f);
  CHECK(sigmoid_of(infinity) == 1);
  CHECK(sigmoid_of(-infinity) == 0);
  CHECK(sigmoid_of(0) == 0.5f);
  CHECK(std::isnan(sigmoid_of(not_a_number)));
  CHECK(softplus_of(infinity) == infinity);
  CHECK(softplus_of(-infinity) == 0);
  CHECK(softplus_of(1000) == 1000);
  CHECK(softplus_of(20.5f) == 20.5f);
  CHECK(softplus_of(-20) > 0);
  CHECK(std::isnan(softplus_of(not_a_number)));
}

// Errors below are in units of the size of what is added or multiplied, with one epsilon for every
// rounding on the way; `sum_roundings` is the longest chain of additions of a 16-lane sum.
double sum_roundings(std::size_t size) {
  return static_cast<double>(size) / 16 + 5;
}

TEST_CASE("rms_norm against double") {
  Rng rng(32);
  for (const std::size_t size : odd_sizes()) {
    const std::vector<float> x = random_floats(size, Data::normal, rng);
    const std::vector<float> w = random_floats(size, Data::normal, rng);
    std::vector<float> y(size);
    kernels::kernel_table().vector_ops.rms_norm(x.data(), w.data(), 1e-5f, size, y.data());
    double squares = 0;
    for (const float v : x) squares += static_cast<double>(v) * v;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(size) + 1e-5f);
    std::vector<double> expected(size), tolerance(size);
    for (std::size_t i = 0; i < size; ++i) {
      expected[i] = x[i] * scale * w[i];
      tolerance[i] = std::abs(expected[i]) * epsilon * (sum_roundings(size) + 6);
    }
    INFO("size " << size);
    CHECK(beyond(y.data(), expected, tolerance).value_or("") == "");
  }
}

TEST_CASE("layer_norm against double, also far from zero") {
  Rng rng(39);
  const VectorOps& ops = kernels::kernel_table().vector_ops;
  for (const std::size_t size : odd_sizes()) {
    for (const float shift : {0.0f, 9.0f}) {
      std::vector<float> x = random_floats(size, Data::normal, rng);
      const std::vector<float> w = random_floats(size, Data::normal, rng);
      const std::vector<float> b = random_floats(size, Data::normal, rng);
      double mean = 0, variance = 0, largest = 0;
      for (float& v : x) mean += v += shift;
      mean /= static_cast<double>(size);
      for (const float v : x) variance += (v - mean) * (v - mean);
      for (const float v : x) largest = std::max<double>(largest, std::abs(v));
      const double scale = 1 / std::sqrt(variance / static_cast<double>(size) + 1e-5f);
      std::vector<double> expected(size), tolerance(size), plain(size);
      for (std::size_t i = 0; i < size; ++i) {
        plain[i] = (x[i] - mean) * scale * w[i];
        expected[i] = plain[i] + b[i];
        // The mean has its roundings, which count more where it is large beside the differences.
        const double rounding = sum_roundings(size) + 8;
        tolerance[i] = epsilon * rounding *
                       (std::abs(b[i]) + std::abs(plain[i]) * (1 + largest * scale) +
                        largest * scale * std::abs(w[i]));
      }
      std::vector<float> y(size);
      INFO("size " << size << ", shift " << shift);
      ops.layer_norm(x.data(), w.data(), b.data(), 1e-5f, size, y.data());
      CHECK(beyond(y.data(), expected, tolerance).value_or("") == "");
      ops.layer_norm(x.data(), w.data(), nullptr, 1e-5f, size, x.data());
      CHECK(beyond(x.data(), plain, tolerance).value_or("") == "");
    }
  }
}

TEST_CASE("l2_norm against double, and of zeros") {
  Rng rng(36);
  const VectorOps& ops = kernels::kernel_table().vector_ops;
  constexpr float eps = 1e-6f, scale = 0.088f;
  for (const std::size_t size : odd_sizes()) {
    std::vector<float> x = random_floats(size, Data::normal, rng);
    std::vector<double> expected(size), tolerance(size);
    double squares = 0;
    for (const float v : x) squares += static_cast<double>(v) * v;
    for (std::size_t i = 0; i < size; ++i) {
      expected[i] = x[i] / std::sqrt(squares + eps) * scale;
      tolerance[i] = std::abs(expected[i]) * epsilon * (sum_roundings(size) + 5);
    }
    ops.l2_norm(x.data(), eps, scale, size, x.data());
    INFO("size " << size);
    CHECK(beyond(x.data(), expected, tolerance).value_or("") == "");
  }
  std::vector<float> zeros(19);
  ops.l2_norm(zeros.data(), eps, scale, zeros.size(), zeros.data());
  CHECK(zeros == std::vector<float>(19));
}

TEST_CASE("rope turns pairs by their angle") {
  Rng rng(33);
  for (std::size_t pairs = 1; pairs <= 70; ++pairs) {
    const std::vector<float> x = random_floats(2 * pairs, Data::normal, rng);
    std::vector<float> cosines(pairs), sines(pairs);
    for (std::size_t i = 0; i < pairs; ++i) {
      cosines[i] = std::cos(static_cast<float>(i) + 0.5f);
      sines[i] = std::sin(static_cast<float>(i) + 0.5f);
    }
    for (const bool neox : {false, true}) {
      std::vector<float> y = x;
      const VectorOps& ops = kernels::kernel_table().vector_ops;
      (neox ? ops.rope_neox : ops.rope_norm)(y.data(), cosines.data(), sines.data(), pairs);
      std::vector<double> expected(2 * pairs), tolerance(2 * pairs);
      for (std::size_t i = 0; i < pairs; ++i) {
        const std::size_t first = neox ? i : 2 * i, second = neox ? i + pairs : 2 * i + 1;
        const double a = x[first], b = x[second], c = cosines[i], s = sines[i];
        expected[first] = a * c - b * s;
        expected[second] = a * s + b * c;
        tolerance[first] = tolerance[second] = 2 * epsilon * (std::abs(a) + std::abs(b));
      }
      INFO(pairs << (neox ? " neox" : " norm") << " pairs");
      CHECK(beyond(y.data(), expected, tolerance).value_or("") == "");
    }
  }
}

TEST_CASE("softmax against double") {
  Rng rng(34);
  for (const std::size_t size : odd_sizes()) {
    std::vector<float> x = random_floats(size, Data::normal, rng);
    if (size > 3) x[1] = -infinity;  // a masked element
    const double top = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const float v : x) sum += std::exp(v - top);
    std::vector<double> expected(size), tolerance(size);
    for (std::size_t i = 0; i < size; ++i) {
      expected[i] = std::exp(x[i] - top) / sum;
      const double distance = std::isinf(x[i]) ? 0 : top - x[i];
      tolerance[i] = expected[i] * epsilon * (distance + sum_roundings(size) + 6);
    }
    kernels::kernel_table().vector_ops.softmax(x.data(), size);
    INFO("size " << size);
    CHECK(beyond(x.data(), expected, tolerance).value_or("") == "");
  }
}

TEST_CASE("gated activations against double") {
  const VectorOps& ops = kernels::kernel_table().vector_ops;
  std::vector<float> gate, up;
  for (float a = -120; a <= 120; a += 0.037f) {
    gate.push_back(a);
    up.push_back(1.5f - a / 50);
  }
  const std::size_t size = gate.size();
  std::vector<float> silu(size), gelu(size);
  ops.swiglu(gate.data(), up.data(), size, silu.data());
  ops.geglu(gate.data(), up.data(), size, gelu.data());
  std::vector<double> expected_silu(size), expected_gelu(size), tolerance(size);
  std::vector<double> gelu_tolerance(size);
  for (std::size_t i = 0; i < size; ++i) {
    const double a = gate[i], u = std::sqrt(2 / M_PI) * (a + 0.044715 * a * a * a);
    expected_silu[i] = a / (1 + std::exp(-a)) * up[i];
    expected_gelu[i] = a / (1 + std::exp(-2 * u)) * up[i];
    // Where e^-a overflows, the result is 0 instead of less than a * 2^-128.
    const double vanishing = std::abs(a * up[i]) * 0x1p-127;
    tolerance[i] = std::abs(expected_silu[i]) * epsilon * 5 + vanishing;
    gelu_tolerance[i] = std::abs(expected_gelu[i]) * epsilon * (5 + 8 * std::abs(u)) + vanishing;
  }
  CHECK(beyond(silu.data(), expected_silu, tolerance).value_or("") == "");
  CHECK(beyond(gelu.data(), expected_gelu, gelu_tolerance).value_or("") == "");
}

TEST_CASE("the clamped SwiGLU against double, on both sides of its limits") {
  const double limit = 7, slope = 1.702f;
  std::vector<float> gate, up;
  for (float a = -50; a <= 20; a += 0.037f) {
    gate.push_back(a);
    up.push_back(9.5f * std::sin(7 * a));
  }
  const std::size_t size = gate.size();
  std::vector<float> out(size);
  kernels::kernel_table().vector_ops.clamped_swiglu(gate.data(), up.data(), 1.702f, 7, size,
                                                    out.data());
  std::vector<double> expected(size), tolerance(size);
  for (std::size_t i = 0; i < size; ++i) {
    const double g = std::min<double>(gate[i], limit), u = std::clamp<double>(up[i], -limit, limit);
    const double gated = g / (1 + std::exp(-slope * g));
    expected[i] = gated * (u + 1);
    // exp makes of the rounding of slope * g that of its result.
    tolerance[i] =
        std::abs(gated) * epsilon * (std::abs(u + 1) * (5 + std::abs(slope * g)) + std::abs(u) + 1);
  }
  CHECK(beyond(out.data(), expected, tolerance).value_or("") == "");
}

TEST_CASE("the SwiGLU of Step 3.5 against double, on both sides of its limits") {
  const double limit = 1.5;
  std::vector<float> gate, up;
  for (float a = -50; a <= 20; a += 0.037f) {
    gate.push_back(a);
    up.push_back(2.5f * std::sin(7 * a));
  }
  std::vector<float> out(gate.size());
  kernels::kernel_table().vector_ops.limited_swiglu(gate.data(), up.data(), 1.5f, gate.size(),
                                                    out.data());
  std::vector<double> expected(gate.size()), tolerance(gate.size());
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double g = gate[i] / (1 + std::exp(-static_cast<double>(gate[i])));
    expected[i] = std::min(g, limit) * std::clamp<double>(up[i], -limit, limit);
    tolerance[i] = std::abs(expected[i]) * epsilon * 6;
  }
  CHECK(beyond(out.data(), expected, tolerance).value_or("") == "");
}

TEST_CASE("activations without a gate against double") {
  const VectorOps& ops = kernels::kernel_table().vector_ops;
  const kernels::Xielu numbers{0.8f, 1.1f, 0.4f, -1e-6f};
  std::vector<float> x;
  for (float a = -30; a <= 30; a += 0.0137f) x.push_back(a);
  std::vector<float> gelu = x, xielu = x, one(x.size(), 1.0f), geglu(x.size());
  ops.gelu(gelu.data(), gelu.size());
  ops.geglu(x.data(), one.data(), x.size(), geglu.data());
  CHECK(gelu == geglu);
  ops.xielu(xielu.data(), xielu.size(), numbers);
  std::vector<double> expected(x.size()), tolerance(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double a = x[i], below = std::expm1(std::min<double>(a, numbers.top)) - a;
    expected[i] = a * numbers.beta + (a > 0 ? numbers.positive * a * a : numbers.negative * below);
    tolerance[i] = epsilon * 6 * (1 + std::abs(a) + a * a);
  }
  CHECK(beyond(xielu.data(), expected, tolerance).value_or("") == "");
}

TEST_CASE("sums, products and relu_squared are rounded once") {
  Rng rng(37);
  const VectorOps& ops = kernels::kernel_table().vector_ops;
  for (const std::size_t size : odd_sizes()) {
    const std::vector<float> x = random_floats(size, Data::normal, rng);
    const std::vector<float> y = random_floats(size, Data::normal, rng);
    const auto check = [&](const char* name, auto run, auto exact) {
      std::vector<float> found = y, expected = y;
      run(found.data());
      for (std::size_t i = 0; i < size; ++i) expected[i] = exact(x[i], y[i]);
      INFO(name << ", size " << size);
      CHECK(difference(found.data(), expected.data(), size).value_or("") == "");
    };
    check(
        "add", [&](float* out) { ops.add(x.data(), size, out); },
        [](float a, float b) { return a + b; });
    check(
        "add_scaled", [&](float* out) { ops.add_scaled(x.data(), 0.22f, size, out); },
        [](float a, float b) { return std::fma(0.22f, a, b); });
    check(
        "multiply", [&](float* out) { ops.multiply(x.data(), size, out); },
        [](float a, float b) { return a * b; });
    check(
        "scale", [&](float* out) { ops.scale(out, size, 0.22f); },
        [](float, float b) { return b * 0.22f; });
    check(
        "reglu", [&](float* out) { ops.reglu(x.data(), out, size, out); },
        [](float a, float b) { return std::max(a, 0.0f) * b; });
    check(
        "relu_squared", [&](float* out) { ops.relu_squared(out, size); },
        [](float, float b) { return b > 0 ? b * b : 0.0f; });
  }
}

TEST_CASE("multiply_by_sigmoid is a product with sigmoid") {
  Rng rng(38);
  const VectorOps& ops = kernels::kernel_table().vector_ops;
  for (const std::size_t size : odd_sizes()) {
    std::vector<float> gate = random_floats(size, Data::normal, rng);
    std::vector<float> found = random_floats(size, Data::normal, rng), expected = found;
    ops.multiply_by_sigmoid(gate.data(), size, found.data());
    ops.sigmoid(gate.data(), size);
    ops.multiply(gate.data(), size, expected.data());
    CHECK(difference(found.data(), expected.data(), size).value_or("") == "");
  }
}

TEST_CASE("softcap against double") {
  Rng rng(35);
  std::vector<float> x = random_floats(1003, Data::normal, rng), y = x;
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] *= static_cast<float>(i % 40);
  kernels::kernel_table().vector_ops.softcap(y.data(), y.size(), 50);
  std::vector<double> expected(x.size()), tolerance(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    expected[i] = 50 * std::tanh(x[i] / 50.0);
    tolerance[i] = 5 * epsilon * std::abs(expected[i]);
  }
  CHECK(beyond(y.data(), expected, tolerance).value_or("") == "");
}

}  // namespace
}  // namespace sluice::test
