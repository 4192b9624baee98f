// A GGUF model in another format: `sluice quantize`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/gguf/gguf.h"
#include "core/quant/converted_file.h"
#include "core/quant/type_recipe.h"

namespace sluice::quant {

struct QuantiseOptions {
  std::string quant;                // a name of QuantMix; may be empty if there is a target size
  std::filesystem::path imatrix{};  // empty: all columns count alike
  ConvertOptions convert{};
  TypeRecipe recipe{};             // goes before the mixture
  std::uint64_t target_bytes = 0;  // not 0: the largest size of the file, which chooses types
};

// How many matrices have a format.
struct ChosenType {
  std::string_view name;
  std::uint64_t tensors = 0, bytes = 0;
};

struct QuantiseReport {
  std::uint64_t tensors = 0;
  std::uint64_t changed = 0;  // tensors whose format is another
  std::uint64_t bytes_before = 0, bytes_after = 0;
  std::vector<std::string> warnings;
  // Of a file of a target size: the formats of its matrices, from the most bytes to the fewest, and
  // the mean of the errors of their products, relative to their squares.
  std::vector<ChosenType> chosen;
  double expected_error = 0;
};

// Writes `output`, whole or not at all; metadata is kept. Throws UsageError for an unknown format,
// a recipe that does not suit the model, a size that is not possible, or when both names are one
// file; ModelError, std::system_error as gguf::Model::open and
// write_converted do.
QuantiseReport quantise_model(const std::filesystem::path& input,
                              const std::filesystem::path& output, const QuantiseOptions& options);

// What quantise_model() would write of a mixture, from the shapes alone: the bytes in front of the
// weights, and the size of the file.
struct QuantisedHeader {
  std::vector<std::byte> bytes;
  std::uint64_t file_bytes = 0;
};
QuantisedHeader quantised_header(const gguf::Model& model, std::string_view quant);

}  // namespace sluice::quant
