#include "core/plan/memory_plan.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <numeric>
#include <sys/sysinfo.h>

#include "base/page.h"
#include "core/model/families.h"
#include "core/plan/planned_model.h"
#include "topology/machine.h"
#include "topology/process_memory.h"

namespace sluice::plan {
namespace {

constexpr std::uint64_t KiB = 1024, MiB = 1024 * KiB;

// Segments of a resident model are large, since nothing waits for them. Streamed ones are small, so
// that the ring is small and the budget can be used to the last few MiB.
constexpr std::size_t resident_slice_bytes = 64 * MiB;
constexpr std::size_t streamed_slice_bytes = 2 * MiB;
constexpr streaming::TapeOptions resident_tape{std::numeric_limits<std::int64_t>::max(), 65, 64};
constexpr std::uint32_t ring_slots = 16, ring_held_max = 4;

// A context that nobody asked for has between these numbers of positions, even if its memory could
// hold weights. It grows beyond them only if no weight is streamed for it, in these steps.
constexpr std::uint32_t default_context_max = 4096, default_context_min = 256;
constexpr std::uint32_t encoder_context_max = 512;
constexpr std::uint32_t context_step = 256;
constexpr std::uint32_t chunk_min = 16;

// Of a helper: its memory is counted by another plan.
const Budget no_budget{std::uint64_t{1} << 60U, "the plan of another model"};

constexpr std::uint64_t stack_bytes = 128 * KiB;  // that a thread touches
// Pages of code that first run with the engine: measured, rounded up.
constexpr std::uint64_t code_to_come_bytes = 2560 * KiB;
constexpr std::uint64_t page_entry_bytes = 8;
// Page tables of code, libraries and stacks, which are hardly filled.
constexpr std::uint64_t scattered_table_bytes = 64 * KiB;
// By so much the baseline differs between two runs of one program: pages of code that happen to be
// mapped. A budget that is recommended must do in the next run, too.
constexpr std::uint64_t baseline_scatter_bytes = MiB;

// All that determines the memory except the weights.
struct Shape {
  std::uint32_t context;
  std::uint32_t chunk;
  std::uint64_t cache_positions = 0;  // of all sequences together; 0: sequences * context
  std::uint32_t drafts = 0;           // columns of a step whose logits are wanted besides
  std::uint32_t checkpoints = 0;      // of each sequence
};

std::uint64_t sum(const std::vector<Line>& lines) {
  return std::accumulate(lines.begin(), lines.end(), std::uint64_t{0},
                         [](std::uint64_t total, const Line& line) { return total + line.bytes; });
}

// A size as messages have it; rounded down, or up where less would not do.
std::string shown(std::uint64_t bytes, bool up = false) {
  if (bytes < MiB && !up) return fmt::format("{} bytes", bytes);
  const bool is_large = bytes >= 100 * 1024 * MiB;
  const std::uint64_t unit = is_large ? 1024 * MiB : MiB;
  return fmt::format("{} {}", (bytes + (up ? unit - 1 : 0)) / unit, is_large ? "GiB" : "MiB");
}

Budget budget_of(const Request& request) {
  if (request.is_helper) return no_budget;
  if (request.has_memory_of_another) return {request.budget_bytes.value(), "--for"};
  return find_budget(request.budget_bytes);
}

class Planner {
 public:
  Planner(const gguf::Model& model, const Baseline& baseline, const Request& request)
      : model_(model), baseline_(baseline), request_(request), budget_(budget_of(request)) {
    const std::uint32_t context = window_context();
    if (request.window == 0 || request.sinks < context) return;
    throw UsageError(fmt::format(
        "a window of {} tokens cannot keep the first {} for ever: give fewer --sinks or a wider "
        "--window",
        context, request.sinks));
  }

  PlannedModel plan() {
    // Only a mapping can be used in place; the other readers copy.
    if (request_.io == streaming::Io::mmap) {
      PlannedModel resident = plan_with(true);
      if (resident.plan.fits()) return resident;
      // A small model may need less as a whole than with a ring for its parts.
      PlannedModel streamed = plan_with(false);
      std::uint64_t& least = streamed.plan.least_budget_bytes;
      least = std::min(least, resident.plan.total_bytes() + baseline_scatter_bytes);
      return streamed;
    }
    return plan_with(false);
  }

