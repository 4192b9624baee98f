#include "kernels/grid_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include "kernels/dequantise.h"

namespace sluice::kernels {
namespace {

constexpr int block_weights = 256;
constexpr float infinity = std::numeric_limits<float>::infinity();

// --- Grids, by halves of their entries -----------------------------------------------------------

// A pattern is the numbers of half an entry: 4 of two bits, or 2 of four bits.
struct Entry {
  std::uint8_t second;  // pattern of the second half
  std::uint16_t index;
};
struct FirstHalf {
  std::uint8_t pattern;
  std::vector<Entry> entries;
};
struct SplitGrid {
  std::vector<FirstHalf> first_halves;
  std::vector<std::uint8_t> seconds;  // patterns that occur as second halves
};

std::uint8_t half_of_octet(std::uint16_t entry, int half) {
  int pattern = 0;
  for (int i = 0; i < 4; ++i) pattern |= (entry >> (4 * i + 2 * half) & 3) << (2 * i);
  return static_cast<std::uint8_t>(pattern);
}

SplitGrid split(const GridFormat& format) {
  std::map<std::uint8_t, std::vector<Entry>> by_first;
  std::array<bool, 256> occurs{};
  for (int i = 0; i < format.entries; ++i) {
    const std::uint16_t entry = format.grid[i];
    const bool is_octet = format.entry_weights == 8;
    const auto half = [&](int h) {
      return is_octet ? half_of_octet(entry, h) : static_cast<std::uint8_t>(entry >> (8 * h));
    };
    by_first[half(0)].push_back({half(1), static_cast<std::uint16_t>(i)});
    occurs[half(1)] = true;
  }
  SplitGrid out;
  for (auto& [pattern, entries] : by_first) {
    out.first_halves.push_back({pattern, std::move(entries)});
  }
  for (int i = 0; i < 256; ++i) {
    if (occurs[i]) out.seconds.push_back(static_cast<std::uint8_t>(i));
  }
  return out;
}

// The grid of a format, split at its first use.
const SplitGrid& split_grid(const GridFormat& format) {
  static std::mutex mutex;
  static std::map<const std::uint16_t*, SplitGrid> grids;  // a map moves nothing when it grows
  const std::lock_guard lock(mutex);
  const auto found = grids.find(format.grid);
  return found != grids.end() ? found->second
                              : grids.emplace(format.grid, split(format)).first->second;
}

// --- Errors of patterns --------------------------------------------------------------------------

// The errors of all patterns of half an entry: as they are, and with the cheapest change of one
// sign.
struct HalfErrors {
  std::array<float, 256> same, flipped;
};

// Errors of one weight for each number: as it is, and with the other sign.
struct WeightErrors {
  std::array<float, 8> same, flipped;
};

class EntrySearch {
 public:
  EntrySearch(const GridFormat& format, const SplitGrid& grid) : format_(format), grid_(grid) {}

  struct Found {
    float error = infinity;
    int index = 0;
    int flipped_half = -1;  // where a sign was changed
  };

  // Tabulates the errors of an entry's values x for x' = scale (value + shift); with `flips` also
  // those with one sign changed.
  void tabulate(const float* x, const float* w, float scale, int shift, bool flips) {
    const int half = format_.entry_weights / 2;
    for (int h = 0; h < 2; ++h) {
      tabulate_half(x + h * half, w + h * half, scale, shift, flips, errors_[h]);
    }
  }

  // The best entry; `flip` with one sign changed.
  Found best(bool flip) const {
    if (!flip) return best_of(errors_[0].same, errors_[1].same);
    Found in_first = best_of(errors_[0].flipped, errors_[1].same);
    Found in_second = best_of(errors_[0].same, errors_[1].flipped);
    in_first.flipped_half = 0;
    in_second.flipped_half = 1;
    return in_second.error < in_first.error ? in_second : in_first;
  }

 private:
  void tabulate_half(const float* x, const float* w, float scale, int shift, bool flips,
                     HalfErrors& out) const {
    const auto of_weight = [&](int i) {
      WeightErrors errors;
      for (int n = 0; n < format_.value_count; ++n) {
        const float value = scale * static_cast<float>(format_.values[n] + shift);
        errors.same[n] = w[i] * (x[i] - value) * (x[i] - value);
        if (flips) errors.flipped[n] = w[i] * (x[i] + value) * (x[i] + value);
      }
      return errors;
    };
    if (format_.entry_weights == 4) {
      join(of_weight(0), of_weight(1), format_.value_count, flips, out);
      return;
    }
    HalfErrors low, high;
    join(of_weight(0), of_weight(1), format_.value_count, flips, low);
    join(of_weight(2), of_weight(3), format_.value_count, flips, high);
    join_pairs(low, high, flips, out);
  }

