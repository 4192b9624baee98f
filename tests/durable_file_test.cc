// Files that appear whole and durable or not at all: the order of system calls, failures at every
// one of them, power losses, and names that somebody else has taken.
#include "core/files/durable_file.h"

#include <algorithm>
#include <array>
#include <fcntl.h>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <system_error>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "core/files/read_at.h"
#include "core/files/small_file.h"
#include "tests/forgetful_disk.h"
#include "tests/program.h"
#include "tests/random_seed.h"
#include "tests/recorded_calls.h"
#include "tests/temporary_folder.h"

namespace {

using namespace sluice::files;
using sluice::test::content;
using sluice::test::files_in;
using sluice::test::ForgetfulDisk;
using sluice::test::RecordedCalls;
using sluice::test::TemporaryFolder;
using sluice::test::write;
using Calls = std::vector<std::string>;
namespace fs = std::filesystem;

const std::string old_text = "what was there";
const std::string new_text(100'000, 'n');

void write_durably(const fs::path& path, const std::string& text, SystemCalls& system,
                   DurableFileOptions options = {}) {
  DurableFile file(path, options, system);
  file.write(text);
  file.commit();
}

mode_t mode_of(const fs::path& path) {
  struct stat facts {};
  REQUIRE(::lstat(path.c_str(), &facts) == 0);
  return facts.st_mode & 07777U;
}

}  // namespace

TEST_CASE("what a killed process has left goes when its file is written again") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a", left = folder.path() / "a.partial-abcdef";
  write(left, "of a killed process");
  const DurableFile living(path, {.named_by = NamedBy::user});
  CHECK_FALSE(fs::exists(left));
  CHECK(files_in(folder.path()) == 1);
  {
    const DurableFile second(path, {.named_by = NamedBy::user});
    remove_unfinished(path);
    CHECK(files_in(folder.path()) == 2);  // both are still being written
  }
  CHECK(files_in(folder.path()) == 1);
}

// What another process may do at the worst moments: when a file has no lock yet, and when it gets
// its name.
TEST_CASE("a file that is being written is never taken for a remainder") {
  class Contested : public RecordedCalls {
   public:
    explicit Contested(fs::path path) : path_(std::move(path)) {}
    int mkostemp(char* pattern, int flags) override {
      const int descriptor = RecordedCalls::mkostemp(pattern, flags);
      if (std::exchange(is_first_, false)) remove_unfinished(path_);
      return descriptor;
    }
    int rename(const char* from, const char* to) override {
      remove_unfinished(path_);
      return RecordedCalls::rename(from, to);
    }

   private:
    const fs::path path_;
    bool is_first_ = true;
  };
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  Contested system(path);
  write_durably(path, new_text, system);
  CHECK(std::ranges::count(system.calls, "create a.partial-XXXXXX") == 2);
  CHECK(content(path) == new_text);
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("the content is synchronised before the name, and the folder after it") {
  const TemporaryFolder folder;
  RecordedCalls system;
  write_durably(folder.path() / "a", new_text, system);
  const std::string partial = "a.partial-XXXXXX", parent = folder.path().filename();
  CHECK(system.calls == Calls{"create " + partial, "fchmod " + partial, "write " + partial,
                              "sync " + partial, "rename " + partial + " a", "close " + partial,
                              "open folder " + parent, "sync " + parent, "close " + parent});
}

TEST_CASE("whatever call fails, the old file or the new one is there, and nothing beside it") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  const auto write_with_room = [&](SystemCalls& system) {
    DurableFile file(path, {}, system);
    file.reserve(new_text.size() + 10);
    file.write(new_text);
    file.commit();
  };
  RecordedCalls well;
  write_with_room(well);
  REQUIRE(well.calls.size() == 11);
  for (const int error : {ENOSPC, EIO, EDQUOT}) {
    for (std::size_t fails = 0; fails < well.calls.size(); ++fails) {
      INFO(well.calls[fails] << ", " << error);
      write(path, old_text);
      RecordedCalls system;
      system.fault = [&](const std::string&, std::size_t i) { return i == fails ? error : 0; };
      const bool is_last = fails + 1 == well.calls.size();  // closing the folder may fail
      try {
        write_with_room(system);
        CHECK(is_last);
      } catch (const std::system_error& thrown) {
        CHECK(thrown.code().value() == error);
        CHECK(std::string(thrown.what()).find(folder.path().string()) != std::string::npos);
      }
      const bool has_name = fails > 6;  // it was renamed, but its folder not synchronised
      CHECK(content(path) == (has_name ? new_text : old_text));
      CHECK(files_in(folder.path()) == 1);
    }
  }
}

