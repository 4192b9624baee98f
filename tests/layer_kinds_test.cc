// What depends on the kinds of a model's layers: windows of the model and of the user, recurrent
// states, what a plan says of them, tables that are read row by row, and properties of layers that
// follow from their equations.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <string>
#include <vector>

#include "core/engine/engine.h"
#include "core/error.h"
#include "core/gguf/gguf.h"
#include "core/synth/shapes.h"
#include "core/synth/synthetic_model.h"
#include "tests/catch.h"
#include "tests/model_content.h"
#include "tests/sanitized.h"
#include "tests/small_shapes.h"
#include "tests/temporary_folder.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
using engine::Engine;
using engine::EngineOptions;
using Tokens = std::vector<tokenizer::Token>;

constexpr int length = 41;

// A small model in a file, possibly changed.
class File {
 public:
  explicit File(const synth::Shape& shape, const std::function<void(Content&)>& change = {}) {
    synth::SyntheticModel(shape, "F32").write(path(), 3, {});
    if (!change) return;
    Content content(path());
    change(content);
    content.write(path());
  }
  explicit File(const std::string& shape) : File(small_shape(shape)) {}

  fs::path path() const { return folder_.path() / "model.gguf"; }

  std::vector<float> logits(const EngineOptions& options) const {
    return logits_of(*Engine::open(path(), options), length);
  }

 private:
  TemporaryFolder folder_;
};

synth::Shape with_window(const std::string& name, std::uint32_t positions) {
  synth::Shape shape = small_shape(name);
  shape.window.positions = positions;
  return shape;
}

EngineOptions user_window(std::uint32_t positions, std::uint32_t sinks) {
  EngineOptions options = options_for_logits();
  options.context = 0;
  options.window = positions;
  options.sinks = sinks;
  return options;
}

Tokens some_tokens(int first, int count) {
  Tokens tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(4 + (first + i) * 37 % 290);
  return tokens;
}

std::vector<float> last_logits(engine::Session& session, const Tokens& tokens) {
  const std::span<const float> logits = session.evaluate(tokens);
  return {logits.begin(), logits.end()};
}

}  // namespace

TEST_CASE("of a window of the model and one of the user the narrower counts") {
  for (const char* name :
       {"tiny-gemma2", "tiny-gemma3", "tiny-gemma4", "tiny-gpt-oss", "tiny-olmo3"}) {
    INFO(name);
    const File eight(with_window(name, 8)), thirty(with_window(name, 30));
    const auto agree = [&](const EngineOptions& options) {
      return are_same_bits(eight.logits(options), thirty.logits(options));
    };
    CHECK(agree(user_window(5, 0)));
    CHECK(agree(user_window(6, 2)));
    CHECK_FALSE(agree(user_window(20, 0)));
    CHECK_FALSE(agree(options_for_logits()));
    CHECK(are_same_bits(eight.logits(user_window(64, 4)), eight.logits(options_for_logits())));
    CHECK_FALSE(
        are_same_bits(eight.logits(user_window(20, 0)), eight.logits(options_for_logits())));
  }
}

TEST_CASE("a plan has a line for each kind of layer") {
  struct Case {
    const char* shape;
    std::uint32_t window;  // of the user
    std::vector<std::string> lines;
  };
  const std::vector<Case> cases = {
      {"tiny-qwen3", 0, {"keys and values"}},
      {"tiny-gemma3", 0, {"keys and values, last 8", "keys and values, all tokens"}},
      {"tiny-gemma3", 20, {"keys and values, last 8", "keys and values, last 20"}},
      {"tiny-gemma3", 5, {"keys and values"}},
      {"tiny-qwen35", 0, {"keys and values", "recurrent states"}},
      {"tiny-qwen35", 20, {"keys and values", "recurrent states"}},
      {"tiny-lfm2", 0, {"keys and values", "recurrent states"}},
  };
  for (const Case& each : cases) {
    INFO(each.shape << ", window " << each.window);
    const File file(each.shape);
    EngineOptions options = each.window == 0 ? options_for_logits() : user_window(each.window, 0);
    const auto lines_of = [&] {
      std::vector<plan::Line> lines = engine::plan_run(file.path(), options).plan.lines;
      std::erase_if(lines, [](const plan::Line& line) {
        return !line.name.starts_with("keys") && !line.name.starts_with("recurrent");
      });
      return lines;
    };
    const std::vector<plan::Line> alone = lines_of();
    options.parallel = 3;
    const std::vector<plan::Line> three = lines_of();
    REQUIRE(alone.size() == each.lines.size());
    REQUIRE(three.size() == each.lines.size());
    for (std::size_t i = 0; i < alone.size(); ++i) {
      CHECK(alone[i].name == each.lines[i]);
      CHECK(alone[i].bytes > 0);
      CHECK(three[i].bytes > alone[i].bytes);
    }
  }
}

