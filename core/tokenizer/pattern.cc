#include "core/tokenizer/pattern.h"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <cstdint>
#include <limits>
#include <new>
#include <pcre2.h>
#include <stdexcept>
#include <string>

#include "base/confinement.h"

namespace sluice::tokenizer {

namespace {

// PCRE2's own \s also takes U+180E, which has not been white space since Unicode 6.3.
constexpr std::string_view white_space =
    R"(\x09-\x0D\x20\x85\xA0\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

std::string with_unicode_white_space(std::string_view regex) {
  std::string result;
  bool in_class = false;
  for (std::size_t i = 0; i < regex.size(); ++i) {
    const bool escape = regex[i] == '\\' && i + 1 < regex.size();
    if (escape && regex[i + 1] == 's') {
      result += in_class ? std::string(white_space) : fmt::format("[{}]", white_space);
      ++i;
    } else if (escape && regex[i + 1] == 'S' && !in_class) {
      result += fmt::format("[^{}]", white_space);
      ++i;
    } else if (escape) {
      result += regex[i++];
      result += regex[i];
    } else {
      if (regex[i] == '[') in_class = true;
      if (regex[i] == ']') in_class = false;
      result += regex[i];
    }
  }
  return result;
}

std::string error_text(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

// The patterns of pre-tokenizers repeat single characters only, which takes no stack however long
// the run. This stack is for anything else that a pattern may need.
constexpr std::size_t jit_stack_bytes_max = std::size_t{1} << 20;

}  // namespace

struct Pattern::Code {
  explicit Code(pcre2_code* compiled) : code(compiled) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  pcre2_code* code;
};

struct Pattern::Scratch::State {
  State()
      : data(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(32 * 1024, jit_stack_bytes_max, nullptr)) {
    if (data == nullptr || context == nullptr) {
      release();
      throw std::bad_alloc();
    }
    // The limits protect from other people's patterns. Ours are known to be linear, but going back
    // over a run of millions of spaces counts as that many matches.
    pcre2_set_match_limit(context, std::numeric_limits<std::uint32_t>::max());
    pcre2_set_depth_limit(context, std::numeric_limits<std::uint32_t>::max());
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~State() { release(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void release() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }

  pcre2_match_data* data;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;  // null: PCRE2 was built without JIT
};

Pattern::Scratch::Scratch() : state_(std::make_unique<State>()) {}
Pattern::Scratch::~Scratch() = default;

Pattern::Pattern(std::string_view regex) {
  const std::string expanded = with_unicode_white_space(regex);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expanded.data()), expanded.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code == nullptr) {
    throw std::invalid_argument(
        fmt::format("regular expression '{}': {} at {}", regex, error_text(error), offset));
  }
  code_ = std::make_unique<Code>(code);
  // Without code, and where the system forbids executable memory, pcre2_match interprets the
  // pattern.
  if (!base::is_code_forbidden()) pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

std::optional<Pattern::Match> Pattern::find(std::string_view text, std::size_t from,
                                            Scratch& scratch) const {
  const Scratch::State& state = *scratch.state_;
  const auto match = [&](std::uint32_t options) {
    return pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       PCRE2_NO_UTF_CHECK | options, state.data, state.context);
  };
  int result = match(0);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(PCRE2_NO_JIT);
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0) {
    throw std::runtime_error(fmt::format("splitting {} bytes of text into words failed: {}",
                                         text.size(), error_text(result)));
  }
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state.data);
  return Match{bounds[0], bounds[1]};
}

}  // namespace sluice::tokenizer
