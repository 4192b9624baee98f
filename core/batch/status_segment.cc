#include "core/batch/status_segment.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <boost/interprocess/shared_memory_object.hpp>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "topology/file_root.h"

namespace sluice::batch {
namespace {

namespace ipc = boost::interprocess;

constexpr std::string_view name_prefix = "sluice-status-";
constexpr const char* shared_memory_folder = "/dev/shm";  // of Linux; see shm_overview(7)
constexpr std::uint64_t magic = 0x31746174732d6c73;       // "sl-stat1"
constexpr std::size_t command_words = 2, model_words = 16;
constexpr int attempts_max = 1000;

// The status as words, in the order of the struct.
struct Words {
  std::array<std::uint64_t, command_words> command{};
  std::array<std::uint64_t, model_words> model{};
  std::array<std::uint64_t, 6> numbers{};

  static constexpr std::size_t count = command_words + model_words + 6;
};
static_assert(sizeof(Words) == Words::count * sizeof(std::uint64_t));

template <std::size_t N>
void put_text(std::array<std::uint64_t, N>& words, std::string_view text) {
  std::memcpy(words.data(), text.data(), std::min(text.size(), N * 8 - 1));
}

// What may go to a terminal.
template <std::size_t N>
std::string get_text(const std::array<std::uint64_t, N>& words) {
  std::array<char, N * 8> bytes{};
  std::memcpy(bytes.data(), words.data(), bytes.size() - 1);
  std::string text = bytes.data();
  for (char& byte : text) {
    if (static_cast<unsigned char>(byte) < 0x20 || byte == 0x7F) byte = '?';
  }
  return text;
}

Words to_words(const Status& status) {
  Words words;
  put_text(words.command, status.command);
  put_text(words.model, status.model);
  words.numbers = {
      status.budget_bytes, status.memory_bytes, std::bit_cast<std::uint64_t>(status.tokens_per_s),
      status.rows_done,    status.rows,         status.sequences};
  return words;
}

Status from_words(const Words& words) {
  const auto& n = words.numbers;
  return {get_text(words.command),
          get_text(words.model),
          n[0],
          n[1],
          std::bit_cast<double>(n[2]),
          n[3],
          n[4],
          n[5]};
}

// What lies in the segment. An odd sequence says that the writer is at work.
struct Layout {
  std::atomic<std::uint64_t> magic;
  std::atomic<std::uint64_t> pid;
  std::atomic<std::uint64_t> start_ticks;
  std::atomic<std::uint64_t> sequence;
  std::array<std::atomic<std::uint64_t>, Words::count> words;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "processes cannot share a lock");

std::string segment_name(std::uint64_t pid) {
  return fmt::format("{}{}", name_prefix, pid);
}

// Since boot, in clock ticks: the 22nd field of /proc/PID/stat, counted after the name in
// parentheses, which may hold anything. Nothing when there is no such process.
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

// Nothing when the writer never paused for long enough.
std::optional<Words> read_words(const Layout& layout) {
  std::array<std::uint64_t, Words::count> copy{};
  for (int attempt = 0; attempt < attempts_max; ++attempt) {
    const std::uint64_t before = layout.sequence.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < copy.size(); ++i) {
      copy[i] = layout.words[i].load(std::memory_order_acquire);
    }
    const std::uint64_t after = layout.sequence.load(std::memory_order_relaxed);
    if (before == after && before % 2 == 0) return std::bit_cast<Words>(copy);
    std::this_thread::yield();
  }
  return std::nullopt;
}

// The status behind a name in the folder; nothing when it is not one or its process is dead.
// `is_dead` says which.
std::optional<LivingStatus> read_segment(const std::string& name, bool& is_dead) {
  const auto pid = topology::parse_number(std::string_view(name).substr(name_prefix.size()));
  if (!pid) return std::nullopt;
  const auto start_ticks = start_ticks_of(*pid);
  is_dead = !start_ticks;
  if (is_dead) return std::nullopt;
  try {
    const ipc::shared_memory_object memory(ipc::open_only, name.c_str(), ipc::read_only);
    ipc::offset_t size = 0;
    if (!memory.get_size(size) || size < static_cast<ipc::offset_t>(sizeof(Layout))) {
      return std::nullopt;  // about to be made
    }
    const ipc::mapped_region region(memory, ipc::read_only, 0, sizeof(Layout));
    const auto& layout = *static_cast<const Layout*>(region.get_address());
    if (layout.magic.load(std::memory_order_acquire) != magic || layout.pid != *pid) {
      return std::nullopt;
    }
    is_dead = layout.start_ticks != *start_ticks;  // the id is another's now
    if (is_dead) return std::nullopt;
    const std::optional<Words> words = read_words(layout);
    if (!words) return std::nullopt;
    return LivingStatus{*pid, seconds_since(*start_ticks), from_words(*words)};
  } catch (const ipc::interprocess_exception&) {  // gone meanwhile, or not ours to read
    return std::nullopt;
  }
}

}  // namespace

struct StatusPublisher::Segment {
  std::string name;
  ipc::mapped_region region;
  Layout* layout = nullptr;
};

StatusPublisher::StatusPublisher() : segment_(std::make_unique<Segment>()) {
  const auto pid = static_cast<std::uint64_t>(::getpid());
  segment_->name = segment_name(pid);
  const char* name = segment_->name.c_str();
  try {
    ipc::shared_memory_object::remove(name);  // of a dead process that had the same id
    ipc::permissions others_may_read;
    others_may_read.set_permissions(0644);
    ipc::shared_memory_object memory(ipc::create_only, name, ipc::read_write, others_may_read);
    memory.truncate(sizeof(Layout));
    segment_->region = ipc::mapped_region(memory, ipc::read_write);
  } catch (const ipc::interprocess_exception& error) {
    ipc::shared_memory_object::remove(name);
    throw std::system_error(error.get_native_error(), std::generic_category(),
                            "no shared memory for the status that `sluice top` shows");
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
  for (const auto& entry : std::filesystem::directory_iterator(shared_memory_folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(name_prefix)) continue;
    bool is_dead = false;
    if (auto status = read_segment(name, is_dead)) found.push_back(std::move(*status));
    if (is_dead) ipc::shared_memory_object::remove(name.c_str());
  }
  std::ranges::sort(found, {}, &LivingStatus::pid);
  return found;
}

}  // namespace sluice::batch
