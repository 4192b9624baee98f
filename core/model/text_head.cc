#include "core/model/text_head.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

namespace sluice::model {

TextHead::TextHead(WeightLayout& layout, const HyperParameters& hp, const TextHeadSpec& spec)
    : spec_(spec), outputs_(hp.embedding) {
  dense_2_ = read_linear(layout, "dense_2");
  dense_3_ = read_linear(layout, "dense_3");
  cls_ = read_linear(layout, "cls");
  if (layout.has("cls.norm.weight")) {
    norm_ = {.weight = layout.vector("cls.norm.weight", {outputs_}),
             .bias = layout.optional_vector("cls.norm.bias", {outputs_}),
             .epsilon = hp.norm_epsilon,
             .subtracts_mean = true};
  }
  scores_ = read_linear(layout, "cls.output");
}

// Reads a layer whose inputs are the outputs of those before it.
TextHead::Linear TextHead::read_linear(WeightLayout& layout, const char* stem) {
  const std::string weight = std::string(stem) + ".weight", bias = std::string(stem) + ".bias";
  const gguf::TensorInfo* tensor = layout.model().find_tensor(weight);
  if (tensor == nullptr) return {};
  Linear linear{.in = outputs_, .out = tensor->dims[1]};
  if (linear.out == 0 || linear.out > width_max) {
    throw layout.error(weight, "has a number of rows that makes no sense");
  }
  linear.weight = layout.vector(weight, {linear.in, linear.out});
  linear.bias = layout.optional_vector(bias, {linear.out});
  outputs_ = static_cast<std::uint32_t>(linear.out);
  return linear;
}

std::vector<float> TextHead::multiply(const Linear& linear, std::span<const float> x) {
  std::vector<float> out(linear.out);
  for (std::size_t r = 0; r < linear.out; ++r) {
    const Vector row = linear.weight.subspan(r * linear.in, linear.in);
    double sum = linear.bias.empty() ? 0 : linear.bias[r];
    for (std::size_t i = 0; i < linear.in; ++i) sum += double{row[i]} * x[i];
    out[r] = static_cast<float>(sum);
  }
  return out;
}

void TextHead::activate(std::span<float> values) const {
  for (float& value : values) {
    const double x = value;
    switch (spec_.activation) {
      case TextHeadSpec::Activation::tanh:
        value = static_cast<float>(std::tanh(x));
        break;
      case TextHeadSpec::Activation::gelu:
        value = static_cast<float>(x / 2 * (1 + std::erf(x / std::numbers::sqrt2)));
        break;
      case TextHeadSpec::Activation::silu:
        value = static_cast<float>(x / (1 + std::exp(-x)));
        break;
    }
  }
}

std::vector<float> TextHead::apply(std::span<const float> pooled) const {
  std::vector<float> y(pooled.begin(), pooled.end());
  for (const Linear* dense : {&dense_2_, &dense_3_}) {
    if (!dense->weight.empty()) y = multiply(*dense, y);
  }
  if (!cls_.weight.empty()) {
    y = multiply(cls_, y);
    activate(y);
  }
  if (!norm_.empty()) {
    double mean = 0, squares = 0;
    for (const float x : y) mean += x / static_cast<double>(y.size());
    for (const float x : y) squares += (x - mean) * (x - mean) / static_cast<double>(y.size());
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double added = norm_.bias.empty() ? 0 : norm_.bias[i];
      y[i] = static_cast<float>(
          (y[i] - mean) / std::sqrt(squares + norm_.epsilon) * norm_.weight[i] + added);
    }
  }
  if (!scores_.weight.empty()) y = multiply(scores_, y);
  if (spec_.has_softmax && makes_scores()) {
    const float most = *std::ranges::max_element(y);
    double sum = 0;
    for (const float x : y) sum += std::exp(double{x} - most);
    for (float& x : y) x = static_cast<float>(std::exp(double{x} - most) / sum);
  }
  return y;
}

}  // namespace sluice::model
