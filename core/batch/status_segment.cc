#include "core/batch/status_segment.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <boost/interprocess/shared_memory_object.hpp>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <limits>
#include <new>
#include <optional>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <type_traits>
#include <unistd.h>
#include <utility>

#include "base/descriptor.h"
#include "core/text/utf8.h"
#include "topology/file_root.h"

namespace sluice::batch {
namespace {

namespace ipc = boost::interprocess;

constexpr std::string_view name_prefix = "sluice-status-";
constexpr const char* shared_memory_folder = "/dev/shm";  // of Linux; see shm_overview(7)
constexpr std::uint64_t magic = 0x34746174732d6c73;       // "sl-stat4"
constexpr std::size_t kinds = speculate::kind_names.size();
constexpr std::size_t command_words = 2, model_words = 16, number_words = 10 + 2 * kinds;
constexpr std::size_t first_of_guesses = 9;  // of the numbers
constexpr int attempts_max = 1000;

// The status as words, in the order of the fields of Status.
struct Words {
  std::array<std::uint64_t, command_words> command{};
  std::array<std::uint64_t, model_words> model{};
  std::array<std::uint64_t, number_words> numbers{};

  static constexpr std::size_t count = command_words + model_words + number_words;
};
static_assert(sizeof(Words) == Words::count * sizeof(std::uint64_t));

// Cuts a text that is too long between two characters.
template <std::size_t N>
void put_text(std::array<std::uint64_t, N>& words, std::string_view text) {
  const std::size_t bytes_max = std::min(text.size(), N * 8 - 1);
  std::memcpy(words.data(), text.data(), utf8::character_start(text, bytes_max));
}

// False for control characters and for characters that only affect how others are shown: direction
// marks and overrides, line separators, tags (categories Cc, Cf, Zl and Zp of Unicode).
bool is_printable(char32_t c) {
  constexpr std::array<std::pair<char32_t, char32_t>, 11> steering = {{{0x00, 0x1F},
                                                                       {0x7F, 0x9F},
                                                                       {0xAD, 0xAD},
                                                                       {0x61C, 0x61C},
                                                                       {0x180E, 0x180E},
                                                                       {0x200B, 0x200F},
                                                                       {0x2028, 0x202E},
                                                                       {0x2060, 0x206F},
                                                                       {0xFEFF, 0xFEFF},
                                                                       {0xFFF9, 0xFFFB},
                                                                       {0xE0000, 0xE0FFF}}};
  return std::ranges::none_of(
      steering, [c](const auto& range) { return range.first <= c && c <= range.second; });
}

// Makes a text safe for a terminal: replaces what is not printable or not UTF-8 by '?'.
template <std::size_t N>
std::string get_text(const std::array<std::uint64_t, N>& words) {
  std::array<char, N * 8> bytes{};
  std::memcpy(bytes.data(), words.data(), bytes.size() - 1);
  std::string_view text = bytes.data();
  std::string printable;
  while (!text.empty()) {
    const std::size_t length = utf8::character_bytes(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(length, 1));
    printable += length != 0 && is_printable(utf8::code_point(character)) ? character : "?";
    text.remove_prefix(character.size());
  }
  return printable;
}

Words to_words(const Status& status) {
  Words words;
  put_text(words.command, status.command);
  put_text(words.model, status.model);
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  const auto experts = status.experts.value_or(Status::Experts{none, none});
  words.numbers = {status.budget_bytes,
                   status.memory_bytes,
                   std::bit_cast<std::uint64_t>(status.tokens_per_s),
                   status.rows_done,
                   status.rows,
                   status.sequences,
                   std::bit_cast<std::uint64_t>(experts.hit_rate),
                   std::bit_cast<std::uint64_t>(experts.bytes_read_per_token),
                   std::bit_cast<std::uint64_t>(status.seconds_left.value_or(none))};
  const auto guesses = status.guesses.value_or(Status::Guesses{none, {}});
  std::uint64_t* next = words.numbers.data() + first_of_guesses;
  *next++ = std::bit_cast<std::uint64_t>(guesses.tokens_per_step);
  for (const speculate::DraftCounts& counts : guesses.by_kind) {
    *next++ = counts.drafted;
    *next++ = counts.accepted;
  }
  return words;
}

// Nothing unless both could be true.
std::optional<Status::Experts> get_experts(double hit_rate, double bytes_read_per_token) {
  if (!(hit_rate >= 0 && hit_rate <= 1)) return std::nullopt;
  if (!(bytes_read_per_token >= 0 && bytes_read_per_token < 0x1p63)) return std::nullopt;
  return Status::Experts{hit_rate, bytes_read_per_token};
}

// Nothing unless they could be true.
std::optional<Status::Guesses> get_guesses(const std::uint64_t* numbers) {
  Status::Guesses guesses{std::bit_cast<double>(*numbers++), {}};
  if (!(guesses.tokens_per_step >= 1 && guesses.tokens_per_step < 0x1p63)) return std::nullopt;
  for (speculate::DraftCounts& counts : guesses.by_kind) {
    counts = {numbers[0], numbers[1]};
    if (counts.accepted > counts.drafted) return std::nullopt;
    numbers += 2;
  }
  return guesses;
}

Status from_words(const Words& words) {
  const auto& n = words.numbers;
  const auto tokens_per_s = std::bit_cast<double>(n[2]);
  const auto seconds_left = std::bit_cast<double>(n[8]);
  const bool has_end = seconds_left >= 0 && seconds_left < 0x1p63;  // false for NaN
  return {get_text(words.command),
          get_text(words.model),
          n[0],
          n[1],
          std::isfinite(tokens_per_s) ? tokens_per_s : 0,
          n[3],
          n[4],
          n[5],
          get_experts(std::bit_cast<double>(n[6]), std::bit_cast<double>(n[7])),
          has_end ? std::optional(seconds_left) : std::nullopt,
          get_guesses(n.data() + first_of_guesses)};
}

// The layout of the segment, eight bytes a field. An odd sequence means that the writer is at work.
struct Layout {
  std::atomic<std::uint64_t> magic;
  std::atomic<std::uint64_t> pid;
  std::atomic<std::uint64_t> start_ticks;
  std::atomic<std::uint64_t> sequence;
  std::array<std::atomic<std::uint64_t>, Words::count> words;
};
static_assert(sizeof(Layout) == (4 + Words::count) * sizeof(std::uint64_t));
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "processes cannot share a lock");

// Process ids are unique only within their namespace, and containers may share the folder.
std::uint64_t pid_namespace() {
  struct stat facts {};
  return ::stat("/proc/self/ns/pid", &facts) == 0 ? facts.st_ino : 0;
}

std::string segment_prefix() {
  return fmt::format("{}{}-", name_prefix, pid_namespace());
}

// When a process started, in clock ticks since boot: the 22nd field of /proc/PID/stat, counted
// after the name in parentheses, which may hold anything. Nothing when there is no such process.
std::optional<std::uint64_t> start_ticks_of(std::uint64_t pid) {
  const auto text = topology::FileRoot().text(fmt::format("/proc/{}/stat", pid));
  if (!text || text->rfind(')') == std::string::npos) return std::nullopt;
  const auto fields = topology::pieces(std::string_view(*text).substr(text->rfind(')') + 1), ' ');
  return fields.size() > 19 ? topology::parse_number(fields[19]) : std::nullopt;
}

double seconds_since(std::uint64_t start_ticks) {
  const auto text = topology::FileRoot().text("/proc/uptime");
  const long ticks_per_s = ::sysconf(_SC_CLK_TCK);
  if (!text || ticks_per_s <= 0) return 0;
  const double uptime = std::strtod(text->c_str(), nullptr);
  return std::max(0.0,
                  uptime - static_cast<double>(start_ticks) / static_cast<double>(ticks_per_s));
}

// A file in the folder, which may be anything. It is opened without waiting for a writer and
// without following a link. It is copied, because a mapping raises SIGBUS when somebody shortens
// the file.
class SegmentFile {
 public:
  explicit SegmentFile(const std::string& name)
      : file_(::open(fmt::format("{}/{}", shared_memory_folder, name).c_str(),
                     O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC)) {}

