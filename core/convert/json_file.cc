#include "core/convert/json_file.h"

#include <fmt/format.h>
#include <span>

#include "core/error.h"
#include "core/model/file_bytes.h"

namespace sluice::convert {
namespace {

using nlohmann::json;

constexpr int depth_max = 64;

}  // namespace

json parse_json(std::string_view text, const std::string& source) {
  const auto check_depth = [&](int depth, json::parse_event_t, json&) {
    if (depth > depth_max) {
      throw ModelError(fmt::format("{}: JSON is nested more than {} deep", source, depth_max));
    }
    return true;
  };
  try {
    return json::parse(text, check_depth);
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
