#include "core/cli/sampling_defaults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/cli/chat_setup.h"
#include "core/cli/output.h"
#include "core/gguf/gguf.h"
#include "core/sampling/model_defaults.h"

namespace sluice::cli {

sampling::SamplerOptions settled_sampler(const SamplingOptions& sampling,
                                         const gguf::Metadata& metadata) {
  using sampling::SamplerOptions;
  SamplerOptions result = sampling::model_defaults(metadata).sampler;
  const auto take = [&](const char* name, auto member) {
    if (sampling.given.contains(name)) result.*member = sampling.sampler.*member;
  };
  take("--temp", &SamplerOptions::temperature);
  take("--top-k", &SamplerOptions::top_k);
  take("--top-p", &SamplerOptions::top_p);
  take("--min-p", &SamplerOptions::min_p);
  take("--repeat-penalty", &SamplerOptions::repeat_penalty);
  result.seed = sampling.sampler.seed;
  return result;
}

void tell_recommendation(const SamplingOptions& sampling, const gguf::Metadata& metadata) {
  const sampling::ModelDefaults defaults = sampling::model_defaults(metadata);
  for (const std::string& warning : defaults.warnings) warn(warning);
  if (defaults.recommended.empty()) return;
  remark(fmt::format("the model file recommends {}{}", fmt::join(defaults.recommended, ", "),
                     sampling.given.empty() ? "" : "; options of the command line win"));
}

SamplingOptions settled_sampling(SamplingOptions sampling, const std::filesystem::path& model,
                                 bool quiet) {
  {
    const gguf::Model header = gguf::Model::open(model, {.header_only = true});
    if (!quiet) tell_recommendation(sampling, header.metadata());
    sampling.sampler = settled_sampler(sampling, header.metadata());
  }
  return_free_memory();
  return sampling;
}

}  // namespace sluice::cli
