// What tests leave out under the sanitizers: what they measure of the process is then not what the
// program takes.
#pragma once

#include <cstddef>

#include "base/sanitizer.h"

namespace sluice::test {

using base::is_sanitized;
using base::is_thread_sanitized;

// Cases that take many models through the same code take one of so many: under the sanitizers that
// is slow, and the others would show them nothing new.
inline constexpr std::size_t sample_step = is_sanitized ? 4 : 1;

}  // namespace sluice::test
