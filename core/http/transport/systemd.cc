#include "core/http/transport/systemd.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/number.h"

namespace sluice::http {
namespace {

// Called before there are other threads.
std::string take_variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  std::string text = value == nullptr ? "" : value;
  ::unsetenv(name);  // NOLINT(concurrency-mt-unsafe)
  return text;
}

// None where there is no manager.
base::Descriptor open_socket(const std::string& name) {
  sockaddr_un address{};
  if (name.empty() || name.size() >= sizeof address.sun_path) return {};
  address.sun_family = AF_UNIX;
  std::ranges::copy(name, address.sun_path);
  if (name.front() == '@') address.sun_path[0] = '\0';  // an abstract name
  base::Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  const auto* manager = reinterpret_cast<const sockaddr*>(&address);
  if (::connect(socket.number(), manager, size) != 0) return {};
  return socket;
}

}  // namespace

ServiceManager::ServiceManager() : socket_(open_socket(take_variable("NOTIFY_SOCKET"))) {
  const auto period = base::whole_number<std::uint64_t>(take_variable("WATCHDOG_USEC"));
  const auto process = base::whole_number<std::uint64_t>(take_variable("WATCHDOG_PID"));
  const bool is_for_others = process && *process != static_cast<std::uint64_t>(::getpid());
  if (period && *period != 0 && !is_for_others) {
    watchdog_period_ = std::chrono::microseconds(*period);
  }
}

void ServiceManager::notify(std::string_view state) const {
  if (!socket_.is_open()) return;
  static_cast<void>(::send(socket_.number(), state.data(), state.size(), MSG_NOSIGNAL));
}

}  // namespace sluice::http
