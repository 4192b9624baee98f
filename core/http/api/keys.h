// The keys that clients show, and how often each may ask.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::http {

// The keys of a file: one a line; blank lines and lines that begin with # are skipped.
//
// Threads: immutable.
class ApiKeys {
 public:
  static constexpr std::size_t key_bytes_max = 256;

  ApiKeys() = default;  // none: everybody may ask
  // Throws UsageError for a key that is too short (8 bytes) or too long, has white space within, or
  // for a file without keys or one that others may read; and std::system_error.
  static ApiKeys read(const std::filesystem::path& path);
  static ApiKeys parse(std::string_view text, const std::string& name);

  bool empty() const { return keys_.empty(); }
  std::size_t size() const { return keys_.size(); }

  // Which key this is, from 0. Takes the same time whichever key it is, and whether it is one.
  std::optional<std::size_t> find(std::string_view key) const;

 private:
  std::vector<std::string> keys_;  // each filled up to key_bytes_max
};

// The key in the field "Authorization: Bearer KEY".
std::string_view bearer_key(std::string_view authorization);

// How many requests a key may make: `per_minute` on average, and as many at once.
//
// Threads: used by one thread.
class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;

  RateLimit(std::size_t keys, double per_minute);  // 0: any number

  // Counts a request. Returns nothing if it may go on, else after how many seconds it may.
  std::optional<unsigned> take(std::size_t key, Clock::time_point now = Clock::now());

 private:
  struct Bucket {
    double tokens;
    Clock::time_point filled;
  };
  double per_minute_;
  std::vector<Bucket> buckets_;
};

}  // namespace sluice::http
