// Arenas: memory that is there when asked for and gone when given back. And what readers share: the
// meaning of a system call's result.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <vector>

#include "streaming/alignment.h"
#include "streaming/arena.h"
#include "streaming/pinned_segments.h"
#include "streaming/read_piece.h"
#include "tests/catch.h"
#include "tests/paths.h"
#include "tests/random_seed.h"

using namespace sluice::streaming;

namespace {

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;

// Pages of the arena's first `bytes` that are in memory.
std::uint64_t resident_bytes(const Arena& arena, std::uint64_t bytes) {
  std::vector<unsigned char> pages(bytes / page_bytes);
  if (mincore(arena.data(), bytes, pages.data()) != 0) throw std::runtime_error("mincore failed");
  std::uint64_t resident = 0;
  for (const unsigned char page : pages) resident += (page & 1U) != 0 ? page_bytes : 0;
  return resident;
}

}  // namespace

TEST_CASE("an arena holds what it was told to and not a page more") {
  if (*sluice::test::emulator != 0) SLUICE_SKIP("QEMU has no mincore of reserved addresses");
  Arena arena(64 * mebibyte);
  CHECK(reinterpret_cast<std::uintptr_t>(arena.data()) % (2 * mebibyte) == 0);
  CHECK(resident_bytes(arena, 64 * mebibyte) == 0);
  for (const std::uint64_t bytes :
       {5 * mebibyte + page_bytes, 30 * mebibyte, 7 * mebibyte - 100, 20 * mebibyte}) {
    const std::uint64_t kept_bytes = std::min<std::uint64_t>(arena.committed_bytes(), bytes);
    arena.commit(bytes);
    CHECK(arena.committed_bytes() == round_up(bytes, page_bytes));
    const std::byte* const begin = arena.data();
    CHECK(std::count(begin, begin + kept_bytes, std::byte{42}) ==
          static_cast<std::ptrdiff_t>(kept_bytes));
    CHECK(std::all_of(begin + kept_bytes, begin + bytes,
                      [](std::byte byte) { return byte == std::byte{0}; }));
    std::memset(arena.data(), 42, bytes);
    CHECK(resident_bytes(arena, 64 * mebibyte) == arena.committed_bytes());
    CHECK(arena.huge_page_bytes() <= arena.committed_bytes());
  }
  arena.commit(0);
  CHECK(resident_bytes(arena, 64 * mebibyte) == 0);
  arena.commit(mebibyte);
  CHECK(arena.data()[0] == std::byte{0});
}

