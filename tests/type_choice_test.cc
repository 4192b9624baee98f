// Mixtures of one's own, and mixtures for a size: quantize --tensor-types and --target-size.
#include "core/quant/type_choice.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/gguf/gguf.h"
#include "core/quant/imatrix.h"
#include "core/quant/quantise_model.h"
#include "core/quant/tensor_types.h"
#include "core/quant/type_recipe.h"
#include "core/synth/shapes.h"
#include "core/synth/synthetic_model.h"
#include "tests/catch.h"
#include "tests/random_seed.h"
#include "tests/sanitized.h"
#include "tests/small_shapes.h"
#include "tests/temporary_folder.h"
#include "tests/tensor_values.h"

namespace sluice::quant {
namespace {

namespace fs = std::filesystem;
using kernels::BlockType;

// What matches() means, by trying everything that a star may stand for.
bool matches_slowly(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() == '*') {
    for (std::size_t i = 0; i <= name.size(); ++i) {
      if (matches_slowly(pattern.substr(1), name.substr(i))) return true;
    }
    return false;
  }
  if (name.empty()) return false;
  if (pattern.starts_with("[a-b]")) {
    return (name.front() == 'a' || name.front() == 'b') &&
           matches_slowly(pattern.substr(5), name.substr(1));
  }
  return (pattern.front() == '?' || pattern.front() == name.front()) &&
         matches_slowly(pattern.substr(1), name.substr(1));
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string refusal(const auto& action) {
  try {
    action();
  } catch (const UsageError& error) {
    const std::string line = error.what();
    CHECK(line.find('\n') == std::string::npos);
    return line;
  }
  return "accepted";
}

std::map<std::string, BlockType> types_in(const fs::path& path) {
  std::map<std::string, BlockType> types;
  const gguf::Model model = gguf::Model::open(path);
  for (const gguf::TensorInfo& tensor : model.tensors()) {
    types.emplace(tensor.name, static_cast<BlockType>(tensor.type));
  }
  return types;
}

QuantiseOptions for_size(std::uint64_t bytes, TypeRecipe recipe = {}) {
  QuantiseOptions options{"", {}, {1, {}}, std::move(recipe)};
  options.target_bytes = bytes;
  return options;
}

double error_of(const std::vector<std::vector<TypeOption>>& matrices,
                const std::vector<std::size_t>& chosen) {
  double sum = 0;
  for (std::size_t i = 0; i < chosen.size(); ++i) sum += matrices[i][chosen[i]].error;
  return sum;
}

std::uint64_t bytes_of(const std::vector<std::vector<TypeOption>>& matrices,
                       const std::vector<std::size_t>& chosen) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < chosen.size(); ++i) sum += matrices[i][chosen[i]].bytes;
  return sum;
}

// The least error of all combinations of at most so many bytes; infinite if there is none.
double least_error(const std::vector<std::vector<TypeOption>>& matrices, std::int64_t bytes,
                   std::size_t from = 0) {
  if (bytes < 0) return INFINITY;
  if (from == matrices.size()) return 0;
  double least = INFINITY;
  for (const TypeOption& option : matrices[from]) {
    const auto left = bytes - static_cast<std::int64_t>(option.bytes);
    least = std::min(least, option.error + least_error(matrices, left, from + 1));
  }
  return least;
}

}  // namespace

TEST_CASE("a mixture leaves alone what is small or sensitive, as llama.cpp does") {
  const std::map<std::string, bool> expected = {
      {"blk.0.ffn_down.weight", true},
      {"blk.0.time_mix_key.weight", true},
      {"blk.0.channel_mix_value.weight", true},
      {"blk.0.ffn_gate_inp.weight", false},
      {"blk.0.attn_q_norm.weight", false},
      {"blk.0.ssm_conv1d.weight", false},
      {"blk.0.time_mix_lerp_fused.weight", false},
      {"blk.0.time_mix_w1.weight", false},
      {"blk.0.time_mix_g2.weight", false},
      {"blk.0.attn_q.bias", false},
      {"position_embd.weight", false},
      {"per_layer_model_proj.weight", false},
      {"altup_proj.weight", false},
      {"blk.0.laurel_l.weight", false},
      {"blk.0.indexer.k_proj.weight", false},
  };
  std::vector<NamedShape> tensors;
  for (const auto& [name, changes] : expected) tensors.push_back({name, 2, 256});
  const auto types = types_of(tensors, QuantMix::by_name("Q4_K_M"), {1, 1});
  std::size_t i = 0;
  for (const auto& [name, changes] : expected) {
    INFO(name);
    CHECK(types[i++].has_value() == changes);
  }
}

