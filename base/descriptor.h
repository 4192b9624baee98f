// An open file descriptor and its owner: closed exactly once, on every way out.
#pragma once

#include <cerrno>
#include <unistd.h>
#include <utility>

namespace sluice::base {

class Descriptor {
 public:
  Descriptor() = default;  // none
  // Owns `number`, the result of open(2) and its like; a negative one is none.
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      close();
      number_ = other.release();
    }
    return *this;
  }

  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }
  int release() { return std::exchange(number_, -1); }

  // Leaves errno as it was: what is told is why something failed, not how it was cleaned up.
  void close() {
    if (!is_open()) return;
    const int before = errno;
    ::close(release());
    errno = before;
  }

 private:
  int number_ = -1;
};

}  // namespace sluice::base
