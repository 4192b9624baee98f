// `sluice imatrix` against the same sums computed in double arithmetic from the equations, and what
// they do to a quantisation; and the refusal of what cannot be measured.
#include "core/quant/imatrix.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/cli/token_reader.h"
#include "core/engine/engine.h"
#include "core/gguf/gguf.h"
#include "core/gguf/gguf_writer.h"
#include "tests/llama_oracle.h"
#include "tests/program.h"
#include "tests/tensor_values.h"
#include "tests/tiny_llama.h"

namespace sluice::test {
namespace {

constexpr std::size_t chunk = 16;
const std::string text = "A river runs through it, and under it, and over the stones of its bed.";

std::vector<tokenizer::Token> tokens_of(const std::string& model) {
  engine::EngineOptions options;
  options.context = chunk;
  return engine::Engine::open(model, options)->tokenizer().encode(text, {});
}

// The error of a matrix, each column weighted.
double weighted_error(const std::vector<float>& a, const std::vector<float>& b,
                      const std::vector<float>& weights) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double rest = static_cast<double>(a[i]) - b[i];
    sum += static_cast<double>(weights[i % weights.size()]) * rest * rest;
  }
  return sum;
}

}  // namespace

TEST_CASE("an importance matrix has the sums of the equations, and makes what matters exact") {
  const Folder folder;
  const TinyLlama model(
      {.name = "wide", .seed = 5, .embedding = 256, .heads = 4, .feed_forward = 256});
  const std::string path = folder.file("model.gguf"), matrix = folder.file("imatrix.gguf");
  model.write(path);
  write(folder.file("text"), text);
  const std::string command = "sluice imatrix " + path + " -f " + folder.file("text") + " -o " +
                              matrix + " --ctx " + std::to_string(chunk) + " -q";
  const Result result = shell(command + " --threads 1");
  INFO(result.errors);
  REQUIRE(result.status == 0);

  const std::vector<tokenizer::Token> tokens = tokens_of(path);
  const std::size_t chunks = tokens.size() / chunk;
  REQUIRE(chunks > 1);
  std::map<std::string, Numbers> squares;
  std::vector<std::string> names;
  for (const TinyTensor& tensor : model.tensors) {
    if (tensor.dims.size() == 2 && tensor.name.starts_with("blk.")) names.push_back(tensor.name);
  }
  for (std::size_t i = 0; i < chunks; ++i) {
    LlamaOracle oracle(model);
    for (std::size_t k = 0; k < chunk; ++k) {
      oracle.next(k == 0 ? static_cast<std::int32_t>(synth::begin_token) : tokens[i * chunk + k]);
    }
    for (const std::string& name : names) {
      const Numbers& more = oracle.squares(name);
      squares[name].resize(more.size());
      for (std::size_t c = 0; c < more.size(); ++c) squares[name][c] += more[c];
    }
  }

  const quant::Imatrix read = quant::Imatrix::read(matrix);
  CHECK(read.chunk_count() == chunks);
  CHECK(read.chunk_size() == chunk);
  CHECK(read.dataset() == folder.file("text"));
  CHECK(read.entries().size() == names.size());
  for (const std::string& name : names) {
    INFO(name);
    const quant::ImatrixEntry& entry = read.entries().at(name);
    CHECK(entry.counts == std::vector<float>{static_cast<float>(chunks * chunk)});
    REQUIRE(entry.sums.size() == squares[name].size());
    double total = 0;
    for (const double one : squares[name]) total += one;
    for (std::size_t c = 0; c < entry.sums.size(); ++c) {
      // Cached keys and values are int8.
      const double mean = total / static_cast<double>(entry.sums.size());
      CHECK(std::abs(entry.sums[c] - squares[name][c]) <= 0.02 * squares[name][c] + 0.02 * mean);
    }
  }

  const std::string bytes = content(matrix);
  REQUIRE(shell(command + " --threads 2 --force").status == 0);
  CHECK(content(matrix) == bytes);

  const std::string plain = folder.file("plain.gguf"), weighted = folder.file("weighted.gguf");
  REQUIRE(shell("sluice quantize --quiet " + path + " " + plain + " --quant Q4_K_S").status == 0);
  REQUIRE(shell("sluice quantize --quiet " + path + " " + weighted + " --quant Q4_K_S --imatrix " +
                matrix)
              .status == 0);
  const auto values_in = [](const std::string& file, const std::string& name) {
    return values_of(gguf::Model::open(file), name);
  };
  for (const std::string& name : names) {
    INFO(name);
    const std::vector<float> values = values_in(path, name);
    const std::vector<float> weights = read.entries().at(name).sums;
    CHECK(weighted_error(values, values_in(weighted, name), weights) <
          weighted_error(values, values_in(plain, name), weights));
  }
}

