// Tiny models of any architecture, of odd sizes and with random weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>

#include "core/model/families.h"
#include "core/synth/shapes.h"
#include "core/synth/synthetic_model.h"

namespace sluice::test {

using Random = std::mt19937_64;

inline bool chance(Random& random, std::uint64_t one_in) {
  return random() % one_in == 0;
}

// A tiny shape of odd sizes that writes text; every third one has a block that predicts.
inline synth::Shape any_shape(Random& random) {
  const bool wants_block = chance(random, 3);
  for (;;) {
    const synth::Shape& shape = synth::shapes()[random() % synth::shapes().size()];
    const auto runs = [&](const model::Family& family) {
      return family.architecture == shape.architecture;
    };
    if (!shape.name.starts_with("tiny-") || std::ranges::none_of(model::families(), runs)) continue;
    if (shape.is_encoder()) continue;  // writes none
    if (wants_block && !shape.can_predict()) continue;
    synth::Shape odd = synth::odd_shape(shape, random() % 100000);
    odd.predictors = wants_block ? 1 : 0;
    return odd;
  }
}

inline std::filesystem::path write_model(const std::filesystem::path& path,
                                         const synth::Shape& shape, Random& random) {
  constexpr const char* formats[] = {"Q8_0", "Q4_K_M", "F16", "Q4_0"};
  synth::SyntheticModel(shape, formats[random() % 4]).write(path, random(), {});
  return path;
}

}  // namespace sluice::test
