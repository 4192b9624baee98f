// Scope guards of the evaluator: a level of nesting, a scope, a place for the output. Each undoes
// its effect at its end, also when a template fails.
#pragma once

#include <memory>
#include <utility>

#include "core/chat/jinja/evaluator.h"

namespace sluice::chat::jinja {

class Evaluator::Level {
 public:
  explicit Level(Evaluator& evaluator) : evaluator_(evaluator) {
    evaluator_.heap_.work(1);
    if (evaluator_.depth_ >= depth_max) throw Failure("it is nested too deeply");
    ++evaluator_.depth_;
  }
  ~Level() { --evaluator_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  static constexpr int depth_max = 1500;
  Evaluator& evaluator_;
};

class Evaluator::ScopeGuard {
 public:
  // Opens a scope inside of `parent`: the evaluator's scope, or the one where a macro was defined.
  ScopeGuard(Evaluator& evaluator, const std::shared_ptr<Scope>& parent)
      : evaluator_(evaluator),
        before_(std::exchange(evaluator.scope_, evaluator.heap_.make<Scope>(parent))) {}
  ~ScopeGuard() { evaluator_.scope_ = std::move(before_); }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Evaluator& evaluator_;
  std::shared_ptr<Scope> before_;
};

class Evaluator::OutputGuard {
 public:
  OutputGuard(Evaluator& evaluator, BlockText& text)
      : evaluator_(evaluator), before_(std::exchange(evaluator.out_, &text)) {}
  ~OutputGuard() { evaluator_.out_ = before_; }
  OutputGuard(const OutputGuard&) = delete;
  OutputGuard& operator=(const OutputGuard&) = delete;

 private:
  Evaluator& evaluator_;
  BlockText* before_;
};

}  // namespace sluice::chat::jinja
