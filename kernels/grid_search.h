// Searches for the codes and scales of formats that index grids, and for the scale of ternary and
// binary ones. Compiled once and not for each tier: what takes the time is looking things up.
//
// The squared error of an octet (or a quad) is a sum over its weights, each of which has one of a
// few values. So for a given scale the errors of all patterns of each half are tabulated first. An
// entry costs the sum of two of these, and most are ruled out by their first half alone.
#pragma once

#include <cstdint>

namespace sluice::kernels {

// How the weights of a sub-block are told apart.
enum class GridSigns {
  free,     // a sign for each weight
  even,     // the same, but in each octet the number of minus signs is even
  shifted,  // none: values have theirs, and a shift of 1 or -1 is added to all of a group
};

// A format of 256 weights in sub-blocks, each with a scale 2 n + 1: x = d unit (2 n + 1) value.
struct GridFormat {
  const std::uint16_t* grid;
  int entries;
  int entry_weights;  // 8 or 4
  const int* values;  // that numbers stand for: `value_count` of them
  int value_count;
  GridSigns signs;
  int sub_block;    // 16 or 32
  int shift_group;  // weights that share a shift
  int scales;       // n is below this
  float unit;
};

struct GridBlock {
  std::uint16_t d;          // a half
  std::uint8_t scale[16];   // n of each sub-block
  std::uint16_t index[64];  // of each octet or quad
  std::uint8_t signs[32];   // of each octet: bit i for weight i
  bool is_minus[32];        // whether the shift of each octet is -1
};

// The block with a small sum of w (x - x')^2 over 256 values; the least for its scales.
GridBlock find_grid_block(const GridFormat& format, const float* x, const float* w);

// The half d for which the sum of w (x - x')^2 over `count` <= 256 values is least, where x' is -d,
// 0 or d; without zero -d or d.
std::uint16_t ternary_scale(const float* x, const float* w, int count);
std::uint16_t binary_scale(const float* x, const float* w, int count);

}  // namespace sluice::kernels
