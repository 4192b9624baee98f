#include "core/cli/recommend.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "core/cli/files.h"
#include "core/cli/header_in_memory.h"
#include "core/cli/json.h"
#include "core/cli/machine_rates.h"
#include "core/cli/model_list.h"
#include "core/cli/models_folder.h"
#include "core/cli/output.h"
#include "core/cli/plan_choice.h"
#include "core/error.h"
#include "core/synth/synthetic_model.h"
#include "core/text/quoted.h"

namespace sluice::cli {
namespace {

using nlohmann::ordered_json;

// How fast this machine is: as it is known. It is measured once, and where nothing is known.
class KnownMachine {
 public:
  explicit KnownMachine(const PlanOptions& options) : options_(options) {
    const std::filesystem::path folder = models_folder();
    const std::vector<fetch::ListedModel> models = fetch::list_models(installed_models());
    const fetch::ListedModel* const model = model_to_read(models, folder);
    has_file_ = tells_of_disk(model);
    path_ = file_of_disk(model, folder);
  }

  // A rate that is not known is 0.
  const engine::MachineLimits& limits(const QuickPlan& plan) {
    const std::uint64_t reads = std::bit_floor(plan.run.work.scattered_bytes());
    const bool needs_disk = plan.work.streamed_bytes != 0;
    const auto [found, is_new] = by_reads_.try_emplace({needs_disk, reads});
    if (is_new) found->second = find(plan, needs_disk);
    return found->second;
  }

  // What was measured last; nothing before the first limits().
  const std::optional<KnownLimits>& measured() const { return measured_; }

 private:
  engine::MachineLimits find(const QuickPlan& plan, bool needs_disk) {
    MachineRates rates(machine_, {path_, 0, static_cast<unsigned>(plan.run.cpus.size()),
                                  plan.run.plan.cache.sequences, plan.run.work, true});
    engine::MachineLimits limits = rates.known();
    const bool lacks_disk =
        needs_disk && has_file_ && limits.disk_bytes_per_s == 0 && !options_.other.disk_bytes_per_s;
    if (!measured_ || limits.dram_bytes_per_s == 0 || limits.int8_macs_per_s == 0 || lacks_disk) {
      measured_ = rates.measure(plan.run.cpus);
      rates.save(options_.common.quiet);
      limits = rates.known();
    }
    options_.other.replace(limits, plan.run.cpus);
    return limits;
  }

  const PlanOptions& options_;
  topology::Machine machine_ = topology::read_machine();
  std::filesystem::path path_;
  bool has_file_ = false;
  std::optional<KnownLimits> measured_;
  std::map<std::pair<bool, std::uint64_t>, engine::MachineLimits> by_reads_;
};

// The name that `sluice synth` has for what people call MXFP4: of a mixture, the experts alone.
std::string_view quant_of_shape(std::string_view quant, const synth::Shape& shape) {
  return quant == "MXFP4" && shape.experts.count != 0 ? "MXFP4_MOE" : quant;
}

class Recommendation {
 public:
  explicit Recommendation(const RecommendOptions& options)
      : options_(options.plan), task_(options.task), machine_(options_) {}

  void add(const KnownModel& model) {
    const synth::Shape& shape = synth::shape_by_name(model.shape);
    HeaderInMemory header;
    for (const std::string& quant : model.quants) {
      const synth::SyntheticModel synthetic(shape, quant_of_shape(quant, shape));
      header.hold(synthetic.header());
      const engine::RunPlanner planner = next_planner(header.path());
      const QuickPlan quick = quick_plan(planner, options_);
      // Threads are timed for the first one; all have the same budget.
      options_.common.threads = static_cast<unsigned>(quick.run.cpus.size());
      budget_bytes_ = quick.run.plan.budget.bytes;
      candidates_.push_back(
          planned_candidate(model.name, quant, synthetic.file_bytes(), planner, quick));
      references_.push_back(model.repository + ":" + quant);
      made_from_.push_back(set_speed(candidates_.back(), quick));
    }
  }

  bool has_fitting() const { return std::ranges::any_of(candidates_, &Candidate::fits); }
  std::uint64_t budget_bytes() const { return budget_bytes_; }
  const std::vector<Candidate>& candidates() const { return candidates_; }

  ordered_json json() const {
    const Choice choice = chosen();
    ordered_json models = ordered_json::array();
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      const char* speed =
          is_embedding() ? "most_prefill_tokens_per_s" : "predicted_decode_tokens_per_s";
      models.push_back(candidate_json(candidates_[i], choice, speed));
      models.back()["reference"] = references_[i];
      models.back()["made_from"] = made_from_[i];
    }
    ordered_json json = {
        {"task", task_}, {"budget_bytes", budget_bytes_}, {"models", std::move(models)}};
    json["made_from"] = nullptr;
    if (machine_.measured()) json["made_from"] = known_limits(*machine_.measured());
    json["choice"] = nullptr;
    if (choice.candidate != nullptr) {
      json["choice"] = {{"name", choice.candidate->name},
                        {"reference", reference_of(choice)},
                        {"reason", choice.reason},
                        {"next", next(choice)}};
    }
    return json;
  }

  std::string text() const {
    const Choice choice = chosen();
    std::string out =
        candidate_table(candidates_, choice, "model", is_embedding() ? "step" : "token") + "\n";
    if (is_embedding()) out += "tokens/s of texts that are read, at most\n";
    if (choice.candidate != nullptr) {
      out += fmt::format("* {}: {}\n", reference_of(choice), choice.reason);
    }
    out += fmt::format("for a budget of {}; sizes follow from the shapes of the models\n",
                       format_bytes(budget_bytes_));
    if (has_unknown_speed()) {
      out +=
          "-: how fast this disk reads what such a model needs is not known: --disk 1.5GB/s tells "
          "it, or `sluice plan` of a large one that is here\n";
    }
    if (machine_.measured()) out += "made from " + origin_text(*machine_.measured()) + "\n";
    if (choice.candidate == nullptr) return out;
    out += "\nnext:\n";
    for (const std::string& command : next(choice)) out += "  " + command + "\n";
    return out;
  }

