// Sequences for the kernels of recurrent layers (kernels/convolution.h, kernels/recurrence.h), to
// be run with any tier and cut into calls of any length.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "kernels/convolution.h"
#include "kernels/recurrence.h"
#include "tests/kernels_support.h"

namespace sluice::test {

inline constexpr float untouched = 77;  // between the rows, where no kernel may write

// `rows` rows of `size` random floats, `gap` floats apart.
inline std::vector<float> gapped_rows(std::size_t rows, std::size_t size, std::size_t gap,
                                      Data data, Rng& rng) {
  std::vector<float> all;
  for (std::size_t r = 0; r < rows; ++r) {
    const std::vector<float> row = random_floats(size, data, rng);
    all.insert(all.end(), row.begin(), row.end());
    all.insert(all.end(), gap, untouched);
  }
  return all;
}

struct ConvolutionCase {
  static constexpr std::size_t gap = 3;

  ConvolutionCase(std::size_t positions_, std::size_t channels_, std::size_t taps_, Data data,
                  Rng& rng)
      : positions(positions_),
        channels(channels_),
        tap_count(taps_),
        has_bias(rng() % 2 == 0),
        has_silu(rng() % 2 == 0),
        in_place(rng() % 2 == 0),
        x(gapped_rows(positions, channels, gap, data, rng)),
        taps(random_floats(channels * tap_count, data, rng)),
        bias(random_floats(channels, data, rng)),
        tail(gapped_rows(tap_count - 1, channels, gap, data, rng)) {}

  std::string name() const {
    return "convolution of " + std::to_string(positions) + " positions, " +
           std::to_string(channels) + " channels, " + std::to_string(tap_count) + " taps" +
           (has_bias ? ", bias" : "") + (has_silu ? ", silu" : "");
  }

  // The outputs and then the tail, with their gaps, after calls of `cut` positions for parts of
  // `part` channels.
  std::vector<float> run(const kernels::ConvolutionKernels& kernels, std::size_t cut,
                         std::size_t part) const {
    std::vector<float> out = x, last = tail, next = tail;
    for (std::size_t c = 0; c < channels; c += part) {
      for (std::size_t p = 0; p < positions; p += cut) {
        kernels::ConvolutionArgs args{};
        args.x = out.data() + p * (channels + gap) + c;
        args.stride = args.tail_stride = channels + gap;
        args.taps = taps.data() + c * tap_count;
        args.bias = has_bias ? bias.data() + c : nullptr;
        if (!tail.empty()) {  // a single tap has none
          args.tail = last.data() + c;
          args.next_tail = (in_place ? last : next).data() + c;
        }
        args.positions = std::min(cut, positions - p);
        args.channels = std::min(part, channels - c);
        args.tap_count = tap_count;
        args.has_silu = has_silu;
        kernels.causal(args);
        if (!in_place) last = next;
      }
    }
    out.insert(out.end(), last.begin(), last.end());
    return out;
  }
  std::vector<float> run(const kernels::ConvolutionKernels& kernels) const {
    return run(kernels, positions, channels);
  }

  std::size_t positions, channels, tap_count;
  bool has_bias, has_silu, in_place;  // the last: whether the tail is read and written in one place
  std::vector<float> x, taps, bias, tail;  // [positions], [channels][taps], ..., [taps - 1]
};

// The second has a decay of each element of the key.
enum class Rule { delta, row_decay, scan, channels, removal };
inline constexpr std::array all_rules = {Rule::delta, Rule::row_decay, Rule::scan, Rule::channels,
                                         Rule::removal};

// One head. Keys of normal data have length 1, decays and rates are in 0..1, as in models.
struct RecurrenceCase {
  static constexpr std::size_t gap = 5;

