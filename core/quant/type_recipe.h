// A mixture of one's own: which format each matrix gets, line by line.
//
//   # the first layers matter most
//   *            = IQ3_S
//   *.attn_v.*   = Q5_K
//   blk.[0-3].*  = Q6_K
//
// A pattern stands for whole names: `*` for any characters, `?` for one, `[0-3]` for one of some.
// Of several that match a tensor the last one holds. What no pattern matches is left to whoever
// asks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/block_formats.h"

namespace sluice::quant {

// Whether a name matches a pattern, whole.
bool matches(std::string_view pattern, std::string_view name);

class TypeRecipe {
 public:
  TypeRecipe() = default;

  // `source` is the name of the text, for messages. Throws UsageError, naming the line: it is no
  // "pattern = type", or its type is none that can be written.
  static TypeRecipe parse(std::string_view text, std::string_view source);

  bool is_empty() const { return lines_.empty(); }

  // The format for a matrix whose rows have `columns` weights; nothing where no pattern matches.
  // Throws UsageError where blocks of that format do not divide the rows.
  std::optional<kernels::BlockType> type_for(std::string_view name, std::uint64_t columns);

  // Throws UsageError, naming the line, if a pattern has matched none of the names that type_for()
  // was asked for.
  void check_all_matched() const;

 private:
  struct Line {
    std::string pattern;
    kernels::BlockType type;
    std::string place;  // "FILE:3"
    bool has_matched = false;
  };
  std::vector<Line> lines_;
};

}  // namespace sluice::quant
