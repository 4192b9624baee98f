// sluice synth: writes a model of random weights at the shape and formats of a real one.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace sluice::cli {

struct SynthOptions {
  std::string shape;
  std::filesystem::path output;
  std::string quant = "Q4_K_M";
  std::string routing = "uniform";
  std::uint64_t seed = 1;
  std::optional<std::uint32_t> layers;  // nothing: all of the shape
  bool predictor = false;
  bool odd = false;
  bool twin = false;
  bool header_only = false;
  bool force = false;  // replaces a file that exists
};

CLI::App* add_synth(CLI::App& program, SynthOptions& options);

// Returns the exit status.
int run_synth(const SynthOptions& options);

}  // namespace sluice::cli
