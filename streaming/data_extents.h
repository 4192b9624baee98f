// Where a file has data. The holes of a sparse file read as zeros, without any disk: a file that is
// only a header, or a download that was given its size before it has come, is mostly hole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace sluice::streaming {

struct Extent {
  std::uint64_t begin = 0, end = 0;  // bytes of the file
};

// In ascending order. The whole file where the file system does not tell, and what follows a great
// many holes counts as data. Throws std::system_error when the file cannot be opened.
std::vector<Extent> data_extents(const std::filesystem::path& file);

// Whether so much of the file is hole that it cannot be the weights of a model.
bool is_mostly_hole(const std::filesystem::path& file);

}  // namespace sluice::streaming
