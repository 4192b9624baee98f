// A llama decoder in double arithmetic, written from the equations and nothing else: one token
// after the other, one number after the other, whole sums. It shares no code with the engine.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <map>
#include <numbers>
#include <span>
#include <string>
#include <vector>

#include "tests/tiny_llama.h"

namespace sluice::test {

using Numbers = std::vector<double>;

class LlamaOracle {
 public:
  // The model must outlive the oracle.
  explicit LlamaOracle(const TinyLlama& model) : model_(model), s_(model.shape) {
    keys_.resize(s_.layers);
    values_.resize(s_.layers);
  }

  // The logits after the next token of the sequence, [vocabulary].
  Numbers next(std::int32_t token) {
    Numbers x = row("token_embd.weight", static_cast<std::size_t>(token));
    for (std::uint32_t i = 0; i < s_.layers; ++i) {
      const std::string block = "blk." + std::to_string(i) + ".";
      add(x, attention(i, block, normalised(x, block + "attn_norm.weight")));
      add(x, feed_forward(block, normalised(x, block + "ffn_norm.weight")));
    }
    ++position_;
    final_ = normalised(x, "output_norm.weight");
    return product(head(), final_);
  }

  // The hidden state of the last token, after the output norm: [embedding].
  const Numbers& hidden() const { return final_; }

  // Sums of squares of all that matrix `name` was multiplied with so far, column by column.
  const Numbers& squares(const std::string& name) const { return squares_.at(name); }

  // Length of the vector that was multiplied with row `r` of the head, times that of the row.
  double logit_bound(std::size_t r) const { return length(final_) * length(row(head(), r)); }

  double hidden_length() const { return length(final_); }

 private:
  std::string head() const { return s_.is_tied ? "token_embd.weight" : "output.weight"; }

  Numbers attention(std::uint32_t layer, const std::string& block, const Numbers& x) {
    Numbers q = projection(block + "attn_q", x), k = projection(block + "attn_k", x);
    for (std::uint32_t h = 0; h < s_.heads; ++h) rotate(&q[h * s_.key_dim()]);
    for (std::uint32_t g = 0; g < s_.kv_heads; ++g) rotate(&k[g * s_.key_dim()]);
    keys_[layer].push_back(k);
    values_[layer].push_back(projection(block + "attn_v", x));

    Numbers out;
    for (std::uint32_t h = 0; h < s_.heads; ++h) {
      const Numbers head = attend(layer, std::span(q).subspan(h * s_.key_dim(), s_.key_dim()),
                                  h * s_.kv_heads / s_.heads);
      out.insert(out.end(), head.begin(), head.end());
    }
    return projection(block + "attn_output", out);
  }

  // softmax(q K / sqrt(D)) V over all positions so far.
  Numbers attend(std::uint32_t layer, std::span<const double> q, std::uint32_t kv_head) const {
    Numbers out(s_.value_dim());
    double total = 0;
    for (std::size_t p = 0; p <= position_; ++p) {
      double score = 0;
      for (std::uint32_t i = 0; i < s_.key_dim(); ++i) {
        score += q[i] * keys_[layer][p][kv_head * s_.key_dim() + i];
      }
      const double weight = std::exp(score / std::sqrt(static_cast<double>(s_.key_dim())));
      total += weight;
      for (std::uint32_t i = 0; i < s_.value_dim(); ++i) {
        out[i] += weight * values_[layer][p][kv_head * s_.value_dim() + i];
      }
    }
    for (double& value : out) value /= total;
    return out;
  }

  Numbers feed_forward(const std::string& block, const Numbers& x) const {
    const Numbers gate = projection(block + "ffn_gate", x);
    Numbers hidden = projection(block + "ffn_up", x);
    for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] *= gate[i] / (1 + std::exp(-gate[i]));
    return projection(block + "ffn_down", hidden);
  }

