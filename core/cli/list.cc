#include "core/cli/list.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/cli/report.h"
#include "core/error.h"
#include "core/fetch/listing.h"
#include "core/text/quoted.h"

namespace sluice::cli {
namespace {

std::string table(const std::vector<fetch::ListedModel>& models) {
  std::size_t name_width = 4, quant_width = 5;
  for (const fetch::ListedModel& model : models) {
    name_width = std::max(name_width, model.name.size());
    quant_width = std::max(quant_width, model.quant.size());
  }
  std::string text;
  const auto row = [&](std::string_view name, std::string_view size, std::string_view quant,
                       std::string_view path) {
    text += fmt::format("{:<{}}  {:>10}  {:<{}}  {}\n", name, name_width, size, quant, quant_width,
                        path);
  };
  row("name", "size", "quant", "where");
  for (const fetch::ListedModel& model : models) {
    row(text::escaped(model.name, 300), format_bytes(model.bytes), text::escaped(model.quant, 40),
        text::escaped(model.path.string(), 1000));
  }
  return text;
}

}  // namespace

CLI::App* add_list(CLI::App& program, ListOptions& options) {
  CLI::App* command =
      add_command(program, "list", "List the models that are here",
                  "Finds what `sluice pull` has brought, and what lies in the caches of the hub\n"
                  "($HF_HOME), of llama.cpp ($LLAMA_CACHE) and of ollama ($OLLAMA_MODELS). A name\n"
                  "from the list can stand wherever a command takes MODEL.\n\n"
                  "Example:\n"
                  "  sluice list --json");
  command->add_flag("--json", options.json, "Print a JSON list and nothing else");
  return command;
}

CLI::App* add_remove(CLI::App& program, RemoveOptions& options) {
  CLI::App* command =
      add_command(program, "rm", "Remove a model that was pulled",
                  "Removes what `sluice pull` has brought; models of other programs stay.\n\n"
                  "Example:\n"
                  "  sluice rm hf:Qwen/Qwen3-8B-GGUF/Qwen3-8B-Q4_K_M.gguf");
  command->add_option("NAME", options.name, "As `sluice list` shows it")->type_name("")->required();
  return command;
}

int run_list(const ListOptions& options) {
  const std::vector<fetch::ListedModel> models = fetch::list_models(installed_models());
  if (!options.json) {
    write_output(table(models));
    return 0;
  }
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const fetch::ListedModel& model : models) {
    json.push_back({{"name", model.name},
                    {"path", model.path.string()},
                    {"bytes", model.bytes},
                    {"quant", model.quant}});
  }
  write_output(json_text(json));
  return 0;
}

int run_remove(const RemoveOptions& options) {
  const std::vector<fetch::ListedModel> models = fetch::list_models(installed_models());
  const fetch::ListedModel* model = fetch::find_model(models, options.name);
  if (model == nullptr) {
    throw UsageError(
        fmt::format("no model, or more than one, is called {}: `sluice list` has "
                    "their names",
                    text::quoted(options.name)));
  }
  fetch::remove_model(*model);
  return 0;
}

}  // namespace sluice::cli
