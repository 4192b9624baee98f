// How many of the first tokens of a text a window keeps where nobody says.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/engine/engine.h"

namespace sluice::engine {

// `window` is not 0. A window has room for one other token at least.
inline std::uint32_t usual_sinks(std::uint32_t window) {
  return std::min(EngineOptions{}.sinks, window - 1);
}

}  // namespace sluice::engine
