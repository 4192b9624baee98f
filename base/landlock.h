// The system calls of Landlock, for base/confinement.cc. See landlock(7).
#pragma once

#include "base/confinement.h"

namespace sluice::base {

// The version of the interface; 0: this kernel has none, or it is turned off.
int landlock_version();

// Restricts this thread, and all that it starts later. Who downloads keeps connections, and may
// make links where it writes. Returns 0 or the errno of what has failed.
int restrict_files(const FileRights& rights, int version, bool downloads);

}  // namespace sluice::base
