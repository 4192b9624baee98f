// Writes a checkpoint of every architecture that `sluice import` reads, with random weights, to
// FOLDER/NUMBER each, and prints what each says that it is: for scripts/compare-imports. Encoders,
// which have no probabilities to compare, are left out.
//
//   write_checkpoints FOLDER
#include <exception>
#include <filesystem>
#include <fmt/format.h>

#include "core/synth/synthetic_model.h"
#include "tests/synthetic_checkpoint.h"

int main(int count, char** arguments) try {
  namespace fs = std::filesystem;
  if (count != 2) {
    fmt::print(stderr, "usage: write_checkpoints FOLDER\n");
    return 2;
  }
  int number = 0;
  for (const sluice::test::CheckpointFamily& family : sluice::test::checkpoint_families()) {
    if (family.shape.is_encoder()) continue;
    const fs::path folder = fs::path(arguments[1]) / fmt::format("{:02}", number++);
    fs::create_directories(folder);
    const fs::path model = folder / "model.gguf";
    sluice::synth::SyntheticModel(family.shape, "F32").write(model, 7, {});
    sluice::test::SyntheticCheckpoint(family, model).write_to(folder);
    fs::remove(model);
    fmt::print("{} {}\n", folder.filename().string(), family.theirs);
  }
} catch (const std::exception& error) {
  fmt::print(stderr, "write_checkpoints: {}\n", error.what());
  return 1;
}