TEST_CASE("short and interrupted writes are gone on with, at a place too") {
  const TemporaryFolder folder;
  RecordedCalls system;
  system.write_bytes_max = 777;
  system.fault = [](const std::string& call, std::size_t i) {
    return call.starts_with("write") && i % 3 == 0 ? EINTR : 0;
  };
  write_durably(folder.path() / "a", new_text, system);
  CHECK(content(folder.path() / "a") == new_text);
  DurableFile file(folder.path() / "b", {}, system);
  const std::string first(2000, '1'), second(3000, '2');
  file.write_at(first.size(), std::as_bytes(std::span(second)));
  file.write_at(0, std::as_bytes(std::span(first)));
  file.commit();
  CHECK(content(folder.path() / "b") == first + second);
}

TEST_CASE("a power loss at any call leaves one version, whole, and the new one once it was done") {
  const std::uint64_t seed = sluice::test::random_seed();
  constexpr std::size_t calls_max = 10;
  for (std::uint64_t round = 0; round < 400; ++round) {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / "a";
    ForgetfulDisk disk(folder.path(), seed + round);
    write_durably(path, old_text, disk);
    // Power goes after so many steps of writing the next version.
    const std::size_t steps = round % calls_max;
    bool is_committed = false;
    try {
      DurableFile file(path, {}, disk);
      for (std::size_t step = 0; step < calls_max - 1; ++step) {
        if (step == steps) disk.lose_power();
        file.write(std::string_view(new_text).substr(step * 1000, 1000));
      }
      file.commit();
      is_committed = true;
    } catch (const std::system_error&) {
    }
    disk.lose_power();
    disk.restart();
    INFO("seed " << seed + round << ", step " << steps);
    const std::string found = content(path);
    const std::string expected = new_text.substr(0, (calls_max - 1) * 1000);
    CHECK((found == expected || (found == old_text && !is_committed)));
  }
}

TEST_CASE("left-overs and traps under foreseeable names are not in the way") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  const fs::path other = folder.path() / "other";
  write(other, old_text);
  const std::string pid = std::to_string(::getpid());
  fs::create_symlink(other, path.string() + ".partial-" + pid);
  write(path.string() + "." + pid + ".tmp", old_text);
  write_durably(path, new_text, kernel());
  CHECK(content(path) == new_text);
  CHECK(content(other) == old_text);
  CHECK(fs::is_symlink(path.string() + ".partial-" + pid));
}

TEST_CASE("a link is followed only where the user gave the name") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "link", behind = folder.path() / "behind";
  write(behind, old_text);
  fs::create_symlink(behind, path);
  write_durably(path, new_text, kernel(), {.named_by = NamedBy::user});
  CHECK(fs::is_symlink(path));
  CHECK(content(behind) == new_text);
  write_durably(path, old_text, kernel());
  CHECK_FALSE(fs::is_symlink(path));
  CHECK(content(path) == old_text);
  CHECK(content(behind) == new_text);
}

