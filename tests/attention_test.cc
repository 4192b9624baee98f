// Attention: every tier equal to scalar bit for bit, a head's result independent of its
// neighbours, and scalar close to the definition in double arithmetic.
#include "kernels/attention.h"

#include <algorithm>

#include "kernels/kernel_table.h"
#include "tests/catch.h"
#include "tests/kernels_support.h"
#include "tests/kv_pages.h"

namespace sluice::test {
namespace {

constexpr KvElement all_elements[] = {KvElement::f32, KvElement::f16, KvElement::int8};

struct Shape {
  std::size_t heads, positions, head_dim, value_dim;
  KvElement element;
  float softcap;
  std::size_t sinks = 0;  // positions at the start that are looked at with other queries
  bool has_sink_logits = false;
  bool keys_hold_values = false;
};

struct Problem {
  Problem(const Shape& s, Data data, Rng& rng)
      : shape(s),
        queries(random_floats(s.heads * s.head_dim, data, rng), 1),
        sink_queries(random_floats(s.heads * s.head_dim, data, rng), 1),
        sink_logits(random_floats(s.heads, Data::normal, rng), 1),
        offset(rng() % KvPages::page),
        keys(KvPages::Kind::keys, random_floats(s.positions * s.head_dim, data, rng), s.head_dim,
             s.element, offset, rng, s.keys_hold_values ? s.value_dim : 0),
        values(KvPages::Kind::values, random_floats(s.positions * s.value_dim, data, rng),
               s.value_dim, s.element, offset, rng) {}

  // The sinks and positions [begin, positions) in runs of at most `run_max`, as the heads from
  // `first` on see them.
  std::vector<kernels::AttentionRun> runs(std::size_t first, std::size_t begin,
                                          std::size_t positions, std::size_t run_max) const {
    std::vector<kernels::AttentionRun> out;
    for (std::size_t at = shape.sinks > 0 ? 0 : begin; at < positions;) {
      if (at == shape.sinks) at = std::max(at, begin);
      const bool is_sink = at < shape.sinks;
      const std::size_t end = is_sink ? std::min(shape.sinks, positions) : positions;
      const float* looking = (is_sink ? sink_queries : queries).data() + first * shape.head_dim;
      const std::size_t count = std::min({run_max, end - at, keys.run_max(at)});
      out.push_back(run_of(keys, values, at, count, looking));
      at += count;
    }
    return out;
  }

  // The outputs of heads [first, first + count).
  std::vector<float> run(const kernels::AttentionKernels& table, std::size_t first,
                         std::size_t count,
                         std::size_t run_max = kernels::attention_run_max) const {
    return run_columns(table, {first, count, 1, shape.positions}, run_max);
  }

  // `columns` tokens with queries [first, first + count), [first + count, first + 2 * count) ...,
  // the last of which sees the first `positions` positions, or with a window the sinks and the
  // newest of these, and each before it one position less.
  struct Columns {
    std::size_t first, count, columns, positions, window = 0;

    // Where what the first token sees begins, but for the sinks.
    std::size_t begin() const {
      const std::size_t end = positions - (columns - 1);
      return window == 0 || end < window ? 0 : end - window;
    }
  };
  std::vector<float> run_columns(const kernels::AttentionKernels& table, const Columns& c,
                                 std::size_t run_max = kernels::attention_run_max) const {
    const std::size_t all = c.count * c.columns;
    const std::vector<kernels::AttentionRun> pages = runs(c.first, c.begin(), c.positions, run_max);
    std::size_t positions = 0;
    for (const kernels::AttentionRun& run : pages) positions += run.positions;
    const std::size_t stride = kernels::attention_scratch(positions, pages.size(), shape.head_dim);
    Guarded<float> scores(all * stride, 1), out(all * shape.value_dim, 1);
    std::fill(scores.data(), scores.data() + scores.size(), not_a_number);
    std::fill(out.data(), out.data() + out.size(), not_a_number);
    kernels::AttentionArgs args{};
    args.runs = pages.data();
    args.run_count = pages.size();
    args.positions = positions;
    args.window = c.columns == 1 ? 0 : c.window;
    args.sinks = args.window == 0 ? 0 : shape.sinks;
    args.scale_stride = KvPages::page;
    args.columns = c.columns;
    args.query_heads = c.count;
    args.query_stride = c.count * shape.head_dim;
    args.out_stride = c.count * shape.value_dim;
    args.head_dim = shape.head_dim;
    args.value_dim = shape.value_dim;
    args.keys_hold_values = shape.keys_hold_values;
    args.scale = scale();
    args.softcap = shape.softcap;
    // Tokens that are computed together share theirs.
    const std::size_t head = c.columns == 1 ? c.first % heads_of_token : 0;
    args.sink_logits = shape.has_sink_logits ? sink_logits.data() + head : nullptr;
    args.scores = scores.data();
    args.score_stride = stride;
    args.out = out.data();
    attention_kernel(table, shape.element)(args);
    CHECK(scores.intact());
    CHECK(out.intact());
    return {out.data(), out.data() + out.size()};
  }

