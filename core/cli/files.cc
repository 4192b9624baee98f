#include "core/cli/files.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <memory>
#include <system_error>

#include "core/error.h"
#include "core/files/durable_file.h"
#include "core/gguf/gguf.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void throw_io(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), what);
}

bool is_same_file(const fs::path& path, const fs::path& other) {
  std::error_code absent;
  if (fs::is_regular_file(other, absent)) return fs::equivalent(path, other, absent);
  return fs::absolute(path).lexically_normal() == fs::absolute(other).lexically_normal();
}

}  // namespace

std::string read_text(const fs::path& path) {
  const bool standard_input = path == "-";
  const std::string name = standard_input ? "standard input" : path.string();
  const auto close = [](std::FILE* open) { std::fclose(open); };
  std::unique_ptr<std::FILE, decltype(close)> opened(
      standard_input ? nullptr : std::fopen(path.c_str(), "rb"), close);
  if (!standard_input && !opened) throw_io(errno, fmt::format("cannot open {}", name));
  std::FILE* file = standard_input ? stdin : opened.get();
  std::string text;
  std::array<char, 65536> buffer;
  while (true) {
    const std::size_t n = std::fread(buffer.data(), 1, buffer.size(), file);
    text.append(buffer.data(), n);
    if (n < buffer.size()) break;
  }
  if (std::ferror(file)) throw_io(errno, fmt::format("cannot read {}", name));
  return text;
}

void refuse_same_file(const fs::path& written, const fs::path& other, std::string_view role) {
  if (!is_same_file(written, other)) return;
  throw UsageError(fmt::format("{} is the same file as {}, {}: name another one", written.string(),
                               other.string(), role));
}

void refuse_files_of_model(const fs::path& written, const fs::path& model) {
  const gguf::Model opened = gguf::Model::open(model);
  for (const gguf::ModelFile& file : opened.files()) {
    refuse_same_file(written, file.path, "the model");
  }
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
