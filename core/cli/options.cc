#include "core/cli/options.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <limits>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/number.h"
#include "base/trim.h"
#include "core/cli/command_line.h"
#include "core/cli/files.h"
#include "core/cli/help.h"
#include "core/cli/interrupt.h"
#include "core/cli/output.h"
#include "core/cli/pull.h"
#include "core/cli/report.h"
#include "core/cli/speculation.h"
#include "core/engine/usual_sinks.h"
#include "core/error.h"
#include "core/fetch/listing.h"
#include "core/fetch/reference.h"
#include "core/model/hyper_parameters.h"
#include "core/sampling/text_stream.h"
#include "core/text/byte_order_mark.h"
#include "core/text/lower_case.h"
#include "core/text/quoted.h"
#include "kvcache/kv_cache.h"

namespace sluice::cli {
namespace {

constexpr std::uint64_t option_threads_max = 65536;
constexpr double greatest = std::numeric_limits<double>::max();

// A file of --config; its text is without comments.
struct ConfigFile {
  std::string name, text;

  // "FILE, line 3": where an item stands, the last time if it does so several times, or where its
  // section begins. The file alone where it is written in a way that is not found.
  std::string place_of(const CLI::ConfigItem& item) const;

  // CLI11 takes all lines up to the end of a list, and the last character of one that has none.
  void refuse_open_lists() const;
};

// The lines of a configuration file without their comments. A `#` in a quoted value is none: CLI11
// would cut the value there.
std::string without_comments(std::string_view text) {
  std::string out;
  char quote = 0;     // that is open
  char before = '=';  // what stands before: a value is quoted from its beginning
  bool is_comment = false;
  for (const char c : text) {
    if (c == '\n') {
      is_comment = false;
      quote = 0;
    } else if (quote != 0) {
      if (c == quote) quote = 0;
    } else if ((c == '"' || c == '\'') &&
               std::string_view("=[,\n").find(before) != std::string_view::npos) {
      quote = c;
    } else if (c == '#') {
      is_comment = true;
    }
    if (is_comment) continue;
    out += c;
    if (c == '\n' || base::white_space.find(c) == std::string_view::npos) before = c;
  }
  return out;
}

// "run", "a.b", or "" before the first section.
std::string section_of(const CLI::ConfigItem& item) {
  return fmt::format("{}", fmt::join(item.parents, "."));
}

// CLI11's name of what begins and ends a section.
bool is_key(const CLI::ConfigItem& item) {
  return item.name != "++" && item.name != "--";
}

std::string ConfigFile::place_of(const CLI::ConfigItem& item) const {
  std::istringstream lines(text);
  std::string section;
  std::size_t number = 0, found = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    CLI::detail::trim(line);
    const bool is_header = line.starts_with("[") && line.ends_with("]");
    if (is_header) section = line.substr(1, line.size() - 2);
    const bool is_item = is_key(item)
                             ? CLI::detail::trim_copy(line.substr(0, line.find('='))) == item.name
                             : is_header;
    if (is_item && section == section_of(item)) found = number;
  }
  return found == 0 ? name : fmt::format("{}, line {}", name, found);
}

void ConfigFile::refuse_open_lists() const {
  std::istringstream lines(text);
  std::size_t number = 0;
  const auto next = [&](std::string& line) {
    ++number;
    return static_cast<bool>(std::getline(lines, line));
  };
  for (std::string line; next(line);) {
    const std::string_view trimmed = base::trimmed(line);
    const std::size_t equals = trimmed.find('=');
    if (trimmed.starts_with(';') || equals == trimmed.npos) continue;
    std::string list(base::trimmed(trimmed.substr(equals + 1)));
    if (list.size() < 2 || !list.starts_with('[')) continue;
    const std::size_t begin = number;
    while (!list.ends_with(']') && next(line)) list += base::trimmed(line);
    if (list.ends_with(']')) continue;
    throw UsageError(fmt::format("{}, line {}: the list has no \"]\" at its end", name, begin));
  }
}

void set_option(CLI::App& command, CLI::Option& option, const CLI::ConfigItem& item) {
  const bool is_flag = option.get_expected_min() == 0;
  if (is_flag) {
    const std::string value = command.get_config_formatter()->to_flag(item);
    option.add_result(option.get_flag_value(item.name, value));
  } else {
    option.add_result(item.inputs);
  }
  option.run_callback();
}

// Gives a value from the file to its option, unless the command line names that option.
void apply(CLI::App& command, const CLI::ConfigItem& item, const ConfigFile& file) {
  CLI::Option* option = command.get_option_no_throw("--" + item.name);
  if (option == nullptr) option = command.get_option_no_throw("-" + item.name);
  const bool is_command = item.name == "config" || option == command.get_help_ptr();
  if (option == nullptr || is_command) {
    throw UsageError(fmt::format("{}: sluice {} has no option \"{}\"", file.place_of(item),
                                 command.get_name(), text::escaped(item.name, 100)));
  }
  if (option->count() > 0) return;
  const auto refuse_count = [&] {
    throw UsageError(
        fmt::format("{}: {} has {} values: give one, between quotes if there are spaces or commas "
                    "in it",
                    file.place_of(item), item.name, item.inputs.size()));
  };
  try {
    set_option(command, *option, item);
  } catch (const CLI::ArgumentMismatch&) {
    refuse_count();
  } catch (const CLI::ConversionError&) {
    if (item.inputs.size() != 1) refuse_count();
    throw UsageError(fmt::format("{}: {} is true or false, and not \"{}\"", file.place_of(item),
                                 item.name, text::escaped(item.inputs.front(), 100)));
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}: {}", file.place_of(item), problem_of(error, command)));
  }
}