 private:
  PlannedModel plan_with(bool resident) {
    PlannedModel out;
    out.layout = std::make_unique<model::WeightLayout>(
        model_, resident ? resident_slice_bytes : streamed_slice_bytes);
    out.decoder = model::make_decoder(model_, *out.layout, request_.predicts);
    is_encoder_ = hp(out).is_encoder;
    if (is_encoder_) check_encoder(hp(out));
    MemoryPlan& plan = out.plan;
    plan.budget = budget_;
    plan.helper_bytes = sum(request_.helper);
    plan.is_resident = resident;

    Shape shape = choose_shape(out);
    fill(out, shape);
    while (!resident && !plan.fits() && shrink(shape)) fill(out, shape);
    if (plan.fits()) make_room_for_drafts(out, shape);
    if (chooses_context()) grow(out, shape);
    if (shape.cache_positions != 0) widen(out, shape);
    plan.least_budget_bytes = least_budget(out);
    // It has room for what differs from one process to the next. A plan that fits has shown that
    // its budget is enough here.
    if (plan.fits()) plan.least_budget_bytes = std::min(plan.least_budget_bytes, budget_.bytes);
    return out;
  }

  // A text of an encoder is one step, and no longer than what the model was trained for.
  void check_encoder(const model::HyperParameters& hp) const {
    if (request_.window != 0) {
      throw UsageError(
          fmt::format("a model of architecture {} sees whole texts: it cannot have a --window",
                      hp.architecture));
    }
    if (request_.context <= hp.context) return;
    throw UsageError(
        fmt::format("a model of architecture {} reads texts of up to {} tokens: a "
                    "context of {} is too long for it; give a smaller --ctx",
                    hp.architecture, hp.context, request_.context));
  }

  // Fills in the plan for one shape.
  void fill(PlannedModel& out, const Shape& shape) const {
    MemoryPlan& plan = out.plan;
    plan.context = shape.context;
    plan.chunk = shape.chunk;
    plan.logits_columns = logits_columns(shape);
    plan.cache = cache_config(out, shape);
    plan.kept_columns = kept_columns(out, shape);
    plan.lines = lines_but_weights(out, *out.layout, shape);
    plan.tables_on_disk = tables_on_disk(*out.layout, shape);

    const bool maps_files = plan.is_resident || request_.io == streaming::Io::mmap;
    plan.tape_options = plan.is_resident ? resident_tape : streamed_tape(out, maps_files);
    plan.tape = tape_plan(*out.layout, plan.tape_options, maps_files);
    add_weights(plan, maps_files);
  }

  // Makes the shape smaller, if possible. Sequences cannot go back then, nothing is drafted,
  // prompts take longer, and a context that nobody asked for becomes shorter.
  bool shrink(Shape& shape) const {
    if (shape.checkpoints != 0) {
      shape.checkpoints = 0;
    } else if (shape.drafts != 0 && request_.helper.empty()) {
      shape.drafts = 0;
    } else if (shape.chunk > least_chunk(shape)) {
      shape.chunk = std::max(shape.chunk / 2, least_chunk(shape));
    } else if (chooses_context() && shape.context > default_context_min) {
      shape = with_context(shape, std::max(shape.context / 2, default_context_min));
    } else {
      return false;
    }
    return true;
  }

  // What one step made room for may hold the drafts that an earlier one took, and they are worth a
  // chunk of half the size: where weights are streamed, each that is right saves a pass over them.
  void make_room_for_drafts(PlannedModel& out, Shape& shape) const {
    for (Shape wanted = shape; shape.drafts != drafts(out); wanted.chunk /= 2) {
      if (wanted.chunk < std::max(shape.chunk / 2, least_chunk(shape))) return fill(out, shape);
      wanted.drafts = drafts(out);
      fill(out, wanted);
      if (out.plan.fits()) shape = wanted;
    }
  }

  // Finds the longest context of the model with which everything fits and nothing is streamed.
  void grow(PlannedModel& out, Shape shape) const {
    const auto fits_with = [&](std::uint32_t context) {
      fill(out, with_context(shape, context));
      return out.plan.fits() && out.plan.tape.streamed_segments == 0;
    };
    std::uint32_t fitting = shape.context, too_long = hp(out).context;
    if (!fits_with(fitting) || fitting >= too_long || fits_with(too_long)) return;
    while (too_long - fitting > context_step) {
      const std::uint32_t middle =
          fitting + std::max((too_long - fitting) / 2 / context_step * context_step, context_step);
      (fits_with(middle) ? fitting : too_long) = middle;
    }
    fill(out, with_context(shape, fitting));
  }

