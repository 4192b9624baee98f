#include "core/sampling/model_defaults.h"

#include <charconv>
#include <cstdint>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <string_view>

#include "core/error.h"

namespace sluice::sampling {
namespace {

// The shortest decimal number that is this float: 0.8, and not 0.800000011920929.
double decimal(float value) {
  const std::string text = fmt::format("{}", value);
  double number = value;
  std::from_chars(text.data(), text.data() + text.size(), number);  // whatever the locale is
  return number;
}

class Recommendation {
 public:
  explicit Recommendation(const gguf::Metadata& metadata) : metadata_(metadata) {}

  void take_number(std::string_view key, const char* name, double least, double most,
                   double& setting) {
    take(key, name, [&](const std::string& full) -> std::optional<double> {
      const std::optional<float> value = metadata_.find_f32(full);
      if (!value) return std::nullopt;
      const double number = decimal(*value);
      if (number >= least && number <= most) return setting = number;
      throw metadata_.error(full, fmt::format("{} is out of range", number));
    });
  }

  // `negative` is what a negative number stands for.
  void take_count(std::string_view key, const char* name, std::uint32_t negative,
                  std::uint32_t most, std::uint32_t& setting) {
    take(key, name, [&](const std::string& full) -> std::optional<std::int64_t> {
      const std::optional<std::int64_t> value = metadata_.find_int(full);
      if (!value) return std::nullopt;
      if (*value > std::int64_t{most}) {
        throw metadata_.error(full, fmt::format("{} is out of range", *value));
      }
      setting = *value < 0 ? negative : static_cast<std::uint32_t>(*value);
      return setting;
    });
  }

  // A method that there is not here; `off` turns it off.
  void expect_off(std::string_view key, double off) {
    double value = off;
    take(key, nullptr, [&](const std::string& full) -> std::optional<double> {
      const gguf::Value* found = metadata_.find(full);
      if (found == nullptr) return std::nullopt;
      value = gguf::is_integer(found->type()) ? static_cast<double>(*metadata_.find_int(full))
                                              : double{*metadata_.find_f32(full)};
      if (value != off) throw metadata_.error(full, "this way to sample is not supported");
      return std::nullopt;
    });
  }

  ModelDefaults defaults;

 private:
  template <typename Read>
  void take(std::string_view key, const char* name, const Read& read) {
    try {
      const auto value = read(fmt::format("general.sampling.{}", key));
      if (value) defaults.recommended.push_back(fmt::format("{} {}", name, *value));
    } catch (const ModelError& error) {
      defaults.warnings.push_back(fmt::format("{}; it is ignored", error.what()));
    }
  }

  const gguf::Metadata& metadata_;
};

}  // namespace

ModelDefaults model_defaults(const gguf::Metadata& metadata) {
  constexpr double any = std::numeric_limits<double>::max();
  constexpr double above_0 = std::numeric_limits<double>::min();
  Recommendation file(metadata);
  SamplerOptions& sampler = file.defaults.sampler;
  file.take_number("temp", "temperature", 0, any, sampler.temperature);
  file.take_count("top_k", "top-k", 0, std::numeric_limits<std::int32_t>::max(), sampler.top_k);
  file.take_number("top_p", "top-p", 0, 1, sampler.top_p);
  file.take_number("min_p", "min-p", 0, 1, sampler.min_p);
  file.take_number("penalty_repeat", "repeat penalty", above_0, any, sampler.repeat_penalty);
  // A sampler holds so many tokens.
  constexpr std::uint32_t last_tokens_max = 4096;
  file.take_count("penalty_last_n", "penalised tokens", SamplerOptions::whole_text, last_tokens_max,
                  sampler.repeat_last_n);
  file.expect_off("xtc_probability", 0);
  file.expect_off("mirostat", 0);
  return file.defaults;
}

}  // namespace sluice::sampling
