// A GGUF file whose tensors come from another file in another format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/gguf/gguf_writer.h"
#include "core/quant/row_converter.h"

namespace sluice::quant {

struct PlannedTensor {
  std::string name;
  std::vector<std::uint64_t> dims;  // the contiguous one first
  kernels::BlockType from;
  kernels::BlockType to;
  RowConverter::ReadRows read;
  RowChange change{};
  std::vector<float> importance{};  // as in Conversion
};

struct ConvertOptions {
  unsigned threads = 0;  // 0: as topology::choose_threads likes
  // Called now and then with bytes of the file that are done; may throw, and then no file is left.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

// Adds the tensors to `writer`, which has the metadata already, and writes the file. Takes some
// MiB of memory. Throws UsageError where a format cannot be written, or not without importances,
// and what Writer::write and RowConverter::convert do.
void write_converted(const std::filesystem::path& path, gguf::Writer& writer,
                     std::span<const PlannedTensor> tensors, const ConvertOptions& options);

}  // namespace sluice::quant