  RecurrenceCase(Rule rule_, std::size_t positions_, std::size_t key_dim_, std::size_t value_dim_,
                 Data data, Rng& rng)
      : rule(rule_),
        positions(positions_),
        key_dim(key_dim_),
        value_dim(value_dim_),
        in_place(rng() % 2 == 0),
        queries(gapped_rows(positions, key_dim, gap, data, rng)),
        keys(gapped_rows(positions, key_dim, gap, data, rng)),
        values(gapped_rows(positions, value_dim, gap, data, rng)),
        removed_keys(gapped_rows(positions, key_dim, gap, data, rng)),
        removal_rates(gapped_rows(positions, key_dim, gap, data, rng)),
        decay_stride(has_row_decays() ? key_dim + 2 : 2),
        decays(random_floats(positions * decay_stride, data, rng)),
        rate_stride(rule == Rule::channels ? value_dim + 3 : 3),
        rates(random_floats(positions * rate_stride, data, rng)),
        logs(random_floats(value_dim * key_dim, data, rng)),
        skips(random_floats(value_dim, data, rng)),
        state(random_floats(kernels::state_floats(key_dim, value_dim), data, rng)) {
    if (data != Data::normal) return;
    for (std::vector<float>* rows : {&keys, &removed_keys}) {
      for (std::size_t p = 0; p < positions; ++p) {
        float* key = rows->data() + p * (key_dim + gap);
        double squares = 0;
        for (std::size_t i = 0; i < key_dim; ++i) squares += static_cast<double>(key[i]) * key[i];
        for (std::size_t i = 0; i < key_dim; ++i) key[i] /= static_cast<float>(std::sqrt(squares));
      }
    }
    for (float& decay : decays) decay = std::exp(-std::abs(decay) / 8);
    for (float& log : logs) log = -std::abs(log);
    for (std::vector<float>* factors : {&rates, &removal_rates}) {
      for (float& rate : *factors) rate = std::min(std::abs(rate) / 6, 1.0f);
    }
  }

  bool has_row_decays() const { return rule == Rule::row_decay || rule == Rule::removal; }

  std::string name() const {
    const char* names[] = {"delta rule", "delta rule with decays of rows", "state scan",
                           "channel scan", "removal rule"};
    return std::string(names[static_cast<int>(rule)]) + ", " + std::to_string(positions) +
           " positions, state " + std::to_string(key_dim) + " x " + std::to_string(value_dim);
  }

  // The outputs, which take the place of the values, and then the state, after calls of `cut`
  // positions.
  std::vector<float> run(const kernels::RecurrenceKernels& kernels, std::size_t cut) const {
    std::vector<float> out = values, last = state, next(state.size(), not_a_number);
    for (std::size_t p = 0; p < positions; p += cut) {
      kernels::RecurrenceArgs args{};
      args.queries = queries.data() + p * (key_dim + gap);
      args.keys = keys.data() + p * (key_dim + gap);
      args.key_stride = key_dim + gap;
      args.values = args.out = out.data() + p * (value_dim + gap);
      args.value_stride = args.out_stride = value_dim + gap;
      (has_row_decays() ? args.key_decays : args.decays) = decays.data() + p * decay_stride;
      args.decay_stride = decay_stride;
      args.rates = rates.data() + p * rate_stride;
      args.rate_stride = rate_stride;
      args.skip = skip;
      args.skips = skips.data();
      args.logs = logs.data();
      args.removed_keys = removed_keys.data() + p * (key_dim + gap);
      args.removal_rates = removal_rates.data() + p * (key_dim + gap);
      args.state = last.data();
      args.next_state = (in_place ? last : next).data();
      args.positions = std::min(cut, positions - p);
      args.key_dim = key_dim;
      args.value_dim = value_dim;
      kernel(kernels)(args);
      if (!in_place) last = next;
    }
    out.insert(out.end(), last.begin(), last.end());
    return out;
  }
  std::vector<float> run(const kernels::RecurrenceKernels& kernels) const {
    return run(kernels, positions);
  }

  using Kernel = void (*)(const kernels::RecurrenceArgs& args);
  Kernel kernel(const kernels::RecurrenceKernels& kernels) const {
    switch (rule) {
      case Rule::scan:
        return kernels.state_scan;
      case Rule::channels:
        return kernels.channel_scan;
      case Rule::removal:
        return kernels.removal_rule;
      default:
        return kernels.delta_rule;
    }
  }

  static constexpr float skip = 0.7f;
  Rule rule;
  std::size_t positions, key_dim, value_dim;
  bool in_place;  // whether the state is read and written in one place
  std::vector<float> queries, keys, values, removed_keys, removal_rates;
  std::size_t decay_stride;
  std::vector<float> decays;
  std::size_t rate_stride;
  std::vector<float> rates, logs, skips, state;
};

}  // namespace sluice::test
