// What a user asks for, and the constraints that were made of it for one vocabulary.
//
// Threads: a library may be used by any number of threads.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "core/constrain/budget.h"
#include "core/constrain/call_grammar.h"
#include "core/constrain/constraint.h"
#include "core/tokenizer/tokenizer.h"

namespace sluice::constrain {

// The form that a text has to have.
struct TextForm {
  enum class Kind : unsigned char { free, json_object, json_schema, gbnf, calls };
  Kind kind = Kind::free;
  std::string text = {};  // the schema, the grammar, or the tools
  std::shared_ptr<const CallSyntax> calls = nullptr;

  bool operator==(const TextForm&) const = default;
};

// Throws GrammarError, also for a schema that is not JSON, and for a form that takes more than the
// budget. Not for a free text.
Grammar compile(const TextForm& form, CompileBudget& budget);
Grammar compile(const TextForm& form);

class Library {
 public:
  static constexpr std::size_t kept_max = 4;  // constraints that are kept for later

  // `tokenizer` must outlive the library. `marks`: the control tokens that calls have in them. The
  // trie is made when it is first needed.
  explicit Library(const tokenizer::Tokenizer& tokenizer, std::vector<tokenizer::Token> marks = {})
      : tokenizer_(tokenizer), marks_(std::move(marks)) {}

  // Throws as compile() does.
  std::shared_ptr<const Constraint> get(const TextForm& form);

  // The most bytes that compiling takes for a moment; more is refused.
  static constexpr std::size_t compile_bytes = CompileBudget::compile_bytes_max;

  // The most bytes that the library holds once get() was called; 0 before.
  std::size_t bytes_max() const;

 private:
  struct Kept {
    TextForm form;
    std::shared_ptr<const Constraint> constraint;
  };
  const tokenizer::Tokenizer& tokenizer_;
  std::vector<tokenizer::Token> marks_;
  mutable base::Mutex mutex_;
  std::shared_ptr<const TokenTrie> trie_ SLUICE_GUARDED_BY(mutex_);
  std::list<Kept> kept_ SLUICE_GUARDED_BY(mutex_);  // the newest first
};

}  // namespace sluice::constrain
