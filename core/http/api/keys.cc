#include "core/http/api/keys.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <sys/stat.h>
#include <system_error>

#include "base/trim.h"
#include "core/error.h"
#include "core/http/transport/message.h"

namespace sluice::http {
namespace {

constexpr std::size_t key_bytes_min = 8;
constexpr std::size_t file_bytes_max = std::size_t{1} << 20;

// Keys have no NUL, so filling up with it makes no two keys equal.
std::string filled_up(std::string_view key) {
  std::string text(key.substr(0, ApiKeys::key_bytes_max));
  text.resize(ApiKeys::key_bytes_max, '\0');
  return text;
}

// Looks at every byte, wherever the first difference is.
bool equal_in_constant_time(const std::string& a, const std::string& b) {
  volatile unsigned difference = 0;
  for (std::size_t i = 0; i < ApiKeys::key_bytes_max; ++i) {
    difference = difference | static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^
                                                    static_cast<unsigned char>(b[i]));
  }
  return difference == 0;
}

}  // namespace

ApiKeys ApiKeys::read(const std::filesystem::path& path) {
  struct stat facts {};
  std::ifstream file(path, std::ios::binary);
  const auto fail = [&path] {
    throw std::system_error(errno, std::generic_category(), "cannot read " + path.string());
  };
  if (!file || ::stat(path.c_str(), &facts) != 0) fail();
  if (S_ISREG(facts.st_mode) && (facts.st_mode & S_IROTH) != 0) {
    throw UsageError(
        fmt::format("--api-key-file {}: everybody on this machine may read it; "
                    "`chmod 600` the file",
                    path.string()));
  }
  std::string text(file_bytes_max + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) fail();  // some of the keys would be missing
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > file_bytes_max) {
    throw UsageError(fmt::format("--api-key-file {}: it is larger than 1 MiB", path.string()));
  }
  return parse(text, path.string());
}

ApiKeys ApiKeys::parse(std::string_view text, const std::string& name) {
  ApiKeys keys;
  std::size_t line_number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = base::trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    if (line.empty() || line.starts_with('#')) continue;
    const bool is_plain = std::ranges::all_of(line, [](char c) { return c > ' ' && c < '\x7f'; });
    if (!is_plain || line.size() < key_bytes_min || line.size() > key_bytes_max) {
      throw UsageError(fmt::format(
          "--api-key-file {}: line {} is no key: {} to {} characters of ASCII without spaces", name,
          line_number, key_bytes_min, key_bytes_max));
    }
    keys.keys_.push_back(filled_up(line));
  }
  if (keys.empty()) throw UsageError(fmt::format("--api-key-file {}: it has no key", name));
  return keys;
}

std::optional<std::size_t> ApiKeys::find(std::string_view key) const {
  const bool may_be_one = !key.empty() && key.size() <= key_bytes_max;
  const std::string shown = filled_up(key);
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    if (equal_in_constant_time(keys_[i], shown) && may_be_one) found = i;
  }
  return found;
}

std::string_view bearer_key(std::string_view authorization) {
  constexpr std::string_view scheme = "Bearer ";
  if (!equal_ignoring_case(authorization.substr(0, scheme.size()), scheme)) return {};
  return base::trimmed(authorization.substr(scheme.size()));
}

RateLimit::RateLimit(std::size_t keys, double per_minute)
    : per_minute_(per_minute),
      buckets_(std::max<std::size_t>(keys, 1), {std::max(per_minute, 1.0), Clock::now()}) {}

std::optional<unsigned> RateLimit::take(std::size_t key, Clock::time_point now) {
  if (per_minute_ <= 0) return std::nullopt;
  Bucket& bucket = buckets_.at(key);
  const double minutes = std::chrono::duration<double, std::ratio<60>>(now - bucket.filled).count();
  bucket.tokens = std::min(std::max(per_minute_, 1.0), bucket.tokens + minutes * per_minute_);
  bucket.filled = now;
  if (bucket.tokens >= 1) {
    bucket.tokens -= 1;
    return std::nullopt;
  }
  const double wait_s = std::ceil((1 - bucket.tokens) / per_minute_ * 60);
  constexpr double most = std::numeric_limits<unsigned>::max();
  return static_cast<unsigned>(std::min(wait_s, most));
}

}  // namespace sluice::http
