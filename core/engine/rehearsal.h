// A step of a planned run without its weights, to learn how long it will take.
//
// A rehearsal runs the model's own decoder: the products of its shapes and types, its attention,
// its threads. What lies in memory in the run is read from a stand-in, a buffer larger than the
// caches that the matrices take turns in; what is streamed in the run is read from the file, by the
// reader of the run. The numbers are nonsense, and the time is that of a real step.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "core/model/aligned_bytes.h"
#include "core/model/compute.h"
#include "core/plan/planned_model.h"
#include "kernels/kernel_table.h"
#include "kvcache/kv_cache.h"
#include "streaming/reader.h"
#include "streaming/streamed_tape.h"
#include "topology/thread_team.h"

namespace sluice::engine {

// A tape with stand-ins for pinned segments. Streamed ones come from the files, or are stand-ins in
// the form of the file where there is no reader.
class RehearsalTape final : public streaming::Tape {
 public:
  // `reader` may be null. Holds the ring of the plan and `stand_in_bytes`, no less than the longest
  // segment. Throws std::system_error when memory cannot be had.
  RehearsalTape(const model::WeightLayout& layout, const plan::MemoryPlan& plan, bool reads_packed,
                std::unique_ptr<streaming::Reader> reader, std::size_t stand_in_bytes,
                topology::ThreadTeam& team);

  streaming::HeldSegment acquire(std::size_t turn) override;
  void release(std::size_t turn) override;

 private:
  static constexpr std::size_t in_memory = ~std::size_t{0};

  const std::vector<streaming::Segment>& segments_;
  std::vector<bool> is_pinned_;           // by turn
  std::vector<std::size_t> streamed_of_;  // by turn: that of streamed_, or in_memory
  bool is_packed_;                        // what is pinned
  model::AlignedBytes stand_in_;
  std::size_t next_ = 0;  // where the next segment stands in
  std::optional<streaming::StreamedTape> streamed_;
};

class Rehearsal {
 public:
  // None but the reader is owned; the reader may be null: then nothing is read from the disk.
  Rehearsal(plan::PlannedModel& planned, const kernels::KernelTable& kernels,
            topology::ThreadTeam& team, std::unique_ptr<streaming::Reader> reader,
            std::size_t stand_in_bytes);

  // The seconds of a step with `tokens` of each of `sequences`, all with logits: of the last of the
  // steps that are done in `duration`, at least one. Each sequence has some tokens already.
  double step_seconds(std::size_t sequences, std::size_t tokens,
                      std::chrono::milliseconds duration);

 private:
  void make_room(std::size_t sequences, std::size_t tokens);
  double time_step();

  plan::PlannedModel& planned_;
  RehearsalTape tape_;
  kvcache::KvCache cache_;
  model::Compute compute_;
  std::vector<kvcache::Sequence> sequences_;
  std::vector<model::Column> columns_;
  std::vector<float> x_, logits_;
};

}  // namespace sluice::engine
