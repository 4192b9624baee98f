// Ranges of a remote file, each read in as many requests as it takes, and each answer checked: it
// must be of the range that was asked for, and of the version of the file that came before.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/fetch/remote_file.h"
#include "core/fetch/web.h"

namespace sluice::fetch {

// What the reads of one file share. Must outlive them.
class RangeSource {
 public:
  RangeSource(Web& web, const RemoteFile& remote);  // remote.bytes must be known

  Web& web() { return web_; }
  std::uint64_t bytes() const { return *remote_.bytes; }
  const std::string& name() const { return remote_.name; }
  bool has_ranges() const { return has_ranges_; }           // an answer was one
  bool refuses_ranges() const { return refuses_ranges_; }   // one was the whole file instead
  std::uint64_t read_bytes() const { return read_bytes_; }  // of all bodies

 private:
  friend class RangeRead;
  Request request(const ByteRange& range) const;
  // Empty, or what is wrong with the headers of an answer 206. Throws Error when the file is
  // another one by now.
  std::string problem_of(const Answer& answer, const ByteRange& asked);

  Web& web_;
  RemoteFile remote_;
  std::string direct_url_;   // behind the redirects; empty: not known
  std::string expired_url_;  // the last of these that was refused
  std::string version_;      // of the first answer
  bool has_ranges_ = false, refuses_ranges_ = false;
  std::uint64_t read_bytes_ = 0;
};

class RangeRead {
 public:
  RangeRead(RangeSource& source, const ByteRange& range);

  // Takes notice of what poll() has done, and asks again for what is missing when a request has
  // failed. Throws Error when that has happened too often without a byte.
  void advance();
  bool is_done() const { return has_all() && transfer_ == nullptr; }
  const ByteRange& range() const { return range_; }
  std::span<const std::byte> bytes() const { return bytes_; }  // from the range's beginning on

 private:
  bool has_all() const { return bytes_.size() == range_.bytes; }
  void ask();
  bool take(std::span<const std::byte> bytes);

  RangeSource& source_;
  ByteRange range_;
  ByteRange asked_;  // by the request that runs
  std::string asked_url_;
  std::vector<std::byte> bytes_;
  std::unique_ptr<Transfer> transfer_;
  std::string problem_;      // with the answer that runs
  bool is_checked_ = false;  // its headers
  unsigned failures_ = 0;    // without a byte between them
  std::size_t bytes_before_ = 0;
  std::chrono::steady_clock::time_point not_before_{};
};

// What to say where a source refuses ranges.
Error no_ranges(const RangeSource& source);

// Reads a range, and waits for it.
std::vector<std::byte> read_range(RangeSource& source, const ByteRange& range);

}  // namespace sluice::fetch