  // What holds the values.
  const KvPages& mixed() const { return shape.keys_hold_values ? keys : values; }

  float scale() const { return 0.3f / std::sqrt(static_cast<float>(shape.head_dim)); }

  Shape shape;
  std::size_t heads_of_token = shape.heads;  // queries may be those of several tokens
  Guarded<float> queries, sink_queries, sink_logits;
  std::size_t offset;
  KvPages keys, values;
};

constexpr std::size_t dims[] = {1, 5, 16, 17, 33, 40, 48, 63, 64, 72, 80, 96, 128, 256, 512};
constexpr std::size_t position_counts[] = {1, 2, 3, 5, 15, 16, 17, 127, 128, 129, 300};

std::string describe(const Shape& s) {
  return std::to_string(s.heads) + " heads, " + std::to_string(s.positions) + " positions, dim " +
         std::to_string(s.head_dim) + " and " + std::to_string(s.value_dim) + ", " +
         kv_element_name(s.element);
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
                             all_elements[rng() % 3],
                             rng() % 3 == 0 ? 20.0f : 0.0f,
                             rng() % positions,
                             rng() % 3 == 0};
        const Problem problem(shape, Data::normal, rng);
        const kernels::KernelTable& scalar = kernels::kernel_table(kernels::Isa::scalar);
        const std::vector<float> expected = problem.run(scalar.attention, 0, heads);
        for (const kernels::Isa isa : tiers_above_scalar()) {
          const kernels::AttentionKernels& table = kernels::kernel_table(isa).attention;
          INFO(kernels::isa_name(isa) << ": " << describe(shape));
          const std::vector<float> found = problem.run(table, 0, heads);
          CHECK(difference(found.data(), expected.data(), expected.size()).value_or("") == "");
          // Neither on the other heads, nor on how the positions are cut into runs.
          const std::size_t alone = rng() % heads, run_max = 1 + rng() % 40;
          const std::vector<float> one = problem.run(table, alone, 1, run_max);
          CHECK(difference(one.data(), expected.data() + alone * shape.value_dim, one.size())
                    .value_or("") == "");
        }
      }
    }
  }
}

// Tokens that are computed together read rows that some of them must not see.
TEST_CASE("attention of several tokens gives the bits of each alone") {
  Rng rng(45);
  for (int draw = 0; draw < 200; ++draw) {
    const std::size_t heads = 1 + rng() % 9, columns = 1 + rng() % 12;
    const std::size_t positions = columns + rng() % 100;
    const Shape shape = {heads * columns,
                         positions,
                         dims[rng() % std::size(dims)],
                         dims[rng() % std::size(dims)],
                         all_elements[rng() % 3],
                         rng() % 3 == 0 ? 20.0f : 0.0f};
    const Problem problem(shape, Data::normal, rng);
    for (const kernels::Isa isa : all_tiers()) {
      const kernels::AttentionKernels& table = kernels::kernel_table(isa).attention;
      const std::vector<float> together =
          problem.run_columns(table, {0, heads, columns, positions}, 1 + rng() % 40);
      INFO(kernels::isa_name(isa) << ": " << columns << " columns, " << describe(shape));
      for (std::size_t c = 0; c < columns; ++c) {
        const std::size_t first = c * heads, seen = positions - (columns - 1 - c);
        const std::vector<float> alone = problem.run_columns(table, {first, heads, 1, seen});
        CHECK(difference(together.data() + first * shape.value_dim, alone.data(), alone.size())
                  .value_or("") == "");
      }
    }
  }
}

