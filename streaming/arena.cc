#include "streaming/arena.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <system_error>

#include "base/check.h"
#include "streaming/alignment.h"

namespace sluice::streaming {
namespace {

// The bytes of a huge page: 2 MiB with pages of 4 KiB, 32 MiB with 16 KiB, 512 MiB with 64 KiB. A
// kernel that does not say has none to give.
std::uint64_t read_huge_page() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
  std::uint64_t bytes = 0;
  file >> bytes;
  const bool is_multiple = bytes > page_bytes && bytes % page_bytes == 0;
  return is_multiple ? bytes : std::uint64_t{2} << 20;
}

// A huge page of which a part is given back stays in memory until memory is short. With pages of
// 64 KiB it has 512 MiB, which is more than the guard can leave to others.
constexpr std::uint64_t huge_page_max = std::uint64_t{32} << 20;

std::uint64_t huge_page() {
  static const std::uint64_t bytes = read_huge_page();
  return bytes;
}

std::system_error system_failure(const std::string& what) {
  return {errno, std::generic_category(), what};
}

}  // namespace

Arena::Arena(std::uint64_t capacity_bytes) : capacity_bytes_(round_up(capacity_bytes, page_bytes)) {
  if (capacity_bytes_ == 0) return;
  const std::uint64_t alignment = capacity_bytes_ < huge_page() ? page_bytes : huge_page();
  // The last page is never committed: it catches overruns, and it keeps the kernel from merging
  // this mapping with a neighbour, from which huge_page_bytes() could not tell it apart.
  reserved_bytes_ = capacity_bytes_ + alignment;
  void* const address =
      mmap(nullptr, reserved_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    throw system_failure("cannot reserve " + std::to_string(reserved_bytes_) +
                         " bytes of addresses (see ulimit -v)");
  }
  reservation_ = static_cast<std::byte*>(address);
  const std::uint64_t misfit = reinterpret_cast<std::uintptr_t>(address) % alignment;
  data_ = reservation_ + (misfit == 0 ? 0 : alignment - misfit);
}

Arena::~Arena() {
  if (reservation_ != nullptr) munmap(reservation_, reserved_bytes_);
}

void Arena::commit(std::uint64_t bytes) {
  const std::uint64_t wanted_bytes = round_up(bytes, page_bytes);
  if (wanted_bytes > capacity_bytes_) {
    throw std::invalid_argument("an arena of " + std::to_string(capacity_bytes_) +
                                " bytes cannot hold " + std::to_string(bytes));
  }
  if (wanted_bytes < committed_bytes_) {
    std::byte* const end = data_ + wanted_bytes;
    const std::uint64_t surplus_bytes = committed_bytes_ - wanted_bytes;
    if (madvise(end, surplus_bytes, MADV_DONTNEED) != 0 ||
        mprotect(end, surplus_bytes, PROT_NONE) != 0) {
      throw system_failure("cannot give " + std::to_string(surplus_bytes) + " bytes back");
    }
  } else if (wanted_bytes > committed_bytes_) {
    const std::uint64_t more_bytes = wanted_bytes - committed_bytes_;
    if (mprotect(data_ + committed_bytes_, more_bytes, PROT_READ | PROT_WRITE) != 0) {
      throw system_failure("cannot get " + std::to_string(more_bytes) + " bytes of memory");
    }
  }
  committed_bytes_ = wanted_bytes;
  // A kernel without huge pages refuses the advice. The memory works all the same, and
  // huge_page_bytes() reports it. The remainder must not become a huge page, which would take up to
  // such a page too much.
  const std::uint64_t huge_bytes =
      huge_page() > huge_page_max ? 0 : round_down(wanted_bytes, huge_page());
  if (huge_bytes != 0) madvise(data_, huge_bytes, MADV_HUGEPAGE);
  if (huge_bytes != wanted_bytes) {
    madvise(data_ + huge_bytes, wanted_bytes - huge_bytes, MADV_NOHUGEPAGE);
  }
}

void Arena::discard(std::uint64_t begin, std::uint64_t end) {
  if (begin >= end) return;
  base::check(begin % page_bytes == 0 && end % page_bytes == 0 && end <= committed_bytes_,
              "an arena gives back memory that is not its own");
  // Cannot fail for memory of our own that is not locked.
  madvise(data_ + begin, end - begin, MADV_DONTNEED);
}

std::uint64_t Arena::huge_page_bytes() const {
  const auto begin = reinterpret_cast<std::uintptr_t>(data_);
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  std::uint64_t huge_bytes = 0;
  while (std::getline(smaps, line)) {
    std::istringstream fields(line);
    std::uintptr_t low = 0;
    std::uintptr_t high = 0;
    char dash = 0;
    if (fields >> std::hex >> low >> dash >> high && dash == '-') {
      inside = low >= begin && high <= begin + committed_bytes_;
    } else if (inside && line.rfind("AnonHugePages:", 0) == 0) {
      huge_bytes += 1024 * std::stoull(line.substr(line.find(':') + 1));
    }
  }
  return huge_bytes;
}

}  // namespace sluice::streaming
