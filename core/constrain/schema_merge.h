// Multiplies out allOf, anyOf, oneOf and $ref: a schema becomes a list of plain schemas. A value is
// valid if one of them accepts it.
//
// The calls of a merger lie at most `levels_max` within each other, whatever refers to whatever: a
// schema that would go deeper is refused.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/constrain/budget.h"
#include "core/constrain/plain_schema.h"

namespace sluice::constrain {

// Whether a keyword that is none of allOf, anyOf, oneOf and $ref says anything of what is valid, or
// is refused.
bool says_what_is_valid(std::string_view keyword);

// The ways in which a value can be valid, and the memory that they are counted with.
struct Ways {
  std::vector<Schema> list;
  HeldBytes held;
};

class SchemaMerger {
 public:
  static constexpr std::size_t ways_max = 256;  // that anyOf and oneOf leave, once multiplied out
  static constexpr unsigned levels_max = 64;

  // Both must outlive the merger.
  SchemaMerger(const Schema& root, CompileBudget& budget) : root_(root), budget_(budget) {}

  // None when a value cannot be valid. Throws GrammarError for keywords that are not supported.
  Ways ways(const Schema& schema, const std::string& pointer);

  // What a local reference stands for.
  const Schema& target(const Schema& reference, const std::string& pointer);

  // Throws unless no value that is written for one of the branches of a oneOf is valid for another.
  void check_disjoint(const std::vector<Ways>& branches, const std::string& pointer);

 private:
  const Schema* member_at(const Schema& value, const std::string& name);
  void expand(const Schema& schema, const std::string& pointer, Ways& ways);
  void expand_closed(const Schema& schema, const std::string& pointer, Ways& ways);
  void expand_branches(const Schema& list, const std::string& pointer, bool exclusive, Ways& ways);
  void check_choices(const std::vector<Schema>& ways);
  void check_apart(const Schema& written, const std::vector<Ways>& branches, std::size_t chosen,
                   const std::string& pointer);
  void multiply(Ways& ways, const std::vector<Schema>& more, const std::string& pointer);
  bool are_apart(const Schema& written, const Schema& other);
  bool values_are_apart(const Schema& written, const Schema& other);
  bool lacks_required(const Schema& written, const Schema& other);
  bool members_are_apart(const Schema& own, const Schema& theirs, const std::string& name);
  Ways copy_of(const Ways& ways);

  // A oneOf whose branches are multiplied out. Whether no value matches two of them is known only
  // once all else is: what stands beside it may add members to those that a branch names.
  struct OneOf {
    std::vector<Ways> branches;
    std::string pointer;
  };

  const Schema& root_;
  CompileBudget& budget_;
  std::vector<OneOf> one_ofs_;  // of the schema that ways() multiplies out
  unsigned levels_ = 0;         // of expand() within each other
  unsigned compared_ = 0;       // members within each other whose schemas are compared
};

}  // namespace sluice::constrain
