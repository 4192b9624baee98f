// A compiled grammar: a pushdown automaton over bytes, as tables.
//
// Every rule is a deterministic automaton of its own. Besides bytes, a state may have calls
// (another rule is matched, then the automaton goes on at the target) and the two ends of counted
// loops (enter: one more round begins; check: the loop is left). core/constrain/grammar_builder.h
// makes grammars, core/constrain/machine.h runs them.
//
// Always true of a compiled grammar: no rule calls itself before a byte was read (so following
// calls ends), every state can reach the end of its rule, and every rule can end.
//
// Threads: immutable; any number of threads may use one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice::constrain {

struct Grammar {
  static constexpr std::uint32_t none = 0xFFFFFFFF;
  static constexpr std::uint32_t unlimited = 0xFFFFFFFF;  // rounds of a loop

  // What a byte leads to: a target, and perhaps an end of the loop of the state.
  enum class Guard : std::uint8_t { nothing, enter, check };
  struct Step {
    std::uint32_t packed = 0;  // 0: the byte is not allowed
    static Step to(std::uint32_t state, Guard guard) {
      return {((state + 1) << 2U) | static_cast<std::uint32_t>(guard)};
    }
    bool is_allowed() const { return packed != 0; }
    std::uint32_t target() const { return (packed >> 2U) - 1; }
    Guard guard() const { return static_cast<Guard>(packed & 3U); }
  };

  struct Call {
    std::uint32_t start;   // of the rule
    std::uint32_t target;  // where to go on afterwards
  };
  struct LoopEnd {
    Guard guard;
    std::uint32_t loop;
    std::uint32_t target;
  };
  struct Loop {
    std::uint32_t min, max;
  };
  struct State {
    std::uint32_t calls_begin = 0, calls_end = 0;  // in `calls`
    std::uint32_t ends_begin = 0, ends_end = 0;    // in `loop_ends`
    std::uint32_t loop = none;                     // the loop whose rounds are being counted here
    bool accepts = false;                          // the rule may end here
    bool has_bytes = false;
    bool only_bytes() const {
      return !accepts && calls_begin == calls_end && ends_begin == ends_end;
    }
    // Nothing but the end of the rule.
    bool only_accepts() const {
      return accepts && !has_bytes && calls_begin == calls_end && ends_begin == ends_end;
    }
  };

  std::array<std::uint8_t, 256> byte_class = {};  // bytes that no state tells apart
  std::uint32_t classes = 1;
  std::vector<Step> steps;  // [states][classes]
  std::vector<State> states;
  std::vector<Call> calls;
  std::vector<LoopEnd> loop_ends;
  std::vector<Loop> loops;
  std::uint32_t start = 0;
  std::uint32_t start_after_thought = 0;  // reads up to two newlines, then as `start`
  std::string warning;  // what of a schema no text has to obey, in one line of ASCII; or empty

  Step step(std::uint32_t state, std::uint8_t byte) const {
    return steps[std::size_t{state} * classes + byte_class[byte]];
  }
  std::size_t bytes() const {  // held in memory
    return sizeof(Grammar) + steps.capacity() * sizeof(Step) + states.capacity() * sizeof(State) +
           calls.capacity() * sizeof(Call) + loop_ends.capacity() * sizeof(LoopEnd) +
           loops.capacity() * sizeof(Loop) + warning.capacity();
  }
};

}  // namespace sluice::constrain
