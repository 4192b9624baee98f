// Random changes of tiny models of every architecture: each is refused, or gives its tokens.
//
// SLUICE_HOSTILE_MODELS=N tries N of them (scripts/stress-models).
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "core/error.h"
#include "core/synth/shapes.h"
#include "core/synth/synthetic_model.h"
#include "tests/catch.h"
#include "tests/fuzz/hostile_model.h"
#include "tests/model_content.h"
#include "tests/random_seed.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"

using namespace sluice;

namespace {

std::size_t models_wanted() {
  const char* const given = std::getenv("SLUICE_HOSTILE_MODELS");
  if (given != nullptr) return std::strtoull(given, nullptr, 10);
  return test::is_sanitized ? 100 : 1000;
}

std::string random_choices(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  // Each change takes some; where there are few of them, more models can be evaluated.
  std::string choices(1 + random() % (std::size_t{4} << random() % 5), '\0');
  for (char& one : choices) one = static_cast<char>(random() % 256);
  return choices;
}

// Why a model is refused; empty if it is not.
std::string refusal(const std::filesystem::path& path) {
  engine::EngineOptions options;
  options.context = 32;
  try {
    engine::Engine::open(path, options);
  } catch (const ModelError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a rotation wider than the heads of some layer is refused") {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder / "model.gguf";
  synth::SyntheticModel("tiny-llama", "F32").write(path, 3, {});
  for (const bool are_small : {false, true}) {
    test::Content content(path);
    content.remove_key("llama.attention.key_length");
    content.remove_key("llama.attention.value_length");
    const std::uint32_t layers = content.metadata().require_u32("llama.block_count");
    for (const std::string key : {"llama.attention.head_count", "llama.attention.head_count_kv"}) {
      std::vector<std::uint32_t> heads(layers, content.metadata().require_u32(key));
      if (are_small) heads.back() *= 4;
      content.set_all(key, heads);
    }
    content.write(folder / "changed.gguf");
    const std::string problem = refusal(folder / "changed.gguf");
    INFO(problem);
    CHECK(problem.empty() == !are_small);
    CHECK((problem.find("of which the metadata rotates") != std::string::npos) == are_small);
  }
}

TEST_CASE("vectors of a size that no model has are refused before they are made") {
  const test::TemporaryFolder folder;
  synth::Shape shape = synth::shape_by_name("tiny-bert");
  shape.context = std::uint32_t{1} << 20;
  synth::SyntheticModel(shape, "F32").write_header(folder / "model.gguf");
  const std::string problem = refusal(folder / "model.gguf");
  INFO(problem);
  CHECK(problem.find("position_embd.weight") != std::string::npos);
}

TEST_CASE("more experts than any model has are refused before they are listed") {
  const test::TemporaryFolder folder;
  synth::Shape shape = synth::shape_by_name("tiny-qwen3moe");
  shape.experts.count = std::uint32_t{1} << 20;
  synth::SyntheticModel(shape, "F32").write_header(folder / "model.gguf");
  const std::string problem = refusal(folder / "model.gguf");
  INFO(problem);
  CHECK(problem.find("cuts the matrices into more than") != std::string::npos);
}

TEST_CASE("a shared expert is refused where no norm stands in front of the experts") {
  const test::TemporaryFolder folder;
  for (const std::string family : {"olmo2", "command-r"}) {
    synth::SyntheticModel("tiny-" + family, "F32").write(folder / "model.gguf", 3, {});
    test::Content content(folder / "model.gguf");
    const std::uint32_t width = content.metadata().require_u32(family + ".feed_forward_length");
    for (const auto& [key, value] : {std::pair("expert_count", 4U),
                                     {"expert_used_count", 2U},
                                     {"expert_shared_count", 1U},
                                     {"expert_feed_forward_length", width}}) {
      content.set(family + "." + key, value);
    }
    content.change([](const test::Stored& tensor) -> std::vector<test::Stored> {
      if (tensor.name.find(".ffn_") == std::string::npos || tensor.dims.size() != 2) return {};
      const std::string name = tensor.name.substr(0, tensor.name.rfind(".weight"));
      test::Stored experts = tensor;
      experts.name = name + "_exps.weight";
      experts.dims.push_back(4);
      for (int i = 1; i < 4; ++i) {
        experts.bytes.insert(experts.bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
      }
      std::vector<test::Stored> all{experts, tensor};
      all.back().name = name + "_shexp.weight";
      if (name.ends_with("_up")) {
        const std::size_t inputs = tensor.dims[0];
        all.push_back({test::replaced(name, "_up", "_gate_inp") + ".weight",
                       {inputs, 4},
                       0,
                       std::vector<std::byte>(inputs * 4 * sizeof(float))});
      }
      return all;
    });
    content.write(folder / "changed.gguf");
    const std::string problem = refusal(folder / "changed.gguf");
    INFO(problem);
    CHECK(problem.find("ffn_up_shexp.weight' is of a shared expert") != std::string::npos);
  }
}

TEST_CASE("changed models are refused, or give their tokens") {
  const std::uint64_t first = test::random_seed();
  const std::size_t wanted = models_wanted();
  std::size_t evaluated = 0;
  for (std::size_t i = 0; i < wanted; ++i) {
    INFO("SLUICE_TEST_SEED=" << first + i);
    const std::string choices = random_choices(first + i);
    evaluated += fuzz::try_hostile_model(fuzz::Choices(choices)) == fuzz::ModelOutcome::evaluated;
  }
  std::printf("%12zu models\n%12zu gave tokens\n", wanted, evaluated);
  CHECK(evaluated != 0);
  CHECK(evaluated != wanted);
}
