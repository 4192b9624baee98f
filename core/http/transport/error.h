// An error for a client, whoever finds it: the transport, the API or a job.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace sluice::http {

// Ends the handling of a request. The message is for the client: it names no file of the server.
struct ApiError : std::runtime_error {
  ApiError(unsigned status_, const std::string& message, std::string code_ = "",
           std::optional<unsigned> retry_after_s_ = std::nullopt)
      : std::runtime_error(message),
        status(status_),
        code(std::move(code_)),
        retry_after_s(retry_after_s_) {}
  unsigned status;
  std::string code;  // a word for programs; empty: that of the status
  std::optional<unsigned> retry_after_s;
};

// What a client hears for which there is no memory now.
inline ApiError no_memory() {
  return {503, "the server holds as much for its clients as it may: try again later", "overloaded",
          1};
}

// For a client whose data the disk does not take.
inline ApiError storage_error(const std::system_error& error) {
  return {507, "the server cannot keep it: " + error.code().message()};
}

}  // namespace sluice::http
