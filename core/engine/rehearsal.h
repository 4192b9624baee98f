// Runs steps of a planned run without its weights, to predict how long they will take.
//
// A rehearsal runs the model's own decoder: products of the same shapes and types, the same
// attention, the same threads. Pinned weights are replaced by a stand-in, a buffer larger than the
// caches, which the matrices use in turns. Streamed weights are read from the file, with the reader
// of the run. Tokens take all experts of a mixture alike. The numbers that come out are nonsense;
// the time is that of a real step.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "core/engine/machine_limits.h"
#include "core/model/compute.h"
#include "core/plan/planned_model.h"
#include "kernels/kernel_table.h"
#include "kvcache/kv_cache.h"
#include "streaming/reader.h"
#include "streaming/streamed_tape.h"
#include "topology/aligned_bytes.h"
#include "topology/thread_team.h"

namespace sluice::engine {

// A tape with stand-ins for pinned segments. Streamed segments are read from the files; without a
// reader they get stand-ins in the layout of the file. Of the experts that a step needs, as many
// are stand-ins as would be in memory at a hit rate: the one given, or that of tokens that take
// each expert as often as any other.
class RehearsalTape final : public streaming::Tape {
 public:
  // `reader` may be null. Holds the ring of the plan and a stand-in of `stand_in_bytes`, but at
  // least the longest segment. Throws std::system_error when it cannot allocate memory.
  RehearsalTape(const model::WeightLayout& layout, const plan::MemoryPlan& plan, bool reads_packed,
                std::unique_ptr<streaming::Reader> reader, std::size_t stand_in_bytes,
                topology::ThreadTeam& team, std::optional<double> hit_rate = {});

  streaming::HeldSegment acquire(std::size_t turn) override;
  void release(std::size_t turn) override;
  bool reads_disk() const { return streamed_.has_value(); }
  // What stands for weights that are in memory.
  std::span<const std::byte> stand_in() const { return {stand_in_.data(), stand_in_.size()}; }
  void keep(std::size_t turn) override { release(turn); }  // nothing has a place
  void expect_experts(std::size_t group, std::span<const streaming::ExpertUse> uses,
                      std::size_t tokens) override;
  bool is_in_memory(std::size_t turn) const override {
    return streamed_of_[turn] == in_memory || is_hit_[turn];
  }

 private:
  static constexpr std::size_t in_memory = ~std::size_t{0};

  const std::vector<streaming::Segment>& segments_;
  const std::vector<streaming::ExpertGroup>& groups_;
  std::vector<bool> is_pinned_;    // by turn
  std::vector<double> hit_rates_;  // by group
  std::vector<double> hits_due_;   // by group: hits that are less than one
  std::vector<bool> is_hit_;       // by turn: whether this step finds an expert in memory
  std::vector<streaming::ExpertUse> misses_;
  std::vector<std::size_t> streamed_of_;  // by turn: the turn in streamed_, or in_memory
  bool is_packed_;                        // layout of the pinned segments
  topology::AlignedBytes stand_in_;
  std::size_t next_ = 0;  // offset in stand_in_ for the next segment
  std::optional<streaming::StreamedTape> streamed_;
};

class Rehearsal {
 public:
  // Owns none of its arguments but the reader. Without a reader nothing is read from the disk.
  Rehearsal(plan::PlannedModel& planned, const kernels::KernelTable& kernels,
            topology::ThreadTeam& team, std::unique_ptr<streaming::Reader> reader,
            std::size_t stand_in_bytes, std::optional<double> hit_rate = {});

  // The seconds of steps with `tokens` tokens of each of `sequences` sequences, ascending. Runs
  // steps for `duration`, at least one. The first counts only if there are no more, because it
  // touches memory for the first time. Each sequence already has some tokens.
  std::vector<double> step_seconds(std::size_t sequences, std::size_t tokens, LogitsOf logits,
                                   std::chrono::milliseconds duration);
  // The same with one token of each sequence, each step beside a measurement of the memory.
  std::vector<RehearsedStep> steps_beside_memory(std::size_t sequences,
                                                 std::chrono::milliseconds duration);

 private:
  // Calls time() for `duration`, at least once, and returns what it returned.
  template <typename Time>
  auto repeat(std::chrono::milliseconds duration, Time time);
  void make_room(std::size_t sequences, std::size_t tokens);
  double time_step();

  plan::PlannedModel& planned_;
  topology::ThreadTeam& team_;
  RehearsalTape tape_;
  kvcache::KvCache cache_;
  model::Compute compute_;
  std::vector<kvcache::Sequence> sequences_;
  std::vector<model::Column> columns_;
  std::size_t columns_with_logits_ = 0;
  std::vector<float> x_, logits_;
};

}  // namespace sluice::engine
