// What is typed and configured: a command line, with a configuration file; sizes, speeds and parts
// of a batch; settings of a chat; and lists of models. A configuration, then up to ten words, and a
// number that chooses the command.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/batch/job_state.h"
#include "core/cli/batch.h"
#include "core/cli/bench.h"
#include "core/cli/chat.h"
#include "core/cli/chat_settings.h"
#include "core/cli/command_line.h"
#include "core/cli/convert.h"
#include "core/cli/embed.h"
#include "core/cli/help.h"
#include "core/cli/imatrix.h"
#include "core/cli/logits.h"
#include "core/cli/model_list.h"
#include "core/cli/options.h"
#include "core/cli/perplexity.h"
#include "core/cli/plan.h"
#include "core/cli/recommend.h"
#include "core/cli/run.h"
#include "core/cli/serve.h"
#include "core/cli/synth.h"
#include "core/cli/tokenize.h"
#include "core/cli/wrap.h"
#include "core/error.h"
#include "core/fetch/reference.h"
#include "core/text/utf8.h"
#include "tests/fuzz/fuzz.h"

namespace sluice::fuzz {
namespace {

using namespace cli;

constexpr std::size_t words_max = 10;

// Adds a command with options that live as long as what is returned.
template <class Options>
std::shared_ptr<void> add(CLI::App& program, CLI::App* (*adder)(CLI::App&, Options&)) {
  auto options = std::make_shared<Options>();
  adder(program, *options);
  return options;
}

struct Command {
  const char* name;
  std::shared_ptr<void> (*add_to)(CLI::App& program);
};

constexpr Command commands[] = {
    {"run", [](CLI::App& program) { return add(program, add_run); }},
    {"chat", [](CLI::App& program) { return add(program, add_chat); }},
    {"batch", [](CLI::App& program) { return add(program, add_batch); }},
    {"serve", [](CLI::App& program) { return add(program, add_serve); }},
    {"plan", [](CLI::App& program) { return add(program, add_plan); }},
    {"bench", [](CLI::App& program) { return add(program, add_bench); }},
    {"embed", [](CLI::App& program) { return add(program, add_embed); }},
    {"rerank", [](CLI::App& program) { return add(program, add_rerank); }},
    {"perplexity", [](CLI::App& program) { return add(program, add_perplexity); }},
    {"logits", [](CLI::App& program) { return add(program, add_logits); }},
    {"imatrix", [](CLI::App& program) { return add(program, add_imatrix); }},
    {"quantize", [](CLI::App& program) { return add(program, add_quantize); }},
    {"synth", [](CLI::App& program) { return add(program, add_synth); }},
    {"recommend", [](CLI::App& program) { return add(program, add_recommend); }},
    {"tokenize", [](CLI::App& program) { return add(program, add_tokenize); }},
};

// What would read files of this machine, or of the network.
bool reaches_out(const std::string& text) {
  for (const std::string_view word : {"config", "hf:", "ollama:", "://", "/"}) {
    if (text.find(word) != std::string::npos) return true;
  }
  return fetch::is_reference(text);
}

bool is_one_line(const std::string& text) {
  return text.find('\n') == std::string::npos;
}

// Returns what is wrong, or nothing where the words were taken.
std::string problem_with(const Command& chosen, std::vector<std::string> words) {
  CLI::App program("a program", "sluice");
  program.set_version_flag("-V,--version", "0");
  program.formatter(std::make_shared<HelpFormatter>());
  program.require_subcommand(0, 1);
  const std::shared_ptr<void> options = chosen.add_to(program);
  const CLI::App* const command = program.get_subcommand(chosen.name);
  try {
    words = read_words(program, std::move(words));
    std::ranges::reverse(words);
    program.parse(std::move(words));
    return "";
  } catch (const CLI::Success& asked) {
    std::ostringstream text;
    program.exit(asked, text, text);
    require(!text.str().empty(), "help says something");
    return "help";
  } catch (const CLI::ParseError& error) {
    return problem_of(error, command->parsed() ? *command : program);
  } catch (const Error& error) {
    return error.what();
  }
}

void read_line(std::string_view configuration, const std::vector<std::string>& given,
               const Command& chosen) {
  if (std::ranges::any_of(given, reaches_out)) return;
  const InputFile file(configuration, "settings");
  const InputFile model("", "model.gguf");
  std::vector<std::string> words = {chosen.name};
  for (const std::string& word : given)
    words.push_back(word == "MODEL" ? model.path().string() : word);
  // A file names models, too; what it says of them is not looked for.
  if (!reaches_out(std::string(configuration))) {
    words.insert(words.begin() + 1, {"--config", file.path().string()});
  }
  static_cast<void>(problem_with(chosen, words));
  static_cast<void>(closest(words.back(), {"run", "--temp", "--budget"}));
}

// A size is refused, or a number of bytes that the same validator leaves as it is.
void read_numbers(const std::string& word) {
  for (const CLI::Validator& validator :
       {size(), size_or_auto(), count_between(1, 4096), count_or("auto", "0", 1, 4096),
        number_between(0, 1, "from 0 to 1"), one_of({"int8", "f16"})}) {
    std::string value = word;
    if (!validator(value).empty()) continue;
    std::string again = value;
    const bool is_zero = value == "0";  // of "auto"
    require(is_zero || (validator(again).empty() && again == value), "a value is one again");
  }
  std::string bytes = word;
  if (size()(bytes).empty())
    require(std::stoull(bytes) < (std::uint64_t{1} << 62), "a size is one");
  if (const auto shard = batch::parse_shard(word)) {
    require(shard->index >= 1 && shard->index <= shard->count, "a part is one of its parts");
  }
}

void read_setting(const std::string& name, const std::string& value) {
  if (reaches_out(name) || reaches_out(value)) return;
  try {
    const ChatSettings settings = with_setting({}, name, value);
    require(!settings_table(settings).empty(), "settings are shown");
  } catch (const UsageError&) {
  } catch (const std::invalid_argument&) {  // of the sampler
  }
}

void read_list(std::string_view text) {
  try {
    for (const KnownModel& model : parse_model_list(text, "list")) {
      require(!model.name.empty() && !model.quants.empty(), "a model has a name and files");
    }
  } catch (const UsageError& error) {
    require(is_one_line(error.what()), "an error is one line");
  }
}

// What is shown on a terminal has all words, whatever its width.
void show(std::string_view text, std::size_t columns) {
  if (utf8::valid_prefix(text) != text.size()) return;
  static_cast<void>(fitted(text, columns));
  WordWrap wrap;
  static_cast<void>(wrap.feed(text, columns));
  require(front_of(text, columns).size() <= text.size(), "a front is not longer");
}

}  // namespace

void run(std::string_view input) {
  const std::vector<std::string_view> parts = split(input, words_max + 2);
  Choices choices(parts.back());
  const Command& chosen = commands[choices.below(std::size(commands))];
  std::vector<std::string> words;
  for (std::size_t i = 1; i <= words_max; ++i) {
    if (!parts[i].empty()) words.emplace_back(parts[i]);
  }
  read_line(parts[0], words, chosen);
  if (words.empty()) return read_list(parts[0]);
  read_numbers(words[0]);
  if (words.size() > 1) read_setting(words[0], words[1]);
  show(parts[0], choices.byte());
}

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  const auto line = [&](const std::string& configuration, std::vector<std::string> words,
                        char command) {
    words.resize(words_max);
    words.insert(words.begin(), configuration);
    words.emplace_back(1, command);
    all.push_back(joined(words));
  };
  line("ctx = 2048\n[run]\ntemp = 0.5\nstop = [\"a\", \"b\"]\n",
       {"MODEL", "-p", "Once", "-n", "64"}, 0);
  line("quiet = true\n", {"MODEL", "--budget", "4.5GiB", "--seed", "-1", "--temp=0.7", "-tauto"},
       0);
  line("[chat]\ntemp = 1\n", {"temp", "0.7", "MODEL", "--think", "on"}, 1);
  line("", {"1/4", "MODEL", "in.jsonl", "-o", "out.jsonl", "--parallel", "auto"}, 2);
  line("port = 9000\n", {"MODEL", "--host", "::1", "--cors", "a", "--rate", "1.5", "--queue", "8"},
       3);
  line("", {"MODEL", "--for", "serve,6GiB,2cpu,avx2,disk=1.5GB,dram=20GB"}, 4);
  line("", {"MODEL", "-p", "64,128", "-n", "16,32", "--format", "md"}, 5);
  line("", {"5500M", "MODEL", "--tokens", "1,2,3", "--window", "64", "--sinks", "4"}, 9);
  line("", {"auto", "--n-predict", "3", "-ngl", "99"}, 0);
  line("", {"tokens-max", "-1", "--help"}, 12);
  line(R"([{"name": "a", "repository": "hf:a/b", "quants": ["Q4_K_M"], "tasks": ["chat"],)"
       R"( "shape": "yi-9b"}])",
       {}, 0);
  line(std::string(shipped_models()), {}, 0);
  line("A line of words \xC3\xA4\xE4\xB8\xAD that is broken somewhere", {"x"}, 0);
  return all;
}

}  // namespace sluice::fuzz
