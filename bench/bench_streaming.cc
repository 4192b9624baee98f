// Reading a file as a tape does, by every reader that the machine grants.
//
//   build/release/bench/bench_streaming                     a temporary file of 64 MiB
//   build/release/bench/bench_streaming --file MODEL.gguf   a file of yours, as much as --size-mib
//
// "tape/stream/READER": one turn of a tape that keeps nothing, through a ring of 16 segments of
// 2 MiB. "tape/load/READER": a tape that pins everything is made, with the page cache empty of the
// file. Nothing is done with the bytes. The CPU column counts the whole process with its helper
// threads: what reading takes away from computing.
//
// Temporary files are made in $TMPDIR, else /tmp. In a file system in memory (tmpfs) the figures
// are not those of a disk; the context says when O_DIRECT is refused, as it is there.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <stdlib.h>
#include <system_error>
#include <unistd.h>

#include "bench/support.h"
#include "core/synth/random_blocks.h"
#include "streaming/choose_reader.h"
#include "streaming/data_file.h"
#include "streaming/streamed_tape.h"

namespace sluice::bench {
namespace {

using benchmark::State;
using streaming::DataFile;
using streaming::Io;
using streaming::Segment;
using streaming::StreamedTape;

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

[[noreturn]] void throw_errno(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// Random bytes on the disk; removed at the end.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::uint64_t bytes) {
    std::string name = (std::filesystem::temp_directory_path() / "sluice-bench-XXXXXX").string();
    const int descriptor = ::mkstemp(name.data());
    if (descriptor < 0) throw_errno(name);
    path_ = name;
    const bool is_written = write(descriptor, bytes);
    const int error = errno;
    ::close(descriptor);
    if (is_written) return;
    remove();
    errno = error;
    throw_errno(name);
  }
  ~TemporaryFile() { remove(); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  static bool write(int descriptor, std::uint64_t bytes) {
    std::vector<std::byte> chunk(mib);
    synth::Random random(1, 0);
    for (std::uint64_t left = bytes; left > 0;) {
      random.fill(chunk);
      const ssize_t count = ::write(descriptor, chunk.data(), std::min<std::uint64_t>(left, mib));
      if (count < 0) return false;
      left -= static_cast<std::uint64_t>(count);
    }
    return ::fsync(descriptor) == 0;
  }
  void remove() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

  std::filesystem::path path_;
};

struct Source {
  std::filesystem::path path;
  std::uint64_t bytes = 0;  // from the start of the file
};

std::vector<Segment> segments_of(const Source& source) {
  constexpr std::uint64_t segment_bytes = 2 * mib;
  std::vector<Segment> segments;
  for (std::uint64_t offset = 0; offset < source.bytes; offset += segment_bytes) {
    segments.push_back({0, offset, std::min(segment_bytes, source.bytes - offset)});
  }
  return segments;
}

void drop_from_page_cache(const Source& source) {
  const DataFile file(source.path, DataFile::Access::buffered);
  // A file system may keep the pages (tmpfs has no other place for them); that is no error.
  static_cast<void>(::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED));
}

streaming::ReaderChoice open_reader(const Source& source, Io io) {
  return streaming::choose_reader(io, std::span(&source.path, 1));
}

std::unique_ptr<StreamedTape> make_tape(const Source& source, Io io, bool is_pinned) {
  streaming::TapeOptions options;
  options.held_max = 1;
  if (is_pinned) options.pinned_bytes_max = source.bytes + 4096 * segments_of(source).size();
  auto tape =
      std::make_unique<StreamedTape>(segments_of(source), open_reader(source, io).reader, options);
  tape->load();
  return tape;
}

void stream(State& state, const Source& source, Io io) {
  drop_from_page_cache(source);
  const std::unique_ptr<StreamedTape> tape = make_tape(source, io, false);
  const std::size_t turns = segments_of(source).size();
  const double seconds = time_iterations(state, [&] {
    for (std::size_t turn = 0; turn < turns; ++turn) {
      benchmark::DoNotOptimize(tape->acquire(turn).bytes.data());
      tape->release(turn);
    }
  });
  state.counters["GB/s"] = static_cast<double>(source.bytes) / seconds / 1e9;
}

void load(State& state, const Source& source, Io io) {
  using Clock = std::chrono::steady_clock;
  std::chrono::duration<double> total{};
  for (auto _ : state) {
    state.PauseTiming();
    drop_from_page_cache(source);
    state.ResumeTiming();
    const Clock::time_point begin = Clock::now();
    std::unique_ptr<StreamedTape> tape = make_tape(source, io, true);
    const std::chrono::duration<double> elapsed = Clock::now() - begin;
    state.SetIterationTime(elapsed.count());
    total += elapsed;
    state.PauseTiming();
    tape.reset();
    state.ResumeTiming();
  }
  const double seconds = total.count() / static_cast<double>(state.iterations());
  state.counters["GB/s"] = static_cast<double>(source.bytes) / seconds / 1e9;
}

void register_benchmarks(const Source& source) {
  benchmark::AddCustomContext("file",
                              fmt::format("{}, {} bytes", source.path.string(), source.bytes));
  for (const std::string_view name : {"uring", "pread", "mmap"}) {
    const Io io = *streaming::parse_io(name);
    const streaming::ReaderChoice choice = open_reader(source, io);
    for (const std::string& note : choice.notes) {
      benchmark::AddCustomContext(fmt::format("note on {}", name), note);
    }
    if (choice.reader->name() != name) continue;  // the note says why
    add(fmt::format("tape/stream/{}", name), [=](State& s) { stream(s, source, io); })
        ->MeasureProcessCPUTime()
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
    add(fmt::format("tape/load/{}", name), [=](State& s) { load(s, source, io); })
        ->MeasureProcessCPUTime()
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice::bench;
  std::string file;
  std::uint64_t size_mib = 64;
  std::optional<TemporaryFile> temporary;
  Program program;
  program.description = "Measures how fast a tape reads a file.";
  program.add_options = [&](CLI::App& app) {
    app.add_option("--file", file, "file to read (default: a temporary one)")
        ->check(CLI::ExistingFile);
    app.add_option("--size-mib", size_mib,
                   "how much to read, and to hold in memory when loading (default: 64)")
        ->check(CLI::Range(1, 1 << 20));
  };
  program.register_benchmarks = [&] {
    const std::uint64_t wanted = size_mib * mib;
    if (file.empty()) {
      temporary.emplace(wanted);
      file = temporary->path().string();
    }
    const std::uint64_t file_bytes = std::filesystem::file_size(file);
    if (file_bytes == 0) throw std::invalid_argument(file + ": is empty; name a file with content");
    register_benchmarks({file, std::min(wanted, file_bytes)});
  };
  return run_program(program, argc, argv);
}
