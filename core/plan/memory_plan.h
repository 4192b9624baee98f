// The memory plan: every byte that a run will hold, line by line, before anything is allocated.
//
// Made from the header of a model file and the state of this process. The engine allocates by the
// same plan, so `sluice plan` prints exactly what a run takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/page.h"
#include "core/error.h"
#include "kvcache/kv_cache.h"
#include "streaming/choose_reader.h"
#include "streaming/streamed_tape.h"

namespace sluice::plan {

// anon: memory of the process's own; file: pages of files, which the system can take back.
enum class Kind { anon, file };
std::string_view kind_name(Kind kind);  // "anon", "file"

struct Line {
  std::string name;
  std::uint64_t bytes = 0;
  Kind kind = Kind::anon;
};

// What the process holds once the header and the tokenizer are loaded.
struct Baseline {
  // Assumed for a program that has just started, on a system that does not report its memory.
  static constexpr std::uint64_t assumed_bytes = std::uint64_t{16} << 20U;

  std::uint64_t program_anon_bytes = 0;  // heap and stacks
  std::uint64_t program_file_bytes = 0;  // code and libraries
  std::uint64_t header_bytes = 0;        // the copy of the model's header, and its tables
  std::uint64_t tokenizer_bytes = 0;
  bool is_assumed = false;  // the system reports none of these; see assumed_bytes
};

// The same for a process that has grown since it was measured: the rest of what it holds now is the
// program's.
Baseline with_growth(Baseline baseline);

// Measures a baseline while the header and the tokenizer are being loaded.
class BaselineWatch {
 public:
  BaselineWatch();          // before the model is opened
  void header_loaded();     // when the header has been parsed
  Baseline finish() const;  // when the tokenizer is made

 private:
  std::optional<std::uint64_t> program_anon_, with_header_anon_;  // where the system reports it
};

// Working memory of the sampler for each token of the vocabulary: sampling::SamplerScratch.
inline constexpr std::uint64_t sampling_bytes_per_token = 12;

inline constexpr std::uint32_t draft_sequences_max = 4;
// Most sequences that a caller keeps beside those that run.
inline constexpr std::uint32_t kept_sequences_max = 16;

// What a user asks of a run, and the plan depends on.
struct RunSettings {
  std::optional<std::uint64_t> budget_bytes;  // all memory of the process; nothing: auto
  // The budget is the memory of another machine, for which this run is only planned: it may be more
  // than this one has.
  bool has_memory_of_another = false;
  std::uint32_t context = 0;  // positions of a sequence; 0: the plan chooses
  // How many of the newest positions a token sees, including the first `sinks` of the text, which
  // stay visible; 0: all. With a window a sequence has no end. At most `context`, where that is
  // given.
  std::uint32_t window = 0;
  std::uint32_t sinks = 4;     // only with a window
  std::uint32_t parallel = 1;  // how many sequences of `context` positions there is room for
  // Positions that the cache holds for all sequences together, at least `context`, where that is
  // enough. The cache gets more, up to context * parallel, where no weight has to be streamed for
  // it. 0: context * parallel in any case. Ignored with a window, or when the plan chooses the
  // context.
  std::uint64_t cache_positions = 0;
  std::uint64_t caller_bytes = 0;               // what the caller will hold besides the engine
  std::uint64_t caller_bytes_per_position = 0;  // and for each position of the context
  // And for each of the newest positions, of which it keeps so many.
  std::uint64_t caller_bytes_per_newest = 0, caller_newest_max = 0;
  kvcache::ElementType kv = kvcache::ElementType::int8;
  std::uint32_t chunk = 512;  // most tokens of a prompt in one step
  // Most tokens of a step whose logits are wanted, and held at the same time.
  std::uint32_t logits_columns = 1;
  // How many drafts of each sequence a step may have, which want logits too; of many sequences
  // together draft_sequences_max times as many. None where memory is short.
  std::uint32_t drafts = 0;
  // To how many lengths a sequence can go back where the model has recurrent states, which cannot
  // be cut (kvcache::CacheConfig). None where memory is short.
  std::uint32_t checkpoints = 0;
  // Take the block of the file that predicts further tokens, too (core/model/predictor.h).
  bool predicts = false;
  // What a second model takes that guesses for this one (helper_lines()). Then the plan does not
  // fit without room for drafts.
  std::vector<Line> helper = {};
  // This is that second model: all of its weights are pinned, and no budget applies but that of the
  // other one's plan.
  bool is_helper = false;
  streaming::Io io = streaming::Io::automatic;
};

struct Request : RunSettings {
  unsigned threads = 1;
  std::uint64_t alignment = base::page_bytes;  // the reader reads multiples of this many bytes
};

// The most memory that the run may use, and where that limit comes from: "memory cgroup /a
// (memory.max)".
struct Budget {
  std::uint64_t bytes = 0;
  std::string source;
  std::string note = {};  // one line, when more was asked for than is available
};

// The budget of a request. It is what was asked for, if that leaves `least_reserve_bytes` below the
// tightest limit on this process. Otherwise, and for auto, it is that limit less
// `auto_reserve_bytes`. The reserves are for the kernel's own pages and for other processes of the
// group.
inline constexpr std::uint64_t auto_reserve_bytes = std::uint64_t{48} << 20;
inline constexpr std::uint64_t least_reserve_bytes = std::uint64_t{4} << 20;
Budget find_budget(std::optional<std::uint64_t> requested_bytes);

// A table that is never loaded: its rows are read as tokens need them.
struct TableOnDisk {
  std::string name;  // of the tensor
  std::uint64_t bytes = 0;
  std::uint64_t rows_per_token = 0, row_bytes = 0;
  std::uint64_t held_bytes = 0;  // of the rows of a step, as numbers; counted with activations
};

struct MemoryPlan {
  std::vector<Line> lines;
  std::vector<TableOnDisk> tables_on_disk;
  Budget budget;
  std::uint64_t least_budget_bytes = 0;  // with nothing pinned and the smallest chunk
  std::uint64_t helper_bytes = 0;        // of these, those of RunSettings::helper

  // The engine allocates by the following.
  bool is_resident = false;   // all weights stay in pages of the file
  std::uint32_t context = 0;  // positions that a token may see: the context, or the window
  kvcache::CacheConfig cache;
  std::uint32_t chunk = 0;
  std::uint32_t logits_columns = 0;
  // The most columns of a step that sequences with drafts have; 0 where no layer has a recurrent
  // state, and nothing of them has to be kept.
  std::uint32_t kept_columns = 0;
  streaming::TapeOptions tape_options;
  streaming::TapePlan tape;

  std::uint64_t total_bytes() const;
  std::uint64_t bytes_of(std::string_view line) const;  // 0 when there is no such line
  // Whether a step may have drafts: each wants logits, and where there are states is kept besides.
  bool has_room_for_drafts() const {
    return logits_columns > 1 && (!has_states() || kept_columns != 0);
  }
  bool has_states() const { return kvcache::state_bytes(cache) != 0; }
  // Whether a sequence can lose any number of its newest tokens: without states and windows.
  bool cuts_back() const;
  bool fits() const { return total_bytes() <= budget.bytes; }
};

// What a model takes beside another one that it helps, as lines of the other one's plan. Their
// processes and threads are the same, and the header and the tokenizer count as the program's.
std::vector<Line> helper_lines(const MemoryPlan& plan);

// The Error of a plan that does not fit. It names the budget, where the budget comes from, and the
// least that would be enough.
Error budget_error(const MemoryPlan& plan);

}  // namespace sluice::plan
