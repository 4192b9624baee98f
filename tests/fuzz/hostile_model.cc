#include "tests/fuzz/hostile_model.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "core/error.h"
#include "core/gguf/tensor_type.h"
#include "core/sampling/sampler.h"
#include "core/synth/synthetic_model.h"
#include "tests/fuzz/fuzz.h"
#include "tests/model_content.h"
#include "tests/small_shapes.h"

namespace sluice::fuzz {
namespace {

constexpr std::uint64_t budget_bytes = std::uint64_t{1500} << 20;
constexpr std::uint64_t tensor_bytes_max = std::uint64_t{4} << 20;
constexpr std::size_t changes_max = 6;

// The model of a number as it is without changes.
const test::Content& model(std::size_t number, bool is_quantised) {
  static std::map<std::pair<std::size_t, bool>, test::Content> made;
  const auto found = made.find({number, is_quantised});
  if (found != made.end()) return found->second;
  const std::filesystem::path path = scratch_folder() / "base.gguf";
  const char* const quant = is_quantised ? "Q8_0" : "F32";
  synth::SyntheticModel(test::small_shape(hostile_models()[number]), quant).write(path, 3, {});
  return made.emplace(std::pair(number, is_quantised), test::Content(path)).first->second;
}

std::uint32_t hostile_count(Choices& choices) {
  constexpr std::uint32_t some[] = {
      0,   1,   2,   3,    4,    5,     7,     8,          12,         16,        24,
      31,  32,  33,  48,   64,   65,    96,    100,        128,        255,       256,
      257, 320, 512, 1000, 4096, 65535, 65536, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF};
  return some[choices.below(std::size(some))];
}

float hostile_number(Choices& choices) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float some[] = {
      0,     -0.0F, 1,     -1,     0.5F,     2,         1e-30F,
      1e30F, 1e-5F, 1e38F, 1e-45F, infinity, -infinity, std::numeric_limits<float>::quiet_NaN()};
  return some[choices.below(std::size(some))];
}

// A key of the file, more often one of the architecture than one of its vocabulary.
std::string key_of(const test::Content& content, Choices& choices) {
  const auto entries = content.metadata().entries();
  const std::string prefix(content.metadata().require_string("general.architecture"));
  std::vector<std::string> own;
  for (const gguf::Metadata::Entry& entry : entries) {
    if (entry.key.starts_with(prefix)) own.emplace_back(entry.key);
  }
  if (own.empty() || choices.below(8) == 0) {
    return std::string(entries[choices.below(entries.size())].key);
  }
  return own[choices.below(own.size())];
}

// Keys that files of other models have.
std::string other_key(const test::Content& content, Choices& choices) {
  constexpr const char* some[] = {"attention.sliding_window",
                                  "attention.sliding_window_pattern",
                                  "attention.shared_kv_layers",
                                  "attention.key_length",
                                  "attention.value_length",
                                  "attention.head_count_kv",
                                  "attention.scale",
                                  "attention.temperature_length",
                                  "rope.dimension_count",
                                  "rope.dimension_sections",
                                  "rope.freq_base",
                                  "rope.freq_base_swa",
                                  "rope.scaling.factor",
                                  "rope.scaling.original_context_length",
                                  "expert_count",
                                  "expert_used_count",
                                  "expert_group_count",
                                  "expert_group_used_count",
                                  "expert_weights_scale",
                                  "expert_gating_func",
                                  "expert_shared_count",
                                  "leading_dense_block_count",
                                  "interleave_moe_layer_step",
                                  "nextn_predict_layers",
                                  "embedding_length_per_layer_input",
                                  "full_attention_interval",
                                  "logit_scale",
                                  "final_logit_softcapping",
                                  "pooling_type",
                                  "vocab_size"};
  const std::string prefix(content.metadata().require_string("general.architecture"));
  return prefix + "." + some[choices.below(std::size(some))];
}

void change_key(test::Content& content, Choices& choices) {
  const std::string key =
      choices.below(4) == 0 ? other_key(content, choices) : key_of(content, choices);
  switch (choices.below(7)) {
    case 0:
    case 1:
      return content.set(key, hostile_count(choices));
    case 2:
      return content.set(key, hostile_number(choices));
    case 3: {
      std::vector<std::uint32_t> each(choices.below(10));
      for (std::uint32_t& one : each) one = hostile_count(choices);
      return content.set_all(key, each);
    }
    case 4: {
      constexpr const char* some[] = {"yarn", "linear", "longrope", "none", "llama", ""};
      return content.set(key, std::string_view(some[choices.below(std::size(some))]));
    }
    case 5:
      return content.set(key, static_cast<std::int64_t>(choices.byte()) - 128);
    default:
      return content.remove_key(key);
  }
}

// Gives a tensor the bytes that its type and dimensions ask for; false: there are none, or too
// many.
bool fit_bytes(test::Stored& tensor) {
  const auto layout = gguf::find_type_layout(tensor.type);
  if (!layout || tensor.dims[0] % layout->elements_per_block != 0) return false;
  std::uint64_t rows = 1;
  for (std::size_t i = 1; i < tensor.dims.size(); ++i) rows *= tensor.dims[i];
  const auto bytes = gguf::tensor_bytes(*layout, tensor.dims[0], rows);
  if (!bytes || *bytes == 0 || *bytes > tensor_bytes_max) return false;
  tensor.bytes.resize(*bytes, std::byte{0x2F});
  return true;
}

void change_shape(test::Stored& tensor, Choices& choices) {
  std::uint64_t& size = tensor.dims[choices.below(tensor.dims.size())];
  switch (choices.below(6)) {
    case 0:
      size = hostile_count(choices) % 4096;
      break;
    case 1:
      size *= 2;
      break;
    case 2:
      size /= 2;
      break;
    case 3:
      ++size;
      break;
    case 4:
      std::swap(tensor.dims.front(), tensor.dims.back());
      break;
    default:
      if (tensor.dims.size() < 4) tensor.dims.push_back(1 + choices.below(3));
  }
}

void change_values(test::Stored& tensor, Choices& choices) {
  const std::size_t begin = choices.below(tensor.bytes.size());
  const std::size_t bytes =
      std::min(tensor.bytes.size() - begin, std::size_t{1} << choices.below(20));
  constexpr std::array<std::array<std::uint8_t, 4>, 6> patterns = {{{0xFF, 0xFF, 0xFF, 0xFF},
                                                                    {0, 0, 0x80, 0x7F},
                                                                    {0, 0, 0x80, 0xFF},
                                                                    {0, 0x7C, 0, 0x7C},
                                                                    {0xFF, 0xFF, 0x7F, 0x7F},
                                                                    {0, 0, 0, 0}}};
  const auto& pattern = patterns[choices.below(patterns.size())];
  for (std::size_t i = begin; i < begin + bytes; ++i) tensor.bytes[i] = std::byte{pattern[i % 4]};
}

void change_tensor(test::Content& content, Choices& choices) {
  if (content.tensors.empty()) return;
  test::Stored& tensor = content.tensors[choices.below(content.tensors.size())];
  const test::Stored before = tensor;
  switch (choices.below(6)) {
    case 0:
      change_shape(tensor, choices);
      break;
    case 1:
      tensor.type = static_cast<std::uint32_t>(choices.below(42));
      break;
    case 2:
      content.tensors.erase(content.tensors.begin() + (&tensor - content.tensors.data()));
      return;
    case 3:
      tensor.name = content.tensors[choices.below(content.tensors.size())].name + "x";
      return;
    default:
      return change_values(tensor, choices);
  }
  if (!fit_bytes(tensor)) tensor = before;
}

void check_logits(const engine::Engine& engine, std::span<const float> logits) {
  require(logits.size() == engine.facts().vocabulary, "there is a logit for each token");
  sampling::SamplerOptions options;
  options.seed = 1;
  sampling::Sampler sampler(options);
  const tokenizer::Token token = sampler.sample(logits);
  require(token >= 0 && static_cast<std::size_t>(token) < logits.size(), "a token is chosen");
}

void evaluate(engine::Engine& engine) {
  const auto last = static_cast<tokenizer::Token>(engine.tokenizer().vocabulary_size() - 1);
  const std::vector<tokenizer::Token> tokens = {0, last / 2, last};
  const auto sequence = engine.new_sequence(16);
  if (!sequence) return;
  const bool is_encoder = engine.facts().is_encoder;
  const auto step = [&](std::span<const tokenizer::Token> text) {
    std::size_t states = 0;
    const auto on_hidden = [&](std::size_t, std::span<const float> hidden) {
      require(hidden.size() == engine.facts().embedding, "a state has its size");
      ++states;
    };
    const engine::SequenceWork work{sequence.get(), text, !is_encoder, on_hidden};
    const auto logits = engine.step(std::span(&work, 1));
    require(states == text.size(), "there is a state for each token");
    if (!is_encoder) check_logits(engine, logits[0]);
  };
  step(tokens);
  if (!is_encoder) step(std::span(tokens).first(1));
}

}  // namespace

