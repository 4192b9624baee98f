// Importance matrices in llama.cpp's GGUF format: how large the inputs of each matrix product were,
// column by column, over some text.
//
// A file has general.type "imatrix", imatrix.datasets, imatrix.chunk_count and imatrix.chunk_size,
// and for each weight NAME the tensors NAME.in_sum2 {columns, matrices}, sums of squares of the
// inputs, and NAME.counts {1, matrices}, how many inputs were summed; both F32.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/gguf/gguf.h"
#include "core/model/matrix_input.h"

namespace sluice::quant {

struct ImatrixEntry {
  std::uint64_t columns = 0;
  std::vector<float> sums;    // columns of each matrix in turn
  std::vector<float> counts;  // one of each matrix
};

class Imatrix {
 public:
  Imatrix() = default;
  Imatrix(std::map<std::string, ImatrixEntry> entries, std::string dataset,
          std::uint32_t chunk_count, std::uint32_t chunk_size)
      : entries_(std::move(entries)),
        dataset_(std::move(dataset)),
        chunk_count_(chunk_count),
        chunk_size_(chunk_size) {}

  // Throws std::system_error, ModelError.
  static Imatrix read(const std::filesystem::path& path);
  void write(const std::filesystem::path& path) const;

  // Mean squares of the columns of a weight of these dimensions, for each matrix in turn; empty
  // when there are none. Throws ModelError when the file has others for this name.
  std::vector<float> importance(const std::string& name, std::span<const std::uint64_t> dims) const;

  const std::map<std::string, ImatrixEntry>& entries() const { return entries_; }
  const std::string& dataset() const { return dataset_; }
  std::uint32_t chunk_count() const { return chunk_count_; }
  std::uint32_t chunk_size() const { return chunk_size_; }

 private:
  std::map<std::string, ImatrixEntry> entries_;
  std::string dataset_;
  std::uint32_t chunk_count_ = 0;
  std::uint32_t chunk_size_ = 0;
};

// The sums that an importance matrix is made of, gathered while a model runs.
//
// Sums squares column by column, in the order of the tokens, so that they do not depend on the
// number of threads. Tables of embeddings and output matrices are left out, as llama.cpp does: a
// run has logits of few of its tokens.
class ImatrixSums {
 public:
  // The most memory that the sums of a model take, or what finish() makes of them.
  static std::uint64_t bytes_max(const gguf::Model& model);

  void add(const model::MatrixInput& input);

  // Turns the sums into an importance matrix; none are left. Throws ModelError, naming the tensor,
  // where one is not finite.
  Imatrix finish(std::string dataset, std::uint32_t chunk_count, std::uint32_t chunk_size);

 private:
  struct Sums {
    std::size_t columns = 0;
    std::vector<double> squares;  // [matrices][columns]
    std::vector<std::uint64_t> counts;
  };
  std::map<std::string, Sums, std::less<>> sums_;
};

}  // namespace sluice::quant
