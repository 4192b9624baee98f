#include "core/plan/memory_plan.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <numeric>

#include "topology/machine.h"
#include "topology/process_memory.h"

namespace sluice::plan {
namespace {

constexpr std::uint64_t KiB = 1024, MiB = 1024 * KiB;

// Segments of a resident model are large, since nothing waits for them. Streamed ones are small:
// the ring then costs little and the budget is used to the last few MiB.
constexpr std::size_t resident_slice_bytes = 64 * MiB;
constexpr std::size_t streamed_slice_bytes = 2 * MiB;
constexpr streaming::TapeOptions resident_tape{std::numeric_limits<std::int64_t>::max(), 65, 64};
constexpr std::size_t resident_wave_bytes = 1024 * MiB;
constexpr std::uint32_t ring_slots = 16, ring_held_max = 4;

constexpr std::uint32_t default_context_max = 4096, default_context_min = 256;
constexpr std::uint32_t chunk_min = 16;
// With logits wanted after every token, as many tokens go together: their logits have to be held.
constexpr std::uint32_t logits_columns_max = 32;

constexpr std::uint64_t stack_bytes = 128 * KiB;  // touched by a thread
constexpr std::uint64_t page_bytes = 4096, page_entry_bytes = 8;

// Everything but weights, for one choice of context and chunk.
struct Shape {
  std::uint32_t context;
  std::uint32_t chunk;
};

std::uint32_t logits_columns(const Shape& shape) {
  return std::min(logits_columns_max, shape.chunk);
}

std::uint64_t sum(const std::vector<Line>& lines) {
  return std::accumulate(lines.begin(), lines.end(), std::uint64_t{0},
                         [](std::uint64_t total, const Line& line) { return total + line.bytes; });
}

class Planner {
 public:
  Planner(const gguf::Model& model, const Baseline& baseline, const Request& request)
      : model_(model),
        baseline_(baseline),
        request_(request),
        budget_(find_budget(request.budget_bytes)) {}

  PlannedModel plan() {
    // Only a mapping can be resident; the other readers copy.
    if (request_.io == streaming::Io::automatic || request_.io == streaming::Io::mmap) {
      PlannedModel resident = plan_with(true);
      if (resident.plan.fits()) return resident;
    }
    return plan_with(false);
  }

 private:
  PlannedModel plan_with(bool resident) {
    PlannedModel out;
    out.layout = std::make_unique<model::WeightLayout>(
        model_, resident ? resident_slice_bytes : streamed_slice_bytes);
    out.architecture = model::make_architecture(model_, *out.layout);
    MemoryPlan& plan = out.plan;
    plan.budget = budget_;
    plan.is_resident = resident;
    plan.wave_bytes_max = resident ? resident_wave_bytes : ring_held_max * streamed_slice_bytes;

    Shape shape = choose_shape(out);
    fill(out, shape);
    while (!resident && !plan.fits() && shrink(shape)) fill(out, shape);
    plan.least_budget_bytes = least_budget(out);
    return out;
  }

  // Makes the lines of the plan for one shape.
  void fill(PlannedModel& out, const Shape& shape) const {
    MemoryPlan& plan = out.plan;
    plan.context = shape.context;
    plan.chunk = shape.chunk;
    plan.logits_columns = logits_columns(shape);
    plan.lines = lines_but_weights(out, shape);

    const bool maps_files = plan.is_resident || request_.io == streaming::Io::mmap;
    plan.tape_options = plan.is_resident ? resident_tape : streamed_tape(out, maps_files);
    plan.tape = streaming::plan_tape(out.layout->segments(), plan.tape_options, request_.alignment,
                                     maps_files);
    add_weights(plan, maps_files);
  }

