// The header of a model that nobody has written to a disk, as a file that can be planned.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/descriptor.h"

namespace sluice::cli {

// A confined process can make none (core/cli/sandbox.h), but fill one that it has.
class HeaderInMemory {
 public:
  HeaderInMemory();  // empty

  // Holds another header, in the place of the last one. Throws std::system_error.
  void hold(std::span<const std::byte> bytes);
  std::filesystem::path path() const;  // as long as this lives

 private:
  base::Descriptor file_;
};

}  // namespace sluice::cli
