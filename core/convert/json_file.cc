#include "core/convert/json_file.h"

#include <fmt/format.h>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/error.h"
#include "core/gguf/quoted.h"
#include "core/model/file_bytes.h"

namespace sluice::convert {
namespace {

using nlohmann::json;

constexpr int depth_max = 64;

}  // namespace

json parse_json(std::string_view text, const std::string& source) {
  // The names so far in each object that is open. One that comes twice is a mistake or worse:
  // readers differ in which of the two they take.
  std::vector<std::unordered_set<std::string>> names;
  const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > depth_max) {
      throw ModelError(fmt::format("{}: JSON is nested more than {} deep", source, depth_max));
    }
    if (event == json::parse_event_t::object_start) names.emplace_back();
    if (event == json::parse_event_t::object_end) names.pop_back();
    if (event != json::parse_event_t::key) return true;
    if (!names.back().insert(parsed.get<std::string>()).second) {
      throw ModelError(fmt::format("{}: the name {} comes twice in one object", source,
                                   gguf::quoted(parsed.get_ref<const std::string&>())));
    }
    return true;
  };
  try {
    return json::parse(text, check);
  } catch (const json::exception& error) {
    // The library's text names the place; it may quote the file, so the line is made printable.
    throw ModelError(
        fmt::format("{}: not JSON: {}", source, std::string_view(error.what()).substr(0, 160)));
  }
}

std::string read_file(const std::filesystem::path& path, std::uint64_t bytes_max) {
  const std::uint64_t bytes = std::filesystem::file_size(path);
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

}  // namespace sluice::convert