TEST_CASE("what is no file is refused, or written directly where the user named it") {
  const TemporaryFolder folder;
  const fs::path fifo = folder.path() / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK_THROWS_AS(DurableFile(fifo), std::system_error);
  CHECK_THROWS_AS(DurableFile("/dev/null"), std::system_error);
  CHECK_THROWS_AS(DurableFile(folder.path()), std::system_error);
  CHECK_THROWS_AS(DurableFile(folder.path(), {.named_by = NamedBy::user}), std::system_error);
  CHECK_THROWS_AS(DurableFile(folder.path() / "no" / "file"), std::system_error);
  CHECK(files_in(folder.path()) == 1);

  write_durably("/dev/null", new_text, kernel(), {.named_by = NamedBy::user});
  CHECK(fs::is_character_file("/dev/null"));
  const int reader = ::open(fifo.c_str(), O_RDONLY | O_NONBLOCK);
  write_durably(fifo, old_text, kernel(), {.named_by = NamedBy::user});
  std::array<char, 100> got{};
  CHECK(::read(reader, got.data(), got.size()) == static_cast<ssize_t>(old_text.size()));
  ::close(reader);
  CHECK(fs::is_fifo(fifo));
}

TEST_CASE("the mode is the one asked for, whatever the file had before") {
  const TemporaryFolder folder;
  const mode_t mask = ::umask(0);
  ::umask(mask);
  const fs::path path = folder.path() / "a";
  for (const mode_t mode : {0600U, 0666U, 0640U, 0400U}) {
    write_durably(path, new_text, kernel(), {.mode = mode});
    CHECK(mode_of(path) == (mode & ~mask));
  }
  // Of a mount that belongs to somebody else, which lets nobody widen modes.
  RecordedCalls system;
  system.fault = [](const std::string& call, std::size_t) {
    return call.starts_with("fchmod") ? EPERM : 0;
  };
  write_durably(path, old_text, system);
  CHECK(content(path) == old_text);
  CHECK(mode_of(path) == 0600);
}

TEST_CASE("a name may be as long as the file system allows") {
  const TemporaryFolder folder;
  for (const std::size_t length : {1U, 239U, 240U, 241U, 255U}) {
    const fs::path path = folder.path() / std::string(length, 'l');
    write_durably(path, new_text, kernel());
    CHECK(content(path) == new_text);
  }
  CHECK_THROWS_AS(write_durably(folder.path() / std::string(256, 'l'), "", kernel()),
                  std::system_error);
}

TEST_CASE("the program itself synchronises before it renames") {
  using sluice::test::shell;
  const sluice::test::Folder folder;
  if (shell("strace -o /dev/null true").status != 0) SLUICE_SKIP("no strace that may trace");
  const std::string trace = folder.file("trace");
  // The leak sanitizer, where the program has it, cannot work in a program that is traced.
  REQUIRE(shell("ASAN_OPTIONS=detect_leaks=0 strace -f -o " + trace +
                " -e trace=fsync,rename,renameat,renameat2 '" + sluice::test::program +
                "' synth tiny " + folder.file("tiny.gguf"))
              .status == 0);
  const std::string calls = content(trace);
  INFO(calls);
  const std::size_t renamed = calls.find("rename");
  REQUIRE(renamed != std::string::npos);
  CHECK(calls.find("fsync(") < renamed);
  CHECK(calls.find("fsync(", renamed) != std::string::npos);
}

TEST_CASE("a user's file that is private stays private when it is replaced") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  RecordedCalls system;
  for (const mode_t mode : {0600U, 0640U, 0664U, 0644U}) {
    write(path, old_text);
    fs::permissions(path, static_cast<fs::perms>(mode));
    write_durably(path, new_text, system, {.named_by = sluice::files::NamedBy::user});
    CHECK(mode_of(path) == mode);
  }
}

TEST_CASE("private folders are made with those above them, and others are left as they are") {
  const TemporaryFolder folder;
  fs::permissions(folder.path(), static_cast<fs::perms>(0755));
  sluice::files::make_private_folder(folder.path() / "a" / "b");
  sluice::files::make_private_folder(folder.path() / "a" / "b");
  CHECK(mode_of(folder.path()) == 0755);
  CHECK(mode_of(folder.path() / "a") == 0700);
  CHECK(mode_of(folder.path() / "a" / "b") == 0700);
  write(folder.path() / "file", "x");
  CHECK_THROWS_AS(sluice::files::make_private_folder(folder.path() / "file" / "b"),
                  std::system_error);
}

