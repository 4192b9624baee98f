#include "core/cli/plan.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/number.h"
#include "core/cli/batch_setup.h"
#include "core/cli/embed.h"
#include "core/cli/files.h"
#include "core/cli/generation.h"
#include "core/cli/inspection.h"
#include "core/cli/json.h"
#include "core/cli/output.h"
#include "core/cli/plan_repository.h"
#include "core/cli/plan_table.h"
#include "core/cli/prediction.h"
#include "core/cli/pull.h"
#include "core/cli/quick_plan.h"
#include "core/cli/report.h"
#include "core/cli/sandbox.h"
#include "core/cli/serve_setup.h"
#include "core/cli/speculation.h"
#include "core/engine/engine.h"
#include "core/error.h"
#include "core/model/hyper_parameters.h"
#include "core/plan/plan_json.h"
#include "core/text/quoted.h"
#include "kernels/kernel_table.h"
#include "topology/cpu_use.h"

namespace sluice::cli {
namespace {

using nlohmann::ordered_json;

// `rates`: the model rates texts, and makes no vectors.
std::string_view use_name(PlannedUse use, bool rates) {
  switch (use) {
    case PlannedUse::chat:
      return "chat";
    case PlannedUse::serve:
      return "serve";
    case PlannedUse::batch:
      return "batch";
    case PlannedUse::embed:
      return rates ? "rerank" : "embed";
    default:
      return "run";
  }
}

// Bytes per second: "1.5GB/s", "800MB/s", "20GiB/s"; the "B/s" may be left out, as for
// multiply-adds.
std::optional<double> parse_speed(std::string_view text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  std::string_view unit(stopped, static_cast<std::size_t>(end - stopped));
  if (unit.ends_with("/s")) unit.remove_suffix(2);
  if (unit.ends_with("B")) unit.remove_suffix(1);
  const bool is_binary = unit.ends_with("i");
  if (is_binary) unit.remove_suffix(1);
  const std::size_t power = std::string_view("KMGT").find(unit);
  if (error != std::errc() || !(number > 0) || unit.size() != 1 || power > 3) return std::nullopt;
  for (std::size_t i = 0; i <= power; ++i) number *= is_binary ? 1024 : 1000;
  return number;
}

CLI::Validator speed() {
  return {[](std::string& text) -> std::string {
            const std::optional<double> value = parse_speed(text);
            if (!value) return fmt::format("\"{}\" is not a speed such as 1.5GB/s", text);
            text = fmt::format("{:.0f}", *value);
            return "";
          },
          ""};
}

// The number of "2cpu". Throws CLI::ValidationError.
unsigned parse_cpus(const std::string& word) {
  constexpr unsigned most = 1024;
  std::string_view digits = word;
  digits.remove_suffix(std::string_view("cpu").size());
  const auto cpus = base::whole_number<unsigned>(digits);
  if (!cpus || *cpus < 1 || *cpus > most) {
    throw CLI::ValidationError(
        "--for", fmt::format("\"{}\" is not a number of CPUs from 1cpu to {}cpu", word, most));
  }
  return *cpus;
}

// Takes one of the words of --for, and returns what it says: the option that says the same, or else
// "use", "int8" or "isa".
std::string_view take_use(PlanOptions& options, const std::string& word) {
  static const std::map<std::string_view, PlannedUse> uses = {
      {"run", PlannedUse::run},     {"chat", PlannedUse::chat},   {"serve", PlannedUse::serve},
      {"batch", PlannedUse::batch}, {"embed", PlannedUse::embed}, {"rerank", PlannedUse::embed}};
  const auto is_for = [&](std::string_view name) { return word.starts_with(name); };
  const auto speed_of = [&] {
    const std::optional<double> value = parse_speed(word.substr(word.find('=') + 1));
    if (!value) throw CLI::ValidationError("--for", fmt::format("\"{}\" has no speed", word));
    return value;
  };
  if (const auto use = uses.find(word); use != uses.end()) {
    options.use = use->second;
    return "use";
  }
  if (is_for("disk=")) {
    options.other.disk_bytes_per_s = speed_of();
    return "--disk";
  }
  if (is_for("dram=")) {
    options.other.dram_bytes_per_s = speed_of();
    return "--dram";
  }
  if (is_for("int8=")) {
    options.other.int8_macs_per_s = speed_of();
    return "int8";
  }
  if (word.ends_with("cpu")) {
    options.other.cpus = options.common.planned_threads = parse_cpus(word);
    return "--threads";
  }
  if (const auto isa = kernels::find_isa(word)) {
    options.other.isa = isa;
    return "isa";
  }
  std::string bytes = word;
  if (!size()(bytes).empty()) {
    throw CLI::ValidationError(
        "--for", fmt::format("\"{}\" is none of run, chat, serve, batch, embed, rerank, a size "
                             "such as 6GiB, 2cpu, avx2, disk=1.5GB/s, dram=20GB/s, int8=100G/s",
                             word));
  }
  options.common.budget_bytes = std::stoull(bytes);
  options.common.has_memory_of_another = true;
  return "--budget";
}

// Of two words that say the same, or of a word and an option, one would be passed over.
void take_uses(PlanOptions& options, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    const std::string_view said = take_use(options, word);
    if (!options.said_by_for.emplace(said).second) {
      throw CLI::ValidationError(
          "--for", fmt::format("\"{}\" comes behind another of its kind: give one", word));
    }
  }
}

void refuse_said_twice(const CLI::App& command, const PlanOptions& options) {
  for (const std::string& said : options.said_by_for) {
    if (said.starts_with("--") && command.count(said) > 0) {
      throw CLI::ValidationError(said, "--for says it too: give one of them");
    }
  }
}

ordered_json to_json(std::string_view use, const engine::PlannedRun& run,
                     const Prediction& prediction, double hit_rate, std::uint32_t model_context,
                     std::uint64_t no_streaming_bytes) {
  const plan::MemoryPlan& plan = run.plan;
  ordered_json json;
  json["for"] = use;
  json.update(plan::plan_json(plan));
  json["budget_without_streaming_bytes"] = no_streaming_bytes;
  json["tables_on_disk"] = ordered_json::array();
  for (const plan::TableOnDisk& table : plan.tables_on_disk) {
    json["tables_on_disk"].push_back({{"name", table.name},
                                      {"bytes", table.bytes},
                                      {"rows_per_token", table.rows_per_token},
                                      {"row_bytes", table.row_bytes},
                                      {"held_bytes", table.held_bytes}});
  }
  json["model_context"] = model_context;
  json["window"] = plan.cache.window.positions;
  json["sinks"] = plan.cache.window.sinks;
  json["parallel"] = plan.cache.sequences;
  json["chunk"] = plan.chunk;
  json["streamed_bytes_per_step"] = run.work.with_hit_rate(hit_rate).streamed_bytes;
  json["predicted_decode_tokens_per_s"] = nullptr;
  const auto& speed = prediction.tokens_per_s;
  if (speed && !reads_whole(plan)) {
    json["predicted_decode_tokens_per_s"] = speed->usual;
    json["predicted_decode_tokens_per_s_range"] = {{"low", speed->low}, {"high", speed->high}};
  }
  if (run.work.has_streamed_experts()) {
    json["expert_hit_rate"] = hit_rate;
    json["predicted_decode_tokens_per_s_without_hits"] =
        or_null(prediction.tokens_per_s_without_hits);
  }
  json["predicted_prefill_tokens_per_s"] = nullptr;
  if (const auto& prompt = prediction.prompt) {
    json["predicted_prefill_tokens_per_s"] = prompt->tokens_per_s;
    json["predicted_first_token"] = {{"prompt_tokens", prompt->tokens},
                                     {"seconds", prompt->seconds}};
  }
  json["bound_tokens_per_s"] = prediction.bound.tokens_per_s;
  json["bound"] = prediction.bound.name;
  const KnownLimits& limits = prediction.limits;
  json["dram_bytes_per_s"] = limits.high.dram_bytes_per_s;
  json["disk_bytes_per_s"] = limits.high.disk_bytes_per_s;
  json["int8_macs_per_s"] = limits.high.int8_macs_per_s;
  json["made_from"] = known_limits(limits);
  json["made_from"]["earlier_runs"] = prediction.earlier_runs;
  json["made_from"]["cpu_share_of_others"] = prediction.cpu_share_of_others;
  return json;
}

std::string context_text(const plan::MemoryPlan& plan, std::uint32_t model_context) {
  const kvcache::CacheConfig& cache = plan.cache;
  std::string text = cache.window.positions == 0
                         ? fmt::format("a context of {} tokens", plan.context)
                         : fmt::format("a window of {} tokens, of which the first {} stay",
                                       cache.window.positions, cache.window.sinks);
  if (cache.sequences > 1) text += fmt::format(" for each of {} sequences", cache.sequences);
  if (model_context != 0) text += fmt::format(" (the model was trained for {})", model_context);
  return text;
}

// The memory, line by line.
std::string memory_table(const plan::MemoryPlan& plan) {
  std::string text;
  std::size_t width = 16;
  for (const plan::Line& line : plan.lines) width = std::max(width, line.name.size());
  const auto row = [&](std::string_view name, std::uint64_t bytes, std::string_view kind) {
    text += fmt::format("{:<{}}{:>12}  {}\n", name, width + 2, format_bytes(bytes), kind);
  };
  for (const plan::Line& line : plan.lines) row(line.name, line.bytes, plan::kind_name(line.kind));
  row("total", plan.total_bytes(), "");
  row("budget", plan.budget.bytes, plan.budget.source);
  return text;
}

// The tables that are in no line of the memory.
std::string disk_lines(const plan::MemoryPlan& plan) {
  std::string text;
  for (const plan::TableOnDisk& table : plan.tables_on_disk) {
    text += fmt::format(
        "{}: {} stay on the disk; {} of {} bytes {} read for each token, and activations hold {} "
        "for those of a step\n",
        text::escaped(table.name, 100), format_bytes(table.bytes),
        table.rows_per_token == 1 ? "a row" : fmt::format("{} rows", table.rows_per_token),
        table.row_bytes, table.rows_per_token == 1 ? "is" : "are", format_bytes(table.held_bytes));
  }
  return text;
}

// What would bind if nothing else took time.
std::string_view bound_name(std::string_view name) {
  if (name == "dram") return "reading memory";
  return name == "disk" ? "reading the disk" : "arithmetic";
}

std::string decode_lines(const engine::PlannedRun& run, const Prediction& prediction,
                         double hit_rate) {
  std::string text;
  if (run.work.has_streamed_experts()) {
    text +=
        fmt::format("if {:.0f} % of the experts that a step needs are in memory: ", 100 * hit_rate);
  }
  if (prediction.tokens_per_s) {
    const SpeedRange& speed = *prediction.tokens_per_s;
    text += fmt::format("about {} tokens/s ({} to {}); ", format_speed(speed.usual),
                        format_speed(speed.low), format_speed(speed.high));
  }
  text += fmt::format("{} alone would allow {} tokens/s\n", bound_name(prediction.bound.name),
                      format_speed(prediction.bound.tokens_per_s));
  if (prediction.tokens_per_s_without_hits) {
    text += fmt::format("about {} tokens/s if none is\n",
                        format_speed(*prediction.tokens_per_s_without_hits));
  }
  return text;
}

// What is said below the table. That a plan does not fit is said by the error that ends the
// command.
std::string table(std::string_view use, const engine::PlannedRun& run, const Prediction& prediction,
                  double hit_rate, std::uint32_t model_context, std::uint64_t no_streaming_bytes) {
  const plan::MemoryPlan& plan = run.plan;
  std::string text = memory_table(plan) + "\n" + disk_lines(plan);
  if (plan.fits()) {
    text += fmt::format("fits for {}, with {}", use, context_text(plan, model_context));
    const std::uint64_t streamed = run.work.with_hit_rate(hit_rate).streamed_bytes;
    if (streamed != 0) {
      text += fmt::format("; {} are streamed for every {}", format_bytes(streamed),
                          plan.cache.sequences == 1 ? "token" : "step");
    }
    text += "\n";
  }
  if (!reads_whole(plan)) text += decode_lines(run, prediction, hit_rate);
  if (const auto& prompt = prediction.prompt; prompt && reads_whole(plan)) {
    text += fmt::format("texts: about {} tokens/s; one of {} tokens takes {} s\n",
                        format_speed(prompt->tokens_per_s), prompt->tokens,
                        format_speed(prompt->seconds));
  } else if (prompt) {
    text += fmt::format(
        "prompts: about {} tokens/s; the first token behind {} tokens comes after {} s\n",
        format_speed(prompt->tokens_per_s), prompt->tokens, format_speed(prompt->seconds));
  }
  if (plan.fits()) {
    text += fmt::format("least budget: {}; nothing is streamed from {} on\n",
                        format_bytes(plan.least_budget_bytes), format_bytes(no_streaming_bytes));
  }
  text += "made from " + origin_text(prediction.limits);
  if (prediction.earlier_runs != 0) {
    text += fmt::format("; the speed is that of earlier runs like this one ({} known)",
                        prediction.earlier_runs);
  }
  if (prediction.cpu_share_of_others > topology::quiet_share_max) {
    text += fmt::format("; others took {:.0f} % of the CPUs meanwhile",
                        100 * prediction.cpu_share_of_others);
  }
  text += "\n";
  return text;
}

}  // namespace

