// How the routers of synthetic mixtures choose: what a cache of a third of the experts of each
// layer would hit, if it held those that were chosen most often before.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/expert_routes.h"
#include "core/error.h"
#include "core/gguf/gguf.h"
#include "core/synth/random_blocks.h"
#include "core/synth/shapes.h"
#include "core/synth/synthetic_model.h"
#include "streaming/expert_policy.h"
#include "streaming/mapped_file.h"
#include "tests/catch.h"
#include "tests/temporary_folder.h"

namespace sluice {
namespace {

using synth::Routing;
using synth::Shape;

// Computes what a layer's router chooses, from its inputs and the weights in the file.
class RouterOracle {
 public:
  RouterOracle(const gguf::Model& model, std::span<const std::byte> file, const std::string& prefix,
               std::size_t used)
      : weights_(floats(model, file, prefix + "ffn_gate_inp.weight")),
        bias_(floats(model, file, prefix + "ffn_gate_inp.bias")),
        choice_bias_(floats(model, file, prefix + "exp_probs_b.bias")),
        used_(used) {}

  std::set<std::size_t> choose(std::span<const float> x) const {
    const std::size_t experts = weights_.size() / x.size();
    std::vector<double> scores(experts);
    for (std::size_t e = 0; e < experts; ++e) {
      const float* row = weights_.data() + e * x.size();
      scores[e] = std::inner_product(x.begin(), x.end(), row, bias_.empty() ? 0.0 : bias_[e]);
      if (!choice_bias_.empty()) scores[e] = 1 / (1 + std::exp(-scores[e])) + choice_bias_[e];
    }
    std::vector<std::size_t> order(experts);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
    return {order.begin(), order.begin() + static_cast<std::ptrdiff_t>(used_)};
  }

 private:
  // Empty for a tensor that the file does not have.
  static std::vector<float> floats(const gguf::Model& model, std::span<const std::byte> file,
                                   const std::string& name) {
    const gguf::TensorInfo* tensor = model.find_tensor(name);
    if (tensor == nullptr) return {};
    const auto* first = reinterpret_cast<const float*>(file.data() + tensor->offset);
    return {first, first + tensor->elements()};
  }

  std::vector<float> weights_, bias_, choice_bias_;
  std::size_t used_;
};

using TokenChoices = std::vector<std::set<std::size_t>>;  // a set for each token

struct Choices {
  std::size_t experts = 0;
  std::map<std::string, TokenChoices> by_layer;
  // What the router of a layer would choose for the input of the router before it; not of the
  // first.
  std::map<std::string, TokenChoices> guesses_by_layer;
};

Choices choices_of(const Shape& shape, std::size_t tokens) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "model.gguf";
  synth::SyntheticModel(shape, "Q4_K_M").write(path, 1, {});
  const gguf::Model model = gguf::Model::open(path);
  const streaming::MappedFile file(path);
  Choices choices;
  choices.experts = shape.experts.count;
  engine::EngineOptions options;
  options.context = static_cast<std::uint32_t>(tokens);
  std::string first_layer;
  std::vector<float> before;  // the input of the last router that ran
  options.watch = [&](const model::MatrixInput& input) {
    const std::string name(input.tensor);
    if (!name.ends_with("ffn_gate_inp.weight")) return;
    if (first_layer.empty()) first_layer = name;
    const std::string prefix = name.substr(0, name.rfind('.', name.rfind('.') - 1) + 1);
    const RouterOracle router(model, file.bytes(), prefix, shape.experts.used);
    for (std::size_t c = 0; c < input.columns; ++c) {
      const std::span x(input.x + c * input.x_stride, input.size);
      choices.by_layer[name].push_back(router.choose(x));
      if (name != first_layer) {
        const std::span old(before.data() + c * input.size, input.size);
        choices.guesses_by_layer[name].push_back(router.choose(old));
      }
    }
    before.clear();
    for (std::size_t c = 0; c < input.columns; ++c) {
      const float* x = input.x + c * input.x_stride;
      before.insert(before.end(), x, x + input.size);
    }
  };
  const auto engine = engine::Engine::open(path, options);
  synth::Random random(3, 0);
  std::vector<tokenizer::Token> prompt(tokens);
  for (auto& token : prompt) {
    token = static_cast<tokenizer::Token>(random.next() % shape.vocabulary);
  }
  engine->session().evaluate(prompt);
  return choices;
}

// The share of the choices in the second half that are among the third of a layer's experts that
// the first half chose most often.
double share_of_hits(const Choices& choices) {
  double hits = 0, all = 0;
  for (const auto& [layer, tokens] : choices.by_layer) {
    std::vector<std::size_t> counts(choices.experts);
    for (std::size_t t = 0; t < tokens.size() / 2; ++t) {
      for (const std::size_t expert : tokens[t]) ++counts[expert];
    }
    std::vector<std::size_t> order(choices.experts);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](auto a, auto b) { return counts[a] > counts[b]; });
    const std::set<std::size_t> kept(
        order.begin(), order.begin() + static_cast<std::ptrdiff_t>(choices.experts / 3));
    for (std::size_t t = tokens.size() / 2; t < tokens.size(); ++t) {
      for (const std::size_t expert : tokens[t]) hits += static_cast<double>(kept.count(expert));
      all += static_cast<double>(tokens[t].size());
    }
  }
  return hits / all;
}

