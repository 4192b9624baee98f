// sluice quantize: writes a model in another format. sluice import: converts a Hugging Face
// checkpoint to a GGUF file.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <string>

namespace sluice::cli {

struct QuantizeOptions {
  std::filesystem::path input, output, imatrix, tensor_types;
  std::string quant;
  std::uint64_t target_bytes = 0;  // 0: whatever the formats take
  unsigned threads = 0;            // 0: auto
  std::string sandbox = "auto";
  bool force = false;  // replaces a file that exists
  bool quiet = false;
};

CLI::App* add_quantize(CLI::App& program, QuantizeOptions& options);
int run_quantize(const QuantizeOptions& options);  // returns the exit status

struct ImportOptions {
  std::filesystem::path folder, output;
  std::string quant;
  unsigned threads = 0;
  std::string sandbox = "auto";
  bool force = false;
  bool quiet = false;
};

CLI::App* add_import(CLI::App& program, ImportOptions& options);
int run_import(const ImportOptions& options);

}  // namespace sluice::cli
