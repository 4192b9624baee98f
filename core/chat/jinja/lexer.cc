#include "core/chat/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fmt/format.h>
#include <optional>

#include "core/chat/jinja/characters.h"
#include "core/text/utf8.h"

namespace sluice::chat::jinja {
namespace {

// The longest templates of models have about 40 kB. Parsing takes up to 140 times the length.
constexpr std::size_t source_bytes_max = std::size_t{256} << 10U;

// Turns all line ends into "\n" and drops the last one.
std::string normalized(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    const bool is_pair = source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n';
    if (!is_pair) text += source[i] == '\r' ? '\n' : source[i];
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

bool is_name_start(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' || (c & 0x80) != 0;
}
bool is_digit_of(int base, char c) {
  const int digit = std::isdigit(static_cast<unsigned char>(c)) != 0 ? c - '0'
                    : std::isxdigit(static_cast<unsigned char>(c)) != 0
                        ? std::tolower(static_cast<unsigned char>(c)) - 'a' + 10
                        : 99;
  return digit < base;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)), rest_(source_) {}

  std::vector<Token> run() {
    while (at_ < rest_.size()) {
      const std::size_t tag = find_tag();
      if (tag == std::string_view::npos) {
        add_data(rest_.substr(at_), rest_.size());
        break;
      }
      read_tag(tag);
    }
    tokens_.push_back({Token::Kind::end, "", line_});
    return std::move(tokens_);
  }

 private:
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < rest_.size() ? rest_[at_ + ahead] : '\0';
  }
  bool follows(std::string_view text) const { return rest_.substr(at_).starts_with(text); }

  void move_to(std::size_t position) {
    const auto newlines = std::ranges::count(rest_.substr(at_, position - at_), '\n');
    line_ += static_cast<std::size_t>(newlines);
    line_starts_ = position > 0 && rest_[position - 1] == '\n';
    at_ = position;
  }

