// Models of random weights at the shapes and formats of real ones: for measuring and testing
// without downloading anything. They run like the real model and say nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

#include "core/gguf/gguf_writer.h"
#include "core/model/quant_mix.h"
#include "core/model/synthetic_shapes.h"

namespace sluice::model {

// The layout of a synthetic model; makes no weights until write().
class SyntheticModel {
 public:
  // Names as in synthetic_shapes() and QuantMix::names(). Throws UsageError for an unknown one.
  SyntheticModel(std::string_view shape, std::string_view quant);

  const std::vector<SyntheticTensor>& tensors() const { return tensors_; }
  kernels::BlockType type(std::size_t tensor) const { return types_[tensor]; }
  std::uint64_t data_bytes() const { return writer_.data_bytes(); }
  std::uint64_t file_bytes() const { return writer_.file_bytes(); }

  // Called now and then while writing; `done` and `total` in bytes of weights. May be empty.
  using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

  // Writes the file; the same seed gives the same bytes everywhere. Throws std::system_error when
  // that fails, and leaves no file behind then. Takes a few MiB of memory.
  void write(const std::filesystem::path& path, std::uint64_t seed, const Progress& progress) const;

 private:
  void add_metadata();
  void add_architecture_metadata();
  void add_vocabulary();

  SyntheticShape shape_;
  QuantMix mix_;
  std::vector<SyntheticTensor> tensors_;
  std::vector<kernels::BlockType> types_;
  gguf::Writer writer_;
};

}  // namespace sluice::model
