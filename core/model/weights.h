// The weights of a model as the forward pass sees them, and the order in which it visits them.
//
// Matrices are read from the tape, slice by slice; vectors (norms, biases) are small and stay in
// memory as floats; rows of the token embedding are fetched one by one. An architecture declares
// its tensors once, in the order of a step: that order is the tape.
//
// Made from the header of a file alone: nothing here reads tensor data but load().
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/gguf/gguf.h"
#include "core/model/file_bytes.h"
#include "kernels/block_formats.h"
#include "streaming/tape.h"

namespace sluice::model {

// Consecutive rows of a matrix that are one segment of the tape.
struct Slice {
  std::size_t turn;  // of the tape
  std::size_t first_row;
  std::size_t rows;
};

// y = W x, W of shape [rows][columns].
struct Matrix {
  kernels::BlockType type = {};
  std::size_t rows = 0;  // none: a matrix that the model does not have
  std::size_t columns = 0;
  std::size_t row_bytes = 0;
  std::vector<Slice> slices;  // by ascending rows and turns
  // Where it is in the file, which outlives it: a tensor may stack several matrices, and the rows
  // of one may be used apart.
  std::string_view tensor = {};
  std::size_t place = 0, places = 1;  // in the stack
  bool is_first_part = true;          // of the rows at that place
};

// A small tensor, resident as floats. The data belongs to the WeightLayout it came from.
using Vector = std::span<const float>;

class WeightLayout {
 public:
  // `slice_bytes_max`: how large a segment of the tape may be; a row is never split.
  WeightLayout(const gguf::Model& model, std::size_t slice_bytes_max);

  // Declares the next matrix of the step. Throws ModelError when the tensor is missing, of another
  // shape, or of a type that sluice does not compute with.
  Matrix matrix(const std::string& name, std::size_t columns, std::size_t rows);

  // The same for `count` rows from `first` on of a tensor that holds several matrices: one below
  // the other {columns, rows of all}, or stacked {columns, rows of one, matrices}.
  Matrix part_of_matrix(const std::string& name, std::initializer_list<std::size_t> dims,
                        std::size_t first, std::size_t count);

  // Declares a small tensor, its dimensions in the order of the file; the span of all its elements
  // is filled by load().
  Vector vector(const std::string& name, std::initializer_list<std::size_t> dims);
  // The same, or an empty span when there is no such tensor.
  Vector optional_vector(const std::string& name, std::initializer_list<std::size_t> dims);

  // Declares a table whose rows are fetched one by one, and which is not on the tape.
  const gguf::TensorInfo& table(const std::string& name, std::size_t columns, std::size_t rows);

  // Declares that a step has no use for a tensor, if there is one of this name.
  void leave_aside(const std::string& name) { declared_.insert(name); }

  bool has(const std::string& name) const;

  // An error about a tensor: "FILE: tensor 'a.weight' WHAT".
  ModelError error(const std::string& name, const std::string& what) const;

  // Throws ModelError when the file has a tensor that was not declared: a model that is computed
  // without one of its tensors gives wrong text. Parts of a file that have nothing to do with text
  // are known by name, and passed over; notes() then has a line about each.
  void check_all_declared(std::uint32_t layers);
  const std::vector<std::string>& notes() const { return notes_; }

  // Reads the vectors from the files. Throws std::system_error.
  void load();

  // Copies the bytes of a segment to memory where they stay, as panels that are packed for the
  // kernels where the segment makes whole ones (kernels::can_pack).
  void pack(std::size_t turn, std::span<const std::byte> from, std::byte* to) const;

  const std::vector<streaming::Segment>& segments() const { return segments_; }
  std::size_t vector_bytes() const;  // memory that the vectors take
  std::size_t matrix_bytes() const;  // of all segments: what a step of one token reads
  std::size_t matrix_weights() const { return matrix_weights_; }  // and multiplies with
  const gguf::Model& model() const { return model_; }

 private:
  struct PendingVector {
    const gguf::TensorInfo* tensor;
    std::vector<float> values;  // never resized: spans point into it
  };

  const gguf::TensorInfo& declare(const std::string& name, std::initializer_list<std::size_t> dims);

  const gguf::Model& model_;
  std::size_t slice_bytes_max_;
  std::size_t matrix_weights_ = 0;
  // What the rows of a segment are.
  struct SegmentRows {
    kernels::BlockType type;
    std::size_t rows, columns;
  };
  std::vector<streaming::Segment> segments_;
  std::vector<SegmentRows> segment_rows_;  // by turn
  std::vector<PendingVector> vectors_;
  std::set<std::string, std::less<>> declared_;
  std::vector<std::string> notes_;
};

// The tensors of one layer: names below "blk.<i>.".
class LayerTensors {
 public:
  LayerTensors(WeightLayout& layout, std::uint32_t layer)
      : layout_(layout), prefix_("blk." + std::to_string(layer) + ".") {}

  Matrix matrix(const std::string& name, std::size_t columns, std::size_t rows) const {
    return layout_.matrix(prefix_ + name, columns, rows);
  }
  Matrix part_of_matrix(const std::string& name, std::initializer_list<std::size_t> dims,
                        std::size_t first, std::size_t count) const {
    return layout_.part_of_matrix(prefix_ + name, dims, first, count);
  }
  Vector vector(const std::string& name, std::initializer_list<std::size_t> dims) const {
    return layout_.vector(prefix_ + name, dims);
  }
  Vector optional_vector(const std::string& name, std::initializer_list<std::size_t> dims) const {
    return layout_.optional_vector(prefix_ + name, dims);
  }
  void leave_aside(const std::string& name) const { layout_.leave_aside(prefix_ + name); }
  bool has(const std::string& name) const { return layout_.has(prefix_ + name); }
  // The rows of a matrix; 0 when there is no such tensor.
  std::uint64_t rows(const std::string& name) const;

  // An error about a tensor of this layer: "FILE: tensor 'blk.3.attn_q.weight' WHAT".
  ModelError error(const std::string& name, const std::string& what) const;

 private:
  WeightLayout& layout_;
  std::string prefix_;
};

// The type of a tensor. Throws ModelError, naming tensor and type, when sluice cannot compute
// with it.
kernels::BlockType supported_type(const gguf::Model& model, const gguf::TensorInfo& tensor);

// Rows of the token embedding, read from the file as they are asked for: a step needs one row per
// token, so the table never has to be in memory.
class EmbeddingTable {
 public:
  // Throws ModelError for an unsupported type, std::system_error when the file cannot be opened.
  EmbeddingTable(const gguf::Model& model, const gguf::TensorInfo& tensor);

  // out[0..columns) = row `token`. Throws std::system_error when it cannot be read.
  void row(std::size_t token, float* out);

 private:
  FileBytes file_;
  kernels::BlockType type_;
  std::uint64_t offset_;  // of the first row
  std::size_t columns_;
  std::vector<std::byte> buffer_;  // one row
};

}  // namespace sluice::model
