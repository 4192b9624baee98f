#include "core/quant/type_recipe.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>

#include "base/trim.h"
#include "core/error.h"
#include "core/quant/quant_mix.h"
#include "core/text/quoted.h"

namespace sluice::quant {
namespace {

using base::trimmed;
using kernels::BlockTraits;

kernels::BlockType type_by_name(std::string_view name, std::string_view place) {
  std::string known;
  for (const BlockTraits& traits : kernels::all_block_types()) {
    if (!traits.can_encode) continue;
    if (std::ranges::equal(traits.name, name, {}, {},
                           [](unsigned char c) { return static_cast<char>(std::toupper(c)); })) {
      return traits.type;
    }
    known += (known.empty() ? "" : ", ") + std::string(traits.name);
  }
  throw UsageError(fmt::format("{}: unknown type {}; known: {}", place, text::quoted(name), known));
}

// Whether "01a-f" has the character.
bool has(std::string_view set, char c) {
  for (std::size_t i = 0; i < set.size(); ++i) {
    const bool is_range = i + 2 < set.size() && set[i + 1] == '-';
    if (is_range ? set[i] <= c && c <= set[i + 2] : set[i] == c) return true;
    if (is_range) i += 2;
  }
  return false;
}

// The place behind what stands for one character at `at` of a pattern, if that may be `c`.
std::optional<std::size_t> match_one(std::string_view pattern, std::size_t at, char c) {
  const std::size_t close = pattern[at] == '[' ? pattern.find(']', at) : std::string_view::npos;
  if (close != std::string_view::npos) {
    const bool is_in = has(pattern.substr(at + 1, close - at - 1), c);
    return is_in ? std::optional(close + 1) : std::nullopt;
  }
  return pattern[at] == '?' || pattern[at] == c ? std::optional(at + 1) : std::nullopt;
}

}  // namespace

// Goes back to the last `*` alone, so that no pattern takes long.
bool matches(std::string_view pattern, std::string_view name) {
  std::size_t at = 0, i = 0;
  std::optional<std::size_t> star;  // the place behind the last one
  std::size_t of_star = 0;          // where in the name it ends so far
  while (i < name.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = ++at;
      of_star = i;
      continue;
    }
    const auto next = at < pattern.size() ? match_one(pattern, at, name[i]) : std::nullopt;
    if (next) {
      at = *next;
      ++i;
    } else if (star) {
      at = *star;
      i = ++of_star;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

TypeRecipe TypeRecipe::parse(std::string_view text, std::string_view source) {
  TypeRecipe recipe;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#') continue;
    const std::string place = fmt::format("{}:{}", source, number);
    const std::size_t equals = line.rfind('=');
    const std::string_view pattern = trimmed(line.substr(0, std::min(equals, line.size())));
    if (equals == std::string_view::npos || pattern.empty()) {
      throw UsageError(fmt::format("{}: {} is no line such as *.ffn_down.weight = Q6_K", place,
                                   text::quoted(line)));
    }
    recipe.lines_.push_back(
        {std::string(pattern), type_by_name(trimmed(line.substr(equals + 1)), place), place});
  }
  if (recipe.is_empty()) {
    throw UsageError(fmt::format("{}: no line such as *.ffn_down.weight = Q6_K", source));
  }
  return recipe;
}

std::optional<kernels::BlockType> TypeRecipe::type_for(std::string_view name,
                                                       std::uint64_t columns) {
  const Line* chosen = nullptr;
  for (Line& line : lines_) {
    if (!matches(line.pattern, name)) continue;
    line.has_matched = true;
    chosen = &line;
  }
  if (chosen == nullptr) return std::nullopt;
  const kernels::BlockType dividing = dividing_type(chosen->type, columns);
  if (dividing != chosen->type) {
    const BlockTraits& traits = kernels::traits(chosen->type);
    throw UsageError(fmt::format(
        "{}: tensor {} has rows of {} weights, which blocks of {} ({}) do not divide; choose {}",
        chosen->place, text::quoted(name), columns, traits.elements_per_block, traits.name,
        kernels::traits(dividing).name));
  }
  return dividing;
}

void TypeRecipe::check_all_matched() const {
  const auto idle = std::ranges::find(lines_, false, &Line::has_matched);
  if (idle == lines_.end()) return;
  throw UsageError(fmt::format(
      "{}: the pattern {} matches no matrix of the model; `sluice inspect --tensors` lists names",
      idle->place, text::quoted(idle->pattern)));
}

}  // namespace sluice::quant
