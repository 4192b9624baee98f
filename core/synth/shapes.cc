#include "core/synth/shapes.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/synth/shape_lists.h"

namespace sluice::synth {
namespace {

// What most tiny shapes have in common.
Shape with_tiny_sizes(Shape shape) {
  shape.embedding = 256;
  if (shape.heads.size == 0) shape.heads = {4, 2, 64};
  if (shape.feed_forward == 0) shape.feed_forward = 512;
  shape.vocabulary = 512;
  shape.context = 2048;
  if (shape.gain == 1) shape.gain = 1.6f;
  shape.logit_deviation = 1.6f;
  shape.experts.router_bias = 0.3f;
  shape.experts.layer_gain = 0;  // as of dense models, so that errors of a layer show
  return shape;
}

// The models of the examples and of the tests of the program.
Shape test_shape(const char* name, std::uint32_t width, std::uint32_t queries,
                 std::uint32_t inner_width, std::uint32_t vocabulary, std::uint32_t context) {
  Shape shape{.name = name, .architecture = "llama", .layers = 4, .embedding = width};
  shape.heads = {queries, 2, 64};
  shape.feed_forward = inner_width;
  shape.vocabulary = vocabulary;
  shape.context = context;
  return shape;
}

// Small as a file, but with as many experts as a model of 30 billion weights: 75 MB in Q4_K_M.
Shape small_mixture() {
  Shape shape = test_shape("small-moe", 512, 8, 1024, 4096, 4096);
  shape.architecture = "qwen3moe";
  shape.experts = {.count = 128, .used = 8, .feed_forward = 256};
  return shape;
}

}  // namespace

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = [] {
    std::vector<Shape> list = {test_shape("tiny", 256, 4, 512, 2048, 2048),
                               test_shape("small", 512, 8, 1536, 4096, 4096), small_mixture()};
    for (Shape& shape : real_shapes()) list.push_back(std::move(shape));
    for (Shape& shape : tiny_shapes()) list.push_back(with_tiny_sizes(std::move(shape)));
    return list;
  }();
  return all;
}

bool Shape::can_predict() const {
  return architecture == "qwen35" || architecture == "qwen35moe" || architecture == "qwen3next" ||
         architecture == "glm4moe" || architecture == "bailingmoe3";
}

const Shape& shape_by_name(std::string_view name) {
  for (const Shape& shape : shapes()) {
    if (shape.name == name) return shape;
  }
  throw UsageError(fmt::format("unknown shape '{}': `sluice synth --list` lists them all", name));
}

}  // namespace sluice::synth
