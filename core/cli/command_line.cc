#include "core/cli/command_line.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace sluice::cli {
namespace {

// Names that llama.cpp's users type for options that there are.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> aliases{{
    {"--n-predict", "-n"},
    {"--predict", "-n"},
    {"--max-tokens", "-n"},
    {"--temperature", "--temp"},
    {"--repetition-penalty", "--repeat-penalty"},
    {"--system-prompt", "--system"},
    {"-np", "--parallel"},
    {"-sys", "--system"},
}};

// Options of llama.cpp that nothing here corresponds to.
struct Foreign {
  std::vector<std::string_view> names;
  std::string_view advice;
};

const std::vector<Foreign>& foreign_options() {
  static const std::vector<Foreign> options{
      {{"-ngl", "--gpu-layers", "--n-gpu-layers", "-ts", "--tensor-split", "-mg", "--main-gpu"},
       "sluice computes with the CPU alone: leave it out"},
      {{"-fa", "--flash-attn"}, "attention has no other form here: leave it out"},
      {{"-ctk", "-ctv", "--cache-type-k", "--cache-type-v"}, "give --kv int8, f16 or f32"},
      {{"--mlock", "--no-mmap", "--mmap", "-mmp"},
       "--budget says what stays in memory, and --io how the rest is read"},
      {{"-b", "-ub", "--batch-size", "--ubatch-size"}, "the plan chooses it: leave it out"},
      {{"-cnv", "--conversation"}, "`sluice chat MODEL` holds a conversation"},
      {{"-no-cnv", "--no-conversation"}, "give --raw, which continues a text"},
      {{"-hf", "--hf-repo", "-hff", "--hf-file", "-mu", "--model-url"},
       "give hf:OWNER/REPO:QUANT, hf:OWNER/REPO/FILE or https://... as MODEL"},
      {{"--jinja", "--no-jinja"}, "the model's template is always obeyed: leave it out"},
  };
  return options;
}

// Insertions, deletions, replacements and swaps of neighbours between two words (Damerau's
// distance, in its restricted form).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  std::iota(d[0].begin(), d[0].end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replaced});
      const bool swaps = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swaps) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

