#include "core/quant/type_choice.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <fmt/format.h>
#include <functional>
#include <tuple>
#include <utility>

#include "core/gguf/gguf.h"
#include "core/quant/row_converter.h"
#include "core/text/quoted.h"
#include "kernels/dequantise.h"
#include "kernels/encode.h"

namespace sluice::quant {
namespace {

using kernels::BlockType;

constexpr std::array offered = {
    BlockType::iq1_s,  BlockType::iq1_m, BlockType::iq2_xxs, BlockType::iq2_xs, BlockType::iq2_s,
    BlockType::q2_k,   BlockType::q3_k,  BlockType::iq3_xxs, BlockType::iq3_s,  BlockType::iq4_xs,
    BlockType::iq4_nl, BlockType::q4_0,  BlockType::q4_1,    BlockType::q4_k,   BlockType::q5_0,
    BlockType::q5_1,   BlockType::q5_k,  BlockType::q6_k,    BlockType::q8_0,
};

// How many weights of a matrix are tried, in rows from all over it.
constexpr std::uint64_t weights_tried = std::uint64_t{1} << 16;
constexpr std::uint64_t least_rows = 8;

// Some rows of a tensor, with the weights of their columns.
class Sample {
 public:
  explicit Sample(const PlannedTensor& tensor) : conversion_(conversion_of(tensor)) {
    conversion_.to = BlockType::q8_0;  // holds what any of those that are offered holds
    const std::uint64_t columns = conversion_.columns, all = conversion_.rows;
    const std::uint64_t rows = std::min(all, std::max(least_rows, weights_tried / columns));
    std::vector<std::byte> in(kernels::row_bytes(conversion_.from, columns));
    std::vector<float> values;
    for (std::uint64_t i = 0; i < rows; ++i) {
      const std::uint64_t row = (2 * i + 1) * all / (2 * rows);
      tensor.read(row, 1, in);
      RowConverter::read_row(conversion_, row, in.data(), values);
      RowConverter::check_values(conversion_, values);
      values_.insert(values_.end(), values.begin(), values.end());
      importances_.push_back(conversion_.importance_of(row));
      energy_ += weighted_squares(i, values.data());
    }
  }

  std::size_t rows() const { return importances_.size(); }
  double energy() const { return energy_; }

  // Of row i in a format.
  double error(std::size_t i, BlockType type) const {
    const std::size_t columns = conversion_.columns;
    const float* values = values_.data() + i * columns;
    std::vector<std::byte> blocks(kernels::row_bytes(type, columns));
    kernels::encode(type, values, columns, importances_[i], blocks.data());
    std::vector<float> rests(columns);
    kernels::dequantise(type, blocks.data(), columns, rests.data());
    for (std::size_t k = 0; k < columns; ++k) rests[k] = values[k] - rests[k];
    return weighted_squares(i, rests.data());
  }

 private:
  double weighted_squares(std::size_t i, const float* x) const {
    const float* w = importances_[i];
    double sum = 0;
    for (std::size_t k = 0; k < conversion_.columns; ++k) {
      sum += (w == nullptr ? 1 : double{w[k]}) * double{x[k]} * double{x[k]};
    }
    return sum;
  }

