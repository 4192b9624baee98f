// How products of matrices suit the kind of core: how packed weights are prefetched, and how sums
// are scaled. It is data, because what one kind of core needs costs another a third of its speed.
// No result depends on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::kernels {

enum class CacheLevel : std::uint8_t { l1, l2 };

struct Prefetch {
  // How far ahead of its reads a thread asks for weights, in bytes; whole blocks, so perhaps
  // somewhat more. 0: not at all. Where a block is unpacked before it is multiplied, the next block
  // is asked for at any other distance.
  std::uint32_t bytes_ahead = 2048;
  CacheLevel into = CacheLevel::l1;
  // How many panels are read in turn, each a stream of its own: 1 or 4. Products of more than four
  // columns do not look at it.
  std::uint8_t panels_in_turn = 4;
};

struct PrefetchPolicy {
  static constexpr std::size_t classes = 6;
  // For 1, 2 to 4, 5 to 8, 9 to 16, and more columns; the last one is for up to 16 columns of
  // formats that take longer to unpack than to read.
  Prefetch of_class[classes];

  // Defined out of line, because the files of the tiers call it (see matmul_driver.h).
  const Prefetch& for_columns(std::size_t columns, bool is_slow_to_unpack = false) const;

  // Into which cache attention asks for its next page. The queries that share a head of keys are a
  // few columns.
  CacheLevel for_attention() const { return of_class[1].into; }
};

struct CorePolicy {
  PrefetchPolicy prefetch{};
  // Whether a product of 32-bit integers takes no longer than one of floats, and so scales sums of
  // products in AVX-512. On Intel's it takes two operations.
  bool has_fast_dword_products = false;
};

// The policy that was measured to be best for this kind of core; the environment variable
// SLUICE_PREFETCH (in the form of parse_prefetch) has another way to prefetch. Throws
// std::invalid_argument when it has none.
CorePolicy chosen_policy();

// BYTES:l1|l2:PANELS for each class, separated by commas, or once for all: "0:l1:1,8192:l2:4,...".
// Throws std::invalid_argument that quotes the text and says what would be right.
PrefetchPolicy parse_prefetch(std::string_view text);
std::string to_text(const PrefetchPolicy& policy);

}  // namespace sluice::kernels
