#include <string>
#include <vector>

#include "tests/fuzz/hostile_model.h"

namespace sluice::fuzz {

void run(std::string_view input) {
  static_cast<void>(try_hostile_model(Choices(input)));
}

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < hostile_models().size(); ++i) {
    const std::string base = {static_cast<char>(i), '\1'};
    all.push_back(base);
    all.push_back(base + std::string({'\0', '\1', '\1', static_cast<char>(i), '\1', '\5'}));
    all.push_back(base + std::string({'\1', static_cast<char>(i), '\5', '\0', '\x13', '\1'}));
  }
  return all;
}

}  // namespace sluice::fuzz
