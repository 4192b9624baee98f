#include "core/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace sluice::model {
namespace {

// The pair index at which a wavelength fits `beta` times into the original context (YaRN, eq. 23).
double correction_pair(const RopeParameters& p, double beta) {
  return p.dimensions * std::log(p.original_context / (beta * 2 * std::numbers::pi)) /
         (2 * std::log(static_cast<double>(p.base)));
}

// 1 for pairs that rotate fast and keep their frequency, 0 for those that are interpolated.
double yarn_ramp(const RopeParameters& p, std::size_t pair) {
  const double low = std::max(0.0, std::floor(correction_pair(p, p.yarn_beta_fast)));
  const double high = std::min(p.dimensions - 1.0, std::ceil(correction_pair(p, p.yarn_beta_slow)));
  const double at = (static_cast<double>(pair) - low) / std::max(0.001, high - low);
  return 1 - std::clamp(at, 0.0, 1.0);
}

}  // namespace

Rope::Rope(const RopeParameters& p, std::span<const float> frequency_factors) {
  frequencies_.resize(p.dimensions / 2);
  for (std::size_t i = 0; i < frequencies_.size(); ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / p.dimensions;
    double frequency = std::pow(static_cast<double>(p.base), exponent);
    if (!frequency_factors.empty()) frequency /= frequency_factors[i];
    const double keep =
        p.scaling == RopeScaling::yarn ? yarn_ramp(p, i) * p.yarn_extrapolation : 0.0;
    const double scale = p.scaling == RopeScaling::none ? 1.0 : p.factor;
    frequencies_[i] = frequency / scale * (1 - keep) + frequency * keep;
  }
  magnitude_ = p.attention_factor;
  if (p.scaling == RopeScaling::yarn && p.factor > 1) {
    const double log_factor = 0.1 * std::log(static_cast<double>(p.factor));
    magnitude_ *= (1 + log_factor) / (1 + log_factor * p.yarn_log_multiplier);
  }
}

void Rope::angles(std::size_t position, float* cosines, float* sines) const {
  for (std::size_t i = 0; i < frequencies_.size(); ++i) {
    const double angle = static_cast<double>(position) * frequencies_[i];
    cosines[i] = static_cast<float>(std::cos(angle) * magnitude_);
    sines[i] = static_cast<float>(std::sin(angle) * magnitude_);
  }
}

}  // namespace sluice::model
