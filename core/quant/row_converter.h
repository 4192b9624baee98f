// Tensors on their way from one file to another: rows are read in pieces, changed from one format
// to another on a team of threads, and handed on in order. What comes out does not depend on the
// number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/gguf/gguf_writer.h"
#include "kernels/block_formats.h"
#include "topology/thread_team.h"

namespace sluice::quant {

// What is done to the values of a row on their way, on any thread; may be empty.
using RowChange = std::function<void(std::uint64_t row, std::span<float> values)>;

struct Conversion {
  std::string name;  // for messages
  kernels::BlockType from;
  kernels::BlockType to;
  std::uint64_t columns = 0;
  std::uint64_t rows = 0;             // of all matrices that the tensor stacks
  std::uint64_t rows_per_matrix = 0;  // 0: one matrix
  RowChange change{};
  // Of the columns, for each matrix in turn or the same for all; empty: all count alike.
  std::span<const float> importance{};

  bool is_copy() const { return from == to && !change; }
  std::uint64_t matrix_of(std::uint64_t row) const {
    return rows_per_matrix > 0 ? row / rows_per_matrix : 0;
  }
  // Of the columns of a row; null: all count alike.
  const float* importance_of(std::uint64_t row) const {
    if (importance.empty()) return nullptr;
    return importance.data() + matrix_of(row) % (importance.size() / columns) * columns;
  }
};

class RowConverter {
 public:
  // Fills `out` with rows first .. first + count in the format `from`.
  using ReadRows =
      std::function<void(std::uint64_t first, std::uint64_t count, std::span<std::byte> out)>;

  explicit RowConverter(topology::ThreadTeam& team) : team_(team), scratch_(team.size()) {}

  // Takes some 16 MiB, or a few rows where those are larger. Throws ModelError, naming the tensor,
  // on values that are not finite (also where rows are copied) or that the format cannot hold, and
  // lets through what `read` and `sink` throw.
  void convert(const Conversion& conversion, const ReadRows& read, const gguf::Writer::Sink& sink);

  // The values of a row whose bytes are `in`, read and changed.
  static void read_row(const Conversion& conversion, std::uint64_t row, const std::byte* in,
                       std::vector<float>& values);
  // Throws ModelError where a value is not finite, or where the format that it becomes cannot hold
  // it.
  static void check_values(const Conversion& conversion, const std::vector<float>& values);

  // The largest magnitude of each matrix of the tensor, after the change. Takes memory and throws
  // as convert() does.
  std::vector<float> largest_magnitudes(const Conversion& conversion, const ReadRows& read);

 private:
  // Reads the rows in pieces, and calls f(first, count) with those that are in input_.
  template <typename F>
  void for_each_piece(const Conversion& conversion, const ReadRows& read, F&& f);
  void convert_row(const Conversion& conversion, std::uint64_t row, const std::byte* in,
                   std::byte* out, std::vector<float>& values) const;

  topology::ThreadTeam& team_;
  std::vector<std::byte> input_, output_;
  std::vector<std::vector<float>> scratch_;  // one of each member
};

}  // namespace sluice::quant
