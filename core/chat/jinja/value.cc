#include "core/chat/jinja/value.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>

#include "core/chat/jinja/characters.h"

namespace sluice::chat::jinja {
namespace {

constexpr int comparison_depth_max = 100;

void check_depth(int depth) {
  if (depth > comparison_depth_max) throw Failure("lists are nested too deeply to be compared");
}

void check_key(const Value& key) {
  const SequenceRef* sequence = std::get_if<SequenceRef>(&key);
  const bool is_list = sequence != nullptr && (*sequence)->kind() == Sequence::Kind::list;
  if (is_list || is<DictRef>(key)) {
    throw Failure("a " + std::string(type_name(key)) + " cannot be a key");
  }
}

// Integers are compared exactly. The values must be numbers.
std::partial_ordering order_of(const Value& left, const Value& right) {
  const auto left_integer = as_integer(left);
  const auto right_integer = as_integer(right);
  if (left_integer && right_integer) return *left_integer <=> *right_integer;
  const auto* left_large = std::get_if<LargeInteger>(&left);
  const auto* right_large = std::get_if<LargeInteger>(&right);
  if (left_large != nullptr && right_large != nullptr) {
    return left_large->value <=> right_large->value;
  }
  if (left_large != nullptr && right_integer) return std::partial_ordering::greater;
  if (left_integer && right_large != nullptr) return std::partial_ordering::less;
  return *as_number(left) <=> *as_number(right);
}

bool equal_sequences(const Sequence& left, const Sequence& right, int depth) {
  left.heap().work(1 + left.items().size());
  if (left.kind() != right.kind() || left.kind() == Sequence::Kind::iterator) return false;
  return std::ranges::equal(left.items(), right.items(), [depth](const Value& a, const Value& b) {
    return equal(a, b, depth + 1);
  });
}

bool equal_dicts(const Dict& left, const Dict& right, int depth) {
  if (left.entries().size() != right.entries().size()) return false;
  return std::ranges::all_of(left.entries(), [&](const Dict::Entry& entry) {
    const Value* other = right.find(entry.first);
    return other != nullptr && equal(entry.second, *other, depth + 1);
  });
}

[[noreturn]] void fail_order(const Value& left, const Value& right) {
  throw Failure("'" + std::string(type_name(left)) + "' and '" + std::string(type_name(right)) +
                "' have no order");
}

}  // namespace

std::string_view type_name(const Value& value) {
  if (const auto* sequence = std::get_if<SequenceRef>(&value)) return (*sequence)->kind_name();
  static constexpr std::array<std::string_view, std::variant_size_v<Value>> names = {
      "undefined", "NoneType", "bool", "int",       "int",      "float",
      "str",       "list",     "dict", "namespace", "function", "loop"};
  return names[value.index()];
}

Object::Object(Heap& heap, std::size_t bytes) : heap_(heap), bytes_(bytes) {
  heap_.count(bytes);
  next_ = heap_.first_;
  if (next_ != nullptr) next_->previous_ = this;
  heap_.first_ = this;
}

Object::~Object() {
  (previous_ != nullptr ? previous_->next_ : heap_.first_) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
  heap_.bytes_ -= bytes_;
}

void Object::grow(std::size_t bytes) {
  heap_.count(bytes);
  bytes_ += bytes;
}

void Object::shrink(std::size_t bytes) {
  heap_.bytes_ -= bytes;
  bytes_ -= bytes;
}

void Object::bury(std::vector<Value>&& values) noexcept {
  heap_.bury(std::move(values));
}

// The objects that are left hold each other: each drops what it holds.
Heap::~Heap() {
  std::vector<std::shared_ptr<Object>> left;
  for (Object* object = first_; object != nullptr; object = object->next_) {
    left.push_back(object->shared_from_this());
  }
  for (const std::shared_ptr<Object>& object : left) object->clear();
}

void Heap::count(std::size_t bytes) {
  if (bytes > bytes_max_ - bytes_) {
    throw Failure("it takes more than " + std::to_string(bytes_max_ >> 20U) + " MiB of memory");
  }
  bytes_ += bytes;
}

void Heap::work(std::size_t steps) {
  if (steps > steps_left_) throw Failure("it takes too many steps");
  steps_left_ -= steps;
}

// Without this, freeing a list in a list in a list ... would need stack in proportion to its depth.
void Heap::bury(std::vector<Value>&& values) {
  if (values.empty()) return;
  if (buried_.empty()) {
    buried_ = std::move(values);
  } else {
    std::ranges::move(values, std::back_inserter(buried_));
  }
  values.clear();
  if (is_digging_) return;
  is_digging_ = true;
  while (!buried_.empty()) {
    const Value value = std::move(buried_.back());
    buried_.pop_back();
  }
  is_digging_ = false;
}

Value Heap::string(Text text, bool is_safe) {
  return StringRef(make<String>(std::move(text), is_safe));
}
Value Heap::list(std::vector<Value> items) {
  return make<Sequence>(Sequence::Kind::list, std::move(items));
}
Value Heap::tuple(std::vector<Value> items) {
  return make<Sequence>(Sequence::Kind::tuple, std::move(items));
}
Value Heap::iterator(std::vector<Value> items) {
  return make<Sequence>(Sequence::Kind::iterator, std::move(items));
}

Value Heap::undefined(std::string_view name) {
  return Undefined{make<String>(Text(name, Origin::markup), false)};
}

Sequence::Sequence(Heap& heap, Kind kind, std::vector<Value> items)
    : Object(heap, sizeof(Sequence) + items.size() * sizeof(Value)),
      kind_(kind),
      items_(std::move(items)) {}

std::string_view Sequence::kind_name() const {
  static constexpr std::array<std::string_view, 7> names = {
      "list", "tuple", "range", "generator", "dict_keys", "dict_values", "dict_items"};
  return names[static_cast<std::size_t>(kind_)];
}

std::vector<Value> Sequence::walk() {
  if (kind_ == Kind::iterator) return std::exchange(items_, {});
  return items_;
}

std::vector<Value>& Sequence::change(std::size_t more) {
  grow(more * sizeof(Value));
  return items_;
}

const Value* Dict::find(const Value& key) const {
  if (const Text* text = text_of(key)) return find(std::string_view(text->bytes()));
  check_key(key);
  heap().work(1 + entries_.size() / 8);
  for (const auto& [known, value] : entries_) {
    if (equal(known, key)) return &value;
  }
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  heap().work(1 + entries_.size() / 8);
  for (const auto& [known, value] : entries_) {
    const Text* text = text_of(known);
    if (text == nullptr || text->size() != key.size()) continue;
    heap().work(key.size() / 64);
    if (text->bytes() == key) return &value;
  }
  return nullptr;
}

void Dict::set(const Value& key, Value value) {
  if (const Value* known = find(key)) {
    const_cast<Value&>(*known) = std::move(value);
  } else {
    add(key, std::move(value));
  }
}

void Dict::add(Value key, Value value) {
  grow(sizeof(Entry));
  entries_.emplace_back(std::move(key), std::move(value));
}

std::optional<Value> Dict::remove(const Value& key) {
  check_key(key);
  heap().work(1 + entries_.size() / 8);
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (!equal(entry->first, key)) continue;
    Value value = std::move(entry->second);
    entries_.erase(entry);
    return value;
  }
  return std::nullopt;
}

