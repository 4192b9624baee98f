#include "core/quant/converted_file.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/text/quoted.h"
#include "kernels/encode.h"
#include "topology/machine.h"

namespace sluice::quant {
namespace {

Conversion conversion_of(const PlannedTensor& tensor) {
  Conversion conversion{tensor.name, tensor.from, tensor.to};
  conversion.columns = tensor.dims[0];
  conversion.rows = 1;
  for (std::size_t i = 1; i < tensor.dims.size(); ++i) conversion.rows *= tensor.dims[i];
  conversion.rows_per_matrix = tensor.dims.size() > 2 ? tensor.dims[1] : 0;
  conversion.change = tensor.change;
  conversion.importance = tensor.importance;
  return conversion;
}

// Whether a format has so few bits that a file is useless unless columns are weighted.
bool needs_importance(kernels::BlockType type) {
  switch (type) {
    case kernels::BlockType::iq1_s:
    case kernels::BlockType::iq1_m:
    case kernels::BlockType::iq2_xxs:
    case kernels::BlockType::iq2_xs:
    case kernels::BlockType::iq2_s:
      return true;
    default:
      return false;
  }
}

void check_can_write(const PlannedTensor& tensor) {
  const kernels::BlockTraits& to = kernels::traits(tensor.to);
  if (tensor.from == tensor.to) return;
  if (!to.can_encode) {
    throw UsageError(fmt::format("tensor {} would become {}, which cannot be written",
                                 text::quoted(tensor.name), to.name));
  }
  if (needs_importance(tensor.to) && tensor.importance.empty()) {
    throw UsageError(fmt::format(
        "tensor {} would become {}, which needs an importance matrix that has this tensor; make "
        "one with `sluice imatrix`, and give it to `sluice quantize` with --imatrix",
        text::quoted(tensor.name), to.name));
  }
}

}  // namespace

void write_converted(const std::filesystem::path& path, gguf::Writer& writer,
                     std::span<const PlannedTensor> tensors, const ConvertOptions& options) {
  for (const PlannedTensor& tensor : tensors) {
    check_can_write(tensor);
    writer.add_tensor(tensor.name, tensor.dims, static_cast<std::uint32_t>(tensor.to));
  }
  topology::ThreadTeam team(
      topology::choose_threads(topology::read_machine(), options.threads).cpus);
  RowConverter converter(team);
  std::uint64_t done = 0;
  writer.write(path, [&](std::size_t index, const gguf::Writer::Sink& file) {
    const PlannedTensor& tensor = tensors[index];
    converter.convert(conversion_of(tensor), tensor.read, [&](std::span<const std::byte> piece) {
      file(piece);
      done += piece.size();
      if (options.progress) options.progress(done, writer.data_bytes());
    });
  });
}

}  // namespace sluice::quant