  // Gives every sequence its full length, if everything still fits and nothing is streamed.
  void widen(PlannedModel& out, const Shape& shape) const {
    Shape full = shape;
    full.cache_positions = 0;
    fill(out, full);
    if (!out.plan.fits() || out.plan.tape.streamed_segments != 0) fill(out, shape);
  }

  bool chooses_context() const { return request_.context == 0 && request_.window == 0; }

  // Each sequence needs at least one column of a step; a text of an encoder all of its own.
  std::uint32_t least_chunk(const Shape& shape) const {
    return std::max({chunk_min, request_.parallel, is_encoder_ ? shape.context : 0});
  }

  // The same with another context, and room for full sequences.
  Shape with_context(Shape shape, std::uint32_t context) const {
    const std::uint32_t least = least_chunk(shape);
    const bool is_least = is_encoder_ && shape.chunk == least;
    shape.context = context;
    shape.cache_positions = 0;
    if (is_encoder_) {
      shape.chunk = is_least ? least_chunk(shape) : std::max(shape.chunk, least_chunk(shape));
    }
    return shape;
  }

  std::uint64_t request_cache_positions() const {
    return request_.window == 0 && request_.context != 0 ? request_.cache_positions : 0;
  }

  std::uint32_t window_context() const {
    return request_.context == 0 ? request_.window : std::min(request_.window, request_.context);
  }

  std::uint32_t drafts(const PlannedModel& m) const {
    if (!m.decoder->takes_drafts()) return 0;
    return request_.drafts * std::min(request_.parallel, draft_sequences_max);
  }

  // Where there are states, all tokens of a sequence with drafts want logits.
  std::uint32_t kept_columns(const PlannedModel& m, const Shape& shape) const {
    const bool has_states = kvcache::state_bytes(cache_config(m, shape)) != 0;
    return has_states && shape.drafts != 0 ? logits_columns(shape) : 0;
  }

  std::uint32_t logits_columns(const Shape& shape) const {
    const std::uint32_t wanted =
        std::max(request_.logits_columns, request_.parallel) + shape.drafts;
    return std::max(std::min(wanted, shape.chunk), request_.parallel);
  }

  const model::HyperParameters& hp(const PlannedModel& m) const {
    return m.decoder->hyper_parameters();
  }

  // Chooses the context that was asked for, or one whose cache takes at most a quarter of the
  // budget, and the largest chunk whose buffers take at most a quarter.
  Shape choose_shape(const PlannedModel& m) const {
    const std::uint64_t share = m.plan.budget.bytes / 4;
    Shape shape{request_.window != 0 ? window_context() : request_.context, 1,
                request_cache_positions(), drafts(m)};
    // Not without states, and not where much less could be pinned for them.
    shape.checkpoints = request_.checkpoints;
    const std::uint64_t states = kvcache::state_bytes(cache_config(m, shape));
    if (states == 0 || states > share / 4) shape.checkpoints = 0;
    if (chooses_context()) {
      const std::uint32_t most = is_encoder_ ? encoder_context_max : default_context_max;
      shape.context = std::min(hp(m).context, most);
      while (!m.plan.is_resident && shape.context > default_context_min &&
             cache_bytes(m, shape) > share) {
        shape.context /= 2;
      }
    }
    // A chunk is no longer than all sequences together: a window would need that much more memory
    // for it.
    const std::uint64_t positions = std::uint64_t{shape.context} * request_.parallel;
    shape.chunk = static_cast<std::uint32_t>(std::min<std::uint64_t>(request_.chunk, positions));
    shape.chunk = std::max({shape.chunk, request_.parallel, std::uint32_t{1}});
    shape.chunk = std::max(shape.chunk, is_encoder_ ? shape.context : 0);
    while (!m.plan.is_resident && shape.chunk > least_chunk(shape) &&
           activation_bytes(m, shape) > share) {
      shape.chunk = std::max(shape.chunk / 2, least_chunk(shape));
    }
    return shape;
  }

  kvcache::CacheConfig cache_config(const PlannedModel& m, const Shape& shape) const {
    kvcache::CacheConfig config;
    config.layers = m.decoder->cache_layers();
    config.positions = shape.context;
    if (request_.window != 0) {
      config.positions = kvcache::unlimited;
      config.window = {shape.context, request_.sinks};
    }
    config.sequences = request_.parallel;
    config.total_positions = shape.cache_positions;
    config.step_columns = shape.chunk;
    config.type = request_.kv;
    config.checkpoints = shape.checkpoints;
    return config;
  }

  std::uint64_t cache_bytes(const PlannedModel& m, const Shape& shape) const {
    return kvcache::bytes(cache_config(m, shape));
  }