// The share of a token's experts that the token before it chose too.
double share_of_repeats(const Choices& choices) {
  double repeats = 0, all = 0;
  for (const auto& [layer, tokens] : choices.by_layer) {
    for (std::size_t t = 1; t < tokens.size(); ++t) {
      for (const std::size_t e : tokens[t]) repeats += static_cast<double>(tokens[t - 1].count(e));
      all += static_cast<double>(tokens[t].size());
    }
  }
  return repeats / all;
}

// The share of the choices that the router would have found one layer earlier.
double share_of_guesses(const Choices& choices) {
  double right = 0, all = 0;
  for (const auto& [layer, guesses] : choices.guesses_by_layer) {
    const TokenChoices& tokens = choices.by_layer.at(layer);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      for (const std::size_t e : tokens[t]) right += static_cast<double>(guesses[t].count(e));
      all += static_cast<double>(tokens[t].size());
    }
  }
  return right / all;
}

// The share of the choices that the policy of the tape finds in memory, with places for a share of
// the experts, from an empty memory.
double share_found(const Choices& choices, double share_of_places) {
  const auto places =
      static_cast<std::size_t>(std::round(share_of_places * static_cast<double>(choices.experts)));
  double hits = 0, all = 0;
  for (const auto& [layer, tokens] : choices.by_layer) {
    streaming::ExpertPolicy policy(choices.experts, places);
    std::vector<bool> has_place(choices.experts), is_filled(choices.experts);
    std::fill_n(has_place.begin(), places, true);
    for (const std::set<std::size_t>& chosen : tokens) {
      std::vector<streaming::ExpertUse> uses;
      for (const std::size_t expert : chosen) {
        hits += is_filled[expert] ? 1 : 0;
        uses.push_back({static_cast<std::uint32_t>(expert), 1});
      }
      all += static_cast<double>(chosen.size());
      for (const auto [gains, loses] : policy.use(uses, 1, places)) {
        has_place[gains] = true;
        has_place[loses] = is_filled[loses] = false;
      }
      for (const std::size_t expert : chosen) is_filled[expert] = has_place[expert];
    }
  }
  return hits / all;
}

// Wide enough for skewed routing, and as quick as the tiny shapes otherwise.
Shape widened(const std::string& name) {
  Shape shape = synth::shape_by_name(name);
  shape.embedding = 512;
  if (shape.architecture == "lfm2moe") shape.heads.size = 64;
  shape.experts.count = 32;
  shape.experts.used = 2;
  shape.experts.router_bias = Shape{}.experts.router_bias;
  shape.experts.layer_gain = Shape{}.experts.layer_gain;
  return shape;
}

}  // namespace

