#include "core/convert/json_file.h"

#include <fmt/format.h>
#include <limits>
#include <span>
#include <string>
#include <system_error>

#include "core/error.h"
#include "core/model/file_bytes.h"
#include "core/text/limited_json.h"

namespace sluice::convert {
namespace {

using nlohmann::json;

// Python writes numbers that JSON does not have, as the limits of a time step. They become nulls:
// a setting without a limit is one that is not given.
std::string without_infinities(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool is_in_string = false;
  while (!text.empty()) {
    if (text[0] == '"') is_in_string = !is_in_string;
    const bool is_escape = is_in_string && text[0] == '\\';
    std::string_view read = text.substr(0, is_escape ? 2 : 1), written = read;
    for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
      if (is_in_string || !text.starts_with(word)) continue;
      read = word;
      written = "null";
    }
    out += written;
    text.remove_prefix(read.size());
  }
  return out;
}

}  // namespace

json parse_json(std::string_view text, const std::string& source) {
  // What bounds the number of values is the size of the text. Python writes the length of texts
  // without a limit as an integer of 31 digits.
  constexpr JsonLimits limits = {.what = "file",
                                 .values_max = std::numeric_limits<std::size_t>::max(),
                                 .members_max = std::numeric_limits<std::size_t>::max(),
                                 .depth_max = 64,
                                 .may_repeat_names = false,
                                 .rounds_integers = true};
  const bool may_have_infinities =
      text.find("Infinity") != std::string_view::npos || text.find("NaN") != std::string_view::npos;
  const std::string finite = may_have_infinities ? without_infinities(text) : std::string();
  try {
    return parse_limited_json(may_have_infinities ? finite : text, limits).value;
  } catch (const JsonError& error) {
    throw ModelError(fmt::format("{}: {}", source, error.what()));
  }
}

std::string read_file(const std::filesystem::path& path, std::uint64_t bytes_max) {
  std::error_code error;
  const std::uint64_t bytes = std::filesystem::file_size(path, error);
  if (error) throw std::system_error(error, fmt::format("cannot read {}", path.string()));
  if (bytes > bytes_max) {
    throw ModelError(fmt::format("{}: has {} bytes, more than the {} expected", path.string(),
                                 bytes, bytes_max));
  }
  std::string text(bytes, '\0');
  model::FileBytes(path).read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

json read_json(const std::filesystem::path& path, std::uint64_t bytes_max) {
  return parse_json(read_file(path, bytes_max), path.string());
}

Config read_config(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return {json::object(), path.string()};
  return {read_json(path, config_bytes_max), path.string()};
}

}  // namespace sluice::convert
