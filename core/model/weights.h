// The weights of a model as the forward pass sees them, and the order in which it reads them.
//
// Matrices are read from the tape, slice by slice. Vectors (norms, biases) are small and stay in
// memory as floats. Rows of the token embedding are read one by one. An architecture declares its
// tensors once, in the order in which a step reads them: that order is the tape.
//
// All of this is made from the header of the file alone; only load() reads tensor data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/gguf/gguf.h"
#include "core/model/file_bytes.h"
#include "core/model/rotation.h"
#include "kernels/block_formats.h"
#include "streaming/tape.h"
#include "topology/thread_team.h"

namespace sluice::model {

// The number of the block that a tensor belongs to: 3 for "blk.3.attn_q.weight"; nothing for
// others.
std::optional<std::uint64_t> block_number(std::string_view tensor);

// Consecutive rows of a matrix that are one segment of the tape.
struct Slice {
  std::size_t turn;  // its place on the tape
  std::size_t first_row;
  std::size_t rows;
};

// A small tensor, resident as floats. The data belongs to the WeightLayout it came from.
using Vector = std::span<const float>;

// y = W x, W of shape [rows][columns].
struct Matrix {
  kernels::BlockType type = {};
  std::size_t rows = 0;  // 0: the model does not have this matrix
  std::size_t columns = 0;
  std::size_t row_bytes = 0;
  std::vector<Slice> slices;  // by ascending rows and turns
  // The tensor in the file, whose header must outlive the matrix. A tensor may stack several
  // matrices, and a matrix may be declared in parts, each some of its rows.
  std::string_view tensor = {};
  std::size_t place = 0, places = 1;   // index in the stack, and size of the stack
  bool is_first_part = true;           // whether the first part of the rows of that matrix
  Vector scale = {};                   // one number that the product is multiplied with, or none
  const Rotation* rotation = nullptr;  // of the inputs; null: none
};

class WeightLayout {
 public:
  // `slice_bytes_max` is the largest size of a segment of the tape; a row is never split. Throws
  // what the constructor of Rotations does.
  WeightLayout(const gguf::Model& model, std::size_t slice_bytes_max);

  // Declares the next matrix of the step. Throws ModelError when the tensor is missing, has another
  // shape, or has a type that sluice does not compute with.
  Matrix matrix(const std::string& name, std::size_t columns, std::size_t rows);

  // The same for `count` rows, from row `first` on, of a tensor that holds several matrices. `dims`
  // is {columns, rows of all} when they stand one below the other, and {columns, rows of one,
  // matrices} when they are stacked.
  Matrix part_of_matrix(const std::string& name, std::initializer_list<std::size_t> dims,
                        std::size_t first, std::size_t count);

  // The same, for Compute::multiply_transposed: its rows are never packed.
  Matrix rows_of_matrix(const std::string& name, std::initializer_list<std::size_t> dims,
                        std::size_t first, std::size_t count);

  // Declares a small tensor, with its dimensions in the order of the file. load() fills the
  // elements of the span that is returned.
  Vector vector(const std::string& name, std::initializer_list<std::size_t> dims);
  // The same, or an empty span when there is no such tensor.
  Vector optional_vector(const std::string& name, std::initializer_list<std::size_t> dims);

  // Declares a table whose rows are read one by one, `rows_per_token` for each token. It is not on
  // the tape.
  const gguf::TensorInfo& table(const std::string& name, std::size_t columns, std::size_t rows,
                                std::size_t rows_per_token = 1);
  struct Table {
    const gguf::TensorInfo* tensor;
    std::size_t rows_per_token;
  };
  // Those that are no matrix as well, and so in no memory at any time.
  std::vector<Table> tables_on_disk() const;

  // Says that the segments from turn `first` on are those of `experts` experts, one after the
  // other, of which a token takes `used`. Returns the number of the group. Experts whose types
  // differ may have different numbers of segments; then all of them are read for each token,
  // notes() says so, and nothing is returned.
  std::optional<std::size_t> group_experts(std::size_t first, std::size_t experts,
                                           std::size_t used);

  // Declares that a step does not need the tensor of this name, if there is one.
  void leave_aside(const std::string& name);

  bool has(const std::string& name) const;
  // The number of rows of a matrix; 0 when there is no such tensor.
  std::uint64_t rows(const std::string& name) const;
  std::size_t declared() const { return declared_.size(); }  // different tensors so far

  // An error about a tensor: "FILE: tensor 'a.weight' WHAT".
  ModelError error(const std::string& name, const std::string& what) const;

  // Throws ModelError when the file has a tensor that was not declared: a model that is computed
  // without one of its tensors gives wrong text. Tensors that have nothing to do with text are
  // known by name, and the `predicting` blocks behind the layers; these are skipped, with a line in
  // notes() for each kind.
  void check_all_declared(std::uint32_t layers, std::uint32_t predicting);
  // What people should know of the file, a line each.
  const std::vector<std::string>& notes() const { return notes_; }
  void add_note(std::string note) { notes_.push_back(std::move(note)); }

  // Reads the vectors from the files. Throws std::system_error.
  void load();

