// A GGUF file whose tensors come from another file in another format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
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

// The conversion of a tensor; its importances are those of the tensor.
Conversion conversion_of(const PlannedTensor& tensor);

// Whether a format has so few bits that a file is useless unless columns are weighted.
bool needs_importance(kernels::BlockType type);

// What a matrix is divided by before it becomes NVFP4, whose scales of eight bits have little
// range: a tensor beside it holds that number, by which products with the matrix are multiplied.
// Of a stack there is one for each matrix. Tables that are read by row have none.
std::optional<std::string> tensor_scale_of(const PlannedTensor& tensor);

struct ConvertOptions {
  unsigned threads = 0;  // 0: as topology::choose_threads likes
  // Called now and then with bytes of the file that are done; may throw, and then no file is left.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

// Adds the tensors to `writer`, without their data; see write_converted().
void add_tensors(std::span<const PlannedTensor> tensors, gguf::Writer& writer);

// Adds the tensors to `writer`, which has the metadata already, and writes the file; tensors with a
// scale of their own (tensor_scale_of) have it in front of them, unless the file has one by that
// name. Takes some MiB of memory. Throws UsageError where a format cannot be written, or not
// without importances, and what Writer::write and RowConverter::convert do.
void write_converted(const std::filesystem::path& path, gguf::Writer& writer,
                     std::span<const PlannedTensor> tensors, const ConvertOptions& options);

}  // namespace sluice::quant
