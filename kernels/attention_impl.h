// The operations of attention.h on the lanes of one tier; included after its lanes_*.h.
//
// There are two passes over the runs: the first computes all scores, the second adds up values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/attention_int8_impl.h"
#include "kernels/attention_rows_impl.h"
#include "kernels/kv_rows.h"
#include "kernels/lanes_math.h"

namespace sluice::kernels {
namespace {

// Prefetches rows of the next run, of `size` elements. Runs lie apart in memory, so the processor
// cannot predict these addresses.
template <typename Element>
inline void prefetch_next(const AttentionArgs& args, PlacedRun place, const void* rows,
                          std::size_t size) {
  constexpr std::size_t line_bytes = 64;
  const AttentionRun& next = *place.next;
  if (&next == place.run) return;
  const auto* elements = static_cast<const Element*>(rows) + next.first * size;
  const auto* bytes = reinterpret_cast<const char*>(elements);
  const std::size_t end = next.positions * size * sizeof(Element);
  for (std::size_t i = 0; i < end; i += line_bytes) ask_for(args, bytes + i);
}

template <typename Element>
void attention(const AttentionArgs& args) {
  for_each_run(args, [&](PlacedRun place) {
    prefetch_next<Element>(args, place, place.next->keys, args.head_dim);
    score_rows<Element>(args, place);
  });
  for (std::size_t i = 0; i < query_count(args); ++i) {
    float* scores = scores_of(args, i);
    const std::size_t seen = sight_of(args, i).size();
    by_sixteen(seen, [&](std::size_t k, std::size_t count) {
      F32x16 score = finished_score(args, load(scores + k, count));
      if (args.distances != nullptr) {
        const F32x16 distance = load(args.distances - i + k, count);
        score = score - broadcast(args.slope) * distance;
      }
      store(score, scores + k, count);
    });
    softmax(scores, seen, sink_logit_of(args, i));
  }
  for_each_run(args, [&](PlacedRun place) {
    prefetch_next<Element>(args, place, values_of(args, *place.next), value_stride(args));
    mix_rows<Element>(args, place);
  });
}

inline void attention_int8(const AttentionArgs& args) {
  const bool has_long_keys = args.head_dim > short_row_max;
  const bool has_long_values = args.value_dim > short_row_max;
  const float* quantised = nullptr;
  for_each_slot(args, [&](PlacedRun place) {
    const AttentionRun* run = place.run;
    for (std::size_t i = 0; has_long_keys && run->queries != quantised && i < query_count(args);
         ++i) {
      quantise_query(args, *run, i);
    }
    quantised = run->queries;
    score_page(args, place, has_long_keys);
  });
  for (std::size_t i = 0; i < query_count(args); ++i) {
    float* scores = scores_of(args, i);
    if (has_long_values) {
      const float total = exponentials(scores, args.run_count * slot_size, sink_logit_of(args, i));
      pack_probabilities(args, i, total,
                         [](I32x16 words, float* slot, std::size_t half, std::size_t v) {
                           store_words(words, words_of(slot, half) + v * lanes);
                         });
    } else {
      softmax(scores, args.run_count * slot_size, sink_logit_of(args, i));
    }
  }
  for_each_slot(args, [&](PlacedRun place) {
    if (args.keys_hold_values) {
      mix_page_of_keys(args, place);
    } else if (has_long_values) {
      mix_page(args, place);
    } else {
      mix_short_rows(args, place);
    }
  });
  if (has_long_values) scale_outputs(args);
}

inline void f32_to_f16(const float* x, std::size_t size, std::uint16_t* out) {
  by_sixteen(size,
             [&](std::size_t i, std::size_t count) { store(load(x + i, count), out + i, count); });
}

inline void fill(AttentionKernels& table) {
  table.f32 = attention<float>;
  table.f16 = attention<std::uint16_t>;
  table.int8 = attention_int8;
  table.f32_to_f16 = f32_to_f16;
}

}  // namespace
}  // namespace sluice::kernels
