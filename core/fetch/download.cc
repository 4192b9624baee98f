#include "core/fetch/download.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <span>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <system_error>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/file_identity.h"
#include "base/trim.h"
#include "core/error.h"
#include "core/fetch/begun.h"
#include "core/fetch/byte_ranges.h"
#include "core/fetch/hub_cache.h"
#include "core/fetch/places.h"
#include "core/fetch/reference.h"
#include "core/fetch/sha256.h"
#include "core/files/durable_file.h"
#include "core/files/read_at.h"
#include "core/text/lower_case.h"

namespace sluice::fetch {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t piece_bytes = std::uint64_t{8} << 20;
constexpr std::size_t pieces_max = 4;  // at a time; so much of them is in memory

[[noreturn]] void fail_at(const fs::path& path, const char* what) {
  throw std::system_error(errno, std::generic_category(),
                          fmt::format("cannot {} {}", what, path.string()));
}

[[noreturn]] void refuse_full(const std::string& name, const fs::path& folder,
                              std::uint64_t missing, std::uint64_t free) {
  throw Error(ExitCode::io,
              fmt::format("{} needs {} MiB more in {}, where {} MiB are free: make room (sluice "
                          "list, sluice rm), or set HF_HOME to another disk",
                          name, (missing >> 20) + 1, folder.string(), free >> 20));
}

// Nothing where the system does not say.
std::optional<std::uint64_t> free_bytes(const fs::path& folder) {
  struct statvfs system {};
  if (::statvfs(folder.c_str(), &system) != 0) return std::nullopt;
  return std::uint64_t{system.f_bavail} * system.f_frsize;
}

// Blocks that an earlier program has reserved are the file's already.
std::uint64_t reserved_bytes(const struct stat& facts) {
  return std::max(static_cast<std::uint64_t>(facts.st_blocks) * 512,
                  static_cast<std::uint64_t>(facts.st_size));
}

// The partial file: a front of the remote one, and the sum of its bytes.
class PartialFile {
 public:
  PartialFile(const fs::path& path, std::string name) : path_(path), name_(std::move(name)) {
    file_ = base::Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
    struct stat facts {};
    if (!file_.is_open() || ::fstat(file_.number(), &facts) != 0) fail_at(path_, "write");
    bytes_ = static_cast<std::uint64_t>(facts.st_size);
  }

  std::uint64_t bytes() const { return bytes_; }

  void clear() {
    if (::ftruncate(file_.number(), 0) != 0) fail_at(path_, "write");
    bytes_ = 0;
    sum_ = Sha256();
  }

  // Adds what is there already to the sum.
  void read_again(const std::function<void()>& on_wait) {
    std::vector<std::byte> buffer(std::size_t{1} << 20);
    for (std::uint64_t at = 0; at < bytes_;) {
      const std::size_t got = files::read_at(file_.number(), buffer, at);
      if (got == 0) break;
      sum_.add(std::span(buffer).first(got));
      at += got;
      on_wait();
    }
  }

