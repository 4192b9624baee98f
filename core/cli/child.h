// What another process has brought for this one, which never loads what fetching takes: it plans
// and runs in the same memory as with a model that was here.
#pragma once

#include <functional>
#include <string>

namespace sluice::cli {

// Runs `work` in a process of its own, with the same standard error, and returns what it returns.
// Throws Error and UsageError as it does, and Interrupted. Call it while there is one thread.
std::string in_child(const std::function<std::string()>& work);

}  // namespace sluice::cli
