#include "core/http/transport/listener.h"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <optional>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <system_error>
#include <unistd.h>

#include "base/file_identity.h"
#include "base/number.h"
#include "core/error.h"

namespace sluice::http {
namespace {

constexpr int backlog = 128;
constexpr int first_of_systemd = 3;
constexpr int of_systemd_max = 64;

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

base::Descriptor open_socket(int family) {
  base::Descriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) fail("cannot open a socket");
  return socket;
}

std::string text_of(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes =
      address.ss_family == AF_INET6
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr)
          : &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  ::inet_ntop(address.ss_family, bytes, text.data(), text.size());
  return text.data();
}

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address);
    return ntohl(ipv4.sin_addr.s_addr) >> 24U == 127;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

// Called before there are other threads.
std::optional<int> number_in(const char* name) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? std::nullopt : base::whole_number<int>(text);
}

// Whether nobody accepts connections there any more.
bool is_left_behind(const sockaddr_un& address) {
  const base::Descriptor socket = open_socket(AF_UNIX);
  const auto* there = reinterpret_cast<const sockaddr*>(&address);
  return ::connect(socket.number(), there, sizeof address) != 0 && errno == ECONNREFUSED;
}

}  // namespace

Listener::Listener(base::Descriptor socket) : socket_(std::move(socket)) {}

Listener::Listener(Listener&& other) noexcept
    : socket_(std::move(other.socket_)),
      family_(other.family_),
      name_(std::move(other.name_)),
      port_(other.port_),
      is_local_(other.is_local_),
      made_(std::exchange(other.made_, {})),
      made_facts_(other.made_facts_) {}

Listener::~Listener() {
  if (is_own_file_there()) ::unlink(made_.c_str());
}

bool Listener::is_own_file_there() const {
  struct stat facts {};
  return !made_.empty() && ::lstat(made_.c_str(), &facts) == 0 &&
         base::is_same_file(facts, made_facts_);
}

void Listener::read_address() {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(descriptor(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    fail("cannot read the address of a socket");
  }
  if (address.ss_family == AF_UNIX) {
    family_ = Family::local;
    is_local_ = true;
    const char* path = reinterpret_cast<const sockaddr_un&>(address).sun_path;
    name_ = size > sizeof(sa_family_t) && path[0] != '\0' ? fmt::format("unix:{}", path)
                                                          : "unix:(without a path)";
    return;
  }
  if (address.ss_family != AF_INET && address.ss_family != AF_INET6) {
    throw UsageError("a socket that systemd has given is neither TCP nor unix");
  }
  const bool is_ipv6 = address.ss_family == AF_INET6;
  family_ = is_ipv6 ? Family::ipv6 : Family::ipv4;
  is_local_ = is_loopback(address);
  port_ = ntohs(is_ipv6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                        : reinterpret_cast<const sockaddr_in&>(address).sin_port);
  const std::string host = text_of(address);
  name_ = is_ipv6 ? fmt::format("http://[{}]:{}", host, port_)
                  : fmt::format("http://{}:{}", host, port_);
}

// "localhost" is always 127.0.0.1, and no name server is asked: an address that a name stands for
// may change, and with it who can connect.
Listener Listener::on_port(const std::string& host, std::uint16_t port) {
  addrinfo wanted{};
  wanted.ai_flags = AI_NUMERICHOST | AI_PASSIVE;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string address = host == "localhost" ? "127.0.0.1" : host;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &wanted, &found) != 0) {
    throw UsageError(fmt::format(
        "--host {}: give an address of this machine, such as 127.0.0.1, ::1 or 0.0.0.0", host));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  Listener listener(open_socket(found->ai_family));
  const int on = 1;
  ::setsockopt(listener.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener.descriptor(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(listener.descriptor(), backlog) != 0) {
    fail(fmt::format("cannot listen on {} port {}", host, port));
  }
  listener.read_address();
  return listener;
}

Listener Listener::on_path(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string text = path.string();
  if (text.empty() || text.size() >= sizeof address.sun_path) {
    throw UsageError(fmt::format("--unix {}: the path of a socket has 1 to {} bytes", text,
                                 sizeof address.sun_path - 1));
  }
  text.copy(address.sun_path, sizeof address.sun_path - 1);
  struct stat facts {};
  if (::lstat(text.c_str(), &facts) == 0) {
    if (!S_ISSOCK(facts.st_mode) || !is_left_behind(address)) {
      throw UsageError(fmt::format("--unix {}: {}; name another path", text,
                                   S_ISSOCK(facts.st_mode) ? "another server listens there"
                                                           : "there is a file that is no socket"));
    }
    ::unlink(text.c_str());
  }
  Listener listener(open_socket(AF_UNIX));
  // The mode holds from the beginning: a socket takes that of its descriptor.
  ::fchmod(listener.descriptor(), 0600);
  if (::bind(listener.descriptor(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
      0) {
    fail(fmt::format("cannot listen on {}", text));
  }
  if (::lstat(text.c_str(), &listener.made_facts_) != 0) {
    fail(fmt::format("cannot listen on {}", text));
  }
  listener.made_ = path;
  if (::chmod(text.c_str(), 0600) != 0 || ::listen(listener.descriptor(), backlog) != 0) {
    fail(fmt::format("cannot listen on {}", text));
  }
  listener.read_address();
  return listener;
}

std::vector<Listener> Listener::from_systemd() {
  const std::optional<int> process = number_in("LISTEN_PID");
  const std::optional<int> count = number_in("LISTEN_FDS");
  for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) {
    ::unsetenv(name);  // NOLINT(concurrency-mt-unsafe)
  }
  std::vector<Listener> listeners;
  if (!process || *process != ::getpid() || !count) return listeners;
  for (int i = 0; i < *count && i < of_systemd_max; ++i) {
    Listener listener(base::Descriptor(first_of_systemd + i));
    ::fcntl(listener.descriptor(), F_SETFD, FD_CLOEXEC);
    const int flags = ::fcntl(listener.descriptor(), F_GETFL);
    if (flags < 0 || ::fcntl(listener.descriptor(), F_SETFL, flags | O_NONBLOCK) != 0) {
      fail(fmt::format("socket {} of systemd", listener.descriptor()));
    }
    listener.read_address();
    listeners.push_back(std::move(listener));
  }
  return listeners;
}

}  // namespace sluice::http
