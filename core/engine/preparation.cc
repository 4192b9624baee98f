#include "core/engine/preparation.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include "core/engine/thread_timing.h"
#include "core/error.h"
#include "core/model/weights.h"
#include "core/sampling/sampler.h"

namespace sluice::engine {

static_assert(plan::sampling_bytes_per_token == sampling::SamplerScratch::bytes_per_token);

OpenedModel::OpenedModel(const std::filesystem::path& path, const gguf::ParseOptions& options)
    : model(gguf::Model::open(path, options)) {
  watch.header_loaded();
  tokenizer = tokenizer::Tokenizer::from_metadata(model.metadata());
  baseline = watch.finish();
}

std::vector<std::filesystem::path> OpenedModel::files() const {
  std::vector<std::filesystem::path> paths;
  for (const gguf::ModelFile& file : model.files()) paths.push_back(file.path);
  return paths;
}

topology::CpuList choose_cpus(const EngineOptions& options) {
  const topology::Machine machine = topology::read_machine();
  unsigned threads = options.threads;
  if (threads == 0 && options.planned_threads != 0) {
    threads = std::min(options.planned_threads, static_cast<unsigned>(machine.allowed_cpus.size()));
  }
  try {
    return choose_timed_threads(machine, threads, options.budget_bytes).cpus;
  } catch (const std::invalid_argument& e) {
    throw UsageError(e.what());
  }
}

Preparation::Preparation(const OpenedModel& opened, const EngineOptions& options,
                         std::size_t threads) {
  plan::Request request{options, static_cast<unsigned>(threads)};
  planned = plan::plan_model(opened.model, opened.baseline, request);
  reader = streaming::choose_reader(options.io, opened.files());
  // The reader may differ from the one asked for, or read in larger units than usual.
  const bool maps_files = reader.reader->maps_files();
  if (maps_files == planned.plan.tape.is_in_page_cache &&
      reader.reader->alignment() == request.alignment) {
    return;
  }
  request.io = maps_files ? streaming::Io::mmap : streaming::Io::pread;
  request.alignment = reader.reader->alignment();
  planned = plan::plan_model(opened.model, opened.baseline, request);
}

DecodeWork decode_work(const plan::PlannedModel& planned) {
  const streaming::TapePlan& tape = planned.plan.tape;
  const std::uint32_t tokens = planned.plan.cache.sequences;
  const model::WeightLayout& layout = *planned.layout;
  DecodeWork work;
  work.hot_bytes = layout.active_bytes(tokens);
  work.streamed_bytes = tape.streamed_bytes_per_step;
  work.hot_expert_bytes = layout.active_expert_bytes(tokens);
  work.streamed_expert_bytes = tape.streamed_expert_bytes_per_step;
  std::uint64_t reads = 0;
  for (const streaming::ExpertGroup& group : layout.expert_groups()) {
    for (std::size_t turn = group.first_turn; turn < group.end_turn(); ++turn) {
      work.expert_bytes += layout.segments()[turn].bytes;
      ++reads;
    }
  }
  if (reads != 0) work.expert_read_bytes = work.expert_bytes / reads;
  work.macs = layout.active_weights();
  return work;
}

}  // namespace sluice::engine
