#include "core/engine/expert_routes.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace sluice::engine {
namespace {

constexpr std::array places_measured = {0.0, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0};

struct Curve {
  double needed;                                    // share of the experts that a step takes
  std::array<double, places_measured.size()> hits;  // by places_measured
};

// By `needed`. The second is the mean of Qwen3 and Gemma 4 with one row, the next two are theirs
// with 4 and 16 rows. So few steps of many rows are mostly first uses, so these two are scaled to
// the same rate at 70 % of places as one row has.
constexpr std::array curves = {
    Curve{2.0 / 128, {0, 0.287, 0.412, 0.553, 0.692, 0.749, 0.782, 0.785, 1}},
    Curve{6.0 / 128, {0, 0.228, 0.357, 0.523, 0.725, 0.829, 0.908, 0.916, 1}},
    Curve{18.4 / 128, {0, 0.130, 0.239, 0.410, 0.646, 0.784, 0.900, 0.916, 1}},
    Curve{41.7 / 128, {0, 0.061, 0.121, 0.240, 0.494, 0.706, 0.888, 0.916, 1}},
    Curve{1, places_measured}};

double between(double low, double high, double part) {
  return low + (high - low) * part;
}

double hits_of(const Curve& curve, double places) {
  std::size_t end = 1;
  while (end + 1 < places_measured.size() && places_measured[end] < places) ++end;
  const double begin = places_measured[end - 1];
  const double part = (places - begin) / (places_measured[end] - begin);
  return between(curve.hits[end - 1], curve.hits[end], part);
}

}  // namespace

double usual_hit_rate(double places, double needed) {
  places = std::clamp(places, 0.0, 1.0);
  needed = std::clamp(needed, curves.front().needed, 1.0);
  std::size_t end = 1;
  while (end + 1 < curves.size() && curves[end].needed < needed) ++end;
  const Curve& few = curves[end - 1];
  const Curve& many = curves[end];
  const double part = std::log(needed / few.needed) / std::log(many.needed / few.needed);
  return between(hits_of(few, places), hits_of(many, places), part);
}

}  // namespace sluice::engine
