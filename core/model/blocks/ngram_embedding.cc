#include "core/model/blocks/ngram_embedding.h"

#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <string>

#include "core/model/blocks/hyper_connections.h"
#include "kernels/convolution.h"

namespace sluice::model {
namespace {

constexpr const char* table_name = "per_layer_token_embd.weight";

std::vector<std::uint64_t> read_whole_numbers(const Keys& keys, const std::string& name,
                                              std::size_t count, std::uint64_t least) {
  if (!keys.contains(name)) throw keys.error(name, "is missing");
  const gguf::IntegerArray array =
      keys.model().metadata().require_integers(keys.architecture() + "." + name);
  if (array.size() != count) {
    throw keys.error(name, fmt::format("has {} elements, expected {}", array.size(), count));
  }
  std::vector<std::uint64_t> out;
  for (std::size_t i = 0; i < count; ++i) {
    if (array[i] < 0 || static_cast<std::uint64_t>(array[i]) < least) {
      throw keys.error(name,
                       fmt::format("has the element {}, expected at least {}", array[i], least));
    }
    out.push_back(static_cast<std::uint64_t>(array[i]));
  }
  return out;
}

}  // namespace

std::optional<NgramSpec> read_ngrams(const Keys& keys, const HyperParameters& hp,
                                     std::size_t streams) {
  const std::string layers = "ple.layers";
  if (!keys.contains(layers)) return std::nullopt;
  const gguf::IntegerArray array =
      keys.model().metadata().require_integers(keys.architecture() + "." + layers);
  if (array.empty()) return std::nullopt;
  if (array.size() != 1 || array[0] < 0 || array[0] >= std::int64_t{hp.layers}) {
    throw keys.error(layers, fmt::format("does not name one of the {} layers", hp.layers));
  }
  constexpr std::uint32_t tokens_max = 16, heads_max = 256;
  NgramSpec spec{.layer = static_cast<std::size_t>(array[0]),
                 .streams = streams,
                 .embedding = hp.embedding,
                 .tokens = keys.count("ple.ngram_size", tokens_max),
                 .width = keys.count("embedding_length_per_layer_input"),
                 .taps = keys.count("ple.conv_kernel", kernels::convolution_taps_max),
                 .norm_epsilon = hp.norm_epsilon};
  if (spec.tokens < 2) throw keys.error("ple.ngram_size", "is 1, expected at least 2");
  const std::size_t heads = spec.history() * keys.count("ple.heads_per_ngram", heads_max);
  spec.multipliers = read_whole_numbers(keys, "ple.layer_multipliers", spec.tokens, 0);
  spec.sizes = read_whole_numbers(keys, "ple.head_vocab_sizes", heads, 1);
  spec.offsets = read_whole_numbers(keys, "ple.head_offsets", heads, 0);
  if (!keys.contains("ple.eos_token_id")) throw keys.error("ple.eos_token_id", "is missing");
  spec.end_of_text = keys.whole_or("ple.eos_token_id", 0);
  keys.leave_aside("ple.image_token_id");
  return spec;
}

NgramRows::NgramRows(Decoder& decoder, WeightLayout& layout, const NgramSpec& spec)
    : spec_(spec),
      model_(layout.model()),
      table_(layout.table(table_name, spec.width, layout.rows(table_name), spec.heads())),
      convolution_{.channels = spec.wide(),
                   .tap_count = spec.taps,
                   .dilation = spec.tokens,
                   .has_silu = true},
      cache_layer_(
          decoder.add_cache_layer({.state_floats = convolution_.tail_floats() + spec.history()})) {
  const std::uint64_t rows = table_.dims[1];
  for (std::size_t h = 0; h < spec_.heads(); ++h) {
    if (spec_.sizes[h] <= rows && spec_.offsets[h] <= rows - spec_.sizes[h]) continue;
    throw layout.error(table_name, fmt::format("has {} rows, of which ple.head_offsets and "
                                               "ple.head_vocab_sizes give head {} some beyond them",
                                               rows, h));
  }
}

NgramRows::Buffers NgramRows::place(Arena& arena, const BufferShape& shape) const {
  Buffers out;
  out.numbers = arena.take<std::uint64_t>(shape.columns * spec_.heads());
  out.tokens = arena.floats(shape.columns);
  out.bytes = arena.take<std::byte>(shape.threads * (table_.bytes / table_.dims[1]));
  return out;
}

void NgramRows::bind(Arena& arena, const BufferShape& shape) {
  buffers_ = place(arena, shape);
  rows_.emplace(model_, table_);
}

void NgramRows::find(const Pass& pass) {
  for (std::size_t c = 0; c < pass.columns.size(); ++c) {
    buffers_.tokens[c] = static_cast<float>(pass.columns[c].token + 1);
  }
  for (const Stretch& stretch : pass.stretches) {
    const LayerState state = state_of(pass, stretch, cache_layer_);
    for (std::size_t i = 0; i < stretch.count; ++i) hash(state, stretch, i);
  }
  const std::size_t count = pass.columns.size() * spec_.heads();
  for (std::size_t i = 0; i < count; ++i) rows_->expect(buffers_.numbers[i]);
}

// As it is kept: plus 1, and 0 before the beginning.
float NgramRows::token_before(const LayerState& state, const Stretch& stretch, std::size_t i,
                              std::size_t distance) const {
  if (distance <= i) return buffers_.tokens[stretch.first + i - distance];
  return state.before[convolution_.tail_floats() + distance - i - 1];
}

void NgramRows::hash(const LayerState& state, const Stretch& stretch, std::size_t i) const {
  const auto end = static_cast<float>(spec_.end_of_text) + 1;
  const std::size_t each = spec_.heads() / spec_.history();
  std::uint64_t* to = buffers_.numbers + (stretch.first + i) * spec_.heads();
  std::uint64_t mixed = 0;
  bool has_ended = false;
  for (std::size_t s = 0, head = 0; s < spec_.tokens; ++s) {
    const float kept = has_ended ? end : token_before(state, stretch, i, s);
    has_ended = has_ended || kept == 0 || (s != 0 && kept == end);
    const std::uint64_t token =
        kept == 0 ? spec_.end_of_text : static_cast<std::uint64_t>(kept) - 1;
    mixed ^= token * spec_.multipliers[s];
    for (std::size_t h = 0; s != 0 && h < each; ++h, ++head) {
      *to++ = mixed % spec_.sizes[head] + spec_.offsets[head];
    }
  }
}

void NgramRows::read(Pass& pass, float* out) {
  const std::size_t row_bytes = rows_->row_bytes();
  const std::size_t count = pass.columns.size() * spec_.heads();
  pass.compute.for_each(count, [&](std::size_t member, std::size_t begin, std::size_t end) {
    const std::span bytes(buffers_.bytes + member * row_bytes, row_bytes);
    for (std::size_t i = begin; i < end; ++i) {
      rows_->row(buffers_.numbers[i], bytes, out + i * spec_.width);
    }
  });
}

void NgramRows::keep_history(Pass& pass) const {
  for (const Stretch& stretch : pass.stretches) {
    const LayerState state = state_of(pass, stretch, cache_layer_);
    for (std::size_t d = 0; d < spec_.history(); ++d) {
      state.after[convolution_.tail_floats() + d] =
          token_before(state, stretch, stretch.count - 1, d);
    }
  }
}

NgramEmbedding::NgramEmbedding(const LayerTensors& tensors, NgramRows& rows,
                               const HyperStreams& streams)
    : rows_(rows), streams_(streams), convolution_(rows.convolution()) {
  const std::size_t wide = spec().wide();
  key_ = tensors.matrix("ple_key.weight", rows_size(), wide);
  value_ = tensors.matrix("ple_value.weight", rows_size(), spec().embedding);
  key_norm_ = tensors.vector("ple_norm_key.weight", {wide});
  query_norm_ = tensors.vector("ple_norm_query.weight", {wide});
  value_norm_ = tensors.vector("ple_norm_conv.weight", {wide});
  convolution_.taps = tensors.vector("ple_conv1d.weight", {spec().taps, wide});
}

NgramEmbedding::Buffers NgramEmbedding::place(Arena& arena, const BufferShape& shape) const {
  Buffers out;
  out.rows = arena.floats(shape.columns * rows_size());
  out.keys = arena.floats(shape.columns * spec().wide());
  out.values = arena.floats(shape.columns * spec().embedding);
  out.query = arena.floats(shape.columns * spec().embedding);
  out.gates = arena.floats(shape.columns * spec().streams);
  out.normed = arena.floats(shape.columns * spec().wide());
  return out;
}

void NgramEmbedding::run(Pass& pass, const float* in, float* out) {
  const kernels::VectorOps& ops = pass.compute.ops();
  const std::size_t e = spec().embedding, wide = spec().wide(), columns = pass.columns.size();
  const Buffers& b = buffers_;
  rows_.read(pass, b.rows);
  pass.compute.multiply(b.rows, rows_size(), rows_size(), columns,
                        std::array{Product{&key_, b.keys, wide}, Product{&value_, b.values, e}});
  for_each_column(pass, [&](std::size_t column) { weigh(ops, column, in); });
  keep_columns(pass, fed_parts(), fed_);
  mix(pass);
  for_each_column(pass, [&](std::size_t column) {
    float* const added = b.keys + column * wide;
    ops.add(b.normed + column * wide, wide, added);
    std::copy_n(added, e, out + column * e);
    for (std::size_t c = 1; c < spec().streams; ++c) {
      ops.add(added + c * e, e, streams_.other(column, c));
    }
  });
}

// Puts u in place of the keys, and its norm where it will be convolved.
void NgramEmbedding::weigh(const kernels::VectorOps& ops, std::size_t column,
                           const float* in) const {
  constexpr float least = 1e-6f;  // of the model; files do not have it
  const std::size_t e = spec().embedding, streams = spec().streams;
  const float epsilon = spec().norm_epsilon;
  float* const keys = buffers_.keys + column * spec().wide();
  float* const query = buffers_.query + column * e;
  float* const gates = buffers_.gates + column * streams;
  for (std::size_t c = 0; c < streams; ++c) {
    float* const key = keys + c * e;
    ops.rms_norm(key, key_norm_.data() + c * e, epsilon, e, key);
    ops.rms_norm(streams_.stream(in, column, c), query_norm_.data() + c * e, epsilon, e, query);
    double sum = 0;
    for (std::size_t i = 0; i < e; ++i) sum += static_cast<double>(key[i]) * query[i];
    const auto score = static_cast<float>(sum / std::sqrt(static_cast<double>(e)));
    const float root = std::sqrt(std::max(std::abs(score), least));
    gates[c] = score > 0 ? root : score < 0 ? -root : 0;
  }
  ops.sigmoid(gates, streams);
  for (std::size_t c = 0; c < streams; ++c) {
    float* const weighed = keys + c * e;
    std::copy_n(buffers_.values + column * e, e, weighed);
    ops.scale(weighed, e, gates[c]);
    ops.rms_norm(weighed, value_norm_.data() + c * e, epsilon, e,
                 buffers_.normed + column * spec().wide() + c * e);
  }
}

std::array<FedPart, 2> NgramEmbedding::fed_parts() const {
  return {FedPart{buffers_.normed, spec().wide(), spec().wide()}, FedPart{rows_.tokens(), 1, 1}};
}

// What reads and writes the state.
void NgramEmbedding::mix(Pass& pass) const {
  convolution_.run(pass, rows_.cache_layer(), buffers_.normed, spec().wide());
  rows_.keep_history(pass);
}

void NgramEmbedding::replay(Pass& pass, std::size_t first) {
  restore_columns(pass, fed_parts(), fed_ + first * fed_floats());
  mix(pass);
}

}  // namespace sluice::model
