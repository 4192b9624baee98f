// Checkpoints of Hugging Face: CONFIG.JSON, TOKENIZER.JSON, TOKENIZER_CONFIG.JSON, WEIGHTS. The
// weights are the header of model.safetensors as JSON, in front of which its length is put and
// behind which zeros are; or, behind the letter F, the beginning of the file itself.
#include <algorithm>
#include <cstdlib>
#include <cstring>
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

constexpr std::size_t data_bytes = std::size_t{400} << 10;

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

}  // namespace

void run(std::string_view input) {
  const auto parts = split(input, 4);
  const InputFile config(parts[0], "config.json"), tokenizer(parts[1], "tokenizer.json");
  const InputFile more(parts[2], "tokenizer_config.json");
  const InputFile weights(weights_file(parts[3]), "model.safetensors");
  const std::filesystem::path output = scratch_folder() / "imported";
  try {
    convert::import_checkpoint(scratch_folder(), output, {});
    static_cast<void>(gguf::Model::open(output));
    std::filesystem::remove(output);
  } catch (const ModelError&) {
  }
  require(!std::filesystem::exists(output), "a file is written whole or not at all");
}

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  std::size_t number = 0;
  for (const test::CheckpointFamily& family : test::checkpoint_families()) {
    if (number++ % 4 != 0) continue;  // they differ little, and are long
    const test::TemporaryFolder folder(scratch_folder());
    synth::SyntheticModel(family.shape, "F32").write(folder / "model.gguf", 3, {});
    test::SyntheticCheckpoint(family, folder / "model.gguf").write_to(folder.path());
    const std::string weights = test::content(folder / "model.safetensors");
    std::uint64_t length = 0;
    std::memcpy(&length, weights.data(), sizeof length);
    all.push_back(joined(
        {test::content(folder / "config.json"), test::content(folder / "tokenizer.json"),
         test::content(folder / "tokenizer_config.json"), weights.substr(sizeof length, length)}));
  }
  return all;
}

}  // namespace sluice::fuzz
