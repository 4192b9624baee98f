// The parts of a batch that was divided with --shard, put together in the order of the input.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace sluice::batch {

struct Merged {
  std::uint64_t rows = 0;
  std::uint64_t errors = 0;  // among them
};

// Writes the results of all parts to `output`, which appears when it is complete and may have the
// name of a part or of another output of a batch; another file is not replaced. Each part needs its
// state beside it. Throws UsageError when the parts do not belong to one job or the output is such
// a file, Error when a row is missing or there twice, std::system_error for I/O.
Merged merge_parts(const std::vector<std::filesystem::path>& parts,
                   const std::filesystem::path& output);

}  // namespace sluice::batch