bool reads_whole(const plan::MemoryPlan& plan) {
  return plan.cache.layers.empty();
}

engine::EngineOptions options_for_use(const PlanOptions& options, const engine::RunPlanner& planner,
                                      std::uint32_t model_context) {
  // Code that those have in memory when they plan, and this command has not: 1.7 MB, rounded up.
  constexpr std::uint64_t program_bytes = std::uint64_t{2} << 20;
  const std::uint32_t parallel = std::max(options.parallel, 1U);
  if (options.use == PlannedUse::serve) {
    ServeOptions serve;
    serve.common = options.common;
    serve.parallel = options.parallel;
    ServePreparation preparation;
    plan_serve(serve, planner, preparation);
    preparation.engine.caller_bytes += program_bytes;
    return preparation.engine;
  }
  if (options.use == PlannedUse::batch) {
    constexpr std::uint32_t usual_row_tokens = 1024;
    const std::uint32_t most = model_context == 0 ? usual_row_tokens : model_context;
    const std::uint32_t positions =
        options.common.context != 0 ? options.common.context : std::min(usual_row_tokens, most);
    engine::EngineOptions settings = options_of_rows(options.common, planner, positions, parallel);
    settings.caller_bytes += program_bytes;
    return settings;
  }
  if (options.use == PlannedUse::embed) {
    constexpr std::uint64_t usual_text_bytes = std::uint64_t{512} << 10;
    const std::uint32_t texts = options.parallel == 0 ? EmbedOptions{}.parallel : options.parallel;
    engine::EngineOptions settings = options_of_texts(options.common, texts, usual_text_bytes);
    settings.caller_bytes += program_bytes;
    return settings;
  }
  engine::EngineOptions settings = engine_options(options.common);
  settings.parallel = parallel;
  if (options.use == PlannedUse::chat) settings.checkpoints = checkpoints_of_conversations;
  count_text(options.common, settings);
  return settings;
}

