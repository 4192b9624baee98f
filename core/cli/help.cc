#include "core/cli/help.h"

#include <algorithm>
#include <fmt/format.h>
#include <sstream>
#include <utility>
#include <vector>

namespace sluice::cli {
namespace {

constexpr std::size_t text_column = 30;
constexpr std::size_t line_width = 100;

// The text to the right of an option, without line breaks.
std::string description_of(const CLI::Option& option, bool is_positional) {
  if (!is_positional && option.get_positional()) {
    return "The same as " + option.get_name(true, false);
  }
  std::string text = option.get_description();
  std::ranges::replace(text, '\n', ' ');
  if (!is_positional && option.get_required()) text += " (required)";
  if (!option.get_default_str().empty()) text += " (default: " + option.get_default_str() + ")";
  return text;
}

// Appends words to `line`. When a line is full, continues in the column for texts.
std::string wrapped(std::string line, const std::string& text) {
  std::string out;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (line.size() > text_column && line.size() + 1 + word.size() > line_width) {
      out += line + "\n";
      line = std::string(text_column, ' ');
    } else if (line.size() > text_column) {
      line += ' ';
    }
    line += word;
  }
  return out + line + "\n";
}

// The order of the groups.
int rank(const std::string& group) {
  if (group == "Options") return 0;
  if (group == sampling_group) return 2;
  return group == common_group ? 3 : 1;
}

}  // namespace

HelpFormatter::HelpFormatter() {
  label("Positionals", "Arguments");
  label("SUBCOMMAND", "COMMAND");
  column_width(text_column);
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode mode) const {
  if (mode == CLI::AppFormatMode::Sub) return CLI::Formatter::make_help(app, std::move(name), mode);
  std::string text = make_description(app) + make_usage(app, std::move(name));
  text += make_positionals(app);
  std::vector<std::string> groups = app->get_groups();
  std::ranges::stable_sort(groups, {}, rank);
  for (const std::string& group : groups) {
    const std::vector<const CLI::Option*> options =
        app->get_options([&](const CLI::Option* option) {
          return option->get_group() == group && option->nonpositional();
        });
    if (!group.empty() && !options.empty()) text += make_group(group, false, options);
  }
  return text + make_subcommands(app, mode) + "\n" + make_footer(app);
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  std::string left = "  " + make_option_name(option, is_positional);
  const std::string value =
      option->get_positional() ? option->get_name(true, false) : option->get_type_name();
  if (!is_positional && option->get_type_size() != 0 && !value.empty()) left += " " + value;
  std::string before;
  if (left.size() + 2 > text_column) before = std::exchange(left, "") + "\n";
  left.resize(text_column, ' ');
  return before + wrapped(std::move(left), description_of(*option, is_positional));
}

}  // namespace sluice::cli
