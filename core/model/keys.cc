#include "core/model/keys.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <string_view>

namespace sluice::model {

Keys::Keys(const gguf::Model& model, bool predicts)
    : model_(model),
      metadata_(model.metadata()),
      architecture_(metadata_.require_string("general.architecture")),
      prefix_(architecture_ + "."),
      predicts_(predicts) {}

std::string Keys::read(const std::string& name) const {
  return *read_.insert(prefix_ + name).first;
}

std::uint32_t Keys::count(const std::string& name, std::uint32_t max) const {
  return checked(name, metadata_.require_u32(read(name)), 1, max);
}

std::optional<std::uint32_t> Keys::find_count(const std::string& name, std::uint32_t max) const {
  const auto value = metadata_.find_u32(read(name));
  if (!value || *value == 0) return std::nullopt;
  return checked(name, *value, 1, max);
}

std::uint32_t Keys::count_or(const std::string& name, std::uint32_t otherwise,
                             std::uint32_t max) const {
  return find_count(name, max).value_or(otherwise);
}

std::uint32_t Keys::whole_or(const std::string& name, std::uint32_t otherwise,
                             std::uint32_t max) const {
  return checked(name, metadata_.find_u32(read(name)).value_or(otherwise), 0, max);
}

std::uint32_t Keys::checked(const std::string& name, std::uint32_t value, std::uint32_t least,
                            std::uint32_t max) const {
  if (value < least || value > max) {
    throw error(name, fmt::format("is {}, expected {} to {}", value, least, max));
  }
  return value;
}

std::vector<std::uint32_t> Keys::per_layer(const std::string& name, std::size_t layers,
                                           std::optional<std::uint32_t> otherwise) const {
  const std::string key = read(name);
  const gguf::Value* value = metadata_.find(key);
  if (value == nullptr && otherwise) return std::vector<std::uint32_t>(layers, *otherwise);
  if (value == nullptr || !value->is_array()) {
    return std::vector<std::uint32_t>(layers,
                                      checked(name, metadata_.require_u32(key), 0, width_max));
  }
  const gguf::IntegerArray array = metadata_.require_integers(key);
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

std::vector<float> Keys::numbers(const std::string& name, std::size_t layers,
                                 bool has_prefix) const {
  const std::string key = has_prefix ? read(name) : name;
  const gguf::Value* value = metadata_.find(key);
  std::vector<float> out;
  if (value == nullptr || !value->is_array()) {
    out.assign(layers, metadata_.require_f32(key));
  } else {
    const gguf::FloatArray array = metadata_.require_floats(key);
    if (array.size() < layers) {
      throw metadata_.error(key,
                            fmt::format("has {} elements for {} layers", array.size(), layers));
    }
    for (std::size_t i = 0; i < layers; ++i) out.push_back(array[i]);
  }
  for (const float number : out) {
    if (!std::isfinite(number)) throw metadata_.error(key, "is not a finite number");
  }
  return out;
}

std::vector<bool> Keys::layer_pattern(
    const std::string& name, std::size_t layers, std::uint32_t otherwise,
    const std::function<bool(std::size_t layer, std::uint32_t period)>& of_period) const {
  std::vector<bool> out;
  const gguf::Value* value = metadata_.find(read(name));
  if (value != nullptr && value->is_array()) {
    for (const std::uint32_t flag : per_layer(name, layers)) out.push_back(flag != 0);
    return out;
  }
  const std::uint32_t period = whole_or(name, otherwise);
  for (std::size_t i = 0; i < layers; ++i) out.push_back(period == 0 || of_period(i, period));
  return out;
}

float Keys::number(const std::string& name) const {
  const float value = metadata_.require_f32(read(name));
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
  return metadata_.find_bool(read(name)).value_or(otherwise);
}

std::string Keys::text_or(const std::string& name, const std::string& otherwise) const {
  return std::string(metadata_.find_string(read(name)).value_or(otherwise));
}

bool Keys::contains(const std::string& name) const {
  return metadata_.contains(read(name));
}

void Keys::leave_aside(const std::string& name) const {
  if (!name.ends_with('.')) {
    read(name);
    return;
  }
  for (const gguf::Metadata::Entry& entry : metadata_.entries()) {
    if (entry.key.starts_with(prefix_ + name)) read_.insert(std::string(entry.key));
  }
}

namespace {

// What never changes a text: sizes that the tensors have too, what tools note for themselves, and
// the parts of a file that are for images and sound.
constexpr std::array harmless_names = {
    "vocab_size",        "pooling_type",       "rope.scaling.finetuned",  "spatial_merge_size",
    "image_token_index", "tensor_data_layout", "classifier.output_labels"};
constexpr std::array harmless_prefixes = {"vision.", "mm.", "audio."};

bool is_harmless(std::string_view name) {
  return std::ranges::find(harmless_names, name) != harmless_names.end() ||
         std::ranges::any_of(harmless_prefixes,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace

std::vector<std::string> Keys::unread() const {
  std::vector<std::string> out;
  for (const gguf::Metadata::Entry& entry : metadata_.entries()) {
    if (!entry.key.starts_with(prefix_) || read_.contains(entry.key)) continue;
    if (!is_harmless(entry.key.substr(prefix_.size()))) out.emplace_back(entry.key);
  }
  return out;
}

ModelError Keys::error(const std::string& name, const std::string& what) const {
  return metadata_.error(prefix_ + name, what);
}

}  // namespace sluice::model
