#include "core/chat/jinja/text_operations.h"

#include <limits>

#include "core/text/utf8.h"

namespace sluice::chat::jinja {
namespace {

bool is_among(std::string_view character, const Text* characters) {
  if (characters == nullptr) return is_space(code_point(character, 0));
  const std::string_view all = characters->bytes();
  for (std::size_t at = 0; at < all.size(); at += character_bytes(all, at)) {
    if (all.substr(at, character_bytes(all, at)) == character) return true;
  }
  return false;
}

// Where the character before `end` begins.
std::size_t previous(std::string_view text, std::size_t end) {
  const std::size_t at = utf8::character_start(text, end - 1);
  return at + character_bytes(text, at) == end ? at : end - 1;
}

// A number of times, of which a negative one means all.
std::int64_t times(std::int64_t most) {
  return most < 0 ? std::numeric_limits<std::int64_t>::max() : most;
}

void split_at_space(const Text& text, std::int64_t most, const PartSink& take) {
  const std::string_view bytes = text.bytes();
  for (std::size_t at = skip_space(bytes); at < bytes.size(); --most) {
    std::size_t end = most == 0 ? bytes.size() : at;
    while (end < bytes.size() && !is_space(code_point(bytes, end))) {
      end += character_bytes(bytes, end);
    }
    take(text.slice(at, end));
    at = skip_space(bytes, end);
  }
}

void split_back_at_space(const Text& text, std::int64_t most, const PartSink& take) {
  const std::string_view bytes = text.bytes();
  for (std::size_t end = skip_space_back(bytes); end > 0; --most) {
    std::size_t begin = most == 0 ? 0 : end;
    while (begin > 0 && !is_space(code_point(bytes, previous(bytes, begin)))) {
      begin = previous(bytes, begin);
    }
    take(text.slice(begin, end));
    end = skip_space_back(bytes.substr(0, begin));
  }
}

}  // namespace

Text strip(const Text& text, Side side, const Text* characters) {
  const std::string_view bytes = text.bytes();
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  while (side != Side::right && begin < end) {
    const std::size_t size = character_bytes(bytes, begin);
    if (!is_among(bytes.substr(begin, size), characters)) break;
    begin += size;
  }
  while (side != Side::left && end > begin) {
    const std::size_t last = previous(bytes, end);
    if (!is_among(bytes.substr(last, end - last), characters)) break;
    end = last;
  }
  return text.slice(begin, end);
}

Text replace(const Text& text, const Text& before, const Text& after, std::int64_t count) {
  Text result;
  const std::string_view bytes = text.bytes();
  std::size_t kept = 0;
  count = times(count);
  if (before.empty()) {  // between all characters, and at both ends
    while (count != 0) {
      result.append(after);
      --count;
      if (kept == bytes.size()) break;
      const std::size_t next = kept + character_bytes(bytes, kept);
      result.append(text, kept, next);
      kept = next;
    }
  } else {
    for (; count != 0; --count) {
      const std::size_t found = find_text(bytes, before.bytes(), kept);
      if (found == std::string_view::npos) break;
      result.append(text, kept, found);
      result.append(after);
      kept = found + before.size();
    }
  }
  result.append(text, kept, bytes.size());
  return result;
}

Text upper(const Text& text) {
  return map_characters(text, [](char32_t c, std::size_t) { return to_upper(c); });
}
Text lower(const Text& text) {
  return map_characters(text, [](char32_t c, std::size_t) { return to_lower(c); });
}
Text capitalize(const Text& text) {
  return map_characters(
      text, [](char32_t c, std::size_t at) { return at == 0 ? to_upper(c) : to_lower(c); });
}

void split_lines(const Text& text, bool keeps_ends, const PartSink& take) {
  const std::string_view bytes = text.bytes();
  std::size_t begin = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = at;
    const bool is_end = is_line_end(code_point(bytes, at));
    const bool is_pair = bytes.substr(at).starts_with("\r\n");
    at += is_pair ? 2 : character_bytes(bytes, at);
    if (!is_end) continue;
    take(text.slice(begin, keeps_ends ? at : end));
    begin = at;
  }
  if (begin < bytes.size()) take(text.slice(begin, bytes.size()));
}

void split(const Text& text, const Text* separator, std::int64_t most, const PartSink& take) {
  if (separator == nullptr) return split_at_space(text, times(most), take);
  if (separator->empty()) throw Failure("the separator is empty");
  std::size_t begin = 0;
  for (std::int64_t left = times(most); left > 0; --left) {
    const std::size_t found = find_text(text.bytes(), separator->bytes(), begin);
    if (found == std::string_view::npos) break;
    take(text.slice(begin, found));
    begin = found + separator->size();
  }
  take(text.slice(begin, text.size()));
}

void split_back(const Text& text, const Text* separator, std::int64_t most, const PartSink& take) {
  if (separator == nullptr) return split_back_at_space(text, times(most), take);
  if (separator->empty()) throw Failure("the separator is empty");
  const std::string backwards(text.bytes().rbegin(), text.bytes().rend());
  const std::string backwards_separator(separator->bytes().rbegin(), separator->bytes().rend());
  std::size_t taken = 0;  // from the end
  for (std::int64_t left = times(most); left > 0; --left) {
    const std::size_t found = find_text(backwards, backwards_separator, taken);
    if (found == std::string_view::npos) break;
    take(text.slice(text.size() - found, text.size() - taken));
    taken = found + separator->size();
  }
  take(text.slice(0, text.size() - taken));
}

}  // namespace sluice::chat::jinja