TEST_CASE("patterns match as when everything is tried") {
  std::mt19937_64 random(test::random_seed());
  const std::vector<std::string> pieces = {"a", "b", "c", "*", "?", "[a-b]", "*"};
  std::size_t matched = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string pattern, name;
    for (std::uint64_t i = random() % 6; i > 0; --i) pattern += pieces[random() % pieces.size()];
    for (std::uint64_t i = random() % 7; i > 0; --i) name += static_cast<char>('a' + random() % 3);
    INFO(pattern << " and " << name);
    const bool is_match = matches_slowly(pattern, name);
    REQUIRE(matches(pattern, name) == is_match);
    matched += is_match ? 1 : 0;
  }
  CHECK(matched > 1000);
  // A pattern that takes forever when everything is tried; and sets without an end.
  std::string stars;
  for (int i = 0; i < 200; ++i) stars += "*a";
  CHECK_FALSE(matches(stars + "b", std::string(5000, 'a')));
  CHECK(matches("a[b", "a[b"));
  CHECK_FALSE(matches("a[]b", "ab"));
}

TEST_CASE("what is wrong in a recipe is said in a line") {
  const auto parse = [](const std::string& text) {
    return refusal([&] { TypeRecipe::parse(text, "types.txt"); });
  };
  CHECK(parse("# none\n\n  *.attn_v.* = q5_k\r\nblk.0.* = F16") == "accepted");
  CHECK(contains(parse("* = Q4_K\nffn_up\n"), "types.txt:2: 'ffn_up'"));
  CHECK(contains(parse("* = Q4_K\n\n = Q4_K\n"), "types.txt:3"));
  CHECK(contains(parse("* = Q9\n"), "types.txt:1: unknown type 'Q9'; known: F32, F16"));
  CHECK(contains(parse("* =\n"), "types.txt:1: unknown type ''"));
  CHECK(contains(parse("# nothing\n"), "types.txt: no line"));
  TypeRecipe recipe = TypeRecipe::parse("a* = Q4_K\nb = Q6_K\n", "types.txt");
  CHECK(contains(refusal([&] { recipe.type_for("a.weight", 96); }),
                 "types.txt:1: tensor 'a.weight' has rows of 96 weights, which blocks of 256 "
                 "(Q4_K) do not divide; choose Q5_0"));
  CHECK(recipe.type_for("a.weight", 512).value() == BlockType::q4_k);
  CHECK_FALSE(recipe.type_for("c", 512).has_value());
  CHECK(contains(refusal([&] { recipe.check_all_matched(); }),
                 "types.txt:2: the pattern 'b' matches no matrix"));
}

TEST_CASE("a recipe goes before the mixture, and its last line before the others") {
  const test::TemporaryFolder folder;
  const fs::path input = folder.path() / "in.gguf", output = folder.path() / "out.gguf";
  synth::SyntheticModel("tiny-qwen3", "F16").write(input, 1, {});
  const auto quantise = [&](const std::string& recipe) {
    quantise_model(input, output, {"Q4_K_M", {}, {1, {}}, TypeRecipe::parse(recipe, "types.txt")});
  };
  quantise("blk.1.* = Q8_0\n*.attn_?.weight = Q3_K\nblk.1.attn_q.weight = F16\n");
  const auto types = types_in(output);
  CHECK(types.at("blk.1.ffn_up.weight") == BlockType::q8_0);
  CHECK(types.at("blk.1.attn_v.weight") == BlockType::q3_k);
  CHECK(types.at("blk.1.attn_q.weight") == BlockType::f16);
  CHECK(types.at("blk.1.attn_norm.weight") == BlockType::f32);  // no matrix
  CHECK(types.at("blk.2.ffn_up.weight") == BlockType::q4_k);
  fs::remove(output);
  CHECK(contains(refusal([&] { quantise("* = Q8_0\nblk.7.* = Q4_K\n"); }), "'blk.7.*'"));
  CHECK(contains(refusal([&] { quantise("*_norm.weight = Q8_0\n"); }), "matches no matrix"));
  CHECK_FALSE(fs::exists(output));
}

