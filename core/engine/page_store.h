// A folder of pages of keys and values, so that a prefix that was computed once is never computed
// again, neither in the next run nor in another process.
//
// A page holds the keys and values of some tokens. Its name is derived from all tokens up to its
// end, and from the model and settings they were computed with. So prompts with a common prefix
// share their first pages, and the longest stored prefix of a prompt is found by asking for one
// page after the other.
//
// A file is, in little-endian: "SLUICEPG", u32 version, u32 tokens, u8[16] name, u64 bytes of
// payload, u64 checksum of the payload, i32[tokens], u64 checksum of all this, and the payload.
// (XXH3 with 64 bits, which costs less than reading.) A file is written under a temporary name,
// synchronised and renamed. A reader checks all of it; a file that is damaged, or does not match
// its name, is removed with a warning.
//
// Pages hold prompts, and whoever can change one decides what a model has read. So the folder is
// created for its owner only (0700, its files 0600), and a folder that is open to other users is
// refused.
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

// A name derived from content (RFC 4122, a UUID of version 5). Equal keys mean equal content,
// unless somebody made them collide on purpose.
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

  // Creates the folder if it does not exist. `bytes_max` is the limit for all pages, see trim().
  // Throws std::system_error, and UsageError for a folder that other users can read or change.
  PageStore(std::filesystem::path folder, std::uint64_t bytes_max, Warn warn);

  bool contains(const PageKey& key) const;

  // Reads the payload of a page into `parts` and returns true; returns false when there is no such
  // page, and the contents of `parts` are then unspecified. A bad file causes a warning, not an
  // error.
  bool read(const PageKey& key, std::span<const tokenizer::Token> tokens,
            std::span<const std::span<std::byte>> parts) const;

  // Throws std::system_error.
  void write(const PageKey& key, std::span<const tokenizer::Token> tokens,
             std::span<const std::span<const std::byte>> parts) const;

  // Marks the pages of a prefix, given from its beginning, as used now. The first pages are removed
  // last: the others are useless without them.
  void touch(std::span<const PageKey> keys) const;

  // Removes the least recently used pages until the rest is at most `bytes_max`, and a little less
  // if any of many has to go; and files left behind by processes that were killed while writing.
  void trim() const;

  // The same, if since the last time so much was written that there may be too much. Listing a
  // folder of many pages takes long, so this is for a caller that writes again and again.
  void trim_if_due() const;

  std::filesystem::path path(const PageKey& key) const;

 private:
  std::filesystem::path folder_;
  std::uint64_t bytes_max_;
  Warn warn_;
  mutable std::uint64_t room_bytes_ = 0;  // that may be written before pages are counted again
};

}  // namespace sluice::engine
