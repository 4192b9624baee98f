#include "core/chat/marker_scanner.h"

#include <utility>

namespace sluice::chat {

std::vector<MarkerScanner::Event> MarkerScanner::feed(std::string_view piece) {
  held_ += piece;
  return scan(false);
}

std::vector<MarkerScanner::Event> MarkerScanner::finish() {
  return scan(true);
}

// The longest marker at a position. `may_follow`: more text could make it a longer one.
std::optional<std::size_t> MarkerScanner::marker_at(std::size_t position, bool& may_follow) const {
  const std::string_view rest = std::string_view(held_).substr(position);
  std::optional<std::size_t> best;
  may_follow = false;
  for (std::size_t i = 0; i < markers_.size(); ++i) {
    const std::string_view marker = markers_[i];
    if (rest.starts_with(marker)) {
      if (!best || marker.size() > markers_[*best].size()) best = i;
    } else if (marker.starts_with(rest)) {
      may_follow = true;
    }
  }
  return best;
}

std::vector<MarkerScanner::Event> MarkerScanner::scan(bool has_ended) {
  std::vector<Event> events;
  std::size_t text = 0;  // begin of the text that is not in an event yet
  std::size_t at = 0;
  const auto flush = [&] {
    if (at > text) events.push_back({held_.substr(text, at - text)});
  };
  while (at < held_.size()) {
    bool may_follow = false;
    const auto marker = marker_at(at, may_follow);
    if (may_follow && !has_ended) break;
    if (marker) {
      flush();
      events.push_back({"", marker});
      text = at + markers_[*marker].size();
      at = text;
    } else {
      ++at;
    }
  }
  flush();
  held_.erase(0, at);
  return events;
}

}  // namespace sluice::chat
