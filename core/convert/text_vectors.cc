#include "core/convert/text_vectors.h"

#include <fmt/format.h>
#include <string>
#include <string_view>
#include <utility>

#include "core/convert/config.h"
#include "core/convert/json_file.h"
#include "core/text/quoted.h"

namespace sluice::convert {
namespace {

namespace fs = std::filesystem;

std::uint32_t read_pooling(const fs::path& folder) {
  const fs::path path = folder / "config.json";
  const Config config(read_json(path, config_bytes_max), path.string());
  constexpr std::pair<const char*, std::uint32_t> known[] = {{"pooling_mode_mean_tokens", 1},
                                                             {"pooling_mode_cls_token", 2},
                                                             {"pooling_mode_lasttoken", 3}};
  constexpr const char* others[] = {"pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
                                    "pooling_mode_weightedmean_tokens"};
  for (const char* key : others) {
    if (config.find_flag(key).value_or(false)) throw config.error(key, "is not supported");
  }
  std::optional<std::uint32_t> pooling;
  for (const auto& [key, number] : known) {
    if (!config.find_flag(key).value_or(false)) continue;
    if (pooling) throw config.error(key, "is one of several, which is not supported");
    pooling = number;
  }
  if (!pooling) throw config.error("pooling_mode_mean_tokens", "is not true, nor is another");
  return *pooling;
}

DenseModule read_dense(const fs::path& folder, std::uint64_t columns) {
  const fs::path path = folder / "config.json";
  const Config config(read_json(path, config_bytes_max), path.string());
  const std::string activation = config.find_text("activation_function").value_or("");
  if (!activation.ends_with("Identity")) {
    throw config.error("activation_function", "is not that of torch called Identity");
  }
  if (config.find_flag("bias").value_or(true)) throw config.error("bias", "is not false");
  auto checkpoint = std::make_shared<const Checkpoint>(Checkpoint::open(folder));
  const StoredTensor* weight = checkpoint->find("linear.weight");
  if (weight == nullptr || checkpoint->tensors().size() != 1) {
    throw ModelError(fmt::format("{}: holds not linear.weight alone", folder.string()));
  }
  if (weight->shape.size() != 2 || weight->shape[0] == 0 || weight->shape[1] != columns) {
    throw ModelError(fmt::format("{}: tensor linear.weight has shape [{}], expected [any, {}]",
                                 folder.string(), fmt::join(weight->shape, ", "), columns));
  }
  return {std::move(checkpoint), *weight};
}

}  // namespace

TextVectors read_text_vectors(const fs::path& folder, std::uint64_t embedding) {
  TextVectors vectors;
  const fs::path path = folder / "modules.json";
  if (!fs::exists(path)) return vectors;
  const nlohmann::json modules = read_json(path, config_bytes_max);
  if (!modules.is_array()) throw ModelError(path.string() + ": is not a list");
  for (const nlohmann::json& one : modules) {
    const Config module(one, path.string());
    const std::string type = module.find_text("type").value_or("");
    const std::string_view name = std::string_view(type).substr(type.rfind('.') + 1);
    const fs::path place = module.find_text("path").value_or("");
    if (name == "Transformer" || name == "Normalize") continue;
    if (place.empty() || place.filename() != place || place == "..") {
      throw module.error("path", "is no folder beside modules.json");
    }
    if (name == "Pooling") {
      vectors.pooling = read_pooling(folder / place);
    } else if (name == "Dense" && vectors.dense.size() < 2) {
      vectors.dense.push_back(read_dense(folder / place, embedding));
      embedding = vectors.dense.back().weight.shape.front();
    } else {
      throw module.error("type", fmt::format("is {}; supported are Transformer, Pooling, up to two "
                                             "Dense, and Normalize",
                                             text::quoted(type)));
    }
  }
  return vectors;
}

}  // namespace sluice::convert
