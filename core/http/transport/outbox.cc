#include "core/http/transport/outbox.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <unistd.h>
#include <utility>

namespace sluice::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// Fits into what is free of charge.
constexpr std::size_t file_piece_bytes = Outbox::free_bytes / 2;

// Empty where the file is shorter than it was, or cannot be read.
std::string read_piece(const FileBody& file, std::uint64_t from) {
  std::string piece(std::min<std::uint64_t>(file_piece_bytes, file.bytes - from), '\0');
  const ssize_t n =
      ::pread(file.file->number(), piece.data(), piece.size(), static_cast<off_t>(from));
  piece.resize(n <= 0 ? 0 : static_cast<std::size_t>(n));
  return piece;
}

}  // namespace

Outbox::Outbox(Socket& socket, ServerState& server)
    : socket_(socket),
      server_(server),
      held_(*server.allowance.take(0)),
      pace_(server.limits.pace_time, server.limits.pace_bytes_min) {}

void Outbox::open(std::weak_ptr<void> owner, std::function<void()> sent,
                  std::function<void()> broken) {
  owner_ = std::move(owner);
  told_sent_ = std::move(sent);
  told_broken_ = std::move(broken);
}

bool Outbox::has_room(std::size_t bytes) {
  const std::size_t all = waiting_.capacity() + sending_.capacity() + bytes;
  return held_.resize(std::max(all, free_bytes) - free_bytes);
}

bool Outbox::add(std::string bytes) {
  if (waiting_.empty()) {
    waiting_ = std::move(bytes);
  } else {
    waiting_ += bytes;
  }
  const bool has_memory = has_room(0);
  flush();
  return has_memory;
}

void Outbox::add_file(FileBody file) {
  file_ = std::make_shared<File>(File{std::move(file)});
  flush();
}

void Outbox::clear() {
  waiting_ = sending_ = {};
  sent_ = 0;
  held_ = {};
  drop_file();
}

// Begins to send what is there, unless something is being sent already.
void Outbox::flush() {
  if (is_writing_ || !socket_.is_open()) return;
  if (waiting_.empty()) {
    if (file_ && !is_reading_) read_file();
    return;
  }
  sending_.swap(waiting_);
  sent_ = 0;
  is_writing_ = true;
  pace_.begin(Pace::Clock::now());
  last_progress_ = Pace::Clock::now();
  write_some();
}

void Outbox::write_some() {
  socket_.async_write_some(asio::buffer(sending_.data() + sent_, sending_.size() - sent_),
                           [this, owner = owner_.lock()](const error_code& problem, std::size_t n) {
                             if (!socket_.is_open()) return;
                             if (problem) return told_broken_();
                             last_progress_ = Pace::Clock::now();
                             pace_.add(n);
                             sent_ += n;
                             if (sent_ < sending_.size()) return write_some();
                             sending_ = {};
                             sent_ = 0;
                             is_writing_ = false;
                             flush();
                             static_cast<void>(has_room(0));
                             if (is_idle()) told_sent_();
                           });
}

void Outbox::read_file() {
  if (file_->read == file_->body.bytes) return drop_file();
  is_reading_ = true;
  server_.aside(Lane::files, [this, owner = owner_.lock(), file = file_]() -> Then {
    const auto piece = std::make_shared<std::string>(read_piece(file->body, file->read));
    return [this, owner, piece] {
      is_reading_ = false;
      if (!socket_.is_open() || !file_) return;
      // The length was promised, so the client must see that this is not all.
      file_->read += piece->size();
      if (piece->empty() || !add(std::move(*piece))) told_broken_();
    };
  });
}

// Closing a file may wait for the disk.
void Outbox::drop_file() {
  if (!file_) return;
  server_.aside(Lane::files, [file = std::exchange(file_, nullptr)] { return Then(); });
}

}  // namespace sluice::http
