// What Tab offers at the end of a text.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::cli {

// What the end of a text may become: texts that all begin with its last `typed_bytes` bytes.
struct Completions {
  std::vector<std::string> texts;
  std::size_t typed_bytes = 0;
};
using Completer = std::function<Completions(std::string_view text)>;

// Those of the words that begin with what was typed of one, in their order.
Completions complete_word(const std::vector<std::string>& words, std::string_view typed);

// The files and folders (with a slash) whose path begins with what was typed of one, sorted. Hidden
// ones only when their dot was typed.
Completions complete_file(std::string_view typed);

}  // namespace sluice::cli
