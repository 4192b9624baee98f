#include "core/model/architecture.h"

#include <array>
#include <fmt/format.h>
#include <string>

#include "core/model/llama.h"

namespace sluice::model {
namespace {

struct Known {
  std::string_view name;
  std::unique_ptr<Architecture> (*make)(const gguf::Model&, WeightLayout&);
};

constexpr std::array known = {
    Known{"llama", make_llama},
};

}  // namespace

std::unique_ptr<Architecture> make_architecture(const gguf::Model& model, WeightLayout& layout) {
  const std::string_view name = model.metadata().require_string("general.architecture");
  for (const Known& k : known) {
    if (k.name == name) return k.make(model, layout);
  }
  std::string names;
  for (const Known& k : known) names += (names.empty() ? "" : ", ") + std::string(k.name);
  throw ModelError(fmt::format("{}: architecture '{}' is not supported; supported are: {}",
                               model.metadata().source(), name, names));
}

}  // namespace sluice::model
