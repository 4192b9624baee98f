#include "base/confinement.h"

#include <atomic>
#include <cerrno>
#include <sys/prctl.h>
#include <system_error>

#include "base/call_filter.h"
#include "base/landlock.h"
#include "base/sanitizer.h"

namespace sluice::base {
namespace {

std::string failure(const char* what, int error) {
  return what + std::generic_category().message(error) + ")";
}

}  // namespace

Confinement possible_confinement() {
  // What reports a defect starts a program that knows the names of functions.
  if (is_sanitized) return {.lacking = "this build has a sanitizer, which it would stop"};
  Confinement possible{landlock_version(), has_call_filters()};
  if (!possible.filters_calls) {
    possible.lacking = "no filters of system calls (seccomp) are allowed here";
  } else if (possible.landlock_version == 0) {
    possible.lacking =
        "no Landlock, so files are not guarded (it needs Linux 5.13, with landlock among the "
        "security modules, and a container that allows it)";
  }
  return possible;
}

namespace {

std::atomic<bool> code_is_forbidden = false;

Confinement confine_with(const FileRights& rights, int (*filter)(), bool downloads = false) {
  const Confinement possible = possible_confinement();
  Confinement holds{.lacking = possible.lacking};
  if (possible.landlock_version == 0 && !possible.filters_calls) return holds;
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    holds.lacking = failure("rights cannot be given up (", errno);
    return holds;
  }
  if (possible.landlock_version > 0) {
    if (const int error = restrict_files(rights, possible.landlock_version, downloads)) {
      holds.lacking = failure("files cannot be guarded (Landlock: ", error);
    } else {
      holds.landlock_version = possible.landlock_version;
    }
  }
  if (possible.filters_calls) {
    if (const int error = filter()) {
      holds.lacking = failure("system calls cannot be filtered (seccomp: ", error);
    } else {
      holds.filters_calls = true;
    }
  }
  return holds;
}

}  // namespace

Confinement confine(const FileRights& rights) {
  Confinement holds = confine_with(rights, filter_calls_of_process);
  if (holds.filters_calls) code_is_forbidden = true;
  return holds;
}

Confinement confine_download(const FileRights& rights) {
  return confine_with(rights, filter_calls_of_download, true);
}

bool is_code_forbidden() {
  return code_is_forbidden;
}

Confinement confine_serving_thread(const FileRights& rights) {
  return confine_with(rights, filter_calls_of_serving_thread);
}

}  // namespace sluice::base