void add_other_machine_options(CLI::App& command, PlanOptions& options) {
  command
      .add_option("--disk", options.other.disk_bytes_per_s,
                  "How fast the disk of another machine reads (default: as measured here)")
      ->type_name("SPEED")
      ->transform(speed());
  command
      .add_option("--dram", options.other.dram_bytes_per_s,
                  "How fast another machine reads its memory (default: as measured here)")
      ->type_name("SPEED")
      ->transform(speed());
}

CLI::App* add_plan(CLI::App& program, PlanOptions& options) {
  CLI::App* command = add_command(
      program, "plan", "Show what memory a run would hold and how fast it could be",
      "Shows the memory that a run with the same options would allocate. The header of the model\n"
      "is enough for that (a download of its first megabytes). Then measures for some seconds how\n"
      "fast the run would be: memory, disk and CPU, and steps with other memory in the place of\n"
      "the weights. Loads no weights. Ends with status 4 when the budget cannot be met.\n\n"
      "Examples:\n"
      "  sluice plan model.gguf --budget 4GiB --ctx 2048\n"
      "  sluice plan model.gguf --for serve --budget 4GiB --parallel 4\n"
      "  sluice plan --table model-f16.gguf --budgets 3GiB,6GiB\n"
      "  sluice plan model.gguf --budget 4GiB --disk 1.5GB/s --dram 20GB/s\n"
      "  sluice plan hf:Qwen/Qwen3-8B-GGUF:Q4_K_M  # before it is downloaded\n"
      "  sluice plan hf:Qwen/Qwen3-8B-GGUF  # which of its files to take");
  add_common_options(*command, options.common, "what the budget allows, up to the model's",
                     ModelPart::headers);
  add_speculate_options(*command, options.common);
  add_list_option(
      *command, "--for",
      "What is planned: run (or chat), serve, batch, embed or rerank, each with what it holds "
      "besides the model; behind a comma also what another machine has, such as "
      "6GiB,2cpu,avx2,disk=1GB/s,dram=20GB/s,int8=100G/s (multiply-adds of its processors; "
      "without that as fast as these would be with its instruction set)",
      [&options](const std::vector<std::string>& words) { take_uses(options, words); })
      ->type_name("USE")
      ->default_str("run; of an encoder embed");
  add_other_machine_options(*command, options);
  command
      ->add_option("--parallel", options.parallel,
                   "Number of sequences to make room for (default: 1; for a server what it "
                   "chooses itself)")
      ->type_name("N")
      ->check(count_between(1, 4096));
  command
      ->add_option(
          "--hit-rate", options.hit_rate,
          "For a mixture of experts: the share of the experts needed that are found in memory, as "
          "an earlier run measured it (default: as real models were found to choose)")
      ->type_name("0..1")
      ->check(number_between(0, 1, "from 0 to 1"));
  command->add_flag("--table", options.table,
                    "Show several models, those of folders, or if it is one file its standard "
                    "quantisations, side by side: sizes, what is streamed, and speeds");
  command->add_option("MODELS", options.others, "With --table: more models, or folders of models")
      ->transform(named_model(*command, ModelPart::header))
      ->type_name("");
  add_number_list(*command, "--budgets", options.budgets,
                  "With --table: the budgets to plan for (default: --budget, or "
                  "2GiB,4GiB,6GiB,8GiB)",
                  size())
      ->type_name("SIZES")
      ->excludes("--budget");
  add_json_option(*command, options.json);
  command->callback([command, &options] { refuse_said_twice(*command, options); });
  return command;
}

