#include "core/cli/list.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "core/cli/inspection.h"
#include "core/cli/json.h"
#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/cli/quick_plan.h"
#include "core/cli/report.h"
#include "core/error.h"
#include "core/fetch/fetch.h"
#include "core/fetch/listing.h"
#include "core/fetch/reference.h"
#include "core/gguf/gguf.h"
#include "core/text/quoted.h"

namespace sluice::cli {
namespace {

struct Row {
  fetch::ListedModel model;
  std::optional<double> tokens_per_s;  // nothing: not known
  bool is_readable = true;             // false: not even its header
};

// Looks into the file: one that something cut short has a name like a whole one.
Row row_of(const fetch::ListedModel& model) {
  Row row{model, std::nullopt};
  if (!model.is_complete) return row;
  try {
    const auto header = gguf::Model::open(model.path, {.header_only = true});
    row.model.is_complete = missing_bytes(header) == 0;
  } catch (const std::exception&) {
    row.is_readable = row.model.is_complete = false;
  }
  if (row.model.is_complete) row.tokens_per_s = known_tokens_per_s(model.path);
  return row;
}

std::string table(const std::vector<Row>& rows) {
  std::size_t name_width = 4, quant_width = 5;
  for (const Row& row : rows) {
    name_width = std::max(name_width, row.model.name.size());
    quant_width = std::max(quant_width, row.model.quant.size());
  }
  std::string text;
  const auto line = [&](std::string_view name, std::string_view size, std::string_view quant,
                        std::string_view speed, std::string_view path) {
    text += fmt::format("{:<{}}  {:>10}  {:<{}}  {:>10}  {}\n", name, name_width, size, quant,
                        quant_width, speed, path);
  };
  line("name", "size", "quant", "tokens/s", "where");
  for (const Row& row : rows) {
    line(text::printable(row.model.name, 300), format_bytes(row.model.bytes),
         text::printable(row.model.quant, 40),
         !row.is_readable         ? "unreadable"
         : !row.model.is_complete ? "incomplete"
         : row.tokens_per_s       ? format_speed(*row.tokens_per_s)
                                  : "-",
         text::printable(row.model.path.string(), 1000));
  }
  return text;
}

// By a name or path of the list, or by what it was pulled as. Throws UsageError if that is none or
// more than one.
const fetch::ListedModel& find_removed(const std::vector<fetch::ListedModel>& models,
                                       const std::string& name) {
  std::vector<const fetch::ListedModel*> found = fetch::find_models(models, name);
  if (found.empty() && fetch::is_reference(name)) {
    const auto here = fetch::find_here(fetch::parse_reference(name));
    if (here) found = fetch::find_models(models, here->string());
  }
  if (found.empty()) {
    throw UsageError(fmt::format("no model is called {}: `sluice list` shows those that are here",
                                 text::quoted(name)));
  }
  if (found.size() > 1) throw UsageError(fetch::ambiguity(found, name));
  return *found.front();
}

}  // namespace

CLI::App* add_list(CLI::App& program, ListOptions& options) {
  CLI::App* command = add_command(
      program, "list", "List the models that are here",
      "Finds what `sluice pull` has brought, and what lies in the caches of the hub\n"
      "($HF_HOME), of llama.cpp ($LLAMA_CACHE) and of ollama ($OLLAMA_MODELS). A name\n"
      "from the list can stand wherever a command takes MODEL. tokens/s is what a run would reach\n"
      "in the memory that is free, from what plans and runs have measured here; - stands\n"
      "for what is not known, incomplete for a download that has not ended or a file that was cut\n"
      "short (pull goes on with it or brings it again), unreadable for one whose header is "
      "damaged\n"
      "or unknown to this version (`sluice inspect` says why). rm removes it.\n\n"
      "Example:\n"
      "  sluice list --json");
  command->add_flag("--json", options.json, "Print a JSON list and nothing else");
  return command;
}

CLI::App* add_remove(CLI::App& program, RemoveOptions& options) {
  CLI::App* command =
      add_command(program, "rm", "Remove a model that was pulled",
                  "Removes what `sluice pull` has brought, and what has come of it; models of\n"
                  "other programs stay.\n\n"
                  "Example:\n"
                  "  sluice rm hf:Qwen/Qwen3-8B-GGUF/Qwen3-8B-Q4_K_M.gguf");
  command
      ->add_option("NAME", options.name,
                   "A name or path that `sluice list` shows, or what was pulled")
      ->type_name("")
      ->required();
  return command;
}

int run_list(const ListOptions& options) {
  std::vector<Row> rows;
  for (const fetch::ListedModel& model : fetch::list_all(installed_models())) {
    rows.push_back(row_of(model));
  }
  if (!options.json) {
    write_output(table(rows));
    return 0;
  }
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    json.push_back({{"name", row.model.name},
                    {"path", row.model.path.string()},
                    {"bytes", row.model.bytes},
                    {"quant", row.model.quant},
                    {"complete", row.model.is_complete},
                    {"predicted_decode_tokens_per_s", or_null(row.tokens_per_s)}});
  }
  write_output(json_text(json));
  return 0;
}

int run_remove(const RemoveOptions& options) {
  const std::vector<fetch::ListedModel> models = fetch::list_all(installed_models());
  const fetch::ListedModel& model = find_removed(models, options.name);
  fetch::remove_model(model);
  remark(
      fmt::format("removed {}, {}", text::printable(model.name, 200), format_bytes(model.bytes)));
  return 0;
}

}  // namespace sluice::cli
