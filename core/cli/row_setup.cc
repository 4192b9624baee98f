#include "core/cli/row_setup.h"

#include <regex>

#include "core/batch/job_state.h"
#include "core/cli/chat_setup.h"
#include "core/cli/sampling_defaults.h"
#include "core/engine/model_key.h"

namespace sluice::cli {

nlohmann::ordered_json recorded_settings(const ResultOptions& options, const gguf::Model& model) {
  const SamplingOptions& sampling = options.sampling;
  const sampling::SamplerOptions sampler = settled_sampler(sampling, model.metadata());
  nlohmann::ordered_json thought_limit = nullptr;
  if (options.thinking.tokens_max) thought_limit = *options.thinking.tokens_max;
  nlohmann::ordered_json settings = {{"the version of sluice", SLUICE_VERSION},
                                     {"the model", engine::model_key(model).text()},
                                     {"--temp", sampler.temperature},
                                     {"--top-k", sampler.top_k},
                                     {"--top-p", sampler.top_p},
                                     {"--min-p", sampler.min_p},
                                     {"--repeat-penalty", sampler.repeat_penalty},
                                     {"the last tokens of --repeat-penalty", sampler.repeat_last_n},
                                     {"--seed", sampling.seed.value_or(0)},
                                     {"--stop", sampling.stop},
                                     {"-n", options.tokens_max},
                                     {"--ctx", options.common.context},
                                     {"--window", options.common.window},
                                     {"--sinks", settled_sinks(options.common)},
                                     {"--kv", options.common.kv},
                                     {"--chat-format", options.chat_format},
                                     {"--think", options.thinking.think},
                                     {"--think-budget", thought_limit},
                                     {"--check-model", options.check_model},
                                     {"--shorten", options.shortens}};
  std::string reason;
  const auto source = chat::ChatSource::find(options.chat_format, model.metadata(), reason);
  if (source && source->chat_template && source->chat_template->mentions("strftime_now")) {
    settings[batch::date_setting] = batch::date_text(chat::template_time());
  }
  return settings;
}

std::vector<std::string> model_names(const std::filesystem::path& model,
                                     const gguf::Metadata& metadata) {
  static const std::regex shard("-[0-9]{5}-of-[0-9]{5}$");
  const std::string stem = model.stem().string();
  std::vector<std::string> names = {std::regex_replace(stem, shard, ""), stem,
                                    model.filename().string()};
  if (const auto name = metadata.find_string("general.name"); name && !name->empty()) {
    names.emplace_back(*name);
  }
  return names;
}

std::shared_ptr<const chat::Dialogue> make_dialogue(const std::string& think,
                                                    const std::optional<chat::ChatSource>& source,
                                                    const tokenizer::Tokenizer& tokenizer) {
  if (!source) return nullptr;
  return std::make_shared<const chat::Dialogue>(*source, tokenizer, dialogue_options(think));
}

}  // namespace sluice::cli