bool has_command(const CLI::App& program, const std::string& name) {
  const auto is_named = [&](const CLI::App* command) { return command->get_name() == name; };
  return !program.get_subcommands(is_named).empty();
}

// Applies the keys in the section named like the command, then those before the first section; a
// key that has its value keeps it. Sections of other commands are skipped. (CLI11's own --config
// knows only the main program's file.)
void apply_config(CLI::App& command, const std::string& name) {
  const ConfigFile file{name, without_comments(text::without_byte_order_mark(read_text(name)))};
  file.refuse_open_lists();
  std::istringstream lines(file.text);
  CLI::ConfigBase format;
  format.comment('\n');  // in no line: none is left
  const std::vector<CLI::ConfigItem> items = format.from_config(lines);
  for (const CLI::ConfigItem& item : items) {
    if (item.parents.empty()) continue;
    const std::string section = section_of(item);
    if (!has_command(*command.get_parent(), section)) {
      throw UsageError(fmt::format("{}: section [{}]: there is no such command",
                                   file.place_of(item), text::escaped(section, 100)));
    }
    if (is_key(item) && section == command.get_name()) apply(command, item, file);
  }
  for (const CLI::ConfigItem& item : items) {
    if (is_key(item) && item.parents.empty()) apply(command, item, file);
  }
}

// The power of 1024 that a unit stands for: "", "k", "KiB", "gb".
std::optional<int> unit_power(std::string_view given) {
  const std::string unit = text::lower_case(given);
  if (unit.empty() || unit == "b") return 0;
  const std::size_t power = std::string_view("kmgtpe").find(unit[0]);
  const std::string rest = unit.substr(1);
  if (power == std::string_view::npos || (!rest.empty() && rest != "b" && rest != "ib")) {
    return std::nullopt;
  }
  return static_cast<int>(power) + 1;
}

