// Work on a thread with little stack: what recurses as deep as a stranger's input says breaks
// there.
#pragma once

#include <cstddef>
#include <functional>
#include <pthread.h>

#include "tests/catch.h"
#include "tests/sanitized.h"

namespace sluice::test {

// Frames are several times as large under a sanitizer.
inline constexpr std::size_t small_stack_bytes = std::size_t{is_sanitized ? 2048 : 256} << 10;

// `work` must not throw.
inline void run_on_small_stack(std::function<void()> work,
                               std::size_t stack_bytes = small_stack_bytes) {
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, stack_bytes) == 0);
  pthread_t thread{};
  const auto run = [](void* given) -> void* {
    (*static_cast<std::function<void()>*>(given))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, run, &work) == 0);
  REQUIRE(pthread_join(thread, nullptr) == 0);
  pthread_attr_destroy(&attributes);
}

}  // namespace sluice::test
