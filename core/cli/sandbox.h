// --sandbox: the rights that a command gives up before it reads a model, and with it whatever a
// stranger has put there (base/confinement.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/confinement.h"
#include "core/cli/options.h"

namespace sluice::cli {

// What a command reads and writes beside the model, --report, the state of this user, and what the
// system tells of itself. Empty paths, and "-", are none.
struct SandboxFiles {
  // Files, each with others in its folder, or folders, with what links in them lead to.
  std::vector<std::filesystem::path> models = {};
  std::vector<std::filesystem::path> read = {};    // files, or folders
  std::vector<std::filesystem::path> write = {};   // files, each with others in its folder
  std::vector<std::filesystem::path> keep = {};    // folders, which are made if they are not there
  std::vector<std::filesystem::path> remove = {};  // files that go at the end
  bool has_temporary = false;                      // files in the folder for such
};

// Whether the rows of a file are read from a copy, because they come through a pipe or the like.
bool is_copied(const std::filesystem::path& input);

// Gives up the rights, unless --sandbox is off. Call it before the model is read, when downloads
// are done and sockets open, and while there is one thread. Throws Error when --sandbox is on and
// the kernel cannot do all; with or without a sandbox UsageError when --report or --trace-experts
// names one of the files that are read or written.
void enter_sandbox(const CommonOptions& common, const SandboxFiles& files);

// The same for a command that runs no model: it has nothing of this user.
void enter_converting_sandbox(const std::string& sandbox, const SandboxFiles& files);

// The same for a command that shows what is in files, as far as the kernel can: it keeps the right
// to read them, and what lies beside them.
void enter_reading_sandbox(const std::vector<std::filesystem::path>& files);

// The same for a command, or a child, that asks servers for a model. It keeps connections, reads
// what the system has of names, certificates and libraries, and writes in these folders, which are
// made if they are not there. Call it when libcurl is loaded.
void enter_download_sandbox(const std::string& sandbox,
                            const std::vector<std::filesystem::path>& folders);

// Says what of a sandbox this kernel lacks, if one was wanted; beside what a command says of itself
// when it has done its work, or is ready for it.
void announce_sandbox();

// "files, calls", "calls", or "off": what of the sandbox holds, for reports.
std::string sandbox_in_force();

// What to add to a message that a file cannot be opened: empty unless the sandbox may be the
// reason.
std::string sandbox_hint(const std::error_code& error);

// The same for the thread that serves connections, which keeps what it tells of the process
// (/metrics) and the file of its socket.
void enter_serving_sandbox(const std::filesystem::path& socket);

}  // namespace sluice::cli
