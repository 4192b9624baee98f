// What a run is prepared with, before anything of it is loaded: the header of the model, the CPUs
// of the threads, the plan, and the reader for which it was made. For the engine and the planner.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <vector>

#include "core/engine/engine.h"
#include "core/gguf/gguf.h"
#include "core/plan/memory_plan.h"
#include "core/plan/planned_model.h"
#include "core/tokenizer/tokenizer.h"
#include "streaming/choose_reader.h"
#include "topology/machine.h"

namespace sluice::engine {

// A model whose header and tokenizer are loaded, and what the process holds with them.
struct OpenedModel {
  // Throws what Engine::open throws for the file.
  OpenedModel(const std::filesystem::path& path, const gguf::ParseOptions& options);

  std::vector<std::filesystem::path> files() const;

  plan::BaselineWatch watch;
  gguf::Model model;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  plan::Baseline baseline;
};

// One CPU for each thread that computes here. Throws UsageError when there cannot be as many
// threads as the options want.
topology::CpuList choose_cpus(const EngineOptions& options);

// A plan, and the reader for which it was made.
struct Preparation {
  // Throws what plan::plan_model and streaming::choose_reader throw.
  Preparation(const OpenedModel& opened, const EngineOptions& options, std::size_t threads);

  plan::PlannedModel planned;
  streaming::ReaderChoice reader;
};

// The work of a step with one token of each sequence of the plan.
DecodeWork decode_work(const plan::PlannedModel& planned);

}  // namespace sluice::engine
