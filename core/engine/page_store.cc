#include "core/engine/page_store.h"

#include <algorithm>
#include <boost/uuid/name_generator_sha1.hpp>
#include <boost/uuid/uuid.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <new>
#include <optional>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/descriptor.h"
#include "core/error.h"
#include "core/files/checksum.h"
#include "core/files/durable_file.h"

namespace sluice::engine {
namespace {

namespace fs = std::filesystem;
using tokenizer::Token;
using Bytes = std::vector<std::byte>;

constexpr std::string_view magic = "SLUICEPG";
constexpr std::uint32_t version = 2;
constexpr std::string_view extension = ".sluice-page";
constexpr auto abandoned_after = std::chrono::minutes(10);
// So many pages take longer to count than one to write.
constexpr std::size_t pages_many = 64;
constexpr std::uint64_t counts_per_limit = 64;

// Appends values one after the other.
class Writer {
 public:
  explicit Writer(std::size_t size) : bytes_(size) {}

  void put(std::span<const std::byte> bytes) {
    base::check(bytes.size() <= bytes_.size() - position_,
                "a page's header is longer than counted");
    std::ranges::copy(bytes, bytes_.begin() + static_cast<std::ptrdiff_t>(position_));
    position_ += bytes.size();
  }
  template <typename T>
  void put_value(const T& value) {
    put(std::as_bytes(std::span(&value, 1)));
  }

  std::span<const std::byte> written() const { return std::span(bytes_).first(position_); }
  Bytes take() { return std::move(bytes_); }

 private:
  Bytes bytes_;
  std::size_t position_ = 0;
};

// The header of a file: everything but the payload.
Bytes header(const PageKey& key, std::span<const Token> tokens, std::uint64_t payload_bytes,
             std::uint64_t payload_checksum) {
  Writer writer(magic.size() + 2 * sizeof(std::uint32_t) + key.bytes.size() +
                3 * sizeof(std::uint64_t) + tokens.size_bytes());
  writer.put(std::as_bytes(std::span(magic)));
  writer.put_value(version);
  writer.put_value(static_cast<std::uint32_t>(tokens.size()));
  writer.put(std::as_bytes(std::span(key.bytes)));
  writer.put_value(payload_bytes);
  writer.put_value(payload_checksum);
  writer.put(std::as_bytes(tokens));
  files::Checksum checksum;
  checksum.add(writer.written());
  writer.put_value(checksum.value());
  return writer.take();
}

template <typename Part>
std::uint64_t total_bytes(std::span<const Part> parts) {
  std::uint64_t total = 0;
  for (const Part& part : parts) total += part.size();
  return total;
}

// Whether the folder belongs to this user and no other user can read or change it.
bool is_of_owner_alone(const struct stat& facts) {
  return facts.st_uid == ::geteuid() && (facts.st_mode & 077U) == 0;
}

// Creates the folder, or checks an existing one. It does not change the mode of an existing folder,
// which may serve somebody for something else.
void open_private_folder(const fs::path& folder) {
  const auto fail = [&](int error) {
    throw std::system_error(error, std::generic_category(),
                            fmt::format("cannot use {} as a prompt cache", folder.string()));
  };
  std::error_code error;
  if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), error);
  if (error) fail(error.value());
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) fail(errno);
  struct stat facts {};
  if (::stat(folder.c_str(), &facts) != 0) fail(errno);
  if (!S_ISDIR(facts.st_mode)) fail(ENOTDIR);
  if (is_of_owner_alone(facts)) return;
  const std::string_view what =
      facts.st_uid != ::geteuid() ? "belongs to another user" : "is open to other users";
  throw UsageError(
      fmt::format("{0} {1}, and a prompt cache holds prompts: name a folder of your own "
                  "that only you may read (chmod 700)",
                  folder.string(), what));
}

