#include "core/convert/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <string_view>

#include "core/convert/families.h"
#include "core/text/quoted.h"

namespace sluice::convert {
namespace {

std::string rope_kind(const std::optional<Config>& settings) {
  if (!settings) return "default";
  const auto kind = settings->find_text("rope_type");
  const std::string name = kind ? *kind : settings->find_text("type").value_or("default");
  // Either with another base, or it only concerns texts that are longer than the context.
  if (name == "dynamic") return "default";
  return name == "su" ? "longrope" : name;
}

// `rotated`: elements of a head.
float rope_base(const Config& config, std::uint64_t rotated) {
  const auto settings = rope_settings(config);
  std::optional<float> found = config.find_number("rope_theta");
  if (!found && settings) found = settings->find_number("rope_theta");
  const float base = found.value_or(10000);
  if (!settings || rope_kind(settings) != "default" || rotated <= 2) return base;
  const std::optional<float> alpha = settings->find_number("alpha");
  if (!alpha) return base;
  if (*alpha <= 0) throw settings->error("alpha", "is not above 0");
  const auto size = static_cast<double>(rotated);
  return static_cast<float>(base * std::pow(static_cast<double>(*alpha), size / (size - 2)));
}

// Divisors of the frequencies of Llama 3.1: 1 for short wavelengths, `factor` for long ones, and a
// smooth passage between.
std::vector<float> llama3_factors(const Config& settings, float base, std::uint64_t head) {
  const double factor = settings.number("factor");
  const double low = settings.number("low_freq_factor"), high = settings.number("high_freq_factor");
  const double original = settings.number("original_max_position_embeddings");
  if (!(factor > 0 && low > 0 && high > low)) {
    throw settings.error("factor", "and the frequency factors are not positive and ascending");
  }
  std::vector<float> factors(head / 2);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double exponent = 2 * static_cast<double>(i) / static_cast<double>(head);
    const double wavelength = 2 * std::numbers::pi * std::pow(static_cast<double>(base), exponent);
    const double blend = std::clamp((original / wavelength - low) / (high - low), 0.0, 1.0);
    factors[i] = static_cast<float>(1 / ((1 - blend) / factor + blend));
  }
  return factors;
}

// How far LongRoPE goes beyond the context that a model was first trained for.
struct LongRope {
  std::uint32_t original_context;
  float magnitude;  // of cosines and sines
};

LongRope read_long_rope(const Config& config, const Config& settings) {
  const auto own = settings.find_count("original_max_position_embeddings");
  const std::uint32_t original = own ? *own : config.count("original_max_position_embeddings");
  const double scale =
      static_cast<double>(config.count("max_position_embeddings")) / static_cast<double>(original);
  const double stretch = scale > 1 ? std::sqrt(1 + std::log(scale) / std::log(original)) : 1;
  const bool is_known = original > 1 && std::isfinite(stretch);
  if (!is_known) throw config.error("original_max_position_embeddings", "is too small");
  return {original, settings.find_number("attention_factor").value_or(static_cast<float>(stretch))};
}

// Divisors of the frequencies, one of each pair.
std::vector<float> long_rope_factors(const Config& settings, const char* key, std::size_t pairs) {
  const nlohmann::json* list = settings.find_list(key);
  if (list == nullptr || list->size() != pairs) {
    throw settings.error(key, fmt::format("is not a list of {} numbers", pairs));
  }
  std::vector<float> factors;
  for (const nlohmann::json& one : *list) {
    factors.push_back(one.is_number() ? one.get<float>() : 0);
    if (!(std::isfinite(factors.back()) && factors.back() > 0)) {
      throw settings.error(key, "holds what is no positive number");
    }
  }
  return factors;
}

// 1 for the pairs that rotate, which are the first, and a number that stops all others.
std::vector<float> proportional_factors(const Config& settings, std::size_t pairs) {
  constexpr float stopped = 1e30f;
  const float share = settings.find_number("partial_rotary_factor").value_or(1);
  if (!(share >= 0 && share <= 1)) throw settings.error("partial_rotary_factor", "is no share");
  std::vector<float> factors(pairs, stopped);
  const auto rotated = static_cast<std::size_t>(share * static_cast<float>(pairs));
  std::fill_n(factors.begin(), std::min(rotated, pairs), 1.0f);
  return factors;
}

// The ramp of YaRN, and the two numbers of which DeepSeek makes its magnitude.
void write_yarn(const Config& settings, bool has_magnitude, const RopeShape& shape,
                gguf::Writer& writer) {
  for (const char* key : {"beta_fast", "beta_slow"}) {
    const auto beta = settings.find_number(key);
    if (beta) writer.add(fmt::format("{}.rope.scaling.yarn_{}", shape.prefix, key), *beta);
  }
  const float of_scores = settings.find_number("mscale_all_dim").value_or(0);
  const float of_angles = settings.find_number("mscale").value_or(0);
  if (has_magnitude || of_scores == 0 || of_angles == 0) return;
  // DeepSeek's share of the magnitude is in the scores, and the multiplier that of the logarithm.
  if (of_angles != (shape.is_latent ? of_scores : 1)) {
    throw settings.error("mscale", shape.is_latent ? "is not mscale_all_dim" : "is not 1");
  }
  writer.add(shape.prefix + ".rope.scaling.yarn_log_multiplier",
             shape.is_latent ? 0.1f * of_scores : of_scores);
}

void write_scaling(const Config& config, const RopeShape& shape, gguf::Writer& writer) {
  const auto settings = rope_settings(config);
  const std::string kind = rope_kind(settings);
  const bool is_factors = kind == "llama3" || (kind == "proportional" && shape.prefix == "gemma4");
  if (kind == "default" || is_factors) return;
  writer.add(shape.prefix + ".rope.scaling.type", std::string_view(kind));
  if (kind == "longrope") {
    const LongRope rope = read_long_rope(config, *settings);
    writer.add(shape.prefix + ".rope.scaling.original_context_length", rope.original_context);
    writer.add(shape.prefix + ".rope.scaling.attn_factor", rope.magnitude);
    return;
  }
  if (kind != "linear" && kind != "yarn") {
    throw settings->error(
        "rope_type", fmt::format("is {}; supported are default, linear, yarn, llama3 and longrope",
                                 text::quoted(kind)));
  }
  const float factor = settings->number("factor");
  const auto magnitude = settings->find_number("attention_factor");
  const float usual = 1 + 0.1f * std::log(std::max(factor, 1.0f));
  if (kind == "yarn" && magnitude && std::abs(*magnitude - usual) > 1e-3f) {
    throw settings->error("attention_factor", fmt::format("is not {:.4f}, as YaRN has it", usual));
  }
  writer.add(shape.prefix + ".rope.scaling.factor", factor);
  if (kind == "yarn") write_yarn(*settings, magnitude.has_value(), shape, writer);
  if (const auto original = settings->find_count("original_max_position_embeddings")) {
    writer.add(shape.prefix + ".rope.scaling.original_context_length", *original);
  }
}

}  // namespace

std::vector<RopeFactors> rope_factors(const Config& config, std::uint64_t rotated) {
  const auto settings = rope_settings(config);
  const std::string kind = rope_kind(settings);
  const std::size_t pairs = rotated / 2;
  if (kind == "llama3") {
    return {{"rope_freqs.weight", llama3_factors(*settings, rope_base(config, rotated), rotated)}};
  }
  if (kind == "proportional") {
    return {{"rope_freqs.weight", proportional_factors(*settings, pairs)}};
  }
  if (kind != "longrope") return {};
  return {{"rope_factors_long.weight", long_rope_factors(*settings, "long_factor", pairs)},
          {"rope_factors_short.weight", long_rope_factors(*settings, "short_factor", pairs)}};
}

void write_rope(const Config& config, const RopeShape& shape, gguf::Writer& writer) {
  writer.add(shape.prefix + ".rope.freq_base", rope_base(config, shape.rotated));
  write_scaling(config, shape, writer);
}

}  // namespace sluice::convert
