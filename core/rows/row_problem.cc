#include "core/rows/row_problem.h"

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>
#include <system_error>

namespace sluice::rows {

std::string problem_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return "there is not enough memory for this: try again later";
  }
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    return system->code().message();  // what() may name a file
  }
  if (dynamic_cast<const nlohmann::json::exception*>(&error) != nullptr) {
    return "a value is not of the kind that is expected at its place";
  }
  std::string line = error.what();
  std::ranges::replace_if(
      line, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return line;
}

}  // namespace sluice::rows