// A file read from front to back.
class InputFile {
 public:
  explicit InputFile(const fs::path& path)
      : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW)),
        error_(errno) {}
  ~InputFile() {
    // The payload was copied to where it is used; keeping it in the page cache would waste memory.
    if (is_open()) (void)::posix_fadvise(file_.number(), 0, 0, POSIX_FADV_DONTNEED);
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  bool is_open() const { return file_.is_open(); }
  int error() const { return error_; }

  std::uint64_t bytes() const {
    struct stat facts {};
    const bool is_file = ::fstat(file_.number(), &facts) == 0 && S_ISREG(facts.st_mode);
    return is_file ? static_cast<std::uint64_t>(facts.st_size) : 0;
  }

  bool is_private() const {
    struct stat facts {};
    return ::fstat(file_.number(), &facts) == 0 && is_of_owner_alone(facts);
  }

  // Fills `bytes`; returns whether the file had enough.
  bool read(std::span<std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::read(file_.number(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
    return true;
  }

 private:
  base::Descriptor file_;
  int error_;
};

// Whether a file could not be opened for want of descriptors or memory, which says nothing of it.
bool is_want(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM;
}

// Reads a page; returns what is wrong with it, or nothing.
std::optional<std::string> read_page(InputFile& file, const PageKey& key,
                                     std::span<const Token> tokens,
                                     std::span<const std::span<std::byte>> parts) {
  Bytes expected = header(key, tokens, total_bytes(parts), 0);
  const std::uint64_t bytes = expected.size() + total_bytes(parts);
  if (!file.is_private()) return "other users can read or change it";
  if (file.bytes() != bytes) {
    return fmt::format("it has {} bytes; expected {}", file.bytes(), bytes);
  }
  Bytes found(expected.size());
  if (!file.read(found)) return "it cannot be read";
  files::Checksum checksum;
  for (const std::span<std::byte> part : parts) {
    if (!file.read(part)) return "it cannot be read";
    checksum.add(part);
  }
  expected = header(key, tokens, total_bytes(parts), checksum.value());
  if (found == expected) return std::nullopt;
  const std::size_t front = magic.size() + sizeof version;
  if (!std::equal(found.begin(), found.begin() + front, expected.begin())) {
    return "it is no page of this version";
  }
  return "it is damaged, or belongs to something else";
}

struct StoredPage {
  fs::path path;
  std::uint64_t bytes;
  fs::file_time_type used;
};

}  // namespace

PageKey PageKey::derive(std::span<const std::byte> content) const {
  boost::uuids::uuid space;
  std::ranges::copy(bytes, space.begin());
  const boost::uuids::name_generator_sha1 derived(space);
  PageKey key;
  std::ranges::copy(derived(content.data(), content.size()), key.bytes.begin());
  return key;
}

std::string PageKey::text() const {
  std::string text;
  for (const std::uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

PageStore::PageStore(fs::path folder, std::uint64_t bytes_max, Warn warn)
    : folder_(folder.has_filename() ? std::move(folder) : folder.parent_path()),
      bytes_max_(bytes_max),
      warn_(std::move(warn)) {
  open_private_folder(folder_);
}

fs::path PageStore::path(const PageKey& key) const {
  return folder_ / (key.text() + std::string(extension));
}

bool PageStore::contains(const PageKey& key) const {
  std::error_code ignored;
  return fs::is_regular_file(fs::symlink_status(path(key), ignored));
}

bool PageStore::read(const PageKey& key, std::span<const Token> tokens,
                     std::span<const std::span<std::byte>> parts) const {
  const fs::path name = path(key);
  InputFile file(name);
  if (!file.is_open() && file.error() == ENOENT) return false;
  const std::optional<std::string> fault = file.is_open()
                                               ? read_page(file, key, tokens, parts)
                                               : std::generic_category().message(file.error());
  if (!fault) return true;
  const bool is_kept = !file.is_open() && is_want(file.error());
  warn_(fmt::format("{} in the prompt cache is passed over{}: {}", name.string(),
                    is_kept ? "" : " and made anew", *fault));
  std::error_code ignored;
  if (!is_kept) fs::remove(name, ignored);
  return false;
}

void PageStore::write(const PageKey& key, std::span<const Token> tokens,
                      std::span<const std::span<const std::byte>> parts) const {
  files::Checksum checksum;
  for (const std::span<const std::byte> part : parts) checksum.add(part);
  files::DurableFile file(path(key), {.mode = 0600, .keep_cached = false});
  file.write(header(key, tokens, total_bytes(parts), checksum.value()));
  for (const std::span<const std::byte> part : parts) file.write(part);
  file.commit();
  room_bytes_ -= std::min(room_bytes_, file.position());
}

void PageStore::touch(std::span<const PageKey> keys) const {
  auto time = fs::file_time_type::clock::now();
  std::error_code ignored;
  for (const PageKey& key : keys) {
    fs::last_write_time(path(key), time, ignored);
    time -= std::chrono::microseconds(1);
  }
}

// Another process may be removing the same files; a file that is gone is not an error.
void PageStore::trim() const {
  std::vector<StoredPage> pages;
  std::uint64_t bytes = 0;
  std::error_code error;
  const auto now = fs::file_time_type::clock::now();
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code gone;
    StoredPage page{entry->path(), entry->file_size(gone), {}};
    if (!gone) page.used = entry->last_write_time(gone);
    if (gone) continue;
    if (page.path.extension() == extension) {
      bytes += page.bytes;
      pages.push_back(std::move(page));
    } else if (page.path.filename().string().find(std::string(extension) + ".partial-") !=
                   std::string::npos &&
               now - page.used > abandoned_after) {
      fs::remove(page.path, gone);
    }
  }
  // Pages are counted again after a share of the limit: others may write into the same folder. A
  // store that is full needs as much room, or else each page would make it count.
  const std::uint64_t share = pages.size() < pages_many ? 0 : bytes_max_ / counts_per_limit;
  const std::uint64_t most = bytes > bytes_max_ ? bytes_max_ - share : bytes_max_;
  std::ranges::sort(pages, {}, &StoredPage::used);
  for (const StoredPage& page : pages) {
    if (bytes <= most) break;
    fs::remove(page.path, error);
    bytes -= page.bytes;
  }
  room_bytes_ = std::min(share, bytes_max_ - std::min(bytes, bytes_max_));
}

void PageStore::trim_if_due() const {
  if (room_bytes_ == 0) trim();
}

}  // namespace sluice::engine
