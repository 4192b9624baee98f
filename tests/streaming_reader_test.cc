// The readers on real files: the same bytes from each, and errors where the machine gives less than
// was hoped for.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "streaming/alignment.h"
#include "streaming/choose_reader.h"
#include "streaming/data_extents.h"
#include "streaming/data_file.h"
#include "streaming/disk_speed.h"
#include "streaming/streamed_tape.h"
#include "streaming/threaded_reader.h"
#include "streaming/uring_reader.h"
#include "tests/catch.h"
#include "tests/fake_reader.h"
#include "tests/page_cache.h"
#include "tests/temporary_folder.h"

namespace fs = std::filesystem;
using namespace sluice::streaming;
using sluice::test::cached_bytes;
using sluice::test::FileBytes;
using sluice::test::random_bytes;
using sluice::test::TemporaryFolder;

namespace {

void write_file(const fs::path& path, const FileBytes& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) throw std::runtime_error("cannot write " + path.string());
  // Direct reads write back what is dirty first; pages must be clean to be dropped.
  const int descriptor = open(path.c_str(), O_RDONLY);
  fsync(descriptor);
  posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  close(descriptor);
}

std::vector<Segment> random_segments(std::uint64_t file_bytes, std::mt19937_64& random) {
  std::vector<Segment> segments;
  for (std::uint64_t at = random() % 5000; at < file_bytes;) {
    const std::uint64_t sizes[] = {1, 31, 4096, 5000, 100'000, 700'000, 3'000'000};
    std::uint64_t bytes = sizes[random() % 7];
    if (random() % 2 == 0) bytes += random() % bytes;
    bytes = std::min(bytes, file_bytes - at);
    segments.push_back({0, at, bytes});
    at += bytes;
  }
  return segments;
}

bool is_right(std::span<const std::byte> bytes, const Segment& segment, const FileBytes& file) {
  return bytes.size() == segment.bytes &&
         std::memcmp(bytes.data(), file.data() + segment.offset, bytes.size()) == 0;
}

ReaderChoice choose(Io io, const fs::path& file) {
  const fs::path files[] = {file};
  return choose_reader(io, files);
}

