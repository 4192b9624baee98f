#include "core/cli/files.h"

#include <cerrno>
#include <cstdlib>
#include <fmt/format.h>
#include <iostream>
#include <poll.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "core/cli/output.h"
#include "core/error.h"
#include "core/files/durable_file.h"
#include "core/gguf/gguf.h"
#include "core/plan/memory_plan.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void throw_io(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), what);
}

// Whether something is piped into standard input, or may be: a pipe may have ended. Who starts a
// program without thinking of its input often leaves it a pipe that nobody writes to.
bool has_piped_text(bool quiet) {
  constexpr int wait_seconds = 10;
  struct stat facts {};
  if (::fstat(STDIN_FILENO, &facts) != 0) return false;
  if (S_ISREG(facts.st_mode)) return true;
  if (!S_ISFIFO(facts.st_mode) && !S_ISSOCK(facts.st_mode)) return false;
  Progress progress(quiet);
  progress.show_now("waiting for standard input, which is a pipe; </dev/null if it is not meant");
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  if (::poll(&input, 1, wait_seconds * 1000) != 0) return true;
  progress.clear();
  if (!quiet) {
    warn(
        fmt::format("standard input is a pipe, and nothing came from it in {} s: -p goes alone "
                    "(</dev/null says that no input is meant, -p - waits for it)",
                    wait_seconds));
  }
  return false;
}

bool is_same_file(const fs::path& path, const fs::path& other) {
  std::error_code absent;
  if (fs::is_regular_file(other, absent)) return fs::equivalent(path, other, absent);
  return fs::absolute(path).lexically_normal() == fs::absolute(other).lexically_normal();
}

}  // namespace

std::string input_name(const fs::path& path) {
  if (path.empty()) return "'' (an empty name)";
  return path == "-" ? "standard input" : path.string();
}

TextInput::TextInput(const fs::path& path)
    : name_(input_name(path)), file_(path == "-" ? stdin : std::fopen(path.c_str(), "rb")) {
  if (!file_) throw_io(errno, fmt::format("cannot open {}", name_));
  struct stat facts {};
  if (::fstat(::fileno(file_.get()), &facts) == 0 && S_ISREG(facts.st_mode)) {
    bytes_ = static_cast<std::uint64_t>(facts.st_size);
  }
}

bool TextInput::read(std::size_t bytes_max, std::string& text) {
  if (std::feof(file_.get()) != 0) return false;  // a terminal would be asked again
  const std::size_t before = text.size();
  text.resize(before + bytes_max);
  const std::size_t bytes = std::fread(text.data() + before, 1, bytes_max, file_.get());
  text.resize(before + bytes);
  if (std::ferror(file_.get())) throw_io(errno, fmt::format("cannot read {}", name_));
  bytes_read_ += bytes;
  return bytes > 0;
}

std::string read_text(const fs::path& path) {
  constexpr std::size_t piece_bytes = 65536, small_bytes = std::size_t{1} << 24;
  TextInput input(path);
  std::string text;
  while (input.read(piece_bytes, text)) {
    // It doubles its memory, and what comes of it is as large again.
    if (text.size() < small_bytes || text.capacity() - text.size() >= piece_bytes) continue;
    const plan::Budget budget = plan::find_budget({});
    if (4 * text.size() <= budget.bytes) continue;
    throw Error(ExitCode::budget,
                fmt::format("{} has more than {} MiB: too much to be held at once in {} MiB ({})",
                            input.name(), text.size() >> 20, budget.bytes >> 20, budget.source));
  }
  return text;
}

std::string without_last_newline(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::string behind_piped_text(const std::string& prompt, bool quiet) {
  if (!has_piped_text(quiet)) return prompt;
  const std::string text = without_last_newline(read_text("-"));
  if (text.empty()) return prompt;
  if (!quiet) remark(fmt::format("{} of standard input come before -p", format_bytes(text.size())));
  return prompt.empty() ? text : text + "\n\n" + prompt;
}

void refuse_same_file(const fs::path& written, const fs::path& other, std::string_view role) {
  std::error_code absent;
  if (!is_same_file(written, other) || fs::is_character_file(other, absent)) return;
  throw UsageError(fmt::format("{} is the same file as {}, {}: name another one", written.string(),
                               other.string(), role));
}

void refuse_files_of_model(const fs::path& written, const fs::path& model) {
  const gguf::Model opened = gguf::Model::open(model);
  for (const gguf::ModelFile& file : opened.files()) {
    refuse_same_file(written, file.path, "the model");
  }
}

bool holds_something(const fs::path& path) {
  std::error_code absent;
  return fs::is_regular_file(path, absent) && fs::file_size(path, absent) > 0;
}

void refuse_unnamed(const fs::path& written) {
  if (written.empty()) throw UsageError("the name of the output is empty: name a file to write");
}

void refuse_existing(const fs::path& written, bool may_replace) {
  refuse_unnamed(written);
  if (written == "-") throw UsageError("- is no name of an output here: name a file to write");
  const fs::path folder = written.parent_path();
  std::error_code unknown;
  if (!folder.empty() && fs::status(folder, unknown).type() == fs::file_type::not_found) {
    throw std::system_error(ENOENT, std::generic_category(), "cannot write " + written.string());
  }
  if (fs::is_directory(written, unknown)) {
    throw std::system_error(EISDIR, std::generic_category(), "cannot write " + written.string());
  }
  if (may_replace || !holds_something(written)) return;
  throw UsageError(fmt::format("{} exists: give --force to replace it, or name another output",
                               written.string()));
}

void ask_before_replacing(const fs::path& written, bool may_replace) {
  const bool has_terminal = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
  if (has_terminal && !may_replace && holds_something(written)) {
    const std::string question = fmt::format("{} exists. Replace it? [y/N] ", written.string());
    std::fwrite(question.data(), 1, question.size(), stderr);
    std::string answer;
    std::getline(std::cin, answer);
    may_replace = answer == "y" || answer == "Y" || answer == "yes";
  }
  refuse_existing(written, may_replace);
}

fs::path state_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing changes it
    return fs::path(value == nullptr ? "" : value);
  };
  if (const fs::path state = variable("XDG_STATE_HOME"); !state.empty()) return state / "sluice";
  const fs::path home = variable("HOME");
  return home.empty() ? home : home / ".local/state/sluice";
}

void write_file(const fs::path& path, std::string_view text) {
  files::DurableFile file(path, {.named_by = files::NamedBy::user});
  file.write(text);
  file.commit();
}

}  // namespace sluice::cli
