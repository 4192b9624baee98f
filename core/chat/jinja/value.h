// The values of a template: those of Python, as far as templates use them.
//
// Values that hold other values are objects on the heap of one rendering. The heap counts their
// bytes and the work that is done. At its end it frees all of them, even those that hold each
// other. Strings are immutable; lists and dictionaries are shared by reference. Not thread-safe;
// each rendering has its own heap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/chat/jinja/text.h"

namespace sluice::chat::jinja {

class String;
class Sequence;
class Dict;
class Namespace;
class Callable;
class Loop;

using StringRef = std::shared_ptr<const String>;
struct Undefined {
  StringRef name;  // for messages; null when there is none
};
struct None {};
// An integer from 2^63 to 2^64 - 1, as data may have one: it is printed and compared, and nothing
// is calculated with it.
struct LargeInteger {
  std::uint64_t value;
  bool operator==(const LargeInteger&) const = default;
};

using SequenceRef = std::shared_ptr<Sequence>;
using DictRef = std::shared_ptr<Dict>;
using NamespaceRef = std::shared_ptr<Namespace>;
using CallableRef = std::shared_ptr<const Callable>;
using LoopRef = std::shared_ptr<Loop>;

using Value = std::variant<Undefined, None, bool, std::int64_t, LargeInteger, double, StringRef,
                           SequenceRef, DictRef, NamespaceRef, CallableRef, LoopRef>;

template <class T>
bool is(const Value& value) {
  return std::holds_alternative<T>(value);
}

// What "an object of type X" is called in messages: "str", "list", ...
std::string_view type_name(const Value& value);

class Heap;

// An object on the heap. Its bytes count from its construction on.
class Object : public std::enable_shared_from_this<Object> {
 public:
  Object(Heap& heap, std::size_t bytes);
  virtual ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  // Drops what the object holds, so that objects that hold each other can be freed.
  virtual void clear() {}
  Heap& heap() const { return heap_; }

 protected:
  void grow(std::size_t bytes);
  void shrink(std::size_t bytes);  // by at most what it has grown
  void bury(std::vector<Value>&& values) noexcept;

 private:
  friend class Heap;
  Heap& heap_;
  std::size_t bytes_;
  Object* previous_ = nullptr;
  Object* next_ = nullptr;
};

class Heap {
 public:
  // Throws Failure when objects need more than `bytes_max` together, or when more than `steps_max`
  // of work is done.
  Heap(std::size_t bytes_max, std::size_t steps_max)
      : bytes_max_(bytes_max), steps_left_(steps_max) {}
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  template <class T, class... Arguments>
  std::shared_ptr<T> make(Arguments&&... arguments) {
    return std::make_shared<T>(*this, std::forward<Arguments>(arguments)...);
  }
  Value string(Text text, bool is_safe = false);
  Value string(std::string_view text) { return string(Text(text, Origin::markup)); }
  Value list(std::vector<Value> items);
  Value tuple(std::vector<Value> items);
  Value iterator(std::vector<Value> items);  // can be walked only once
  Value undefined(std::string_view name);    // `name` is for messages

  // Counts work: a step is an operation on a value, a look at some 8 bytes of a text, items of a
  // list or entries of a dictionary, or a copy of some 64 bytes.
  void work(std::size_t steps);

 private:
  friend class Object;
  void count(std::size_t bytes);
  void bury(std::vector<Value>&& values);

  std::size_t bytes_max_;
  std::size_t steps_left_;
  std::size_t bytes_ = 0;
  Object* first_ = nullptr;
  std::vector<Value> buried_;  // values that are freed one after the other, without recursion
  bool is_digging_ = false;
};

class String : public Object {
 public:
  // `is_safe`: the result of the filters `safe` and `escape` (Python's Markup). Text that is added
  // to it is escaped as HTML.
  String(Heap& heap, Text text, bool is_safe)
      : Object(heap, sizeof(String) + text.memory_bytes()),
        text_(std::move(text)),
        is_safe_(is_safe) {}
  const Text& text() const { return text_; }
  const std::string& bytes() const { return text_.bytes(); }
  bool is_safe() const { return is_safe_; }

 private:
  Text text_;
  bool is_safe_;
};

class Sequence : public Object {
 public:
  enum class Kind { list, tuple, range, iterator, keys, values, items };
  Sequence(Heap& heap, Kind kind, std::vector<Value> items);
  ~Sequence() override { bury(std::move(items_)); }

