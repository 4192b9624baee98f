#include "core/cli/pull.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <stdlib.h>
#include <system_error>
#include <utility>

#include "core/cli/child.h"
#include "core/cli/interrupt.h"
#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/cli/report.h"
#include "core/cli/sandbox.h"
#include "core/error.h"
#include "core/fetch/fetch.h"
#include "core/fetch/places.h"
#include "core/fetch/remote_model.h"
#include "core/files/temporary_folder.h"
#include "core/text/quoted.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

// "4:05", "1:02:03".
std::string format_time(double seconds) {
  const auto whole = static_cast<std::uint64_t>(seconds);
  if (whole >= 3600) {
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

// Says how a download goes on, with its rate since it was begun or gone on with.
class DownloadLine {
 public:
  explicit DownloadLine(bool quiet) : progress_(quiet) {}

  void show(const fetch::DownloadProgress& now) {
    if (now.name != name_) {
      name_ = now.name;
      watch_ = Stopwatch();
    }
    const double seconds = std::max(watch_.seconds(), 0.001);
    const double rate = static_cast<double>(now.done_bytes - now.earlier_bytes) / seconds;
    std::string line = fmt::format("{}: {}", now.name, format_bytes(now.done_bytes));
    if (now.total_bytes && *now.total_bytes > 0) {
      line += fmt::format(" of {} ({} %)", format_bytes(*now.total_bytes),
                          100 * now.done_bytes / *now.total_bytes);
    }
    line += fmt::format(", {}/s", format_bytes(static_cast<std::uint64_t>(rate)));
    if (now.total_bytes && rate >= 1 && *now.total_bytes >= now.done_bytes) {
      line += fmt::format(
          ", {} left", format_time(static_cast<double>(*now.total_bytes - now.done_bytes) / rate));
    }
    progress_.show(line);
  }

  void clear() { progress_.clear(); }

 private:
  Progress progress_;
  std::string name_;
  Stopwatch watch_;
};

// How requests of this program wait and speak.
fetch::WebOptions web_options(const FetchOptions& options, DownloadLine& line) {
  fetch::WebOptions web;
  web.insecure_http = options.insecure_http;
  web.on_wait = throw_if_interrupted;
  web.on_retry = [&line, quiet = options.quiet](const std::string& what) {
    line.clear();
    if (!quiet) remark(what);
  };
  return web;
}

// Where what a reference names is kept.
std::vector<fs::path> caches_of(const fetch::Reference& reference) {
  std::vector<fs::path> caches = {fetch::own_cache()};
  if (reference.repository.empty() || !reference.url.empty()) return caches;
  caches.push_back(fetch::hub_cache());
  return caches;
}

// Asks the server, and downloads what is not here.
fs::path pull_model(const PullOptions& options) {
  const fetch::Reference reference = fetch::parse_reference(options.reference);
  const InterruptGuard interrupts;
  DownloadLine line(options.fetch.quiet);
  fetch::Web web(web_options(options.fetch, line));
  if (reference.kind != fetch::ReferenceKind::file) {
    enter_download_sandbox(options.fetch.sandbox, caches_of(reference));
  } else {
    enter_converting_sandbox(options.fetch.sandbox, {.models = {reference.file}});
  }
  return fetch::pull(web, reference, [&](const fetch::DownloadProgress& now) { line.show(now); });
}

// Removes what commands have left that were ended while they planned. None takes so long.
void remove_old_headers(const fs::path& parent) {
  constexpr auto long_ago = std::chrono::hours(24);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    std::error_code unknown;
    const fs::file_time_type made = entry.last_write_time(unknown);
    const bool is_old = !unknown && fs::file_time_type::clock::now() - made > long_ago;
    if (is_old) fs::remove_all(entry.path(), ignored);
  }
}

// A folder for headers, removed at the end of the program. It is on the disk where the model would
// lie, whose speed a plan depends on, in a folder of such folders: a sandbox leaves the right to
// remove what is there, and that must be no model.
class HeaderFolder {
 public:
  HeaderFolder() {
    const fs::path cache = fetch::own_cache();
    const fs::path parent = cache.empty() ? files::temporary_folder() : cache / "headers";
    fetch::make_folder(parent);
    if (!cache.empty()) remove_old_headers(parent);
    std::string pattern = (parent / "header-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      throw std::system_error(errno, std::generic_category(), "cannot make " + pattern);
    }
    path_ = pattern;
  }
  ~HeaderFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  HeaderFolder(const HeaderFolder&) = delete;
  HeaderFolder& operator=(const HeaderFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

fs::path parent_of_headers;

// Made for the first header; a command reads one model, or one repository.
const fs::path& header_folder() {
  static const HeaderFolder folder;
  parent_of_headers = folder.path().parent_path();
  return folder.path();
}

// Calls read(web, folder) in a process that may write nothing but the folder for headers, and
// returns what it returns.
template <typename Read>
std::string read_in_child(const FetchOptions& options, const Read& read) {
  const fs::path& folder = header_folder();
  return in_child([&] {
    DownloadLine line(options.quiet);
    fetch::Web web(web_options(options, line));
    enter_download_sandbox(options.sandbox, {folder});
    return read(web, folder);
  });
}

std::uint64_t header_bytes = 0;  // read from servers
std::vector<fetch::RepositoryModel> repository_models;

}  // namespace

CLI::App* add_pull(CLI::App& program, PullOptions& options) {
  CLI::App* command = add_command(
      program, "pull", "Download a model",
      "REF is one of\n"
      "  hf:OWNER/REPO/FILE.gguf      a file of a repository of huggingface.co\n"
      "  hf:OWNER/REPO:Q4_K_M         the file with this quantisation\n"
      "  ollama:NAME:TAG              a model of ollama's registry\n"
      "  https://HOST/FILE.gguf       a file of any server\n"
      "@REVISION may stand behind REPO, a slash in it as %2F. Prints the path of the file. What "
      "was\n"
      "begun is gone on with, and what the server states the SHA-256 of is checked. Files of the\n"
      "hub go into its own cache ($HF_HOME), where other programs find them, others into\n"
      "~/.cache/sluice. A REF can stand wherever a command takes MODEL.\n"
      "HF_TOKEN opens repositories that need it; https_proxy and SSL_CERT_FILE are obeyed.\n\n"
      "Examples:\n"
      "  sluice pull hf:Qwen/Qwen3-8B-GGUF:Q4_K_M\n"
      "  sluice chat hf:Qwen/Qwen3-8B-GGUF:Q4_K_M");
  command->add_option("REF", options.reference, "What to download")->type_name("")->required();
  command->add_flag("--insecure-http", options.fetch.insecure_http,
                    "Download over plain HTTP from other machines too");
  add_sandbox_option(*command, options.fetch.sandbox)
      ->description(
          "Give up the right to write outside of the caches and to start programs, before a "
          "server is asked; auto as far as this kernel can, on or not at all");
  command->add_flag("-q,--quiet", options.fetch.quiet, "Show no progress and no warnings");
  return command;
}

fs::path find_or_pull(const std::string& reference, const FetchOptions& options) {
  if (const auto here = fetch::find_here(fetch::parse_reference(reference))) return *here;
  return in_child([&] { return pull_model({reference, options}).string(); });
}

fs::path find_or_read_header(const std::string& text, const FetchOptions& options) {
  const fetch::Reference reference = fetch::parse_reference(text);
  if (const auto here = fetch::find_here(reference)) return *here;
  const std::string said = read_in_child(options, [&](fetch::Web& web, const fs::path& folder) {
    const auto header = fetch::read_remote_header(web, reference, folder);
    return fmt::format("{} {}", header.bytes_read, header.path.string());
  });
  const std::size_t space = said.find(' ');
  header_bytes += std::stoull(said.substr(0, space));
  return said.substr(space + 1);
}

fs::path find_or_read_headers(const std::string& text, const FetchOptions& options) {
  const fetch::Reference reference = fetch::parse_reference(text);
  if (reference.kind != fetch::ReferenceKind::hub_repository)
    return find_or_read_header(text, options);
  const auto read = [&](fetch::Web& web, const fs::path& folder) {
    const auto headers = fetch::read_repository_headers(web, reference, folder);
    nlohmann::ordered_json models = nlohmann::ordered_json::array();
    for (const fetch::RepositoryModel& model : headers.models) {
      models.push_back({model.name, model.bytes, model.path.string(), model.problem});
    }
    return json_text({{"models", std::move(models)}, {"bytes_read", headers.bytes_read}});
  };
  const auto said = nlohmann::json::parse(read_in_child(options, read));
  header_bytes += said.at("bytes_read").get<std::uint64_t>();
  for (const auto& model : said.at("models")) {
    repository_models.push_back({model.at(0).get<std::string>(), model.at(1).get<std::uint64_t>(),
                                 model.at(2).get<std::string>(), model.at(3).get<std::string>()});
  }
  if (repository_models.empty()) {
    throw UsageError(fmt::format("{} has no file that ends in .gguf", text::quoted(text)));
  }
  return header_folder();
}

const std::vector<fetch::RepositoryModel>& models_of_repository(const fs::path& path) {
  static const std::vector<fetch::RepositoryModel> none;
  return !repository_models.empty() && path == header_folder() ? repository_models : none;
}

const fs::path& headers_to_remove() {
  return parent_of_headers;
}

std::uint64_t header_bytes_read() {
  return header_bytes;
}

int run_pull(const PullOptions& options) {
  write_output(pull_model(options).string() + "\n");
  return 0;
}

}  // namespace sluice::cli
