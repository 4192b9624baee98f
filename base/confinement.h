// Takes from a process what it does not need any more, so that a defect in what reads a stranger's
// file cannot open other files, sockets or programs.
//
// Landlock (landlock(7)) keeps it to some files, and to no TCP. A filter of system calls
// (seccomp(2)) keeps it to the calls that this program makes: what only an attacker would try
// (programs, connections, tracing, namespaces) ends the process, with SIGSYS. Sockets, code and
// libraries are refused; other calls fail as on a kernel that does not have them. Neither can be
// taken back, and both hold for threads and processes that are started later.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sluice::base {

// Paths that do not exist are left out. A folder stands for all that is beneath it. What is open
// already stays open, and pipes and sockets that are open may be opened again by /proc/self/fd.
struct FileRights {
  std::vector<std::filesystem::path> read = {};
  std::vector<std::filesystem::path> write = {};   // and read, make, rename and remove
  std::vector<std::filesystem::path> remove = {};  // folders whose contents may be removed
};

// What holds, or could.
struct Confinement {
  int landlock_version = 0;  // of its interface; 0: none
  bool filters_calls = false;
  std::string lacking = {};  // why one of them is not there; empty: both are

  bool is_whole() const { return landlock_version > 0 && filters_calls; }
};

// What this kernel, and whoever has started the process, allow. Changes nothing.
Confinement possible_confinement();

// Confines the process as far as that is possible, and returns what holds. Call it while there is
// one thread: Landlock holds for the thread that asks for it, and for those it starts later.
// A ring of io_uring is past a filter, so no more can be made (streaming/ring.h has spare ones).
Confinement confine(const FileRights& rights);

// Confines a process that asks servers and keeps what they answer: it can connect by internet
// protocols, map libraries and make links in the folders that it writes. It listens to nobody,
// starts no program and makes no ring. Call it while there is one thread.
Confinement confine_download(const FileRights& rights);

// Whether the process can no longer make code: libraries that would have to go without.
bool is_code_forbidden();

// Takes more from the calling thread of a confined process: of files it keeps `rights` alone, and
// of calls what a thread needs that serves connections, which makes no threads, processes or
// folders. Returns what holds. It guards against mistakes more than against an attacker who runs
// code of his own: that could use the memory of the other threads.
Confinement confine_serving_thread(const FileRights& rights);

}  // namespace sluice::base
