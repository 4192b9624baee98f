// Which sampling settings hold for a model: those of the command line, else those that the model's
// file recommends, else the program's own. run, chat, batch and serve all ask here.
#pragma once

#include <filesystem>

#include "core/cli/options.h"
#include "core/gguf/metadata.h"
#include "core/sampling/sampler.h"

namespace sluice::cli {

// The seed is that of `sampling.sampler`.
sampling::SamplerOptions settled_sampler(const SamplingOptions& sampling,
                                         const gguf::Metadata& metadata);

// Says on standard error what the file recommends, and what in it cannot be used.
void tell_recommendation(const SamplingOptions& sampling, const gguf::Metadata& metadata);

// Replaces the sampler by what holds for this model, and tells unless `quiet`. Throws as
// gguf::Model::open does.
SamplingOptions settled_sampling(SamplingOptions sampling, const std::filesystem::path& model,
                                 bool quiet);

}  // namespace sluice::cli
