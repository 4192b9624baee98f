// Operations of methods and filters on texts. All keep the origins of the bytes that they keep.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/chat/jinja/characters.h"
#include "core/chat/jinja/text.h"

namespace sluice::chat::jinja {

enum class Side { left, right, both };

// Removes the characters that are in `characters` from its ends; null: white space.
Text strip(const Text& text, Side side, const Text* characters);
// The most that it takes, in steps of Heap::work: each character is looked for among all others.
inline std::size_t strip_steps(const Text& text, const Text* characters) {
  return characters == nullptr ? 0 : text.size() * characters->size() / 16;
}

// Replaces at most `count` occurrences of `before`; with a negative count all.
Text replace(const Text& text, const Text& before, const Text& after, std::int64_t count);

// Maps each character. `map` gets the code point, and whether it is the first character.
template <class Map>
Text map_characters(const Text& text, Map map) {
  Text result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = character_bytes(text.bytes(), at);
    const char32_t c = code_point(text.bytes(), at);
    if (c > 0x10FFFF) {
      result.append(text, at, at + size);
    } else {
      result.append(map(c, at), text.origin_at(at));
    }
    at += size;
  }
  return result;
}
Text upper(const Text& text);
Text lower(const Text& text);
Text capitalize(const Text& text);

// Gets the parts of a text one after the other: all together they may need many times its memory.
using PartSink = std::function<void(Text)>;
void split_lines(const Text& text, bool keeps_ends, const PartSink& take);
// Splits at most `most` times; if negative, without limit. A null separator is white space.
void split(const Text& text, const Text* separator, std::int64_t most, const PartSink& take);
// The same from the end on: the last part comes first.
void split_back(const Text& text, const Text* separator, std::int64_t most, const PartSink& take);

}  // namespace sluice::chat::jinja
