#include "core/chat/jinja/text.h"

#include <algorithm>

namespace sluice::chat::jinja {

std::size_t Text::run_at(std::size_t position) const {
  const auto after = std::ranges::upper_bound(runs_, position, {}, &Run::end);
  return static_cast<std::size_t>(after - runs_.begin());
}

Origin Text::origin_at(std::size_t position) const {
  const std::size_t run = run_at(position);
  return run < runs_.size() ? runs_[run].origin : Origin::markup;
}

void Text::append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  if (memory_bytes() + bytes.size() + sizeof(Run) > memory_bytes_max) {
    throw Failure("a text becomes larger than 6 MiB");
  }
  bytes_ += bytes;
  if (!runs_.empty() && runs_.back().origin == origin) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), origin});
  }
}

void Text::append(const Text& other, std::size_t begin, std::size_t end) {
  const std::string_view all = other.bytes_;
  for (std::size_t run = other.run_at(begin); begin < end; ++run) {
    const std::size_t stop = std::min(end, other.runs_[run].end);
    append(all.substr(begin, stop - begin), other.runs_[run].origin);
    begin = stop;
  }
}

Text Text::slice(std::size_t begin, std::size_t end) const {
  Text result;
  result.append(*this, begin, end);
  return result;
}

}  // namespace sluice::chat::jinja
