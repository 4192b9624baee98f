// Arenas: memory that is there when asked for and gone when given back. And what readers share: the
// meaning of a system call's result.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <vector>

#include "streaming/alignment.h"
#include "streaming/arena.h"
#include "streaming/read_piece.h"
#include "tests/catch.h"
#include "tests/paths.h"

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
  CHECK(piece.offset == 4096);
  CHECK(piece.advance(-ENXIO, 4096) == Outcome::failed);
  CHECK(piece.error == ENXIO);
  CHECK_FALSE(piece.is_truncated);
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
