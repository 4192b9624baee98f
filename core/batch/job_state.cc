#include "core/batch/job_state.h"

#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <span>
#include <string_view>
#include <system_error>

#include "base/descriptor.h"
#include "base/number.h"
#include "core/error.h"
#include "core/files/durable_file.h"
#include "core/files/read_at.h"
#include "core/text/limited_json.h"
#include "core/text/quoted.h"

namespace sluice::batch {
namespace {

using nlohmann::ordered_json;

constexpr int version = 1;
constexpr std::size_t state_bytes_max = std::size_t{1} << 20;
constexpr JsonLimits state_limits{
    .what = "state", .values_max = 50'000, .members_max = 1'000, .depth_max = 16};

JobState from_json(const ordered_json& object) {
  if (object.at("sluice_batch") != version) throw std::out_of_range("version");
  const ordered_json& input = object.at("input");
  const auto count = [&](const char* name) {
    const ordered_json& value = input.at(name);
    if (!value.is_number_unsigned()) throw std::out_of_range(name);
    return value.get<std::uint64_t>();
  };
  JobState state;
  state.input_bytes = count("bytes");
  state.input_digest = count("digest");
  state.rows = count("rows");
  const auto shard = parse_shard(object.at("shard").get<std::string>());
  if (!shard) throw std::out_of_range("shard");
  state.shard = *shard;
  state.settings = object.at("settings");
  if (!state.settings.is_object()) throw std::out_of_range("settings");
  return state;
}

// A context or a window of 0 cannot be asked for: there was none on the command line.
std::string shown(const ordered_json& settings, const std::string& name) {
  const auto at = settings.find(name);
  if (at == settings.end()) return "not noted";
  const bool is_size = name == "--ctx" || name == "--window";
  if (at->is_null() || (is_size && *at == 0)) return "not given";
  return at->dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace

std::optional<Shard> parse_shard(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto index = base::whole_number<std::uint64_t>(text.substr(0, slash));
  const auto count = base::whole_number<std::uint64_t>(text.substr(slash + 1));
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
  const auto refuse = [&] {
    throw UsageError(
        fmt::format("{} is no state that this version of sluice batch has written, so "
                    "it is left as it is; name another output, or move it away",
                    path.string()));
  };
  std::error_code error;
  const auto kind = std::filesystem::status(path, error);
  if (std::filesystem::exists(kind) && !std::filesystem::is_regular_file(kind)) refuse();
  const auto fail = [&](const std::error_code& why) {
    throw std::system_error(why, "cannot read " + path.string());
  };
  const base::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open() && errno == ENOENT) return std::nullopt;
  if (!file.is_open()) fail({errno, std::generic_category()});
  std::string text(state_bytes_max + 1, '\0');
  try {
    text.resize(files::read_at(file.number(), std::as_writable_bytes(std::span(text)), 0));
  } catch (const std::system_error& failure) {
    fail(failure.code());  // a state that cannot be read now is no foreign one
  }
  try {
    if (text.size() <= state_bytes_max) {
      return from_json(parse_limited_json(text, state_limits).value);
    }
  } catch (const std::exception&) {  // from the parser, or thrown above
  }
  refuse();
  return std::nullopt;
}

void write_state(const std::filesystem::path& output, const JobState& state,
                 files::SystemCalls& system, mode_t mode) {
  const ordered_json object = {
      {"sluice_batch", version},
      {"input",
       {{"bytes", state.input_bytes}, {"digest", state.input_digest}, {"rows", state.rows}}},
      {"shard", fmt::format("{}/{}", state.shard.index, state.shard.count)},
      {"settings", state.settings}};
  const std::string text =
      object.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  files::DurableFile file(state_path(output), {.mode = mode}, system);
  file.write(text);
  file.commit();
}

std::string date_text(const std::tm& time) {
  return fmt::format("{:04}-{:02}-{:02}", time.tm_year + 1900, time.tm_mon + 1, time.tm_mday);
}

void keep_date(JobState& now, const std::optional<JobState>& before) {
  if (!before || !now.settings.contains(date_setting)) return;
  const auto date = before->settings.find(date_setting);
  if (date != before->settings.end()) now.settings[date_setting] = *date;
}

std::optional<std::tm> date_of(const JobState& state) {
  const auto date = state.settings.find(date_setting);
  if (date == state.settings.end() || !date->is_string()) return std::nullopt;
  std::tm time = {};
  const auto& text = date->get_ref<const std::string&>();
  if (::strptime(text.c_str(), "%Y-%m-%d", &time) == nullptr) return std::nullopt;
  return time;
}

std::vector<std::string> differences(const JobState& before, const JobState& now,
                                     bool parts_of_one) {
  std::vector<std::string> found;
  if (before.input_digest != now.input_digest || before.input_bytes != now.input_bytes) {
    found.push_back(fmt::format("the input had {} bytes in {} rows and has other content now",
                                before.input_bytes, before.rows));
  }
  const auto compare = [&](const std::string& name, const std::string& was, const std::string& is) {
    if (was == is) return;
    found.push_back(fmt::format("{} was {} and is {}", text::escaped(name, 100), was, is));
  };
  const auto text_of = [](const Shard& shard) {
    return fmt::format("{}/{}", shard.index, shard.count);
  };
  if (!parts_of_one) compare("--shard", text_of(before.shard), text_of(now.shard));
  for (const auto& [name, value] : now.settings.items()) {
    compare(name, shown(before.settings, name), shown(now.settings, name));
  }
  for (const auto& [name, value] : before.settings.items()) {
    if (!now.settings.contains(name)) compare(name, shown(before.settings, name), "not noted");
  }
  return found;
}

}  // namespace sluice::batch