  void append(std::span<const std::byte> bytes) {
    sum_.add(bytes);
    while (!bytes.empty()) {
      const ssize_t written =
          ::pwrite(file_.number(), bytes.data(), bytes.size(), static_cast<off_t>(bytes_));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail_at(path_, "write");
      bytes_ += static_cast<std::uint64_t>(written);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }

  // Reserves the blocks of the whole file, whose size stays as it is.
  void require_room(std::uint64_t total) {
    if (total <= bytes_) return;
    struct stat facts {};
    (void)::fstat(file_.number(), &facts);
    const fs::path folder = path_.parent_path();
    const std::uint64_t missing = total - std::min(total, reserved_bytes(facts));
    if (const auto free = free_bytes(folder); free && *free < missing) {
      refuse_full(name_, folder, missing, *free);
    }
    const int result = ::fallocate(file_.number(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(bytes_),
                                   static_cast<off_t>(total - bytes_));
    if (result != 0 && (errno == ENOSPC || errno == EDQUOT)) {
      refuse_full(name_, folder, missing, 0);
    }
  }

  // How it begins.
  static constexpr std::size_t front_bytes = 256;
  std::string front() const {
    std::string text(front_bytes, '\0');
    text.resize(files::read_at(file_.number(), std::as_writable_bytes(std::span(text)), 0));
    return text;
  }

  std::string finish_sum() { return sum_.finish(); }

  void commit(const fs::path& target) {
    if (::fdatasync(file_.number()) != 0) {
      const int error = errno;
      clear();  // or the next one would succeed, whatever the disk has
      errno = error;
      fail_at(path_, "write");
    }
    if (::rename(path_.c_str(), target.c_str()) != 0) fail_at(target, "write");
    files::sync_folder_of(target);
  }

 private:
  fs::path path_;
  std::string name_;
  base::Descriptor file_;
  std::uint64_t bytes_ = 0;
  Sha256 sum_;
};

// Throws Error for what servers give in the place of a model, of which nothing is kept.
// Repositories of the hub have other files too.
void require_model(const RemoteFile& remote, PartialFile& partial) {
  const auto fail = [&](std::string_view text) {
    partial.clear();
    throw Error(ExitCode::io, fmt::format("{}: {}; nothing was kept", remote.name, text));
  };
  const bool is_hub = host_of(remote.url) == host_of(hub_endpoint());
  const auto has_part = [&](std::string_view part) {
    return is_hub && remote.name.find(part) != std::string::npos;
  };
  constexpr std::string_view magic = "GGUF";
  const std::string front = partial.front();
  if (front.starts_with(magic)) return;
  const std::string lower = text::lower_case(front);
  const std::string_view start = base::trimmed(lower);
  if (start.starts_with("<!doctype html") || start.starts_with("<html")) {
    fail(has_part("/blob/") ? "this is the page about the file: take /resolve/ instead of /blob/"
                            : "the server gives a page of HTML and no model: look at it in a "
                              "browser for the file's own URL, or for what has to be done first");
  }
  if (start.starts_with("version https://git-lfs")) {
    fail(has_part("/raw/") ? "this is a pointer of git-lfs: take /resolve/ instead of /raw/"
                           : "this is a pointer of git-lfs, a text in the place of the file: take "
                             "the URL by which the server gives the file itself");
  }
  if (!remote.name.starts_with("hf:") || remote.name.ends_with(".gguf")) {
    fail("this is no GGUF file: it does not begin with 'GGUF'");
  }
}

// One program at a time downloads a file. The lock ends with the program, however that ends. The
// file may be removed while somebody waits for it (remove_begun); the lock of a file without a name
// keeps nobody away, so it is opened anew each time.
base::Descriptor take_lock(const fs::path& path, const Web& web, const std::string& name) {
  for (bool is_told = false;;) {
    base::Descriptor lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (!lock.is_open()) fail_at(path, "write");
    if (::flock(lock.number(), LOCK_EX | LOCK_NB) == 0) {
      if (base::has_name(lock.number(), path.c_str())) return lock;
      continue;
    }
    if (errno != EWOULDBLOCK && errno != EINTR) fail_at(path, "lock");
    if (!std::exchange(is_told, true)) {
      web.options().on_retry(fmt::format("{}: another program downloads it; waiting", name));
    }
    constexpr timespec pause{.tv_sec = 0, .tv_nsec = 100'000'000};
    ::nanosleep(&pause, nullptr);
    web.options().on_wait();
  }
}

// Reads the pieces of a file whose size is known, in order.
class PiecedDownload {
 public:
  PiecedDownload(Web& web, const RemoteFile& remote, PartialFile& partial,
                 std::function<void(std::uint64_t pending)> on_bytes)
      : source_(web, remote),
        partial_(partial),
        next_(partial.bytes()),
        on_bytes_(std::move(on_bytes)) {}

  // False when the server gives no ranges.
  bool run() {
    const std::uint64_t total = source_.bytes();
    while (partial_.bytes() < total) {
      // The first answer shows whether there are ranges.
      const std::size_t at_once = source_.has_ranges() ? pieces_max : 1;
      while (pieces_.size() < at_once && next_ < total) {
        const std::uint64_t bytes = std::min(piece_bytes, total - next_);
        pieces_.push_back(std::make_unique<RangeRead>(source_, ByteRange{next_, bytes}));
        next_ += bytes;
      }
      source_.web().poll();
      for (const auto& piece : pieces_) piece->advance();
      if (source_.refuses_ranges()) return false;
      // The first piece is written as it comes, so that little is lost when the program ends.
      while (!pieces_.empty() && write_front()) pieces_.pop_front();
      on_bytes_(pending_bytes());
    }
    return true;
  }

 private:
  // Writes what is new of the first piece; true when that is all of it.
  bool write_front() {
    RangeRead& front = *pieces_.front();
    const std::uint64_t written = partial_.bytes() - front.range().offset;
    partial_.append(front.bytes().subspan(static_cast<std::size_t>(written)));
    return front.is_done();
  }

  // What is in memory and not in the file.
  std::uint64_t pending_bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& piece : pieces_) bytes += piece->bytes().size();
    return pieces_.empty() ? 0 : bytes - (partial_.bytes() - pieces_.front()->range().offset);
  }