std::vector<std::string> command_names(const CLI::App& program) {
  std::vector<std::string> names;
  for (const CLI::App* command : program.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

const CLI::App* find_command(const CLI::App& program, const std::string& name) {
  for (const CLI::App* command : program.get_subcommands({})) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

const CLI::Option* find_option(const CLI::App& command, const std::string& name) {
  return command.get_option_no_throw(name);
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string see_help(const CLI::App& command) {
  const std::string& name = command.get_name();
  return fmt::format("(see `sluice {}--help`)", name == "sluice" ? "" : name + " ");
}

[[noreturn]] void refuse_command(const CLI::App& program, const std::string& name) {
  const std::string meant = closest(name, command_names(program));
  throw UsageError(fmt::format("there is no command \"{}\"{} {}", name,
                               meant.empty() ? "" : fmt::format(": did you mean {}?", meant),
                               see_help(program)));
}

// Walks over the words of a command, and replaces or refuses names of options.
class OptionWords {
 public:
  OptionWords(const CLI::App& program, const CLI::App& command)
      : program_(program), command_(command) {}

  std::vector<std::string> read(const std::vector<std::string>& words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] == "--") {
        out_.insert(out_.end(), words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
        break;
      }
      const bool is_option = words[i].size() > 1 && words[i][0] == '-';
      const bool takes_next = is_option && take(words[i]);
      if (!is_option) out_.push_back(words[i]);
      if (takes_next && i + 1 < words.size()) out_.push_back(words[++i]);
    }
    return std::move(out_);
  }

 private:
  // Whether the word that follows is the option's value.
  bool take(const std::string& word) {
    const std::size_t equals = word.find('=');
    std::string name = word.substr(0, equals);
    const bool is_own = find_option(command_, name) != nullptr;
    if (!is_own) refuse_foreign(name);
    if (!is_own) replace_alias(name);
    const CLI::Option* option = find_option(command_, name);
    if (option == nullptr && name.starts_with("--")) refuse(name);
    if (option == nullptr) return take_short(word);
    out_.push_back(name);
    if (equals == std::string::npos) return option->get_expected_min() > 0;
    if (name.starts_with("--")) {
      out_.back() = name + word.substr(equals);
    } else {
      out_.push_back(word.substr(equals + 1));
    }
    return false;
  }

  // "-n64", "-qn", "-temp".
  bool take_short(const std::string& word) {
    const std::string as_long = "-" + word.substr(0, word.find('='));
    if (word.size() > 2 && find_option(command_, as_long) != nullptr) {
      throw UsageError(fmt::format("there is no option {}: did you mean {}? {}", word, as_long,
                                   see_help(command_)));
    }
    out_.push_back(word);
    for (std::size_t i = 1; i < word.size(); ++i) {
      const CLI::Option* option = find_option(command_, std::string("-") + word[i]);
      if (option == nullptr) return false;
      if (option->get_expected_min() > 0) return i + 1 == word.size();
    }
    return false;
  }

  static void refuse_foreign(const std::string& name) {
    for (const Foreign& option : foreign_options()) {
      if (std::ranges::find(option.names, name) == option.names.end()) continue;
      throw UsageError(fmt::format("there is no option {}: {}", name, option.advice));
    }
  }

  void replace_alias(std::string& name) const {
    for (const auto& [alias, meant] : aliases) {
      if (name == alias && find_option(command_, std::string(meant)) != nullptr) name = meant;
    }
  }

  [[noreturn]] void refuse(const std::string& name) const {
    std::vector<std::string> others;
    for (const CLI::App* other : program_.get_subcommands({})) {
      if (find_option(*other, name) != nullptr) others.push_back(other->get_name());
    }
    const std::string meant = closest(name, option_names(command_));
    std::string hint;
    if (!others.empty()) {
      hint = fmt::format(" of {}; it is one of {}", command_.get_name(), fmt::join(others, ", "));
    } else if (!meant.empty()) {
      hint = fmt::format(": did you mean {}?", meant);
    }
    throw UsageError(fmt::format("there is no option {}{} {}", name, hint, see_help(command_)));
  }

  const CLI::App& program_;
  const CLI::App& command_;
  std::vector<std::string> out_;
};

// Moves "-m MODEL" to the beginning. The model is also the first argument without a name, and
// otherwise the argument before -m would be taken for the model.
void put_model_first(std::vector<std::string>& words) {
  for (std::size_t i = 1; i + 1 < words.size(); ++i) {
    if (words[i] == "--") return;
    if (words[i] != "-m" && words[i] != "--model") continue;
    const auto place = words.begin() + static_cast<std::ptrdiff_t>(i);
    std::rotate(words.begin(), place, place + 2);
    return;
  }
}

[[noreturn]] void refuse_argument(const std::string& word, const CLI::App& command) {
  throw UsageError(fmt::format("\"{}\" is an argument too many {}", word, see_help(command)));
}

// An argument too many, the first one that was given. Behind -- CLI11 leaves them to the program.
std::string extra_argument(const CLI::App& command) {
  const bool is_behind = command.remaining().empty() && command.get_parent() != nullptr;
  const std::string first = (is_behind ? command.get_parent() : &command)->remaining().front();
  if (!is_behind && first.starts_with("-")) return fmt::format("there is no option {}", first);
  const bool takes_prompt = find_option(command, "--prompt") != nullptr;
  return fmt::format("\"{}\" is an argument too many{}", first,
                     takes_prompt ? ": give a text with -p" : "");
}

}  // namespace

std::string closest(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t least = std::max<std::size_t>(1, std::min<std::size_t>(3, word.size() / 3)) + 1;
  for (const std::string& name : known) {
    const std::size_t edits = distance(word, name);
    if (edits < least) {
      least = edits;
      best = name;
    }
  }
  if (!best.empty() || word.size() < 3) return best;
  for (const std::string& name : known) {
    if (name.starts_with(word)) return name;
  }
  return best;
}

std::vector<std::string> read_words(const CLI::App& program, std::vector<std::string> words) {
  if (words.empty()) return words;
  if (words[0] == "version") {
    if (words.size() > 1) refuse_argument(words[1], program);
    return {"--version"};
  }
  if (words[0] == "help") {
    if (words.size() > 2) refuse_argument(words[2], program);
    if (words.size() == 1 || words[1] == "help") return {"--help"};
    if (find_command(program, words[1]) == nullptr) refuse_command(program, words[1]);
    return {words[1], "--help"};
  }
  if (words[0].starts_with("-")) {
    if (find_option(program, words[0]) != nullptr) return words;
    throw UsageError(
        fmt::format("{} is no option of sluice alone: the command comes first, as in "
                    "`sluice run MODEL -p TEXT` {}",
                    words[0], see_help(program)));
  }
  const CLI::App* command = find_command(program, words[0]);
  if (command == nullptr) refuse_command(program, words[0]);
  std::vector<std::string> rest(words.begin() + 1, words.end());
  rest = OptionWords(program, *command).read(rest);
  put_model_first(rest);
  rest.insert(rest.begin(), words[0]);
  return rest;
}

std::string problem_of(const CLI::ParseError& error, const CLI::App& command) {
  std::string problem = error.what();
  const std::string name = problem.substr(0, problem.find(": "));
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    problem = extra_argument(command);
  } else if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const bool is_twice = problem.find("but received") != std::string::npos;
    const bool is_argument = !name.starts_with("-");
    problem = !is_twice     ? fmt::format("{} needs a value behind it", name)
              : is_argument ? fmt::format("there are more {} than it takes", name)
                            : fmt::format("{} is there twice: give it once", name);
  } else if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    constexpr std::string_view by_name = "--model is";  // CLI11's name of the argument MODEL
    if (problem.starts_with(by_name)) problem.replace(0, by_name.size(), "MODEL is");
  }
  return fmt::format("{} {}", problem, see_help(command));
}

}  // namespace sluice::cli
