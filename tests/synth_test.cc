// Synthetic models: sizes against those of published files, the statistics of the weights, and
// files that are the same for the same seed; and what `inspect` says of them.

#include <cmath>
#include <csignal>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <vector>

#include "core/cli/inspection.h"
#include "core/error.h"
#include "core/files/checksum.h"
#include "core/gguf/gguf.h"
#include "core/gguf/quant_name.h"
#include "core/quant/quant_mix.h"
#include "core/quant/tensor_types.h"
#include "core/synth/random_blocks.h"
#include "core/synth/synthetic_model.h"
#include "core/synth/toy_vocabulary.h"
#include "kernels/block_formats.h"
#include "kernels/dequantise.h"
#include "streaming/mapped_file.h"
#include "tests/catch.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"

namespace sluice::synth {
namespace {

using kernels::BlockType;
using quant::QuantMix;
using quant::TensorPlace;
using quant::TensorRole;

constexpr auto no_progress = [](std::uint64_t, std::uint64_t) {};

std::map<std::string, int> histogram(const SyntheticModel& model) {
  std::map<std::string, int> counts;
  for (std::size_t i = 0; i < model.tensors().size(); ++i) {
    ++counts[std::string(kernels::traits(model.type(i)).name)];
  }
  return counts;
}

struct Moments {
  double mean = 0, deviation = 0;
};

// Of finite values; fails the test for others.
Moments moments(std::span<const float> values) {
  double sum = 0, squares = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) FAIL("a weight is not finite");
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const double count = static_cast<double>(values.size());
  return {sum / count, std::sqrt(squares / count)};
}

std::vector<float> dequantised(const gguf::TensorInfo& tensor, std::span<const std::byte> file) {
  const auto traits = kernels::find_block_type(tensor.type);
  REQUIRE(traits);
  std::vector<float> values(tensor.elements());
  kernels::dequantise(traits->type, file.data() + tensor.offset, values.size(), values.data());
  return values;
}

bool is_tiny(const Shape& shape) {
  return shape.name.starts_with("tiny-");
}

// No file may grow beyond a size, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

template <typename Call>
std::string usage_error(const Call& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  FAIL("no error");
  return {};
}

}  // namespace

