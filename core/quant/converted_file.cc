#include "core/quant/converted_file.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <string_view>

#include "core/error.h"
#include "core/text/quoted.h"
#include "kernels/encode.h"
#include "topology/machine.h"

namespace sluice::quant {
namespace {

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
        "one with `sluice imatrix`, and give it to `sluice quantize` with --imatrix, or give this "
        "tensor another format with --tensor-types",
        text::quoted(tensor.name), to.name));
  }
}

// What a matrix is divided by so that its blocks fit into NVFP4, by its largest magnitude.
float scale_for(float largest) {
  constexpr float least = std::numeric_limits<float>::min();
  const float scale = largest / kernels::largest_nvfp4;
  // Rounded up: a quotient must not be too large.
  return scale < least ? 1 : std::nextafter(scale, std::numeric_limits<float>::infinity());
}

// The change of a tensor, and then the division by the scale of each matrix.
RowChange divided(const Conversion& conversion, std::span<const float> scales) {
  return [change = conversion.change, rows = conversion.rows_per_matrix, scales](
             std::uint64_t row, std::span<float> values) {
    if (change) change(row, values);
    const float scale = scales[rows > 0 ? row / rows : 0];
    for (float& value : values) value /= scale;
  };
}

// A tensor of the file: one that is planned, or the scale of one.
struct Written {
  const PlannedTensor* tensor;
  std::string scale_name;  // empty: the tensor itself
  bool is_divided = false;
};

std::vector<Written> list_written(std::span<const PlannedTensor> tensors) {
  std::vector<Written> list;
  for (const PlannedTensor& tensor : tensors) {
    const std::optional<std::string> scale = tensor_scale_of(tensor);
    const bool is_divided =
        scale && std::ranges::find(tensors, *scale, &PlannedTensor::name) == tensors.end();
    if (is_divided) list.push_back({&tensor, *scale});
    list.push_back({&tensor, {}, is_divided});
  }
  return list;
}

void add_tensor(const Written& written, gguf::Writer& writer) {
  const PlannedTensor& tensor = *written.tensor;
  if (written.scale_name.empty()) {
    return writer.add_tensor(tensor.name, tensor.dims, static_cast<std::uint32_t>(tensor.to));
  }
  const Conversion conversion = conversion_of(tensor);
  const std::vector<std::uint64_t> dims = {conversion.matrix_of(conversion.rows - 1) + 1};
  writer.add_tensor(written.scale_name, dims, static_cast<std::uint32_t>(kernels::BlockType::f32));
}

}  // namespace

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

std::optional<std::string> tensor_scale_of(const PlannedTensor& tensor) {
  constexpr std::string_view suffix = ".weight", table = "nextn.embed_tokens.weight";
  const bool is_product = (tensor.name.starts_with("blk.") && !tensor.name.ends_with(table)) ||
                          tensor.name == "output.weight";
  if (tensor.to != kernels::BlockType::nvfp4 || tensor.from == tensor.to || !is_product ||
      tensor.dims.size() < 2 || !tensor.name.ends_with(suffix)) {
    return std::nullopt;
  }
  return tensor.name.substr(0, tensor.name.size() - suffix.size()) + ".scale";
}

void add_tensors(std::span<const PlannedTensor> tensors, gguf::Writer& writer) {
  for (const Written& written : list_written(tensors)) add_tensor(written, writer);
}

void write_converted(const std::filesystem::path& path, gguf::Writer& writer,
                     std::span<const PlannedTensor> tensors, const ConvertOptions& options) {
  for (const PlannedTensor& tensor : tensors) check_can_write(tensor);
  add_tensors(tensors, writer);
  const std::vector<Written> list = list_written(tensors);
  topology::ThreadTeam team(
      topology::choose_threads(topology::read_machine(), options.threads).cpus);
  RowConverter converter(team);
  std::uint64_t done = 0;
  std::vector<float> scales;  // of the tensor that is next
  writer.write(path, [&](std::size_t index, const gguf::Writer::Sink& file) {
    const auto put = [&](std::span<const std::byte> piece) {
      file(piece);
      done += piece.size();
      if (options.progress) options.progress(done, writer.data_bytes());
    };
    const PlannedTensor& tensor = *list[index].tensor;
    Conversion conversion = conversion_of(tensor);
    if (!list[index].scale_name.empty()) {
      scales = converter.largest_magnitudes(conversion, tensor.read);
      std::ranges::transform(scales, scales.begin(), scale_for);
      return put(std::as_bytes(std::span(scales)));
    }
    if (list[index].is_divided) conversion.change = divided(conversion, scales);
    converter.convert(conversion, tensor.read, put);
  });
}

}  // namespace sluice::quant
