#include <initializer_list>
#include <utility>

#include "core/error.h"
#include "core/synth/architectures.h"
#include "core/synth/random_blocks.h"
#include "core/synth/shapes.h"
#include "core/synth/tensors.h"

namespace sluice::synth {
namespace {

// Draws sizes; each kind of size in a function of its own.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed, 0x0DD) {}

  template <typename T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[below(choices.size())];
  }

  std::uint64_t below(std::uint64_t end) { return (random_.next() >> 32) * end >> 32; }

 private:
  Random random_;
};

void draw_widths(Shape& shape, Dice& dice) {
  const bool is_ungrouped = shape.heads.queries == shape.heads.keys && shape.latent.rank == 0;
  shape.heads.keys = dice.one_of({1u, 2u, 3u});
  shape.heads.queries = shape.heads.keys * dice.one_of({1u, 2u, 3u, 5u});
  shape.heads.size = dice.one_of({32u, 48u, 64u, 80u, 96u, 128u});
  shape.embedding = dice.one_of({224u, 256u, 288u, 320u, 352u, 384u});
  if (has_plain_heads(shape)) {
    shape.heads.queries = shape.heads.keys * dice.one_of({2u, 3u, 4u, 6u});
    shape.heads.size = dice.one_of({32u, 64u, 96u});
    shape.embedding = shape.heads.queries * shape.heads.size;
  }
  if (is_ungrouped) shape.heads.keys = shape.heads.queries;
  if (shape.window.queries > 0) shape.window.queries = 2 * shape.heads.queries;
  shape.feed_forward = dice.one_of({352u, 416u, 480u, 512u, 544u, 608u});
  shape.vocabulary = 301 + 2 * static_cast<std::uint32_t>(dice.below(150));
}

// More layers. Where a file states the kind of each, the kinds are shuffled, with one of each at
// least; elsewhere they are a part of the architecture.
void draw_layers(Shape& shape, Dice& dice) {
  if (shape.shared_layers > 0) return;   // these stand in an order with the others
  if (shape.latent.is_old_form) return;  // llama.cpp knows this form by its number of layers
  const bool has_free_kinds =
      shape.kinds.find('M') != std::string::npos && !shape.architecture.starts_with("qwen");
  shape.layers += static_cast<std::uint32_t>(dice.below(3));
  if (!has_free_kinds) return;
  std::string kinds = shape.kinds;
  while (kinds.size() < shape.layers) kinds += shape.kinds[dice.below(shape.kinds.size())];
  for (std::size_t i = kinds.size() - 1; i > 0; --i) std::swap(kinds[i], kinds[dice.below(i + 1)]);
  shape.kinds = kinds;
}

void draw_positions(Shape& shape, Dice& dice) {
  shape.rope.base *= dice.one_of({0.5f, 1.0f, 3.0f});
  if (shape.rope.size > 0) {
    shape.rope.size = shape.heads.size / dice.one_of({2u, 4u});
  }
  if (shape.window.positions > 0) {
    shape.window.positions = dice.one_of({3u, 5u, 7u, 8u, 9u, 13u});
  }
  if (shape.window.head_size > 0) {
    shape.window.head_size = shape.heads.size / 2;
  }
  if (shape.window.keys > 0) {  // those without a window have fewer
    shape.window.keys = std::exchange(shape.heads.keys, 1);
  }
  if (shape.rope.original_context > 0 && shape.rope.original_context < 100) {
    shape.rope.original_context = dice.one_of({4u, 5u, 6u, 7u});
  }
}

void draw_latents(Shape& shape, Dice& dice) {
  shape.heads.size = dice.one_of({64u, 96u, 160u});
  shape.rope.size = dice.one_of({16u, 24u, 32u});
  shape.latent.rank = dice.one_of({32u, 96u, 160u, 256u});
  shape.latent.value_size = dice.one_of({32u, 48u, 128u});
  if (shape.latent.query_rank > 0) shape.latent.query_rank = dice.one_of({96u, 160u, 512u});
}

