// The lists that shapes() is made of.
#pragma once

#include <vector>

#include "core/synth/shapes.h"

namespace sluice::synth {

std::vector<Shape> real_shapes();  // real_shapes.cc

// For tests and comparisons: small numbers, in which a mistake shows within twenty tokens. Sizes
// that most have in common are left out.
std::vector<Shape> tiny_shapes();  // tiny_shapes.cc

}  // namespace sluice::synth
