// Reader of the weights of a Hugging Face checkpoint: model.safetensors, or where there is none the
// shards that model.safetensors.index.json names. Nothing in a file is trusted: every length,
// offset, type and shape is checked against the bytes that are there, and a shard's name may not
// leave its folder.
//
// Format: https://github.com/huggingface/safetensors#format. A u64 with the length of the header,
// the header as JSON ({NAME: {dtype, shape, data_offsets}}), then the data, without gaps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/model/file_bytes.h"
#include "kernels/block_formats.h"

namespace sluice::convert {

struct StoredTensor {
  kernels::BlockType type;           // f32, f16, bf16 or mxfp4
  std::vector<std::uint64_t> shape;  // the contiguous dimension last
  std::size_t file = 0;
  std::uint64_t offset = 0;  // from the start of the file
  std::uint64_t bytes = 0;
  // Where the scales of an MXFP4 tensor are, which has them apart from its blocks.
  std::size_t scales_file = 0;
  std::uint64_t scales_offset = 0;
  // Why the values cannot be read, as a message: a dtype of no weights, such as I64. Empty: they
  // can.
  std::string problem = {};
};

class Checkpoint {
 public:
  // Throws std::system_error when a file cannot be read, ModelError (file, tensor, what was found)
  // when one is missing, malformed or not among the others.
  static Checkpoint open(const std::filesystem::path& folder);
  // Whether a folder has weights, or an index of them.
  static bool exists(const std::filesystem::path& folder);

  // With those that have a problem.
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  // Null when absent. Throws ModelError when the tensor has a problem.
  const StoredTensor* find(const std::string& name) const;

  // Fills `out` from byte `offset` of the tensor on; whole blocks, as GGUF files have them. Throws
  // std::system_error.
  void read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> out) const;

 private:
  void add_file(const std::filesystem::path& path);
  void join_blocks_and_scales(const std::filesystem::path& folder);
  void read_blocks(const StoredTensor& tensor, std::uint64_t first, std::span<std::byte> out) const;

  std::vector<model::FileBytes> files_;
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, StoredTensor> bytes_;  // tensors of U8, until they are joined
};

}  // namespace sluice::convert
