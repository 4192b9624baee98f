#include "core/cli/sandbox.h"

#include <ctime>
#include <fmt/format.h>
#include <functional>
#include <link.h>
#include <system_error>

#include "core/cli/draft_model.h"
#include "core/cli/files.h"
#include "core/cli/output.h"
#include "core/cli/pull.h"
#include "core/error.h"
#include "core/fetch/places.h"
#include "core/fetch/web.h"
#include "core/files/durable_file.h"
#include "core/files/temporary_folder.h"
#include "streaming/ring.h"
#include "topology/cgroup.h"
#include "topology/file_root.h"
#include "topology/memory_events.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

// One for each model that is read, one for what measures a disk beside them, and one that is being
// planned.
constexpr std::size_t rings_of_run = 4;

// Of the process; set once, before there are other threads.
base::Confinement& in_force() {
  static base::Confinement holds;
  return holds;
}

bool is_named(const fs::path& path) {
  return !path.empty() && path != "-";
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// The path, and what it leads to.
std::vector<fs::path> both_ends(const fs::path& path) {
  std::error_code absent;
  const fs::path end = fs::canonical(path, absent);
  if (absent) return {path};
  return {path, end};
}

// The files that links in a folder lead to, and those in its folders: the hub's cache consists of
// links, and a checkpoint of encoders has folders of its own. A link to a folder could lead
// anywhere, and is not followed.
void read_links_in(const fs::path& folder, base::FileRights& rights) {
  std::error_code failed, absent;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied,
                                         failed);
  for (; !failed && entry != fs::recursive_directory_iterator(); entry.increment(failed)) {
    if (entry.depth() > 0) entry.disable_recursion_pending();
    if (entry->is_symlink(absent) && entry->is_regular_file(absent)) {
      rights.read.push_back(entry->path());
    }
  }
}

// A file, or a folder of such or of a checkpoint. Shards lie beside each other, and a file that is
// replaced has to be seen to be another.
void read_model(const fs::path& model, base::FileRights& rights) {
  std::error_code absent;
  if (fs::is_directory(model, absent)) {
    rights.read.push_back(model);
    return read_links_in(model, rights);
  }
  for (const fs::path& path : both_ends(model)) rights.read.push_back(folder_of(path));
}

// A file is written beside its place and then renamed; a device or a pipe is written to.
void write_file_at(const fs::path& path, base::FileRights& rights) {
  std::error_code absent;
  const fs::file_status found = fs::status(path, absent);
  if (fs::exists(found) && !fs::is_regular_file(found)) return rights.write.push_back(path);
  for (const fs::path& end : both_ends(path)) rights.write.push_back(folder_of(end));
}

// It is made as its user would make it, who reports what goes wrong.
void keep_folder(const fs::path& folder, base::FileRights& rights) {
  try {
    files::make_private_folder(folder);
  } catch (const std::system_error&) {
  }
  rights.write.push_back(folder);
}

// What a process may be told of the system, and of itself, and its end's work.
base::FileRights usual_rights() {
  base::FileRights rights;
  rights.read = {"/proc", "/sys", "/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"};
  if (is_named(headers_to_remove())) rights.remove.push_back(headers_to_remove());
  return rights;
}

base::FileRights rights_of(const SandboxFiles& files) {
  base::FileRights rights = usual_rights();
  for (const fs::path& model : files.models) read_model(model, rights);
  if (files.has_temporary) {
    rights.write.push_back(files::temporary_folder());
  }
  for (const fs::path& path : files.read) {
    if (is_named(path)) rights.read.push_back(path);
  }
  for (const fs::path& path : files.write) {
    if (is_named(path)) write_file_at(path, rights);
  }
  for (const fs::path& folder : files.keep) {
    if (is_named(folder)) keep_folder(folder, rights);
  }
  for (const fs::path& path : files.remove) {
    if (is_named(path)) rights.remove.push_back(folder_of(path));
  }
  return rights;
}

// What a run of a model needs beside its files.
void add_rights_of_run(const CommonOptions& common, base::FileRights& rights) {
  rights.write.emplace_back("/dev/shm");  // what `sluice top` shows
  read_model(common.model, rights);
  if (common.speculate.draft_model) read_model(common.speculate.draft_model->path(), rights);
  for (const fs::path& file : topology::trigger_files(topology::find_cgroup({}, "memory"))) {
    rights.write.push_back(file);
  }
  if (const fs::path state = state_folder(); !state.empty()) keep_folder(state, rights);
  for (const fs::path& path : {common.report, common.trace_experts}) {
    if (is_named(path)) write_file_at(path, rights);
  }
}

// The measurements are written at the end, over whatever the command has made or read.
void refuse_to_replace(const CommonOptions& common, const SandboxFiles& files) {
  for (const fs::path& written : {common.report, common.trace_experts}) {
    if (!is_named(written)) continue;
    for (const fs::path& path : files.read) {
      if (is_named(path)) refuse_same_file(written, path, "which is read");
    }
    for (const fs::path& path : files.write) {
      if (is_named(path)) refuse_same_file(written, path, "which is written");
    }
  }
  if (is_named(common.report) && is_named(common.trace_experts)) {
    refuse_same_file(common.report, common.trace_experts, "the trace of the experts");
  }
}