// Runs something that changes the whole process in a child, and gives back what it says.
std::string in_child(const std::function<std::string()>& run) {
  std::array<int, 2> ends = {};
  if (pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
  const pid_t child = fork();
  if (child == 0) {
    std::string said;
    try {
      said = run();
    } catch (const std::exception& error) {
      said = std::string("exception: ") + error.what();
    }
    const ssize_t written = write(ends[1], said.data(), said.size());
    _exit(written == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string said;
  std::array<char, 512> part = {};
  for (ssize_t got = 0; (got = read(ends[0], part.data(), part.size())) > 0;) {
    said.append(part.data(), static_cast<std::size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return said;
}

// What container runtimes do: io_uring_setup(2) answers EPERM.
void refuse_call(unsigned number, int error) {
  const auto verdict = SECCOMP_RET_ERRNO | static_cast<unsigned>(error);
  std::array<sock_filter, 4> program = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, verdict),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter = {program.size(), program.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
    throw std::runtime_error("seccomp is not available");
  }
}

// Root may lock memory without limit; without its capabilities it may not.
void limit_locked_memory(rlim_t bytes) {
  const rlimit limit = {bytes, bytes};
  setrlimit(RLIMIT_MEMLOCK, &limit);
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> data = {};
  if (syscall(SYS_capset, &header, data.data()) != 0) throw std::runtime_error("capset failed");
}

// Reads everything twice through a tape with a small budget; "right" when all bytes are.
std::string read_all(ReaderChoice choice, const std::vector<Segment>& segments,
                     const FileBytes& file, std::uint64_t pinned_bytes_max,
                     std::string* notes = nullptr) {
  StreamedTape tape(segments, std::move(choice.reader), {pinned_bytes_max, 9, 8});
  tape.load();
  for (int step = 0; step < 2; ++step) {
    for (std::size_t turn = 0; turn < segments.size(); ++turn) {
      if (!is_right(tape.acquire(turn).bytes, segments[turn], file)) return "wrong";
      tape.release(turn);
    }
  }
  if (notes != nullptr) {
    for (const std::string& note : tape.notes()) *notes += note + "\n";
  }
  return "right";
}

constexpr std::array<Io, 3> all_readers = {Io::uring, Io::pread, Io::mmap};

// The first reader that does not work here, which a test of all would replace by another; "": none.
std::string missing_reader(const fs::path& file) {
  for (const auto& [io, name] : {std::pair{Io::uring, "uring"}, std::pair{Io::pread, "pread"},
                                 std::pair{Io::mmap, "mmap"}}) {
    const ReaderChoice choice = choose(io, file);
    if (choice.reader->name() != name) return name;
  }
  return "";
}

}  // namespace

TEST_CASE("every reader gives the same bytes, whatever the offsets, lengths and budgets") {
  const TemporaryFolder folder;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    std::mt19937_64 random(seed);
    const std::uint64_t bytes = seed == 0 ? 1 : 1'000'000 + random() % 12'000'000;
    const FileBytes content = random_bytes(bytes, seed);
    write_file(folder / "model.gguf", content);
    const std::vector<Segment> segments =
        seed == 0 ? std::vector<Segment>{{0, 0, 1}} : random_segments(bytes, random);
    const std::string missing = missing_reader(folder / "model.gguf");
    if (!missing.empty()) SLUICE_SKIP("no " + missing + " here");
    for (const Io io : all_readers) {
      for (const std::uint64_t pinned_bytes : {std::uint64_t{0}, bytes / 3, 2 * bytes}) {
        ReaderChoice choice = choose(io, folder / "model.gguf");
        INFO("seed " << seed << ", " << choice.reader->name() << ", pinned " << pinned_bytes);
        REQUIRE(read_all(std::move(choice), segments, content, pinned_bytes) == "right");
      }
    }
  }
}

TEST_CASE("several files, several segments held, a pinned part that changes") {
  const TemporaryFolder folder;
  const std::array<FileBytes, 2> contents = {random_bytes(3'000'001, 1), random_bytes(777, 2)};
  const std::array<fs::path, 2> files = {folder / "a.gguf", folder / "b.gguf"};
  for (std::size_t i = 0; i < 2; ++i) write_file(files[i], contents[i]);
  std::vector<Segment> segments = {{1, 7, 700}};
  for (std::uint64_t at = 1; at + 50'000 < 3'000'000; at += 50'000) {
    segments.push_back({0, at, 50'000});
  }
  segments.push_back({1, 776, 1});
  std::mt19937_64 random(5);
  for (const Io io : all_readers) {
    ReaderChoice choice = choose_reader(io, files);
    INFO(choice.reader->name());
    StreamedTape tape(segments, std::move(choice.reader), {1'000'000, 9, 8});
    tape.load();
    for (int step = 0; step < 6; ++step) {
      for (std::size_t turn = 0; turn + 8 <= segments.size(); turn += 8) {
        std::vector<std::span<const std::byte>> held;
        for (std::size_t i = 0; i < 8; ++i) held.push_back(tape.acquire(turn + i).bytes);
        for (std::size_t i = 0; i < 8; ++i) {
          const Segment& segment = segments[turn + i];
          REQUIRE(is_right(held[i], segment, contents[segment.file]));
          tape.release(turn + i);
        }
      }
      const std::uint64_t budget_bytes = random() % 4'000'000;
      tape.limit_pinned_bytes(budget_bytes);
      if (io != Io::mmap) REQUIRE(tape.pinned_bytes() <= round_up(budget_bytes, page_bytes));
    }
  }
}

// Writes the first byte again, as it is, until the file system has noted it.
void write_into(const fs::path& path) {
  const auto before = fs::last_write_time(path);
  while (fs::last_write_time(path) == before) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const int first = file.get();
    file.seekp(0);
    file.put(static_cast<char>(first));
  }
}

// Streams a file of `content` three times, and changes it in the second turn. Tells what was wrong.
std::string read_changing_file(Io io, const fs::path& path, const FileBytes& content,
                               std::uint64_t pinned_bytes,
                               const std::function<void(const fs::path&)>& change) {
  std::vector<Segment> segments;
  for (std::uint64_t at = 0; at < content.size(); at += 100'000) {
    segments.push_back({0, at, 100'000});
  }
  write_file(path, content);
  ReaderChoice choice = choose(io, path);
  StreamedTape tape(segments, std::move(choice.reader), {pinned_bytes, 9, 8});
  tape.load();
  std::size_t failures = 0;
  for (int step = 0; step < 3; ++step) {
    for (std::size_t turn = 0; turn < segments.size(); ++turn) {
      if (step == 1 && turn == 40) change(path);
      try {
        const auto bytes = tape.acquire(turn).bytes;
        if (!is_right(bytes, segments[turn], content)) return "wrong bytes";
        tape.release(turn);
      } catch (const std::system_error& error) {
        const std::string what = error.what();
        if (what.find("truncated") == std::string::npos) return "unclear: " + what;
        if (what.find(path.string()) == std::string::npos) return "no name: " + what;
        if (step == 0 || (step == 1 && turn < 40)) return "too early: " + what;
        ++failures;
      }
    }
  }
  return failures > 10 ? "clean errors" : "too few errors";
}

TEST_CASE("a file truncated or written to while it is read gives an error, not a signal") {
  const TemporaryFolder folder;
  const FileBytes content = random_bytes(8'000'000, 3);
  const auto truncate = [](const fs::path& path) { fs::resize_file(path, 4'321'000); };
  for (const Io io : all_readers) {
    for (const std::uint64_t pinned_bytes : {0, 4'000'000}) {
      INFO("reader " << static_cast<int>(io) << ", pinned " << pinned_bytes);
      const auto said = [&](const std::function<void(const fs::path&)>& change) {
        return in_child([&] {
          return read_changing_file(io, folder / "model.gguf", content, pinned_bytes, change);
        });
      };
      CHECK(said(truncate) == "clean errors");
      CHECK(said(write_into) == "clean errors");
    }
  }
}

TEST_CASE("mmap gives up what it streamed, and keeps what is pinned") {
  const TemporaryFolder folder;
  const FileBytes content = random_bytes(24'000'000, 4);
  const fs::path path = folder / "model.gguf";
  write_file(path, content);
  std::vector<Segment> segments;
  for (std::uint64_t at = 12'345; at + 200'000 < content.size(); at += 200'000) {
    segments.push_back({0, at, 200'000});
  }
  if (cached_bytes(path, 0, content.size()) != 0) {
    SLUICE_SKIP("the file system keeps pages that nobody wants");
  }
  ReaderChoice choice = choose(Io::mmap, path);
  REQUIRE(choice.reader->name() == "mmap");
  {
    StreamedTape tape(segments, std::move(choice.reader), {6'000'000, 9, 8});
    tape.load();
    for (int step = 0; step < 2; ++step) {
      for (std::size_t turn = 0; turn < segments.size(); ++turn) {
        REQUIRE(is_right(tape.acquire(turn).bytes, segments[turn], content));
        tape.release(turn);
      }
    }
    const std::uint64_t in_use = cached_bytes(path, 0, content.size());
    CHECK(in_use > tape.plan().pinned_bytes / 2);
    CHECK(in_use <= tape.plan().peak_bytes());
    std::uint64_t pinned_bytes = 0;
    for (std::size_t turn = 0; turn < segments.size(); ++turn) {
      if (!tape.is_in_memory(turn)) continue;
      const Segment& segment = segments[turn];
      pinned_bytes += segment.bytes;
      REQUIRE(cached_bytes(path, segment.offset, segment.bytes) >= segment.bytes);
    }
    // Pages of 64 KiB hold much of the neighbours.
    REQUIRE(pinned_bytes > (page_bytes > 16384 ? 4'000'000 : 5'000'000));
  }
}

TEST_CASE("every reader reads what it has opened, whatever has its name by now") {
  const TemporaryFolder folder;
  const FileBytes content = random_bytes(2'000'000, 31);
  const fs::path path = folder / "model.gguf", other = folder / "other.gguf";
  const Segment segment{0, 4321, 1'500'000};
  for (const Io io : {Io::uring, Io::pread, Io::mmap}) {
    write_file(path, content);
    write_file(other, random_bytes(content.size(), 32));
    std::vector<DataFile> files;
    files.emplace_back(path,
                       io == Io::mmap ? DataFile::Access::buffered : DataFile::Access::direct);
    fs::rename(other, path);
    std::unique_ptr<Reader> reader;
    try {
      if (io == Io::mmap) {
        reader = std::make_unique<MmapReader>(std::move(files));
      } else if (io == Io::pread) {
        reader = std::make_unique<PreadReader>(std::move(files));
      } else {
        reader = std::make_unique<UringReader>(std::move(files));
      }
    } catch (const std::system_error&) {
      continue;  // not granted here
    }
    INFO("reader " << reader->name());
    StreamedTape tape({segment}, std::move(reader), {0, 9, 8});
    CHECK(is_right(tape.acquire(0).bytes, segment, content));
    tape.release(0);
  }
}

TEST_CASE("without io_uring the choice falls back and says so") {
  if (*sluice::test::emulator != '\0') SLUICE_SKIP("QEMU has no seccomp");
  const TemporaryFolder folder;
  const FileBytes content = random_bytes(5'000'000, 6);
  const fs::path path = folder / "model.gguf";
  write_file(path, content);
  std::mt19937_64 random(6);
  const std::vector<Segment> segments = random_segments(content.size(), random);
  for (const Io io : {Io::automatic, Io::uring}) {
    const std::string said = in_child([&] {
      refuse_call(SYS_io_uring_setup, EPERM);
      ReaderChoice choice = choose(io, path);
      std::string report = std::string(choice.reader->name()) + "; ";
      for (const std::string& note : choice.notes) report += note + "; ";
      return report + read_all(std::move(choice), segments, content, 1'000'000);
    });
    INFO(said);
    CHECK(said.rfind("pread; ", 0) == 0);
    CHECK(
        said.find("uring does not work here: io_uring cannot be set up: Operation not permitted") !=
        std::string::npos);
    CHECK(said.find("; right") != std::string::npos);
  }
}

TEST_CASE("an io_uring that takes no more reads ends with an error, and its reader ends too") {
  const TemporaryFolder folder;
  const fs::path path = folder / "model.gguf";
  write_file(path, random_bytes(1'000'000, 26));
  if (choose(Io::uring, path).reader->name() != "uring") SLUICE_SKIP("no io_uring here");
  for (const int error : {EAGAIN, EBUSY, ENOMEM}) {
    const std::string said = in_child([&] {
      ::alarm(60);  // a reader that waits for ever
      const std::unique_ptr<Reader> reader = choose(Io::uring, path).reader;
      Arena buffer(65536);
      buffer.commit(65536);
      refuse_call(SYS_io_uring_enter, error);
      reader->submit({0, 0, 0, 65536, buffer.data()});
      try {
        reader->wait();
      } catch (const std::system_error& failure) {
        return std::to_string(failure.code().value());
      }
      return std::string("read");
    });
    CHECK(said == std::to_string(error));
  }
}

TEST_CASE("with little locked memory uring works with plain buffers and says so") {
  const TemporaryFolder folder;
  const FileBytes content = random_bytes(5'000'000, 7);
  const fs::path path = folder / "model.gguf";
  write_file(path, content);
  if (choose(Io::uring, path).reader->name() != "uring") SLUICE_SKIP("no io_uring here");
  std::mt19937_64 random(7);
  const std::vector<Segment> segments = random_segments(content.size(), random);
  const auto report = [&](rlim_t locked_bytes) {
    return in_child([&] {
      limit_locked_memory(locked_bytes);
      ReaderChoice choice = choose(Io::uring, path);
      std::string said = std::string(choice.reader->name()) + "; ";
      std::string notes;
      for (const std::string& note : choice.notes) notes += note + "; ";
      said += read_all(std::move(choice), segments, content, 1'000'000, &notes);
      return said + "; " + notes;
    });
  };
  const std::string little = report(256 << 10);
  CHECK(little.rfind("uring; right; ", 0) == 0);
  CHECK(little.find("RLIMIT_MEMLOCK") != std::string::npos);
  // Some kernels count the queues of io_uring as locked memory too, then there is none at all.
  const std::string none = report(0);
  INFO(none);
  CHECK((none.rfind("uring; right; ", 0) == 0 || none.rfind("pread; right; ", 0) == 0));
  CHECK(none.find("RLIMIT_MEMLOCK") != std::string::npos);
}

TEST_CASE("a file system in memory is read through the page cache, with a note") {
  if (!fs::is_directory("/dev/shm")) SLUICE_SKIP("no /dev/shm");
  const TemporaryFolder folder("/dev/shm");
  const FileBytes content = random_bytes(3'000'000, 8);
  const fs::path path = folder / "model.gguf";
  write_file(path, content);
  std::mt19937_64 random(8);
  const std::vector<Segment> segments = random_segments(content.size(), random);
  for (const Io io : {Io::automatic, Io::uring, Io::pread, Io::mmap}) {
    ReaderChoice choice = choose(io, path);
    CHECK(choice.reader->name() == (io == Io::mmap ? "mmap" : "pread"));
    std::string notes;
    for (const std::string& note : choice.notes) notes += note;
    INFO(notes);
    CHECK((notes.find("page cache") != std::string::npos) == (io != Io::mmap));
    CHECK(read_all(std::move(choice), segments, content, 1'000'000) == "right");
  }
}

TEST_CASE("the choice: what was asked for, else uring") {
  const TemporaryFolder folder;
  const fs::path path = folder / "model.gguf";
  write_file(path, random_bytes(10'000, 9));
  CHECK(choose(Io::pread, path).reader->name() == "pread");
  CHECK(choose(Io::mmap, path).reader->name() == "mmap");
  CHECK(choose(Io::automatic, path).reader->name() == choose(Io::uring, path).reader->name());
  CHECK_FALSE(choose(Io::automatic, path).reason.empty());
  CHECK(choose(Io::pread, path).reason == "pread, as asked for");
  CHECK(choose(Io::automatic, path).reason.find("as asked for") == std::string::npos);
  const ReaderChoice uring = choose(Io::uring, path);
  CHECK(uring.reason == (uring.reader->name() == "uring" ? "uring, as asked for"
                                                         : "pread: what the machine grants"));
  CHECK(parse_io("auto") == Io::automatic);
  CHECK(parse_io("mmap") == Io::mmap);
  CHECK_FALSE(parse_io("direct").has_value());
}

TEST_CASE("files that cannot be read are named") {
  const TemporaryFolder folder;
  const fs::path fifo = folder / "fifo";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  for (const Io io : {Io::automatic, Io::uring, Io::pread, Io::mmap}) {
    for (const fs::path& path : {folder / "absent.gguf", folder / "", fifo}) {
      std::string said = "accepted";
      try {
        choose(io, path);
      } catch (const std::system_error& error) {
        said = error.what();
      }
      CHECK(said.find(path.string()) != std::string::npos);
      if (path == folder / "") CHECK(said.find("Is a directory") != std::string::npos);
    }
  }
}

namespace {

// What a disk and a kernel may answer, drawn from a seed, below the readers themselves. What a
// short read has not brought, and what a failed one may have brought, is not to be relied on.
class BadKernel {
 public:
  BadKernel(std::uint64_t seed, std::string call, std::vector<int> errors)
      : random_(seed), call_(std::move(call)), errors_(std::move(errors)) {}

  std::int64_t operator()(std::string_view call, const ReadPiece& piece, std::int64_t result) {
    const std::lock_guard lock(mutex_);
    ++calls_[std::string(call)];
    if (call != call_ || result <= 0 || random_() % 3 != 0) return result;
    const std::size_t which = random_() % (errors_.size() + 1);
    const bool is_short = which == errors_.size();
    const std::int64_t got = is_short ? 1 + static_cast<std::int64_t>(random_() % result) : 0;
    std::memset(piece.buffer + got, 0xEE, static_cast<std::size_t>(result - got));
    return is_short ? got : -errors_[which];
  }

  std::uint64_t calls(const std::string& call) {
    const std::lock_guard lock(mutex_);
    return calls_[call];
  }

 private:
  std::mutex mutex_;
  std::mt19937_64 random_;
  std::string call_;
  std::vector<int> errors_;
  std::map<std::string, std::uint64_t> calls_;
};

// The reader itself, not what the choice would fall back to; null where it does not work here.
std::unique_ptr<Reader> make_reader(const std::string& name, const fs::path& path,
                                    const ReadResults& results) {
  std::vector<DataFile> files;
  files.emplace_back(path, DataFile::Access::direct);
  if (!files.front().is_direct()) return nullptr;
  try {
    if (name == "uring") return std::make_unique<UringReader>(std::move(files), results);
    return std::make_unique<PreadReader>(std::move(files), results);
  } catch (const std::system_error&) {
    return nullptr;
  }
}

void read_with_a_bad_kernel(const std::string& name, const std::vector<int>& errors,
                            const std::string& falls_back_to) {
  const TemporaryFolder folder;
  const fs::path path = folder / "model.gguf";
  const FileBytes content = random_bytes(6'000'000, 21);
  write_file(path, content);
  std::mt19937_64 random(21);
  const std::vector<Segment> segments = random_segments(content.size(), random);
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    INFO(name << ", seed " << seed);
    BadKernel kernel(seed, name, errors);
    auto reader = make_reader(name, path, std::ref(kernel));
    if (!reader) SLUICE_SKIP(name + " does not work here");
    REQUIRE(reader->name() == name);
    StreamedTape tape(segments, std::move(reader), {1'000'000, 9, 8});
    tape.load();
    for (int step = 0; step < 2; ++step) {
      for (std::size_t turn = 0; turn < segments.size(); ++turn) {
        REQUIRE(is_right(tape.acquire(turn).bytes, segments[turn], content));
        tape.release(turn);
      }
    }
    CHECK(kernel.calls(name) > 10);
    CHECK((kernel.calls(falls_back_to) > 0) == !falls_back_to.empty());
    CHECK(tape.trouble().empty() == falls_back_to.empty());
  }
}

}  // namespace

TEST_CASE("uring: short reads and interruptions show in nothing") {
  read_with_a_bad_kernel("uring", {EINTR}, "");
}

TEST_CASE("uring: reads that the kernel refuses are done with pread, and that is said") {
  read_with_a_bad_kernel("uring", {EAGAIN, EINVAL, EOPNOTSUPP}, "pread");
}

TEST_CASE("pread: short reads and interruptions show in nothing") {
  read_with_a_bad_kernel("pread", {EINTR, EAGAIN}, "");
}

TEST_CASE("pread: direct reads that are refused go through the page cache, and that is said") {
  read_with_a_bad_kernel("pread", {EINVAL, EOPNOTSUPP}, "buffered");
}

TEST_CASE("an error of the disk ends a read, whoever reads, and the next one begins anew") {
  const TemporaryFolder folder;
  const fs::path path = folder / "model.gguf";
  const FileBytes content = random_bytes(3'000'000, 22);
  write_file(path, content);
  std::vector<Segment> segments;
  for (std::uint64_t at = 0; at < content.size(); at += 300'000)
    segments.push_back({0, at, 300'000});
  for (const std::string name : {"uring", "pread"}) {
    std::atomic<bool> is_broken = false;
    auto reader =
        make_reader(name, path, [&](std::string_view, const ReadPiece&, std::int64_t got) {
          return is_broken ? -EIO : got;
        });
    if (!reader) SLUICE_SKIP(name + " does not work here");
    REQUIRE(reader->name() == name);
    StreamedTape tape(segments, std::move(reader), {0, 4, 2});
    is_broken = true;
    CHECK_THROWS_AS(tape.acquire(5), std::system_error);
    is_broken = false;
    CHECK(is_right(tape.acquire(5).bytes, segments[5], content));
    tape.release(5);
  }
}

TEST_CASE("the choice reads a block before it picks") {
  const TemporaryFolder folder;
  const fs::path path = folder / "model.gguf";
  write_file(path, random_bytes(100'000, 23));
  const fs::path files[] = {path};
  if (choose(Io::uring, path).reader->name() != "uring") SLUICE_SKIP("no io_uring here");
  const auto refuses = [](std::string_view refused) {
    return [refused](std::string_view call, const ReadPiece&, std::int64_t result) -> std::int64_t {
      return refused.find(call) == std::string_view::npos ? result : -EOPNOTSUPP;
    };
  };
  const ReaderChoice without_uring = choose_reader(Io::automatic, files, refuses("uring"));
  CHECK(without_uring.reader->name() == "pread");
  REQUIRE(without_uring.notes.size() == 1);
  CHECK(without_uring.notes[0].find("uring does not work here") != std::string::npos);
  CHECK(without_uring.reader->trouble().empty());

  const ReaderChoice buffered = choose_reader(Io::automatic, files, refuses("uring pread"));
  CHECK(buffered.reader->name() == "pread");
  REQUIRE(buffered.notes.size() == 2);
  CHECK(buffered.notes[1].find("through the page cache") != std::string::npos);
}

// The memory of this process that the kernel holds in place, in kB.
std::uint64_t pinned_kilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::uint64_t kilobytes = 0;
    if (word == "VmPin:" && status >> kilobytes) return kilobytes;
  }
  return 0;
}

TEST_CASE("a reader of io_uring that has gone holds none of its buffers") {
  const TemporaryFolder folder;
  const fs::path path = folder / "model.gguf";
  write_file(path, random_bytes(4'000'000, 25));
  std::vector<Segment> segments;
  for (std::uint64_t at = 0; at < 4'000'000; at += 100'000) segments.push_back({0, at, 100'000});
  const std::uint64_t before = pinned_kilobytes();
  for (int round = 0; round < 20; ++round) {
    {
      StreamedTape tape(segments, choose(Io::uring, path).reader, {0, 9, 8});
      tape.load();
      tape.acquire(3);
      if (pinned_kilobytes() == before) SLUICE_SKIP("no buffers are registered here");
      tape.release(3);
    }
    REQUIRE(pinned_kilobytes() == before);
  }
}

TEST_CASE("model files are not read without waiting") {
  const TemporaryFolder folder;
  const fs::path path = folder / "model.gguf";
  write_file(path, random_bytes(10'000, 24));
  for (const auto access : {DataFile::Access::direct, DataFile::Access::buffered}) {
    const DataFile file(path, access);
    CHECK((fcntl(file.descriptor(), F_GETFL) & O_NONBLOCK) == 0);
    CHECK(((fcntl(file.descriptor(), F_GETFL) & O_DIRECT) != 0) == file.is_direct());
  }
}

TEST_CASE("the speed of the disk is measured on files of any size") {
  const TemporaryFolder folder;
  const fs::path path = folder / "model.gguf";
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{5'000'001}}) {
    write_file(path, random_bytes(bytes, 10));
    for (const Io io : {Io::automatic, Io::pread}) {
      const DiskSpeed speed = measure_disk(path, std::chrono::milliseconds(20), io);
      CHECK(speed.bytes_per_s > 0);
      CHECK(speed.bytes > 0);
      CHECK_FALSE(speed.reader.empty());
      CHECK(measure_disk(path, std::chrono::milliseconds(5), io, 0, 1).bytes > 0);
    }
  }
  const std::chrono::milliseconds one_read(0);
  CHECK(measure_disk(path, one_read, Io::pread).reader == "pread");
  CHECK(measure_disk(path, one_read, Io::mmap).reader != "mmap");  // would measure the page cache
  write_file(path, {});
  CHECK_THROWS_AS(measure_disk(path, one_read), std::invalid_argument);
  constexpr std::uint64_t MiB = 1 << 20;
  fs::resize_file(path, 64 * MiB);
  CHECK(measure_disk(path, one_read).bytes == 2 * MiB);
  CHECK(measure_disk(path, one_read, Io::pread, 4096).bytes == 4096);
  CHECK(measure_disk(path, one_read, Io::pread, 0, 1).bytes == MiB / 16);
  // A short file is read again and again.
  write_file(path, random_bytes(1, 10));
  CHECK(measure_disk(path, std::chrono::milliseconds(200)).bytes > 1);
}

TEST_CASE("a read begins when it is submitted, and not when somebody waits for it") {
  const TemporaryFolder folder;
  const fs::path path = folder / "model.gguf";
  write_file(path, random_bytes(65'536, 3));
  for (const Io io : {Io::automatic, Io::pread}) {
    const ReaderChoice choice = choose(io, path);
    Arena buffer(65'536);
    buffer.commit(65'536);
    choice.reader->submit({0, 0, 0, 65'536, buffer.data()});
    bool is_done = false;
    for (int i = 0; i < 20'000 && !is_done; ++i) {
      is_done = choice.reader->poll().has_value();
      ::usleep(1000);
    }
    CHECK(is_done);
  }
}

TEST_CASE("the holes of a sparse file are found") {
  const TemporaryFolder folder;
  const fs::path path = folder / "model.gguf";
  constexpr std::uint64_t MiB = 1 << 20;
  write_file(path, random_bytes(MiB, 11));
  CHECK_FALSE(is_mostly_hole(path));
  fs::resize_file(path, 64 * MiB);
  const DataFile opened(path, DataFile::Access::buffered);
  if (lseek(opened.descriptor(), 0, SEEK_HOLE) == off_t{64 * MiB}) {
    SLUICE_SKIP("the file system does not tell of holes");
  }
  const std::vector<Extent> extents = data_extents(path);
  REQUIRE(extents.size() == 1);
  CHECK(extents[0].begin == 0);
  CHECK(extents[0].end >= MiB);
  CHECK(extents[0].end < 2 * MiB);
  CHECK(is_mostly_hole(path));
  const std::vector<std::string> of_reader = choose(Io::automatic, path).notes;
  CHECK(measure_disk(path, std::chrono::milliseconds(20)).notes == of_reader);
  write_file(path, {});
  CHECK(data_extents(path).empty());
  CHECK_FALSE(is_mostly_hole(path));
  fs::resize_file(path, MiB);
  CHECK(data_extents(path).empty());
  CHECK(is_mostly_hole(path));
  const DiskSpeed hole = measure_disk(path, std::chrono::milliseconds(20));
  CHECK(hole.notes.back().find("hole") != std::string::npos);
}

TEST_CASE("of a file with many holes no byte of data is forgotten") {
  const TemporaryFolder folder;
  const fs::path path = folder / "model.gguf";
  constexpr std::uint64_t apart = 64 << 10;
  const auto ends = [&](std::uint64_t pieces) {
    write_file(path, {});
    fs::resize_file(path, (pieces + 1) * apart);
    std::fstream out(path, std::ios::binary | std::ios::in | std::ios::out);
    for (std::uint64_t i = 0; i < pieces; ++i) {
      out.seekp(static_cast<std::streamoff>(i * apart + apart / 2));
      out.put('x');
    }
    out.close();
    const std::vector<Extent> extents = data_extents(path);
    std::uint64_t last_end = 0;
    for (const Extent& extent : extents) {
      REQUIRE(extent.begin >= last_end);
      REQUIRE(extent.end > extent.begin);
      last_end = extent.end;
    }
    for (std::uint64_t i = 0; i < pieces; ++i) {
      const std::uint64_t at = i * apart + apart / 2;
      REQUIRE(std::ranges::any_of(
          extents, [&](const Extent& extent) { return extent.begin <= at && at < extent.end; }));
    }
    return std::pair(extents.size(), last_end == fs::file_size(path));
  };
  const auto at_most = ends(4096);
  if (at_most.first == 1) SLUICE_SKIP("the file system does not tell of holes");
  CHECK(at_most == std::pair(std::size_t{4096}, false));
  // What follows so many counts as data, holes and all.
  CHECK(ends(5000) == std::pair(std::size_t{4097}, true));
}

TEST_CASE("the speed of tiny reads in a large file is measured in bounded memory") {
  const TemporaryFolder folder;
  const fs::path path = folder / "model.gguf";
  write_file(path, {});
  fs::resize_file(path, std::uint64_t{16} << 30);
  const auto peak_bytes = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
  };
  const std::uint64_t before = peak_bytes();
  CHECK(measure_disk(path, std::chrono::milliseconds(20), Io::automatic, 4096).bytes > 0);
  CHECK(peak_bytes() - before < std::uint64_t{128} << 20);
}

TEST_CASE("a tape of a real file is destroyed with reads in flight") {
  const TemporaryFolder folder;
  const fs::path path = folder / "model.gguf";
  write_file(path, random_bytes(20'000'000, 11));
  std::vector<Segment> segments;
  for (std::uint64_t at = 0; at < 20'000'000; at += 1'000'000)
    segments.push_back({0, at, 1'000'000});
  for (const Io io : all_readers) {
    for (std::size_t turns = 0; turns < 5; ++turns) {
      ReaderChoice choice = choose(io, path);
      StreamedTape tape(segments, std::move(choice.reader), {0, 16, 8});
      tape.load();
      for (std::size_t turn = 0; turn < turns; ++turn) tape.acquire(turn);
    }
  }
}