  // Copies a segment to its place in memory. Where it has whole panels that the kernels can use
  // packed (kernels::can_pack), the copy is packed. The threads of the team share its rows: packing
  // takes several times as long as copying, and a step waits for it.
  void pack(std::size_t turn, std::span<const std::byte> from, std::byte* to,
            topology::ThreadTeam& team) const;

  const std::vector<streaming::Segment>& segments() const { return segments_; }
  std::size_t vector_bytes() const;  // memory that the vectors take, and the signs of rotations
  // Memory that the lists of segments take, and the matrices that were declared: a mixture of 512
  // experts has 70,000 of them.
  std::size_t list_bytes() const;
  const std::vector<streaming::ExpertGroup>& expert_groups() const { return expert_groups_; }
  // Bytes of the segments that a step of `tokens` tokens reads, on average, if a token takes any
  // expert as likely as any other; and the weights in those that one token multiplies with.
  std::size_t active_bytes(std::size_t tokens) const;
  std::size_t active_expert_bytes(std::size_t tokens) const;  // the part of it that is experts
  std::size_t active_weights() const;
  const gguf::Model& model() const { return model_; }
  const Rotations& rotations() const { return rotations_; }

 private:
  struct PendingVector {
    const gguf::TensorInfo* tensor;
    std::vector<float> values;  // never resized: spans point into it
  };

  const gguf::TensorInfo& declare(const std::string& name, std::initializer_list<std::size_t> dims);
  Vector scale_beside(const std::string& weight, std::size_t place, std::size_t places);
  // The sum of count(turn) over turns [begin, end).
  template <typename F>
  std::size_t sum_turns(std::size_t begin, std::size_t end, F&& count) const;
  // The same over the experts that a step of `tokens` tokens reads, and over all that it reads.
  template <typename F>
  std::size_t sum_experts(std::size_t tokens, F&& count) const;
  template <typename F>
  std::size_t sum_active(std::size_t tokens, F&& count) const;

  const gguf::Model& model_;
  Rotations rotations_;
  std::size_t slice_bytes_max_;
  // The matrix rows that a segment holds.
  struct SegmentRows {
    kernels::BlockType type;
    std::size_t rows, columns;
    bool may_pack = true;
  };
  std::vector<streaming::Segment> segments_;
  std::vector<SegmentRows> segment_rows_;  // by turn
  std::size_t matrices_ = 0;               // declared
  std::vector<streaming::ExpertGroup> expert_groups_;
  std::vector<Table> tables_;
  std::vector<PendingVector> vectors_;
  std::uint64_t vector_numbers_ = 0;                   // of all of them
  std::map<std::string, Vector, std::less<>> scales_;  // of matrices, by their own names
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
  Matrix rows_of_matrix(const std::string& name, std::initializer_list<std::size_t> dims,
                        std::size_t first, std::size_t count) const {
    return layout_.rows_of_matrix(prefix_ + name, dims, first, count);
  }
  Vector vector(const std::string& name, std::initializer_list<std::size_t> dims) const {
    return layout_.vector(prefix_ + name, dims);
  }
  Vector optional_vector(const std::string& name, std::initializer_list<std::size_t> dims) const {
    return layout_.optional_vector(prefix_ + name, dims);
  }
  void leave_aside(const std::string& name) const { layout_.leave_aside(prefix_ + name); }
  std::string name(const std::string& tensor) const { return prefix_ + tensor; }  // in the file
  std::size_t next_turn() const { return layout_.segments().size(); }
  std::optional<std::size_t> group_experts(std::size_t first, std::size_t experts,
                                           std::size_t used) const {
    return layout_.group_experts(first, experts, used);
  }
  bool has(const std::string& name) const { return layout_.has(prefix_ + name); }
  // The number of rows of a matrix; 0 when there is no such tensor.
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

// Reads rows of the token embedding from the file on demand: a step needs one row per token, so the
// table never has to be in memory.
class EmbeddingTable {
 public:
  // Throws ModelError for an unsupported type, std::system_error when the file cannot be opened.
  // `rotation` is that of the rows, or null; it must outlive the table.
  EmbeddingTable(const gguf::Model& model, const gguf::TensorInfo& tensor,
                 const Rotation* rotation = nullptr);

  std::size_t row_bytes() const { return buffer_.size(); }

  // out[0..columns) = row `token`. Throws std::system_error when it cannot be read. The second one
  // reads into `bytes`, [row_bytes()], and may run on several threads.
  void row(std::size_t token, float* out) { row(token, buffer_, out); }
  void row(std::size_t token, std::span<std::byte> bytes, float* out) const;

  // Asks the system to read the row; returns at once.
  void expect(std::size_t token) const { file_.expect(row_offset(token), row_bytes()); }

 private:
  std::uint64_t row_offset(std::size_t token) const { return offset_ + token * buffer_.size(); }

  FileBytes file_;
  kernels::BlockType type_;
  std::uint64_t offset_;  // of the first row
  std::size_t columns_;
  const Rotation* rotation_;
  std::vector<std::byte> buffer_;  // one row
};

}  // namespace sluice::model
