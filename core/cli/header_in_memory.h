// The header of a model that nobody has written to a disk, as a file that can be planned.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/descriptor.h"

namespace sluice::cli {

class HeaderInMemory {
 public:
  // Throws std::system_error.
  explicit HeaderInMemory(std::span<const std::byte> bytes);

  std::filesystem::path path() const;  // as long as this lives

 private:
  base::Descriptor file_;
};

}  // namespace sluice::cli