int run_plan(const PlanOptions& given) {
  if (!models_of_repository(given.common.model).empty()) return run_plan_repository(given);
  if (given.table) return run_plan_table(given);
  if (!given.others.empty() || !given.budgets.empty()) {
    throw UsageError("more than one model or budget needs --table");
  }
  enter_sandbox(given.common, {});
  Progress progress(given.common.quiet);
  read_draft_model(given.common.speculate);
  const engine::RunPlanner planner(given.common.model);
  check_report_of_model(given.common);
  if (given.hit_rate && model::Keys(planner.header()).whole_or("expert_count", 0) == 0) {
    throw UsageError("--hit-rate: the model has no experts: leave it out");
  }
  const bool is_for_text = given.use == PlannedUse::run || given.use == PlannedUse::chat ||
                           given.use == PlannedUse::batch;
  if (is_for_text && given.said_by_for.contains("use")) engine::require_text(planner.header());
  PlanOptions options = given;
  const std::uint32_t model_context = model::trained_context(model::Keys(planner.header()));
  engine::EngineOptions settings;
  engine::PlannedRun run;
  const auto plan_use = [&] {
    settings = options_for_use(options, planner, model_context);
    settle_draft_model(options.common, planner, settings);
    settle_predictor(options.common.speculate, planner, settings);
    run = planner.plan(settings);
  };
  plan_use();
  if (options.use == PlannedUse::run && reads_whole(run.plan)) {
    options.use = PlannedUse::embed;
    plan_use();
  }
  warn_of_key_options(options.common, run.plan);
  const std::uint64_t missing = missing_bytes(planner.header());
  if (missing != 0 && header_bytes_read() == 0 && !options.common.quiet) {
    warn(
        fmt::format("{} was cut off: its last {} are missing, and no run will take it; copy or "
                    "download it again",
                    options.common.model.string(), format_bytes(missing)));
  }
  if (!run.plan.budget.note.empty() && !options.common.quiet) warn(run.plan.budget.note);
  const std::string long_context = context_warning(options.common, planner.header());
  if (!long_context.empty() && !options.common.quiet) warn(long_context);
  const std::string lacking = options.other.lacking();
  if (!lacking.empty() && !options.common.quiet) warn(lacking);
  // Where all experts have a place, all are found there.
  const double hit_rate =
      run.work.has_streamed_experts() ? options.hit_rate.value_or(run.work.usual_hit_rate()) : 1;
  progress.show_now("measuring memory, disk and processors for some seconds");
  const Prediction prediction = predict(planner, options.common.model, settings, run, hit_rate,
                                        options.other, options.common.quiet);
  progress.clear();
  const std::uint64_t no_streaming_bytes = budget_without_streaming(planner, settings, run);
  const bool rates = planner.header().find_tensor("cls.output.weight") != nullptr;
  const std::string_view use = use_name(options.use, rates);
  ordered_json json = to_json(use, run, prediction, hit_rate, model_context, no_streaming_bytes);
  json["header_bytes_read"] = header_bytes_read();
  write_output(options.json ? json_text(json)
                            : fit_terminal(table(use, run, prediction, hit_rate, model_context,
                                                 no_streaming_bytes)));
  write_report_file(options.common, json);
  if (!run.plan.fits()) throw plan::budget_error(run.plan);
  return 0;
}

}  // namespace sluice::cli
