// Chooses a format for each matrix, so that a file is as exact as its size allows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/quant/converted_file.h"
#include "kernels/block_formats.h"
#include "topology/thread_team.h"

namespace sluice::quant {

// What a matrix would take in a format, and lose by it.
struct TypeOption {
  kernels::BlockType type;
  std::uint64_t bytes = 0;
  double error = 0;  // of its products, relative to their squares
};

// Bytes of a tensor in a GGUF file, with what aligns the next one.
std::uint64_t aligned_bytes(const PlannedTensor& tensor, kernels::BlockType type);

// The formats that a matrix may have, of fewer bytes than it has now, and the one that it has.
// Errors are those of some of its rows, weighted by its importances: the sum of w (x - x')^2 over
// that of w x^2. Formats that need importances are left out where there are none. Throws
// ModelError where a value is not finite or no format can hold it, and what the tensor's `read`
// does.
std::vector<TypeOption> type_options(const PlannedTensor& tensor, topology::ThreadTeam& team);

// What to warn of where matrices become a format for ternary or binary weights, and are neither:
// products with them are then far from what they were. Empty where there are none. Throws as
// type_options() does.
std::string warning_of_few_values(std::span<const PlannedTensor> tensors);

// The place of one option for each matrix, which together take at most `bytes_max`; nothing if the
// smallest take more. Beginning with the smallest, goes from option to option of the matrices in
// the order of what a byte takes off the errors, and passes over those that do not fit. So the sum
// of errors is the least of that size but for the last few options; more bytes never give a larger
// one.
std::optional<std::vector<std::size_t>> choose_options(
    std::span<const std::vector<TypeOption>> matrices, std::uint64_t bytes_max);

}  // namespace sluice::quant
