#include "core/rows/pooling.h"

#include <cmath>
#include <fmt/format.h>

#include "core/error.h"

namespace sluice::rows {

Pooling pooling_of(std::optional<std::int64_t> pooling_type) {
  constexpr std::int64_t unspecified = -1, none = 0, mean = 1, last = 3;
  switch (pooling_type.value_or(unspecified)) {
    case unspecified:
    case none:
    case last:
      return Pooling::last;
    case mean:
      return Pooling::mean;
    default:
      throw ModelError(fmt::format(
          "the model makes embeddings in a way that is not supported (pooling_type {}): "
          "use one with mean (1) or last (3)",
          *pooling_type));
  }
}

void Pool::add(std::span<const float> hidden) {
  if (sum_.empty() || pooling_ == Pooling::last) sum_.assign(hidden.size(), 0);
  for (std::size_t i = 0; i < hidden.size(); ++i) sum_[i] += hidden[i];
}

std::vector<float> Pool::embedding() const {
  double squares = 0;
  for (const double x : sum_) squares += x * x;
  const double scale = squares == 0 ? 0 : 1 / std::sqrt(squares);
  std::vector<float> embedding;
  embedding.reserve(sum_.size());
  for (const double x : sum_) embedding.push_back(static_cast<float>(x * scale));
  return embedding;
}

}  // namespace sluice::rows
