// Weights that are stored rotated: a model whose matrices have been rotated here, by the
// definition, evaluates to what it did before; and keys that ask for anything else are refused.
#include "core/model/rotation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/synth/synthetic_model.h"
#include "tests/catch.h"
#include "tests/model_content.h"
#include "tests/random_seed.h"
#include "tests/small_shapes.h"
#include "tests/temporary_folder.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t block = 16;

// H x, block by block, as it is defined.
void transform(std::span<float> x) {
  for (std::size_t first = 0; first < x.size(); first += block) {
    double sums[block] = {};
    for (std::size_t r = 0; r < block; ++r) {
      for (std::size_t c = 0; c < block; ++c) {
        sums[r] += (std::popcount(r & c) % 2 != 0 ? -1 : 1) * double{x[first + c]};
      }
    }
    for (std::size_t r = 0; r < block; ++r) {
      x[first + r] = static_cast<float>(sums[r] / std::sqrt(double{block}));
    }
  }
}

struct Heads {
  std::size_t keys = 1, values = 1;
};

// A row from the order of value heads to that of key heads.
std::vector<float> grouped(std::span<const float> row, const Heads& heads) {
  const std::size_t size = row.size() / heads.values, shared = heads.values / heads.keys;
  std::vector<float> out;
  for (std::size_t k = 0; k < heads.keys; ++k) {
    for (std::size_t j = 0; j < shared; ++j) {
      const auto head = row.subspan((j * heads.keys + k) * size, size);
      out.insert(out.end(), head.begin(), head.end());
    }
  }
  return out;
}

// Stores a model rotated.
class Rotating {
 public:
  Rotating(Content& content, bool has_signs, bool is_tied, const Heads& heads, std::uint64_t seed)
      : content_(content), has_signs_(has_signs), heads_(heads), random_(seed) {
    for (Stored& tensor : content_.tensors) {
      if (is_rotated(tensor)) rotate(tensor);
    }
    set("version", is_tied ? 2u : 1u);
    set("block_size", static_cast<std::uint32_t>(block));
    content_.set("prism.hadamard.transform", "normalized-sylvester-walsh-hadamard");
    content_.set("prism.hadamard.axis", "input-last-dimension");
    content_.set("prism.hadamard.sign_mode", has_signs ? "explicit" : "identity");
    if (has_signs) {
      content_.set_all("prism.hadamard.sign_widths", widths_);
      content_.set_all("prism.hadamard.sign_values", values_);
    }
    content_.set_all("prism.hadamard.weight_names", names_);
    content_.set_all("prism.hadamard.inverse_weight_names",
                     std::vector<std::string>{"token_embd.weight"});
    set("gdn_v_grouped", heads.values > 1);
    if (is_tied) set("tied_output", true);
  }

 private:
  template <typename T>
  void set(const std::string& key, T value) {
    content_.set("prism.hadamard." + key, value);
  }

  static bool is_rotated(const Stored& tensor) {
    const auto ends = [&](const char* end) { return tensor.name.ends_with(end); };
    return tensor.dims.size() > 1 && ends(".weight") && !ends("norm.weight") &&
           !ends("ffn_gate_inp.weight") && !ends("ssm_conv1d.weight") &&
           !ends("ssm_alpha.weight") && !ends("ssm_beta.weight");
  }

  const std::vector<float>& signs_of(std::size_t width) {
    std::vector<float>& signs = signs_[width];
    if (!signs.empty()) return signs;
    widths_.push_back(static_cast<std::int32_t>(width));
    for (std::size_t i = 0; i < width; ++i) {
      values_.push_back(has_signs_ && random_() % 2 != 0 ? -1 : 1);
      signs.push_back(static_cast<float>(values_.back()));
    }
    return signs;
  }

  void rotate(Stored& tensor) {
    const std::span<float> values = content_.values(tensor.name);
    const std::size_t width = tensor.dims[0];
    const std::vector<float>& signs = signs_of(width);
    const bool is_grouped = tensor.name.ends_with("ssm_out.weight");
    for (std::size_t at = 0; at < values.size(); at += width) {
      const std::span<float> row = values.subspan(at, width);
      std::ranges::copy(grouped(row, is_grouped ? heads_ : Heads{}), row.begin());
      for (std::size_t i = 0; i < width; ++i) row[i] *= signs[i];
      transform(row);
    }
    if (tensor.name != "token_embd.weight") names_.push_back(tensor.name);
  }

  Content& content_;
  bool has_signs_;
  Heads heads_;
  std::mt19937_64 random_;
  std::map<std::size_t, std::vector<float>> signs_;
  std::vector<std::int32_t> widths_, values_;
  std::vector<std::string> names_;
};