  // Adds a line for each kind of layer: those that keep everything, those of each window, and those
  // with a recurrent state.
  void add_cache_lines(const PlannedModel& m, const Shape& shape, std::vector<Line>& lines) const {
    const std::vector<kvcache::LayerGroup> groups = kvcache::layer_groups(cache_config(m, shape));
    for (const kvcache::LayerGroup& group : groups) {
      std::string name = "keys and values";
      if (groups.size() > 1) {
        name += group.window.positions == 0 ? ", all tokens"
                                            : fmt::format(", last {}", group.window.positions);
      }
      lines.push_back({std::move(name), group.bytes(), Kind::anon});
    }
    const std::size_t states = kvcache::state_bytes(cache_config(m, shape));
    if (states != 0) lines.push_back({"recurrent states", states, Kind::anon});
  }

  std::uint64_t activation_bytes(const PlannedModel& m, const Shape& shape) const {
    return m.decoder->buffer_bytes(
               {shape.chunk, request_.threads, cache_config(m, shape), kept_columns(m, shape)}) +
           model::Compute::bytes(m.decoder->size_max(), shape.chunk, m.decoder->rotated_max(),
                                 request_.threads) +
           std::uint64_t{shape.chunk} * hp(m).embedding * sizeof(float);
  }

  static std::uint64_t list_bytes(const model::WeightLayout& layout) {
    return layout.list_bytes() + layout.segments().size() * streaming::list_bytes_per_segment;
  }

  std::vector<Line> lines_but_weights(const PlannedModel& m, const model::WeightLayout& layout,
                                      const Shape& shape) const {
    const bool has_logits = m.decoder->has_head();
    const std::uint64_t logits =
        has_logits ? std::uint64_t{logits_columns(shape)} * hp(m).vocabulary * sizeof(float) : 0;
    std::vector<Line> lines = {
        {"program code", baseline_.program_file_bytes + code_to_come_bytes, Kind::file},
        {baseline_.is_assumed ? "program heap (assumed)" : "program heap",
         baseline_.program_anon_bytes, Kind::anon},
        {"thread stacks", request_.threads * stack_bytes, Kind::anon},
        {"file header", baseline_.header_bytes, Kind::anon},
        {"tokenizer", baseline_.tokenizer_bytes, Kind::anon},
        {"norms and biases", layout.vector_bytes(), Kind::anon},
        {"lists of weights", list_bytes(layout), Kind::anon},
    };
    add_cache_lines(m, shape, lines);
    lines.push_back({"activations", activation_bytes(m, shape), Kind::anon});
    lines.push_back({"logits", logits, Kind::anon});
    lines.push_back({"sampling", hp(m).vocabulary * sampling_bytes_per_token, Kind::anon});
    if (m.decoder->predictor() != nullptr) {  // one for each sequence, and each that is kept
      const std::uint64_t states = std::uint64_t{request_.parallel} + kept_sequences_max;
      lines.push_back({"states of guesses", states * hp(m).embedding * sizeof(float), Kind::anon});
    }
    const std::uint64_t newest = std::min<std::uint64_t>(shape.context, request_.caller_newest_max);
    const std::uint64_t requests = request_.caller_bytes +
                                   request_.caller_bytes_per_position * shape.context +
                                   request_.caller_bytes_per_newest * newest;
    if (requests != 0) lines.push_back({"requests", requests, Kind::anon});
    lines.insert(lines.end(), request_.helper.begin(), request_.helper.end());
    return lines;
  }

  static std::vector<TableOnDisk> tables_on_disk(const model::WeightLayout& layout,
                                                 const Shape& shape) {
    std::vector<TableOnDisk> out;
    for (const auto& [tensor, rows] : layout.tables_on_disk()) {
      out.push_back({std::string(tensor->name), tensor->bytes, rows,
                     tensor->bytes / tensor->dims[1],
                     shape.chunk * rows * tensor->dims[0] * sizeof(float)});
    }
    return out;
  }

  // Page tables for small pages; huge pages need fewer entries. `rest_bytes` is everything but
  // weights. A mapping keeps tables for everything that it ever touched, even for pages that were
  // given back.
  static std::uint64_t page_table_bytes(std::uint64_t rest_bytes, const streaming::TapePlan& tape) {
    const std::uint64_t weights =
        tape.is_in_page_cache ? tape.pinned_bytes + tape.streamed_bytes : tape.peak_bytes();
    return (rest_bytes + weights) / base::page_bytes * page_entry_bytes + scattered_table_bytes;
  }

