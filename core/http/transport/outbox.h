// What is on its way to a client: bytes, and perhaps a file behind them.
//
// What waits comes out of the server's allowance, but for the first few bytes, which the connection
// has taken already. A file is read in small pieces, aside.
//
// Threads: the server's alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/http/transport/message.h"
#include "core/http/transport/pace.h"
#include "core/http/transport/server_state.h"

namespace sluice::http {

class Outbox {
 public:
  // What is free of charge, for a short answer when nothing is left of the allowance.
  static constexpr std::size_t free_bytes = std::size_t{16} << 10;

  // Both must outlive the outbox.
  Outbox(Socket& socket, ServerState& server);

  // `owner` is kept while something is being sent. `sent` is called when all has been sent,
  // `broken` when the client has gone or the file cannot be read; neither within the calls below.
  void open(std::weak_ptr<void> owner, std::function<void()> sent, std::function<void()> broken);

  // Whether there is memory for so many bytes more.
  bool has_room(std::size_t bytes);

  // Takes bytes to be sent. Returns false when there is no memory for them: then what the client
  // gets is no longer whole.
  [[nodiscard]] bool add(std::string bytes);

  // Sends a file behind all bytes.
  void add_file(FileBody file);

  // Forgets all. The socket is closed.
  void clear();

  std::size_t waiting_bytes() const { return waiting_.size() + sending_.size() - sent_; }
  bool is_idle() const { return !is_writing_ && !is_reading_ && waiting_.empty() && !file_; }
  Pace::Clock::time_point last_progress() const { return last_progress_; }

  // Whether the client takes too long to receive what waits for it.
  bool is_too_slow(Pace::Clock::time_point now) { return is_writing_ && pace_.is_too_slow(now); }

 private:
  struct File {
    FileBody body;
    std::uint64_t read = 0;
  };

  void flush();
  void write_some();
  void read_file();
  void drop_file();

  Socket& socket_;
  ServerState& server_;
  std::weak_ptr<void> owner_;
  std::function<void()> told_sent_, told_broken_;
  Allowance::Held held_;
  std::string waiting_;
  std::string sending_;  // being sent, from sent_ on
  std::size_t sent_ = 0;
  std::shared_ptr<File> file_;
  bool is_writing_ = false;
  bool is_reading_ = false;  // a piece of the file
  Pace pace_;
  Pace::Clock::time_point last_progress_ = Pace::Clock::now();
};

}  // namespace sluice::http
