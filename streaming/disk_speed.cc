#include "streaming/disk_speed.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "streaming/alignment.h"
#include "streaming/data_extents.h"
#include "streaming/streamed_tape.h"

namespace sluice::streaming {
namespace {

constexpr std::uint32_t slots = 16;
constexpr std::uint64_t buffer_bytes_min = std::uint64_t{1} << 20;
// Of the list for so much of the buffer: more than the fastest disks read in a second. A list of
// all tiny experts of a large file would take more memory than the model, and longer than the
// measurement.
constexpr std::uint64_t buffer_bytes_of_segment = 512;

// Cuts the data of the file into runs of neighbouring segments and orders the runs so that
// consecutive ones lie far apart: the first few are then a sample of the whole file. Of a file with
// too many runs every n-th is taken. `first`, any number, chooses these, and the first of them; it
// should differ between calls, because a host caches what was read.
std::vector<Segment> spread_over_file(const std::vector<Extent>& data, std::uint64_t first,
                                      std::uint64_t segment_bytes, std::uint64_t run_bytes,
                                      std::uint64_t segments_max) {
  std::uint64_t data_bytes = 0;
  for (const Extent& extent : data) data_bytes += extent.end - extent.begin;
  const std::uint64_t runs_max = segments_max / (run_bytes / segment_bytes);
  const std::uint64_t every = data_bytes / run_bytes / runs_max + 1;
  std::vector<Extent> runs;
  std::uint64_t left_out = first % every;  // runs before the next one that is taken
  for (const Extent& extent : data) {
    std::uint64_t begin = extent.begin + left_out * run_bytes;
    for (; begin < extent.end; begin += every * run_bytes) {
      runs.push_back({begin, std::min(begin + run_bytes, extent.end)});
    }
    left_out = (begin - extent.end) / run_bytes;
  }
  std::uint64_t stride = std::max<std::uint64_t>(1, runs.size() * 5 / 8);
  while (std::gcd(stride, runs.size()) != 1) ++stride;
  std::vector<Segment> segments;
  for (std::uint64_t i = 0; i < runs.size(); ++i) {
    const Extent& run = runs[(first % runs.size() + i * stride) % runs.size()];
    for (std::uint64_t offset = run.begin; offset < run.end; offset += segment_bytes) {
      segments.push_back({0, offset, std::min(segment_bytes, run.end - offset)});
    }
  }
  return segments;
}

}  // namespace

DiskSpeed measure_disk(const std::filesystem::path& file, std::chrono::milliseconds duration, Io io,
                       std::uint64_t scattered_bytes, std::uint64_t buffer_bytes) {
  using Clock = std::chrono::steady_clock;
  const std::filesystem::path files[] = {file};
  ReaderChoice choice = choose_reader(io == Io::mmap ? Io::automatic : io, files);
  DiskSpeed speed;
  speed.reader = choice.reader->name();
  speed.notes = std::move(choice.notes);
  const std::uint64_t file_bytes = choice.reader->files()[0].bytes;
  if (file_bytes == 0) throw std::invalid_argument(file.string() + ": is empty");
  const auto first = static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
  std::vector<Extent> data = data_extents(file);
  if (data.empty()) {
    data = {{0, file_bytes}};
    speed.notes.emplace_back("the file is a hole: no disk was read");
  }
  const bool is_scattered = scattered_bytes != 0;
  buffer_bytes = std::clamp(buffer_bytes, buffer_bytes_min, disk_speed_bytes);
  const std::uint64_t segment_bytes_max = round_down(buffer_bytes / slots, page_bytes);
  const std::uint64_t segment_bytes =
      is_scattered ? std::min(scattered_bytes, segment_bytes_max) : segment_bytes_max;
  std::vector<Segment> segments = spread_over_file(
      data, first, segment_bytes, is_scattered ? segment_bytes : 16 * segment_bytes,
      buffer_bytes / buffer_bytes_of_segment);

  const std::size_t turns = segments.size();
  StreamedTape tape(std::move(segments), std::move(choice.reader), {0, slots, 1});
  const Clock::time_point begin = Clock::now();
  for (std::size_t turn = 0; Clock::now() - begin < duration || speed.bytes == 0;
       turn = (turn + 1) % turns) {
    speed.bytes += tape.acquire(turn).bytes.size();
    tape.release(turn);
  }
  const std::chrono::duration<double> elapsed = Clock::now() - begin;
  speed.bytes_per_s = static_cast<double>(speed.bytes) / elapsed.count();
  return speed;
}

}  // namespace sluice::streaming
