#include "core/constrain/library.h"

#include <algorithm>
#include <utility>

#include "core/constrain/gbnf.h"
#include "core/constrain/grammar_error.h"
#include "core/constrain/json_schema.h"

namespace sluice::constrain {

Grammar compile(const TextForm& form, CompileBudget& budget) {
  if (form.kind == TextForm::Kind::gbnf) return compile_gbnf(form.text, budget);
  if (form.kind == TextForm::Kind::json_object) return compile_json_object(budget);
  if (form.kind == TextForm::Kind::calls) return compile_calls(*form.calls, form.text, budget);
  return compile_json_schema(parse_schema(form.text), budget);
}

Grammar compile(const TextForm& form) {
  CompileBudget budget;
  return compile(form, budget);
}

std::shared_ptr<const Constraint> Library::get(const TextForm& form) {
  const base::MutexLock lock(mutex_);
  const auto known = std::ranges::find(kept_, form, &Kept::form);
  if (known != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, known);
    return kept_.front().constraint;
  }
  Grammar grammar = compile(form);
  if (!trie_) trie_ = std::make_shared<const TokenTrie>(tokenizer_, marks_);
  kept_.push_front({form, std::make_shared<const Constraint>(std::move(grammar), trie_)});
  if (kept_.size() > kept_max) kept_.pop_back();
  return kept_.front().constraint;
}

std::size_t Library::bytes_max() const {
  const base::MutexLock lock(mutex_);
  if (!trie_) return 0;
  std::size_t bytes = trie_->bytes() + compile_bytes;
  for (const Kept& kept : kept_) bytes += kept.constraint->bytes_max() + kept.form.text.size();
  return bytes;
}

}  // namespace sluice::constrain
