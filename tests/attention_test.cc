// Attention: every tier equal to scalar bit for bit, a head's result independent of its
// neighbours, and scalar close to the definition in double arithmetic.
#include "kernels/attention.h"

#include "kernels/dequantise.h"
#include "tests/catch.h"
#include "tests/kernels_support.h"

namespace sluice::test {
namespace {

struct Shape {
  std::size_t heads, positions, head_dim, value_dim;
  bool half;
  float softcap;
};

// One problem; keys and values as float and as half, of which the shape says which to use.
struct Problem {
  Problem(const Shape& s, Data data, Rng& rng)
      : shape(s),
        queries(random_floats(s.heads * s.head_dim, data, rng), 1),
        keys(random_floats(s.positions * s.head_dim, data, rng), 3),
        values(random_floats(s.positions * s.value_dim, data, rng), 5),
        half_keys(halves(keys), 3),
        half_values(halves(values), 5) {}

  static std::vector<std::uint16_t> halves(Guarded<float>& x) {
    std::vector<std::uint16_t> out(x.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = kernels::float_to_half(x.data()[i]);
      x.data()[i] = kernels::half_to_float(out[i]);  // both types hold the same numbers
    }
    return out;
  }

  // The outputs of heads [first, first + count).
  std::vector<float> run(const kernels::AttentionKernels& table, std::size_t first,
                         std::size_t count) const {
    Guarded<float> scores(count * shape.positions, 1), out(count * shape.value_dim, 1);
    std::fill(out.data(), out.data() + out.size(), not_a_number);
    kernels::AttentionArgs args{};
    args.queries = queries.data() + first * shape.head_dim;
    args.query_heads = count;
    args.head_dim = shape.head_dim;
    args.value_dim = shape.value_dim;
    args.keys = shape.half ? static_cast<const void*>(half_keys.data()) : keys.data();
    args.values = shape.half ? static_cast<const void*>(half_values.data()) : values.data();
    args.positions = shape.positions;
    args.scale = scale();
    args.softcap = shape.softcap;
    args.scores = scores.data();
    args.out = out.data();
    (shape.half ? table.f16 : table.f32)(args);
    CHECK(scores.intact());
    CHECK(out.intact());
    return {out.data(), out.data() + out.size()};
  }

  float scale() const { return 0.3f / std::sqrt(static_cast<float>(shape.head_dim)); }

