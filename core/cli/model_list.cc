#include "core/cli/model_list.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/fetch/reference.h"
#include "core/quant/quant_mix.h"
#include "core/synth/shapes.h"
#include "core/text/limited_json.h"
#include "core/text/quoted.h"

namespace sluice::cli {
namespace {

using nlohmann::ordered_json;

constexpr JsonLimits list_limits = {"list of models", 100'000, 16, 8};

// Reads the members of one model.
class ModelReader {
 public:
  // `place` is what messages begin with: where the list is, and which of its models this is.
  ModelReader(const ordered_json& object, std::string place)
      : object_(object), place_(std::move(place)) {
    if (!object.is_object()) fail("is no object");
  }

  std::string text(const char* name) const {
    const auto found = object_.find(name);
    if (found == object_.end() || !found->is_string() || found->get<std::string>().empty()) {
      fail(fmt::format("\"{}\" has to be a text", name));
    }
    return found->get<std::string>();
  }

  std::vector<std::string> texts(const char* name) const {
    const auto found = object_.find(name);
    const bool are_texts =
        found != object_.end() && found->is_array() && !found->empty() &&
        std::ranges::all_of(*found, [](const ordered_json& one) { return one.is_string(); });
    if (!are_texts) fail(fmt::format("\"{}\" has to be a list of texts", name));
    return found->get<std::vector<std::string>>();
  }

  [[noreturn]] void fail(const std::string& problem) const {
    throw UsageError(fmt::format("{}: {}", place_, problem));
  }

 private:
  const ordered_json& object_;
  std::string place_;
};

void check_members(const ModelReader& reader, const KnownModel& model) {
  const auto shape = std::ranges::find(synth::shapes(), model.shape, &synth::Shape::name);
  if (shape == synth::shapes().end()) {
    reader.fail(
        fmt::format("\"shape\": {} is none of `sluice synth --list`", text::quoted(model.shape)));
  }
  const std::vector<std::string> quants = quant::QuantMix::names();
  for (const std::string& name : model.quants) {
    if (std::ranges::find(quants, name) == quants.end()) {
      reader.fail(fmt::format("\"quants\": {} is no quantisation that `sluice synth` has",
                              text::quoted(name)));
    }
  }
  for (const std::string& name : model.tasks) {
    if (std::ranges::find(known_tasks, name) == std::end(known_tasks)) {
      reader.fail(fmt::format("\"tasks\": {} is none of {}", text::quoted(name),
                              fmt::join(known_tasks, ", ")));
    }
  }
  try {
    const fetch::Reference reference = fetch::parse_reference(model.repository);
    if (reference.kind == fetch::ReferenceKind::hub_repository) return;
  } catch (const UsageError&) {  // said below
  }
  reader.fail(fmt::format("\"repository\": {} is not of the form hf:OWNER/REPO",
                          text::quoted(model.repository)));
}

}  // namespace

bool KnownModel::is_for(std::string_view task) const {
  return std::ranges::find(tasks, task) != tasks.end();
}

std::vector<KnownModel> parse_model_list(std::string_view text, std::string_view source) {
  ordered_json list;
  try {
    list = parse_limited_json(text, list_limits).value;
  } catch (const JsonError& error) {
    throw UsageError(fmt::format("{}: {}", source, error.what()));
  }
  const auto found = list.is_object() ? list.find("models") : list.end();
  if (!list.is_object() || found == list.end() || !found->is_array()) {
    throw UsageError(fmt::format("{}: \"models\" has to be a list (see docs/pull.md)", source));
  }
  if (found->empty()) {
    throw UsageError(fmt::format("{}: \"models\" is empty: there is nothing to choose", source));
  }
  std::vector<KnownModel> models;
  for (const ordered_json& object : *found) {
    const ModelReader reader(object, fmt::format("{}: model {}", source, models.size() + 1));
    models.push_back({reader.text("name"), reader.text("repository"), reader.texts("quants"),
                      reader.texts("tasks"), reader.text("shape")});
    check_members(reader, models.back());
  }
  return models;
}

}  // namespace sluice::cli
