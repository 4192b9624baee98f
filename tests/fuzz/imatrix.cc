// Importance matrices, as files.
#include "core/quant/imatrix.h"

#include <string>
#include <vector>

#include "core/error.h"
#include "tests/fuzz/fuzz.h"
#include "tests/temporary_folder.h"

namespace sluice::fuzz {

void run(std::string_view input) {
  const InputFile file(input);
  try {
    const quant::Imatrix matrix = quant::Imatrix::read(file.path());
    for (const auto& [name, entry] : matrix.entries()) {
      require(entry.columns != 0 && entry.sums.size() == entry.columns * entry.counts.size(),
              "there is a sum for each column");
      const std::vector<std::uint64_t> dims = {entry.columns, 2, entry.counts.size()};
      const std::vector<float> found = matrix.importance(name, dims);
      require(found.empty() || found.size() == entry.sums.size(), "there is a weight for each sum");
    }
  } catch (const ModelError&) {
  }
}

std::vector<std::string> seeds() {
  const auto file_of = [](const quant::Imatrix& matrix) {
    const std::filesystem::path path = scratch_folder() / "imatrix.gguf";
    matrix.write(path);
    return test::content(path);
  };
  return {file_of(quant::Imatrix({{"blk.0.attn_q.weight", {4, {1, 2, 3, 4}, {5}}},
                                  {"blk.0.ffn_up_exps.weight", {2, {1, 2, 3, 4}, {5, 0}}}},
                                 "text", 3, 512)),
          file_of({})};
}

}  // namespace sluice::fuzz