TEST_CASE("a small file is read whole, and anything else is as if it were not there") {
  const TemporaryFolder folder;
  const auto file = folder.path() / "small";
  CHECK(read_small_file(file, 10).empty());
  const std::string text("a\0b\n567890", 11);
  write(file, text);
  CHECK(read_small_file(file, 11) == text);
  CHECK(read_small_file(file, 10).empty());
  CHECK(read_small_file(folder.path(), 10).empty());
  REQUIRE(::mkfifo((folder.path() / "pipe").c_str(), 0600) == 0);
  CHECK(read_small_file(folder.path() / "pipe", 10).empty());  // does not wait
}

TEST_CASE("what the user named is written anew, through a new link, and where it is relative too") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "new", link = folder.path() / "link";
  write_durably(path, old_text, kernel(), {.named_by = NamedBy::user});
  CHECK(content(path) == old_text);
  fs::create_symlink(folder.path() / "nowhere", link);  // leads to nothing yet: it is replaced
  write_durably(link, new_text, kernel(), {.named_by = NamedBy::user});
  CHECK(content(link) == new_text);
  CHECK_FALSE(fs::exists(folder.path() / "nowhere"));

  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  RecordedCalls system;
  write_durably("plain", new_text, system, {.keep_cached = false});
  CHECK(content("plain") == new_text);
  CHECK(system.calls.back() == "close .");
  fs::current_path(before);
}

TEST_CASE("a thing that cannot be written is refused by its name") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "socket";
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REQUIRE(path.string().size() < sizeof address.sun_path);
  path.string().copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  CHECK_THROWS_WITH(DurableFile(path, {.named_by = NamedBy::user}),
                    "cannot write " + path.string() + ": No such device or address");
  CHECK_THROWS_WITH(DurableFile(path), "cannot write " + path.string() + ": Invalid argument");
  CHECK_THROWS_WITH(DurableFile(folder.path()),
                    "cannot write " + folder.path().string() + ": Is a directory");
  CHECK(fs::is_socket(path));
  ::close(socket);
}

TEST_CASE("space is reserved where the file system can, and what is not used is given back") {
  const TemporaryFolder folder;
  for (const int error : {0, EINVAL, EOPNOTSUPP, ENOSYS}) {
    RecordedCalls system;
    system.fault = [&](const std::string& call, std::size_t) {
      return call.starts_with("fallocate") ? error : 0;
    };
    DurableFile file(folder.path() / "a", {}, system);
    file.reserve(0);
    file.reserve(new_text.size() + 5000);
    file.write(new_text);
    file.commit();
    CHECK(content(folder.path() / "a") == new_text);
    const auto count = [&](const std::string& kind) {
      return std::count_if(system.calls.begin(), system.calls.end(),
                           [&](const std::string& call) { return call.starts_with(kind); });
    };
    CHECK(count("fallocate") == 1);
    CHECK(count("truncate") == (error == 0 ? 1 : 0));
  }
  RecordedCalls interrupted;
  interrupted.fault = [](const std::string& call, std::size_t i) {
    return call.starts_with("fallocate") && i < 5 ? EINTR : 0;
  };
  DurableFile file(folder.path() / "a", {}, interrupted);
  file.reserve(1);
  file.write(new_text);
  file.commit();
  CHECK(content(folder.path() / "a") == new_text);
  // Nothing is reserved of what is no file.
  RecordedCalls system;
  DurableFile null("/dev/null", {.named_by = NamedBy::user}, system);
  null.reserve(1000);
  null.commit();
  CHECK(system.calls == Calls{"open null", "close null"});
}

