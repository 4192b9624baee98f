#include "core/http/api/model_metrics.h"

#include <cstdint>
#include <fmt/format.h>
#include <fstream>
#include <optional>
#include <string>

namespace sluice::http {
namespace {

double number(std::uint64_t value) {
  return static_cast<double>(value);
}

// What this process has read from disks, as the system counts it.
std::optional<std::uint64_t> disk_bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string name;
  std::uint64_t value = 0;
  while (file >> name >> value) {
    if (name == "read_bytes:") return value;
  }
  return std::nullopt;
}

// Names of lines are words of the program, without quotation marks.
std::string labels_of(const plan::Line& line) {
  return fmt::format("line=\"{}\",kind=\"{}\"", line.name, plan::kind_name(line.kind));
}

// All lines of a metric stand together.
void write_draft_metrics(MetricsText& text, const serve::SchedulerCounts& counts) {
  const auto write = [&](const char* name, const char* help,
                         std::uint64_t speculate::DraftCounts::*of) {
    for (std::size_t kind = 0; kind < speculate::kind_names.size(); ++kind) {
      text.counter(name, kind == 0 ? help : "", number(counts.drafts_by_kind[kind].*of),
                   fmt::format("source=\"{}\"", speculate::kind_names[kind]));
    }
  };
  write("sluice_drafted_tokens_total", "Tokens that were guessed before they were chosen.",
        &speculate::DraftCounts::drafted);
  write("sluice_accepted_tokens_total", "Of these, those that were right.",
        &speculate::DraftCounts::accepted);
}

}  // namespace

void write_model_metrics(MetricsText& text, const serve::Service& service,
                         const GenerationHost& host) {
  const serve::Service::Statistics now = service.statistics();
  text.gauge("sluice_queue", "Tasks that wait to be begun.", number(now.queued_interactive),
             "priority=\"interactive\"")
      .gauge("sluice_queue", "", number(now.queued_background), "priority=\"background\"")
      .gauge("sluice_running", "Sequences that run.", number(now.running))
      .counter("sluice_tasks_total", "Tasks that ended.", number(now.completed),
               "end=\"completed\"")
      .counter("sluice_tasks_total", "", number(now.failed), "end=\"failed\"")
      .counter("sluice_tasks_total", "", number(now.cancelled), "end=\"cancelled\"")
      .counter("sluice_tasks_refused_total", "Tasks that found the queue full.",
               number(now.refused))
      .counter("sluice_steps_total", "Passes over the weights.", number(now.scheduler.steps))
      .counter("sluice_steps_given_up_total", "Passes that nobody waited for any more.",
               number(now.steps_given_up))
      .counter("sluice_read_failures_total", "Passes whose weights could not be read.",
               number(now.read_failures))
      .counter("sluice_steps_failed_total", "Of these, those that no other try has made good.",
               number(now.steps_failed))
      .counter("sluice_prompt_tokens_total", "Tokens of prompts.",
               number(now.scheduler.prompt_tokens_evaluated), "source=\"computed\"")
      .counter("sluice_prompt_tokens_total", "", number(now.scheduler.prompt_tokens_shared),
               "source=\"shared\"")
      .counter("sluice_tokens_again_total", "Tokens computed again after a preemption.",
               number(now.scheduler.tokens_evaluated_again))
      .counter("sluice_texts_begun_total", "Texts that were begun.",
               number(now.scheduler.rows_begun))
      .counter("sluice_prefix_hits_total", "Texts that began with a prefix that was there.",
               number(now.scheduler.prefix_hits))
      .counter("sluice_preemptions_total", "Texts that had to make room for others.",
               number(now.scheduler.preemptions))
      .counter("sluice_generated_tokens_total", "Tokens that were generated.",
               number(now.scheduler.tokens_generated))
      .counter("sluice_forced_tokens_total",
               "Of these, those that could only be one, and needed no pass of their own.",
               number(now.scheduler.tokens_forced))
      .counter(
          "sluice_text_steps_total",
          "Passes that gave tokens of a text, counted for each text: with what was guessed right "
          "among the tokens, they have several each.",
          number(now.scheduler.row_steps))
      .histogram("sluice_first_token_seconds", "From a request to its first token.",
                 host.first_token)
      .histogram("sluice_between_tokens_seconds", "Between two tokens of a text.",
                 host.between_tokens);
  write_draft_metrics(text, now.scheduler);
  const plan::MemoryPlan& plan = service.engine().plan();
  for (const plan::Line& line : plan.lines) {
    text.gauge("sluice_planned_bytes", "Memory of the plan, by line.", number(line.bytes),
               labels_of(line));
  }
  text.gauge("sluice_budget_bytes", "Memory that the process may hold.", number(plan.budget.bytes));
  if (const auto bytes = disk_bytes_read()) {
    text.counter("sluice_disk_read_bytes_total", "Bytes that came from disks.", number(*bytes));
  }
}

}  // namespace sluice::http
