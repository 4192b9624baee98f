#include "streaming/disk_speed.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "streaming/streamed_tape.h"

namespace sluice::streaming {
namespace {

constexpr std::uint32_t slots = 16;
constexpr std::uint64_t segment_bytes = disk_speed_bytes / slots;

std::vector<Segment> whole_file(std::uint64_t file_bytes) {
  std::vector<Segment> segments;
  for (std::uint64_t offset = 0; offset < file_bytes; offset += segment_bytes) {
    segments.push_back({0, offset, std::min(segment_bytes, file_bytes - offset)});
  }
  return segments;
}

}  // namespace

DiskSpeed measure_disk(const std::filesystem::path& file, std::chrono::milliseconds duration,
                       Io io) {
  using Clock = std::chrono::steady_clock;
  const std::filesystem::path files[] = {file};
  ReaderChoice choice = choose_reader(io == Io::mmap ? Io::automatic : io, files);
  DiskSpeed speed;
  speed.reader = choice.reader->name();
  speed.notes = std::move(choice.notes);
  std::vector<Segment> segments = whole_file(choice.reader->files()[0].bytes);
  if (segments.empty()) throw std::invalid_argument(file.string() + ": is empty");

  const std::size_t turns = segments.size();
  const Clock::time_point begin = Clock::now();
  StreamedTape tape(std::move(segments), std::move(choice.reader), {0, slots, 1});
  for (std::size_t turn = 0; Clock::now() - begin < duration || speed.bytes == 0;
       turn = (turn + 1) % turns) {
    speed.bytes += tape.acquire(turn).size();
    tape.release(turn);
  }
  const std::chrono::duration<double> elapsed = Clock::now() - begin;
  speed.bytes_per_s = static_cast<double>(speed.bytes) / elapsed.count();
  return speed;
}

}  // namespace sluice::streaming
