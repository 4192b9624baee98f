#include "core/model/keys.h"

#include <cmath>
#include <fmt/format.h>

namespace sluice::model {

Keys::Keys(const gguf::Model& model)
    : model_(model),
      metadata_(model.metadata()),
      architecture_(metadata_.require_string("general.architecture")),
      prefix_(architecture_ + ".") {}

std::uint32_t Keys::count(const std::string& name, std::uint32_t max) const {
  return checked(name, metadata_.require_u32(prefix_ + name), max);
}

std::optional<std::uint32_t> Keys::find_count(const std::string& name, std::uint32_t max) const {
  const auto value = metadata_.find_u32(prefix_ + name);
  if (!value) return std::nullopt;
  return checked(name, *value, max);
}

std::uint32_t Keys::count_or(const std::string& name, std::uint32_t otherwise,
                             std::uint32_t max) const {
  return find_count(name, max).value_or(otherwise);
}

std::uint32_t Keys::checked(const std::string& name, std::uint32_t value, std::uint32_t max) const {
  if (value == 0 || value > max) {
    throw error(name, fmt::format("is {}, expected 1 to {}", value, max));
  }
  return value;
}

std::vector<std::uint32_t> Keys::per_layer(const std::string& name, std::size_t layers,
                                           std::optional<std::uint32_t> otherwise) const {
  const gguf::Value* value = metadata_.find(prefix_ + name);
  if (value == nullptr && otherwise) return std::vector<std::uint32_t>(layers, *otherwise);
  if (value == nullptr || !value->is_array()) {
    const std::uint32_t same = metadata_.require_u32(prefix_ + name);
    if (same > width_max)
      throw error(name, fmt::format("is {}, expected 0 to {}", same, width_max));
    return std::vector<std::uint32_t>(layers, same);
  }
  const gguf::IntegerArray array = metadata_.require_integers(prefix_ + name);
  if (array.size() < layers) {
    throw error(name, fmt::format("has {} elements for {} layers", array.size(), layers));
  }
  std::vector<std::uint32_t> out;
  for (std::size_t i = 0; i < layers; ++i) {
    if (array[i] < 0 || array[i] > width_max) {
      throw error(name,
                  fmt::format("has {} as element {}, expected 0 to {}", array[i], i, width_max));
    }
    out.push_back(static_cast<std::uint32_t>(array[i]));
  }
  return out;
}

std::vector<bool> Keys::layer_pattern(
    const std::string& name, std::size_t layers, std::uint32_t otherwise,
    const std::function<bool(std::size_t layer, std::uint32_t period)>& of_period) const {
  std::vector<bool> out;
  const gguf::Value* value = metadata_.find(prefix_ + name);
  if (value != nullptr && value->is_array()) {
    for (const std::uint32_t flag : per_layer(name, layers)) out.push_back(flag != 0);
    return out;
  }
  const std::uint32_t period = count_or(name, otherwise);
  for (std::size_t i = 0; i < layers; ++i) out.push_back(of_period(i, period));
  return out;
}

float Keys::number(const std::string& name) const {
  const float value = metadata_.require_f32(prefix_ + name);
  if (!std::isfinite(value)) throw error(name, "is not a finite number");
  return value;
}

float Keys::number_or(const std::string& name, float otherwise) const {
  return contains(name) ? number(name) : otherwise;
}

float Keys::positive(const std::string& name) const {
  const float value = number(name);
  if (value <= 0) throw error(name, fmt::format("is {}, expected more than 0", value));
  return value;
}

float Keys::positive_or(const std::string& name, float otherwise) const {
  return contains(name) ? positive(name) : otherwise;
}

bool Keys::flag_or(const std::string& name, bool otherwise) const {
  return metadata_.find_bool(prefix_ + name).value_or(otherwise);
}

std::string Keys::text_or(const std::string& name, const std::string& otherwise) const {
  return std::string(metadata_.find_string(prefix_ + name).value_or(otherwise));
}

bool Keys::contains(const std::string& name) const {
  return metadata_.contains(prefix_ + name);
}

ModelError Keys::error(const std::string& name, const std::string& what) const {
  return metadata_.error(prefix_ + name, what);
}

}  // namespace sluice::model