// The bytes of a size: digits, perhaps with a fraction, and a unit. Nothing for any other text, for
// 0, and for sizes that no file or memory has.
std::optional<std::uint64_t> parse_size(const std::string& text) {
  const std::size_t digits_end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::size_t unit_begin = std::min(text.find_first_not_of(' ', digits_end), text.size());
  const std::optional<int> power = unit_power(text.substr(unit_begin));
  const std::string digits = text.substr(0, digits_end);
  const auto number = base::whole_number<double>(digits);
  if (!number || digits.starts_with('.') || digits.ends_with('.') || !power) return std::nullopt;
  const bool is_whole = digits.find('.') == std::string::npos;
  const double bytes = std::ldexp(*number, 10 * *power);
  if (!(bytes >= 1) || bytes >= 0x1p62) return std::nullopt;
  if (*power == 0) return is_whole ? base::whole_number<std::uint64_t>(digits) : std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

// Turns a size such as "4.5GiB" into a number of bytes. Returns what is wrong otherwise, or with a
// number of bytes that nobody means.
std::string make_bytes(std::string& text, std::string_view also) {
  const std::optional<std::uint64_t> bytes = parse_size(text);
  if (!bytes) return fmt::format("\"{}\" is {}a size such as 4.5GiB, 4G or 5500M", text, also);
  constexpr std::uint64_t few = 1 << 20, gigabytes_most = 256;
  if (*bytes < few && base::whole_number<std::uint64_t>(text)) {
    return fmt::format("{} are bytes: did you mean {}{}?", text, text,
                       *bytes <= gigabytes_most ? "GiB" : "MiB");
  }
  text = std::to_string(*bytes);
  return "";
}

}  // namespace

std::filesystem::path installed_models() {
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return (program.parent_path() / SLUICE_MODEL_FOLDER).lexically_normal();
}

namespace {

// As far as they stand on the command line: what a model's name means is found before other options
// get their values.
FetchOptions fetch_options(const CLI::App& command) {
  FetchOptions options;
  const CLI::Option* quiet = command.get_option_no_throw("--quiet");
  const CLI::Option* sandbox = command.get_option_no_throw("--sandbox");
  options.quiet = quiet != nullptr && quiet->count() > 0;
  if (sandbox != nullptr && sandbox->count() > 0) options.sandbox = sandbox->results().back();
  return options;
}

}  // namespace

// A file that is here comes first, and an installed model before the others.
CLI::Validator named_model(const CLI::App& command, ModelPart part) {
  return {[&command, part](std::string& text) -> std::string {
            namespace fs = std::filesystem;
            std::error_code ignored;
            if (text.empty()) return "the name is empty: name a file or a model";
            if (fs::exists(text, ignored)) return "";
            if (fetch::is_reference(text)) {
              const FetchOptions options = fetch_options(command);
              text = (part == ModelPart::whole     ? find_or_pull(text, options)
                      : part == ModelPart::headers ? find_or_read_headers(text, options)
                                                   : find_or_read_header(text, options))
                         .string();
              return "";
            }
            if (fs::path(text).has_parent_path()) return "";
            const fs::path found = installed_models() / (text + ".gguf");
            if (fs::is_regular_file(found, ignored)) {
              text = found.string();
              return "";
            }
            const auto models = fetch::list_models({});
            const auto called = fetch::find_models(models, text);
            if (called.size() > 1) return fetch::ambiguity(called, text);
            if (!called.empty()) text = called.front()->path.string();
            return "";
          },
          ""};
}

MissingModel missing_model(const CLI::App& command) {
  namespace fs = std::filesystem;
  const CLI::Option* option = nullptr;
  for (const char* name : {"--model", "IN.gguf", "MODEL"}) {
    if (option == nullptr) option = command.get_option_no_throw(name);
  }
  if (option == nullptr || option->empty()) return {};
  MissingModel missing{.name = option->results().front(), .hint = ""};
  std::error_code ignored;
  if (fs::is_directory(missing.name, ignored)) {
    missing.hint = "; MODEL is a file: name one in it (`sluice import` makes one of a checkpoint)";
  }
  if (fs::exists(missing.name, ignored)) return missing;
  if (fetch::lacks_hub_scheme(missing.name)) {
    missing.hint = fmt::format("; did you mean hf:{}?", missing.name);
  }
  if (fs::path(missing.name).has_parent_path()) return missing;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(installed_models(), ignored)) {
    if (entry.path().extension() == ".gguf") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  if (std::ranges::binary_search(names, missing.name)) return missing;
  const std::string meant = closest(fs::path(missing.name).stem().string(), names);
  missing.hint =
      meant.empty()
          ? fmt::format(
                "; MODEL is a file, a name that `sluice list` shows{}, or a reference such "
                "as hf:OWNER/REPO:Q4_K_M (`sluice recommend` has some)",
                names.empty() ? "" : fmt::format(", such as {}", names.front()))
          : fmt::format("; did you mean the installed model {}?", meant);
  return missing;
}