 private:
  bool is_embedding() const { return task_ == "embed"; }

  Choice chosen() const {
    ChoiceRule rule;
    rule.prefers_large_models = true;
    if (is_embedding()) {
      rule.enough_tokens_per_s = 100;  // a page of text takes some seconds
      rule.does = "may read";
    }
    return choose(candidates_, rule);
  }

  const std::string& reference_of(const Choice& choice) const {
    return references_[static_cast<std::size_t>(choice.candidate - candidates_.data())];
  }

  bool has_unknown_speed() const {
    return std::ranges::any_of(candidates_,
                               [](const Candidate& one) { return one.fits && !one.tokens_per_s; });
  }

  // Embedding reads texts, which is arithmetic; other tasks write them. Returns the rates that the
  // speed is made from; null where there is none.
  ordered_json set_speed(Candidate& candidate, const QuickPlan& quick) {
    if (!candidate.fits) return nullptr;
    const engine::MachineLimits& limits = machine_.limits(quick);
    const bool needs_disk = quick.work.streamed_bytes != 0;
    if (needs_disk && limits.disk_bytes_per_s == 0) return nullptr;
    candidate.tokens_per_s =
        is_embedding() ? engine::decode_bound(limits, quick.work, quick.run.plan.chunk).tokens_per_s
                       : quick.tokens_per_s(limits);
    ordered_json rates = {{"dram_bytes_per_s", limits.dram_bytes_per_s},
                          {"int8_macs_per_s", limits.int8_macs_per_s}};
    if (needs_disk) rates["disk_bytes_per_s"] = limits.disk_bytes_per_s;
    return rates;
  }

  // What to type to look at the choice, to get it and to use it.
  std::vector<std::string> next(const Choice& choice) const {
    const std::string& reference = reference_of(choice);
    const std::string budget =
        options_.common.budget_bytes == 0
            ? ""
            : fmt::format(" --budget {}MiB", options_.common.budget_bytes >> 20);
    const std::string use =
        is_embedding()
            ? fmt::format("sluice embed {} -f texts.txt -o vectors.npy{}", reference, budget)
            : fmt::format("sluice run {} -p \"Hello\"{}", reference, budget);
    return {fmt::format("sluice plan {}{}", reference.substr(0, reference.rfind(':')), budget),
            fmt::format("sluice pull {}", reference), use};
  }

  PlanOptions options_;
  std::string task_;
  KnownMachine machine_;
  std::uint64_t budget_bytes_ = 0;
  std::vector<Candidate> candidates_;
  // One for each candidate.
  std::vector<std::string> references_;
  std::vector<ordered_json> made_from_;
};

// The models of the list for the task.
std::vector<KnownModel> listed_models(const RecommendOptions& options) {
  std::vector<KnownModel> models =
      options.list.empty()
          ? parse_model_list(shipped_models(), "models.json")
          : parse_model_list(read_text(options.list), text::escaped(options.list.string(), 200));
  std::erase_if(models, [&](const KnownModel& one) { return !one.is_for(options.task); });
  if (models.empty()) {
    throw UsageError(fmt::format("{} has no model for --task {}",
                                 text::escaped(options.list.string(), 200), options.task));
  }
  return models;
}

}  // namespace

CLI::App* add_recommend(CLI::App& program, RecommendOptions& options) {
  CLI::App* command = add_command(
      program, "recommend", "Say which well-known model to take for this machine",
      "Plans the models of a list at one budget, each with the quantisations that there are of "
      "it,\n"
      "and marks one: the largest that is fast enough here. Downloads nothing: sizes follow from\n"
      "the shapes of the models, and speeds from what is known of this machine, which is measured\n"
      "for a second. Ends with status 4 when none fits.\n\n"
      "Examples:\n"
      "  sluice recommend\n"
      "  sluice recommend --budget 6GiB --task code\n"
      "  sluice recommend --list models.json --json");
  command
      ->add_option("--budget", options.plan.common.budget_bytes,
                   "All the memory that a run may hold, its page cache included")
      ->type_name("SIZE|auto")
      ->default_str("auto")
      ->transform(size_or_auto());
  command->add_option("--task", options.task, "What the model is for: chat, code or embed")
      ->type_name("TASK")
      ->check(one_of({std::begin(known_tasks), std::end(known_tasks)}))
      ->capture_default_str();
  command
      ->add_option("--list", options.list,
                   "A file to choose from, in the form of the list that comes with the program")
      ->type_name("FILE");
  add_other_machine_options(*command, options.plan);
  add_json_option(*command, options.plan.json);
  command->add_flag("-q,--quiet", options.plan.common.quiet, "Show no progress and no warnings");
  return command;
}

int run_recommend(const RecommendOptions& options) {
  const std::vector<KnownModel> models = listed_models(options);
  Progress progress(options.plan.common.quiet);
  progress.show_now("planning models, and measuring what is not known of this machine");
  Recommendation recommendation(options);
  for (const KnownModel& model : models) recommendation.add(model);
  progress.clear();
  write_output(options.plan.json ? json_text(recommendation.json())
                                 : fit_terminal(recommendation.text()));
  if (recommendation.has_fitting()) return 0;
  throw_none_fits("models", recommendation.budget_bytes(), recommendation.candidates());
}

}  // namespace sluice::cli
