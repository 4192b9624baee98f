// Whether a sanitizer that holds memory of its own runs with the tests: what they measure of the
// process is then not what the program takes.
#pragma once

#include <cstddef>

namespace sluice::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool is_sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool is_sanitized = true;
#else
inline constexpr bool is_sanitized = false;
#endif
#else
inline constexpr bool is_sanitized = false;
#endif

// Cases that take many models through the same code take one of so many: under the sanitizers that
// is slow, and the others would show them nothing new.
inline constexpr std::size_t sample_step = is_sanitized ? 4 : 1;

#if defined(__SANITIZE_THREAD__)
inline constexpr bool is_thread_sanitized = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool is_thread_sanitized = true;
#else
inline constexpr bool is_thread_sanitized = false;
#endif
#else
inline constexpr bool is_thread_sanitized = false;
#endif

}  // namespace sluice::test