CLI::Validator number_between(double least, double most, const std::string& range) {
  return {[=](std::string& text) -> std::string {
            double value = 0;
            const bool fits = CLI::detail::lexical_cast(text, value) && value >= least &&
                              value <= most;  // false for NaN
            return fits ? "" : fmt::format("\"{}\" is not a number {}", text, range);
          },
          ""};
}

CLI::Validator count_between(std::uint64_t least, std::uint64_t most) {
  return {[=](std::string& text) -> std::string {
            const auto count = base::whole_number<std::uint64_t>(text);
            const bool fits = count && *count >= least && *count <= most;
            return fits ? ""
                        : fmt::format("\"{}\" is not a number from {} to {}", text, least, most);
          },
          ""};
}

CLI::Validator count_or(const std::string& word, const std::string& meaning, std::uint64_t least,
                        std::uint64_t most) {
  return {[=](std::string& text) -> std::string {
            if (text == word) {
              text = meaning;
              return {};
            }
            const auto count = base::whole_number<std::uint64_t>(text);
            const bool fits = count && *count >= least && *count <= most;
            return fits ? ""
                        : fmt::format("\"{}\" is neither {} nor a number from {} to {}", text, word,
                                      least, most);
          },
          ""};
}

namespace {

// -1 is a seed by chance, as in llama.cpp, unless the command has a seed of its own: a batch that
// is gone on with needs the one that it was begun with.
CLI::Validator seed_or_random(const std::string& seed_default) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  if (seed_default == "0") return count_between(0, most);
  return count_or("-1", std::to_string(sampling::random_seed()), 0, most);
}

}  // namespace

CLI::Validator size_or_auto() {
  return {[](std::string& text) -> std::string {
            if (text == "auto") {
              text = "0";
              return {};
            }
            return make_bytes(text, "neither auto nor ");
          },
          ""};
}

CLI::Validator size() {
  return {[](std::string& text) -> std::string { return make_bytes(text, "not "); }, ""};
}

CLI::Validator one_of(const std::vector<std::string>& values) {
  return {[=](std::string& text) -> std::string {
            const bool known = std::find(values.begin(), values.end(), text) != values.end();
            return known ? "" : fmt::format("\"{}\" is not {}", text, fmt::join(values, " or "));
          },
          ""};
}

CLI::App* add_command(CLI::App& program, const std::string& name, const std::string& description,
                      const std::string& example) {
  CLI::App* command = program.add_subcommand(name, description);
  command->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  command->group("Commands");
  command->footer(example);
  return command;
}

CLI::Option* add_model_argument(CLI::App& command, std::filesystem::path& model, ModelPart part) {
  return command
      .add_option("-m,--model,MODEL", model,
                  "A GGUF file (of a split one, the first shard), the name of a model that `sluice "
                  "list` shows, such as demo, or a reference for `sluice pull`")
      ->transform(named_model(command, part))
      ->type_name("")
      ->required();
}