TEST_CASE("an arena gets huge pages where the kernel gives them") {
  std::ifstream setting("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  std::getline(setting, modes);
  if (modes.empty() || modes.find("[never]") != std::string::npos) SLUICE_SKIP("no huge pages");
  Arena first(64 * mebibyte);
  Arena second(64 * mebibyte);
  for (Arena* arena : {&first, &second}) {
    arena->commit(64 * mebibyte);
    std::memset(arena->data(), 1, 32 * mebibyte);
  }
  if (first.huge_page_bytes() == 0) SLUICE_SKIP("the kernel had no huge page to give");
  CHECK(first.huge_page_bytes() <= 32 * mebibyte);
  CHECK(second.huge_page_bytes() <= 32 * mebibyte);
}

TEST_CASE("an arena does not exceed its capacity") {
  Arena arena(10'000);
  CHECK_THROWS_AS(arena.commit(round_up(10'000, page_bytes) + 1), std::invalid_argument);
  arena.commit(10'000);
  CHECK(arena.committed_bytes() == round_up(10'000, page_bytes));
  Arena nothing(0);
  nothing.commit(0);
  CHECK_THROWS_AS(nothing.commit(1), std::invalid_argument);
  CHECK_THROWS_AS(Arena(std::uint64_t{1} << 60), std::system_error);
}

TEST_CASE("pieces cover a request without gap or overlap") {
  for (const std::uint64_t bytes :
       {page_bytes, piece_bytes_max, 3 * piece_bytes_max + page_bytes}) {
    std::vector<std::byte> buffer(bytes);
    const ReadRequest request{3, 1, 8192, bytes, buffer.data()};
    const std::uint64_t file_bytes = 8192 + bytes - 100;
    std::uint64_t at = request.offset;
    for (std::size_t i = 0; i < piece_count(request); ++i) {
      const ReadPiece piece = piece_at(request, file_bytes, i);
      CHECK(piece.slot == 3);
      CHECK(piece.file == 1);
      CHECK(piece.offset == at);
      CHECK(piece.buffer == buffer.data() + (at - request.offset));
      CHECK(piece.bytes % page_bytes == 0);
      CHECK(piece.bytes <= piece_bytes_max);
      at += piece.bytes;
      CHECK(piece.needed_end == std::min(at, file_bytes));
    }
    CHECK(at == request.offset + bytes);
  }
}

TEST_CASE("results of reads: all, part, end of file, interruptions, errors") {
  using Outcome = ReadPiece::Outcome;
  const auto fresh = [] {
    ReadPiece piece;
    piece.offset = 4096;
    piece.bytes = 16'384;
    piece.needed_end = 20'000;  // the file ends inside of the last page
    return piece;
  };
  ReadPiece piece = fresh();
  CHECK(piece.advance(16'384, 4096) == Outcome::done);
  piece = fresh();
  CHECK(piece.advance(15'904, 4096) == Outcome::done);
  piece = fresh();
  CHECK(piece.advance(15'903, 4096) == Outcome::again);
  CHECK(piece.offset == 4096 + 12'288);
  CHECK(piece.bytes == 4096);
  CHECK(piece.advance(0, 4096) == Outcome::failed);
  CHECK(piece.is_truncated);
  piece = fresh();
  CHECK(piece.advance(-EINTR, 4096) == Outcome::again);
  CHECK(piece.advance(-EAGAIN, 4096) == Outcome::again);
  CHECK(piece.advance(-ENOMEM, 4096) == Outcome::again);
  CHECK(piece.advance(-ECANCELED, 4096) == Outcome::again);
  CHECK(piece.offset == 4096);
  CHECK(piece.advance(-ENXIO, 4096) == Outcome::failed);
  CHECK(piece.error == ENXIO);
  CHECK_FALSE(piece.is_truncated);
}

TEST_CASE("a read that makes progress has its patience back") {
  constexpr std::uint64_t parts = 128;
  ReadPiece piece;
  piece.bytes = piece.needed_end = parts * 4096;
  for (std::uint64_t part = 1; part < parts; ++part) {
    REQUIRE(piece.advance(-EINTR, 4096) == ReadPiece::Outcome::again);
    REQUIRE(piece.advance(4096, 4096) == ReadPiece::Outcome::again);
  }
  CHECK(piece.advance(4096, 4096) == ReadPiece::Outcome::done);
}

TEST_CASE("of several errors of a read the one at the lowest offset is told") {
  const auto ended = [](std::uint64_t offset, int error, bool is_truncated) {
    ReadPiece piece;
    piece.offset = offset;
    piece.error = error;
    piece.is_truncated = is_truncated;
    return piece;
  };
  SlotLedger ledger;
  ledger.begin(0, 4);
  CHECK_FALSE(ledger.end(ended(8192, EIO, false)));
  CHECK_FALSE(ledger.end(ended(4096, ENXIO, true)));
  CHECK_FALSE(ledger.end(ended(12'288, EIO, false)));
  const std::optional<Completion> completion = ledger.end(ended(0, 0, false));
  REQUIRE(completion);
  CHECK(completion->offset == 4096);
  CHECK(completion->error.value() == ENXIO);
  CHECK(completion->is_truncated);
}

namespace {

// Pinned segments whose bytes are their number, and what is done with them.
class FilledSegments {
 public:
  explicit FilledSegments(std::mt19937_64& random) : random_(random) {
    std::vector<std::size_t> order(2 + random_() % 40);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random_);
    for (std::size_t turn = 0; turn < order.size(); ++turn) {
      bytes_.push_back(64 * (1 + random_() % (random_() % 3 == 0 ? 300 : 20)));
    }
    states_.resize(order.size());
    pinned_.emplace(bytes_, order);
    first_ = pinned_->begin_copy(order[0]);  // at the beginning of all places
    std::memset(first_, value_of(order[0]), bytes_[order[0]]);
    pinned_->end_copy(order[0]);
  }

  void act() {
    const std::size_t turn = random_() % bytes_.size();
    State& state = states_[turn];
    const bool is_limit = random_() % 6 == 0;
    if (is_limit) {
      limit_ = random_() % (pinned_->capacity_bytes() * 5 / 4 + 1);
      pinned_->limit(limit_);
    } else if (state == State::copying) {
      pinned_->end_copy(turn);
      state = State::free;
    } else if (state == State::held) {
      CHECK(pinned_->release(turn));
      state = State::free;
    } else if (pinned_->acquire(turn) != nullptr) {
      state = State::held;
    } else if (std::byte* place = pinned_->begin_copy(turn)) {
      std::memset(place, value_of(turn), bytes_[turn]);
      state = State::copying;
    }
  }

  bool is_in_use(std::size_t turn) const {
    return states_[turn] != State::free || pinned_->is_pinned(turn);
  }

  // Whether all bytes that are in use are right, and no page beyond the limit is in memory without
  // one of them.
  std::string wrong() const {
    std::vector<bool> is_used(pinned_->capacity_bytes() / page_bytes);
    for (std::size_t turn = 0; turn < bytes_.size(); ++turn) {
      if (!is_in_use(turn)) continue;
      const std::uint64_t end = *pinned_->place_end(turn), begin = end - bytes_[turn];
      if (pinned_->is_pinned(turn) && end > limit_) return "a segment is pinned beyond the limit";
      const std::byte right{static_cast<unsigned char>(value_of(turn))};
      const bool is_right =
          std::all_of(first_ + begin, first_ + end, [&](std::byte b) { return b == right; });
      if (!is_right) return "the bytes of a segment in use have changed";
      for (std::uint64_t page = begin / page_bytes; page * page_bytes < end; ++page) {
        is_used[page] = true;
      }
    }
    for (std::size_t page = 0; page < is_used.size(); ++page) {
      unsigned char is_there = 0;
      if (is_used[page] || page * page_bytes < limit_) continue;
      mincore(first_ + page * page_bytes, page_bytes, &is_there);
      if ((is_there & 1U) != 0) return "memory beyond the limit was not given back";
    }
    return {};
  }

 private:
  enum class State { free, copying, held };
  static int value_of(std::size_t turn) { return static_cast<int>(turn + 1); }

  std::mt19937_64& random_;
  std::vector<std::uint64_t> bytes_;
  std::vector<State> states_;
  std::optional<PinnedSegments> pinned_;
  std::uint64_t limit_ = ~std::uint64_t{0};
  std::byte* first_ = nullptr;
};

}  // namespace

TEST_CASE("memory beyond a limit goes back to the system, and nothing that is in use") {
  const std::uint64_t seed = sluice::test::random_seed();
  for (std::uint64_t i = 0; i < 40; ++i) {
    INFO("SLUICE_TEST_SEED=" << seed << " segments " << i);
    std::mt19937_64 random(seed + i);
    FilledSegments segments(random);
    for (int step = 0; step < 150; ++step) {
      segments.act();
      REQUIRE(segments.wrong().empty());
    }
  }
}

TEST_CASE("a limit that ends on a segment keeps it") {
  const std::vector<std::uint64_t> bytes = {64, 64, 64};
  const std::vector<std::size_t> order = {0, 1, 2};
  PinnedSegments pinned(bytes, order);
  for (const std::size_t turn : order) {
    REQUIRE(pinned.begin_copy(turn) != nullptr);
    pinned.end_copy(turn);
  }
  pinned.limit(128);
  CHECK(pinned.bytes() == 128);
  pinned.limit(127);
  CHECK(pinned.bytes() == 64);
}

TEST_CASE("an arena that has gone has no addresses any more") {
  const std::byte* place = nullptr;
  {
    const Arena arena(64 * mebibyte);
    place = arena.data();
  }
  unsigned char is_there = 0;
  void* const page = const_cast<std::byte*>(place);
  CHECK(mincore(page, page_bytes, &is_there) == -1);
  CHECK(errno == ENOMEM);
}

TEST_CASE("reads without progress end") {
  for (const std::int64_t result : {-EINTR, -EAGAIN, -ENOMEM, 9}) {
    ReadPiece piece;
    piece.bytes = 8192;
    piece.needed_end = 8192;
    int attempts = 0;
    while (attempts < 100'000 && piece.advance(result, 4096) == ReadPiece::Outcome::again) {
      ++attempts;
    }
    CHECK(attempts < 100'000);
    CHECK(piece.error == (result < 0 ? -result : EIO));
  }
}
