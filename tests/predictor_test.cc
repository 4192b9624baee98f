// The block that predicts further tokens, against llama.cpp's probabilities of it.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "tests/catch.h"
#include "tests/golden_support.h"
#include "tests/temporary_folder.h"

namespace sluice::test {
namespace {

using tokenizer::Token;

constexpr std::size_t guesses = 3;  // that the goldens have behind the text

std::unique_ptr<engine::Engine> open_predicting(const std::filesystem::path& model) {
  engine::EngineOptions settings;
  settings.threads = 2;
  settings.context = 64;
  settings.kv = kvcache::ElementType::f16;
  settings.predicts = true;
  return engine::Engine::open(model, settings);
}

Token likeliest(std::span<const float> logits) {
  return static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
}

// The block's logits behind each token of the text, as each was not evaluated yet, and then those
// of some guesses behind it.
std::vector<float> predictions(const std::filesystem::path& model) {
  const auto engine = open_predicting(model);
  const auto sequence = engine->new_sequence(64);
  std::vector<float> out;
  const auto record = [&](std::span<const float> logits) -> std::optional<Token> {
    out.insert(out.end(), logits.begin(), logits.end());
    return likeliest(logits);
  };
  Token next = 0;
  for (const Token token : golden_tokens) {
    engine->predict(*sequence, token, 1, record);
    const engine::SequenceWork work{sequence.get(), {&token, 1}, true};
    next = likeliest(engine->step({&work, 1}).front());
  }
  engine->predict(*sequence, next, guesses, record);
  return out;
}

struct Case {
  std::filesystem::path golden, model;
};

// Nothing when the reference model cannot be made.
std::optional<Case> make_case(const TemporaryFolder& folder, const std::string& model,
                              const std::string& kind) {
  const std::string name = "tiny-" + model + "-" + kind;
  const auto golden = fixture("goldens/" + name + ".mtp.f32");
  if (!golden || !make_tiny(folder.path(), model, kind)) return std::nullopt;
  return Case{*golden, folder / (name + ".gguf")};
}

}  // namespace

TEST_CASE("the predicting block of F32 models has llama.cpp's probabilities, guesses included") {
  for (const std::string model : {"qwen35-mtp", "qwen35moe-mtp", "glm4moe-mtp"}) {
    const TemporaryFolder folder;
    const auto made = make_case(folder, model, "f32");
    if (!made) SLUICE_SKIP("the reference model of " + model + " is absent");
    INFO(model);
    const std::vector<float> logits = predictions(made->model);
    REQUIRE(logits.size() == (golden_tokens.size() + guesses) * vocabulary);
    const auto kl = divergence(read_floats(made->golden), probabilities(logits, true));
    CHECK(*std::ranges::max_element(kl) < 1e-4);
  }
}

// As with the models themselves (golden_test.cc), the formats are taken together, and of mixtures
// the medians. Guesses are left out: they may be others.
TEST_CASE("the predicting block of quantised models is as close to exact as llama.cpp's is") {
  for (const std::string model : {"qwen35-mtp", "qwen35moe-mtp", "glm4moe-mtp"}) {
    double ours = 0, theirs = 0;
    for (const std::string kind : {"q8_0", "q4_k", "q6_k"}) {
      const TemporaryFolder folder;
      const auto twin = fixture("goldens/tiny-" + model + "-" + kind + "-twin.mtp.f32");
      const auto made = make_case(folder, model, kind);
      if (!twin || !made) SLUICE_SKIP("the reference model of " + model + " is absent");
      std::vector<float> logits = predictions(made->model), golden = read_floats(made->golden);
      logits.resize(golden_tokens.size() * vocabulary);
      golden.resize(golden_tokens.size() * vocabulary);
      const std::vector<float> exact = read_floats(*twin);
      ours += median(divergence(exact, probabilities(logits, true)));
      theirs += median(divergence(exact, probabilities(golden, false)));
    }
    INFO(model << ": " << ours << " beside " << theirs);
    CHECK(ours < 1.3 * theirs);
  }
}

}  // namespace sluice::test
