// A small model with random weights, on disk: what most tests of a whole engine run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/synth/synthetic_model.h"
#include "tests/temporary_folder.h"

namespace sluice::test {

// Written by the first call of a process and removed at its end. `shape` and `quant` as `sluice
// synth` takes them.
inline std::filesystem::path model_file(const std::string& shape = "tiny",
                                        const std::string& quant = "Q4_K_M",
                                        std::uint64_t seed = 5) {
  static const TemporaryFolder folder;
  const auto path = folder / (shape + "-" + quant + "-" + std::to_string(seed) + ".gguf");
  if (!std::filesystem::exists(path)) synth::SyntheticModel(shape, quant).write(path, seed, {});
  return path;
}

}  // namespace sluice::test