  // The errors of two weights together.
  void join(const WeightErrors& a, const WeightErrors& b, int count, bool flips,
            HalfErrors& out) const {
    const int bits = format_.entry_weights == 8 ? 2 : 4;
    for (int j = 0; j < count; ++j) {
      for (int i = 0; i < count; ++i) {
        const int at = i | j << bits;
        out.same[at] = a.same[i] + b.same[j];
        if (flips) {
          out.flipped[at] = std::min(a.flipped[i] + b.same[j], a.same[i] + b.flipped[j]);
        }
      }
    }
  }
  // The errors of two pairs of numbers of two bits together.
  void join_pairs(const HalfErrors& a, const HalfErrors& b, bool flips, HalfErrors& out) const {
    constexpr std::array<int, 9> pairs = {0, 1, 2, 4, 5, 6, 8, 9, 10};
    for (const int j : pairs) {
      for (const int i : pairs) {
        const int at = i | j << 4;
        out.same[at] = a.same[i] + b.same[j];
        if (flips) {
          out.flipped[at] = std::min(a.flipped[i] + b.same[j], a.same[i] + b.flipped[j]);
        }
      }
    }
  }

  Found best_of(const std::array<float, 256>& first, const std::array<float, 256>& second) const {
    float least_second = infinity;
    for (const std::uint8_t pattern : grid_.seconds) {
      least_second = std::min(least_second, second[pattern]);
    }
    const FirstHalf* start = &grid_.first_halves.front();
    for (const FirstHalf& half : grid_.first_halves) {
      if (first[half.pattern] < first[start->pattern]) start = &half;
    }
    Found found;
    const auto look_in = [&](const FirstHalf& half) {
      for (const Entry& entry : half.entries) {
        const float error = first[half.pattern] + second[entry.second];
        if (error < found.error) {
          found.error = error;
          found.index = entry.index;
        }
      }
    };
    look_in(*start);
    for (const FirstHalf& half : grid_.first_halves) {
      if (first[half.pattern] + least_second < found.error) look_in(half);
    }
    return found;
  }

  const GridFormat& format_;
  const SplitGrid& grid_;
  std::array<HalfErrors, 2> errors_;
};

// --- Sub-blocks ----------------------------------------------------------------------------------

// The codes of a sub-block for one scale, and what the best scale for them follows from.
struct SubBlock {
  float error = infinity;
  double xv = 0, vv = 0;  // the sums of w x v and w v v, where x' = scale v
  std::array<std::uint16_t, 8> index{};
  std::array<std::uint8_t, 4> signs{};
  std::array<bool, 4> is_minus{};

  float best_scale() const { return vv > 0 ? static_cast<float>(std::max(xv / vv, 0.0)) : 0; }
};

class SubBlockSearch {
 public:
  SubBlockSearch(const GridFormat& format, const SplitGrid& grid, const float* x, const float* w)
      : format_(format), search_(format, grid), w_(w) {
    for (int i = 0; i < format.sub_block; ++i) {
      const bool takes_sign = format.signs != GridSigns::shifted && x[i] < 0;
      magnitude_[i] = takes_sign ? -x[i] : x[i];
      largest_ = std::max(largest_, std::abs(x[i]));
      if (takes_sign) natural_signs_[i / 8] |= static_cast<std::uint8_t>(1 << i % 8);
    }
  }

  float largest() const { return largest_; }

  // The best codes for a scale.
  SubBlock with_scale(float scale) {
    SubBlock out;
    out.error = 0;
    if (format_.signs != GridSigns::shifted) {
      for (int o = 0; o < format_.sub_block / 8; ++o) add_octet(o, scale, 0, out);
      return out;
    }
    const int octets = format_.shift_group / 8;
    for (int first = 0; first < format_.sub_block / 8; first += octets) {
      SubBlock plus = out, minus = out;
      for (int o = first; o < first + octets; ++o) {
        add_octet(o, scale, 1, plus);
        add_octet(o, scale, -1, minus);
        minus.is_minus[o] = true;
      }
      out = minus.error < plus.error ? minus : plus;
    }
    return out;
  }

