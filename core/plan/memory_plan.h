// The ledger: every byte that a run will hold, line by line, before anything is allocated.
//
// Made from the header of a model file and the state of this process. The engine allocates by the
// same plan, so what `sluice plan` prints and what a run takes are one calculation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "kvcache/kv_cache.h"
#include "streaming/choose_reader.h"
#include "streaming/streamed_tape.h"

namespace sluice::plan {

// Whether memory is the process's own, or pages of files, which the system can take back.
enum class Kind { anon, file };
std::string_view kind_name(Kind kind);  // "anon", "file"

struct Line {
  std::string name;
  std::uint64_t bytes = 0;
  Kind kind = Kind::anon;
};

// What the process holds when the header and the tokenizer are loaded and nothing else is.
struct Baseline {
  // The bytes of a program that has just begun, on a system that does not tell them.
  static constexpr std::uint64_t assumed_bytes = std::uint64_t{16} << 20U;

  std::uint64_t program_anon_bytes = 0;  // heap and stacks
  std::uint64_t program_file_bytes = 0;  // code and libraries
  std::uint64_t header_bytes = 0;        // the copy of the model's header, and its tables
  std::uint64_t tokenizer_bytes = 0;
  bool is_assumed = false;  // the system tells none of these: the program's are assumed_bytes
};

// Measures a baseline while the header and the tokenizer are being loaded.
class BaselineWatch {
 public:
  BaselineWatch();          // before the model is opened
  void header_loaded();     // when the header has been parsed
  Baseline finish() const;  // when the tokenizer is made

 private:
  std::optional<std::uint64_t> program_anon_, with_header_anon_;  // where the system tells
};

// What the choice of a token works with, for each token of the vocabulary: engine::SamplerScratch.
inline constexpr std::uint64_t sampling_bytes_per_token = 12;

// What was asked for.
struct Request {
  std::optional<std::uint64_t> budget_bytes;  // nothing: auto, from cgroups and free memory
  std::uint32_t context = 0;                  // positions of a sequence; 0: chosen
  std::uint32_t window = 0;                   // of these, what a token sees; 0: all
  std::uint32_t sinks = 0;                    // of the window, the first positions, which stay
  std::uint32_t parallel = 1;                 // sequences of so many positions
  // What the cache holds of all sequences together, at least `context`; more, up to
  // context * parallel, where no weight has to be streamed for it. 0: all of that in any case. Has
  // no meaning with a window or a context that is chosen.
  std::uint64_t cache_positions = 0;
  std::uint32_t chunk = 512;  // tokens of a prompt evaluated together, at most
  kvcache::ElementType kv = kvcache::ElementType::int8;
  std::uint32_t logits_columns = 1;  // tokens of a step whose logits are wanted, at most
  unsigned threads = 1;
  streaming::Io io = streaming::Io::automatic;
  std::uint64_t caller_bytes = 0;  // that the caller will hold beside the engine
  // How readers read: multiples of it, through a mapping or not. From the reader that will be used.
  std::uint64_t alignment = 4096;
};

// The memory that may be used in all, and what says so: "memory cgroup /a (memory.max)".
struct Budget {
  std::uint64_t bytes = 0;
  std::string source;
  std::string note = {};  // one line, when more was asked for than there is
};

// The budget of a request: what was asked for, if the tightest bound on this process leaves
// `least_reserve_bytes` beside it; otherwise, and for auto, that bound less `auto_reserve_bytes`.
// The reserves are for the kernel's own pages and for what others in the group need.
inline constexpr std::uint64_t auto_reserve_bytes = std::uint64_t{48} << 20;
inline constexpr std::uint64_t least_reserve_bytes = std::uint64_t{4} << 20;
Budget find_budget(std::optional<std::uint64_t> requested_bytes);

struct MemoryPlan {
  std::vector<Line> lines;
  Budget budget;
  std::uint64_t least_budget_bytes = 0;  // with nothing pinned and the smallest chunk

  // What the engine allocates by.
  bool is_resident = false;   // all weights stay in pages of the file
  std::uint32_t context = 0;  // positions that a token may see: the context, or the window
  kvcache::CacheConfig cache;
  std::uint32_t chunk = 0;
  std::uint32_t logits_columns = 0;
  streaming::TapeOptions tape_options;
  streaming::TapePlan tape;

  std::uint64_t total_bytes() const;
  bool fits() const { return total_bytes() <= budget.bytes; }
};

// The Error of a plan that does not fit: names the budget, where it comes from, and the least that
// would do.
Error budget_error(const MemoryPlan& plan);

}  // namespace sluice::plan
