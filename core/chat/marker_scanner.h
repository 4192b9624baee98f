// Finds markers in a text that arrives in pieces, wherever the pieces are cut.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/trim.h"

namespace sluice::chat {

// White space around a marker has no meaning.
using base::trimmed;
using base::white_space;

class MarkerScanner {
 public:
  // A stretch of text, or the index of a marker.
  struct Event {
    std::string text;
    std::optional<std::size_t> marker = std::nullopt;
  };

  // If two markers begin at the same place the longer one is found. None may be empty.
  explicit MarkerScanner(std::vector<std::string> markers) : markers_(std::move(markers)) {}

  // Returns the events that are certain after this piece. Holds back an end that may begin a
  // marker.
  std::vector<Event> feed(std::string_view piece);

  // Ends the text; returns what was held back.
  std::vector<Event> finish();

 private:
  std::optional<std::size_t> marker_at(std::size_t position, bool& may_follow) const;
  std::vector<Event> scan(bool has_ended);

  std::vector<std::string> markers_;
  std::string held_;
};

}  // namespace sluice::chat
