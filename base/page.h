// The size of a page of memory.
#pragma once

#include <cstdint>
#include <unistd.h>

namespace sluice::base {

// As the kernel has it: 4096; 16384 or 65536 on some machines of aarch64.
inline const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));

}  // namespace sluice::base