  streaming::TapePlan tape_plan(const model::WeightLayout& layout,
                                const streaming::TapeOptions& options, bool maps_files) const {
    return streaming::plan_tape(layout.segments(), options, request_.alignment, maps_files,
                                layout.expert_groups());
  }

  // Pins what the ring and everything else leave of the budget.
  streaming::TapeOptions streamed_tape(const PlannedModel& m, bool maps_files) const {
    streaming::TapeOptions options{0, ring_slots, ring_held_max, request_.parallel};
    if (m.decoder->predictor() != nullptr) options.first_pinned = m.decoder->predictor_turn();
    streaming::TapePlan tape = tape_plan(*m.layout, options, maps_files);
    const std::uint64_t rest = sum(m.plan.lines), taken = rest + tape.ring_bytes;
    const std::uint64_t left = m.plan.budget.bytes - std::min(m.plan.budget.bytes, taken);
    if (!tape.is_in_page_cache) tape.pinned_bytes = left;
    options.pinned_bytes_max = left - std::min(left, page_table_bytes(rest, tape));
    return options;
  }

  void add_weights(MemoryPlan& plan, bool maps_files) const {
    const std::uint64_t page_tables = page_table_bytes(sum(plan.lines), plan.tape);
    const Kind kind = maps_files ? Kind::file : Kind::anon;
    const std::uint64_t experts = plan.tape.residency.pinned_expert_bytes;
    plan.lines.push_back({"pinned weights", plan.tape.pinned_bytes - experts, kind});
    if (experts != 0) plan.lines.push_back({"experts", experts, kind});
    if (plan.tape.ring_bytes != 0) {
      plan.lines.push_back({"stream ring", plan.tape.ring_bytes, kind});
    }
    plan.lines.push_back({"page tables", page_tables, Kind::anon});
  }

  // The least budget: nothing pinned, the smallest chunks, and no longer context than was asked
  // for.
  std::uint64_t least_budget(const PlannedModel& m) const {
    const std::uint32_t context =
        chooses_context() ? std::min(m.plan.context, default_context_min) : m.plan.context;
    Shape shape{context, m.plan.chunk, request_cache_positions(),
                request_.helper.empty() ? 0 : drafts(m)};
    shape.chunk = std::min(m.plan.chunk, least_chunk(shape));
    const streaming::TapeOptions options{0, ring_slots, ring_held_max};
    const bool maps_files = request_.io == streaming::Io::mmap;
    // The slices of a resident layout are larger than those for streaming.
    if (m.plan.is_resident) {
      model::WeightLayout layout(model_, streamed_slice_bytes);
      model::make_decoder(model_, layout, request_.predicts);
      return least_with(lines_but_weights(m, layout, shape), layout, options, maps_files);
    }
    return least_with(lines_but_weights(m, *m.layout, shape), *m.layout, options, maps_files);
  }

  std::uint64_t least_with(const std::vector<Line>& lines, const model::WeightLayout& layout,
                           const streaming::TapeOptions& options, bool maps_files) const {
    const streaming::TapePlan tape = tape_plan(layout, options, maps_files);
    const std::uint64_t rest = sum(lines);
    return rest + tape.ring_bytes + page_table_bytes(rest, tape) + baseline_scatter_bytes;
  }