TEST_CASE("a text that is shorter than a chunk is told") {
  const Folder folder;
  const std::string model = make_model(folder), in = folder.file("in");
  write(in, text);
  const std::string command =
      "sluice imatrix " + model + " -f " + in + " --force -o " + folder.file("out");
  CHECK(shell(command).errors.find("less than one chunk of 512") != std::string::npos);
  CHECK(shell(command + " --ctx 16").errors.find("less than") == std::string::npos);
}

TEST_CASE("an importance matrix in several files is read as one in a single file") {
  const Folder folder;
  const std::vector<float> sums = {1, 2, 3, 4}, counts = {5};
  const auto write_part = [&](std::uint16_t number, const std::string& tensor,
                              std::uint32_t type = 0) {
    gguf::Writer writer;
    if (number == 0) writer.add("general.type", "imatrix");
    writer.add("split.no", number);
    writer.add("split.count", std::uint16_t{2});
    writer.add("split.tensors.count", std::int32_t{2});
    const std::vector<float>& values = number == 0 ? sums : counts;
    writer.add_tensor(tensor, std::vector<std::uint64_t>{values.size()}, type);
    const std::string name = "m-0000" + std::to_string(number + 1) + "-of-00002.gguf";
    writer.write(folder.file(name), [&](std::size_t index, const gguf::Writer::Sink& sink) {
      sink(std::as_bytes(std::span(values)).first(writer.tensor_bytes(index)));
    });
    return folder.file(name);
  };
  const std::string first = write_part(0, "blk.0.x.in_sum2");
  const std::string second = write_part(1, "blk.0.x.counts");
  const quant::Imatrix read = quant::Imatrix::read(first);
  CHECK(read.entries().at("blk.0.x").sums == sums);
  CHECK(read.entries().at("blk.0.x").counts == counts);
  write_part(1, "blk.0.x.counts", 1);
  try {
    quant::Imatrix::read(first);
    FAIL("read");
  } catch (const ModelError& error) {
    CHECK(error.what() == second + ": tensor 'blk.0.x.counts' is F16, expected F32");
  }
}

TEST_CASE("experts are counted each for itself, by the tokens that they see") {
  const Folder folder;
  const std::string model = folder.file("moe.gguf"), matrix = folder.file("imatrix.gguf");
  REQUIRE(shell("sluice synth tiny-qwen3moe " + model + " --quant F32").status == 0);
  write(folder.file("text"), text);
  const Result result =
      shell("sluice imatrix " + model + " -f " + folder.file("text") + " -o " + matrix +
            " --ctx 8 --chunks 2 -q --report " + folder.file("report.json"));
  INFO(result.errors);
  REQUIRE(result.status == 0);
  const quant::Imatrix read = quant::Imatrix::read(matrix);
  const gguf::Model file = gguf::Model::open(model);
  const auto used = file.metadata().require_u32("qwen3moe.expert_used_count");
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    if (tensor.name.find("_exps") == std::string_view::npos) continue;
    const std::vector<std::uint64_t> dims(tensor.dims.begin(), tensor.dims.begin() + 3);
    INFO(tensor.name);
    CHECK(read.importance(std::string(tensor.name), dims).size() == dims[0] * dims[2]);
    float visits = 0;
    for (const float count : read.entries().at(std::string(tensor.name)).counts) visits += count;
    CHECK(visits == static_cast<float>(16 * used));
  }
  // The plan counts the sums, which are many where there are many experts.
  std::uint64_t sums_bytes = 0, planned = 0;
  for (const auto& [name, entry] : read.entries()) {
    sums_bytes += entry.sums.size() * sizeof(double);
  }
  const nlohmann::json report = nlohmann::json::parse(content(folder.file("report.json")));
  for (const nlohmann::json& line : report["plan"]) {
    if (line["name"] == "requests") planned = line["bytes"].get<std::uint64_t>();
  }
  CHECK(planned >= cli::TokenReader::bytes_max + sums_bytes);

  // Formats of less than three bits cannot do without.
  const std::string small = folder.file("small.gguf");
  const std::string quantize = "sluice quantize -q " + model + " " + small + " --quant IQ2_M";
  const Result refused = shell(quantize);
  CHECK(refused.status == 2);
  CHECK(refused.errors.find("IQ2_S, which needs an importance matrix") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(small));
  CHECK(shell(quantize + " --imatrix " + matrix).status == 0);
  CHECK(gguf::Model::open(small).require_tensor("blk.1.ffn_up_exps.weight").type ==
        static_cast<std::uint32_t>(kernels::BlockType::iq2_s));
}