  std::size_t find_tag() const {
    for (std::size_t brace = rest_.find('{', at_); brace != std::string_view::npos;
         brace = rest_.find('{', brace + 1)) {
      const char next = brace + 1 < rest_.size() ? rest_[brace + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return brace;
    }
    return std::string_view::npos;
  }

  void add_data(std::string_view text, std::size_t end) {
    if (!text.empty()) tokens_.push_back({Token::Kind::data, std::string(text), line_});
    move_to(end);
  }

  // The text from here to a tag, without the white space that the tag removes.
  std::string_view text_before(std::size_t tag, char sign, bool is_variable) const {
    const std::string_view text = rest_.substr(at_, tag - at_);
    if (sign == '-') return text.substr(0, skip_space_back(text));
    if (sign == '+' || is_variable) return text;
    const std::size_t newline = text.rfind('\n');
    const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    if (line == 0 && !line_starts_) return text;
    return skip_space(text, line) == text.size() ? text.substr(0, line) : text;
  }

  void read_tag(std::size_t tag) {
    const char kind = rest_[tag + 1];
    const char next = tag + 2 < rest_.size() ? rest_[tag + 2] : '\0';
    const char sign = next == '-' || next == '+' ? next : '\0';
    const std::size_t begin = tag + (sign == '\0' ? 2 : 3);
    const auto raw = kind == '%' ? after_raw(begin, "raw", false) : std::nullopt;
    add_data(text_before(tag, sign, kind == '{'), tag);
    if (kind == '#') return skip_comment(begin);
    if (raw) return read_raw(*raw);
    const bool is_block = kind == '%';
    tokens_.push_back(
        {is_block ? Token::Kind::block_begin : Token::Kind::variable_begin, "", line_});
    move_to(begin);
    read_code(is_block);
  }

  // Moves behind the end of a block or comment; `end` is the place of its closing bracket.
  void leave_block(std::size_t end, char sign) {
    move_to(end + 2);
    if (sign == '-') {
      move_to(skip_space(rest_, at_));
    } else if (sign != '+' && peek() == '\n') {
      move_to(at_ + 1);
    }
  }

  void skip_comment(std::size_t begin) {
    const std::size_t end = rest_.find("#}", begin);
    if (end == std::string_view::npos) throw SyntaxError(line_, "a comment has no end");
    const char sign = end > begin ? rest_[end - 1] : '\0';
    leave_block(end, sign == '-' || sign == '+' ? sign : '\0');
  }

  // If the tag `name` begins at `position`, the place behind its closing bracket.
  std::optional<std::size_t> after_raw(std::size_t position, std::string_view name,
                                       bool takes_plus) const {
    position = skip_space(rest_, position);
    if (!rest_.substr(position).starts_with(name)) return std::nullopt;
    position = skip_space(rest_, position + name.size());
    const std::string_view tail = rest_.substr(position);
    if (tail.starts_with("%}")) return position + 2;
    if (tail.starts_with("-%}")) return skip_space(rest_, position + 3);
    if (takes_plus && tail.starts_with("+%}")) return position + 3;
    return std::nullopt;
  }

  void read_raw(std::size_t begin) {
    move_to(begin);
    for (std::size_t tag = rest_.find("{%", at_); tag != std::string_view::npos;
         tag = rest_.find("{%", tag + 2)) {
      const char next = tag + 2 < rest_.size() ? rest_[tag + 2] : '\0';
      const char sign = next == '-' || next == '+' ? next : '\0';
      auto end = after_raw(tag + (sign == '\0' ? 2 : 3), "endraw", true);
      if (!end) continue;
      const bool trims = rest_.substr(*end - 3, 3) != "+%}";
      if (trims && *end < rest_.size() && rest_[*end] == '\n') ++*end;
      add_data(text_before(tag, sign, false), *end);
      return;
    }
    throw SyntaxError(line_, "'raw' has no 'endraw'");
  }

  // Reads the tokens of a tag up to its closing bracket.
  void read_code(bool is_block) {
    const std::string_view close = is_block ? "%}" : "}}";
    std::string open_brackets;
    while (true) {
      move_to(skip_space(rest_, at_));
      if (at_ >= rest_.size()) throw SyntaxError(line_, fmt::format("a tag has no '{}'", close));
      if (open_brackets.empty() && read_close(is_block, close)) return;
      read_token(open_brackets);
    }
  }

  bool read_close(bool is_block, std::string_view close) {
    const char sign = (peek() == '-' || (is_block && peek() == '+')) ? peek() : '\0';
    const std::size_t end = at_ + (sign == '\0' ? 0 : 1);
    if (!rest_.substr(end).starts_with(close)) return false;
    tokens_.push_back({is_block ? Token::Kind::block_end : Token::Kind::variable_end, "", line_});
    if (is_block) {
      leave_block(end, sign);
    } else {
      move_to(sign == '-' ? skip_space(rest_, end + 2) : end + 2);
    }
    return true;
  }

  void read_token(std::string& open_brackets) {
    const char c = peek();
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) return read_number();
    if (c == '\'' || c == '"') return read_string(c);
    if (is_name_start(c)) return read_name();
    static constexpr std::array<std::string_view, 26> symbols = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    const auto symbol =
        std::ranges::find_if(symbols, [this](std::string_view s) { return follows(s); });
    if (symbol == symbols.end()) {
      throw SyntaxError(line_, fmt::format("unexpected character '{}'",
                                           rest_.substr(at_, character_bytes(rest_, at_))));
    }
    balance(*symbol, open_brackets);
    tokens_.push_back({Token::Kind::symbol, std::string(*symbol), line_});
    move_to(at_ + symbol->size());
  }

  void balance(std::string_view symbol, std::string& open_brackets) const {
    if (symbol == "(" || symbol == "[" || symbol == "{") {
      open_brackets += symbol == "(" ? ')' : symbol == "[" ? ']' : '}';
    } else if (symbol == ")" || symbol == "]" || symbol == "}") {
      if (open_brackets.empty() || open_brackets.back() != symbol[0]) {
        throw SyntaxError(line_, fmt::format("unexpected '{}'", symbol));
      }
      open_brackets.pop_back();
    }
  }

  void read_name() {
    std::size_t end = at_;
    while (end < rest_.size() && (is_name_start(rest_[end]) ||
                                  std::isdigit(static_cast<unsigned char>(rest_[end])) != 0)) {
      ++end;
    }
    tokens_.push_back({Token::Kind::name, std::string(rest_.substr(at_, end - at_)), line_});
    move_to(end);
  }

  // Where digits (with single underscores between them) end that begin at `position`.
  std::size_t digits(std::size_t position, int base) const {
    while (position < rest_.size()) {
      const bool is_joined = rest_[position] == '_' && position + 1 < rest_.size() &&
                             is_digit_of(base, rest_[position + 1]);
      if (!is_joined && !is_digit_of(base, rest_[position])) break;
      position += is_joined ? 2 : 1;
    }
    return position;
  }

