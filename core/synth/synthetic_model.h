// Models of random weights at the shapes and formats of real ones: for measuring and testing
// without downloading anything. They run like the real model and say nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

#include "core/gguf/gguf_writer.h"
#include "core/quant/quant_mix.h"
#include "core/synth/shapes.h"
#include "core/synth/tensors.h"

namespace sluice::synth {

// The layout of a synthetic model; makes no weights until write().
class SyntheticModel {
 public:
  // How the values of the formats are stored. The twin of a quantised model holds them as F32: an
  // engine that is exact gives the same logits for both.
  enum class Stored { as_quantised, as_twin };

  // Names as in shapes() and quant::QuantMix::names(). Throws UsageError for an unknown one.
  SyntheticModel(std::string_view shape, std::string_view quant);
  SyntheticModel(Shape shape, std::string_view quant, Stored stored = Stored::as_quantised);

  const std::vector<Tensor>& tensors() const { return tensors_; }
  kernels::BlockType type(std::size_t tensor) const { return types_[tensor]; }  // as quantised
  std::uint64_t data_bytes() const { return writer_.data_bytes(); }
  std::uint64_t file_bytes() const { return writer_.file_bytes(); }

  // Called now and then while writing; `done` and `total` in bytes of the file. May be empty.
  using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

  // Writes the file; the same seed gives the same bytes everywhere. Throws std::system_error when
  // that fails, and leaves no file behind then. Takes a few MiB of memory.
  void write(const std::filesystem::path& path, std::uint64_t seed, const Progress& progress) const;

  // The file up to its weights.
  std::vector<std::byte> header() const { return writer_.header(); }
  // Writes the header, and a hole in the file for the weights: enough to plan and to inspect.
  // Errors as above.
  void write_header(const std::filesystem::path& path) const;

 private:
  Shape shape_;
  quant::QuantMix mix_;
  Stored stored_;
  std::vector<Tensor> tensors_;
  std::vector<kernels::BlockType> types_;
  gguf::Writer writer_;
};

}  // namespace sluice::synth