  // A smaller shape of the same use, if there is one: prompts take longer then, and a context that
  // nobody asked for holds less.
  bool shrink(Shape& shape) const {
    if (shape.chunk > chunk_min) {
      shape.chunk = std::max(shape.chunk / 2, chunk_min);
    } else if (request_.context == 0 && shape.context > default_context_min) {
      shape.context = std::max(shape.context / 2, default_context_min);
    } else {
      return false;
    }
    return true;
  }

  const model::HyperParameters& hp(const PlannedModel& m) const {
    return m.architecture->hyper_parameters();
  }

  // The context asked for, or one whose cache takes no more than a quarter of the budget; the
  // largest chunk whose buffers take no more than that.
  Shape choose_shape(const PlannedModel& m) const {
    const std::uint64_t share = m.plan.budget.bytes / 4;
    Shape shape{request_.context, 0};
    if (shape.context == 0) {
      shape.context = std::min(hp(m).context, default_context_max);
      while (!m.plan.is_resident && shape.context > default_context_min &&
             cache_bytes(m, shape.context) > share) {
        shape.context /= 2;
      }
    }
    shape.chunk = std::clamp<std::uint32_t>(request_.chunk, 1, shape.context);
    while (!m.plan.is_resident && shape.chunk > chunk_min && activation_bytes(m, shape) > share) {
      shape.chunk = std::max(shape.chunk / 2, chunk_min);
    }
    return shape;
  }

  std::uint64_t cache_bytes(const PlannedModel& m, std::uint32_t context) const {
    return kvcache::bytes(m.architecture->cache_config(context, request_.kv));
  }

  std::uint64_t activation_bytes(const PlannedModel& m, const Shape& shape) const {
    return m.architecture->buffer_bytes(shape.chunk, shape.context, request_.threads) +
           model::Compute::bytes(m.architecture->size_max(), shape.chunk, request_.threads) +
           std::uint64_t{shape.chunk} * hp(m).embedding * sizeof(float);
  }

  std::vector<Line> lines_but_weights(const PlannedModel& m, const Shape& shape) const {
    const std::uint64_t logits =
        std::uint64_t{logits_columns(shape)} * hp(m).vocabulary * sizeof(float);
    return {
        {"program code", baseline_.program_file_bytes, Kind::file},
        {"program heap", baseline_.program_anon_bytes, Kind::anon},
        {"thread stacks", request_.threads * stack_bytes, Kind::anon},
        {"file header", baseline_.header_bytes, Kind::file},
        {"tokenizer", baseline_.tokenizer_bytes, Kind::anon},
        {"norms and biases", m.layout->vector_bytes(), Kind::anon},
        {"keys and values", cache_bytes(m, shape.context), Kind::anon},
        {"activations", activation_bytes(m, shape), Kind::anon},
        {"logits", logits, Kind::anon},
    };
  }

  // Entries of page tables for pages of 4 KiB: huge pages need fewer.
  static std::uint64_t page_table_bytes(std::uint64_t mapped_bytes) {
    return mapped_bytes / page_bytes * page_entry_bytes;
  }

  // What is left of the budget after the ring and everything else is pinned.
  streaming::TapeOptions streamed_tape(const PlannedModel& m, bool maps_files) const {
    streaming::TapeOptions options{0, ring_slots, ring_held_max};
    const std::uint64_t ring =
        streaming::plan_tape(m.layout->segments(), options, request_.alignment, maps_files)
            .ring_bytes;
    const std::uint64_t taken = sum(m.plan.lines) + ring;
    const std::uint64_t left = m.plan.budget.bytes - std::min(m.plan.budget.bytes, taken);
    options.pinned_bytes_max = left - std::min(left, page_table_bytes(left + taken));
    return options;
  }

  void add_weights(MemoryPlan& plan, bool maps_files) const {
    const Kind kind = maps_files ? Kind::file : Kind::anon;
    plan.lines.push_back({"pinned weights", plan.tape.pinned_bytes, kind});
    if (plan.tape.ring_bytes != 0) {
      plan.lines.push_back({"stream ring", plan.tape.ring_bytes, kind});
    }
    plan.lines.push_back({"page tables", page_table_bytes(sum(plan.lines)), Kind::anon});
  }

