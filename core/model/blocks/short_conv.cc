#include "core/model/blocks/short_conv.h"

#include <array>

namespace sluice::model {

ShortConv::ShortConv(Decoder& decoder, const LayerTensors& tensors, const ShortConvSpec& spec)
    : spec_(spec) {
  const std::size_t e = spec_.embedding;
  in_ = tensors.matrix("shortconv.in_proj.weight", e, 3 * e);
  convolution_ = {.channels = e,
                  .tap_count = spec_.taps,
                  .taps = tensors.vector("shortconv.conv.weight", {spec_.taps, e})};
  out_ = tensors.matrix("shortconv.out_proj.weight", e, e);
  cache_layer_ = decoder.add_cache_layer({.state_floats = convolution_.tail_floats()});
}

void ShortConv::run(Pass& pass, const float* in, float* out) {
  const std::size_t e = spec_.embedding, columns = pass.columns.size(), row = 3 * e;
  const kernels::VectorOps& ops = pass.compute.ops();
  float* b = projected_;
  float* c = projected_ + e;
  float* x = projected_ + 2 * e;
  pass.compute.multiply(in, e, e, columns, std::array{Product{&in_, projected_, row}});
  for_each_column(pass, [&](std::size_t i) { ops.multiply(b + i * row, e, x + i * row); });
  keep_columns(pass, fed_parts(), fed_);
  convolution_.run(pass, cache_layer_, x, row);
  for_each_column(pass, [&](std::size_t i) { ops.multiply(c + i * row, e, x + i * row); });
  pass.compute.multiply(x, row, e, columns, std::array{Product{&out_, out, e}});
}

void ShortConv::replay(Pass& pass, std::size_t first) {
  restore_columns(pass, fed_parts(), fed_ + first * fed_floats());
  convolution_.run(pass, cache_layer_, fed_parts()[0].rows, fed_parts()[0].stride);
}

}  // namespace sluice::model
