// Checkpoints of Hugging Face: CONFIG.JSON, TOKENIZER.JSON, TOKENIZER_CONFIG.JSON, VOCABULARY,
// WEIGHTS. The vocabulary is that of RWKV as text; where it is empty there is no such file. The
// weights are the header of model.safetensors as JSON, in front of which its length is put and
// behind which zeros are; or, behind the letter F, the beginning of the file itself.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "core/convert/import.h"
#include "core/error.h"
#include "core/gguf/gguf.h"
#include "core/synth/synthetic_model.h"
#include "tests/fuzz/fuzz.h"
#include "tests/small_shapes.h"
#include "tests/synthetic_checkpoint.h"
#include "tests/temporary_folder.h"

namespace sluice::fuzz {
namespace {

// More than the seeds have.
constexpr std::size_t data_bytes = std::size_t{4} << 20;

constexpr const char* world_lines =
    "1 '\\x00' 1\n2 '\\n' 1\n3 \"'\" 1\n4 b'\\xff' 1\n5 '\\n\\n' 2\n6 ' a' 2\n7 '' 0\n"
    "8 '\u4e2d' 3\r\n9 b'\\xe4\\xb8' 2\n10 '\\u200b' 3\n11 '\\U0001f600' 4\n12 '\\\\' 1\n";

std::string weights_file(std::string_view part) {
  if (part.starts_with('F')) return std::string(part.substr(1)) + std::string(100, '\0');
  const std::uint64_t length = part.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  // No more data than the header can mean: a file that is too long is refused at once.
  std::uint64_t end = 0;
  for (std::size_t at = 0; (at = part.find("data_offsets", at)) != std::string_view::npos; ++at) {
    const std::size_t comma = part.find(',', at);
    if (comma == std::string_view::npos) break;
    const std::string number(part.substr(comma + 1, 10));
    end = std::max<std::uint64_t>(end, std::strtoul(number.c_str(), nullptr, 10));
  }
  return file + std::string(part) + std::string(std::min<std::uint64_t>(end, data_bytes), '\0');
}

// Whether an input is a checkpoint that can be imported.
bool is_imported(std::string_view input) {
  const auto parts = split(input, 5);
  const InputFile config(parts[0], "config.json"), tokenizer(parts[1], "tokenizer.json");
  const InputFile more(parts[2], "tokenizer_config.json");
  std::optional<InputFile> vocabulary;
  if (!parts[3].empty()) vocabulary.emplace(parts[3], "rwkv_vocab_v1.txt");
  const InputFile weights(weights_file(parts[4]), "model.safetensors");
  const std::filesystem::path output = scratch_folder() / "imported";
  bool is_whole = false;
  try {
    convert::import_checkpoint(scratch_folder(), output, {});
    static_cast<void>(gguf::Model::open(output));
    std::filesystem::remove(output);
    is_whole = true;
  } catch (const ModelError&) {
  }
  require(!std::filesystem::exists(output), "a file is written whole or not at all");
  return is_whole;
}

}  // namespace

void run(std::string_view input) {
  is_imported(input);
}

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  std::size_t number = 0;
  for (test::CheckpointFamily family : test::checkpoint_families()) {
    const bool is_world = family.shape.architecture == "rwkv7";
    if (number++ % 4 != 0 && !is_world) continue;  // they differ little, and are long
    family.shape = test::small_shape(family.shape);
    if (is_world) family.shape.norm_epsilon = 64e-5f / 16;  // by the elements of a head
    const test::TemporaryFolder folder(scratch_folder());
    synth::SyntheticModel(family.shape, "F32").write(folder / "model.gguf", 3, {});
    test::SyntheticCheckpoint(family, folder / "model.gguf").write_to(folder.path());
    const std::string weights = test::content(folder / "model.safetensors");
    std::uint64_t length = 0;
    std::memcpy(&length, weights.data(), sizeof length);
    std::string settings = test::content(folder / "tokenizer_config.json");
    if (is_world) {
      settings = R"({"added_tokens_decoder": {"0": {"content": "<s>", "special": true},
                    "13": {"content": "\n\n"}}})";
    }
    all.push_back(
        joined({test::content(folder / "config.json"), test::content(folder / "tokenizer.json"),
                settings, is_world ? world_lines : "", weights.substr(sizeof length, length)}));
  }
  for (const std::string& seed : all) require(is_imported(seed), "a seed is imported");
  return all;
}

}  // namespace sluice::fuzz
