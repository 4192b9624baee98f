// The filters of system calls for base/confinement.cc. See seccomp(2).
#pragma once

namespace sluice::base {

// Whether this kernel has filters, with the actions that are used here.
bool has_call_filters();

// Each installs a filter: for all threads of the process, or for this one.
// Returns 0 or an errno. The process must not be able to gain rights (PR_SET_NO_NEW_PRIVS).
int filter_calls_of_process();
int filter_calls_of_download();
int filter_calls_of_serving_thread();

}  // namespace sluice::base