// The folders of the libraries in this process, beside which lie those that they may still load.
std::vector<fs::path> folders_of_libraries() {
  std::vector<fs::path> folders;
  ::dl_iterate_phdr(
      [](dl_phdr_info* library, std::size_t, void* found) {
        const fs::path path = library->dlpi_name;
        if (path.has_parent_path()) {
          static_cast<std::vector<fs::path>*>(found)->push_back(path.parent_path());
        }
        return 0;
      },
      &folders);
  return folders;
}

// What finds names of hosts and checks certificates is the system's, and reads what it likes of it,
// but of nobody's home.
base::FileRights rights_of_download(const std::vector<fs::path>& folders) {
  base::FileRights rights = usual_rights();
  for (const char* path : {"/etc", "/usr", "/lib", "/lib32", "/lib64", "/opt", "/nix/store",
                           "/gnu/store", "/run", "/var/lib", "/var/run"}) {
    rights.read.emplace_back(path);
  }
  const auto read = [&](const std::vector<fs::path>& paths) {
    rights.read.insert(rights.read.end(), paths.begin(), paths.end());
  };
  read(folders_of_libraries());
  read(fetch::trusted_certificates());
  rights.read.push_back(fetch::hub_token_file());
  for (const fs::path& folder : folders) {
    std::error_code failed;
    fs::create_directories(folder, failed);  // who writes there says what is wrong
    rights.write.push_back(folder);
    // A repository may lie on another disk.
    for (const auto& entry : fs::directory_iterator(folder, failed)) {
      if (entry.is_symlink(failed)) rights.write.push_back(entry.path());
    }
  }
  return rights;
}

// `rights` are made only if there can be a sandbox.
void enter(const std::string& sandbox, std::size_t rings,
           const std::function<base::FileRights()>& rights,
           base::Confinement (*confine)(const base::FileRights&) = base::confine) {
  if (sandbox == "off") return;
  const bool is_demanded = sandbox == "on";
  const auto demand = [&](const base::Confinement& confinement) {
    if (!is_demanded || confinement.is_whole()) return;
    throw Error(ExitCode::failure,
                fmt::format("--sandbox on: {}; auto goes without", confinement.lacking));
  };
  const base::Confinement possible = base::possible_confinement();
  demand(possible);
  in_force() = possible;
  if (possible.landlock_version == 0 && !possible.filters_calls) return;
  ::tzset();  // it reads a file, once
  if (possible.filters_calls) streaming::make_spare_rings(rings);
  in_force() = confine(rights());
  demand(in_force());
}

}  // namespace

bool is_copied(const fs::path& input) {
  std::error_code absent;
  return input == "-" || !fs::is_regular_file(input, absent);
}

void enter_sandbox(const CommonOptions& common, const SandboxFiles& files) {
  refuse_to_replace(common, files);
  enter(common.sandbox, rings_of_run, [&] {
    base::FileRights rights = rights_of(files);
    add_rights_of_run(common, rights);
    return rights;
  });
}

void enter_converting_sandbox(const std::string& sandbox, const SandboxFiles& files) {
  enter(sandbox, 0, [&] { return rights_of(files); });
}

void enter_download_sandbox(const std::string& sandbox, const std::vector<fs::path>& folders) {
  enter(
      sandbox, 0, [&] { return rights_of_download(folders); }, base::confine_download);
}

void enter_reading_sandbox(const std::vector<fs::path>& files) {
  base::FileRights rights = usual_rights();
  for (const fs::path& file : files) {
    if (!is_named(file)) continue;
    rights.read.push_back(file);
    read_model(file, rights);
  }
  ::tzset();
  in_force() = base::confine(rights);
}

void announce_sandbox() {
  if (in_force().lacking.empty()) return;
  remark(fmt::format("the sandbox is not whole: {}", in_force().lacking));
}

std::string sandbox_in_force() {
  const base::Confinement& holds = in_force();
  if (holds.is_whole()) return "files, calls";
  if (holds.filters_calls) return "calls";
  return holds.landlock_version > 0 ? "files" : "off";
}

std::string sandbox_hint(const std::error_code& error) {
  const bool may_be = error == std::errc::permission_denied && in_force().landlock_version > 0;
  return may_be ? "; if it lies outside of what the sandbox leaves, give --sandbox off" : "";
}

void enter_serving_sandbox(const std::filesystem::path& socket) {
  if (!in_force().is_whole()) return;
  base::FileRights rights;
  rights.read = {"/proc", "/sys/fs/cgroup"};
  if (!socket.empty()) rights.remove.push_back(folder_of(socket));
  base::confine_serving_thread(rights);
}

}  // namespace sluice::cli