void draw_recurrence(Shape& shape, Dice& dice) {
  if (shape.short_convolution > 0) shape.short_convolution = dice.one_of({3u, 4u, 5u});
  Shape::Recurrence& recurrence = shape.recurrence;
  if (recurrence.heads == 0) return;
  recurrence.state = dice.one_of({32u, 64u, 128u});
  recurrence.groups = dice.one_of({1u, 2u, 3u});
  if (shape.latent.rank > 0) {  // as many heads as attention
    recurrence.heads = shape.heads.queries;
    recurrence.inner = recurrence.heads * recurrence.state;
  } else if (shape.architecture.starts_with("qwen")) {
    recurrence.heads = recurrence.groups * dice.one_of({1u, 2u, 3u});
    recurrence.inner = recurrence.heads * recurrence.state;
  } else if (shape.architecture == "granitehybrid") {  // loaders insist on twice the embedding
    recurrence.groups = dice.one_of({1u, 2u});
    recurrence.inner = 2 * shape.embedding;
    recurrence.heads = recurrence.inner / 32;
  } else if (shape.architecture == "jamba") {  // and here
    recurrence = {.inner = 2 * shape.embedding,
                  .heads = dice.one_of({16u, 24u, 96u}),
                  .state = dice.one_of({8u, 16u, 24u}),
                  .taps = recurrence.taps};
  } else {
    const std::uint32_t values = dice.one_of({16u, 32u, 64u});
    recurrence.heads = recurrence.groups * dice.one_of({3u, 4u, 7u});
    recurrence.inner = recurrence.heads * values;
  }
}

// The rows that a token looks up are one row of the embedding together.
void draw_ngrams(Shape& shape, Dice& dice) {
  const std::uint32_t tokens = dice.one_of({2u, 3u, 4u}), heads = dice.one_of({1u, 3u});
  const std::uint32_t rows = (tokens - 1) * heads;
  const std::uint32_t width = 32 * (9 / rows + dice.one_of({0u, 1u}));
  shape.embedding = rows * width;
  shape.ngrams = {tokens, heads, width, dice.one_of({53u, 101u}), dice.one_of({2u, 3u, 4u})};
}

}  // namespace

Shape odd_shape(const Shape& tiny, std::uint64_t seed) {
  if (!tiny.name.starts_with("tiny-")) {
    throw UsageError("odd sizes are for the shapes tiny-ARCHITECTURE, not for " + tiny.name);
  }
  Shape shape = tiny;
  Dice dice(seed);
  draw_widths(shape, dice);
  draw_layers(shape, dice);
  draw_positions(shape, dice);
  draw_recurrence(shape, dice);
  if (shape.latent.rank > 0) draw_latents(shape, dice);
  if (shape.ranks.decay > 0) {
    shape.recurrence.state = dice.one_of({16u, 32u});  // divides all embeddings
    shape.ranks = {dice.one_of({24u, 32u, 80u}), dice.one_of({16u, 48u}), dice.one_of({16u, 96u}),
                   dice.one_of({40u, 64u})};
  }
  if (shape.streams > 0) shape.side_rank = dice.one_of({16u, 24u, 96u});
  if (shape.ngrams.tokens > 0) {
    shape.streams = dice.one_of({2u, 3u, 4u});
    draw_ngrams(shape, dice);
    const std::uint32_t block = dice.one_of({2u, 3u, 5u});
    shape.indexer = {dice.one_of({1u, 3u, 4u}), dice.one_of({32u, 64u, 80u}), block,
                     block * dice.one_of({1u, 2u, 4u})};  // whole blocks, as llama.cpp insists
    shape.rope.size = 16;
  }
  if (shape.layer_embedding > 0) shape.layer_embedding = dice.one_of({32u, 96u, 160u});
  if (shape.shared_feed_forward > 0) shape.shared_feed_forward = 2 * shape.feed_forward;
  if (shape.experts.feed_forward > 0) {
    const std::uint32_t shared = shape.experts.shared_feed_forward / shape.experts.feed_forward;
    shape.experts.feed_forward = dice.one_of({96u, 224u, 288u});
    if (architecture_of(shape).counts_shared_experts || shape.architecture == "llama4") {
      shape.experts.shared_feed_forward = shared * shape.experts.feed_forward;
    }
    // llama.cpp takes one number for both.
    if (shape.architecture == "hunyuan-moe" || shape.architecture == "minimax-m2") {
      shape.feed_forward = shape.experts.feed_forward;
    }
  }
  return shape;
}

}  // namespace sluice::synth
