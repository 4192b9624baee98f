// The ways in which files store the experts of a mixture: stacked, each as tensors of its own, with
// gate and up in one tensor, and split over several files. The same weights give the same bits.
#include <filesystem>
#include <fmt/format.h>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/synth/shapes.h"
#include "core/synth/synthetic_model.h"
#include "tests/catch.h"
#include "tests/model_content.h"
#include "tests/temporary_folder.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

// "blk.1.ffn_up_exps.weight" becomes "blk.1.ffn_up.0.weight", "blk.1.ffn_up.1.weight" and so on.
std::vector<Stored> each_expert(const Stored& stack) {
  if (!stack.name.ends_with("_exps.weight")) return {};
  const std::uint64_t experts = stack.dims[2], size = stack.bytes.size() / experts;
  std::vector<Stored> out;
  for (std::uint64_t i = 0; i < experts; ++i) {
    const std::span<const std::byte> all(stack.bytes);
    const auto bytes = all.subspan(i * size, size);
    out.push_back({replaced(stack.name, "_exps", fmt::format(".{}", i)),
                   {stack.dims[0], stack.dims[1]},
                   stack.type,
                   {bytes.begin(), bytes.end()}});
  }
  return out;
}

// Replaces ffn_gate_exps by ffn_gate_up_exps, with the rows of an expert's gate above those of its
// up; and the biases likewise.
void fuse(Content& content) {
  const Content before = content;
  content.change([&](const Stored& tensor) -> std::vector<Stored> {
    if (tensor.name.find("ffn_gate_exps") == std::string::npos) return {};
    const Stored& up = before.find(replaced(tensor.name, "ffn_gate_exps", "ffn_up_exps"));
    const std::uint64_t experts = tensor.dims.back(), size = tensor.bytes.size() / experts;
    Stored both{replaced(tensor.name, "gate", "gate_up"), tensor.dims, tensor.type, {}};
    both.dims[tensor.dims.size() - 2] *= 2;
    for (std::uint64_t i = 0; i < experts; ++i) {
      for (const Stored* part : {&tensor, &up}) {
        const auto begin = part->bytes.begin() + static_cast<std::ptrdiff_t>(i * size);
        both.bytes.insert(both.bytes.end(), begin, begin + static_cast<std::ptrdiff_t>(size));
      }
    }
    return {both};
  });
  std::erase_if(content.tensors, [](const Stored& tensor) {
    return tensor.name.find("ffn_up_exps") != std::string::npos;
  });
}

// Writes three shards; returns the path of the first. The shards cut a layer's experts apart.
fs::path write_split(const Content& content, const fs::path& folder) {
  constexpr std::uint16_t count = 3;
  const std::size_t all = content.tensors.size();
  const auto path = [&](std::uint16_t i) {
    return folder / fmt::format("m-{:05}-of-{:05}.gguf", i + 1, count);
  };
  for (std::uint16_t i = 0; i < count; ++i) {
    content.write(path(i), i * all / count, (i + 1u) * all / count, i == 0,
                  [&](gguf::Writer& writer) {
                    writer.add("split.no", i);
                    writer.add("split.count", count);
                    writer.add("split.tensors.count", static_cast<std::int32_t>(all));
                  });
  }
  return path(0);
}

}  // namespace

TEST_CASE("a mixture gives the same bits however its file stores the experts") {
  for (const char* name : {"tiny-qwen3moe", "tiny-deepseek2", "tiny-lfm2moe", "tiny-gpt-oss"}) {
    INFO(name);
    const TemporaryFolder folder;
    const fs::path stacked = folder.path() / "stacked.gguf", other = folder.path() / "other.gguf";
    synth::SyntheticModel(name, "Q4_K_M").write(stacked, 3, {});
    const std::vector<float> expected = logits_of(stacked);
    const Content content(stacked);

    CHECK(are_same_bits(logits_of(write_split(content, folder.path())), expected));

    Content fused = content;
    fuse(fused);
    CHECK(fused.tensors.size() < content.tensors.size());
    fused.write(other);
    CHECK(are_same_bits(logits_of(other), expected));

    Content apart = content;
    apart.change(each_expert);
    CHECK(apart.tensors.size() > content.tensors.size());
    apart.write(other);
    CHECK(are_same_bits(logits_of(other), expected));
    CHECK(are_same_bits(logits_of(write_split(apart, folder.path())), expected));
  }
}

TEST_CASE("experts in which a tensor is missing, or has another shape, are refused by its name") {
  const TemporaryFolder folder;
  const fs::path stacked = folder.path() / "stacked.gguf", other = folder.path() / "other.gguf";
  synth::SyntheticModel("tiny-qwen3moe", "Q8_0").write(stacked, 3, {});
  Content apart(stacked);
  apart.change(each_expert);
  const auto refusal = [&](const Content& content) -> std::string {
    content.write(other);
    try {
      logits_of(other);
    } catch (const ModelError& error) {
      return error.what();
    }
    return {};
  };
  Content without = apart;
  std::erase_if(without.tensors,
                [](const Stored& tensor) { return tensor.name == "blk.1.ffn_up.5.weight"; });
  CHECK(refusal(without).find("blk.1.ffn_up.5.weight") != std::string::npos);
  Content more = apart;
  more.tensors.push_back(more.find("blk.1.ffn_up.5.weight"));
  more.tensors.back().name = "blk.1.ffn_up.8.weight";
  CHECK(refusal(more).find("blk.1.ffn_up.8.weight") != std::string::npos);
}

}  // namespace sluice::test