void add_common_options(CLI::App& command, CommonOptions& options,
                        const std::string& context_default, ModelPart part) {
  add_model_argument(command, options.model, part)->group(common_group);
  const auto add = [&](auto&&... arguments) {
    return command.add_option(std::forward<decltype(arguments)>(arguments)...)->group(common_group);
  };
  add("--budget", options.budget_bytes,
      "Memory that the process and its file pages may hold, such as 4.5GiB, 4G or 5500M. What does "
      "not fit is streamed from the disk. auto takes the tightest memory limit, or the memory that "
      "is free")
      ->transform(size_or_auto())
      ->type_name("SIZE|auto")
      ->default_str("auto");
  add("-c,--ctx,--ctx-size", options.context,
      "Tokens that the context holds (default: " + context_default + ")")
      ->type_name("N")
      ->check(count_between(1, std::numeric_limits<std::uint32_t>::max()));
  add("--window", options.window,
      "Let a token see only the newest N tokens, so that a text can go on without end in constant "
      "memory")
      ->type_name("N")
      ->check(count_between(1, std::numeric_limits<std::int32_t>::max()));
  add("--sinks", options.sinks,
      fmt::format("Keep the first S tokens of the text visible in the window, so that the model "
                  "stays stable (default: {})",
                  engine::EngineOptions{}.sinks))
      ->type_name("S")
      ->check(count_between(0, std::numeric_limits<std::int32_t>::max()));
  add("--kv", options.kv, "Number format of the cached keys and values")
      ->check(one_of({"int8", "f16", "f32"}))
      ->type_name("int8|f16|f32")
      ->capture_default_str();
  add("-t,--threads", options.threads,
      "Number of threads that compute; auto uses those that `sluice machine` shows")
      ->transform(count_or("auto", "0", 1, option_threads_max))
      ->type_name("auto|N")
      ->default_str("auto");
  add("--io", options.io, "How weights are read from the file")
      ->check(one_of({"auto", "uring", "pread", "mmap"}))
      ->type_name("auto|uring|pread|mmap")
      ->capture_default_str();
  add("--report", options.report,
      "Write the measurements of the run to this file, as JSON; an earlier report is replaced")
      ->type_name("FILE.json");
  add_sandbox_option(command, options.sandbox)->group(common_group);
  add_force_option(command, options.force)->group(common_group);
  command.add_flag("-q,--quiet", options.quiet, "Show no progress, warnings or statistics")
      ->group(common_group);
  add("--config", options.config,
      "Read more options from a file of lines like `ctx = 2048`. Lines under [" +
          command.get_name() + "] hold for this command alone. The command line wins over the file")
      ->type_name("FILE")
      ->each([&command](const std::string& file) { apply_config(command, file); });
}

void add_trace_option(CLI::App& command, CommonOptions& options) {
  command
      .add_option("--trace-experts", options.trace_experts,
                  "Record in this file which experts each token takes, for bench_experts")
      ->group(common_group)
      ->type_name("FILE");
}

void add_sampling_options(CLI::App& command, SamplingOptions& options,
                          const std::string& seed_default) {
  const auto add = [&](const std::string& name, auto&&... arguments) {
    return command.add_option(name, std::forward<decltype(arguments)>(arguments)...)
        ->group(sampling_group)
        ->each([&options, name](const std::string&) { options.given.insert(name); });
  };
  const auto of_model = [](auto value) { return fmt::format("the model's, else {}", value); };
  sampling::SamplerOptions& sampler = options.sampler;
  add("--temp", sampler.temperature,
      "Temperature: higher values give more varied text; 0 always takes the most probable token")
      ->type_name("T")
      ->check(number_between(0, greatest, "of 0 or more"))
      ->default_str(of_model(sampler.temperature));
  add("--top-k", sampler.top_k, "Choose among the K most probable tokens; 0 turns this off")
      ->type_name("K")
      ->check(count_between(0, std::numeric_limits<std::uint32_t>::max()))
      ->default_str(of_model(sampler.top_k));
  add("--top-p", sampler.top_p,
      "Choose among the fewest tokens that together have probability P; 1 turns this off")
      ->type_name("P")
      ->check(number_between(0, 1, "from 0 to 1"))
      ->default_str(of_model(sampler.top_p));
  add("--min-p", sampler.min_p,
      "Choose among the tokens at least P times as probable as the best one; 0 turns this off")
      ->type_name("P")
      ->check(number_between(0, 1, "from 0 to 1"))
      ->default_str(of_model(sampler.min_p));
  add("--repeat-penalty", sampler.repeat_penalty,
      fmt::format("Make the last {} tokens less probable; 1 turns this off", sampler.repeat_last_n))
      ->type_name("R")
      ->check(number_between(std::numeric_limits<double>::min(), greatest, "above 0"))
      ->default_str(of_model(sampler.repeat_penalty));
  add("--seed", options.seed,
      "Start of the random numbers: the same seed gives the same text (default: " + seed_default +
          ")")
      ->type_name("N")
      ->transform(seed_or_random(seed_default));
  add("--stop", options.stop,
      "End the text before this one appears in it; may be given several times")
      ->type_name("TEXT")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

void add_json_option(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "Print one JSON object and nothing else");
}