TEST_CASE("a write that fails at a place is an error, and so is one that makes no progress") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  const std::string name = "cannot write " + path.string() + ": ";
  const auto bytes = std::as_bytes(std::span(new_text));
  RecordedCalls full;
  full.fault = [](const std::string& call, std::size_t) {
    return call.starts_with("write") ? ENOSPC : 0;
  };
  RecordedCalls stuck;
  stuck.write_bytes_max = 0;
  {
    DurableFile file(path, {}, full);
    CHECK_THROWS_WITH(file.write_at(7, bytes), name + "No space left on device");
    CHECK_THROWS_WITH(file.write(bytes), name + "No space left on device");
    DurableFile other(path, {}, stuck);
    CHECK_THROWS_WITH(other.write_at(7, bytes), name + "Input/output error");
    CHECK_THROWS_WITH(other.write(bytes), name + "Input/output error");
  }
  CHECK(files_in(folder.path()) == 0);
}

TEST_CASE("some file systems have no names to synchronise, and that is no error") {
  const TemporaryFolder folder;
  const auto sync_with = [&](int error) {
    RecordedCalls system;
    system.fault = [&](const std::string& call, std::size_t) {
      return call.starts_with("sync") ? error : 0;
    };
    sync_folder_of(folder.path() / "a", system);
  };
  CHECK_NOTHROW(sync_with(EINVAL));
  CHECK_THROWS_WITH(sync_with(EIO),
                    "cannot synchronise " + folder.path().string() + ": Input/output error");
  const fs::path gone = folder.path() / "gone";
  CHECK_THROWS_WITH(sync_folder_of(gone / "a"),
                    "cannot synchronise " + gone.string() + ": No such file or directory");
}

TEST_CASE("a file that is gone is removed already, and what cannot be removed is named") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  write(path, "x");
  remove_file(path);
  CHECK_FALSE(fs::exists(path));
  CHECK_NOTHROW(remove_file(path));
  CHECK_THROWS_WITH(remove_file(folder.path()),
                    "cannot remove " + folder.path().string() + ": Is a directory");
}

TEST_CASE("a folder cannot be where something else is") {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "file", link = folder.path() / "link";
  write(file, "x");
  fs::create_symlink(folder.path() / "nowhere", link);
  for (const fs::path& path : {file, link}) {
    CHECK_THROWS_WITH(make_private_folder(path),
                      "cannot make the folder " + path.string() + ": File exists");
  }
  CHECK_THROWS_WITH(make_private_folder(file / "a" / "b"),
                    "cannot make the folder " + file.string() + ": File exists");
  fs::create_directory(folder.path() / "nowhere");
  CHECK_NOTHROW(make_private_folder(link));
  // Another process may make it first.
  struct Overtaken : SystemCalls {
    int mkdir(const char* path, mode_t mode) override {
      SystemCalls::mkdir(path, mode);
      return SystemCalls::mkdir(path, mode);
    }
  } overtaken;
  make_private_folder(folder.path() / "x" / "y", overtaken);
  CHECK(fs::is_directory(folder.path() / "x" / "y"));
}

TEST_CASE("a file is read at a place up to its end, and a read that fails is an error") {
  const TemporaryFolder folder;
  write(folder.path() / "a", "0123456789");
  const sluice::base::Descriptor file(::open((folder.path() / "a").c_str(), O_RDONLY | O_CLOEXEC));
  const auto read = [&](std::size_t bytes, std::uint64_t offset) {
    std::string text(bytes, '?');
    text.resize(read_at(file.number(), std::as_writable_bytes(std::span(text)), offset));
    return text;
  };
  CHECK(read(4, 3) == "3456");
  CHECK(read(4, 8) == "89");
  CHECK(read(4, 10).empty());
  CHECK(read(0, 0).empty());
  const sluice::base::Descriptor parent(::open(folder.path().c_str(), O_RDONLY | O_CLOEXEC));
  std::byte byte{};
  try {
    read_at(parent.number(), {&byte, 1}, 0);
    FAIL("a folder cannot be read");
  } catch (const std::system_error& error) {
    CHECK(error.code().value() == EISDIR);
  }
}
