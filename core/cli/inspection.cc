#include "core/cli/inspection.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "core/cli/output.h"
#include "core/error.h"
#include "core/gguf/bytes.h"
#include "core/gguf/gguf.h"
#include "core/gguf/quant_name.h"
#include "core/model/families.h"
#include "core/model/keys.h"
#include "core/model/weights.h"
#include "core/text/quoted.h"
#include "core/tokenizer/tokenizer.h"
#include "kernels/block_formats.h"

namespace sluice::cli {
namespace {

using gguf::Value;
using gguf::ValueType;
using nlohmann::ordered_json;

constexpr std::uint64_t json_elements_max = 64;  // longer arrays are shown by type and count
constexpr std::uint64_t text_elements_max = 6;
constexpr std::size_t text_bytes_max = 60;  // of a string that is shown

// The shortest decimal number that reads back as this float: 1e-05, not 9.99999974e-06.
double shortest(float value) {
  return std::strtod(fmt::format("{}", value).c_str(), nullptr);
}

// The value of a number or bool at `bytes`.
ordered_json number_at(ValueType type, const std::byte* bytes) {
  switch (type) {
    case ValueType::u8:
      return gguf::load<std::uint8_t>(bytes);
    case ValueType::i8:
      return gguf::load<std::int8_t>(bytes);
    case ValueType::u16:
      return gguf::load<std::uint16_t>(bytes);
    case ValueType::i16:
      return gguf::load<std::int16_t>(bytes);
    case ValueType::u32:
      return gguf::load<std::uint32_t>(bytes);
    case ValueType::i32:
      return gguf::load<std::int32_t>(bytes);
    case ValueType::u64:
      return gguf::load<std::uint64_t>(bytes);
    case ValueType::i64:
      return gguf::load<std::int64_t>(bytes);
    case ValueType::f32:
      return shortest(gguf::load<float>(bytes));
    case ValueType::f64:
      return gguf::load<double>(bytes);
    case ValueType::boolean:
      return gguf::load<std::uint8_t>(bytes) != 0;
    default:
      return nullptr;
  }
}

std::string_view text_of(const Value& value) {
  return {reinterpret_cast<const char*>(value.bytes().data()), value.bytes().size()};
}

// The first elements of an array, at most `count_max`.
std::vector<ordered_json> elements(const Value& value, std::uint64_t count_max) {
  std::vector<ordered_json> list;
  const std::uint64_t count = std::min(value.count(), count_max);
  if (value.element_type() == ValueType::string) {
    auto at = gguf::StringArray(value).begin();
    for (std::uint64_t i = 0; i < count; ++i, ++at) list.emplace_back(std::string(*at));
    return list;
  }
  const std::size_t stride = gguf::value_type_bytes(value.element_type());
  for (std::uint64_t i = 0; i < count; ++i) {
    list.push_back(number_at(value.element_type(), value.bytes().data() + i * stride));
  }
  return list;
}

ordered_json to_json(const Value& value) {
  if (value.type() == ValueType::string) return std::string(text_of(value));
  if (!value.is_array()) return number_at(value.type(), value.bytes().data());
  if (value.count() <= json_elements_max) return elements(value, json_elements_max);
  return {{"element_type", gguf::value_type_name(value.element_type())}, {"count", value.count()}};
}

std::string element_text(const ordered_json& element) {
  if (!element.is_string()) return element.dump();
  return fmt::format("'{}'", text::escaped(element.get_ref<const std::string&>(), text_bytes_max));
}

std::string to_text(const Value& value) {
  if (value.type() == ValueType::string) return text::escaped(text_of(value), text_bytes_max);
  if (!value.is_array()) return number_at(value.type(), value.bytes().data()).dump();
  std::vector<std::string> texts;
  for (const ordered_json& element : elements(value, text_elements_max)) {
    texts.push_back(element_text(element));
  }
  if (value.count() > text_elements_max) texts.emplace_back("...");
  return fmt::format("[{}] ({})", fmt::join(texts, ", "), value.describe());
}

// The value of a key, if there is one, of any type: files that cannot be run can still be shown.
std::string text_or(const gguf::Metadata& metadata, std::string_view key,
                    std::string_view otherwise) {
  const Value* value = metadata.find(key);
  return value != nullptr ? to_text(*value) : std::string(otherwise);
}

struct TypeShare {
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;
};

std::map<std::uint32_t, TypeShare> shares_by_type(const gguf::Model& model) {
  std::map<std::uint32_t, TypeShare> shares;
  for (const gguf::TensorInfo& tensor : model.tensors()) {
    TypeShare& share = shares[tensor.type];
    ++share.tensors;
    share.bytes += tensor.bytes;
  }
  return shares;
}

// The names of the types that sluice cannot compute with.
std::vector<std::string> uncomputable_types(const gguf::Model& model) {
  std::vector<std::string> names;
  for (const auto& [type, share] : shares_by_type(model)) {
    if (!kernels::find_block_type(type)) names.push_back(kernels::gguf_type_name(type));
  }
  return names;
}

// What running the model would say of it, as far as the header shows.
struct Verdict {
  std::string obstacle;            // why it cannot run here, in one line; empty if it can
  std::vector<std::string> notes;  // a line each
};

constexpr std::size_t any_slice_bytes = 2 << 20;

// The notes on a file that runs. A block that predicts tokens is not used by every run, but by
// those that guess, where its architecture's is known.
std::vector<std::string> notes_of(const gguf::Model& model, const model::WeightLayout& layout) {
  std::vector<std::string> notes = layout.notes();
  if (model::Keys(model).whole_or("nextn_predict_layers", 0) == 0) return notes;
  try {
    model::WeightLayout predicting(model, any_slice_bytes);
    model::make_decoder(model, predicting, true);
  } catch (const Error&) {  // it is not known here, or not as it should be
    return notes;
  }
  const std::string unused = "this file's token-predicting part is not used";
  const std::string used =
      "this file's token-predicting part is used for guesses alone: --speculate auto or mtp";
  std::ranges::replace(notes, unused, used);
  return notes;
}

Verdict judge(const gguf::Model& model) {
  const std::vector<std::string> uncomputable = uncomputable_types(model);
  if (!uncomputable.empty()) {
    return {
        fmt::format("there is no arithmetic for weights of type {}", fmt::join(uncomputable, ", ")),
        {}};
  }
  try {
    model::WeightLayout layout(model, any_slice_bytes);
    model::make_decoder(model, layout);
    tokenizer::Tokenizer::from_metadata(model.metadata());
    return {"", notes_of(model, layout)};
  } catch (const Error& error) {
    const std::string text = error.what();
    const std::string file = model.metadata().source() + ": ";
    return {text.starts_with(file) ? text.substr(file.size()) : text, {}};
  }
}

// Bytes that each file would need to hold its tensors and has not.
std::uint64_t missing_of_file(const gguf::Model& model, std::size_t file) {
  std::uint64_t end = 0;
  for (const gguf::TensorInfo& tensor : model.tensors()) {
    if (tensor.file == file) end = std::max(end, tensor.offset + tensor.bytes);
  }
  const std::uint64_t there = model.files()[file].file_bytes;
  return end > there ? end - there : 0;
}

}  // namespace

std::uint64_t missing_bytes(const gguf::Model& model) {
  std::uint64_t missing = 0;
  for (std::size_t file = 0; file < model.files().size(); ++file) {
    missing += missing_of_file(model, file);
  }
  return missing;
}

namespace {

double bits_per_weight(const gguf::Model& model) {
  const std::uint64_t elements = model.elements();
  if (elements == 0) return 0;
  std::uint64_t bytes = 0;
  for (const gguf::TensorInfo& tensor : model.tensors()) bytes += tensor.bytes;
  return 8.0 * static_cast<double>(bytes) / static_cast<double>(elements);
}

std::vector<std::uint64_t> shape_of(const gguf::TensorInfo& tensor) {
  return {tensor.dims.begin(), tensor.dims.begin() + tensor.rank};
}

ordered_json to_json(const gguf::Model& model) {
  const gguf::Metadata& metadata = model.metadata();
  const auto or_null = [&](std::string_view key) {
    const Value* value = metadata.find(key);
    return value != nullptr ? to_json(*value) : ordered_json(nullptr);
  };
  ordered_json json;
  json["files"] = ordered_json::array();
  for (const gguf::ModelFile& file : model.files()) {
    json["files"].push_back({{"path", file.path.string()},
                             {"bytes", file.file_bytes},
                             {"data_offset", file.data_offset}});
  }
  json["gguf_version"] = model.version();
  json["architecture"] = or_null("general.architecture");
  json["name"] = or_null("general.name");
  json["parameters"] = model.elements();
  json["file_bytes"] = model.file_bytes();
  json["missing_bytes"] = missing_bytes(model);
  json["data_bytes"] = model.data_bytes();
  json["quant"] = gguf::quant_name(model);
  json["bits_per_weight"] = bits_per_weight(model);
  json["uncomputable_types"] = uncomputable_types(model);
  const auto [obstacle, notes] = judge(model);
  json["runs_here"] = obstacle.empty();
  json["obstacle"] = obstacle.empty() ? ordered_json(nullptr) : ordered_json(obstacle);
  json["notes"] = notes;
  json["types"] = ordered_json::array();
  for (const auto& [type, share] : shares_by_type(model)) {
    json["types"].push_back({{"type", kernels::gguf_type_name(type)},
                             {"tensors", share.tensors},
                             {"bytes", share.bytes}});
  }
  const Value* tokens = metadata.find("tokenizer.ggml.tokens");
  json["tokenizer"] = {{"model", or_null("tokenizer.ggml.model")},
                       {"pre", or_null("tokenizer.ggml.pre")},
                       {"tokens", tokens != nullptr ? tokens->count() : 0}};
  json["metadata"] = ordered_json::object();
  for (const gguf::Metadata::Entry& entry : metadata.entries()) {
    json["metadata"][std::string(entry.key)] = to_json(entry.value);
  }
  json["tensors"] = ordered_json::array();
  for (const gguf::TensorInfo& tensor : model.tensors()) {
    json["tensors"].push_back({{"name", tensor.name},
                               {"shape", shape_of(tensor)},
                               {"type", kernels::gguf_type_name(tensor.type)},
                               {"bytes", tensor.bytes},
                               {"file", tensor.file},
                               {"offset", tensor.offset}});
  }
  return json;
}

std::string tokenizer_summary(const gguf::Metadata& metadata) {
  const Value* tokens = metadata.find("tokenizer.ggml.tokens");
  if (tokens == nullptr) return "none";
  std::string text =
      fmt::format("{}, {} tokens", text_or(metadata, "tokenizer.ggml.model", "?"), tokens->count());
  if (metadata.contains("tokenizer.ggml.pre")) {
    text += fmt::format(", pre-tokenizer {}", text_or(metadata, "tokenizer.ggml.pre", ""));
  }
  return text;
}

std::string summary(const gguf::Model& model) {
  const gguf::Metadata& metadata = model.metadata();
  std::vector<std::pair<std::string, std::string>> facts;
  for (std::size_t i = 0; i < model.files().size(); ++i) {
    const gguf::ModelFile& file = model.files()[i];
    const std::uint64_t missing = missing_of_file(model, i);
    facts.emplace_back(
        i == 0 ? "file" : "",
        fmt::format("{} ({}{})", text::escaped(file.path.string(), 4096),
                    format_bytes(file.file_bytes),
                    missing == 0 ? ""
                                 : fmt::format(" of {}: the rest has not come yet",
                                               format_bytes(file.file_bytes + missing))));
  }
  facts.emplace_back("format", fmt::format("GGUF {}", model.version()));
  facts.emplace_back("architecture", text_or(metadata, "general.architecture", "not stated"));
  facts.emplace_back("name", text_or(metadata, "general.name", "not stated"));
  facts.emplace_back("parameters", fmt::format("{} ({:.2f} billion)", model.elements(),
                                               static_cast<double>(model.elements()) / 1e9));
  const std::string quant = gguf::quant_name(model);
  facts.emplace_back("weights",
                     fmt::format("{}{}{} tensors, {}, {:.3f} bits per weight", quant,
                                 quant.empty() ? "" : ", ", model.tensors().size(),
                                 format_bytes(model.data_bytes()), bits_per_weight(model)));
  facts.emplace_back("tokenizer", tokenizer_summary(metadata));
  const std::string architecture = text_or(metadata, "general.architecture", "");
  facts.emplace_back("context", text_or(metadata, architecture + ".context_length", "not stated"));
  facts.emplace_back("template", metadata.contains("tokenizer.chat_template") ? "yes" : "none");
  if (metadata.contains("general.license")) {
    facts.emplace_back("licence", text_or(metadata, "general.license", ""));
  }
  const auto [obstacle, notes] = judge(model);
  const std::string yes = missing_bytes(model) == 0 ? "yes" : "yes, when the file is complete";
  facts.emplace_back("runs here", obstacle.empty() ? yes : "no: " + obstacle);
  for (const std::string& note : notes) facts.emplace_back("note", note);
  return format_facts(facts);
}

std::string type_table(const gguf::Model& model) {
  std::string text = fmt::format("\n{:<10}{:>9}{:>14}{:>9}\n", "type", "tensors", "size", "share");
  for (const auto& [type, share] : shares_by_type(model)) {
    text += fmt::format(
        "{:<10}{:>9}{:>14}{:>8.1f}%\n", kernels::gguf_type_name(type), share.tensors,
        format_bytes(share.bytes),
        100.0 * static_cast<double>(share.bytes) / static_cast<double>(model.data_bytes()));
  }
  return text;
}

// All keys except the general ones that the summary shows.
std::string metadata_table(const gguf::Metadata& metadata) {
  std::vector<std::pair<std::string, std::string>> facts;
  for (const gguf::Metadata::Entry& entry : metadata.entries()) {
    if (entry.key == "general.architecture" || entry.key == "general.name") continue;
    facts.emplace_back(text::escaped(entry.key, text_bytes_max), to_text(entry.value));
  }
  return fmt::format("\n{}", format_facts(facts));
}

std::string tensor_table(const gguf::Model& model) {
  std::size_t width = 0;
  for (const gguf::TensorInfo& tensor : model.tensors()) {
    width = std::max(width, tensor.name.size());
  }
  const bool is_split = model.files().size() > 1;
  std::string text = fmt::format("\n{:<{}}  {:<8}{:>14}{:>16}  {}shape\n", "tensor", width, "type",
                                 "bytes", "offset", is_split ? "file  " : "");
  for (const gguf::TensorInfo& tensor : model.tensors()) {
    text += fmt::format("{:<{}}  {:<8}{:>14}{:>16}  {}{}\n",
                        text::escaped(tensor.name, tensor.name.size()), width,
                        kernels::gguf_type_name(tensor.type), tensor.bytes, tensor.offset,
                        is_split ? fmt::format("{:>4}  ", tensor.file + 1) : "", tensor.shape());
  }
  return text;
}

}  // namespace

std::string inspection_json(const gguf::Model& model) {
  // Names and strings of a file need not be UTF-8, but JSON must be.
  return to_json(model).dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string inspection_text(const gguf::Model& model, bool with_tensors) {
  std::string text = summary(model);
  if (!model.tensors().empty()) text += type_table(model);
  text += metadata_table(model.metadata());
  if (with_tensors) text += tensor_table(model);
  return text;
}

}  // namespace sluice::cli