  bool is_file() const {
    struct stat facts {};
    return file_.is_open() && ::fstat(file_.number(), &facts) == 0 && S_ISREG(facts.st_mode);
  }

  // Reads a value at an offset; false when the file is too short.
  template <typename T>
  bool read(T& value, std::size_t offset) const {
    static_assert(std::is_trivially_copyable_v<T>);
    const ssize_t bytes = ::pread(file_.number(), &value, sizeof value, static_cast<off_t>(offset));
    return bytes == static_cast<ssize_t>(sizeof value);
  }

 private:
  base::Descriptor file_;
};

// Nothing when the writer never paused for long enough. Each read is a system call, so the reads
// happen in this order.
std::optional<Words> read_words(const SegmentFile& file) {
  for (int attempt = 0; attempt < attempts_max; ++attempt) {
    std::uint64_t before = 0, after = 0;
    Words words;
    if (!file.read(before, offsetof(Layout, sequence))) return std::nullopt;
    if (!file.read(words, offsetof(Layout, words))) return std::nullopt;
    if (!file.read(after, offsetof(Layout, sequence))) return std::nullopt;
    if (before == after && before % 2 == 0) return words;
    std::this_thread::yield();
  }
  return std::nullopt;
}

// The status of a process of this namespace. Nothing when there is none; `is_dead` says whether
// that is because the process is dead.
std::optional<LivingStatus> read_segment(const std::string& name, std::uint64_t pid,
                                         bool& is_dead) {
  const auto start_ticks = start_ticks_of(pid);
  is_dead = !start_ticks;
  if (is_dead) return std::nullopt;
  const SegmentFile file(name);
  std::array<std::uint64_t, 3> head{};  // magic, id and start
  if (!file.is_file() || !file.read(head, 0)) return std::nullopt;
  if (head[0] != magic || head[1] != pid) return std::nullopt;  // not complete yet
  is_dead = head[2] != *start_ticks;  // the id belongs to another process now
  if (is_dead) return std::nullopt;
  const std::optional<Words> words = read_words(file);
  if (!words) return std::nullopt;
  return LivingStatus{pid, seconds_since(*start_ticks), from_words(*words)};
}

// Gives the pages of the segment to it, so that a full folder shows here and not as a SIGBUS when
// they are first written. Throws std::system_error.
void reserve(ipc::shared_memory_object& memory, std::size_t bytes) {
  memory.truncate(static_cast<ipc::offset_t>(bytes));
  int error = 0;
  do {
    error = ::posix_fallocate(memory.get_mapping_handle().handle, 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (error != 0) throw std::system_error(error, std::generic_category());
}

}  // namespace

struct StatusPublisher::Segment {
  std::string name;
  ipc::mapped_region region;
  Layout* layout = nullptr;
};

StatusPublisher::StatusPublisher() : segment_(std::make_unique<Segment>()) {
  const auto pid = static_cast<std::uint64_t>(::getpid());
  segment_->name = fmt::format("{}{}", segment_prefix(), pid);
  const char* name = segment_->name.c_str();
  const auto refuse = [name](int error) {
    ipc::shared_memory_object::remove(name);
    throw std::system_error(error, std::generic_category(),
                            "no shared memory for the status that `sluice top` shows");
  };
  try {
    ipc::shared_memory_object::remove(name);  // of a dead process that had the same id
    ipc::permissions others_may_read;
    others_may_read.set_permissions(0644);
    ipc::shared_memory_object memory(ipc::create_only, name, ipc::read_write, others_may_read);
    reserve(memory, sizeof(Layout));
    segment_->region = ipc::mapped_region(memory, ipc::read_write);
  } catch (const ipc::interprocess_exception& error) {
    refuse(error.get_native_error());
  } catch (const std::system_error& error) {
    refuse(error.code().value());
  }
  segment_->layout = new (segment_->region.get_address()) Layout{};
  segment_->layout->pid = pid;
  segment_->layout->start_ticks = start_ticks_of(pid).value_or(0);
}

StatusPublisher::~StatusPublisher() {
  ipc::shared_memory_object::remove(segment_->name.c_str());
}

void StatusPublisher::publish(const Status& status) {
  const auto copy = std::bit_cast<std::array<std::uint64_t, Words::count>>(to_words(status));
  Layout& layout = *segment_->layout;
  const std::uint64_t sequence = layout.sequence.load(std::memory_order_relaxed);
  layout.sequence.store(sequence + 1, std::memory_order_relaxed);
  for (std::size_t i = 0; i < copy.size(); ++i) {
    layout.words[i].store(copy[i], std::memory_order_release);
  }
  layout.sequence.store(sequence + 2, std::memory_order_release);
  layout.magic.store(magic, std::memory_order_release);
}

std::vector<LivingStatus> living_statuses() {
  std::vector<LivingStatus> found;
  const std::string prefix = segment_prefix();
  for (const auto& entry : std::filesystem::directory_iterator(shared_memory_folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const auto pid = topology::parse_number(std::string_view(name).substr(prefix.size()));
    if (!pid) continue;
    bool is_dead = false;
    if (auto status = read_segment(name, *pid, is_dead)) found.push_back(std::move(*status));
    if (is_dead) ipc::shared_memory_object::remove(name.c_str());
  }
  std::ranges::sort(found, {}, &LivingStatus::pid);
  return found;
}

}  // namespace sluice::batch
