// A folder of pages of keys and values, so that a prefix which was computed once is never computed
// again: not in the next run, and not in another process.
//
// A page holds the keys and values of some tokens, and its name is derived from all tokens up to
// its end and from what they were computed with. Prompts that begin alike thus share their first
// pages, and the longest prefix of a prompt that is there is found by asking for one page after the
// other.
//
// A file is, in little-endian: "SLUICEPG", u32 version, u32 tokens, u8[16] name, u64 bytes of
// payload, u64 checksum of the payload, i32[tokens], u64 checksum of all this, and the payload.
// (XXH3 with 64 bits, which costs less than reading.) It is written under a temporary name,
// synchronised and renamed, and a reader checks all of it: a file that is damaged, or not what its
// name says, is removed with a warning.
//
// Pages hold prompts, and whoever can change one decides what a model has read. So the folder is
// made for its owner alone (0700, its files 0600), and one that is open to other users is refused.
//
// Several processes may use one folder at the same time. Used by one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "core/tokenizer/tokenizer.h"

namespace sluice::engine {

// A name that is derived from content (RFC 4122, a UUID of version 5). Whoever has the same key has
// the same content, unless made to collide on purpose.
struct PageKey {
  std::array<std::uint8_t, 16> bytes{};

  PageKey derive(std::span<const std::byte> content) const;
  PageKey derive(std::span<const tokenizer::Token> tokens) const {
    return derive(std::as_bytes(tokens));
  }
  std::string text() const;  // 32 hexadecimal digits
  bool operator==(const PageKey&) const = default;
};

class PageStore {
 public:
  using Warn = std::function<void(const std::string& line)>;

  // Makes the folder if it is not there. `bytes_max`: of all pages, see trim(). Throws
  // std::system_error, and UsageError for a folder that other users can read or change.
  PageStore(std::filesystem::path folder, std::uint64_t bytes_max, Warn warn);

  bool contains(const PageKey& key) const;

  // Fills `parts` with the payload of a page, and says whether it was there. When it was not, the
  // parts hold anything. What is wrong with a file is no error but a warning.
  bool read(const PageKey& key, std::span<const tokenizer::Token> tokens,
            std::span<const std::span<std::byte>> parts) const;

  // Throws std::system_error.
  void write(const PageKey& key, std::span<const tokenizer::Token> tokens,
             std::span<const std::span<const std::byte>> parts) const;

  // Notes that the pages of a prefix, from its beginning, were used now. The first are the last to
  // be removed: without them the others are of no use.
  void touch(std::span<const PageKey> keys) const;

  // Removes the pages that were not used for the longest time, until what is left is no more than
  // `bytes_max`; and what was left behind by processes that were killed while writing.
  void trim() const;

  std::filesystem::path path(const PageKey& key) const;

 private:
  std::filesystem::path folder_;
  std::uint64_t bytes_max_;
  Warn warn_;
};

}  // namespace sluice::engine