TEST_CASE("synthetic models have the size of the published files") {
  struct Expected {
    const char* shape;
    const char* quant;
    std::uint64_t data_bytes;
  };
  const Expected all[] = {
      {"llama-8b", "Q4_0", 4'653'375'744},
      {"llama-8b", "Q3_K_M", 4'011'081'984},
      {"llama-8b", "Q4_K_S", 4'684'833'024},
      {"llama-8b", "Q4_K_M", 4'912'898'304},
      {"llama-8b", "Q5_K_M", 5'725'151'488},
      {"llama-8b", "Q6_K", 6'588'170'496},
      {"llama-8b", "Q8_0", 8'532'934'912},
      {"qwen3-8b", "Q4_0", 4'768'792'576},
      {"qwen3-8b", "Q3_K_M", 4'118'204'416},
      {"qwen3-8b", "Q4_K_S", 4'796'055'552},
      {"qwen3-8b", "Q4_K_M", 5'021'827'072},
      {"qwen3-8b", "Q5_K_M", 5'845'155'840},
      {"qwen3-8b", "Q6_K", 6'719'942'656},
      {"qwen3-8b", "Q8_0", 8'703'561'728},
      {"gemma2-9b", "Q4_0", 5'437'085'696},
      {"gemma2-9b", "Q3_K_M", 4'755'724'288},
      {"gemma2-9b", "Q4_K_S", 5'472'868'352},
      {"gemma2-9b", "Q4_K_M", 5'755'000'832},
      {"gemma2-9b", "Q5_K_M", 6'641'309'696},
      {"gemma2-9b", "Q6_K", 7'583'012'864},
      {"gemma2-9b", "Q8_0", 9'821'091'840},
      {"yi-9b", "Q4_0", 5'035'491'328},
      {"yi-9b", "Q3_K_M", 4'322'902'016},
      {"yi-9b", "Q4_K_S", 5'070'356'480},
      {"yi-9b", "Q4_K_M", 5'327'454'208},
      {"yi-9b", "Q5_K_M", 6'256'754'688},
      {"yi-9b", "Q6_K", 7'244'136'448},
      {"yi-9b", "Q8_0", 9'382'412'288},
      {"mistral-7b", "Q4_K_M", 4'372'054'016},
      {"ministral3-8b", "Q4_K_M", 5'190'500'352},
      {"ministral3-8b", "Q3_K_M", 4'234'166'272},
      {"qwen2.5-7b", "Q4_K_M", 4'677'120'000},
      {"qwen2.5-7b", "Q8_0", 8'092'571'648},
      {"qwen3-4b", "Q4_K_M", 2'491'323'904},
      {"qwen3-4b", "Q5_K_M", 2'883'556'864},
      {"gemma3-4b", "Q4_K_M", 2'483'218'432},
      {"gemma3-4b", "Q3_K_M", 2'091'784'192},
      {"granite-8b", "Q4_K_M", 4'941'126'624},
      {"granite-8b", "Q8_0", 8'682'518'272},
      {"glm4-9b", "Q4_K_M", 6'157'238'272},
      {"glm4-9b", "Q3_K_M", 4'965'171'200},
      {"glm4-9b", "Q5_K_M", 7'041'581'056},
      {"phi3-mini", "Q6_K", 3'135'114'240},
      {"phi4-mini", "Q4_0", 2'316'899'712},
      {"phi4-mini", "Q8_0", 4'076'360'064},
      {"qwen35-4b", "Q4_0", 2'532'931'584},
      {"qwen35-4b", "Q6_K", 3'453'087'744},
      {"nemotron-nano-4b", "Q4_K_M", 2'829'187'200},
      {"qwen3-30b-a3b", "Q4_K_M", 18'550'716'416},
      {"qwen3-30b-a3b", "Q6_K", 25'086'562'304},
      {"qwen35-9b", "Q4_0", 5'302'388'736},
      {"qwen35-9b", "Q4_K_M", 5'618'141'184},
      {"qwen35-9b", "Q6_K", 7'348'291'584},
      {"qwen35-9b", "Q8_0", 9'516'533'760},
  };
  for (std::size_t i = 0; i < std::size(all); i += test::sample_step) {
    const Expected& expected = all[i];
    INFO(expected.shape << " " << expected.quant);
    CHECK(SyntheticModel(expected.shape, expected.quant).data_bytes() == expected.data_bytes);
  }
}

TEST_CASE("synthetic models have the parameters and types of the published files") {
  struct Expected {
    const char* shape;
    std::uint64_t parameters;
    std::map<std::string, int> types;
  };
  const Expected all[] = {
      {"llama-8b", 8'030'261'312, {{"F32", 66}, {"Q4_K", 193}, {"Q6_K", 33}}},
      {"qwen3-8b", 8'190'735'360, {{"F32", 145}, {"Q4_K", 217}, {"Q6_K", 37}}},
      {"gemma2-9b", 9'241'705'984, {{"F32", 169}, {"Q4_K", 252}, {"Q6_K", 43}}},
      {"yi-9b", 8'829'407'232, {{"F32", 97}, {"Q4_K", 289}, {"Q6_K", 49}}},
      {"qwen35-9b", 8'953'803'264, {{"F32", 177}, {"Q4_K", 217}, {"Q6_K", 33}}},
      {"ministral3-8b", 8'489'553'920, {{"F32", 69}, {"Q4_K", 205}, {"Q6_K", 35}}},
      {"glm4-9b",
       9'400'279'040,
       {{"F32", 281}, {"Q4_K", 181}, {"Q5_0", 20}, {"Q6_K", 21}, {"Q8_0", 20}}},
      {"gemma4-e4b", 7'518'069'290, {{"BF16", 1}, {"F32", 339}, {"Q4_K", 336}, {"Q6_K", 44}}},
      {"lfm2-2.6b", 2'569'272'320, {{"F32", 99}, {"Q4_K", 148}, {"Q6_K", 19}}},
      {"olmo2-7b", 7'298'617'344, {{"F32", 129}, {"Q4_K", 193}, {"Q6_K", 33}}},
      {"qwen3-30b-a3b", 30'532'122'624, {{"F32", 241}, {"Q4_K", 289}, {"Q6_K", 49}}},
      {"smollm3-3b", 3'075'098'624, {{"F32", 73}, {"Q4_K", 216}, {"Q6_K", 37}}},
      // 2'947'735'040, and a gate of values in the first layer, which converters add.
      {"rwkv7-2.9b", 2'948'229'120, {{"F32", 708}, {"Q4_K", 193}, {"Q6_K", 1}}},
  };
  for (const Expected& expected : all) {
    INFO(expected.shape);
    const SyntheticModel model(expected.shape, "Q4_K_M");
    CHECK(histogram(model) == expected.types);
    std::uint64_t parameters = 0;
    for (const Tensor& tensor : model.tensors()) parameters += tensor.elements();
    CHECK(parameters == expected.parameters);
  }
}

TEST_CASE("more shapes have the parameters and the number of tensors of the published files") {
  struct Expected {
    const char* shape;
    std::uint64_t parameters;
    std::size_t tensors;
  };
  for (const Expected& expected :
       {Expected{"qwen35-35b-a3b", 34'660'610'688, 733},
        Expected{"gpt-oss-20b", 20'914'757'184, 459}, Expected{"gemma4-12b", 11'907'350'576, 667},
        Expected{"gemma4-26b-a4b", 25'233'142'046, 658},
        Expected{"lfm2-8b-a1b", 8'339'930'560, 256}}) {
    INFO(expected.shape);
    const SyntheticModel model(expected.shape, "Q4_K_M");
    std::uint64_t parameters = 0;
    for (const Tensor& tensor : model.tensors()) parameters += tensor.elements();
    CHECK(parameters == expected.parameters);
    CHECK(model.tensors().size() == expected.tensors);
  }
  // Four bits for the experts, eight for the rest: the file of 12,109,566,624 bytes, of which the
  // published vocabulary takes 13 MB.
  const SyntheticModel model("gpt-oss-20b", "MXFP4_MOE");
  CHECK(histogram(model) == std::map<std::string, int>{{"F32", 289}, {"MXFP4", 72}, {"Q8_0", 98}});
  CHECK(model.data_bytes() == 12'096'558'336);
}

// Of rows shorter than a block some are F16.
TEST_CASE("a mix gives blocks to the tensors that a quantisation changes, and to no others") {
  for (const Shape& shape : shapes()) {
    const SyntheticModel model(shape, "pure-Q4_0");
    for (std::size_t i = 0; i < model.tensors().size(); ++i) {
      const Tensor& tensor = model.tensors()[i];
      if (tensor.dims[0] % 32 != 0) continue;
      INFO(shape.name << ": " << tensor.name);
      const auto rank = static_cast<std::uint32_t>(tensor.dims.size());
      const bool changes = quant::is_quantised({tensor.name, rank, tensor.dims[0]});
      const bool is_side = tensor.place.role == quant::TensorRole::side_projection;
      CHECK(!(changes && is_side));
      CHECK((model.type(i) == BlockType::bf16) == is_side);
      CHECK((model.type(i) != BlockType::f32) == (changes || is_side));
    }
  }
}

TEST_CASE("the layers with more bits are those of the published recipe") {
  const std::map<std::uint32_t, std::set<std::uint32_t>> published = {
      {28, {0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27}},
      {34, {0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 29, 30, 31, 32, 33}},
      {42, {0, 1, 2, 3, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31, 34, 36, 37, 38, 39, 40, 41}}};
  const QuantMix mix = QuantMix::by_name("q4_k_m");
  for (const auto& [layers, more] : published) {
    for (std::uint32_t layer = 0; layer < layers; ++layer) {
      const TensorPlace place{TensorRole::ffn_down, layer, layers, 4, 4096};
      INFO(layer << " of " << layers);
      CHECK((mix.type_for(place) == BlockType::q6_k) == (more.count(layer) == 1));
    }
  }
}

TEST_CASE("mixes of few bits keep more where a model is sensitive, as in the published recipe") {
  struct Expected {
    const char* mix;
    std::uint32_t file_type;
    BlockType other, attn_qk, attn_v, shared_v, attn_output, first_down, last_down, embedding, head;
  };
  using B = BlockType;
  for (const Expected& expected :
       {Expected{"IQ1_S", 24, B::iq1_s, B::iq1_s, B::q2_k, B::q4_k, B::iq2_xxs, B::q2_k, B::iq1_s,
                 B::q2_k, B::q5_k},
        Expected{"IQ2_XXS", 19, B::iq2_xxs, B::iq2_xxs, B::q2_k, B::q4_k, B::iq2_xxs, B::q2_k,
                 B::iq2_xxs, B::q2_k, B::q5_k},
        Expected{"IQ2_M", 29, B::iq2_s, B::iq2_s, B::iq3_s, B::q4_k, B::iq3_s, B::iq3_s, B::iq2_s,
                 B::iq3_s, B::q5_k},
        Expected{"IQ3_XXS", 23, B::iq3_xxs, B::iq2_s, B::iq3_xxs, B::q4_k, B::iq3_s, B::iq3_xxs,
                 B::iq3_xxs, B::iq3_s, B::q5_k},
        Expected{"IQ3_M", 27, B::iq3_s, B::iq3_s, B::q4_k, B::q4_k, B::q4_k, B::q4_k, B::iq3_s,
                 B::iq3_s, B::q6_k},
        Expected{"TQ2_0", 37, B::tq2_0, B::tq2_0, B::tq2_0, B::tq2_0, B::tq2_0, B::tq2_0, B::tq2_0,
                 B::q4_k, B::q6_k},
        Expected{"Q1_0", 40, B::q1_0, B::q1_0, B::q1_0, B::q1_0, B::q1_0, B::q1_0, B::q1_0, B::q1_0,
                 B::q6_k}}) {
    INFO(expected.mix);
    const QuantMix mix = QuantMix::by_name(expected.mix);
    const auto type = [&](TensorRole role, std::uint32_t layer, std::uint32_t heads_per_kv) {
      return mix.type_for({role, layer, 32, heads_per_kv, 4096});
    };
    CHECK(mix.file_type() == expected.file_type);
    CHECK(type(TensorRole::other, 0, 1) == expected.other);
    CHECK(type(TensorRole::attn_qk, 0, 1) == expected.attn_qk);
    CHECK(type(TensorRole::attn_v, 9, 1) == expected.attn_v);
    CHECK(type(TensorRole::attn_v, 9, 4) == expected.shared_v);
    CHECK(type(TensorRole::attn_output, 9, 1) == expected.attn_output);
    CHECK(type(TensorRole::ffn_down, 3, 1) == expected.first_down);
    CHECK(type(TensorRole::ffn_down, 4, 1) == expected.last_down);
    CHECK(type(TensorRole::embedding, 0, 1) == expected.embedding);
    CHECK(type(TensorRole::head, 0, 1) == expected.head);
  }
}

TEST_CASE("rows that do not divide into blocks fall back") {
  const auto type = [](const char* mix, std::uint32_t layer, std::uint64_t columns) {
    return QuantMix::by_name(mix).type_for({TensorRole::ffn_down, layer, 40, 16, columns});
  };
  CHECK(type("Q4_K_M", 0, 13696) == BlockType::q8_0);  // as in GLM-4-9B
  CHECK(type("Q4_K_M", 5, 13696) == BlockType::q5_0);
  CHECK(type("Q5_K_M", 5, 13696) == BlockType::q5_1);
  CHECK(type("pure-Q2_K", 5, 13696) == BlockType::q4_0);
  CHECK(type("pure-Q3_K", 5, 13696) == BlockType::q4_0);
  CHECK(type("pure-IQ4_XS", 5, 13696) == BlockType::iq4_nl);
  CHECK(type("Q4_K_M", 5, 48) == BlockType::f16);
  CHECK(type("F32", 5, 3) == BlockType::f32);
}

TEST_CASE("every format has random weights of the wanted size") {
  constexpr std::size_t count = 256 * 512;
  std::vector<float> values(count);
  for (const kernels::BlockTraits& traits : kernels::all_block_types()) {
    for (const float deviation : {1.0f, 0.02f, 0.0007f}) {
      INFO(traits.name << " " << deviation);
      Random random(3, 4);
      std::vector<std::byte> blocks(kernels::row_bytes(traits.type, count));
      fill_random_blocks(traits.type, blocks, deviation, random);
      kernels::dequantise(traits.type, blocks.data(), count, values.data());
      const Moments found = moments(values);
      // MXFP4's scales are powers of two.
      const double tolerance = traits.type == BlockType::mxfp4 ? 0.6 : 0.06;
      CHECK(found.deviation > (1 - tolerance) * deviation);
      CHECK(found.deviation < (1 + tolerance) * deviation);
      CHECK(std::abs(found.mean) < 0.02 * deviation);
      CHECK(std::set<float>(values.begin(), values.begin() + 1024).size() > 4);
    }
  }
}

TEST_CASE("no block of Q8_0 holds -128") {
  Random random(1, 1);
  std::vector<std::byte> blocks(34 * 4096);
  fill_random_blocks(BlockType::q8_0, blocks, 1, random);
  std::set<int> seen;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i % 34 >= 2) seen.insert(static_cast<std::int8_t>(blocks[i]));
  }
  CHECK(seen.size() == 255);
  CHECK(*seen.begin() == -127);
}

TEST_CASE("streams of random numbers differ and repeat") {
  Random a(1, 0), again(1, 0), other_stream(1, 1), other_seed(2, 0);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t number = a.next();
    CHECK(number == again.next());
    seen.insert({number, other_stream.next(), other_seed.next()});
  }
  CHECK(seen.size() == 3000);
  std::vector<float> normals(100000);
  for (float& x : normals) x = a.normal();
  const Moments found = moments(normals);
  CHECK(std::abs(found.mean) < 0.02);
  CHECK(std::abs(found.deviation - 1) < 0.02);
}

TEST_CASE("a tiny model in every mix opens, and its weights are sane") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "tiny.gguf";
  for (const std::string& mix : QuantMix::names()) {
    INFO(mix);
    const SyntheticModel synthetic("tiny", mix);
    synthetic.write(path, 1, no_progress);
    const gguf::Model model = gguf::Model::open(path);
    CHECK(model.data_bytes() == synthetic.data_bytes());
    CHECK(model.file_bytes() == synthetic.file_bytes());
    REQUIRE(model.tensors().size() == synthetic.tensors().size());
    const streaming::MappedFile file(path);
    for (std::size_t i = 0; i < model.tensors().size(); ++i) {
      const gguf::TensorInfo& tensor = model.tensors()[i];
      INFO(tensor.name);
      CHECK(tensor.name == synthetic.tensors()[i].name);
      CHECK(tensor.type == static_cast<std::uint32_t>(synthetic.type(i)));
      const Moments found = moments(dequantised(tensor, file.bytes()));
      if (synthetic.tensors()[i].fill == Fill::vector) {
        CHECK(std::abs(found.mean - 1) < 0.05);
      } else {
        const double wanted = synthetic.tensors()[i].deviation;
        CHECK(found.deviation > 0.4 * wanted);
        CHECK(found.deviation < 1.6 * wanted);
      }
    }
  }
}

TEST_CASE("every tiny shape can be written") {
  const test::TemporaryFolder folder;
  for (const Shape& shape : shapes()) {
    if (!is_tiny(shape)) continue;
    INFO(shape.name);
    const auto path = folder.path() / shape.name;
    SyntheticModel(shape, "Q4_K_M").write(path, 1, no_progress);
    const gguf::Model model = gguf::Model::open(path);
    const auto& metadata = model.metadata();
    const auto architecture = std::string(metadata.require_string("general.architecture"));
    const std::uint32_t width = metadata.require_u32(architecture + ".embedding_length");
    CHECK(model.require_tensor("token_embd.weight").dims[0] == width);
    const std::uint64_t vocabulary = metadata.require_strings("tokenizer.ggml.tokens").size();
    CHECK(vocabulary == model.require_tensor("token_embd.weight").dims[1]);
    if (metadata.require_string("tokenizer.ggml.model") == "llama") {
      CHECK(vocabulary == metadata.require_floats("tokenizer.ggml.scores").size());
    }
    CHECK(vocabulary == metadata.require_integers("tokenizer.ggml.token_type").size());
  }
}

TEST_CASE("the tiny model is tiny") {
  const std::uint64_t bytes = SyntheticModel("tiny", "Q4_K_M").file_bytes();
  CHECK(bytes > 1'000'000);
  CHECK(bytes < 3'000'000);
}

TEST_CASE("the same seed gives the same file, on every machine") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "tiny.gguf";
  const SyntheticModel model("tiny", "Q4_K_M");
  model.write(path, 1, no_progress);
  const std::string first = test::content(path);
  model.write(path, 1, no_progress);
  CHECK(test::content(path) == first);
  CHECK(files::checksum_of(first) == 0x7B5856CCF79C1854u);  // to be changed on purpose only
  model.write(path, 2, no_progress);
  const std::string other = test::content(path);
  CHECK(other.size() == first.size());
  CHECK(other != first);
}

TEST_CASE("the twin of a quantised model holds its values") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "model.gguf", twin_path = folder.path() / "twin.gguf";
  std::size_t number = 0;
  for (const char* quant : {"Q4_K_M", "Q8_0", "pure-MXFP4", "BF16"}) {
    for (const char* name : {"tiny-qwen35", "tiny-gemma4", "tiny-granitehybrid-moe"}) {
      if (number++ % test::sample_step != 0) continue;
      INFO(quant << " " << name);
      const Shape shape = odd_shape(shape_by_name(name), 5);
      SyntheticModel(shape, quant).write(path, 5, no_progress);
      SyntheticModel(shape, quant, SyntheticModel::Stored::as_twin).write(twin_path, 5, {});
      const gguf::Model model = gguf::Model::open(path), twin = gguf::Model::open(twin_path);
      const streaming::MappedFile file(path), twin_file(twin_path);
      REQUIRE(model.tensors().size() == twin.tensors().size());
      for (std::size_t i = 0; i < model.tensors().size(); ++i) {
        INFO(model.tensors()[i].name);
        CHECK(twin.tensors()[i].type == static_cast<std::uint32_t>(BlockType::f32));
        CHECK(dequantised(model.tensors()[i], file.bytes()) ==
              dequantised(twin.tensors()[i], twin_file.bytes()));
      }
    }
  }
}

TEST_CASE("a header alone is the header of the file, and takes little room") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "model.gguf", header_path = folder.path() / "header.gguf";
  const SyntheticModel model("small", "Q8_0");
  model.write(path, 1, no_progress);
  model.write_header(header_path);
  const std::string whole = test::content(path), hollow = test::content(header_path);
  const std::size_t header_bytes = model.file_bytes() - model.data_bytes();
  REQUIRE(whole.size() == hollow.size());
  CHECK(whole.substr(0, header_bytes) == hollow.substr(0, header_bytes));
  struct stat facts {};
  REQUIRE(::stat(header_path.c_str(), &facts) == 0);
  CHECK(static_cast<std::uint64_t>(facts.st_blocks) * 512 < header_bytes + 65536);
}

TEST_CASE("every shape of an architecture that runs here is accepted") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "model.gguf";
  std::vector<Shape> all = shapes();
  for (const Shape& shape : shapes()) {
    constexpr std::uint64_t seeds = test::is_sanitized ? 1 : 10;
    for (std::uint64_t seed = 1; is_tiny(shape) && seed <= seeds; ++seed) {
      all.push_back(odd_shape(shape, seed));
      all.back().name += fmt::format(", odd, seed {}", seed);
    }
  }
  std::size_t accepted = 0;
  for (const Shape& shape : all) {
    INFO(shape.name);
    // Vocabularies of full size take a sanitizer seconds.
    if (test::is_sanitized && !is_tiny(shape)) continue;
    SyntheticModel(shape, "Q4_K_M").write_header(path);
    const auto json = nlohmann::json::parse(cli::inspection_json(gguf::Model::open(path)));
    if (json["obstacle"].is_null()) ++accepted;
    if (json["obstacle"].is_string()) {
      const std::string reason = json["obstacle"];
      INFO(reason);
      CHECK(reason.starts_with("architecture '" + shape.architecture + "' is not supported"));
    }
  }
  CHECK(accepted >= 10);  // of llama alone
}

TEST_CASE("odd sizes depend on the seed alone, and come in all kinds") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "model.gguf";
  const auto written = [&](const char* name, std::uint64_t seed) {
    SyntheticModel(odd_shape(shape_by_name(name), seed), "Q4_K_M").write(path, seed, {});
    return files::checksum_of(test::content(path));
  };
  CHECK(written("tiny-lfm2", 3) == written("tiny-lfm2", 3));
  CHECK(written("tiny-lfm2", 3) != written("tiny-lfm2", 4));
  CHECK_THROWS_AS(odd_shape(shape_by_name("yi-9b"), 1), UsageError);

  std::set<std::uint32_t> kv_heads, widths;
  bool has_unusual_heads = false;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const Shape shape = odd_shape(shape_by_name("tiny-qwen3"), seed);
    kv_heads.insert(shape.heads.keys);
    widths.insert(shape.embedding);
    CHECK(shape.vocabulary % 2 == 1);
    has_unusual_heads |= shape.heads.queries * shape.heads.size != shape.embedding;
    const std::string kinds = odd_shape(shape_by_name("tiny-nemotron_h"), seed).kinds;
    for (const char kind : {'M', '*', '-'}) CHECK(kinds.find(kind) != std::string::npos);
  }
  CHECK(kv_heads.count(1) == 1);
  CHECK(kv_heads.size() > 1);
  CHECK(widths.size() > 2);
  CHECK(has_unusual_heads);
}

TEST_CASE("a full disk is an I/O error that leaves nothing") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "tiny.gguf";
  const FileSizeLimit limit(1'000'000);
  try {
    SyntheticModel("tiny", "Q4_K_M").write(path, 1, no_progress);
    FAIL("written");
  } catch (const std::system_error& error) {
    CHECK(std::string(error.what()).find(path.string()) != std::string::npos);
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("giving up leaves nothing, and progress ends at the total") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "tiny.gguf";
  const SyntheticModel model("tiny", "Q8_0");
  CHECK_THROWS_AS(model.write(path, 1, [](auto, auto) { throw 42; }), int);
  CHECK(std::filesystem::is_empty(folder.path()));
  std::uint64_t last = 0, sum = 0;
  model.write(path, 1, [&](std::uint64_t done, std::uint64_t total) {
    CHECK(done > last);
    last = done;
    sum = total;
  });
  CHECK(last <= sum);
  CHECK(last > sum - sum / 100);
}

TEST_CASE("inspect says of a part that predicts tokens whether runs can use it") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "model.gguf";
  const auto notes = [&](const char* name) {
    Shape shape = shape_by_name(name);
    shape.predictors = 1;
    SyntheticModel(shape, "Q8_0").write_header(path);
    return nlohmann::json::parse(cli::inspection_json(gguf::Model::open(path)))["notes"].dump();
  };
  for (const char* name :
       {"tiny-qwen35", "tiny-qwen35moe", "tiny-qwen3next", "tiny-glm4moe", "tiny-bailingmoe3"}) {
    INFO(name << ": " << notes(name));
    CHECK(notes(name).find("token-predicting part is used for guesses") != std::string::npos);
    CHECK(notes(name).find("not used") == std::string::npos);
  }
  INFO(notes("tiny-deepseek2"));
  CHECK(notes("tiny-deepseek2").find("token-predicting part is not used") != std::string::npos);
}

TEST_CASE("unknown names are usage errors that say where to find the known") {
  const std::string shape = usage_error([] { SyntheticModel("llama-9000b", "Q8_0"); });
  CHECK(shape.find("llama-9000b") != std::string::npos);
  CHECK(shape.find("synth --list") != std::string::npos);
  const std::string quant = usage_error([] { SyntheticModel("tiny", "Q9"); });
  CHECK(quant.find("Q9") != std::string::npos);
  CHECK(quant.find("pure-X") != std::string::npos);
  for (const std::string& known : QuantMix::names()) {
    if (!known.starts_with("pure-")) CHECK(quant.find(known) != std::string::npos);
  }
  CHECK_THROWS_AS(QuantMix::by_name(""), UsageError);
}

TEST_CASE("the toy vocabulary can spell everything and be read") {
  const Vocabulary vocabulary = toy_vocabulary(20000);
  REQUIRE(vocabulary.tokens.size() == 20000);
  REQUIRE(vocabulary.scores.size() == 20000);
  REQUIRE(vocabulary.types.size() == 20000);
  std::set<std::string> seen;
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const std::string& token = vocabulary.tokens[i];
    CHECK(seen.insert(token).second);
    if (i < unprintable_tokens) continue;
    REQUIRE(vocabulary.types[i] == 1);
    const std::string letters = token.starts_with("\xE2\x96\x81") ? token.substr(3) : token;
    for (const char c : letters) REQUIRE((c > ' ' && c <= '~'));
    if (letters.size() <= 1) continue;
    // Merging two tokens arrives at it.
    bool is_reachable = false;
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      is_reachable |= seen.count(token.substr(0, cut)) + seen.count(token.substr(cut)) == 2;
    }
    REQUIRE(is_reachable);
  }
  CHECK(vocabulary.tokens[begin_token] == "<s>");
  CHECK(vocabulary.tokens[3 + 10] == "<0x0A>");
  CHECK(toy_vocabulary(300).tokens.size() == 300);
}

TEST_CASE("inspection tells what a model is") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "tiny.gguf";
  SyntheticModel("tiny", "Q4_K_M").write(path, 1, no_progress);
  const gguf::Model model = gguf::Model::open(path);

  const auto json = nlohmann::json::parse(cli::inspection_json(model));
  CHECK(json["architecture"] == "llama");
  CHECK(json["quant"] == "Q4_K_M");
  CHECK(json["runs_here"] == true);
  CHECK(json["obstacle"].is_null());
  CHECK(json["metadata"]["llama.block_count"] == 4);
  CHECK(json["metadata"]["llama.attention.layer_norm_rms_epsilon"] == 1e-5);
  CHECK(json["metadata"]["tokenizer.ggml.tokens"]["count"] == 2048);
  CHECK(json["metadata"]["tokenizer.ggml.tokens"]["element_type"] == "string");
  CHECK(json["tokenizer"]["tokens"] == 2048);
  CHECK(json["data_bytes"] == model.data_bytes());
  CHECK(json["parameters"] == model.elements());
  CHECK(json["tensors"].size() == model.tensors().size());
  CHECK(json["tensors"][0]["name"] == "token_embd.weight");
  CHECK(json["tensors"][0]["shape"] == std::vector<int>{256, 2048});
  std::uint64_t tensors = 0;
  for (const auto& type : json["types"]) tensors += type["tensors"].get<std::uint64_t>();
  CHECK(tensors == model.tensors().size());

  const std::string text = cli::inspection_text(model, false);
  for (const char* part :
       {"architecture", "llama", "random weights", "the shape of tiny", "Q6_K", "Q4_K_M, ",
        "llama.block_count", "2048 tokens", "array of 2048 string"}) {
    INFO(part);
    CHECK(text.find(part) != std::string::npos);
  }
  CHECK(text.find("blk.3.ffn_down.weight") == std::string::npos);
  CHECK(text.size() < 10'000);
  const std::string with_tensors = cli::inspection_text(model, true);
  CHECK(with_tensors.find("blk.3.ffn_down.weight") != std::string::npos);
}

TEST_CASE("inspection says whether a model runs here, and what is missing") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "x.gguf";
  const auto text = [&] { return cli::inspection_text(gguf::Model::open(path), false); };
  SyntheticModel("tiny", "Q4_K_M").write_header(path);
  CHECK(text().find("runs here     yes\n") != std::string::npos);

  gguf::Writer writer;
  writer.add("general.architecture", "marsupial\x1b");
  writer.write(path, [](std::size_t, const gguf::Writer::Sink&) {});
  INFO(text());
  CHECK(text().find("runs here     no: architecture 'marsupial\\x1b' is not supported") !=
        std::string::npos);
}

TEST_CASE("inspection names types without arithmetic, and stays harmless") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "x.gguf";
  gguf::Writer writer;
  writer.add("general.architecture", std::uint32_t{5});
  writer.add("general.name", "\xFF\x1b[31m name");
  const std::vector<std::string> strings = {"\x1b]0;", "\xC3"};
  writer.add_array("tokenizer.ggml.tokens", std::span<const std::string>(strings));
  const std::vector<std::uint64_t> dims = {256, 2};
  writer.add_tensor("w\n.weight", dims, 15);
  writer.write(path, [](std::size_t, const gguf::Writer::Sink& sink) {
    sink(std::vector<std::byte>(2 * 292));
  });
  const gguf::Model model = gguf::Model::open(path);
  const std::string text = cli::inspection_text(model, true);
  CHECK(text.find("no: there is no arithmetic for weights of type Q8_K") != std::string::npos);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find("w\\n.weight") != std::string::npos);
  const auto json = nlohmann::json::parse(cli::inspection_json(model));
  CHECK(json["runs_here"] == false);
  CHECK(json["uncomputable_types"][0] == "Q8_K");
}

TEST_CASE("a header names the mix of its file") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "model.gguf";
  for (const std::string& name : QuantMix::names()) {
    if (name.starts_with("pure-")) continue;
    INFO(name);
    // MXFP4 has the same file_type as MXFP4_MOE, which is of experts.
    SyntheticModel(name == "MXFP4_MOE" ? "small-moe" : "small", name).write_header(path);
    CHECK(gguf::quant_name(gguf::Model::open(path)) == name);
  }
}

}  // namespace sluice::synth
