#include "kernels/core_policy.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <stdexcept>

#ifdef SLUICE_HAVE_X86_TIERS
#include <cpuid.h>
#endif

namespace sluice::kernels {
namespace {

constexpr Prefetch none_one_panel = {0, CacheLevel::l1, 1};
constexpr Prefetch near = {2048, CacheLevel::l1, 4};
constexpr Prefetch ahead_one_panel = {4096, CacheLevel::l1, 1};
constexpr Prefetch far = {8192, CacheLevel::l2, 4};
constexpr Prefetch far_one_panel = {8192, CacheLevel::l2, 1};

// Measured from memory (docs/performance.md). Zen 4 loses a third to `near`, and with two threads
// Zen 5 a tenth; Intel's servers need it for few columns.
constexpr CorePolicy of_zen_4 = {{{none_one_panel, far, far, far, near, far_one_panel}}, true};
constexpr CorePolicy of_zen_5 = {{{ahead_one_panel, near, ahead_one_panel, near, near, near}},
                                 true};
constexpr CorePolicy of_intel_servers = {{{near, near, far, far, near, far}}, false};
constexpr CorePolicy of_others = {{{near, near, near, near, near, near}}, false};

#ifdef SLUICE_HAVE_X86_TIERS

// A range of models of a family, as CPUID numbers them.
struct Core {
  unsigned vendor;  // ebx of leaf 0
  unsigned family, first_model, last_model;
  const CorePolicy* policy;
};

constexpr unsigned amd = signature_AMD_ebx, intel = signature_INTEL_ebx;
constexpr Core cores[] = {
    {amd, 0x19, 0x10, 0x1f, &of_zen_4},           // Genoa
    {amd, 0x19, 0x60, 0x7f, &of_zen_4},           // Raphael, Phoenix
    {amd, 0x19, 0xa0, 0xaf, &of_zen_4},           // Bergamo, Siena
    {amd, 0x1a, 0x00, 0xff, &of_zen_5},           // all of them; measured on Turin
    {intel, 0x6, 0x8f, 0x8f, &of_intel_servers},  // Sapphire Rapids
    {intel, 0x6, 0xcf, 0xcf, &of_intel_servers},  // Emerald Rapids
    {intel, 0x6, 0xad, 0xae, &of_intel_servers},  // Granite Rapids
};

const CorePolicy& policy_of_this_core() {
  unsigned eax = 0, vendor = 0, ecx = 0, edx = 0, unused = 0;
  if (__get_cpuid(0, &eax, &vendor, &ecx, &edx) == 0) return of_others;
  if (__get_cpuid(1, &eax, &unused, &ecx, &edx) == 0) return of_others;
  const unsigned base = eax >> 8 & 15, family = base + (base == 15 ? eax >> 20 & 255 : 0);
  const unsigned model = (eax >> 4 & 15) | (eax >> 16 & 15) << 4;
  for (const Core& core : cores) {
    if (vendor == core.vendor && family == core.family && model >= core.first_model &&
        model <= core.last_model) {
      return *core.policy;
    }
  }
  return of_others;
}

#else

const CorePolicy& policy_of_this_core() {
  return of_others;
}

#endif

// Takes the text up to the separator, or all of it, off the front of `text`.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}

std::optional<std::uint32_t> number(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<Prefetch> parse_one(std::string_view text) {
  constexpr std::uint32_t bytes_max = 1 << 20;
  const auto bytes = number(take_until(text, ':'));
  const std::string_view level = take_until(text, ':');
  const auto panels = number(text);
  if (!bytes || *bytes > bytes_max || (level != "l1" && level != "l2")) return std::nullopt;
  if (panels != 1U && panels != 4U) return std::nullopt;
  return Prefetch{*bytes, level == "l1" ? CacheLevel::l1 : CacheLevel::l2,
                  static_cast<std::uint8_t>(*panels)};
}

}  // namespace

const Prefetch& PrefetchPolicy::for_columns(std::size_t columns, bool is_slow_to_unpack) const {
  constexpr std::size_t last_of_class[] = {1, 4, 8, 16};
  if (is_slow_to_unpack && columns <= std::end(last_of_class)[-1]) return of_class[classes - 1];
  std::size_t i = 0;
  while (i < std::size(last_of_class) && columns > last_of_class[i]) ++i;
  return of_class[i];
}

CorePolicy chosen_policy() {
  CorePolicy policy = policy_of_this_core();
  // Read once, before sluice starts a thread that could change the environment.
  const char* text = std::getenv("SLUICE_PREFETCH");  // NOLINT(concurrency-mt-unsafe)
  if (text && *text) policy.prefetch = parse_prefetch(text);
  return policy;
}

PrefetchPolicy parse_prefetch(std::string_view text) {
  PrefetchPolicy policy;
  std::string_view rest = text;
  const auto count = static_cast<std::size_t>(1 + std::ranges::count(text, ','));
  bool is_right = count == 1 || count == PrefetchPolicy::classes;
  for (std::size_t i = 0; is_right && i < count; ++i) {
    const std::optional<Prefetch> one = parse_one(take_until(rest, ','));
    is_right = one.has_value();
    if (one) policy.of_class[i] = *one;
  }
  if (!is_right) {
    throw std::invalid_argument(
        "SLUICE_PREFETCH=" + std::string(text) +
        " is no way to prefetch weights; set it to BYTES:l1|l2:PANELS with at most 1048576 bytes "
        "ahead and 1 or 4 panels in turn, once or for 1, 2-4, 5-8, 9-16 and more columns and for "
        "formats that are slow to unpack, as in 8192:l2:4, or unset it");
  }
  for (std::size_t i = count; i < PrefetchPolicy::classes; ++i) {
    policy.of_class[i] = policy.of_class[0];
  }
  return policy;
}

std::string to_text(const PrefetchPolicy& policy) {
  std::string text;
  for (const Prefetch& one : policy.of_class) {
    text += (text.empty() ? "" : ",") + std::to_string(one.bytes_ahead) +
            (one.into == CacheLevel::l1 ? ":l1:" : ":l2:") + std::to_string(one.panels_in_turn);
  }
  return text;
}

}  // namespace sluice::kernels
