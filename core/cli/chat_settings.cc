#include "core/cli/chat_settings.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "core/text/quoted.h"

namespace sluice::cli {
namespace {

// The command-line options that may change during a chat.
void add_settings(CLI::App& app, ChatSettings& settings) {
  add_sampling_options(app, settings.sampling);
  add_thinking_options(app, settings.thinking);
  app.add_option("-n,--tokens-max", settings.tokens_max)
      ->transform(count_or("-1", "-1", 1, std::uint64_t{1} << 40));
}

std::string shown(const std::vector<std::string>& stop_texts) {
  std::vector<std::string> quoted;
  quoted.reserve(stop_texts.size());
  for (const std::string& text : stop_texts) quoted.push_back(text::quoted(text));
  return quoted.empty() ? "none" : fmt::format("{}", fmt::join(quoted, ", "));
}

}  // namespace

std::string settings_table(const ChatSettings& settings) {
  const sampling::SamplerOptions& sampler = settings.sampling.sampler;
  const auto budget = settings.thinking.tokens_max;
  return format_facts({{"temp", fmt::format("{}", sampler.temperature)},
                       {"top-k", fmt::format("{}", sampler.top_k)},
                       {"top-p", fmt::format("{}", sampler.top_p)},
                       {"min-p", fmt::format("{}", sampler.min_p)},
                       {"repeat-penalty", fmt::format("{}", sampler.repeat_penalty)},
                       {"seed", fmt::format("{}", settings.seed)},
                       {"stop", shown(settings.sampling.stop)},
                       {"tokens-max", fmt::format("{}", settings.tokens_max)},
                       {"think", settings.thinking.think},
                       {"think-budget", budget ? fmt::format("{}", *budget) : "none"}});
}

ChatSettings with_setting(ChatSettings settings, const std::string& name,
                          const std::string& value) {
  if (name == "stop" && value.empty()) {
    settings.sampling.stop.clear();
    return settings;
  }
  if (value.empty()) throw UsageError("/set wants a name and a value, such as: /set temp 0.7");
  CLI::App app;
  app.set_help_flag();
  app.set_config();
  add_settings(app, settings);
  try {
    // CLI11 takes arguments from the back of the vector.
    app.parse(std::vector<std::string>{value, "--" + name});
  } catch (const CLI::ExtrasError&) {
    throw UsageError(fmt::format("there is no setting \"{}\": /set shows all", name));
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  settings.seed = settings.sampling.seed.value_or(settings.seed);
  static_cast<void>(sampling::Sampler(settings.sampling.sampler));
  check_stop_texts(settings.sampling);
  return settings;
}

}  // namespace sluice::cli
