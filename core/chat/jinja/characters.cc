#include "core/chat/jinja/characters.h"

#include <algorithm>
#include <array>
#include <clocale>
#include <cstring>
#include <cwctype>
#include <locale.h>

#include "core/text/utf8.h"

namespace sluice::chat::jinja {
namespace {

constexpr char32_t no_character = 0xFFFFFFFF;

// Unicode's classes and cases, whatever the user's locale is.
locale_t unicode() {
  static const locale_t locale =
      ::newlocale(LC_CTYPE_MASK, "C.UTF-8", static_cast<locale_t>(nullptr));
  return locale;
}

bool is_in_class(char32_t c, int (*test)(std::wint_t, locale_t), bool ascii_answer) {
  if (c < 0x80 || c == no_character || unicode() == nullptr) return ascii_answer;
  return test(static_cast<std::wint_t>(c), unicode()) != 0;
}

bool is_between(char32_t c, char32_t first, char32_t last) {
  return c >= first && c <= last;
}

}  // namespace

std::size_t character_bytes(std::string_view text, std::size_t position) {
  if (static_cast<unsigned char>(text[position]) < 0x80) return 1;
  return std::max<std::size_t>(1, utf8::character_bytes(text.substr(position)));
}

std::size_t count_characters(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += character_bytes(text, at)) ++count;
  return count;
}

std::size_t offset_of_character(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += character_bytes(text, at);
  return at;
}

char32_t code_point(std::string_view text, std::size_t position) {
  text.remove_prefix(position);
  return utf8::character_bytes(text) == 0 ? no_character : utf8::code_point(text);
}

bool is_space(char32_t c) {
  return c == ' ' || is_between(c, 9, 13) || is_between(c, 0x1C, 0x1F) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || is_between(c, 0x2000, 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_end(char32_t c) {
  return is_between(c, 10, 13) || is_between(c, 0x1C, 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool is_printable(char32_t c) {
  if (c < 0x80) return c >= ' ' && c < 0x7F;
  const bool is_format = c == 0xAD || is_between(c, 0x600, 0x605) || c == 0x61C || c == 0x6DD ||
                         c == 0x70F || c == 0x180E || is_between(c, 0x200B, 0x200F) ||
                         is_between(c, 0x202A, 0x202E) || is_between(c, 0x2060, 0x206F) ||
                         c == 0xFEFF || is_between(c, 0xFFF9, 0xFFFB) ||
                         is_between(c, 0xE000, 0xF8FF) || c >= 0xE0000;
  const bool is_tag_variant = is_between(c, 0xE0100, 0xE01EF);
  return !is_space(c) && (!is_format || is_tag_variant) && is_in_class(c, ::iswprint_l, false);
}

bool is_alphabetic(char32_t c) {
  const bool ascii = is_between(c, 'a', 'z') || is_between(c, 'A', 'Z');
  return is_in_class(c, ::iswalpha_l, ascii);
}
bool is_digit(char32_t c) {
  return is_between(c, '0', '9');
}
bool is_upper(char32_t c) {
  return is_in_class(c, ::iswupper_l, is_between(c, 'A', 'Z'));
}
bool is_lower(char32_t c) {
  return is_in_class(c, ::iswlower_l, is_between(c, 'a', 'z'));
}

std::string to_upper(char32_t c) {
  if (c < 0x80) return {static_cast<char>(is_between(c, 'a', 'z') ? c - 32 : c)};
  if (c == 0xDF) return "SS";
  if (unicode() == nullptr) return utf8::encode(c);
  return utf8::encode(static_cast<char32_t>(::towupper_l(static_cast<std::wint_t>(c), unicode())));
}

std::string to_lower(char32_t c) {
  if (c < 0x80) return {static_cast<char>(is_between(c, 'A', 'Z') ? c + 32 : c)};
  if (c == 0x130) return "i\xCC\x87";
  if (unicode() == nullptr) return utf8::encode(c);
  return utf8::encode(static_cast<char32_t>(::towlower_l(static_cast<std::wint_t>(c), unicode())));
}

std::size_t find_text(std::string_view text, std::string_view part, std::size_t begin) {
  if (begin > text.size()) return std::string_view::npos;
  if (part.empty()) return begin;
  const void* found = ::memmem(text.data() + begin, text.size() - begin, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::size_t find_last_text(std::string_view text, std::string_view part) {
  const std::string backwards(text.rbegin(), text.rend());
  const std::size_t found = find_text(backwards, std::string(part.rbegin(), part.rend()));
  return found == std::string_view::npos ? found : text.size() - found - part.size();
}

std::size_t skip_space(std::string_view text, std::size_t begin) {
  while (begin < text.size() && is_space(code_point(text, begin))) {
    begin += character_bytes(text, begin);
  }
  return begin;
}

std::size_t skip_space_back(std::string_view text, std::size_t begin) {
  std::size_t end = text.size();
  while (end > begin) {
    const std::size_t last = std::max(begin, utf8::character_start(text, end - 1));
    if (last + character_bytes(text, last) != end || !is_space(code_point(text, last))) break;
    end = last;
  }
  return end;
}

}  // namespace sluice::chat::jinja
