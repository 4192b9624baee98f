// Tiny shapes made a quarter as wide, for tests that evaluate many models in F32.
#pragma once

#include <cstdint>
#include <string>

#include "core/synth/shapes.h"

namespace sluice::test {

inline synth::Shape small_shape(synth::Shape shape) {
  for (std::uint32_t* size :
       {&shape.embedding, &shape.heads.size, &shape.rope.size, &shape.window.head_size,
        &shape.feed_forward, &shape.shared_feed_forward, &shape.layer_embedding, &shape.latent.rank,
        &shape.latent.query_rank, &shape.latent.value_size, &shape.recurrence.inner,
        &shape.recurrence.state, &shape.experts.feed_forward, &shape.experts.shared_feed_forward}) {
    *size /= 4;
  }
  shape.vocabulary = 320;
  return shape;
}

inline synth::Shape small_shape(const std::string& name) {
  return small_shape(synth::shape_by_name(name));
}

}  // namespace sluice::test
