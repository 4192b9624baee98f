// What a checkpoint of sentence-transformers does behind its model to make a vector of a text:
// modules.json names a folder for each step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "core/convert/safetensors.h"

namespace sluice::convert {

// A matrix without a bias.
struct DenseModule {
  std::shared_ptr<const Checkpoint> checkpoint;
  StoredTensor weight;  // [out, in]
};

struct TextVectors {
  std::optional<std::uint32_t> pooling;  // as pooling_type of GGUF files has it; none: not said
  std::vector<DenseModule> dense;        // in their order, up to two
};

// `embedding`: the width of what is pooled. All is empty in a folder without modules.json. Throws
// ModelError for a step that a GGUF file cannot say.
TextVectors read_text_vectors(const std::filesystem::path& folder, std::uint64_t embedding);

}  // namespace sluice::convert
