// A GGUF model in another format: `sluice quantize`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/quant/converted_file.h"

namespace sluice::quant {

struct QuantiseOptions {
  std::string quant;                // a name of QuantMix
  std::filesystem::path imatrix{};  // empty: all columns count alike
  ConvertOptions convert{};
};

struct QuantiseReport {
  std::uint64_t tensors = 0;
  std::uint64_t changed = 0;  // tensors whose format is another
  std::uint64_t bytes_before = 0, bytes_after = 0;
  std::vector<std::string> warnings;
};

// Writes `output`, whole or not at all; metadata is kept. Throws UsageError for an unknown format,
// or when both names are one file; ModelError, std::system_error as gguf::Model::open and
// write_converted do.
QuantiseReport quantise_model(const std::filesystem::path& input,
                              const std::filesystem::path& output, const QuantiseOptions& options);

}  // namespace sluice::quant
