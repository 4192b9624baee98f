#include "core/engine/rehearsal.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <utility>

#include "base/check.h"

namespace sluice::engine {
namespace {

using Clock = std::chrono::steady_clock;

// Stand-ins are aligned as the weights of the run are; kernels load whole lines.
constexpr std::size_t alignment = 64;
// Any weights will do, as long as their products are not subnormal numbers, which take longer.
constexpr std::byte stand_in_byte{0x38};

constexpr std::uint32_t tokens_before = 256;  // of a sequence, if it has room
constexpr std::size_t steps_max = 8;

// Tokens take all experts of a layer equally often.
class EvenChoice {
 public:
  void operator()(std::size_t experts, std::span<std::uint32_t> chosen) {
    for (auto next = chosen.begin(); next != chosen.end();) {
      *next = static_cast<std::uint32_t>(random_() % experts);
      if (std::find(chosen.begin(), next, *next) == next) ++next;
    }
  }

 private:
  std::mt19937 random_;
};

std::size_t longest(const std::vector<streaming::Segment>& segments) {
  std::uint64_t most = 0;
  for (const streaming::Segment& segment : segments) most = std::max(most, segment.bytes);
  return most;
}

// Steps take place near the beginning of a text. The cache of another machine's run could be larger
// than the memory of this one.
kvcache::CacheConfig rehearsed_cache(kvcache::CacheConfig config) {
  if (config.window.positions != 0) return config;
  config.positions = std::min(config.positions, tokens_before + config.step_columns);
  if (config.total_positions != 0) {
    const std::uint64_t most = std::uint64_t{config.sequences} * config.positions;
    config.total_positions = std::min(config.total_positions, most);
  }
  return config;
}

std::size_t stand_in_size(std::size_t bytes, const std::vector<streaming::Segment>& segments) {
  return std::max(bytes, longest(segments)) / alignment * alignment + alignment;
}

}  // namespace

RehearsalTape::RehearsalTape(const model::WeightLayout& layout, const plan::MemoryPlan& plan,
                             bool reads_packed, std::unique_ptr<streaming::Reader> reader,
                             std::size_t stand_in_bytes, topology::ThreadTeam& team,
                             std::optional<double> hit_rate)
    : segments_(layout.segments()),
      groups_(layout.expert_groups()),
      is_pinned_(plan.tape.residency.pinned_turns()),
      hits_due_(groups_.size()),
      is_hit_(segments_.size()),
      streamed_of_(segments_.size(), in_memory),
      is_packed_(reads_packed && !plan.tape.is_in_page_cache),
      stand_in_(stand_in_size(stand_in_bytes, segments_)) {
  // All threads write it, which spreads the memory over the nodes of a NUMA machine.
  team.run([&](std::size_t member) {
    const auto part = topology::split(stand_in_.size(), alignment, team.size(), member);
    std::fill_n(stand_in_.data() + part.begin, part.size(), stand_in_byte);
  });
  if (!reader || std::ranges::find(is_pinned_, false) == is_pinned_.end()) return;
  std::vector<streaming::Segment> streamed;
  std::vector<streaming::ExpertGroup> groups = groups_;
  // An expert that has a place may give it to another: any expert may have to be read.
  for (streaming::ExpertGroup& group : groups) {
    std::size_t places = 0;
    for (std::size_t e = 0; e < group.experts; ++e) places += is_pinned_[group.first_turn_of(e)];
    hit_rates_.push_back(
        hit_rate.value_or(static_cast<double>(places) / static_cast<double>(group.experts)));
    std::fill(is_pinned_.begin() + static_cast<std::ptrdiff_t>(group.first_turn),
              is_pinned_.begin() + static_cast<std::ptrdiff_t>(group.end_turn()), false);
  }
  for (std::size_t turn = 0; turn < segments_.size(); ++turn) {
    if (is_pinned_[turn]) continue;
    streamed_of_[turn] = streamed.size();
    streamed.push_back(segments_[turn]);
  }
  for (streaming::ExpertGroup& group : groups) group.first_turn = streamed_of_[group.first_turn];
  streaming::TapeOptions ring = plan.tape_options;
  ring.pinned_bytes_max = 0;
  streamed_.emplace(std::move(streamed), std::move(reader), ring, streaming::StreamedTape::Copy(),
                    std::move(groups));
  streamed_->load();
}

void RehearsalTape::expect_experts(std::size_t group, std::span<const streaming::ExpertUse> uses,
                                   std::size_t tokens) {
  if (!streamed_) return;
  const streaming::ExpertGroup& experts = groups_[group];
  misses_.clear();
  for (const streaming::ExpertUse& use : uses) {
    hits_due_[group] += hit_rates_[group];
    const bool is_hit = hits_due_[group] >= 1;
    if (is_hit) {
      hits_due_[group] -= 1;
    } else {
      misses_.push_back(use);
    }
    for (std::size_t i = 0; i < experts.turns_each; ++i) {
      is_hit_[experts.first_turn_of(use.expert) + i] = is_hit;
    }
  }
  streamed_->expect_experts(group, misses_, tokens);
}

streaming::HeldSegment RehearsalTape::acquire(std::size_t turn) {
  if (!is_in_memory(turn)) return streamed_->acquire(streamed_of_[turn]);
  const std::size_t bytes = segments_[turn].bytes;
  if (next_ + bytes > stand_in_.size()) next_ = 0;
  base::check(next_ + bytes <= stand_in_.size(), "a segment is longer than its stand-in");
  const std::span held(stand_in_.data() + next_, bytes);
  next_ += (bytes + alignment - 1) / alignment * alignment;
  const bool is_packed = (is_pinned_[turn] || is_hit_[turn]) && is_packed_;
  return {held, is_packed ? streaming::Storage::copied : streaming::Storage::ring};
}

void RehearsalTape::release(std::size_t turn) {
  if (!is_in_memory(turn)) streamed_->release(streamed_of_[turn]);
}

Rehearsal::Rehearsal(plan::PlannedModel& planned, const kernels::KernelTable& kernels,
                     topology::ThreadTeam& team, std::unique_ptr<streaming::Reader> reader,
                     std::size_t stand_in_bytes, std::optional<double> hit_rate)
    : planned_(planned),
      team_(team),
      tape_(*planned.layout, planned.plan, kernels.matmul.reads_packed, std::move(reader),
            stand_in_bytes, team, hit_rate),
      cache_(rehearsed_cache(planned.plan.cache), kernels),
      compute_(kernels, team, tape_, planned.decoder->size_max(), planned.plan.chunk,
               planned.decoder->rotated_max(), planned.plan.tape_options.held_max) {
  compute_.set_expert_chooser(EvenChoice());
  planned_.decoder->allocate(
      {planned.plan.chunk, team.size(), planned.plan.cache, planned.plan.kept_columns});
}

template <typename Time>
auto Rehearsal::repeat(std::chrono::milliseconds duration, Time time) {
  const Clock::time_point begin = Clock::now();
  const auto first = time();
  std::vector all = {first};
  while (all.size() < steps_max && Clock::now() - begin < duration) all.push_back(time());
  if (all.size() > 1) all.erase(all.begin());
  return all;
}

std::vector<double> Rehearsal::step_seconds(std::size_t sequences, std::size_t tokens,
                                            LogitsOf logits, std::chrono::milliseconds duration) {
  make_room(sequences, tokens);
  if (logits == LogitsOf::last_token) columns_with_logits_ = sequences;
  std::vector<double> seconds = repeat(duration, [&] { return time_step(); });
  std::ranges::sort(seconds);
  return seconds;
}

std::vector<RehearsedStep> Rehearsal::steps_beside_memory(std::size_t sequences,
                                                          std::chrono::milliseconds duration) {
  make_room(sequences, 1);
  return repeat(duration, [&] {
    const double seconds = time_step();
    return RehearsedStep{seconds, tape_.reads_disk() ? 0 : read_memory(team_, tape_.stand_in())};
  });
}

void Rehearsal::make_room(std::size_t sequences, std::size_t tokens) {
  const kvcache::CacheConfig& config = cache_.config();
  sequences_.clear();
  columns_.clear();
  const auto count = static_cast<std::uint32_t>(tokens);
  // Where there is less room than for full sequences, each has the same share of it.
  std::uint32_t positions = config.positions;
  if (config.total_positions != 0) {
    const std::uint64_t share = config.total_positions / sequences;
    const std::uint64_t pages = std::max<std::uint64_t>(share / kvcache::page_positions, 1);
    positions = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(positions, pages * kvcache::page_positions));
  }
  base::check(count <= positions, "a rehearsal takes more tokens than a sequence may have");
  for (std::size_t i = 0; i < sequences; ++i) {
    std::optional<kvcache::Sequence> made = cache_.new_sequence(positions);
    base::check(made.has_value(), "a rehearsal has more sequences than the cache has room for");
    sequences_.push_back(std::move(*made));
    kvcache::Sequence& sequence = sequences_.back();
    std::uint32_t before = std::min(tokens_before, sequence.capacity() - count);
    while (before != 0) {
      const std::uint32_t part = std::min(before, config.step_columns);
      cache_.prepare(sequence, part);
      cache_.advance(sequence, part);
      before -= part;
    }
  }
  for (const kvcache::Sequence& sequence : sequences_) {
    for (std::uint32_t i = 0; i < count; ++i) {
      columns_.push_back({&sequence, sequence.length() + i, 0});
    }
  }
  const model::HyperParameters& hp = planned_.decoder->hyper_parameters();
  x_.resize(columns_.size() * hp.embedding);
  std::minstd_rand random;
  std::uniform_real_distribution<float> any(-1, 1);
  for (float& x : x_) x = any(random);
  columns_with_logits_ = columns_.size();
}

// Runs a step and returns its seconds. Sequences do not advance, so the step can be repeated.
double Rehearsal::time_step() {
  logits_.resize(columns_with_logits_ * planned_.decoder->hyper_parameters().vocabulary);
  const Clock::time_point begin = Clock::now();
  const std::size_t each = columns_.size() / sequences_.size();
  for (kvcache::Sequence& sequence : sequences_) {
    cache_.prepare(sequence, static_cast<std::uint32_t>(each));
  }
  model::Decoder& decoder = *planned_.decoder;
  decoder.run_layers(compute_, {columns_, cache_, x_.data()});
  if (decoder.predictor() != nullptr) {
    const float* const hidden = decoder.keep_hidden(compute_, x_.data(), columns_.size());
    decoder.store_predicted(compute_, {columns_, cache_, x_.data()},
                            [](std::size_t) { return nullptr; });
    decoder.run_head_on_hidden(compute_, hidden, columns_with_logits_, logits_.data());
  } else if (decoder.has_head()) {
    decoder.run_head(compute_, x_.data(), columns_with_logits_, logits_.data());
  }
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace sluice::engine
