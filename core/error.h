// The errors that reach the user. An exception carries one clear line (the thing, the place, the
// remedy) and the status with which the program ends. Leaf folders know nothing of exit codes:
// they throw std::system_error for I/O and std::invalid_argument for misuse, and
// exit_code_of() says what that is to the user.
#pragma once

#include <stdexcept>
#include <string>
#include <system_error>

namespace sluice {

enum class ExitCode : int {
  done = 0,
  failure = 1,  // anything not named below
  usage = 2,    // an argument or option is wrong
  model = 3,    // the model file is bad or not supported
  budget = 4,   // the memory budget cannot be met; the message names the least that can
  io = 5,       // reading or writing failed
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// A model file that is malformed or asks for what is not supported.
class ModelError : public Error {
 public:
  explicit ModelError(const std::string& message) : Error(ExitCode::model, message) {}
};

class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ExitCode::usage, message) {}
};

// The status for whatever was thrown. When there are no more threads, no file is to blame.
inline ExitCode exit_code_of(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return ours->code();
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    const bool is_io = system->code() != std::errc::resource_unavailable_try_again;
    return is_io ? ExitCode::io : ExitCode::failure;
  }
  const bool is_misuse = dynamic_cast<const std::invalid_argument*>(&error) != nullptr;
  return is_misuse ? ExitCode::usage : ExitCode::failure;
}

}  // namespace sluice