TEST_CASE("recurrent states are forked, and go back to the start or say that they cannot") {
  for (const char* name : {"tiny-qwen35", "tiny-lfm2", "tiny-granitehybrid", "tiny-nemotron_h",
                           "tiny-falcon-h1", "tiny-jamba", "tiny-rwkv7"}) {
    INFO(name);
    const File file(name);
    EngineOptions options = options_for_logits();
    auto whole = Engine::open(file.path(), options);
    const Tokens start = some_tokens(0, 13), one = some_tokens(20, 9), other = some_tokens(40, 9);
    engine::Session& session = whole->session();
    session.evaluate(start);
    const std::vector<float> expected = last_logits(session, one);
    CHECK_THROWS_AS(session.truncate(13), UsageError);
    CHECK(session.position() == 22);
    session.truncate(0);
    session.evaluate(start);
    CHECK(are_same_bits(last_logits(session, one), expected));

    whole.reset();  // it keeps this thread to one processor, and the next needs two
    options.parallel = 2;
    const auto engine = Engine::open(file.path(), options);
    const auto step = [&](engine::Sequence& sequence, const Tokens& tokens) {
      const auto logits = engine->step(std::vector{engine::SequenceWork{&sequence, tokens, true}});
      return std::vector<float>(logits[0].begin(), logits[0].end());
    };
    const auto source = engine->new_sequence(30);
    REQUIRE(source);
    step(*source, Tokens(start.begin(), start.begin() + 8));
    step(*source, Tokens(start.begin() + 8, start.end()));
    CHECK(source->reachable(12) == 0);
    CHECK(source->reachable(13) == 13);
    const auto copy = engine->fork(*source, 13, 30);
    REQUIRE(copy);
    step(*source, Tokens(other.begin(), other.begin() + 8));
    step(*copy, Tokens(one.begin(), one.begin() + 8));
    CHECK(are_same_bits(step(*copy, {one.back()}), expected));
  }
}

TEST_CASE("tables of which a token needs one row are not kept in memory") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "model.gguf";
  for (const auto& [shape, table] : {std::pair{"gemma4-e2b", "per_layer_token_embd.weight"},
                                     {"qwen38-flash-next", "per_layer_token_embd.weight"},
                                     {"llama-8b", "token_embd.weight"}}) {
    INFO(shape);
    synth::SyntheticModel(shape, "Q4_K_M").write_header(path);
    const gguf::Model model = gguf::Model::open(path, {.header_only = true});
    EngineOptions options = options_for_logits();
    options.budget_bytes = std::uint64_t{64} << 30;
    const engine::PlannedRun run = engine::plan_run(path, options);
    const std::uint64_t others = model.data_bytes() - model.require_tensor(table).bytes;
    constexpr std::uint64_t rest = 200 << 20;
    CHECK(run.work.hot_bytes <= others);
    if (!is_sanitized) CHECK(run.plan.total_bytes() < others + rest);
    CHECK(model.data_bytes() > others + rest);
  }
}

TEST_CASE("values of the residual stream may be larger than half floats") {
  synth::Shape shape = small_shape("tiny-qwen2");
  shape.norm_epsilon = 0;
  const File normal(shape);
  const File large(shape, [](Content& content) {
    for (const Stored& tensor : std::vector<Stored>(content.tensors)) {
      const bool adds = tensor.name == "token_embd.weight" ||
                        tensor.name.ends_with("attn_output.weight") ||
                        tensor.name.ends_with("ffn_down.weight");
      if (!adds) continue;
      for (float& value : content.values(tensor.name)) value *= 1 << 20;
    }
  });
  CHECK(are_same_bits(normal.logits(options_for_logits()), large.logits(options_for_logits())));
}

// Layers that add nothing tell the model from the one of 27 billion, which is known by the number
// of its layers. Heads of 64 where embedding / heads is 16: the other scale is half as large.
TEST_CASE("the Gemmas of 27 billion have another scale of attention") {
  struct Case {
    const char* shape;
    std::uint32_t layers;
    const char* doubled;  // what doubles the queries
  };
  for (const Case& each :
       {Case{"tiny-gemma2", 46, "attn_q.weight"}, Case{"tiny-gemma3", 62, "attn_q_norm.weight"}}) {
    INFO(each.shape);
    synth::Shape shape = small_shape(each.shape);
    shape.layers = each.layers;
    shape.heads.size = 64;
    const File large(shape);
    const auto add_layer = [&](Content& content) {
      const std::string last = fmt::format("blk.{}.", each.layers - 1);
      const std::string added = fmt::format("blk.{}.", each.layers);
      for (const Stored& of_last : std::vector<Stored>(content.tensors)) {
        if (!of_last.name.starts_with(last)) continue;
        Stored tensor = of_last;
        tensor.name = replaced(tensor.name, last, added);
        content.tensors.push_back(tensor);
      }
      for (const char* norm : {"post_attention_norm.weight", "post_ffw_norm.weight"}) {
        std::ranges::fill(content.values(added + norm), 0.f);
      }
      content.set(shape.architecture + ".block_count", each.layers + 1);
    };
    const auto double_queries = [&](Content& content) {
      for (std::uint32_t i = 0; i < each.layers; ++i) {
        for (float& value : content.values(fmt::format("blk.{}.{}", i, each.doubled))) value *= 2;
      }
    };
    const File other(shape, add_layer);
    const File corrected(shape, [&](Content& content) {
      double_queries(content);
      add_layer(content);
    });
    const std::vector<float> expected = large.logits(options_for_logits());
    CHECK(are_same_bits(corrected.logits(options_for_logits()), expected));
    CHECK_FALSE(are_same_bits(other.logits(options_for_logits()), expected));
  }
}

