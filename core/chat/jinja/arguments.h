// The arguments of a filter, method or function, by the names of its parameters.
#pragma once

#include <array>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <string_view>

#include "core/chat/jinja/printing.h"
#include "core/chat/jinja/value.h"

namespace sluice::chat::jinja {

template <std::size_t n>
class Parameters {
 public:
  // Throws Failure when there are too many arguments, or when one has no parameter.
  Parameters(const Arguments& arguments, const std::array<std::string_view, n>& names)
      : names_(names) {
    if (arguments.positional.size() > n) {
      throw Failure(fmt::format("{} arguments are too many; it takes up to {}",
                                arguments.positional.size(), n));
    }
    for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
      values_[i] = &arguments.positional[i];
    }
    for (const auto& [name, value] : arguments.named) {
      std::size_t i = 0;
      while (i < n && names_[i] != name.bytes()) ++i;
      if (i == n) throw Failure(fmt::format("it takes no argument '{}'", name.bytes()));
      values_[i] = &value;
    }
  }

  bool has(std::size_t i) const { return values_[i] != nullptr; }
  const Value& at(std::size_t i) const {
    if (!has(i)) throw Failure(fmt::format("the argument '{}' is missing", names_[i]));
    return *values_[i];
  }
  Value value_or(std::size_t i, Value other) const { return has(i) ? *values_[i] : other; }

  const Text& text(std::size_t i) const {
    const Text* text = text_of(at(i));
    if (text == nullptr) {
      throw Failure(
          fmt::format("the argument '{}' must be a text, not '{}'", names_[i], type_name(at(i))));
    }
    return *text;
  }
  // The text of an argument; null when it is absent or none.
  const Text* optional_text(std::size_t i) const {
    return has(i) && !is<None>(at(i)) ? &text(i) : nullptr;
  }
  std::int64_t integer_or(std::size_t i, std::int64_t other) const {
    if (!has(i)) return other;
    const auto integer = as_integer(at(i));
    if (!integer) {
      throw Failure(fmt::format("the argument '{}' must be an integer, not '{}'", names_[i],
                                type_name(at(i))));
    }
    return *integer;
  }
  bool truth_or(std::size_t i, bool other) const { return has(i) ? truth(at(i)) : other; }

 private:
  std::array<std::string_view, n> names_;
  std::array<const Value*, n> values_{};
};

}  // namespace sluice::chat::jinja
