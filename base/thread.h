// A thread of the program. All threads but the main one are of this type.
//
// Signals to the process go to the main thread, which knows what to do with them: the others block
// them. Signals raised by a fault are not blocked; they go to the thread at fault.
#pragma once

#include <csignal>
#include <pthread.h>
#include <system_error>
#include <thread>
#include <utility>

namespace sluice::base {

class Thread {
 public:
  Thread() = default;  // none
  // Starts a thread that calls f(). Throws std::system_error when the system has none left.
  template <class Function>
  explicit Thread(Function f) {
    const SignalsBlocked guard;
    try {
      thread_ = std::thread(std::move(f));
    } catch (const std::system_error& error) {
      throw std::system_error(error.code(),
                              "no thread can be started (see ulimit -u, and pids.max "
                              "of the control group)");
    }
  }
  // Waits for the thread to end. Its owner has told it to by then.
  ~Thread() { join(); }
  Thread(Thread&&) noexcept = default;
  Thread& operator=(Thread&& other) noexcept {
    join();
    thread_ = std::move(other.thread_);
    return *this;
  }

  bool joinable() const { return thread_.joinable(); }
  void join() {  // no thread: does nothing
    if (thread_.joinable()) thread_.join();
  }
  pthread_t native_handle() { return thread_.native_handle(); }

 private:
  // A thread inherits the mask of the one that starts it.
  class SignalsBlocked {
   public:
    SignalsBlocked() {
      sigset_t blocked;
      sigfillset(&blocked);
      for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
        sigdelset(&blocked, fault);
      }
      ::pthread_sigmask(SIG_SETMASK, &blocked, &before_);
    }
    ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

   private:
    sigset_t before_;
  };

  std::thread thread_;
};

}  // namespace sluice::base
