#include "core/chat/jinja/template.h"

#include <utility>

#include "core/chat/jinja/evaluator.h"
#include "core/chat/jinja/parser.h"
#include "core/chat/jinja/value.h"
#include "core/text/quoted.h"

namespace sluice::chat::jinja {
namespace {

constexpr int data_depth_max = 100;
constexpr std::size_t reason_bytes_max = 2000;  // raise_exception may have any text

// Turns JSON values into values of the template.
class Importer {
 public:
  Importer(Heap& heap, Origin origin, const RenderOptions& options)
      : heap_(heap), origin_(origin), options_(options) {}

  Value import(const Json& json, std::string_view key, int depth = 0) {
    if (depth > data_depth_max) throw Failure("the data is nested too deeply");
    switch (json.type()) {
      case Json::value_t::boolean:
        return json.get<bool>();
      case Json::value_t::number_float:
        return json.get<double>();
      case Json::value_t::number_integer:
        return json.get<std::int64_t>();
      case Json::value_t::number_unsigned:
        return integer(json.get<std::uint64_t>());
      case Json::value_t::string:
        return text(json.get_ref<const std::string&>(), key);
      case Json::value_t::array:
        return list(json, key, depth);
      case Json::value_t::object:
        return dict(json, depth);
      default:
        return None{};
    }
  }

 private:
  static Value integer(std::uint64_t number) {
    if (!std::in_range<std::int64_t>(number)) return LargeInteger{number};
    return static_cast<std::int64_t>(number);
  }

  Value text(const std::string& bytes, std::string_view key) {
    const bool is_trusted = options_.is_trusted && options_.is_trusted(key, bytes);
    return heap_.string(Text(bytes, is_trusted ? Origin::markup : origin_));
  }

  Value list(const Json& json, std::string_view key, int depth) {
    std::vector<Value> items;
    items.reserve(json.size());
    for (const Json& item : json) items.push_back(import(item, key, depth + 1));
    return heap_.list(std::move(items));
  }

  Value dict(const Json& json, int depth) {
    const DictRef dict = heap_.make<Dict>();
    for (const auto& [key, value] : json.items()) {
      dict->add(heap_.string(Text(key, origin_)), import(value, key, depth + 1));
    }
    return dict;
  }

  Heap& heap_;
  Origin origin_;
  const RenderOptions& options_;
};

}  // namespace

Template::Template(std::string_view source) : statements_(parse(source)) {}

Text Template::render(const std::vector<Variable>& variables, const RenderOptions& options) const {
  Heap heap(options.memory_bytes_max, options.steps_max);
  Evaluator evaluator(heap, options.now);
  try {
    for (const Variable& variable : variables) {
      Importer importer(heap, variable.origin, options);
      evaluator.set_variable(variable.name, importer.import(variable.value, variable.name));
    }
    return evaluator.run(statements_);
  } catch (const Failure& failure) {
    throw RenderError(evaluator.place() + ": " + text::printable(failure.what(), reason_bytes_max));
  }
}

}  // namespace sluice::chat::jinja
