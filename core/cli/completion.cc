#include "core/cli/completion.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace sluice::cli {
namespace {

bool is_control(char byte) {
  return static_cast<unsigned char>(byte) < ' ' || byte == 0x7F;
}

}  // namespace

Completions complete_word(const std::vector<std::string>& words, std::string_view typed) {
  Completions found{{}, typed.size()};
  for (const std::string& word : words) {
    if (word.starts_with(typed)) found.texts.push_back(word);
  }
  return found;
}

Completions complete_file(std::string_view typed) {
  namespace fs = std::filesystem;
  const std::size_t slash = typed.rfind('/');
  const std::string_view folder = slash == typed.npos ? "" : typed.substr(0, slash + 1);
  const std::string_view begin = typed.substr(folder.size());
  std::vector<std::string> names;
  std::error_code absent;  // what cannot be read offers nothing
  fs::directory_iterator entry(folder.empty() ? "." : fs::path(folder), absent);
  for (; entry != fs::directory_iterator(); entry.increment(absent)) {
    std::string name = entry->path().filename().string();
    if (name.starts_with('.') && !begin.starts_with('.')) continue;
    if (std::ranges::any_of(name, is_control)) continue;  // nobody types it, nor may it be shown
    names.push_back(name + (entry->is_directory(absent) ? "/" : ""));
  }
  std::ranges::sort(names);
  return complete_word(names, begin);
}

}  // namespace sluice::cli