 private:
  void add_octet(int o, float scale, int shift, SubBlock& out) {
    const bool is_odd =
        format_.signs == GridSigns::even && __builtin_popcount(natural_signs_[o]) % 2 != 0;
    out.signs[o] = natural_signs_[o];
    if (format_.entry_weights == 8) {
      search_.tabulate(magnitude_.data() + 8 * o, w_ + 8 * o, scale, shift, is_odd);
      add_entry(8 * o, o, scale, shift, search_.best(is_odd), out);
      return;
    }
    // Of two quads, one has the changed sign.
    EntrySearch::Found same[2], flipped[2];
    for (int q = 0; q < 2; ++q) {
      search_.tabulate(magnitude_.data() + 8 * o + 4 * q, w_ + 8 * o + 4 * q, scale, shift, is_odd);
      same[q] = search_.best(false);
      if (is_odd) flipped[q] = search_.best(true);
    }
    if (is_odd) {
      const bool in_second = same[0].error + flipped[1].error < flipped[0].error + same[1].error;
      same[in_second] = flipped[in_second];
    }
    for (int q = 0; q < 2; ++q) add_entry(8 * o + 4 * q, 2 * o + q, scale, shift, same[q], out);
  }

  // Adds an entry for the weights from `at` on.
  void add_entry(int at, int number, float scale, int shift, const EntrySearch::Found& found,
                 SubBlock& out) {
    const std::uint16_t entry = format_.grid[found.index];
    const int count = format_.entry_weights;
    std::array<float, 8> v{};
    for (int i = 0; i < count; ++i) {
      const int n = count == 8 ? entry >> (4 * (i % 4) + 2 * (i / 4)) & 3 : entry >> (4 * i) & 15;
      v[i] = static_cast<float>(format_.values[n] + shift);
    }
    if (found.flipped_half >= 0) {
      const int flipped = cheapest_flip(at, count / 2 * found.flipped_half, count / 2, scale, v);
      v[flipped] = -v[flipped];
      out.signs[at / 8] ^= static_cast<std::uint8_t>(1 << (at + flipped) % 8);
    }
    for (int i = 0; i < count; ++i) {
      const double wv = static_cast<double>(w_[at + i]) * v[i];
      out.xv += wv * magnitude_[at + i];
      out.vv += wv * v[i];
    }
    out.error += found.error;
    out.index[number] = static_cast<std::uint16_t>(found.index);
  }

  // Which of `count` weights from `first` on loses least by another sign.
  int cheapest_flip(int at, int first, int count, float scale, const std::array<float, 8>& v) {
    int cheapest = first;
    float least = infinity;
    for (int i = first; i < first + count; ++i) {
      const float loss = w_[at + i] * magnitude_[at + i] * scale * v[i];
      if (loss < least) {
        least = loss;
        cheapest = i;
      }
    }
    return cheapest;
  }

  const GridFormat& format_;
  EntrySearch search_;
  const float* w_;
  std::array<float, 32> magnitude_{};
  std::array<std::uint8_t, 4> natural_signs_{};
  float largest_ = 0;
};

// The scale that suits a sub-block best, were it free.
float free_scale(const GridFormat& format, SubBlockSearch& search) {
  constexpr float least = 1e-30f;
  if (search.largest() < least) return 0;
  const int top = *std::max_element(format.values, format.values + format.value_count) +
                  (format.signs == GridSigns::shifted ? 1 : 0);
  float best = 0;
  double best_gain = 0;  // by how much the error is below the sum of w x x
  const auto try_scale = [&](float scale) {
    const SubBlock codes = search.with_scale(scale);
    const float next = codes.best_scale();
    const double gain = next * codes.xv;
    if (gain > best_gain) {
      best_gain = gain;
      best = next;
    }
  };
  // Where the largest value lies, as a part of the highest code. The last two are for sub-blocks of
  // nearly one value, which some grids hold at a lower code alone.
  for (const float reach : {0.62f, 0.8f, 0.98f, 1.72f, 5.375f}) {
    try_scale(search.largest() * reach / static_cast<float>(top));
  }
  try_scale(best);
  return best;
}

// --- Blocks --------------------------------------------------------------------------------------

// A block with its codes, and its error.
struct Candidate {
  double error = std::numeric_limits<double>::infinity();
  float d = 0;
  std::array<int, 16> n{};
  std::array<SubBlock, 16> codes;

