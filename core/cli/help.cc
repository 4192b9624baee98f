#include "core/cli/help.h"

#include <algorithm>
#include <fmt/format.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/cli/terminal.h"
#include "core/cli/wrap.h"

namespace sluice::cli {
namespace {

// Where the texts of options begin; on a narrow terminal their names stand on lines of their own.
std::size_t text_column() {
  constexpr std::size_t usual = 30, narrow = 6, narrow_columns = 72;
  return columns_for_text(STDOUT_FILENO) < narrow_columns ? narrow : usual;
}

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

// Whether the line that ends at `end` is indented.
bool is_in_list(const std::string& text, std::size_t end) {
  const std::size_t begin = text.rfind('\n', end - 1);
  return text[begin == std::string::npos ? 0 : begin + 1] == ' ';
}

// The lines that belong together as one: those that neither begin with a space nor are empty.
std::string joined_lines(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool goes_on = text[i] == '\n' && i > 0 && text[i - 1] != '\n' && i + 1 < text.size() &&
                         text[i + 1] != '\n' && text[i + 1] != ' ' && !is_in_list(text, i);
    out += goes_on ? ' ' : text[i];
  }
  return out;
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
  text += make_subcommands(app, mode) + "\n" + joined_lines(app->get_footer()) + "\n";
  return fitted(text, columns_for_text(STDOUT_FILENO));
}

std::string HelpFormatter::make_option_usage(const CLI::Option* option) const {
  std::string name = make_option_name(option, true);
  if (option->get_expected_max() > 1) name += "...";
  return option->get_required() ? name : "[" + name + "]";
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  return fmt::format("  {:<12}{}\n", command->get_name(), command->get_description());
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  std::string left = "  " + make_option_name(option, is_positional);
  const std::string value =
      option->get_positional() ? option->get_name(true, false) : option->get_type_name();
  if (!is_positional && option->get_type_size() != 0 && !value.empty()) left += " " + value;
  const std::size_t column = text_column();
  const bool has_room = left.size() + 2 <= column;
  const std::string gap(has_room ? column - left.size() : column, ' ');
  return left + (has_room ? "" : "\n") + gap + description_of(*option, is_positional) + "\n";
}

}  // namespace sluice::cli