  // Nothing pinned, and prompts in the smallest chunks.
  std::uint64_t least_budget(const PlannedModel& m) const {
    const Shape shape{m.plan.context, std::min(m.plan.chunk, chunk_min)};
    const streaming::TapeOptions options{0, ring_slots, ring_held_max};
    const bool maps_files = request_.io == streaming::Io::mmap;
    // Slices of a resident layout are larger than those that would be streamed.
    if (m.plan.is_resident) {
      model::WeightLayout layout(model_, streamed_slice_bytes);
      model::make_architecture(model_, layout);
      return least_with(lines_but_weights(m, shape), layout, options, maps_files);
    }
    return least_with(lines_but_weights(m, shape), *m.layout, options, maps_files);
  }

  std::uint64_t least_with(const std::vector<Line>& lines, const model::WeightLayout& layout,
                           const streaming::TapeOptions& options, bool maps_files) const {
    const std::uint64_t bytes =
        sum(lines) +
        streaming::plan_tape(layout.segments(), options, request_.alignment, maps_files).ring_bytes;
    return bytes + page_table_bytes(bytes);
  }

  const gguf::Model& model_;
  const Baseline& baseline_;
  const Request& request_;
  const Budget budget_;  // asked for once: what is free changes from moment to moment
};

}  // namespace

std::string_view kind_name(Kind kind) {
  return kind == Kind::anon ? "anon" : "file";
}

BaselineWatch::BaselineWatch() {
  const topology::ProcessMemory memory = topology::read_process_memory();
  anon_ = memory.rss_anon_bytes.value_or(0);
  file_ = memory.rss_file_bytes.value_or(0);
}

void BaselineWatch::header_loaded() {
  const topology::ProcessMemory memory = topology::read_process_memory();
  header_anon_ = memory.rss_anon_bytes.value_or(0);
  header_file_ = memory.rss_file_bytes.value_or(0);
}

Baseline BaselineWatch::finish() const {
  const topology::ProcessMemory memory = topology::read_process_memory();
  const auto growth = [](std::uint64_t now, std::uint64_t before) {
    return now - std::min(now, before);
  };
  const std::uint64_t anon = memory.rss_anon_bytes.value_or(0);
  const std::uint64_t file = memory.rss_file_bytes.value_or(0);
  return {header_anon_, file_, growth(file, file_), growth(anon, header_anon_)};
}

Budget find_budget(std::optional<std::uint64_t> requested_bytes) {
  const auto bound = topology::usable_memory(topology::read_machine());
  const std::uint64_t usable =
      bound ? bound->usable_bytes() : std::numeric_limits<std::int64_t>::max();
  const auto less = [usable](std::uint64_t reserve) { return usable - std::min(usable, reserve); };
  if (requested_bytes && *requested_bytes <= less(least_reserve_bytes)) {
    return {*requested_bytes, "--budget"};
  }
  // To take more than there is would be to ask for being killed.
  return {less(auto_reserve_bytes), bound ? bound->source : "no limit is known"};
}

std::uint64_t MemoryPlan::total_bytes() const {
  return sum(lines);
}

PlannedModel plan_model(const gguf::Model& model, const Baseline& baseline,
                        const Request& request) {
  return Planner(model, baseline, request).plan();
}

Error budget_error(const MemoryPlan& plan) {
  const auto mib = [](std::uint64_t bytes) { return (bytes + MiB - 1) / MiB; };
  return Error(ExitCode::budget,
               fmt::format("a budget of {} MiB ({}) is too small: the least that works for this "
                           "model with a context of {} is {} MiB",
                           plan.budget.bytes / MiB, plan.budget.source, plan.context,
                           mib(plan.least_budget_bytes)));
}

}  // namespace sluice::plan
