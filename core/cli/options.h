// The options that several commands share, and their meaning to the engine.
//
// A command declares its options with the add_ functions on its CLI11 subcommand; CLI11 fills the
// structs before the command runs. What the options mean is checked here where CLI11 cannot.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/cli/expert_trace.h"
#include "core/engine/engine.h"
#include "core/gguf/gguf.h"
#include "core/sampling/sampler.h"

namespace sluice::cli {

class DraftModel;  // core/cli/draft_model.h

// Of the commands that generate texts (core/cli/speculation.h); other commands guess nothing.
struct SpeculateOptions {
  std::string mode = "off";
  std::uint32_t draft_max = 7;
  bool has_draft_max = false;                    // --draft-max is given
  std::shared_ptr<DraftModel> draft_model = {};  // of --draft; null: not given
  bool is_off() const { return mode == "off"; }
};

struct CommonOptions {
  std::filesystem::path model;
  std::uint64_t budget_bytes = 0;  // 0: auto
  std::uint32_t context = 0;       // 0: not given
  std::uint32_t window = 0;        // 0: not given
  std::optional<std::uint32_t> sinks;
  unsigned threads = 0;          // 0: auto
  unsigned planned_threads = 0;  // of another machine that is planned for; 0: those of this one
  bool has_memory_of_another = false;  // budget_bytes is what that machine has
  std::string kv = "int8";
  std::string io = "auto";
  std::filesystem::path config;
  std::filesystem::path report;
  std::filesystem::path trace_experts;                                   // empty: none
  std::shared_ptr<ExpertTrace> trace = std::make_shared<ExpertTrace>();  // to that file
  std::string sandbox = "auto";
  bool force = false;  // replaces files that exist
  bool quiet = false;
  SpeculateOptions speculate;
};

struct SamplingOptions {
  sampling::SamplerOptions sampler;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
  std::set<std::string> given;  // the options of the sampler that the user gave: "--temp"
};

// Validators of option values. Their messages name the value and the allowed ones. Counts are
// decimal digits only: CLI11 would turn -1 into a large number. Where a word is allowed instead of
// a count, it stands for the number `meaning`; pass that validator to Option::transform.
CLI::Validator number_between(double least, double most, const std::string& range);
CLI::Validator count_between(std::uint64_t least, std::uint64_t most);
CLI::Validator count_or(const std::string& word, const std::string& meaning, std::uint64_t least,
                        std::uint64_t most);
// A size in bytes such as "4.5GiB", "5500M", "6g" (units are powers of 1024), or "auto" for 0; for
// Option::transform.
CLI::Validator size_or_auto();
CLI::Validator size();  // the same without "auto"
CLI::Validator one_of(const std::vector<std::string>& values);

// Adds the subcommand `name`; its help ends with `example`.
CLI::App* add_command(CLI::App& program, const std::string& name, const std::string& description,
                      const std::string& example);

// Where installed models are: relative to the program, so that an installation can be moved.
std::filesystem::path installed_models();

// What a command reads of a model: with the header alone, one that is not here needs no download.
// `headers` also takes a repository of several models: what becomes of its name is a folder
// (models_of_repository in core/cli/pull.h).
enum class ModelPart { whole, header, headers };

// Replaces the name of a model that `sluice list` shows by its path, and a reference (docs/pull.md)
// by that of the file it names, which is downloaded if it is not here, or read as far as its header
// goes; for Option::transform of an option of `command`, whose --quiet and --sandbox hold for it.
CLI::Validator named_model(const CLI::App& command, ModelPart part = ModelPart::whole);

// A model that is not there, or is a folder.
struct MissingModel {
  std::string name;  // as it was given
  std::string hint;  // to add to the message that it cannot be read; empty: there is nothing to say
};

// Looks where models may be, so it has to come before a sandbox (core/cli/sandbox.h) hides them.
// The hint names the installed models, or what was probably meant.
MissingModel missing_model(const CLI::App& command);

// MODEL, or -m: a path, the name of a model that is here, or a reference.
CLI::Option* add_model_argument(CLI::App& command, std::filesystem::path& model,
                                ModelPart part = ModelPart::whole);

// MODEL and the options of the group "Common options". `context_default` completes the help of
// --ctx.
void add_common_options(
    CLI::App& command, CommonOptions& options,
    const std::string& context_default = "what the budget allows, up to the model's",
    ModelPart part = ModelPart::whole);
void add_trace_option(CLI::App& command, CommonOptions& options);  // --trace-experts
// `seed_default` completes the help of --seed.
void add_sampling_options(CLI::App& command, SamplingOptions& options,
                          const std::string& seed_default = "another one each time");
void add_json_option(CLI::App& command, bool& json);

// --sandbox (core/cli/sandbox.h).
CLI::Option* add_sandbox_option(CLI::App& command, std::string& sandbox);

// --force: ask_before_replacing() needs not ask.
CLI::Option* add_force_option(CLI::App& command, bool& force);

// --prompt-cache and --prompt-cache-size.
void add_prompt_cache_options(CLI::App& command, engine::PromptCacheOptions& options);

// An option that takes words as "a,b,c", and may be given several times. `take` is called once,
// with all of them. An empty word is refused.
CLI::Option* add_list_option(CLI::App& command, const std::string& name, const std::string& help,
                             std::function<void(const std::vector<std::string>&)> take);

// The same of numbers: `make_digits` checks a word, and leaves nothing but digits of it.
template <typename Number>
CLI::Option* add_number_list(CLI::App& command, const std::string& name,
                             std::vector<Number>& numbers, const std::string& help,
                             const CLI::Validator& make_digits) {
  const std::string shown = name.substr(name.rfind(',') + 1);
  return add_list_option(command, name, help,
                         [&numbers, shown, make_digits](const std::vector<std::string>& words) {
                           numbers.clear();
                           for (std::string word : words) {
                             const std::string problem = make_digits(word);
                             if (!problem.empty()) throw CLI::ValidationError(shown, problem);
                             numbers.push_back(static_cast<Number>(std::stoull(word)));
                           }
                         });
}

// -o and the like: an option that takes ids as "1,2,3". Ids are checked by check_tokens once the
// vocabulary is known.
CLI::Option* add_token_option(CLI::App& command, const std::string& name,
                              std::vector<tokenizer::Token>& tokens, const std::string& help);

// Refuses unusable stop texts before a model is read.
void check_stop_texts(const SamplingOptions& options);

// Throws UsageError for options of a run that do not go together.
void check_run_options(const CommonOptions& options);

// Throws UsageError naming the first id that is not in the vocabulary.
void check_tokens(std::span<const tokenizer::Token> tokens, std::uint32_t vocabulary);

// EngineOptions::checkpoints where conversations go on: what is asked next may have another end.
inline constexpr std::uint32_t checkpoints_of_conversations = 1;

// The same for all commands. `rows`: how many texts may have drafts of another model at a time.
// Throws as check_run_options() does.
engine::EngineOptions engine_options(const CommonOptions& options, std::uint32_t rows = 1);

// How many of the first tokens stay in the window, given or not; 0 without a window.
std::uint32_t settled_sinks(const CommonOptions& options);

// Warns of --kv and --window where the model keeps no keys and values. (They are not refused:
// scripts give them to models of all kinds.)
void warn_of_key_options(const CommonOptions& common, const plan::MemoryPlan& plan);

// What to warn of when --ctx is beyond what the model was trained for; empty when it is not.
std::string context_warning(const CommonOptions& common, const gguf::Model& header);

// Opens the model with these options, and shows the warnings of its tokenizer unless --quiet. With
// a planner of the model its header is not read again.
std::unique_ptr<engine::Engine> open_engine(const CommonOptions& common,
                                            engine::EngineOptions options,
                                            std::optional<engine::RunPlanner> planner = {});

}  // namespace sluice::cli
