// Tells the service manager how the server is doing (sd_notify(3)), without its library.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include "base/descriptor.h"

namespace sluice::http {

// Threads: any; a notice is one datagram.
class ServiceManager {
 public:
  // Takes NOTIFY_SOCKET and WATCHDOG_USEC from the environment; without them notices go nowhere.
  // The socket is opened here, since a process may not be able to later (base/confinement.h).
  ServiceManager();

  // Sends "READY=1", "STOPPING=1", "STATUS=..." or several of them on lines of their own. A manager
  // that does not listen is no error.
  void notify(std::string_view state) const;

  // How often "WATCHDOG=1" is expected; nothing: never.
  std::optional<std::chrono::microseconds> watchdog_period() const { return watchdog_period_; }

 private:
  base::Descriptor socket_;  // connected; or none
  std::optional<std::chrono::microseconds> watchdog_period_;
};

}  // namespace sluice::http