CLI::Option* add_sandbox_option(CLI::App& command, std::string& sandbox) {
  return command
      .add_option(
          "--sandbox", sandbox,
          "Give up the right to files that are not needed, to programs and to new "
          "connections, before the model is read; auto as far as this kernel can, on or not "
          "at all")
      ->check(one_of({"auto", "on", "off"}))
      ->type_name("auto|on|off")
      ->capture_default_str();
}

CLI::Option* add_force_option(CLI::App& command, bool& force) {
  return command.add_flag("--force", force, "Replace a file that exists with what is written");
}

void check_stop_texts(const SamplingOptions& options) {
  static_cast<void>(sampling::TextStream(options.stop));
}

void add_prompt_cache_options(CLI::App& command, engine::PromptCacheOptions& options) {
  CLI::Option* folder =
      command
          .add_option("--prompt-cache", options.folder,
                      "Keep what was computed for prompts in this folder, for later runs with the "
                      "same model and settings whose prompts begin alike")
          ->type_name("DIR")
          ->group("Prompt cache");
  command
      .add_option("--prompt-cache-size", options.bytes_max,
                  "Largest size of the folder; entries that were unused for the longest time are "
                  "removed first")
      ->type_name("SIZE")
      ->group("Prompt cache")
      ->transform(size())
      ->needs(folder)
      ->default_str(format_bytes(options.bytes_max));
}

