#include "streaming/populate.h"

#include <algorithm>
#include <sys/mman.h>
#include <system_error>

namespace sluice::streaming {
namespace {

// Whole huge pages, and short enough that the destructor does not wait for long.
constexpr std::uint64_t piece_bytes = std::uint64_t{4} << 20;

}  // namespace

Populate::Populate(std::span<std::byte> memory, unsigned threads) : memory_(memory) {
  if (memory_.size() <= piece_bytes) return;
  try {
    for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { touch_pieces(); });
  } catch (const std::system_error&) {  // a limit on processes: fewer threads will do
  }
}

Populate::~Populate() {
  is_stopping_ = true;
  threads_.clear();
}

void Populate::touch_pieces() {
#ifdef MADV_POPULATE_WRITE
  while (!is_stopping_) {
    const std::uint64_t at = next_.fetch_add(piece_bytes);
    if (at >= memory_.size()) return;
    const std::uint64_t bytes = std::min<std::uint64_t>(piece_bytes, memory_.size() - at);
    if (madvise(memory_.data() + at, bytes, MADV_POPULATE_WRITE) != 0) return;
  }
#endif
}

}  // namespace sluice::streaming
