// What the kernel tests share: random data from friendly to hostile, guarded buffers, and a
// comparison bit for bit.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"
#include "tests/sanitized.h"

namespace sluice::test {

using Rng = std::mt19937_64;

inline constexpr double epsilon = std::numeric_limits<float>::epsilon();
inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

// All tiers that this machine can run.
inline std::vector<kernels::Isa> all_tiers() {
  const auto offered = kernels::offered_isas();
  return {offered.begin(), offered.end()};
}

// But scalar.
inline std::vector<kernels::Isa> tiers_above_scalar() {
  const auto offered = kernels::offered_isas().subspan(1);
  return {offered.begin(), offered.end()};
}

// The names of the tiers that tests of whole models run on. The sanitizers see every tier in the
// tests of the kernels, so there the highest is enough.
inline std::vector<std::string> tiers_of_models() {
  std::vector<std::string> names;
  for (const kernels::Isa isa : all_tiers()) names.emplace_back(kernels::isa_name(isa));
  if (is_sanitized) names.erase(names.begin(), names.end() - 1);
  return names;
}

// Sizes around every boundary of a 16-lane loop, and one that is long.
inline std::vector<std::size_t> odd_sizes() {
  std::vector<std::size_t> sizes;
  for (std::size_t n = 1; n <= 70; ++n) sizes.push_back(n);
  for (const std::size_t n : {127, 128, 129, 4099}) sizes.push_back(n);
  return sizes;
}

enum class Data { normal, huge, tiny, equal, zeros, signed_zeros, infinities, nans, any_bits };

inline constexpr Data all_data[] = {Data::normal,     Data::huge,  Data::tiny,
                                    Data::equal,      Data::zeros, Data::signed_zeros,
                                    Data::infinities, Data::nans,  Data::any_bits};

inline std::string data_name(Data data) {
  static const char* const names[] = {"normal",       "huge",       "tiny", "equal",   "zeros",
                                      "signed zeros", "infinities", "nans", "any bits"};
  return names[static_cast<std::size_t>(data)];
}

inline float sample(Data data, Rng& rng) {
  std::normal_distribution<float> normal(0, 3);
  const float value = normal(rng);
  const bool rare = rng() % 8 == 0;
  switch (data) {
    case Data::normal:
      return value;
    case Data::huge:
      return value * 0x1p120f;
    case Data::tiny:
      return value * 0x1p-130f;
    case Data::equal:
      return 1.5f;
    case Data::zeros:
      return 0.0f;
    case Data::signed_zeros:
      return rng() % 2 ? 0.0f : -0.0f;
    case Data::infinities:
      return rare ? std::copysign(infinity, value) : value;
    case Data::nans:
      return rare ? not_a_number : value;
    case Data::any_bits:
      return std::bit_cast<float>(static_cast<std::uint32_t>(rng()));
  }
  return value;
}

inline std::vector<float> random_floats(std::size_t size, Data data, Rng& rng) {
  std::vector<float> values(size);
  for (float& v : values) v = sample(data, rng);
  return values;
}

// An array that starts `offset` elements after an aligned address and is watched on both sides.
template <typename T>
class Guarded {
 public:
  Guarded(std::size_t size, std::size_t offset)
      : storage_(size + offset + 1, guard), offset_(offset), size_(size) {
    std::fill(data(), data() + size, T{});
  }
  Guarded(const std::vector<T>& values, std::size_t offset) : Guarded(values.size(), offset) {
    std::copy(values.begin(), values.end(), data());
  }
  T* data() { return storage_.data() + offset_; }
  const T* data() const { return storage_.data() + offset_; }
  std::size_t size() const { return size_; }
  bool intact() const {
    return std::all_of(storage_.begin(), storage_.begin() + offset_, is_guard) &&
           is_guard(storage_.back());
  }

 private:
  static constexpr T guard = static_cast<T>(77);
  static bool is_guard(T value) { return value == guard; }
  std::vector<T> storage_;
  std::size_t offset_, size_;
};

// The same bits, or both NaN: tiers do not agree on the payload of a NaN.
inline bool same(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

template <typename T>
bool same(T a, T b) {
  return a == b;
}

// The first difference as text, or nothing.
template <typename T>
std::optional<std::string> difference(const T* found, const T* expected, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    if (same(found[i], expected[i])) continue;
    return "element " + std::to_string(i) + " of " + std::to_string(size) + " is " +
           std::to_string(found[i]) + ", expected " + std::to_string(expected[i]);
  }
  return std::nullopt;
}

// The first element that is further from the oracle than its tolerance, or nothing.
inline std::optional<std::string> beyond(const float* found, const std::vector<double>& expected,
                                         const std::vector<double>& tolerance) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::abs(static_cast<double>(found[i]) - expected[i]) <= tolerance[i]) continue;
    return "element " + std::to_string(i) + " is " + std::to_string(found[i]) + ", expected " +
           std::to_string(expected[i]) + " +- " + std::to_string(tolerance[i]);
  }
  return std::nullopt;
}

}  // namespace sluice::test
