// How often real mixtures find the experts that they need in memory.
//
// Three public traces of a conversation of about 150 tokens (Qwen3-30B-A3B and Gemma 4 26B with 6
// of 128 experts a token, gpt-oss-120b with 2; github.com/Helldez/BigMoeOnEdge, route traces of
// July 2026, Apache-2.0), replayed with the policy of streaming/expert_policy.h from an empty
// memory, for one row and for 4 and 16 rows together that are parts of the same trace.
// docs/experts.md has the figures. They are those of short runs: with a place for every expert, the
// first use of each is still a miss.
#pragma once

namespace sluice::engine {

// The share of the experts needed that are in memory. `places` is the share of experts that have a
// place, `needed` the share of them that a step takes; both from 0 to 1. Rises with `places`. A
// step that needs all of them finds just those with places.
double usual_hit_rate(double places, double needed);

}  // namespace sluice::engine
