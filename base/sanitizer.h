// Whether this build has a sanitizer that takes memory of its own and more time than the program,
// so that nothing which is measured here tells of the program itself.
#pragma once

namespace sluice::base {

#if defined(__has_feature)
#define SLUICE_HAS_FEATURE(name) __has_feature(name)
#else
#define SLUICE_HAS_FEATURE(name) 0
#endif

#if defined(__SANITIZE_THREAD__) || SLUICE_HAS_FEATURE(thread_sanitizer)
inline constexpr bool is_thread_sanitized = true;
#else
inline constexpr bool is_thread_sanitized = false;
#endif

#if defined(__SANITIZE_ADDRESS__) || SLUICE_HAS_FEATURE(address_sanitizer) || \
    SLUICE_HAS_FEATURE(memory_sanitizer)
inline constexpr bool is_sanitized = true;
#else
inline constexpr bool is_sanitized = is_thread_sanitized;
#endif

#undef SLUICE_HAS_FEATURE

}  // namespace sluice::base
