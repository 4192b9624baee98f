#include "core/capi/boundary.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "core/text/utf8.h"

// In this library the linker takes it for __cxa_atexit(), with which C++ has objects of static
// storage destroyed. None is: a program may call exit(), or return from main(), while texts are
// computed and while other threads of its are in functions of the library. And a child of fork(),
// which has not the threads of its parent, waits for none at its end.
extern "C" int __wrap___cxa_atexit(void (*)(void*), void*, void*);   // NOLINT
extern "C" int __wrap___cxa_atexit(void (*)(void*), void*, void*) {  // NOLINT
  return 0;
}

namespace sluice::capi {
namespace {

// Of a fixed size, so that there is room where memory is what is missing.
thread_local std::array<char, 1024> failure{};

// A long line loses its middle: it begins with what failed, and ends with why.
void keep(std::string_view line) noexcept {
  constexpr std::string_view gap = "...";
  constexpr std::size_t half = (std::tuple_size_v<decltype(failure)> - gap.size()) / 2 - 4;
  const bool is_long = line.size() >= failure.size();
  const std::size_t head = is_long ? utf8::character_start(line, half) : line.size();
  const std::size_t tail = is_long ? utf8::character_start(line, line.size() - half) : line.size();
  auto end = failure.begin();
  for (const std::string_view part :
       {line.substr(0, head), gap.substr(0, is_long ? gap.size() : 0), line.substr(tail)}) {
    end = std::ranges::transform(part, end, [](char c) {
            return static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
          }).out;
  }
  *end = '\0';
}

// Messages name the options of the program; callers know them as members of a struct.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> members = {{
    {"--budget", "options.budget_bytes"},
    {"--threads", "options.threads"},
    {"--ctx", "options.context"},
    {"--window", "options.window"},
    {"--parallel", "options.parallel"},
    {"--kv", "options.kv"},
    {"--io", "options.io"},
    {"--chat-format", "options.chat_format"},
    {"--think", "options.think"},
}};

std::string with_members(std::string line) {
  for (const auto& [option, member] : members) {
    for (std::size_t at = 0; (at = line.find(option, at)) != line.npos;) {
      const std::size_t end = at + option.size();
      const bool begins = at == 0 || line[at - 1] == ' ' || line[at - 1] == '(';
      const bool ends = end == line.size() || line.find_first_of(" ,;:)", end) == end;
      if (begins && ends) line.replace(at, option.size(), member);
      at = end;
    }
  }
  return line;
}

void keep_message(const char* message) noexcept {
  try {
    keep(with_members(message));
  } catch (const std::bad_alloc&) {
    keep(message);
  }
}

}  // namespace

int record_failure() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    keep("out of memory");
    return SLUICE_FAILURE;
  } catch (const Busy& error) {
    keep_message(error.what());
    return SLUICE_BUSY;
  } catch (const std::exception& error) {
    keep_message(error.what());
    return static_cast<int>(exit_code_of(error));
  } catch (...) {
    keep("a callback has thrown");
    return SLUICE_FAILURE;
  }
}

const char* last_error() noexcept {
  return failure.data();
}

std::string text_of(const char* text, std::string_view name) {
  std::string copy = not_null(text, name);
  const std::size_t valid = utf8::valid_prefix(copy);
  if (valid != copy.size()) {
    throw UsageError(fmt::format("{} is no UTF-8: byte {} belongs to no character", name, valid));
  }
  return copy;
}

char* copied(std::string_view text) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  if (!text.empty()) std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

std::uint64_t new_handle() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace sluice::capi
