// How bytes come from files into memory, asynchronously: the one interface of all readers.
//
// A read fills one slot. Slots are numbered by the caller and have at most one read in flight.
// A reader copies into the buffer that the request names (uring, pread), or brings the pages of its
// own mapping into memory (mmap) and needs no buffers.
//
// Errors of reading are values that belong to one slot. Only a reader that can no longer work at
// all throws (std::system_error).
//
// Threads: a reader is used by one thread. Its destructor waits for the reads in flight, so buffers
// must outlive the reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/file_identity.h"

namespace sluice::streaming {

struct ReadRequest {
  std::uint32_t slot = 0;
  std::uint32_t file = 0;
  std::uint64_t offset = 0;     // a multiple of Reader::alignment()
  std::uint64_t bytes = 0;      // a multiple of it too, not 0; may reach beyond the end of file
  std::byte* buffer = nullptr;  // aligned like offset; unused by a reader that maps its files
};

struct Completion {
  std::uint32_t slot = 0;
  std::error_code error;      // empty: all bytes up to the end of the request or file are there
  std::uint64_t offset = 0;   // with an error: its place in the file
  bool is_truncated = false;  // the error is that the file has become shorter
};

struct ReaderFile {
  std::filesystem::path path;
  std::uint64_t bytes = 0;           // when it was opened
  base::FileIdentity identity = {};  // then too
};

class Reader {
 public:
  virtual ~Reader() = default;

  // "uring", "pread", "mmap".
  virtual std::string_view name() const = 0;

  // The files, in the order in which requests number them.
  virtual std::span<const ReaderFile> files() const = 0;

  // The alignment of requests, in bytes: a multiple of page_bytes that suits every file.
  virtual std::uint64_t alignment() const = 0;

  // Announces the buffers of slots 0, 1, ... (`slot_bytes` each, one after the other) before the
  // first read into them, so that the kernel can register them. They must outlive the reader.
  // Returns a line for the user when registration fails, which makes reads a little slower; else
  // "". With empty `memory` the reader releases the buffers it had. No read may be in flight.
  virtual std::string attach_buffers(std::span<std::byte> memory, std::uint64_t slot_bytes) = 0;

  // Starts a read and returns at once.
  virtual void submit(const ReadRequest& request) = 0;

  // One finished read, if there is one; never blocks.
  virtual std::optional<Completion> poll() = 0;

  // Blocks until a read has finished. There must be one in flight.
  virtual Completion wait() = 0;

  // Whether the file was written to or truncated since it was opened. What was read of it before
  // and what is read now need not belong together, and bytes of a mapping beyond its end must not
  // be touched.
  virtual bool has_changed(std::uint32_t file) const = 0;

  // A line for the user once a read had to be done in another way than the reader's own; else "".
  virtual std::string trouble() const { return ""; }

  // Whether this reader hands out memory of its own mappings. The three functions below are for
  // readers that do.
  virtual bool maps_files() const { return false; }

  // The mapping of a file. Only bytes that a read has brought in and that have not been discarded
  // may be touched.
  virtual const std::byte* mapping(std::uint32_t /*file*/) const { return nullptr; }

  // true: the kernel must not load pages around those of a request, because its own read-ahead may
  // be as long as the whole ring. false: it may, and it keeps pages that are in use for longer.
  virtual void keep_to_requests(bool /*strictly*/) {}

  // Drops pages that a read has brought in; offset and bytes are multiples of page_bytes.
  virtual void discard(std::uint32_t /*file*/, std::uint64_t /*offset*/, std::uint64_t /*bytes*/) {}
};

}  // namespace sluice::streaming