  // The best d for these codes and scales.
  float best_d(const GridFormat& format, int count) const {
    double xv = 0, vv = 0;
    for (int s = 0; s < count; ++s) {
      const double scale = static_cast<double>(format.unit) * (2 * n[s] + 1);
      xv += scale * codes[s].xv;
      vv += scale * scale * codes[s].vv;
    }
    return vv > 0 ? static_cast<float>(xv / vv) : 0;
  }
};

float rounded_to_half(float x) {
  return half_to_float(float_to_half(x));
}

// The block for a given d: for each sub-block the better of the two scales next to the wanted one.
Candidate with_d(const GridFormat& format, std::vector<SubBlockSearch>& searches,
                 const std::vector<float>& wanted, float d) {
  Candidate out;
  out.d = d;
  out.error = 0;
  for (std::size_t s = 0; s < searches.size(); ++s) {
    const float exact = (wanted[s] / (d * format.unit) - 1) / 2;
    const int below = static_cast<int>(
        std::floor(std::clamp(exact, 0.0f, static_cast<float>(format.scales - 1))));
    out.n[s] = below;
    for (int n = below; n < std::min(below + 2, format.scales); ++n) {
      const SubBlock codes =
          searches[s].with_scale(d * format.unit * static_cast<float>(2 * n + 1));
      if (codes.error < out.codes[s].error) {
        out.codes[s] = codes;
        out.n[s] = n;
      }
    }
    out.error += static_cast<double>(out.codes[s].error);
  }
  return out;
}

GridBlock packed(const GridFormat& format, const Candidate& found) {
  GridBlock out{};
  out.d = float_to_half(found.d);
  const int octets = format.sub_block / 8, entries = format.sub_block / format.entry_weights;
  for (int s = 0; s < block_weights / format.sub_block; ++s) {
    const SubBlock& codes = found.codes[s];
    out.scale[s] = static_cast<std::uint8_t>(found.n[s]);
    std::copy_n(codes.index.begin(), entries, out.index + s * entries);
    std::copy_n(codes.signs.begin(), octets, out.signs + s * octets);
    std::copy_n(codes.is_minus.begin(), octets, out.is_minus + s * octets);
  }
  return out;
}

}  // namespace

GridBlock find_grid_block(const GridFormat& format, const float* x, const float* w) {
  const SplitGrid& grid = split_grid(format);
  std::vector<SubBlockSearch> searches;
  std::vector<float> wanted;
  for (int at = 0; at < block_weights; at += format.sub_block) {
    searches.emplace_back(format, grid, x + at, w + at);
    wanted.push_back(free_scale(format, searches.back()));
  }
  const float largest = *std::max_element(wanted.begin(), wanted.end());
  Candidate best;
  for (const float reach : {1.0f, 0.9f}) {  // of the largest scale, in the range of scales
    const float top = static_cast<float>(2 * format.scales - 1) * reach * format.unit;
    float d = rounded_to_half(largest / top);
    for (int round = 0; round < 2 && d > 0; ++round) {
      const Candidate found = with_d(format, searches, wanted, d);
      if (found.error < best.error) best = found;
      d = rounded_to_half(found.best_d(format, static_cast<int>(searches.size())));
    }
  }
  return packed(format, best);
}

std::uint16_t ternary_scale(const float* x, const float* w, int count) {
  // The values that are not 0 are the largest ones, however many.
  std::array<int, block_weights> order;
  for (int i = 0; i < count; ++i) order[i] = i;
  std::sort(order.begin(), order.begin() + count, [&](int a, int b) {
    const float of_a = std::abs(x[a]), of_b = std::abs(x[b]);
    return of_a != of_b ? of_a > of_b : a < b;
  });
  double sum = 0, weight = 0, best_gain = 0, best = 0;
  for (int i = 0; i < count; ++i) {
    sum += static_cast<double>(w[order[i]]) * std::abs(x[order[i]]);
    weight += static_cast<double>(w[order[i]]);
    if (sum * sum / weight > best_gain) {
      best_gain = sum * sum / weight;
      best = sum / weight;
    }
  }
  return float_to_half(static_cast<float>(best));
}

std::uint16_t binary_scale(const float* x, const float* w, int count) {
  double sum = 0, weight = 0;
  for (int i = 0; i < count; ++i) {
    sum += static_cast<double>(w[i]) * std::abs(x[i]);
    weight += static_cast<double>(w[i]);
  }
  return float_to_half(static_cast<float>(sum / weight));
}

}  // namespace sluice::kernels
