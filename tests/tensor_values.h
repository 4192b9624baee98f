// What the tests of conversions compare: the values that a tensor of a file stands for.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/gguf/gguf.h"
#include "core/model/file_bytes.h"
#include "kernels/dequantise.h"

namespace sluice::test {

// Throws ModelError when there is no such tensor.
inline std::vector<float> values_of(const gguf::Model& model, const std::string& name) {
  const gguf::TensorInfo& tensor = model.require_tensor(name);
  std::vector<std::byte> bytes(tensor.bytes);
  model::FileBytes(model.files()[tensor.file].path).read(tensor.offset, bytes);
  std::vector<float> values(tensor.elements());
  kernels::dequantise(static_cast<kernels::BlockType>(tensor.type), bytes.data(), values.size(),
                      values.data());
  return values;
}

}  // namespace sluice::test
