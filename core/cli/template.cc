#include "core/cli/template.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "core/chat/chat_template.h"
#include "core/cli/files.h"
#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/cli/sandbox.h"
#include "core/gguf/gguf.h"
#include "core/rows/row_json.h"
#include "core/text/limited_json.h"

namespace sluice::cli {
namespace {

using Json = nlohmann::ordered_json;

// Loads the template from its file or from the model. Special tokens come from the model, if there
// is one.
chat::ChatTemplate load_template(const TemplateOptions& options) {
  const bool has_model = !options.bodies.empty();
  const bool has_template = !options.template_file.empty();
  if (!has_model && !has_template) {
    throw UsageError("BODIES.jsonl is missing: give MODEL and BODIES.jsonl, or --template FILE");
  }
  std::optional<gguf::Model> model;
  if (has_model) model = gguf::Model::open(options.model, {.header_only = true});
  if (has_template) {
    return {read_text(options.template_file), options.template_file.string(),
            model ? &model->metadata() : nullptr};
  }
  auto result = chat::ChatTemplate::from_metadata(model->metadata());
  if (!result) {
    throw ModelError(
        fmt::format("{} has no chat template (key 'tokenizer.chat_template'); "
                    "give one with --template FILE",
                    options.model.string()));
  }
  return *std::move(result);
}

constexpr JsonLimits body_limits{
    .what = "line", .values_max = std::size_t{1} << 20, .members_max = 10'000, .depth_max = 64};

// The prompt of a line, or what is wrong with the line.
struct Rendering {
  std::string text;
  std::optional<std::string> error;
};

Rendering render(const chat::ChatTemplate& chat_template, std::string_view line,
                 const std::tm& now) {
  try {
    const Json body = parse_limited_json(line, body_limits).value;
    return {chat_template.render(body, now).bytes(), std::nullopt};
  } catch (const std::runtime_error& error) {
    return {"", error.what()};
  }
}

std::string json_line(const Rendering& rendering) {
  const Json json =
      rendering.error ? Json{{"error", *rendering.error}} : Json{{"text", rendering.text}};
  return rows::json_text(json) + "\n";
}

}  // namespace

CLI::App* add_template(CLI::App& program, TemplateOptions& options) {
  CLI::App* command = add_command(
      program, "template", "Show what the chat template makes of conversations",
      "Each line of BODIES.jsonl is a JSON object: \"messages\", \"tools\",\n"
      "\"add_generation_prompt\" (true unless given), and any further variable of the template.\n"
      "The time that a template asks for is SOURCE_DATE_EPOCH, in UTC, where that is set.\n\n"
      "Examples:\n"
      "  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}' | sluice template "
      "model.gguf "
      "-\n"
      "  sluice template model.gguf bodies.jsonl --json\n"
      "  sluice template --template chat.jinja bodies.jsonl");
  command
      ->add_option("MODEL", options.model,
                   "A GGUF file (of a split one, the first shard), or a name or reference of one; "
                   "may be left out when --template is given")
      ->transform(named_model(*command, ModelPart::header))
      ->type_name("")
      ->required();
  command->add_option("BODIES.jsonl", options.bodies, "The conversations; - is standard input")
      ->check([](const std::string& name) {
        return std::string(name.empty() ? "the name is empty: name a file, or - for standard input"
                                        : "");
      })
      ->type_name("");
  command->add_option("--template", options.template_file, "Take the template from a file instead")
      ->type_name("FILE");
  command->add_flag("--json", options.json,
                    "Print a line for each body: {\"text\": ...} or {\"error\": ...}");
  return command;
}

int run_template(const TemplateOptions& options) {
  // Of one argument alone, that is BODIES.jsonl.
  const std::filesystem::path& bodies_file =
      options.bodies.empty() ? options.model : options.bodies;
  enter_reading_sandbox({options.model, options.bodies, options.template_file});
  const chat::ChatTemplate chat_template = load_template(options);
  const std::tm now = chat::template_time();
  const std::string bodies = read_text(bodies_file);
  int status = 0;
  std::size_t number = 0;
  for (std::string_view rest = bodies; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const Rendering rendering = render(chat_template, line, now);
    if (options.json) {
      write_output(json_line(rendering));
    } else if (rendering.error) {
      warn(fmt::format("{}, line {}: {}", input_name(bodies_file), number, *rendering.error));
      status = 1;
    } else {
      show_text(rendering.text);
    }
  }
  return status;
}

}  // namespace sluice::cli
