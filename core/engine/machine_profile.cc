#include "core/engine/machine_profile.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "core/files/durable_file.h"
#include "core/files/small_file.h"
#include "core/text/limited_json.h"

namespace sluice::engine {
namespace {

using nlohmann::ordered_json;

constexpr int version = 1;
constexpr std::size_t samples_max = 16;  // of a rate
constexpr std::size_t rates_max = 64;
constexpr std::size_t name_bytes_max = 256;
constexpr std::uintmax_t file_bytes_max = std::uintmax_t{1} << 20;
constexpr std::int64_t seconds_kept = std::int64_t{30} * 24 * 3600;

// The member, if it is there and an object.
const ordered_json* object_of(const ordered_json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_object() ? &*found : nullptr;
}

bool is_text(const ordered_json& object, const char* name, const std::string& expected) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() && found->get<std::string>() == expected;
}

// The profile in a text, if it is one of this machine; otherwise null.
ordered_json parse_profile(const std::string& text, const std::string& identity) {
  try {
    constexpr JsonLimits limits = {"profile", 20'000, 1'000, 8};
    ordered_json file = parse_limited_json(text, limits).value;
    if (!file.is_object() || !is_text(file, "machine", identity)) return nullptr;
    const auto found = file.find("version");
    if (found == file.end() || !found->is_number_integer() || found->get<int>() != version) {
      return nullptr;
    }
    return file;
  } catch (const std::exception&) {
    return nullptr;
  }
}

// The largest value that another one comes near to; the median where there is none.
double best_repeated(const std::vector<double>& ascending) {
  constexpr double near = 0.9;
  for (std::size_t i = ascending.size(); i-- > 1;) {
    if (ascending[i - 1] >= near * ascending[i]) return ascending[i];
  }
  return ascending[ascending.size() / 2];
}

}  // namespace

std::string machine_identity(const topology::Machine& machine) {
  std::string identity =
      fmt::format("{}, {} CPUs", machine.model_name.substr(0, name_bytes_max), machine.cpus.size());
  if (machine.quota) identity += fmt::format(", a quota of {:.2f}", machine.quota->cpus);
  return identity;
}

MachineProfile::MachineProfile(std::filesystem::path file, std::string identity, std::int64_t now)
    : file_(std::move(file)), identity_(std::move(identity)), now_(now), samples_(read()) {}

MachineProfile::Samples MachineProfile::read() const {
  Samples samples;
  const ordered_json file = parse_profile(files::read_small_file(file_, file_bytes_max), identity_);
  const ordered_json* const rates = file.is_object() ? object_of(file, "rates") : nullptr;
  if (rates == nullptr) return samples;
  for (const auto& [name, list] : rates->items()) {
    if (!list.is_array()) continue;
    for (const ordered_json& pair : list) {
      if (!pair.is_array() || pair.size() != 2) continue;
      if (!pair[0].is_number() || !pair[1].is_number_integer()) continue;
      insert(samples, name, {pair[0].get<double>(), pair[1].get<std::int64_t>()});
    }
  }
  return samples;
}

void MachineProfile::insert(Samples& samples, const std::string& name, const Sample& sample) const {
  const bool is_recent = sample.time <= now_ && sample.time > now_ - seconds_kept;
  if (!std::isfinite(sample.per_s) || sample.per_s <= 0 || !is_recent) return;
  if (name.empty() || name.size() > name_bytes_max) return;
  std::vector<Sample>& list = samples[name];
  list.insert(std::ranges::upper_bound(list, sample.time, {}, &Sample::time), sample);
  if (list.size() > samples_max) list.erase(list.begin());
  if (samples.size() <= rates_max) return;
  samples.erase(std::ranges::min_element(samples, {},
                                         [](const auto& rate) { return rate.second.back().time; }));
}

std::optional<RateRange> MachineProfile::rate(const std::string& name) const {
  constexpr std::size_t latest = 5;
  const auto found = samples_.find(name);
  if (found == samples_.end() || found->second.empty()) return std::nullopt;
  const std::vector<Sample>& list = found->second;
  std::vector<double> values;
  for (const Sample& sample : list) values.push_back(sample.per_s);
  std::vector<double> last(
      values.end() - static_cast<std::ptrdiff_t>(std::min(latest, list.size())), values.end());
  std::ranges::sort(last);
  std::ranges::sort(values);
  RateRange range;
  range.low = values.front();
  range.usual = last[last.size() / 2];
  range.high = std::max(best_repeated(values), range.usual);
  range.samples = list.size();
  range.first_time = list.front().time;
  range.last_time = list.back().time;
  return range;
}

void MachineProfile::add(const std::string& name, double per_s) {
  insert(samples_, name, {per_s, now_});
  insert(added_, name, {per_s, now_});
}

void MachineProfile::add_reached(const std::string& name, double per_s) {
  const auto found = samples_.find(name);
  const auto is_above = [&](const Sample& sample) { return sample.per_s > per_s; };
  if (found != samples_.end() && std::ranges::any_of(found->second, is_above)) return;
  add(name, per_s);
}

std::string MachineProfile::save() {
  if (file_.empty() || added_.empty()) return {};
  Samples all = read();
  for (const auto& [name, list] : added_) {
    for (const Sample& sample : list) insert(all, name, sample);
  }
  ordered_json file = {{"version", version}, {"machine", identity_}};
  ordered_json& rates = file["rates"] = ordered_json::object();
  for (const auto& [name, list] : all) {
    ordered_json& pairs = rates[name] = ordered_json::array();
    for (const Sample& sample : list) pairs.push_back({sample.per_s, sample.time});
  }
  try {
    files::make_private_folder(file_.parent_path());
    files::DurableFile out(file_, {.mode = 0600});
    out.write(file.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
    out.commit();
  } catch (const std::system_error& error) {
    return error.what();
  }
  samples_ = std::move(all);
  added_.clear();
  return {};
}

}  // namespace sluice::engine