  Shape shape;
  Guarded<float> queries, keys, values;
  Guarded<std::uint16_t> half_keys, half_values;
};

constexpr std::size_t dims[] = {1, 63, 64, 80, 96, 128, 256};
constexpr std::size_t position_counts[] = {1, 2, 3, 5, 15, 16, 17, 127, 128, 129, 300};

std::string describe(const Shape& s) {
  return std::to_string(s.heads) + " heads, " + std::to_string(s.positions) + " positions, dim " +
         std::to_string(s.head_dim) + " and " + std::to_string(s.value_dim) +
         (s.half ? ", half" : ", float");
}

TEST_CASE("attention gives the bits of scalar in every tier, and heads do not depend on others") {
  Rng rng(41);
  for (const std::size_t dim : dims) {
    for (std::size_t heads = 1; heads <= 9; ++heads) {
      // One of the position counts each, drawn anew for every combination, keeps this short.
      for (int draw = 0; draw < 3; ++draw) {
        const std::size_t positions = position_counts[rng() % std::size(position_counts)];
        const Shape shape = {heads,
                             positions,
                             dim,
                             dims[rng() % std::size(dims)],
                             rng() % 2 == 0,
                             rng() % 3 == 0 ? 20.0f : 0.0f};
        const Problem problem(shape, Data::normal, rng);
        const kernels::KernelTable& scalar = kernels::kernel_table(kernels::Isa::scalar);
        const std::vector<float> expected = problem.run(scalar.attention, 0, heads);
        for (const kernels::Isa isa : tiers_above_scalar()) {
          const kernels::AttentionKernels& table = kernels::kernel_table(isa).attention;
          INFO(kernels::isa_name(isa) << ": " << describe(shape));
          const std::vector<float> found = problem.run(table, 0, heads);
          CHECK(difference(found.data(), expected.data(), expected.size()).value_or("") == "");
          const std::size_t alone = rng() % heads;
          const std::vector<float> one = problem.run(table, alone, 1);
          CHECK(difference(one.data(), expected.data() + alone * shape.value_dim, one.size())
                    .value_or("") == "");
        }
      }
    }
  }
}

TEST_CASE("attention gives the bits of scalar for every number of positions") {
  Rng rng(42);
  for (std::size_t positions = 1; positions <= 300; ++positions) {
    const Shape shape = {1 + positions % 9, positions, 33, 35, positions % 2 == 0, 0};
    const Problem problem(shape, Data::normal, rng);
    const kernels::KernelTable& scalar = kernels::kernel_table(kernels::Isa::scalar);
    const std::vector<float> expected = problem.run(scalar.attention, 0, shape.heads);
    for (const kernels::Isa isa : tiers_above_scalar()) {
      const std::vector<float> found =
          problem.run(kernels::kernel_table(isa).attention, 0, shape.heads);
      INFO(kernels::isa_name(isa) << ": " << describe(shape));
      CHECK(difference(found.data(), expected.data(), expected.size()).value_or("") == "");
    }
  }
}

TEST_CASE("attention gives the bits of scalar on extreme data") {
  Rng rng(43);
  for (const Data data : all_data) {
    for (const bool half : {false, true}) {
      const Shape shape = {7, 37, 70, 50, half, 0};
      const Problem problem(shape, data, rng);
      const kernels::KernelTable& scalar = kernels::kernel_table(kernels::Isa::scalar);
      const std::vector<float> expected = problem.run(scalar.attention, 0, shape.heads);
      for (const kernels::Isa isa : tiers_above_scalar()) {
        const std::vector<float> found =
            problem.run(kernels::kernel_table(isa).attention, 0, shape.heads);
        INFO(kernels::isa_name(isa) << " on " << data_name(data) << ": " << describe(shape));
        CHECK(difference(found.data(), expected.data(), expected.size()).value_or("") == "");
      }
    }
  }
}

// The result of one head, and how far a float computation may be from it.
void oracle(const Problem& p, std::size_t head, std::vector<double>& out,
            std::vector<double>& tolerance) {
  const Shape& s = p.shape;
  std::vector<double> weights(s.positions);
  double score_error = 0;
  for (std::size_t i = 0; i < s.positions; ++i) {
    double score = 0, magnitude = 0;
    for (std::size_t k = 0; k < s.head_dim; ++k) {
      const double term = static_cast<double>(p.queries.data()[head * s.head_dim + k]) *
                          p.keys.data()[i * s.head_dim + k];
      score += term;
      magnitude += std::abs(term);
    }
    score *= p.scale();
    if (s.softcap > 0) score = s.softcap * std::tanh(score / s.softcap);
    weights[i] = score;
    // The dot product, the scale, the cap (5 roundings), and the difference to the maximum.
    const double roundings = static_cast<double>(s.head_dim) / 16 + 5 + 6 + 2;
    score_error = std::max(score_error, epsilon * roundings * magnitude * p.scale());
  }
  const double top = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (double& w : weights) sum += w = std::exp(w - top);
  for (std::size_t v = 0; v < s.value_dim; ++v) {
    double mixed = 0, magnitude = 0;
    for (std::size_t i = 0; i < s.positions; ++i) {
      const double term = weights[i] / sum * p.values.data()[i * s.value_dim + v];
      mixed += term;
      magnitude += std::abs(term);
    }
    out.push_back(mixed);
    // An error of the scores changes numerator and sum; then a chain over all positions.
    const double relative =
        4 * score_error + epsilon * (static_cast<double>(s.positions) * 17 / 16 + 12);
    tolerance.push_back(relative * magnitude);
  }
}

TEST_CASE("attention against double") {
  Rng rng(44);
  for (const std::size_t dim : dims) {
    for (const std::size_t positions : position_counts) {
      const Shape shape = {1 + rng() % 9,
                           positions,
                           dim,
                           dims[rng() % std::size(dims)],
                           rng() % 2 == 0,
                           rng() % 2 == 0 ? 5.0f : 0.0f};
      const Problem problem(shape, Data::normal, rng);
      std::vector<double> expected, tolerance;
      for (std::size_t h = 0; h < shape.heads; ++h) oracle(problem, h, expected, tolerance);
      const std::vector<float> found =
          problem.run(kernels::kernel_table().attention, 0, shape.heads);
      INFO(describe(shape));
      CHECK(beyond(found.data(), expected, tolerance).value_or("") == "");
    }
  }
}

}  // namespace
}  // namespace sluice::test