TEST_CASE("experts are chosen about equally often, or some of them much more often") {
  for (const Shape& shape :
       {synth::shape_by_name("small-moe"), widened("tiny-qwen35moe"), widened("tiny-gpt-oss"),
        widened("tiny-lfm2moe"), widened("tiny-granitehybrid-moe")}) {
    const Choices uniform = choices_of(shape, 256);
    Shape changed = shape;
    changed.experts.routing = Routing::skewed;
    const Choices skewed = choices_of(changed, 256);
    CHECK(skewed.by_layer.size() == shape.layers - shape.experts.leading_dense);
    INFO(shape.name << ": hits " << share_of_hits(uniform) << " and " << share_of_hits(skewed)
                    << ", repeats " << share_of_repeats(uniform) << " and "
                    << share_of_repeats(skewed) << ", guesses " << share_of_guesses(uniform)
                    << " and " << share_of_guesses(skewed));
    // Layers with experts hardly change what the next router sees: guesses say nothing about real
    // models (docs/experts.md).
    CHECK(share_of_guesses(uniform) > share_of_hits(uniform));
    CHECK(share_of_hits(uniform) < 0.5);
    CHECK(share_of_hits(skewed) > share_of_hits(uniform) + 0.2);
    CHECK(share_of_hits(skewed) < 0.9);
    CHECK(share_of_repeats(skewed) > 1.6 * share_of_repeats(uniform));
  }
}

TEST_CASE("experts are found in memory as often as those of real models") {
  constexpr double bound = 0.05;
  for (const std::uint32_t used : {2U, 6U, 8U}) {
    Shape shape = synth::shape_by_name("small-moe");
    shape.experts.used = used;
    shape.experts.routing = Routing::real;
    const Choices choices = choices_of(shape, 150);
    for (const double places : {0.05, 0.1, 0.2, 0.3, 0.5}) {
      const double found = share_found(choices, places);
      const double real = engine::usual_hit_rate(places, used / 128.0);
      INFO(used << " of 128, places for " << places << ": " << found << ", real " << real);
      CHECK(std::abs(found - real) < bound);
    }
  }
}

TEST_CASE("the share of experts found in memory rises with their places, and is never less") {
  CHECK(engine::usual_hit_rate(0.1, 6.0 / 128) == Approx(0.523));
  CHECK(engine::usual_hit_rate(0.15, 6.0 / 128) == Approx((0.523 + 0.725) / 2));
  CHECK(engine::usual_hit_rate(0.1, 2.0 / 128) == Approx(0.553));
  CHECK(engine::usual_hit_rate(0.1, 0) == Approx(0.553));
  for (const double needed : {0.001, 0.03, 0.0625, 0.2, 0.3, 0.7, 1.0}) {
    double before = 0;
    for (int percent = 0; percent <= 100; ++percent) {
      const double places = percent / 100.0;
      const double hits = engine::usual_hit_rate(places, needed);
      INFO(needed << " needed, places for " << places);
      CHECK(hits >= before);
      CHECK(hits >= places - 1e-9);
      CHECK(hits <= 1 + 1e-9);
      if (needed == 1) CHECK(hits == Approx(places));
      before = hits;
    }
  }
}

TEST_CASE("skewed routing is refused where it cannot be") {
  for (const Routing routing : {Routing::skewed, Routing::real}) {
    for (const char* name : {"tiny-qwen3moe", "small"}) {
      Shape shape = synth::shape_by_name(name);
      shape.experts.routing = routing;
      CHECK_THROWS_AS(synth::SyntheticModel(shape, "Q8_0"), UsageError);
    }
  }
}

}  // namespace sluice
