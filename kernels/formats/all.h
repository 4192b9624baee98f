// The weight formats that sluice computes with: one line for each, ascending by id.
#pragma once

#include <utility>

#include "kernels/formats/floats.h"
#include "kernels/formats/iq1_m.h"
#include "kernels/formats/iq1_s.h"
#include "kernels/formats/iq2_s.h"
#include "kernels/formats/iq2_xs.h"
#include "kernels/formats/iq2_xxs.h"
#include "kernels/formats/iq3_s.h"
#include "kernels/formats/iq3_xxs.h"
#include "kernels/formats/iq4_nl.h"
#include "kernels/formats/iq4_xs.h"
#include "kernels/formats/mxfp4.h"
#include "kernels/formats/nvfp4.h"
#include "kernels/formats/ptq1_0.h"
#include "kernels/formats/q1_0.h"
#include "kernels/formats/q2_0.h"
#include "kernels/formats/q2_k.h"
#include "kernels/formats/q3_k.h"
#include "kernels/formats/q4_0.h"
#include "kernels/formats/q4_1.h"
#include "kernels/formats/q4_k.h"
#include "kernels/formats/q5_0.h"
#include "kernels/formats/q5_1.h"
#include "kernels/formats/q5_k.h"
#include "kernels/formats/q6_k.h"
#include "kernels/formats/q8_0.h"
#include "kernels/formats/tq1_0.h"
#include "kernels/formats/tq2_0.h"

namespace sluice::kernels {
namespace {

template <typename... Format>
struct FormatList {
  static constexpr std::size_t size = sizeof...(Format);
};

using Formats = FormatList<F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K,
                           IQ2_XXS, IQ2_XS, IQ3_XXS, IQ1_S, IQ4_NL, IQ3_S, IQ2_S, IQ4_XS, IQ1_M,
                           BF16, TQ1_0, TQ2_0, MXFP4, NVFP4, Q1_0, Q2_0, PQ2_0, PTQ1_0>;

// Whether a format is one of floats, whose blocks are single numbers.
template <typename Format>
constexpr bool is_float = Format::weights == 1;

// The activations that a format is multiplied with.
template <typename Format>
constexpr ActivationForm form_of() {
  if constexpr (is_float<Format>) {
    return ActivationForm::f32;
  } else {
    return Unpacked<Format>::form;
  }
}

// The kernels of a tier are compiled in parts, because one unit would take minutes. A part has
// every format_parts-th format of the list, so that a new one needs no place.
constexpr std::size_t format_parts = 6;

// Calls visit(Format) with the format of a type, which must be in the list.
template <typename Visit, typename... Format>
inline void visit_format(FormatList<Format...>, BlockType type, const Visit& visit) {
  const auto call = [&](auto format) {
    visit(format);
    return true;
  };
  static_cast<void>(((Format::type == type && call(Format{})) || ...));
}
template <typename Visit>
inline void visit_format(BlockType type, const Visit& visit) {
  visit_format(Formats{}, type, visit);
}

// The same for the formats of one part: visit is compiled for these alone.
template <std::size_t part, typename Visit, typename... Format, std::size_t... index>
inline void visit_format_of_part(FormatList<Format...>, std::index_sequence<index...>,
                                 BlockType type, const Visit& visit) {
  const auto call = [&]<std::size_t at>(std::index_sequence<at>, auto format) {
    if constexpr (at % format_parts == part) {
      if (format.type == type) visit(format);
    }
  };
  (call(std::index_sequence<index>{}, Format{}), ...);
}
template <std::size_t part, typename Visit>
inline void visit_format_of_part(BlockType type, const Visit& visit) {
  visit_format_of_part<part>(Formats{}, std::make_index_sequence<Formats::size>{}, type, visit);
}

// The part that has the format of a type.
template <typename... Format>
constexpr std::size_t part_of(FormatList<Format...>, BlockType type) {
  std::size_t at = 0;
  static_cast<void>(((Format::type == type || (++at, false)) || ...));
  return at % format_parts;
}

}  // namespace
}  // namespace sluice::kernels
