// What SentencePiece puts in place of characters before it cuts a text into tokens (Kudo and
// Richardson 2018, https://arxiv.org/abs/1808.06226): a list of sources and what each becomes, as
// its files and tokenizer.ggml.precompiled_charsmap have it. That is the size of a trie in bytes
// (u32, little endian), the trie of the sources, and the replacements, each with a NUL behind it.
//
// The trie is a double array (Aoe 1989, doi:10.1109/32.31365) of units of 32 bits, as of
// Darts-clone. A child of node n by byte b is the unit at n ^ offset(n) ^ b, if its bits 0 to 7 are
// b and bit 31 is not set. Its offset is in bits 10 to 30, times 256 where bit 9 is set. Bit 8 says
// that a source ends there; then bits 0 to 30 of the unit at n ^ offset(n) are the place of what
// the source becomes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::tokenizer {

class CharacterMap {
 public:
  // No source is longer than this; a table that has a longer one is read as if it were not there.
  static constexpr std::size_t source_bytes_max = 256;
  // Nor is what a source becomes, so that a text grows no further. (NFKC has 33 bytes for U+FDFA.)
  static constexpr std::size_t replacement_bytes_max = 256;

  CharacterMap() = default;  // has no sources
  // `file` is as above, or empty. Throws std::invalid_argument, which says what is wrong.
  explicit CharacterMap(std::string_view file);

  struct Replacement {
    std::size_t source_bytes = 0;  // 0: nothing is replaced
    std::string_view text;         // part of the map
  };
  // Of the longest source that `text` begins with.
  Replacement find(std::string_view text) const;

  // How many bytes of `text` could still be the front of a source.
  std::size_t reach(std::string_view text) const;

 private:
  // Calls visit(bytes, unit) for each source that `text` begins with, and gives the bytes of the
  // longest front of any source.
  template <typename Visit>
  std::size_t walk(std::string_view text, const Visit& visit) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace sluice::tokenizer
