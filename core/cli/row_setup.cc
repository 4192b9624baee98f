#include "core/cli/row_setup.h"

#include <regex>

#include "core/cli/chat_setup.h"
#include "core/error.h"
#include "core/rows/request.h"

namespace sluice::cli {

std::optional<chat::ChatSource> find_chat_source(const std::string& format,
                                                 const gguf::Metadata& metadata,
                                                 std::string& reason) {
  try {
    return chat::ChatSource::choose(format, metadata);
  } catch (const Error& error) {
    reason = error.what();
    return std::nullopt;
  }
}

sampling::SamplerOptions openai_sampler(const SamplingOptions& sampling) {
  sampling::SamplerOptions result = rows::openai_defaults();
  const sampling::SamplerOptions& sampler = sampling.sampler;
  const auto take = [&](const char* name, auto member) {
    if (sampling.given.contains(name)) result.*member = sampler.*member;
  };
  take("--temp", &sampling::SamplerOptions::temperature);
  take("--top-k", &sampling::SamplerOptions::top_k);
  take("--top-p", &sampling::SamplerOptions::top_p);
  take("--min-p", &sampling::SamplerOptions::min_p);
  take("--repeat-penalty", &sampling::SamplerOptions::repeat_penalty);
  return result;
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