void Dict::clear() {
  std::vector<Value> values;
  values.reserve(2 * entries_.size());
  for (auto& [key, value] : entries_) {
    values.push_back(std::move(key));
    values.push_back(std::move(value));
  }
  entries_.clear();
  bury(std::move(values));
}

void Loop::clear() {
  bury(std::move(items));
  if (last_changed) bury(std::move(*last_changed));
  recurse.reset();
}

bool is_safe(const Value& value) {
  const StringRef* string = std::get_if<StringRef>(&value);
  return string != nullptr && (*string)->is_safe();
}

std::optional<std::int64_t> as_integer(const Value& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer;
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean ? 1 : 0;
  return std::nullopt;
}

std::optional<double> as_number(const Value& value) {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* large = std::get_if<LargeInteger>(&value)) {
    return static_cast<double>(large->value);
  }
  if (const auto integer = as_integer(value)) return static_cast<double>(*integer);
  return std::nullopt;
}

void fail_undefined(const Value& undefined) {
  const auto& name = std::get<Undefined>(undefined).name;
  throw Failure(name ? name->bytes() + " is undefined" : std::string("a value is undefined"));
}

bool truth(const Value& value) {
  if (const auto* boolean = std::get_if<bool>(&value)) return *boolean;
  if (const auto number = as_number(value)) return *number != 0;
  if (const Text* text = text_of(value)) return !text->empty();
  if (const auto* dict = std::get_if<DictRef>(&value)) return !(*dict)->entries().empty();
  if (const auto* sequence = std::get_if<SequenceRef>(&value)) {
    return !(*sequence)->has_length() || !(*sequence)->items().empty();
  }
  return !is<Undefined>(value) && !is<None>(value);
}

bool equal(const Value& left, const Value& right, int depth) {
  check_depth(depth);
  if (as_number(left) && as_number(right)) return std::is_eq(order_of(left, right));
  if (left.index() != right.index()) return false;
  if (is<Undefined>(left) || is<None>(left)) return true;
  if (const auto* string = std::get_if<StringRef>(&left)) {
    const std::string& bytes = (*string)->bytes();
    (*string)->heap().work(1 + bytes.size() / 64);
    return bytes == text_of(right)->bytes();
  }
  if (identical(left, right)) return true;
  if (const auto* sequence = std::get_if<SequenceRef>(&left)) {
    return equal_sequences(**sequence, *std::get<SequenceRef>(right), depth);
  }
  const auto* dict = std::get_if<DictRef>(&left);
  return dict != nullptr && equal_dicts(**dict, *std::get<DictRef>(right), depth);
}