  void read_number() {
    const char prefix = static_cast<char>(std::tolower(static_cast<unsigned char>(peek(1))));
    const int base = peek() != '0'   ? 10
                     : prefix == 'x' ? 16
                     : prefix == 'o' ? 8
                     : prefix == 'b' ? 2
                                     : 10;
    std::size_t end = base == 10 ? digits(at_, 10) : digits(at_ + 2, base);
    bool is_float = false;
    const bool is_behind_dot = at_ > 0 && rest_[at_ - 1] == '.';  // x.1.2 is x[1][2]
    const auto has_digit = [&](std::size_t position) {
      return position < rest_.size() && is_digit_of(10, rest_[position]);
    };
    if (base == 10 && !is_behind_dot) {
      if (end < rest_.size() && rest_[end] == '.' && has_digit(end + 1)) {
        is_float = true;
        end = digits(end + 1, 10);
      }
      if (end < rest_.size() && (rest_[end] == 'e' || rest_[end] == 'E')) {
        const bool has_sign =
            end + 1 < rest_.size() && (rest_[end + 1] == '+' || rest_[end + 1] == '-');
        const std::size_t exponent = end + (has_sign ? 2 : 1);
        if (has_digit(exponent)) {
          is_float = true;
          end = digits(exponent, 10);
        }
      }
    }
    std::string text(rest_.substr(at_, end - at_));
    std::erase(text, '_');
    tokens_.push_back({is_float ? Token::Kind::floating : Token::Kind::integer, text, line_});
    move_to(end);
  }

  void read_string(char quote) {
    std::string value;
    std::size_t i = at_ + 1;
    while (i < rest_.size() && rest_[i] != quote) {
      if (rest_[i] != '\\') {
        value += rest_[i++];
      } else {
        i = read_escape(i + 1, value);
      }
    }
    if (i >= rest_.size()) throw SyntaxError(line_, "a string has no end");
    tokens_.push_back({Token::Kind::string, value, line_});
    move_to(i + 1);
  }

  // Reads one of Python's escapes; the backslash stands before `i`. Unknown ones stay as they are.
  std::size_t read_escape(std::size_t i, std::string& value) const {
    if (i >= rest_.size()) return i;
    const char c = rest_[i];
    static constexpr std::string_view letters = "abfnrtv\\'\"";
    static constexpr std::string_view meanings = "\a\b\f\n\r\t\v\\'\"";
    if (const std::size_t known = letters.find(c); known != std::string_view::npos) {
      value += meanings[known];
      return i + 1;
    }
    if (c == '\n') return i + 1;
    if (is_digit_of(8, c)) return read_code_point(i, 1, 3, 8, value);
    if (c == 'x') return read_code_point(i + 1, 2, 2, 16, value);
    if (c == 'u') return read_utf16(i + 1, value);
    if (c == 'U') return read_code_point(i + 1, 8, 8, 16, value);
    value += '\\';
    return i;
  }

  struct Digits {
    char32_t code = 0;
    std::size_t count = 0;
  };

  Digits read_digits(std::size_t i, std::size_t most, int base) const {
    Digits digits;
    for (; digits.count < most && i < rest_.size() && is_digit_of(base, rest_[i]); ++i) {
      digits.code = digits.code * static_cast<char32_t>(base) +
                    static_cast<char32_t>(std::stoi(std::string(1, rest_[i]), nullptr, base));
      ++digits.count;
    }
    return digits;
  }

  // Two escapes may be the halves of one character, as JSON writes it: calls that a model writes in
  // Python's notation are read here too, and their texts are often JSON's.
  std::size_t read_utf16(std::size_t i, std::string& value) const {
    const Digits high = read_digits(i, 4, 16);
    if (high.count == 4 && high.code >= 0xD800 && high.code < 0xDC00 &&
        rest_.substr(i + 4).starts_with("\\u")) {
      const Digits low = read_digits(i + 6, 4, 16);
      if (low.count == 4 && low.code >= 0xDC00 && low.code < 0xE000) {
        value += utf8::encode(0x10000 + ((high.code - 0xD800) << 10) + (low.code - 0xDC00));
        return i + 10;
      }
    }
    return read_code_point(i, 4, 4, 16, value);
  }

  std::size_t read_code_point(std::size_t i, std::size_t least, std::size_t most, int base,
                              std::string& value) const {
    const auto [code, count] = read_digits(i, most, base);
    const bool is_character = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    if (count < least || !is_character) throw SyntaxError(line_, "a string has a wrong escape");
    value += utf8::encode(code);
    return i + count;
  }

  std::string source_;
  std::string_view rest_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
  bool line_starts_ = true;  // whether a line begins here, for lstrip_blocks
  std::vector<Token> tokens_;
};

}  // namespace

SyntaxError::SyntaxError(std::size_t line, const std::string& what)
    : Failure(fmt::format("line {}: {}", line, what)) {}

std::vector<Token> tokenize(std::string_view source) {
  if (source.size() > source_bytes_max) throw SyntaxError(1, "the template is larger than 256 KiB");
  return Lexer(source).run();
}

}  // namespace sluice::chat::jinja
