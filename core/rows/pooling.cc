#include "core/rows/pooling.h"

#include <cmath>
#include <fmt/format.h>

#include "core/error.h"

namespace sluice::rows {

Pooling pooling_of(std::optional<std::int64_t> pooling_type, bool is_encoder) {
  constexpr std::int64_t unspecified = -1, none = 0, mean = 1, first = 2, last = 3, rank = 4;
  switch (pooling_type.value_or(unspecified)) {
    case unspecified:
    case none:
      return is_encoder ? Pooling::mean : Pooling::last;
    case mean:
      return Pooling::mean;
    case first:
      return Pooling::first;
    case last:
      return Pooling::last;
    case rank:
      throw ModelError(
          "the file is of a reranker (pooling_type 4) but has no tensor 'cls.output.weight': use "
          "one that was converted as a reranker");
    default:
      throw ModelError(fmt::format(
          "the model makes embeddings in a way that is not known (pooling_type {}): use one with "
          "mean (1), first (2) or last (3)",
          *pooling_type));
  }
}

void Pool::add(std::span<const float> hidden) {
  if (pooling_ == Pooling::first && count_ != 0) return;
  if (sum_.empty() || pooling_ == Pooling::last) clear();
  sum_.resize(hidden.size());
  for (std::size_t i = 0; i < hidden.size(); ++i) sum_[i] += hidden[i];
  ++count_;
}

std::vector<float> Pool::pooled() const {
  std::vector<float> pooled;
  pooled.reserve(sum_.size());
  for (const double x : sum_) pooled.push_back(static_cast<float>(x / static_cast<double>(count_)));
  return pooled;
}

std::vector<float> unit_vector(std::span<const double> x) {
  double squares = 0;
  for (const double element : x) squares += element * element;
  const double scale = squares == 0 ? 0 : 1 / std::sqrt(squares);
  std::vector<float> unit;
  unit.reserve(x.size());
  for (const double element : x) unit.push_back(static_cast<float>(element * scale));
  return unit;
}

}  // namespace sluice::rows