TEST_CASE("what is chosen fits, is the best but for a step, and more bytes are never worse") {
  std::mt19937_64 random(test::random_seed());
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::vector<TypeOption>> matrices(1 + random() % 5);
    std::uint64_t least = 0, most = 0, largest_step = 0;
    for (std::vector<TypeOption>& options : matrices) {
      options.resize(1 + random() % 5);
      for (TypeOption& option : options) {
        option = {BlockType::f16, 32 * (1 + random() % 20), uniform(random)};
      }
      const auto [low, high] = std::ranges::minmax(options, {}, &TypeOption::bytes);
      least += low.bytes;
      most += high.bytes;
      largest_step = std::max(largest_step, high.bytes - low.bytes);
    }
    CHECK_FALSE(choose_options(matrices, least - 1).has_value());
    double before = INFINITY;
    for (std::uint64_t bytes = least; bytes <= most + 32; bytes += 16) {
      const auto chosen = choose_options(matrices, bytes);
      REQUIRE(chosen.has_value());
      const double error = error_of(matrices, *chosen);
      REQUIRE(bytes_of(matrices, *chosen) <= bytes);
      REQUIRE(error <= before + 1e-12);
      const auto smaller =
          static_cast<std::int64_t>(bytes) - static_cast<std::int64_t>(largest_step);
      REQUIRE(error <= least_error(matrices, smaller) + 1e-12);
      before = error;
    }
    CHECK(before <= least_error(matrices, static_cast<std::int64_t>(most)) + 1e-12);
  }
}

TEST_CASE("a file is never larger than its target, and never worse with more bytes") {
  const test::TemporaryFolder folder;
  const fs::path input = folder.path() / "in.gguf", output = folder.path() / "out.gguf";
  synth::SyntheticModel(test::small_shape("tiny-qwen3moe"), "F16").write(input, 1, {});
  const std::string impossible = refusal([&] { quantise_model(input, output, for_size(1)); });
  CHECK(contains(impossible, "a file of 1 bytes is not possible: the least is "));
  CHECK_FALSE(fs::exists(output));
  const std::uint64_t least = std::stoull(impossible.substr(impossible.find("least is ") + 9));
  const std::uint64_t whole = fs::file_size(input);
  CHECK(refusal([&] { quantise_model(input, output, for_size(least - 1)); }) != "accepted");
  double before = INFINITY;
  for (std::uint64_t target = least; target <= whole; target += (whole - least) / 12) {
    INFO(target);
    const QuantiseReport report = quantise_model(input, output, for_size(target));
    CHECK(fs::file_size(output) <= target);
    CHECK(fs::file_size(output) > target - (whole - least) / 8);
    CHECK(report.bytes_after == fs::file_size(output));
    CHECK(report.expected_error <= before);
    before = report.expected_error;
    std::uint64_t chosen = 0;
    for (const ChosenType& type : report.chosen) chosen += type.tensors;
    CHECK(chosen == 1 + 1 + 3 * 7);
  }
  CHECK(quantise_model(input, output, for_size(whole + 4096)).expected_error == 0);
  // What a recipe names is not chosen.
  const TypeRecipe recipe = TypeRecipe::parse("*.attn_k.weight = F32\noutput.weight = Q4_0", "");
  quantise_model(input, output, for_size(least + (whole - least) / 2, recipe));
  const auto types = types_in(output);
  CHECK(fs::file_size(output) <= least + (whole - least) / 2);
  CHECK(types.at("blk.2.attn_k.weight") == BlockType::f32);
  CHECK(types.at("output.weight") == BlockType::q4_0);
}

TEST_CASE(
    "importances decide which matrices get more bits, and let formats of two bits be chosen") {
  const test::TemporaryFolder folder;
  const fs::path input = folder.path() / "in.gguf", output = folder.path() / "out.gguf";
  const fs::path sums = folder.path() / "imatrix.gguf";
  synth::Shape shape = synth::shape_by_name("tiny-qwen3");
  shape.layers = 1;  // the search for grids is slow
  synth::SyntheticModel(shape, "F16").write(input, 1, {});
  std::map<std::string, ImatrixEntry> entries;
  const gguf::Model model = gguf::Model::open(input);
  for (const gguf::TensorInfo& tensor : model.tensors()) {
    if (!tensor.name.starts_with("blk.") || tensor.rank < 2) continue;
    entries[std::string(tensor.name)] = {
        tensor.dims[0], std::vector<float>(tensor.dims[0], 1), {1}};
  }
  Imatrix(entries, "", 1, 1).write(sums);
  QuantiseOptions options = for_size(1);
  options.imatrix = sums;
  const std::string impossible = refusal([&] { quantise_model(input, output, options); });
  options.target_bytes = std::stoull(impossible.substr(impossible.find("least is ") + 9));
  options.convert.threads = 2;
  const QuantiseReport two = quantise_model(input, output, options);
  const std::string bytes = test::content(output);
  if (!test::is_sanitized) {
    options.convert.threads = 1;
    quantise_model(input, output, options);
    CHECK(test::content(output) == bytes);
  }
  CHECK(types_in(output).at("blk.0.ffn_up.weight") == BlockType::iq1_s);
  CHECK(gguf::Model::open(output).metadata().require_u32("general.file_type") == 24);
  CHECK(two.chosen.front().name == "IQ1_S");
}

}  // namespace sluice::quant