// The window is shorter or longer than the runs and than the tokens are many. Each token alone
// looks at no more than it sees, and needs no window for that.
TEST_CASE("attention of several tokens under a window gives the bits of each alone") {
  Rng rng(46);
  for (int draw = 0; draw < 300; ++draw) {
    const std::size_t heads = 1 + rng() % 5, columns = 1 + rng() % 20;
    const std::size_t sinks = rng() % 3 == 0 ? rng() % 50 : 0;
    const std::size_t positions = columns + sinks + rng() % 150;
    const std::size_t window = 1 + rng() % (rng() % 2 == 0 ? 10 : 100);
    const Shape shape = {heads * columns,
                         positions,
                         dims[rng() % std::size(dims)],
                         dims[rng() % std::size(dims)],
                         all_elements[rng() % 3],
                         rng() % 3 == 0 ? 20.0f : 0.0f,
                         sinks,
                         rng() % 3 == 0};
    Problem problem(shape, Data::normal, rng);
    problem.heads_of_token = heads;
    for (const kernels::Isa isa : all_tiers()) {
      const kernels::AttentionKernels& table = kernels::kernel_table(isa).attention;
      const std::vector<float> together =
          problem.run_columns(table, {0, heads, columns, positions, window}, 1 + rng() % 40);
      INFO(kernels::isa_name(isa) << ": " << columns << " columns, window " << window << ", "
                                  << sinks << " sinks, " << describe(shape));
      for (std::size_t c = 0; c < columns; ++c) {
        const std::size_t first = c * heads, seen = positions - (columns - 1 - c);
        Problem::Columns one = {first, heads, 1, seen, window};
        const std::vector<float> alone = problem.run_columns(table, one);
        CHECK(difference(together.data() + first * shape.value_dim, alone.data(), alone.size())
                  .value_or("") == "");
      }
    }
  }
}

TEST_CASE("attention gives the bits of scalar for every number of positions") {
  Rng rng(42);
  for (std::size_t positions = 1; positions <= 300; ++positions) {
    const Shape shape = {1 + positions % 9, positions, 33, 35, all_elements[positions % 3], 0};
    const Problem problem(shape, Data::normal, rng);
    const kernels::KernelTable& scalar = kernels::kernel_table(kernels::Isa::scalar);
    const std::vector<float> expected = problem.run(scalar.attention, 0, shape.heads);
    for (const kernels::Isa isa : tiers_above_scalar()) {
      const std::vector<float> found =
          problem.run(kernels::kernel_table(isa).attention, 0, shape.heads, 32);
      INFO(kernels::isa_name(isa) << ": " << describe(shape));
      CHECK(difference(found.data(), expected.data(), expected.size()).value_or("") == "");
    }
  }
}