  Kind kind() const { return kind_; }
  std::string_view kind_name() const;  // of its type in Python
  bool is_indexed() const { return kind_ <= Kind::range; }
  bool has_length() const { return kind_ != Kind::iterator; }
  const std::vector<Value>& items() const { return items_; }
  // The items; an iterator gives them only once.
  std::vector<Value> walk();
  // For methods that change a list. `more` is the number of items that will be added.
  std::vector<Value>& change(std::size_t more);
  void clear() override { bury(std::move(items_)); }

 private:
  Kind kind_;
  std::vector<Value> items_;
};

// A pair of the filter `groupby`: a tuple whose items have names too.
class Group : public Sequence {
 public:
  Group(Heap& heap, Value grouper, Value list)
      : Sequence(heap, Kind::tuple, {std::move(grouper), std::move(list)}) {}
  const Value& grouper() const { return items()[0]; }
  const Value& list() const { return items()[1]; }
};

class Dict : public Object {
 public:
  using Entry = std::pair<Value, Value>;
  explicit Dict(Heap& heap) : Object(heap, sizeof(Dict)) {}
  ~Dict() override { Dict::clear(); }

  const std::vector<Entry>& entries() const { return entries_; }  // in order of insertion
  // All throw Failure when the key is a list or a dictionary.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(const Value& key, Value value);
  void add(Value key, Value value);  // the key must be new
  std::optional<Value> remove(const Value& key);
  void clear() override;

 private:
  std::vector<Entry> entries_;
};

// namespace(...): attributes that inner scopes can assign.
class Namespace : public Object {
 public:
  Namespace(Heap& heap, DictRef initial)
      : Object(heap, sizeof(Namespace)), attributes(std::move(initial)) {}
  void clear() override { attributes.reset(); }
  DictRef attributes;
};

struct Arguments {
  // The name has an origin too: behind ** stand keys that anybody may have chosen, and `kwargs` and
  // dict() make keys of names.
  struct Named {
    Text name;
    Value value;
    std::string_view bytes() const { return name.bytes(); }
  };
  std::vector<Value> positional;
  std::vector<Named> named;
};

class Evaluator;

// A macro, a global function or a bound method.
class Callable : public Object {
 public:
  using Function = std::function<Value(Evaluator&, Arguments)>;
  Callable(Heap& heap, std::string name, Function function)
      : Object(heap, sizeof(Callable)), name_(std::move(name)), function_(std::move(function)) {}
  const std::string& name() const { return name_; }
  Value call(Evaluator& evaluator, Arguments arguments) const {
    if (!function_) throw Failure("'" + name_ + "' can no longer be called");
    const Function function = function_;  // a copy, in case the call frees its holder
    return function(evaluator, std::move(arguments));
  }
  void clear() override { function_ = nullptr; }

 private:
  std::string name_;
  Function function_;
};

// The variable `loop`.
class Loop : public Object {
 public:
  Loop(Heap& heap, std::vector<Value> all, std::int64_t depth, CallableRef recursion)
      : Object(heap, sizeof(Loop) + all.size() * sizeof(Value)),
        items(std::move(all)),
        depth0(depth),
        recurse(std::move(recursion)) {}
  ~Loop() override { Loop::clear(); }
  void clear() override;

  std::vector<Value> items;
  std::size_t index0 = 0;
  std::int64_t depth0;
  CallableRef recurse;  // null unless the loop is recursive
  std::optional<std::vector<Value>> last_changed;
};

// Python's rules. They throw Failure where Python raises an error.
bool truth(const Value& value);
bool equal(const Value& left, const Value& right, int depth = 0);
bool less(const Value& left, const Value& right, int depth = 0);
bool contains(const Value& container, const Value& item);
bool identical(const Value& left, const Value& right);
std::int64_t length(const Value& value);
std::vector<Value> walk(Heap& heap, const Value& value);  // what a loop over the value sees
bool is_iterable(const Value& value);
std::size_t weight(const Value& value);  // the work that it takes to look at all of it once

inline const Text* text_of(const Value& value) {
  const StringRef* string = std::get_if<StringRef>(&value);
  return string != nullptr ? &(*string)->text() : nullptr;
}
bool is_safe(const Value& value);
std::optional<std::int64_t> as_integer(const Value& value);  // of booleans too; not of large ones
std::optional<double> as_number(const Value& value);         // of floats and large integers too

[[noreturn]] void fail_undefined(const Value& undefined);

}  // namespace sluice::chat::jinja