  const gguf::Model& model_;
  const Baseline& baseline_;
  const Request& request_;
  bool is_encoder_ = false;  // set with the decoder
  const Budget budget_;      // found once: the free memory changes from moment to moment
};

// Where there is no /proc (in a bare chroot), this is all that the kernel tells of its memory.
std::uint64_t physical_bytes() {
  struct sysinfo facts {};
  if (::sysinfo(&facts) != 0) return std::numeric_limits<std::int64_t>::max();
  return std::uint64_t{facts.totalram} * facts.mem_unit;
}

std::optional<std::uint64_t> anon_bytes() {
  return topology::read_process_memory().rss_anon_bytes;
}

}  // namespace

std::string_view kind_name(Kind kind) {
  return kind == Kind::anon ? "anon" : "file";
}

BaselineWatch::BaselineWatch() : program_anon_(anon_bytes()) {}

void BaselineWatch::header_loaded() {
  with_header_anon_ = anon_bytes();
}

Baseline BaselineWatch::finish() const {
  const topology::ProcessMemory now = topology::read_process_memory();
  if (!program_anon_ || !with_header_anon_ || !now.rss_anon_bytes || !now.rss_file_bytes) {
    return {.program_anon_bytes = Baseline::assumed_bytes,
            .program_file_bytes = Baseline::assumed_bytes,
            .is_assumed = true};
  }
  const auto growth = [](std::uint64_t after, std::uint64_t before) {
    return after - std::min(after, before);
  };
  return {.program_anon_bytes = *program_anon_,
          .program_file_bytes = *now.rss_file_bytes,
          .header_bytes = growth(*with_header_anon_, *program_anon_),
          .tokenizer_bytes = growth(*now.rss_anon_bytes, *with_header_anon_)};
}

Baseline with_growth(Baseline baseline) {
  const topology::ProcessMemory now = topology::read_process_memory();
  if (baseline.is_assumed || !now.rss_anon_bytes || !now.rss_file_bytes) return baseline;
  const std::uint64_t of_model = baseline.header_bytes + baseline.tokenizer_bytes;
  baseline.program_anon_bytes = *now.rss_anon_bytes - std::min(*now.rss_anon_bytes, of_model);
  baseline.program_file_bytes = *now.rss_file_bytes;
  return baseline;
}

Budget find_budget(std::optional<std::uint64_t> requested_bytes) {
  const auto bound = topology::usable_memory(topology::read_machine());
  const std::uint64_t usable = bound ? bound->usable_bytes() : physical_bytes();
  const auto less = [usable](std::uint64_t reserve) { return usable - std::min(usable, reserve); };
  if (requested_bytes && *requested_bytes <= less(least_reserve_bytes)) {
    return {*requested_bytes, "--budget"};
  }
  // Taking more than is available would get the process killed.
  Budget budget{less(auto_reserve_bytes), bound ? bound->source : "physical memory"};
  if (requested_bytes) {
    budget.note = fmt::format("a budget of {} is more than this machine has: using {} ({})",
                              shown(*requested_bytes), shown(budget.bytes), budget.source);
  }
  return budget;
}

std::uint64_t MemoryPlan::total_bytes() const {
  return sum(lines);
}

bool MemoryPlan::cuts_back() const {
  const auto sees_all = [](const kvcache::LayerGroup& group) {
    return group.window.positions == 0;
  };
  return !has_states() && std::ranges::all_of(kvcache::layer_groups(cache), sees_all);
}

std::uint64_t MemoryPlan::bytes_of(std::string_view line) const {
  const auto found = std::ranges::find(lines, line, &Line::name);
  return found == lines.end() ? 0 : found->bytes;
}

PlannedModel plan_model(const gguf::Model& model, const Baseline& baseline,
                        const Request& request) {
  return Planner(model, baseline, request).plan();
}

std::vector<Line> helper_lines(const MemoryPlan& plan) {
  Line weights{"draft model, weights", 0, Kind::anon}, cache{"draft model, keys and values"},
      buffers{"draft model, buffers"};
  for (const Line& line : plan.lines) {
    if (line.name == "pinned weights") weights.kind = line.kind;
    if (line.name == "norms and biases" || line.name == "lists of weights" ||
        line.name == "pinned weights" || line.name == "experts" || line.name == "stream ring") {
      weights.bytes += line.bytes;
    } else if (line.name.starts_with("keys and values") || line.name == "recurrent states") {
      cache.bytes += line.bytes;
    } else if (line.name == "activations" || line.name == "logits" || line.name == "requests") {
      buffers.bytes += line.bytes;
    }
  }
  return {weights, cache, buffers};
}

Error budget_error(const MemoryPlan& plan) {
  if (plan.helper_bytes != 0) {
    const std::uint64_t needed = std::max(plan.least_budget_bytes, plan.budget.bytes);
    return Error(
        ExitCode::budget,
        fmt::format("a budget of {} ({}) is too small for the model and its draft model, which "
                    "takes {}: {} are missing; raise --budget, or leave out --draft",
                    shown(plan.budget.bytes), plan.budget.source, shown(plan.helper_bytes),
                    shown(needed - plan.budget.bytes, true)));
  }
  const std::string_view remedies =
      plan.cache.layers.empty()
          ? "raise --budget, or lower --ctx"
          : "raise --budget, or lower --ctx or --window (or --parallel, where several texts run "
            "together)";
  return Error(ExitCode::budget,
               fmt::format("a budget of {} ({}) is too small: the least that works for this model "
                           "with a context of {} is {}; {}",
                           shown(plan.budget.bytes), plan.budget.source, plan.context,
                           shown(plan.least_budget_bytes, true), remedies));
}

}  // namespace sluice::plan
