// A Hugging Face checkpoint becomes a GGUF file: `sluice import`.
//
// A folder has config.json (the shape), the weights (safetensors.h), tokenizer.json and, where
// there are, tokenizer_config.json, chat_template.jinja and generation_config.json. The families
// that are known are a table in families.cc.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/quant/converted_file.h"

namespace sluice::convert {

struct ImportOptions {
  std::string quant;  // a name of QuantMix; empty: as the weights are stored
  quant::ConvertOptions convert{};
};

struct ImportReport {
  std::string architecture;
  std::string quant;
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;
  std::vector<std::string> warnings;
};

// Writes `output`, whole or not at all. Throws ModelError (file, key or tensor, what was found) for
// what is malformed or not supported, UsageError for an unknown format, std::system_error.
ImportReport import_checkpoint(const std::filesystem::path& folder,
                               const std::filesystem::path& output, const ImportOptions& options);

}  // namespace sluice::convert