// With a single layer, keys and values depend on their own tokens alone; so where a window has slid
// on, the text might as well consist of what the last token sees. That holds with and without
// rotation, and for a temperature that grows with the position.
TEST_CASE("a window that has slid on is a text of what it shows") {
  for (const char* name : {"tiny-llama", "tiny-qwen3", "tiny-granite", "tiny-mistral3"}) {
    INFO(name);
    synth::Shape shape = small_shape(name);
    shape.layers = 1;
    const File file(shape, [&](Content& content) {
      content.set(shape.architecture + ".rope.scaling.finetuned", false);  // granite: no rotation
    });
    EngineOptions options = user_window(16, 3);
    options.kv = kvcache::ElementType::f32;
    const auto engine = Engine::open(file.path(), options);
    const Tokens text = some_tokens(0, 40);
    const std::vector<float> slid = last_logits(engine->session(), text);
    Tokens shown(text.begin(), text.begin() + 3);
    shown.insert(shown.end(), text.end() - 13, text.end());
    engine->session().clear();
    const std::vector<float> alone = last_logits(engine->session(), shown);
    float largest = 0;
    for (std::size_t i = 0; i < alone.size(); ++i) {
      largest = std::max(largest, std::abs(slid[i] - alone[i]));
    }
    CHECK(largest < 1e-4f);
    engine->session().clear();
    CHECK_FALSE(are_same_bits(
        last_logits(engine->session(), Tokens(shown.begin() + 1, shown.end())), alone));
  }
}

// Heads of which the first half rotates: rows in the order of the other pairing give the same.
TEST_CASE("GLM-4 rotates halves of heads where the file has sections, and neighbours elsewhere") {
  const synth::Shape shape = small_shape("tiny-glm4");
  const std::size_t head = shape.heads.size, rotated = shape.rope.size, half = rotated / 2;
  const File neighbours(shape);
  const File halves(shape, [&](Content& content) {
    content.set_all("glm4.rope.dimension_sections", std::vector<std::int32_t>{2, 1, 1, 0});
    for (const Stored& tensor : std::vector<Stored>(content.tensors)) {
      const bool is_rotated = tensor.name.find(".attn_q.") != std::string::npos ||
                              tensor.name.find(".attn_k.") != std::string::npos;
      if (!is_rotated) continue;
      const std::span<float> values = content.values(tensor.name);
      const std::vector<float> before(values.begin(), values.end());
      const std::size_t columns = tensor.dims.size() == 2 ? tensor.dims[0] : 1;
      for (std::size_t row = 0; row < before.size() / columns; ++row) {
        const std::size_t in_head = row % head;
        if (in_head >= rotated) continue;
        const std::size_t from = row - in_head + 2 * (in_head % half) + in_head / half;
        std::copy_n(before.data() + from * columns, columns, values.data() + row * columns);
      }
    }
  });
  EngineOptions options = options_for_logits();
  options.kv = kvcache::ElementType::f32;
  const std::vector<float> a = neighbours.logits(options), b = halves.logits(options);
  float largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  CHECK(largest < 1e-4f);
}

TEST_CASE("an architecture that is not known is compared with those that are") {
  const auto rename = [](Content& content) {
    content.set("general.architecture", std::string("newcomer"));
    content.rename_keys("qwen3moe.", "newcomer.");
  };
  const auto problem_of = [](const File& file) {
    try {
      Engine::open(file.path(), options_for_logits());
    } catch (const ModelError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const synth::Shape shape = small_shape("tiny-qwen3moe");
  const File renamed(shape, rename);
  const std::string same = problem_of(renamed);
  INFO(same);
  CHECK(same.find("'newcomer' is not supported, but the file has all keys") != std::string::npos);
  const File odd(shape, [&](Content& content) {
    rename(content);
    content.tensors.push_back(content.tensors.back());
    content.tensors.back().name = "blk.0.attn_wisdom.weight";
  });
  const std::string other = problem_of(odd);
  INFO(other);
  CHECK(other.find("; nearest to it is '") != std::string::npos);
  CHECK(other.find("'blk.0.attn_wisdom.weight' is not one") != std::string::npos);
}

}  // namespace sluice::test