fs::path write(const TemporaryFolder& folder, const synth::Shape& shape) {
  const fs::path path = folder.path() / "plain.gguf";
  synth::SyntheticModel(shape, "F32").write(path, 3, {});
  return path;
}

// The last of 17 tokens is alone in its step, in which the experts of a token are computed
// together.
std::vector<float> logits(const fs::path& path) {
  return logits_of(*engine::Engine::open(path, options_for_logits()), 17);
}

}  // namespace

TEST_CASE("a model whose weights are stored rotated is the same model") {
  const std::uint64_t seed = random_seed();
  const TemporaryFolder folder;
  for (const std::string name : {"tiny-llama", "tiny-qwen3", "tiny-qwen3moe", "tiny-qwen35"}) {
    for (const bool has_signs : {true, false}) {
      INFO(name << (has_signs ? " with signs" : ""));
      synth::Shape shape = small_shape(name);
      if (name == "tiny-qwen35") {  // 2 key heads of 4 value heads each
        shape.recurrence.heads *= 2;
        shape.recurrence.inner *= 2;
      }
      const fs::path plain = write(folder, shape), rotated = folder.path() / "rotated.gguf";
      Content content(plain);
      const bool is_tied = !content.has("output.weight");
      const Heads heads =
          name == "tiny-qwen35" ? Heads{shape.recurrence.groups, shape.recurrence.heads} : Heads{};
      Rotating(content, has_signs, is_tied, heads, seed);
      content.write(rotated);
      const std::vector<float> expected = logits(plain), found = logits(rotated);
      REQUIRE(found.size() == expected.size());
      double largest = 0, difference = 0;
      for (std::size_t i = 0; i < found.size(); ++i) {
        largest = std::max(largest, std::abs(double{expected[i]}));
        difference = std::max(difference, std::abs(double{found[i]} - double{expected[i]}));
      }
      CHECK(difference < 0.03 * largest);
    }
  }
}

TEST_CASE("rotations that are not known, or do not suit the tensors, are refused") {
  const TemporaryFolder folder;
  const fs::path plain = write(folder, small_shape("tiny-llama"));
  const auto refusal = [&](const std::function<void(Content&)>& change) -> std::string {
    Content content(plain);
    Rotating(content, true, false, {}, 1);
    change(content);
    const fs::path path = folder.path() / "changed.gguf";
    content.write(path);
    try {
      logits_of(path);
    } catch (const ModelError& error) {
      return error.what();
    }
    return "accepted";
  };
  CHECK(refusal([](Content&) {}) == "accepted");
  struct Fault {
    const char* key;
    const char* named;
    std::function<void(Content&, const std::string& key)> change;
  };
  const auto set = [](auto value) {
    return [=](Content& content, const std::string& key) { content.set(key, value); };
  };
  const auto list = [](auto values) {
    return [=](Content& content, const std::string& key) { content.set_all(key, values); };
  };
  const auto drop = [](Content& content, const std::string& key) { content.remove_key(key); };
  using Names = std::vector<std::string>;
  using Numbers = std::vector<std::int32_t>;
  for (const Fault& fault : {
           Fault{"hadamard.surprise", "is not known", set(1u)},
           Fault{"other.version", "is not known", set(1u)},
           Fault{"hadamard.version", "is not 1 or 2", set(3u)},
           Fault{"hadamard.version", "version", drop},
           Fault{"hadamard.transform", "'fast', expected", set("fast")},
           Fault{"hadamard.axis", "'output', expected", set("output")},
           Fault{"hadamard.sign_mode", "'random', expected", set("random")},
           Fault{"hadamard.block_size", "is 24, expected a power of two", set(24u)},
           Fault{"hadamard.block_size", "does not divide", set(1u << 20)},
           Fault{"hadamard.sign_widths", "does not add up", list(Numbers{1 << 20})},
           Fault{"hadamard.sign_widths", "does not add up", list(Numbers{16})},
           Fault{"hadamard.sign_widths", "does not add up", list(Numbers{-1})},
           Fault{"hadamard.sign_values", "does not add up", list(Numbers{1})},
           Fault{"hadamard.weight_names", "'blk.0.attn_norm.weight'",
                 list(Names{"blk.0.attn_norm.weight"})},
           Fault{"hadamard.weight_names", "'blk.9.attn_q.weight'",
                 list(Names{"blk.9.attn_q.weight"})},
           Fault{"hadamard.inverse_weight_names", "'output.weight'", list(Names{"output.weight"})},
           Fault{"hadamard.tied_output", "in version 1", set(true)},
       }) {
    const std::string key = std::string("prism.") + fault.key;
    const std::string reason = refusal([&](Content& content) { fault.change(content, key); });
    INFO(key << ": " << reason);
    CHECK(reason.find(fault.named) != std::string::npos);
    CHECK(reason.find('\n') == std::string::npos);
  }
}

}  // namespace sluice::test