TEST_CASE("attention gives the bits of scalar on extreme data") {
  Rng rng(43);
  for (const Data data : all_data) {
    for (const KvElement element : all_elements) {
      const Shape shape = {7, 37, 70, 50, element, 0};
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

// The result of one head, and how far the computation may be from it.
void oracle(const Problem& p, std::size_t head, std::vector<double>& out,
            std::vector<double>& tolerance) {
  const Shape& s = p.shape;
  const bool has_words = s.element == KvElement::int8;
  std::vector<double> weights(s.positions);
  double score_error = 0;
  for (std::size_t i = 0; i < s.positions; ++i) {
    double score = 0, magnitude = 0, rounded = 0;
    const float* query = (i < s.sinks ? p.sink_queries : p.queries).data() + head * s.head_dim;
    const std::vector<double> rounding = word_rounding(query, s.head_dim, p.keys.middle());
    for (std::size_t k = 0; k < s.head_dim; ++k) {
      const double key = p.keys.number(i, k), term = query[k] * key;
      score += term;
      magnitude += std::abs(term);
      if (has_words && s.head_dim > kernels::short_row_max) rounded += rounding[k] * std::abs(key);
    }
    score *= p.scale();
    if (s.softcap > 0) score = s.softcap * std::tanh(score / s.softcap);
    weights[i] = score;
    // The dot product, scales, the cap (5 roundings), and the difference to the maximum.
    const double roundings = static_cast<double>(s.head_dim) / 16 + 5 + 6 + 2 + 4;
    score_error = std::max(score_error, (epsilon * roundings * magnitude + rounded) * p.scale());
  }
  const double sink_logit = s.has_sink_logits ? p.sink_logits.data()[head] : -INFINITY;
  const double top = std::max(sink_logit, *std::max_element(weights.begin(), weights.end()));
  double sum = std::exp(sink_logit - top);
  for (double& w : weights) sum += w = std::exp(w - top);
  for (std::size_t v = 0; v < s.value_dim; ++v) {
    double mixed = 0, magnitude = 0, largest = 0, total = 0, steps = 0;
    for (std::size_t i = 0; i < s.positions; ++i) {
      const double term = weights[i] / sum * p.mixed().number(i, v);
      mixed += term;
      magnitude += std::abs(term);
      if (!has_words || s.value_dim <= kernels::short_row_max) continue;
      const double word = weights[i] / sum * p.mixed().step(i, v);
      largest = std::max(largest, word);
      total += word;
      steps += std::abs(p.mixed().number(i, v)) / p.mixed().step(i, v);
    }
    out.push_back(mixed);
    // An error of the scores changes numerator and sum; then a chain over all positions, and the
    // rounding of probabilities to words.
    const double relative =
        4 * score_error + epsilon * (static_cast<double>(s.positions) * 17 / 16 + 13);
    const double word_step = std::max(largest / 32639, total * 0x1p-23);
    tolerance.push_back(relative * magnitude + 0.51 * word_step * steps);
  }
}

// Of rows that hold keys and values: all elements, and those of values.
constexpr std::size_t latent_dims[][2] = {{33, 32},   {40, 32},   {100, 64},  {104, 96},
                                          {176, 160}, {288, 256}, {300, 256}, {576, 512}};

Shape latent_shape(std::size_t heads, std::size_t positions, Rng& rng) {
  const auto& [head_dim, value_dim] = latent_dims[rng() % std::size(latent_dims)];
  return {heads,
          positions,
          head_dim,
          value_dim,
          all_elements[rng() % 3],
          rng() % 3 == 0 ? 20.0f : 0.0f,
          rng() % 2 == 0 ? 0 : rng() % positions,
          rng() % 3 == 0,
          true};
}

TEST_CASE("keys that hold the values give the bits of scalar, and are close to double") {
  Rng rng(47);
  for (int draw = 0; draw < 120; ++draw) {
    const std::size_t positions = position_counts[rng() % std::size(position_counts)];
    const Shape shape = latent_shape(1 + rng() % 20, positions, rng);
    const Problem problem(shape, Data::normal, rng);
    const auto& scalar = kernels::kernel_table(kernels::Isa::scalar).attention;
    const std::vector<float> expected = problem.run(scalar, 0, shape.heads);
    INFO(describe(shape));
    std::vector<double> exact, tolerance;
    for (std::size_t h = 0; h < shape.heads; ++h) oracle(problem, h, exact, tolerance);
    CHECK(beyond(expected.data(), exact, tolerance).value_or("") == "");
    for (const kernels::Isa isa : tiers_above_scalar()) {
      const kernels::AttentionKernels& table = kernels::kernel_table(isa).attention;
      INFO(kernels::isa_name(isa));
      const std::vector<float> found = problem.run(table, 0, shape.heads, 1 + rng() % 40);
      CHECK(difference(found.data(), expected.data(), expected.size()).value_or("") == "");
      const std::size_t alone = rng() % shape.heads;
      const std::vector<float> one = problem.run(table, alone, 1, 1 + rng() % 40);
      CHECK(difference(one.data(), expected.data() + alone * shape.value_dim, one.size())
                .value_or("") == "");
    }
  }
}

TEST_CASE("keys that hold the values give several tokens the bits of each alone") {
  Rng rng(48);
  for (int draw = 0; draw < 60; ++draw) {
    const std::size_t heads = 1 + rng() % 20, columns = 1 + rng() % 6;
    const std::size_t positions = columns + 1 + rng() % 100, window = 1 + rng() % 60;
    Shape shape = latent_shape(heads * columns, positions, rng);
    shape.sinks = std::min(shape.sinks, positions - columns);
    Problem problem(shape, Data::normal, rng);
    problem.heads_of_token = heads;
    for (const kernels::Isa isa : all_tiers()) {
      const kernels::AttentionKernels& table = kernels::kernel_table(isa).attention;
      const std::vector<float> together =
          problem.run_columns(table, {0, heads, columns, positions, window}, 1 + rng() % 40);
      INFO(kernels::isa_name(isa) << ": " << columns << " columns, " << describe(shape));
      for (std::size_t c = 0; c < columns; ++c) {
        const std::size_t first = c * heads, seen = positions - (columns - 1 - c);
        const std::vector<float> alone =
            problem.run_columns(table, {first, heads, 1, seen, window});
        CHECK(difference(together.data() + first * shape.value_dim, alone.data(), alone.size())
                  .value_or("") == "");
      }
    }
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
                           all_elements[rng() % 3],
                           rng() % 2 == 0 ? 5.0f : 0.0f,
                           rng() % 2 == 0 ? 0 : rng() % positions,
                           rng() % 2 == 0};
      const Problem problem(shape, Data::normal, rng);
      std::vector<double> expected, tolerance;
      for (std::size_t h = 0; h < shape.heads; ++h) oracle(problem, h, expected, tolerance);
      const std::vector<float> found =
          problem.run(kernels::kernel_table().attention, 0, shape.heads, 1 + rng() % 128);
      INFO(describe(shape));
      CHECK(beyond(found.data(), expected, tolerance).value_or("") == "");
    }
  }
}

}  // namespace
}  // namespace sluice::test
