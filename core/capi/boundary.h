// Where C++ ends: nothing that is thrown gets past guarded(), and no pointer of a caller is
// trusted.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "core/capi/sluice.h"
#include "core/error.h"

namespace sluice::capi {

// Texts hold all that they may hold: SLUICE_BUSY.
class Busy : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Inside of a catch block: keeps the line of what was caught for sluice_last_error(), and returns
// its status.
int record_failure() noexcept;
const char* last_error() noexcept;  // of this thread

template <class Work>
int guarded(const Work& work) noexcept {
  try {
    work();
    return SLUICE_OK;
  } catch (...) {
    return record_failure();
  }
}

// Throws UsageError, which names the argument.
template <class T>
T* not_null(T* pointer, std::string_view name) {
  if (pointer == nullptr) throw UsageError(fmt::format("{} is NULL", name));
  return pointer;
}

// A text of the caller. Throws UsageError when it is NULL or no UTF-8.
std::string text_of(const char* text, std::string_view name);

// Checks the size that a struct of the caller says it has. No struct has grown yet, so there is
// one.
template <class T>
const T& sized(const T* given, std::string_view name) {
  if (not_null(given, name)->size == sizeof(T)) return *given;
  throw UsageError(
      fmt::format("{} says that it has {} bytes, and this library knows {}: begin it "
                  "with its _INIT macro, or build for this version of sluice",
                  name, given->size, sizeof(T)));
}

char* copied(std::string_view text);  // for sluice_free(); throws std::bad_alloc

std::uint64_t new_handle();  // never the same twice, for no kind of handle

// What the handles of one kind stand for. `Opaque` is the type that callers see; its pointers are
// numbers, so that a closed one is recognised. What is open when the process ends stays so.
template <class Opaque, class T>
class Handles {
 public:
  explicit Handles(std::string_view name) : name_(name) {}
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;

  Opaque* add(std::shared_ptr<T> thing) {
    const base::MutexLock lock(mutex_);
    const std::uint64_t handle = new_handle();
    held_.emplace(handle, std::move(thing));
    // NOLINTNEXTLINE(performance-no-int-to-ptr): nobody follows it
    return reinterpret_cast<Opaque*>(static_cast<std::uintptr_t>(handle));
  }
  // Throws UsageError for NULL, and for what is no handle of this kind, or no longer.
  std::shared_ptr<T> get(const Opaque* handle) const {
    not_null(handle, name_);
    const base::MutexLock lock(mutex_);
    const auto found = held_.find(number(handle));
    if (found == held_.end()) refuse();
    return found->second;
  }
  void close(const Opaque* handle) {
    if (handle == nullptr) return;
    std::shared_ptr<T> thing;
    {
      const base::MutexLock lock(mutex_);
      const auto found = held_.find(number(handle));
      if (found == held_.end()) refuse();
      thing = std::move(found->second);
      held_.erase(found);
    }
    thing->close();
  }

 private:
  static std::uint64_t number(const Opaque* handle) {
    return reinterpret_cast<std::uintptr_t>(handle);
  }
  [[noreturn]] void refuse() const {
    throw UsageError(fmt::format("the {} is closed, or was never opened", name_));
  }

  std::string_view name_;
  mutable base::Mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<T>> held_ SLUICE_GUARDED_BY(mutex_);
};

}  // namespace sluice::capi