// CLI11's own delimiter leaves empty words out.
CLI::Option* add_list_option(CLI::App& command, const std::string& name, const std::string& help,
                             std::function<void(const std::vector<std::string>&)> take) {
  const std::string shown = name.substr(name.rfind(',') + 1);
  const auto split = [shown, take = std::move(take)](const std::vector<std::string>& lists) {
    std::vector<std::string> words;
    for (const std::string& list : lists) {
      std::istringstream text(list + ",");
      for (std::string word; std::getline(text, word, ',');) {
        if (word.empty()) {
          throw CLI::ValidationError(shown, fmt::format("\"{}\" has nothing beside a comma", list));
        }
        words.push_back(word);
      }
    }
    take(words);
  };
  return command.add_option_function<std::vector<std::string>>(name, split, help)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

CLI::Option* add_token_option(CLI::App& command, const std::string& name,
                              std::vector<tokenizer::Token>& tokens, const std::string& help) {
  return add_number_list(command, name, tokens, help,
                         count_between(0, std::numeric_limits<tokenizer::Token>::max()))
      ->type_name("1,2,3");
}

void check_tokens(std::span<const tokenizer::Token> tokens, std::uint32_t vocabulary) {
  for (const tokenizer::Token token : tokens) {
    if (token >= 0 && static_cast<std::uint32_t>(token) < vocabulary) continue;
    throw UsageError(fmt::format("token {} is not in the vocabulary of {} tokens (0 to {})", token,
                                 vocabulary, vocabulary - 1));
  }
}

std::uint32_t settled_sinks(const CommonOptions& options) {
  if (options.window == 0) return 0;
  return options.sinks.value_or(engine::usual_sinks(options.window));
}

void check_run_options(const CommonOptions& options) {
  if (options.sinks && options.window == 0) {
    throw UsageError("--sinks are tokens that stay in a window: give --window too");
  }
  check_speculation(options.speculate);
}

engine::EngineOptions engine_options(const CommonOptions& options, std::uint32_t rows) {
  check_run_options(options);
  engine::EngineOptions result;
  if (options.budget_bytes != 0) result.budget_bytes = options.budget_bytes;
  result.io = streaming::parse_io(options.io).value_or(streaming::Io::automatic);
  result.context = options.context;
  result.threads = options.threads;
  result.planned_threads = options.planned_threads;
  result.has_memory_of_another = options.has_memory_of_another;
  result.drafts = options.speculate.is_off() ? 0 : options.speculate.draft_max;
  result.window = options.window;
  result.sinks = settled_sinks(options);
  result.kv = kvcache::parse_element_type(options.kv).value_or(kvcache::ElementType::int8);
  result.predicts = options.speculate.mode == "mtp";
  plan_draft_model(options, rows, result);
  return result;
}

void warn_of_key_options(const CommonOptions& common, const plan::MemoryPlan& plan) {
  if (common.quiet || !kvcache::layer_groups(plan.cache).empty()) return;
  if (common.kv != CommonOptions{}.kv) {
    warn("--kv is of no use: the model keeps no keys and values");
  }
  if (common.window == 0) return;
  warn(
      "--window: the model keeps no keys and values that could leave one: its texts only have no "
      "end");
}

std::string context_warning(const CommonOptions& common, const gguf::Model& header) {
  if (common.window != 0 && common.context != 0) {
    return fmt::format("--ctx {} and --window {} are both given: a token sees the newest {}",
                       common.context, common.window, std::min(common.context, common.window));
  }
  const bool has_window = common.window != 0;
  const std::uint32_t positions = has_window ? common.window : common.context;
  const std::uint32_t trained = model::trained_context(model::Keys(header));
  if (positions <= trained) return {};
  return fmt::format(
      "{} {} is more than the {} tokens that the model was trained for: beyond them "
      "its texts get worse",
      has_window ? "--window" : "--ctx", positions, trained);
}

std::unique_ptr<engine::Engine> open_engine(const CommonOptions& common,
                                            engine::EngineOptions options,
                                            std::optional<engine::RunPlanner> planner) {
  check_report_of_model(common);
  if (!planner) planner.emplace(common.model, gguf::ParseOptions{});
  if (!common.trace_experts.empty()) {
    if (model::Keys(planner->header()).whole_or("expert_count", 0) == 0) {
      throw UsageError("--trace-experts: the model has no experts: leave it out");
    }
    refuse_files_of_model(common.trace_experts, common.model);
    refuse_existing(common.trace_experts, common.force || is_expert_trace(common.trace_experts));
    options.expert_watch = common.trace->watch(common.trace_experts);
  }
  Progress progress(common.quiet);
  progress.show(fmt::format("loading {}", common.model.string()));
  options.on_load = [&](std::uint64_t loaded_bytes, std::uint64_t total_bytes) {
    throw_if_interrupted();
    progress.show(fmt::format("loading {}: {} of {}", common.model.string(),
                              format_bytes(loaded_bytes), format_bytes(total_bytes)));
  };
  if (!options.stop_check) options.stop_check = throw_if_interrupted;
  if (!common.quiet) {
    options.on_change = [](const std::string& line) { remark(line); };
    options.prompt_cache.on_warning = [](const std::string& line) { warn(line); };
  }
  const std::string long_context = context_warning(common, planner->header());
  settle_draft_model(common, *planner, options);
  settle_predictor(common.speculate, *planner, options);
  if (common.kv != CommonOptions{}.kv || common.window != 0) {
    warn_of_key_options(common, planner->plan(options).plan);
  }
  std::unique_ptr<engine::Engine> engine = engine::Engine::open(std::move(*planner), options);
  open_draft_model(common.speculate, *engine, options);
  progress.clear();
  if (common.quiet) return engine;
  if (!long_context.empty()) warn(long_context);
  for (const std::string& warning : engine->tokenizer().warnings()) warn(warning);
  const engine::EngineFacts& facts = engine->facts();
  for (const std::string& note : facts.notes) warn(note);
  warn_of_drafts(common, facts);
  if (facts.work.streamed_bytes != 0) {
    remark(fmt::format("{} of weights stay in memory, {} are streamed for every step with {} ({})",
                       format_bytes(facts.pinned_bytes), format_bytes(facts.work.streamed_bytes),
                       facts.io, facts.io_reason));
  }
  return engine;
}

}  // namespace sluice::cli
