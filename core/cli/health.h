// What of this machine slows sluice down or breaks it, and what to do about it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/confinement.h"
#include "kernels/kernel_table.h"
#include "topology/machine.h"

namespace sluice::cli {

enum class Health : std::uint8_t { good, slow, broken };
std::string_view health_name(Health health);  // "good", "slow", "broken"

// What one thing is like. Where it is not good, what to do about it, if anything can be done.
struct HealthCheck {
  std::string name;
  Health health = Health::good;
  std::string found;
  std::string remedy = {};
};

// How the weights of a file are read here (streaming::choose_reader).
struct ReadingFacts {
  std::string reader;              // "uring", "pread"
  std::vector<std::string> notes;  // what was tried and does not work
};

// Each looks at one thing. What the kernel does not tell counts as good.
HealthCheck check_processor(kernels::Isa isa);
HealthCheck check_threads(const topology::Machine& machine, const topology::ThreadChoice& threads);
HealthCheck check_memory(const topology::Machine& machine);
HealthCheck check_huge_pages(const topology::Machine& machine);
HealthCheck check_swap(const topology::FileRoot& root);
// The disk of `folder`, which must be there.
HealthCheck check_disk(const topology::FileRoot& root, const std::filesystem::path& folder);
HealthCheck check_reading(const ReadingFacts& facts);
HealthCheck check_open_files(std::uint64_t most);
// What --sandbox can do here. A machine without it is neither slow nor broken.
HealthCheck check_sandbox(const base::Confinement& possible);
// Whether files can be written in `folder`. It is made if it is not there; empty: there is none.
HealthCheck check_state_folder(const std::filesystem::path& folder);

}  // namespace sluice::cli
