#include "core/cli/plan.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/cli/json.h"
#include "core/cli/output.h"
#include "core/cli/report.h"
#include "core/engine/engine.h"
#include "core/engine/machine_limits.h"

namespace sluice::cli {
namespace {

using nlohmann::ordered_json;

struct Prediction {
  engine::MachineLimits limits;
  engine::DecodeBound bound;
  std::optional<double> tokens_per_s;  // of all sequences; nothing if the plan does not fit
  // The same if no expert that is needed is in memory; only for a mixture that is streamed.
  std::optional<double> tokens_per_s_without_hits;
};

// Tokens per second of all sequences together.
double rehearse(const engine::PlannedRun& run, const std::filesystem::path& model,
                const engine::EngineOptions& options, const engine::MachineLimits& limits,
                double hit_rate) {
  const engine::StepTime step = engine::rehearse_run(model, options, hit_rate);
  double seconds = step.seconds;
  if (!step.has_read) {
    const auto streamed = static_cast<double>(run.work.with_hit_rate(hit_rate).streamed_bytes);
    seconds = std::max(seconds, streamed / limits.disk_bytes_per_s);
  }
  return run.plan.cache.sequences / seconds;
}

Prediction predict(const engine::PlannedRun& run, const std::filesystem::path& model,
                   const engine::EngineOptions& options, double hit_rate) {
  Prediction out;
  out.limits = engine::measure_machine_limits(run.cpus, model);
  out.bound =
      engine::decode_bound(out.limits, run.work.with_hit_rate(hit_rate), run.plan.cache.sequences);
  if (!run.plan.fits()) return out;
  out.tokens_per_s = rehearse(run, model, options, out.limits, hit_rate);
  if (run.work.has_streamed_experts()) {
    out.tokens_per_s_without_hits = rehearse(run, model, options, out.limits, 0);
  }
  return out;
}

ordered_json to_json(const engine::PlannedRun& run, const Prediction& prediction, double hit_rate) {
  const plan::MemoryPlan& plan = run.plan;
  ordered_json json;
  json["lines"] = plan_lines(plan);
  json["total_bytes"] = plan.total_bytes();
  json["budget_bytes"] = plan.budget.bytes;
  json["budget_source"] = plan.budget.source;
  json["fits"] = plan.fits();
  json["least_budget_bytes"] = plan.least_budget_bytes;
  json["context"] = plan.context;
  json["window"] = plan.cache.window.positions;
  json["sinks"] = plan.cache.window.sinks;
  json["parallel"] = plan.cache.sequences;
  json["chunk"] = plan.chunk;
  json["pinned_bytes"] = plan.tape.pinned_bytes;
  json["streamed_bytes_per_step"] = plan.tape.streamed_bytes_per_step;
  json["predicted_decode_tokens_per_s"] = or_null(prediction.tokens_per_s);
  if (run.work.has_streamed_experts()) {
    json["expert_hit_rate"] = hit_rate;
    json["predicted_decode_tokens_per_s_without_hits"] =
        or_null(prediction.tokens_per_s_without_hits);
  }
  json["bound_tokens_per_s"] = prediction.bound.tokens_per_s;
  json["bound"] = prediction.bound.name;
  json["dram_bytes_per_s"] = prediction.limits.dram_bytes_per_s;
  json["disk_bytes_per_s"] = prediction.limits.disk_bytes_per_s;
  json["int8_macs_per_s"] = prediction.limits.int8_macs_per_s;
  return json;
}

std::string context_text(const plan::MemoryPlan& plan) {
  const kvcache::CacheConfig& cache = plan.cache;
  std::string text = cache.window.positions == 0
                         ? fmt::format("a context of {} tokens", plan.context)
                         : fmt::format("a window of {} tokens, of which the first {} stay",
                                       cache.window.positions, cache.window.sinks);
  if (cache.sequences > 1) text += fmt::format(" for each of {} sequences", cache.sequences);
  return text;
}

std::string table(const engine::PlannedRun& run, const Prediction& prediction, double hit_rate) {
  const plan::MemoryPlan& plan = run.plan;
  std::string text;
  std::size_t width = 16;
  for (const plan::Line& line : plan.lines) width = std::max(width, line.name.size());
  const auto row = [&](std::string_view name, std::uint64_t bytes, std::string_view kind) {
    text += fmt::format("{:<{}}{:>12}  {}\n", name, width + 2, format_bytes(bytes), kind);
  };
  for (const plan::Line& line : plan.lines) row(line.name, line.bytes, plan::kind_name(line.kind));
  row("total", plan.total_bytes(), "");
  row("budget", plan.budget.bytes, plan.budget.source);
  text += "\n";
  text += plan.fits() ? fmt::format("fits, with {}", context_text(plan))
                      : fmt::format("does not fit: the least that works is {}",
                                    format_bytes(plan.least_budget_bytes));
  const std::uint64_t streamed = run.work.with_hit_rate(hit_rate).streamed_bytes;
  if (streamed != 0) {
    text += fmt::format("; {} are streamed for every {}", format_bytes(streamed),
                        plan.cache.sequences == 1 ? "token" : "step");
  }
  text += "\n";
  if (run.work.has_streamed_experts()) {
    text +=
        fmt::format("if {:.0f} % of the experts that a step needs are in memory: ", 100 * hit_rate);
  }
  if (prediction.tokens_per_s) {
    text += fmt::format("about {:.2f} tokens/s; ", *prediction.tokens_per_s);
  }
  text += fmt::format("this machine's {} allows {:.2f} at most\n", prediction.bound.name,
                      prediction.bound.tokens_per_s);
  if (prediction.tokens_per_s_without_hits) {
    text +=
        fmt::format("about {:.2f} tokens/s if none is\n", *prediction.tokens_per_s_without_hits);
  }
  return text;
}

}  // namespace

CLI::App* add_plan(CLI::App& program, PlanOptions& options) {
  CLI::App* command = add_command(
      program, "plan", "Show what memory a run would hold and how fast it could be",
      "Shows the memory that a run with the same options would allocate. The header of the model\n"
      "is enough for that (a download of its first megabytes). Then measures for two or three\n"
      "seconds how fast the run would be: memory, disk and CPU, and a step with other memory in\n"
      "the place of the weights. Loads no weights. Ends with status 4 when the budget cannot be\n"
      "met.\n\n"
      "Example:\n"
      "  sluice plan model.gguf --budget 4GiB --ctx 2048");
  add_common_options(*command, options.common);
  command->add_option("--parallel", options.parallel, "Number of sequences to make room for")
      ->type_name("N")
      ->check(count_between(1, 4096))
      ->capture_default_str();
  command
      ->add_option(
          "--hit-rate", options.hit_rate,
          "For a mixture of experts: the share of the experts needed that are found in memory, as "
          "an earlier run measured it (default: as if all experts were needed equally often)")
      ->type_name("0..1")
      ->check(number_between(0, 1, "from 0 to 1"));
  add_json_option(*command, options.json);
  return command;
}

int run_plan(const PlanOptions& options) {
  engine::EngineOptions engine_settings = engine_options(options.common);
  engine_settings.parallel = options.parallel;
  const engine::PlannedRun run = engine::plan_run(options.common.model, engine_settings);
  if (!run.plan.budget.note.empty() && !options.common.quiet) warn(run.plan.budget.note);
  const std::string long_context = context_warning(
      options.common, gguf::Model::open(options.common.model, {.header_only = true}));
  if (!long_context.empty() && !options.common.quiet) warn(long_context);
  // Where all experts have a place, all are found there.
  const double hit_rate =
      run.work.has_streamed_experts() ? options.hit_rate.value_or(run.work.expert_hit_rate()) : 1;
  const Prediction prediction = predict(run, options.common.model, engine_settings, hit_rate);
  write_output(options.json ? json_text(to_json(run, prediction, hit_rate))
                            : fit_terminal(table(run, prediction, hit_rate)));
  if (!run.plan.fits()) throw plan::budget_error(run.plan);
  return 0;
}

}  // namespace sluice::cli