  RangeSource source_;
  PartialFile& partial_;
  std::uint64_t next_;
  std::function<void(std::uint64_t)> on_bytes_;
  std::deque<std::unique_ptr<RangeRead>> pieces_;
};

// Reads a file in one answer, from the beginning: the server gives no ranges, or no size.
void read_whole(Web& web, const RemoteFile& remote, PartialFile& partial,
                const std::function<void(std::uint64_t)>& on_bytes) {
  for (unsigned attempts = 1;; ++attempts) {
    partial.clear();
    Request request;
    request.url = remote.url;
    request.token = remote.token;
    request.headers = {"Accept-Encoding: identity"};
    bool is_too_long = false;
    request.on_body = [&](std::span<const std::byte> bytes) {
      is_too_long = remote.bytes && partial.bytes() + bytes.size() > *remote.bytes;
      if (!is_too_long) partial.append(bytes);
      return !is_too_long;
    };
    const std::unique_ptr<Transfer> transfer = web.start(std::move(request));
    while (!transfer->is_done()) {
      web.poll();
      on_bytes(0);
    }
    Answer answer = transfer->answer();
    const std::optional<std::uint64_t> given = answer.content_length();
    const bool is_there = answer.status == 200;
    if (is_there && remote.bytes &&
        (is_too_long || given.value_or(*remote.bytes) != *remote.bytes)) {
      partial.clear();
      throw Error(ExitCode::io,
                  fmt::format("{}: its server states {} bytes, and gives {}; nothing was kept: try "
                              "again later, or take another URL",
                              remote.name, *remote.bytes, given ? std::to_string(*given) : "more"));
    }
    if (is_there && answer.problem.empty()) {
      if (!remote.bytes || partial.bytes() == *remote.bytes) return;
      answer.problem = "the answer was cut";
    }
    if (!is_passing(answer)) throw_answer(remote.name, answer);
    web.wait(web.pause_before(attempts, answer, remote.name));
  }
}

// Brings the partial file to its end, and checks it.
void complete(Web& web, const RemoteFile& remote, PartialFile& partial,
              const OnProgress& on_progress) {
  const bool is_known = !remote.sha256.empty() || !remote.version.empty();
  if (!is_known || (remote.bytes && partial.bytes() > *remote.bytes)) partial.clear();
  for (bool is_again = false;; is_again = true) {
    if (remote.bytes) partial.require_room(*remote.bytes);
    const std::uint64_t earlier = partial.bytes();
    partial.read_again(web.options().on_wait);
    bool is_looked_at = earlier != 0;  // what is begun may be wrong: the sum will tell
    const auto on_bytes = [&](std::uint64_t pending) {
      if (!is_looked_at && partial.bytes() >= PartialFile::front_bytes) {
        require_model(remote, partial);
        is_looked_at = true;
      }
      on_progress({remote.name, partial.bytes() + pending, earlier, remote.bytes});
    };
    const bool has_pieces = remote.bytes && PiecedDownload(web, remote, partial, on_bytes).run();
    if (!has_pieces) read_whole(web, remote, partial, on_bytes);
    const std::string sum = partial.finish_sum();
    if (remote.sha256.empty() || sum == remote.sha256) break;
    if (!is_again && earlier > 0) {
      web.options().on_retry(
          fmt::format("{}: what an earlier download has left is not of this "
                      "file; beginning anew",
                      remote.name));
      partial.clear();
      continue;
    }
    partial.clear();
    throw Error(ExitCode::io,
                fmt::format("{}: the bytes that came are not those that the server states (SHA-256 "
                            "{}, stated {}); nothing was kept",
                            remote.name, sum, remote.sha256));
  }
  require_model(remote, partial);
}

void commit(PartialFile& partial, const DownloadPlace& place) {
  if (place.version_file.empty()) return partial.commit(place.target);
  files::remove_file(place.version_file);  // from here on the target may be of either version
  partial.commit(place.target);
  files::DurableFile version(place.version_file);
  version.write(place.version.empty() ? "not known" : place.version);
  version.commit();
}

}  // namespace

bool is_here(const RemoteFile& remote, const DownloadPlace& place) {
  std::error_code absent;
  const std::uintmax_t bytes = fs::file_size(place.target, absent);
  if (absent || bytes != remote.bytes.value_or(bytes)) return false;
  return place.version_file.empty() ||
         (!place.version.empty() && read_text(place.version_file) == place.version);
}

void require_room(const std::vector<Download>& files) {
  std::uint64_t missing = 0;
  for (const auto& [remote, place] : files) {
    if (is_here(remote, place)) continue;
    struct stat facts {};
    const bool is_begun = ::stat(place.partial.c_str(), &facts) == 0;
    const std::uint64_t total = remote.bytes.value_or(0);
    missing += total - std::min(total, is_begun ? reserved_bytes(facts) : 0);
  }
  if (missing == 0) return;
  const auto& [remote, place] = files.front();
  const fs::path folder = place.partial.parent_path();
  if (const auto free = free_bytes(folder); free && *free < missing) {
    refuse_full(remote.name, folder, missing, *free);
  }
}

void download(Web& web, const RemoteFile& remote, const DownloadPlace& place,
              const OnProgress& on_progress, const std::function<void()>& before_commit) {
  const base::Descriptor lock = take_lock(place.lock, web, remote.name);
  if (is_here(remote, place)) return;  // another program has brought it meanwhile
  const BegunDownload begun{remote.name, place.partial, place.lock};
  for (const BegunDownload& other : begun_downloads()) {
    // What has come of an older version is of no use any more.
    if (other.name == begun.name && other.partial != begun.partial) {
      remove_begun(other, place.lock);
    }
  }
  note_begun(begun);
  PartialFile partial(place.partial, remote.name);
  try {
    complete(web, remote, partial, on_progress);
  } catch (...) {
    if (partial.bytes() == 0) remove_begun(begun, place.lock);
    throw;
  }
  before_commit();
  commit(partial, place);
  forget_begun(begun);
}

}  // namespace sluice::fetch
