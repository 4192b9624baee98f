#include "core/batch/job_state.h"

#include <cerrno>
#include <charconv>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <span>
#include <string_view>
#include <system_error>

#include "core/batch/journal.h"
#include "core/error.h"
#include "core/gguf/output_file.h"

namespace sluice::batch {
namespace {

using nlohmann::ordered_json;

constexpr int version = 1;

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [stopped, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || stopped != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

JobState from_json(const ordered_json& object) {
  if (object.at("sluice_batch").get<int>() != version) throw std::out_of_range("version");
  JobState state;
  object.at("input").at("bytes").get_to(state.input_bytes);
  object.at("input").at("digest").get_to(state.input_digest);
  object.at("input").at("rows").get_to(state.rows);
  const auto shard = parse_shard(object.at("shard").get<std::string>());
  if (!shard) throw std::out_of_range("shard");
  state.shard = *shard;
  state.settings = object.at("settings");
  return state;
}

std::string shown(const ordered_json& settings, const std::string& name) {
  const auto at = settings.find(name);
  return at == settings.end() ? "not set"
                              : at->dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace

std::optional<Shard> parse_shard(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto index = parse_number(text.substr(0, slash));
  const auto count = parse_number(text.substr(slash + 1));
  if (!index || !count || *index == 0 || *index > *count) return std::nullopt;
  return Shard{*index, *count};
}

std::filesystem::path state_path(const std::filesystem::path& output) {
  std::filesystem::path path = output;
  path += ".state";
  return path;
}

std::optional<JobState> read_state(const std::filesystem::path& output) {
  const std::filesystem::path path = state_path(output);
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    if (errno == ENOENT) return std::nullopt;
    throw std::system_error(errno, std::generic_category(), "cannot read " + path.string());
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  try {
    return from_json(ordered_json::parse(text));
  } catch (const std::exception&) {  // of nlohmann-json, or one of the above
    throw UsageError(
        fmt::format("{} is not the state of a batch of this version: remove it and give --restart",
                    path.string()));
  }
}

void write_state(const std::filesystem::path& output, const JobState& state) {
  const ordered_json object = {
      {"sluice_batch", version},
      {"input",
       {{"bytes", state.input_bytes}, {"digest", state.input_digest}, {"rows", state.rows}}},
      {"shard", fmt::format("{}/{}", state.shard.index, state.shard.count)},
      {"settings", state.settings}};
  const std::string text =
      object.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  gguf::OutputFile file(state_path(output));
  file.write(std::as_bytes(std::span(text)));
  file.commit();
  sync_file(state_path(output));
  sync_folder_of(output);
}

std::vector<std::string> differences(const JobState& before, const JobState& now,
                                     bool parts_of_one) {
  std::vector<std::string> found;
  if (before.input_digest != now.input_digest || before.input_bytes != now.input_bytes) {
    found.push_back(fmt::format("the input had {} bytes in {} rows and has other content now",
                                before.input_bytes, before.rows));
  }
  const auto compare = [&](const std::string& name, const std::string& was, const std::string& is) {
    if (was != is) found.push_back(fmt::format("{} was {} and is {}", name, was, is));
  };
  const auto text = [](const Shard& shard) {
    return fmt::format("{}/{}", shard.index, shard.count);
  };
  if (!parts_of_one) compare("--shard", text(before.shard), text(now.shard));
  for (const auto& [name, value] : now.settings.items()) {
    compare(name, shown(before.settings, name), shown(now.settings, name));
  }
  for (const auto& [name, value] : before.settings.items()) {
    if (!now.settings.contains(name)) compare(name, shown(before.settings, name), "not set");
  }
  return found;
}

}  // namespace sluice::batch