bool less(const Value& left, const Value& right, int depth) {
  check_depth(depth);
  if (is<Undefined>(left)) fail_undefined(left);
  if (is<Undefined>(right)) fail_undefined(right);
  if (as_number(left) && as_number(right)) return std::is_lt(order_of(left, right));
  const Text* left_text = text_of(left);
  const Text* right_text = text_of(right);
  if (left_text != nullptr && right_text != nullptr) {
    std::get<StringRef>(left)->heap().work(1 + left_text->size() / 64);
    return left_text->bytes() < right_text->bytes();
  }
  const auto* left_items = std::get_if<SequenceRef>(&left);
  const auto* right_items = std::get_if<SequenceRef>(&right);
  if (left_items == nullptr || right_items == nullptr ||
      (*left_items)->kind() != (*right_items)->kind() ||
      (*left_items)->kind() > Sequence::Kind::tuple) {
    fail_order(left, right);
  }
  const std::vector<Value>& a = (*left_items)->items();
  const std::vector<Value>& b = (*right_items)->items();
  (*left_items)->heap().work(1 + std::min(a.size(), b.size()) / 8);
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (!equal(a[i], b[i], depth + 1)) return less(a[i], b[i], depth + 1);
  }
  return a.size() < b.size();
}

bool contains(const Value& container, const Value& item) {
  if (const Text* text = text_of(container)) {
    const Text* part = text_of(item);
    if (is<Undefined>(item)) fail_undefined(item);
    if (part == nullptr) {
      throw Failure("only a text can be in a text, not '" + std::string(type_name(item)) + "'");
    }
    return find_text(text->bytes(), part->bytes()) != std::string_view::npos;
  }
  if (const auto* dict = std::get_if<DictRef>(&container)) return (*dict)->find(item) != nullptr;
  if (is<Undefined>(container)) return false;
  if (const auto* sequence = std::get_if<SequenceRef>(&container)) {
    const auto same = [&item](const Value& other) { return equal(other, item); };
    return std::ranges::any_of((*sequence)->items(), same);
  }
  throw Failure("'" + std::string(type_name(container)) + "' holds nothing to be searched");
}

bool identical(const Value& left, const Value& right) {
  if (left.index() != right.index()) return false;
  return std::visit(
      [&right]<class T>(const T& value) {
        const T& other = std::get<T>(right);
        if constexpr (std::is_same_v<T, None>) {
          return true;
        } else if constexpr (std::is_same_v<T, Undefined>) {
          return value.name == other.name;
        } else if constexpr (std::is_same_v<T, StringRef>) {
          return value->bytes() == other->bytes() && value->is_safe() == other->is_safe();
        } else {
          return value == other;
        }
      },
      left);
}

std::int64_t length(const Value& value) {
  if (is<Undefined>(value)) return 0;
  if (const Text* text = text_of(value)) {
    return static_cast<std::int64_t>(count_characters(text->bytes()));
  }
  if (const auto* dict = std::get_if<DictRef>(&value)) {
    return static_cast<std::int64_t>((*dict)->entries().size());
  }
  if (const auto* sequence = std::get_if<SequenceRef>(&value)) {
    if ((*sequence)->has_length()) return static_cast<std::int64_t>((*sequence)->items().size());
  }
  if (const auto* loop = std::get_if<LoopRef>(&value)) {
    return static_cast<std::int64_t>((*loop)->items.size());
  }
  throw Failure("'" + std::string(type_name(value)) + "' has no length");
}

bool is_iterable(const Value& value) {
  return is<Undefined>(value) || is<StringRef>(value) || is<SequenceRef>(value) ||
         is<DictRef>(value);
}

std::size_t weight(const Value& value) {
  if (const Text* text = text_of(value)) return text->size() / 8;
  if (const auto* sequence = std::get_if<SequenceRef>(&value))
    return (*sequence)->items().size() / 8;
  if (const auto* dict = std::get_if<DictRef>(&value)) return (*dict)->entries().size() / 8;
  return 0;
}

std::vector<Value> walk(Heap& heap, const Value& value) {
  heap.work(weight(value));
  if (is<Undefined>(value)) return {};
  if (const auto* sequence = std::get_if<SequenceRef>(&value)) return (*sequence)->walk();
  std::vector<Value> items;
  if (const auto* dict = std::get_if<DictRef>(&value)) {
    for (const auto& [key, unused] : (*dict)->entries()) items.push_back(key);
    return items;
  }
  const Text* text = text_of(value);
  if (text == nullptr) throw Failure("'" + std::string(type_name(value)) + "' is not iterable");
  for (std::size_t at = 0; at < text->size();) {
    const std::size_t end = at + character_bytes(text->bytes(), at);
    items.push_back(heap.string(text->slice(at, end), is_safe(value)));
    at = end;
  }
  return items;
}

}  // namespace sluice::chat::jinja