  Conversion conversion_;
  std::vector<float> values_;
  std::vector<const float*> importances_;  // null: all columns count alike
  double energy_ = 0;
};

// The options that are smaller or more exact than all lines between others: their places, from the
// smallest to the largest. What a byte takes off the error falls from each to the next.
std::vector<std::size_t> worth_taking(const std::vector<TypeOption>& options) {
  std::vector<std::size_t> order(options.size()), hull;
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(
      order, {}, [&](std::size_t i) { return std::tuple(options[i].bytes, options[i].error, i); });
  const auto gain = [&](std::size_t from, std::size_t to) {
    return (options[from].error - options[to].error) /
           static_cast<double>(options[to].bytes - options[from].bytes);
  };
  for (const std::size_t next : order) {
    if (!hull.empty() && options[next].error >= options[hull.back()].error) continue;
    while (hull.size() > 1 && gain(hull[hull.size() - 2], hull.back()) <= gain(hull.back(), next)) {
      hull.pop_back();
    }
    hull.push_back(next);
  }
  return hull;
}

// From one option of a matrix to the next.
struct Step {
  std::size_t matrix, from;  // an index in its hull
  std::uint64_t bytes;
  double gain;  // of a byte
};

}  // namespace

std::uint64_t aligned_bytes(const PlannedTensor& tensor, BlockType type) {
  const Conversion conversion = conversion_of(tensor);
  const std::uint64_t bytes = conversion.rows * kernels::row_bytes(type, conversion.columns);
  constexpr std::uint64_t unit = gguf::default_alignment;
  return (bytes + unit - 1) / unit * unit;
}

std::vector<TypeOption> type_options(const PlannedTensor& tensor, topology::ThreadTeam& team) {
  std::vector<TypeOption> options = {{tensor.from, aligned_bytes(tensor, tensor.from), 0}};
  for (const BlockType type : offered) {
    if (tensor.dims[0] % kernels::traits(type).elements_per_block != 0) continue;
    if (needs_importance(type) && tensor.importance.empty()) continue;
    const std::uint64_t bytes = aligned_bytes(tensor, type);
    if (bytes < options.front().bytes) options.push_back({type, bytes, 0});
  }
  if (options.size() == 1) return options;
  const Sample sample(tensor);
  const std::size_t types = options.size() - 1;
  std::vector<double> errors(sample.rows() * types);
  topology::for_each_part(team, errors.size(),
                          [&](std::size_t, std::size_t begin, std::size_t end) {
                            for (std::size_t i = begin; i < end; ++i) {
                              errors[i] = sample.error(i / types, options[1 + i % types].type);
                            }
                          });
  for (std::size_t i = 0; i < errors.size(); ++i) {
    if (sample.energy() > 0) options[1 + i % types].error += errors[i] / sample.energy();
  }
  return options;
}

std::string warning_of_few_values(std::span<const PlannedTensor> tensors) {
  constexpr std::array few = {BlockType::q1_0, BlockType::tq1_0, BlockType::tq2_0, BlockType::q2_0};
  constexpr double error_max = 0.01;  // what scales in F16 lose is far less
  std::size_t count = 0;
  double most = 0;
  const PlannedTensor* worst = nullptr;
  for (const PlannedTensor& tensor : tensors) {
    if (tensor.from == tensor.to || std::ranges::find(few, tensor.to) == few.end()) continue;
    const Sample sample(tensor);
    double error = 0;
    for (std::size_t i = 0; i < sample.rows(); ++i) error += sample.error(i, tensor.to);
    if (error <= error_max * sample.energy()) continue;
    ++count;
    if (error / sample.energy() <= most) continue;
    most = error / sample.energy();
    worst = &tensor;
  }
  if (count == 0) return {};
  const std::string others = count == 1 ? "" : fmt::format(" and {} more", count - 1);
  return fmt::format(
      "{} is for weights that are ternary or binary already, and those of {}{} are not: products "
      "differ by {:.2g} of their squares, so the model will hardly write sense; Q2_K has as few "
      "bits as ordinary weights bear without --imatrix",
      kernels::traits(worst->to).name, text::quoted(worst->name), others, most);
}

std::optional<std::vector<std::size_t>> choose_options(
    std::span<const std::vector<TypeOption>> matrices, std::uint64_t bytes_max) {
  std::vector<std::vector<std::size_t>> hulls;
  std::vector<Step> steps;
  std::uint64_t bytes = 0;
  for (const std::vector<TypeOption>& options : matrices) {
    const std::vector<std::size_t>& hull = hulls.emplace_back(worth_taking(options));
    bytes += options[hull.front()].bytes;
    for (std::size_t i = 0; i + 1 < hull.size(); ++i) {
      const TypeOption &from = options[hull[i]], &to = options[hull[i + 1]];
      const std::uint64_t more = to.bytes - from.bytes;
      steps.push_back(
          {hulls.size() - 1, i, more, (from.error - to.error) / static_cast<double>(more)});
    }
  }
  if (bytes > bytes_max) return std::nullopt;
  std::ranges::stable_sort(steps, std::ranges::greater(), &Step::gain);
  std::vector<std::size_t> taken(matrices.size(), 0);  // how far along each hull
  for (const Step& step : steps) {
    if (step.from != taken[step.matrix] || step.bytes > bytes_max - bytes) continue;
    bytes += step.bytes;
    ++taken[step.matrix];
  }
  for (std::size_t i = 0; i < taken.size(); ++i) taken[i] = hulls[i][taken[i]];
  return taken;
}

}  // namespace sluice::quant