const std::vector<std::string>& hostile_models() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> tiny;
    for (const synth::Shape& shape : synth::shapes()) {
      if (shape.name.starts_with("tiny-")) tiny.push_back(shape.name);
    }
    return tiny;
  }();
  return all;
}

ModelOutcome try_hostile_model(Choices choices) {
  const std::size_t number = choices.below(hostile_models().size());
  test::Content content = model(number, choices.below(3) == 0);
  for (std::size_t i = 0; i < changes_max && !choices.is_empty(); ++i) {
    if (choices.below(2) == 0) {
      change_key(content, choices);
    } else {
      change_tensor(content, choices);
    }
  }
  const std::filesystem::path path = scratch_folder() / "model.gguf";
  content.write(path);
  engine::EngineOptions options;
  options.context = 64;
  options.threads = 1;
  options.chunk = options.logits_columns = 8;
  options.budget_bytes = budget_bytes;
  options.io = streaming::Io::pread;
  try {
    const engine::PlannedRun planned = engine::plan_run(path, options);
    // Streamed, too: with as little memory as it asks for.
    if (choices.below(3) == 1) options.budget_bytes = planned.plan.least_budget_bytes;
    const auto engine = engine::Engine::open(path, options);
    evaluate(*engine);
    return ModelOutcome::evaluated;
  } catch (const Error&) {
    return ModelOutcome::refused;
  }
}

}  // namespace sluice::fuzz
