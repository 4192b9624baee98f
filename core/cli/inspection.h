// Describes a model file, as text for people and as JSON for programs.
#pragma once

#include <cstdint>
#include <string>

#include "core/gguf/gguf.h"

namespace sluice::cli {

// One JSON object with everything: files, metadata, types and tensors. An array of more than 64
// elements is given as {"element_type", "count"}.
std::string inspection_json(const gguf::Model& model);

// Tables; long strings and arrays are cut, control characters escaped.
std::string inspection_text(const gguf::Model& model, bool with_tensors);

// Bytes that the files would need beyond what they have to hold all tensors: of a download that is
// under way, or a header alone.
std::uint64_t missing_bytes(const gguf::Model& model);

}  // namespace sluice::cli
