// Sockets that listen: on an address and port, on a path, or given by systemd.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <sys/stat.h>
#include <utility>
#include <vector>

#include "base/descriptor.h"

namespace sluice::http {

// Owns the socket, and the file of a path that it has made: what somebody has put in its place
// since then is left alone.
class Listener {
 public:
  enum class Family { ipv4, ipv6, local };

  // `host` is an address or "localhost"; port 0 takes any that is free. Throws UsageError for a
  // host that is no address, and std::system_error.
  static Listener on_port(const std::string& host, std::uint16_t port);

  // Replaces a socket that a server has left behind, and nothing else. Only the user may connect
  // (mode 0600).
  static Listener on_path(const std::filesystem::path& path);

  // The sockets of systemd's socket activation (sd_listen_fds(3)); none without it. Removes the
  // variables from the environment, so that children do not see them.
  static std::vector<Listener> from_systemd();

  Listener(Listener&& other) noexcept;
  ~Listener();

  int descriptor() const { return socket_.number(); }
  Family family() const { return family_; }
  const std::string& name() const { return name_; }  // "http://127.0.0.1:8080"
  std::uint16_t port() const { return port_; }
  // Whether only programs on this machine can connect.
  bool is_local() const { return is_local_; }

 private:
  explicit Listener(base::Descriptor socket);
  bool is_own_file_there() const;
  void read_address();

  base::Descriptor socket_;
  Family family_ = Family::ipv4;
  std::string name_;
  std::uint16_t port_ = 0;
  bool is_local_ = false;
  std::filesystem::path made_;  // the socket to remove at the end, if it is still there
  struct stat made_facts_ {};
};

}  // namespace sluice::http