  // Neighbours 2 i and 2 i + 1 are the parts of a complex number, which is turned and stretched.
  void rotate(double* head) const {
    for (std::uint32_t i = 0; i < s_.rotated_dims() / 2; ++i) {
      const double angle = static_cast<double>(position_) * frequency(i);
      const std::complex<double> turned =
          std::complex<double>(head[2 * i], head[2 * i + 1]) * std::polar(magnitude(), angle);
      head[2 * i] = turned.real();
      head[2 * i + 1] = turned.imag();
    }
  }

  static double given(double value, double otherwise) { return value != 0 ? value : otherwise; }

  double factor() const { return s_.scaling == "none" ? 1 : given(s_.factor, 1); }

  double frequency(std::uint32_t pair) const {
    double whole = 1 / std::pow(s_.rope_base, 2.0 * pair / s_.rotated_dims());
    if (const TinyTensor* factors = model_.find("rope_freqs.weight")) {
      whole /= factors->values[pair];
    }
    if (s_.scaling != "yarn") return whole / factor();
    // From the pair that turns beta_fast times within the original context to the one that turns
    // beta_slow times, kept frequencies become divided ones.
    const double low = std::max(0.0, std::floor(pair_turning(given(s_.beta_fast, 32))));
    const double high =
        std::min(s_.rotated_dims() - 1.0, std::ceil(pair_turning(given(s_.beta_slow, 1))));
    const double divided = std::clamp((pair - low) / std::max(0.001, high - low), 0.0, 1.0);
    return divided * whole / factor() + (1 - divided) * whole;
  }

  double pair_turning(double times) const {
    return s_.rotated_dims() / 2.0 / std::log(s_.rope_base) *
           std::log(given(s_.original_context, TinyLlama::context) /
                    (2 * std::numbers::pi * times));
  }

  double magnitude() const {
    const double stretch = given(s_.attention_factor, 1);
    return s_.scaling == "yarn" ? stretch * (1 + 0.1 * std::log(factor())) : stretch;
  }

  Numbers normalised(const Numbers& x, const std::string& name) const {
    const TinyTensor& weight = *model_.find(name);
    const double mean = length(x) * length(x) / static_cast<double>(x.size());
    Numbers out(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      out[i] = x[i] / std::sqrt(mean + s_.norm_epsilon) * weight.values[i];
    }
    return out;
  }

  Numbers projection(const std::string& name, const Numbers& x) const {
    Numbers y = product(name + ".weight", x);
    if (const TinyTensor* bias = model_.find(name + ".bias")) {
      for (std::size_t r = 0; r < y.size(); ++r) y[r] += bias->values[r];
    }
    return y;
  }

  Numbers product(const std::string& name, const Numbers& x) const {
    const TinyTensor& w = *model_.find(name);
    Numbers y(w.dims[1]), &squares = squares_[name];
    squares.resize(x.size());
    for (std::size_t c = 0; c < x.size(); ++c) squares[c] += x[c] * x[c];
    for (std::size_t r = 0; r < y.size(); ++r) {
      for (std::size_t c = 0; c < x.size(); ++c) y[r] += w.values[r * x.size() + c] * x[c];
    }
    return y;
  }

  Numbers row(const std::string& name, std::size_t r) const {
    const TinyTensor& w = *model_.find(name);
    const auto begin = w.values.begin() + static_cast<std::ptrdiff_t>(r * w.dims[0]);
    return {begin, begin + static_cast<std::ptrdiff_t>(w.dims[0])};
  }

  static void add(Numbers& x, const Numbers& delta) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += delta[i];
  }

  static double length(const Numbers& x) {
    double squares = 0;
    for (const double value : x) squares += value * value;
    return std::sqrt(squares);
  }

  const TinyLlama& model_;
  const LlamaShape& s_;
  std::size_t position_ = 0;
  std::vector<std::vector<Numbers>> keys_, values_;  // [layer][position][head and element]
  mutable std::map<std::string, Numbers> squares_;
  Numbers final_;  // what the head was multiplied with
};

}  // namespace sluice::test
