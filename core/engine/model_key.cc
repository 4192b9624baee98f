#include "core/engine/model_key.h"

#include <algorithm>
#include <array>
#include <fcntl.h>
#include <fmt/format.h>
#include <span>
#include <system_error>

#include "core/files/read_at.h"
#include "streaming/data_file.h"

namespace sluice::engine {
namespace {

// Derives a key from a part of a file.
PageKey derive(PageKey key, const streaming::DataFile& file, std::uint64_t begin,
               std::uint64_t bytes) {
  std::array<std::byte, 65536> buffer;
  while (bytes > 0) {
    const auto part = std::span(buffer).first(
        static_cast<std::size_t>(std::min<std::uint64_t>(bytes, buffer.size())));
    const auto fail = [&file](std::error_code error) {
      throw std::system_error(error, fmt::format("cannot read {}", file.path().string()));
    };
    std::size_t read_bytes = 0;
    try {
      read_bytes = files::read_at(file.descriptor(), part, begin);
    } catch (const std::system_error& error) {
      fail(error.code());
    }
    if (read_bytes != part.size()) fail(std::make_error_code(std::errc::io_error));
    key = key.derive(part);
    begin += part.size();
    bytes -= part.size();
  }
  return key;
}

PageKey derive(PageKey key, const streaming::DataFile& file, const gguf::TensorInfo& tensor) {
  if (tensor.bytes <= tensor_samples * tensor_sample_bytes) {
    return derive(key, file, tensor.offset, tensor.bytes);
  }
  const std::uint64_t last = tensor.bytes - tensor_sample_bytes;
  for (std::uint64_t i = 0; i < tensor_samples; ++i) {
    const std::uint64_t begin = last / (tensor_samples - 1) * i;
    const std::uint64_t offset = tensor.offset + (i + 1 == tensor_samples ? last : begin);
    key = derive(key, file, offset, tensor_sample_bytes);
  }
  return key;
}

}  // namespace

PageKey model_key(const gguf::Model& model) {
  PageKey key;
  for (std::uint32_t i = 0; i < model.files().size(); ++i) {
    const gguf::ModelFile& facts = model.files()[i];
    const streaming::DataFile file(facts.path, streaming::DataFile::Access::buffered);
    facts.require_same(file.identity());
    // Readahead would read much of the model for the sake of the samples.
    (void)::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_RANDOM);
    const std::array sizes{facts.file_bytes, facts.data_offset};
    key = key.derive(std::as_bytes(std::span(sizes)));
    key = derive(key, file, 0, facts.data_offset);
    for (const gguf::TensorInfo& tensor : model.tensors()) {
      if (tensor.file == i) key = derive(key, file, tensor);
    }
  }
  return key;
}

}  // namespace sluice::engine
