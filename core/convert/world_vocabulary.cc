#include "core/convert/world_vocabulary.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "core/convert/json_file.h"
#include "core/error.h"
#include "core/text/keyed_hash.h"
#include "core/text/quoted.h"
#include "core/text/utf8.h"

namespace sluice::convert {
namespace {

namespace fs = std::filesystem;

// Escapes of one character, and what they mean.
constexpr std::string_view short_escapes = R"(\'"nrt)", meant = "\\'\"\n\r\t";

// Takes a line apart, from its beginning on.
class LineReader {
 public:
  LineReader(std::string_view line, std::string place) : rest_(line), place_(std::move(place)) {}

  std::uint64_t number() {
    std::uint64_t value = 0;
    const char* end = rest_.data() + rest_.size();
    const auto parsed = std::from_chars(rest_.data(), end, value);
    if (parsed.ec != std::errc()) throw layout_error();
    rest_ = std::string_view(parsed.ptr, end);
    return value;
  }

  void space() {
    if (!rest_.starts_with(' ')) throw layout_error();
    rest_.remove_prefix(1);
  }

  // The bytes of a literal of text or of bytes.
  std::string literal() {
    const bool is_of_bytes = rest_.starts_with('b');
    if (is_of_bytes) rest_.remove_prefix(1);
    const char quote = rest_.empty() ? '\0' : rest_.front();
    if (quote != '\'' && quote != '"') throw layout_error();
    rest_.remove_prefix(1);
    std::string token;
    while (!rest_.starts_with(quote)) {
      if (rest_.empty()) throw error("ends within the token");
      token += rest_.front() == '\\' ? escape(is_of_bytes) : character(is_of_bytes);
    }
    rest_.remove_prefix(1);
    return token;
  }

  void end() const {
    if (!rest_.empty()) throw layout_error();
  }

  ModelError error(const std::string& what) const {
    return ModelError(fmt::format("{} {}; get the file again", place_, what));
  }

 private:
  ModelError layout_error() const {
    return error("is not an index, a token between quotes and its number of bytes");
  }

  std::string character(bool is_of_bytes) {
    const std::size_t bytes = utf8::character_bytes(rest_);
    if (bytes == 0) throw error("is not UTF-8");
    if (is_of_bytes && bytes > 1) throw error("has a character that is no byte behind b");
    const std::string_view found = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return std::string(found);
  }

  std::string escape(bool is_of_bytes) {
    const char kind = rest_.size() > 1 ? rest_[1] : '\0';
    const std::size_t place = short_escapes.find(kind);
    if (place != std::string_view::npos) {
      rest_.remove_prefix(2);
      return {meant[place]};
    }
    std::size_t digits = kind == 'x' ? 2 : 0;
    if (!is_of_bytes && kind == 'u') digits = 4;
    if (!is_of_bytes && kind == 'U') digits = 8;
    const std::string_view whole = rest_.substr(0, 2 + digits);
    std::uint32_t value = 0;
    const char* end = whole.data() + whole.size();
    const auto parsed =
        std::from_chars(whole.data() + std::min<std::size_t>(2, whole.size()), end, value, 16);
    const bool is_surrogate = value >= 0xD800 && value <= 0xDFFF;
    if (digits == 0 || whole.size() != 2 + digits || parsed.ptr != end || is_surrogate ||
        value > 0x10FFFF) {
      throw error(fmt::format("has {}, which is no escape of a {}", text::quoted(whole),
                              is_of_bytes ? "byte" : "character"));
    }
    rest_.remove_prefix(whole.size());
    return is_of_bytes ? std::string(1, static_cast<char>(value)) : utf8::encode(value);
  }

  std::string_view rest_;
  std::string place_;
};

// The token of a line; `index` is that which it must have.
std::string read_line(LineReader line, std::size_t index) {
  const std::uint64_t found = line.number();
  if (found != index) {
    throw line.error(fmt::format("has the index {} in place of {}: a line is {}", found, index,
                                 found > index ? "missing" : "there twice"));
  }
  line.space();
  std::string token = line.literal();
  line.space();
  const std::uint64_t bytes = line.number();
  line.end();
  if (token.size() != bytes) {
    throw line.error(
        fmt::format("says that its token has {} bytes, but it has {}", bytes, token.size()));
  }
  if (bytes > token_bytes_max) {
    throw line.error(
        fmt::format("has a token of {} bytes; the most is {}", bytes, token_bytes_max));
  }
  return token;
}

}  // namespace

std::optional<fs::path> find_world_vocabulary(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("rwkv_vocab_") && name.ends_with(".txt")) found.push_back(entry.path());
  }
  if (found.empty()) return std::nullopt;
  if (found.size() > 1) {
    std::ranges::sort(found);
    throw ModelError(
        fmt::format("{}: there are several vocabularies, {} and {}; keep that with "
                    "which the model was trained",
                    folder.string(), found[0].filename().string(), found[1].filename().string()));
  }
  return found.front();
}

std::vector<std::string> read_world_vocabulary(const fs::path& file, std::uint64_t ids) {
  std::istringstream lines(read_file(file, vocabulary_bytes_max));
  std::vector<std::string> tokens;
  std::unordered_map<std::string, std::size_t, text::KeyedHash> indices;
  for (std::string text; std::getline(lines, text);) {
    const std::size_t index = tokens.size() + 1;
    if (text.ends_with('\r')) text.pop_back();
    const std::string place = fmt::format("{}: line {}", file.string(), index);
    if (index >= ids) {
      throw ModelError(fmt::format(
          "{} is beyond the vocab_size of config.json, which is {}; take both files from one "
          "checkpoint",
          place, ids));
    }
    const LineReader line(text, place);
    tokens.push_back(read_line(line, index));
    if (tokens.back().empty()) continue;
    const auto [same, is_new] = indices.emplace(tokens.back(), index);
    if (!is_new) throw line.error(fmt::format("has the token of line {} again", same->second));
  }
  return tokens;
}

std::string with_escapes(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) {
    const std::size_t place = meant.find(byte);
    if (place != std::string_view::npos && byte != '\'' && byte != '"') {
      out += {'\\', short_escapes[place]};
    } else if (byte >= ' ' && byte <= '~') {
      out += byte;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    }
  }
  return out;
}

}  // namespace sluice::convert
