// One file from a server to a path here, which appears there only when it is whole and checked.
//
// What has come so far is in a partial file, always from its beginning on: pieces are asked for
// several at a time, and appended in order. So whatever ends the program, even kill -9 or a power
// loss, the next one goes on behind the bytes that are there, if it names the same partial file (a
// URL's has another name after a restart of the system); the sum over all of them decides in the
// end. A sum that is wrong after an earlier program's bytes makes it begin anew, once. Where
// the server says neither a sum nor a version, nobody knows what such bytes are of: it begins anew.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/fetch/remote_file.h"
#include "core/fetch/web.h"

namespace sluice::fetch {

struct DownloadProgress {
  std::string name;
  std::uint64_t done_bytes = 0, earlier_bytes = 0;  // with those of earlier programs; those alone
  std::optional<std::uint64_t> total_bytes;
};
using OnProgress = std::function<void(const DownloadProgress&)>;

struct DownloadPlace {
  std::filesystem::path target, partial;  // on one file system; their folders exist
  std::filesystem::path lock;             // held while the file is downloaded
  // The version on the server, and the file that says which one the target is: for targets whose
  // names do not. An empty version is not known, and so never the one that is here.
  std::string version{};
  std::filesystem::path version_file{};
};

struct Download {
  RemoteFile remote;
  DownloadPlace place;
};

// Whether the target is there, of this version, and as large as the server says.
bool is_here(const RemoteFile& remote, const DownloadPlace& place);

// Throws Error with ExitCode::io when the files of one model do not fit together on their disk.
// What is here already, in partial files too, counts.
void require_room(const std::vector<Download>& files);

// Does nothing when the target is here. An older version is replaced when the new one is whole, and
// not touched before; `before_commit` is called then. Waits while another program downloads the
// same file, and throws what web.on_wait throws meanwhile. Throws Error with ExitCode::io when
// there is not room enough, the bytes are not those that the server promised, it does not give
// them, or they begin otherwise than a model does; that is seen when the first of them have come.
void download(
    Web& web, const RemoteFile& remote, const DownloadPlace& place, const OnProgress& on_progress,
    const std::function<void()>& before_commit = [] {});

}  // namespace sluice::fetch