TEST_CASE("what no text reaches keeps more bits, and all else has its importance") {
  const Folder folder;
  write(folder.file("text"), text);
  for (const auto& [shape, unreached] : {std::pair("tiny-gemma4", "'blk.5.attn_k.weight' and"),
                                         std::pair("tiny-deepseek2-lite", "")}) {
    INFO(shape);
    const std::string model = folder.file("in.gguf"), matrix = folder.file("imatrix.gguf"),
                      small = folder.file("small.gguf");
    REQUIRE(
        shell("sluice synth " + std::string(shape) + " " + model + " --quant F32 --force").status ==
        0);
    REQUIRE(shell("sluice imatrix -q --force " + model + " -f " + folder.file("text") + " -o " +
                  matrix + " --ctx 8 --chunks 2")
                .status == 0);
    const Result result = shell("sluice quantize --force " + model + " " + small +
                                " --quant IQ1_S --imatrix " + matrix);
    INFO(result.errors);
    REQUIRE(result.status == 0);
    const bool is_replaced = result.errors.find("Q2_K, which needs none") != std::string::npos;
    CHECK(is_replaced == !std::string(unreached).empty());
    CHECK(result.errors.find(unreached) != std::string::npos);
    CHECK(result.errors.find("attn_kv_b") == std::string::npos);
    CHECK(shell("sluice run -q -n 1 --raw -p x " + small).status == 0);
  }
}

TEST_CASE("sums are refused where they are not finite") {
  quant::ImatrixSums sums;
  const std::vector<float> x = {1, INFINITY};
  sums.add({"a.weight", 0, 1, x.data(), 2, 2, 1});
  CHECK_THROWS_AS(sums.finish("", 1, 1), ModelError);
}

TEST_CASE("an importance matrix is never written over what it is made of") {
  const Folder folder;
  const std::string model = make_model(folder), input = folder.file("text");
  write(input, text);
  const std::string before = content(model);
  const std::string command = "sluice imatrix " + model + " -q -f " + input;
  check_fails(command + " -o " + model, 2);
  check_fails(command + " -o " + input, 2);
  check_fails(command + " -o " + folder.file("none/imatrix.gguf"), 5);
  check_fails("sluice imatrix " + model + " -q -f " + folder.file("none") + " -o " +
                  folder.file("imatrix.gguf"),
              5);
  write(folder.file("empty"), "");
  check_fails("sluice imatrix " + model + " -q -f " + folder.file("empty") + " -o " +
                  folder.file("imatrix.gguf"),
              2, "at least 2");
  check_fails("sluice imatrix " + input + " -q -f " + input + " -o " + folder.file("imatrix.gguf"),
              3);
  CHECK(content(model) == before);
  CHECK(content(input) == text);
  CHECK(folder.file_count() == 3);  // nothing is left behind
}

TEST_CASE("quantize and import write over nothing that they read") {
  const Folder folder;
  const std::string model = make_model(folder), matrix = folder.file("imatrix.gguf");
  write(folder.file("text"), text);
  REQUIRE(
      shell("sluice imatrix " + model + " -q -f " + folder.file("text") + " -o " + matrix).status ==
      0);
  const std::string before = content(model), sums = content(matrix);
  REQUIRE(shell("ln -s tiny.gguf " + folder.file("link")).status == 0);
  const std::string quantize = "sluice quantize --quiet --quant Q8_0 ";
  check_fails(quantize + model + " " + model, 2);
  check_fails(quantize + model + " " + folder.file("link"), 2);
  check_fails(quantize + model + " " + matrix + " --imatrix " + matrix, 2);
  check_fails(quantize + folder.file("text") + " " + folder.file("out"), 3);
  check_fails(quantize + folder.file("none") + " " + folder.file("out"), 5);
  CHECK(content(model) == before);
  CHECK(content(matrix) == sums);
  for (const char* name : {"config.json", "model.safetensors"}) {
    write(folder.file(name), "{}");
    check_fails("sluice import " + folder.file("") + " " + folder.file(name), 2);
    CHECK(content(folder.file(name)) == "{}");
  }
  check_fails("sluice import " + folder.file("") + " " + folder.file("out"), 3);
  CHECK_FALSE(fs::exists(folder.file("out")));
}

}  // namespace sluice::test
