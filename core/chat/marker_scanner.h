// Finds markers in a text that comes in pieces, wherever the pieces are cut.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::chat {

// What may stand around a marker without a meaning.
inline constexpr std::string_view white_space = " \t\r\n";

class MarkerScanner {
 public:
  // A stretch of text, or a marker by its index.
  struct Event {
    std::string text;
    std::optional<std::size_t> marker = std::nullopt;
  };

  // Where two markers begin at one place the longer one is meant. None is empty.
  explicit MarkerScanner(std::vector<std::string> markers) : markers_(std::move(markers)) {}

  // What is certain after this piece: an end that could become a marker is kept back.
  std::vector<Event> feed(std::string_view piece);

  // What was kept back; the text has ended.
  std::vector<Event> finish();

 private:
  std::optional<std::size_t> marker_at(std::size_t position, bool& may_follow) const;
  std::vector<Event> scan(bool has_ended);

  std::vector<std::string> markers_;
  std::string held_;
};

}  // namespace sluice::chat
