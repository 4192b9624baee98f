#include "core/tokenizer/pretokenizer.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "core/text/utf8.h"

namespace sluice::tokenizer {

namespace {

// The first alternative that matches wins, and repeats are greedy. Text that no alternative matches
// is a piece too. All patterns are linear in the length of the text, see \s+$ below.
using Regexes = std::vector<std::string>;

// GPT-2 (Radford et al. 2019): words and numbers with the space before them, other characters, and
// white space except its last character, which belongs to the next word.
const std::string gpt2_words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";

// Parts that the younger families share: contractions, and how white space ends.
const std::string contraction = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))";
const std::string spaces = R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string symbols = R"( ?[^\s\p{L}\p{N}]+[\r\n]*)";
const std::string letters = R"([^\r\n\p{L}\p{N}]?\p{L}+)";

// Words that change from lower to upper case are two (as in camelCase).
const std::string word_start = R"([^\r\n\p{L}\p{N}]?)";
const std::string upper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])";
const std::string lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
const std::string symbols_and_slashes = R"( ?[^\s\p{L}\p{N}]+[\r\n/]*)";

std::string cased_words(const std::string& upper_class, const std::string& lower_class,
                        const std::string& suffix) {
  return word_start + upper_class + "*" + lower_class + "+" + suffix + "|" + word_start +
         upper_class + "+" + lower_class + "*" + suffix;
}

// GPT-4o's expression; `number` is its part for digits.
std::string gpt4o_words(const std::string& number) {
  return cased_words(upper, lower, contraction + "?") + "|" + number + "|" + symbols_and_slashes +
         "|" + spaces;
}

// Groups of three digits counted from the right, published as digit{1,3} before any number of
// triples up to `end`. Where a match has just ended within a run the groups are known to fit, so
// the rest of the run is scanned once instead of once for each group.
std::string digits_from_the_right(const std::string& digit, const std::string& end) {
  return "(?<!" + digit + ")" + digit + "{1,3}(?=(?:" + digit + "{3})*+" + end + R"()|\G(?<=)" +
         digit + ")" + digit + "{3}";
}

// Letters with case, of the Unicode version and in the selection of the DeepSeek LLM tokenizer.
const std::string cased_letters =
    R"(A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293})"
    R"(\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386})"
    R"(\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F})"
    R"(\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA})"
    R"(\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A})"
    R"(\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D})"
    R"(\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4})"
    R"(\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3})"
    R"(\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})"
    R"(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D})"
    R"(\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184})"
    R"(\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D})"
    R"(\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E})"
    R"(\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A})"
    R"(\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB})"
    R"(\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943})";

// Ideographs, the rest of the scripts below them, and Hangul, as DeepSeek selects them.
const std::string cjk_letters = R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";

Regexes deepseek_llm_passes() {
  return {
      R"([\r\n])",
      R"(\s?[)" + cased_letters + "]+",
      // Punctuation, and by the range :-~ (so published) the ASCII letters too.
      R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)",
      // Published as \s+$. The look-behind changes no match, since a run of white space matches
      // from its start or not at all, but saves trying again from each character of a long run.
      R"((?<!\s)\s+\z)",
      cjk_letters,
      R"(\p{N}+)",
  };
}

// Words, with a mark of ASCII in front of ASCII letters, and runs of symbols.
const std::string deepseek_v3_words =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|)" +
    spaces;

const std::string ideographs_and_kana = R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";

// Hangul, Chinese marks, bopomofo, and ideographs with kana, each for itself.
const std::string youtu_scripts =
    R"([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019})"
    R"(\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+)"
    R"(|[\x{3105}-\x{312F}]+|)" +
    ideographs_and_kana;

// The script Han. Written out, because \p{Han} has changed its meaning in PCRE2 10.40.
const std::string han =
    R"(\x{2E80}-\x{2E99}\x{2E9B}-\x{2EF3}\x{2F00}-\x{2FD5}\x{3005}\x{3007}\x{3021}-\x{3029})"
    R"(\x{3038}-\x{303B}\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FA6D}\x{FA70}-\x{FAD9})"
    R"(\x{16FE2}\x{16FE3}\x{16FF0}\x{16FF1}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B739})"
    R"(\x{2B740}-\x{2B81D}\x{2B820}-\x{2CEA1}\x{2CEB0}-\x{2EBE0}\x{2F800}-\x{2FA1D})"
    R"(\x{30000}-\x{3134A}\x{31350}-\x{323AF})";

// Like gpt-4o, but ideographs are words of their own, and slashes do not stay with symbols. The
// classes are those of gpt-4o without Han, written as what is left without all others.
std::string kimi_k2_words() {
  const std::string no_letters = R"(\p{N}\p{P}\p{S}\p{Z}\p{C})" + han + "]";
  return "[" + han + "]+|" +
         cased_words(R"([^\p{Ll})" + no_letters, R"([^\p{Lu}\p{Lt})" + no_letters,
                     contraction + "?") +
         R"(|\p{N}{1,3}|)" + symbols + "|" + spaces;
}

// Runs of white space in powers of two. Published without the look-behinds, which change no match:
// a run is matched up to its last line end first, so behind any other white space it has no more.
// They save looking for one again behind each of the powers.
const std::string jais2_spaces =
    R"((?:(?<!\s)|(?<=[\r\n]))\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S))"
    R"(|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s)";

// Everything but spaces and sentence marks; parentheses and bars are among the marks because the
// published pattern has them inside its brackets.
const std::string bloom_words =
    R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)";

// Published as (?=(\d{3})+(?!\d)): a run of numbers is cut where three digits, or a multiple, are
// left of the digits that follow. Written as the pieces between the cuts, which look at each digit
// a few times only: what comes before full groups, and groups; what is no digit goes with either.
std::string superbpe_numbers() {
  const std::string groups_follow = R"((?=(?:\d{3})*+(?!\d)))";
  const std::string rest = R"((?<!\d)\d{1,2})" + groups_follow + R"(|[\p{Nl}\p{No}])";
  return "(?:" + rest + R"(|(?:\G(?<=\d)|(?<!\d))" + groups_follow + R"()\d{3})(?:)" + rest + ")*+";
}

Regexes regexes_of(PretokenizerKind kind) {
  using Kind = PretokenizerKind;
  switch (kind) {
    case Kind::fallback:
      return {R"([\p{P}\$\+<=>\^~\|]+)", gpt2_words, R"(\p{N}+)", "[0-9][0-9][0-9]"};
    case Kind::llama3:
      return {contraction + "|" + letters + R"(|\p{N}{1,3}|)" + symbols + "|" + spaces};
    case Kind::qwen2:
      return {contraction + "|" + letters + R"(|\p{N}|)" + symbols + "|" + spaces};
    case Kind::qwen35:  // marks belong to words
      return {contraction +
              R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" + spaces};
    case Kind::gpt2:
      return {gpt2_words};
    case Kind::gpt4o:
      return {gpt4o_words(R"(\p{N}{1,3})")};
    case Kind::tekken:
      return {cased_words(upper, lower, "") + R"(|\p{N}|)" + symbols_and_slashes + "|" + spaces};
    case Kind::smollm:
      return {R"(\p{N})", gpt2_words};
    case Kind::falcon:
      return {R"([\p{P}\$\+<=>\^~\|`]+)", gpt2_words, "[0-9][0-9][0-9]"};
    case Kind::deepseek_llm:
      return deepseek_llm_passes();
    case Kind::deepseek_coder:
      return {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", cjk_letters, R"(\p{N})"};
    case Kind::deepseek_v3:
      return {R"(\p{N}{1,3})", ideographs_and_kana, deepseek_v3_words};
    case Kind::bloom:
      return {bloom_words};
    case Kind::viking:
      return {bloom_words, R"(\p{N})"};
    case Kind::seed_coder:
      return {contraction + "|" + letters + R"(|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|)" + spaces};
    case Kind::bailing:
      return {R"('(?i:[sdmt]|ll|ve|re)|)" + letters + R"(|\p{N}|)" + symbols + "|" + spaces};
    case Kind::jais2:
      return {contraction + "|" + letters + R"(|\p{N}{1,3}|)" + symbols + "|" + jais2_spaces};
    case Kind::kimi_k2:
      return {kimi_k2_words()};
    case Kind::laguna:
      return {R"([^\n]+|\n+)", contraction + "|" + letters + R"(|\p{N}|)" + symbols + "|" + spaces};
    case Kind::minicpm5:
      return {R"(\p{N}{1,3})",
              contraction + "|" + letters + R"(|\p{N}+|)" + symbols + "|" + spaces};
    case Kind::tiny_aya:
      return {digits_from_the_right(R"(\d)", R"((?![\p{L}\p{M}\p{Nd}\p{Pc}]))"),
              gpt4o_words(R"(\p{N}{1,3})")};
    case Kind::youtu:
      return {youtu_scripts, gpt4o_words(R"(\p{N})")};
    case Kind::superbpe:
      return {R"(\p{N}+)", superbpe_numbers()};
    case Kind::ufakzeka:
      return {letters + R"(|\p{N}|)" + symbols + "|" + spaces};
  }
  std::abort();
}

}  // namespace

std::optional<PretokenizerTraits> find_pretokenizer(std::string_view pre) {
  using Kind = PretokenizerKind;
  static constexpr PretokenizerTraits llama3 = {Kind::llama3, true, true, true};
  static constexpr PretokenizerTraits glm = {Kind::llama3, true, false, false};
  static constexpr PretokenizerTraits roberta = {Kind::gpt2, false, false, true, true};
  static constexpr auto plain = [](Kind kind) { return PretokenizerTraits{kind}; };
  struct Name {
    std::string_view pre;
    PretokenizerTraits traits;
  };
  static constexpr Name table[] = {
      {"default", plain(Kind::fallback)},
      {"llama-bpe", llama3},
      {"llama3", llama3},
      {"llama-v3", llama3},
      {"falcon3", llama3},
      {"falcon-h1", llama3},
      {"pixtral", llama3},
      {"midm-2.0", llama3},
      {"lfm2", llama3},
      {"jina-v5-nano", llama3},
      {"smaug-bpe", plain(Kind::llama3)},
      {"dbrx", plain(Kind::llama3)},
      {"glm4", glm},
      {"glm5", glm},
      {"chatglm-bpe", {Kind::llama3, false, false, false}},
      {"qwen2", plain(Kind::qwen2)},
      {"deepseek-r1-qwen", plain(Kind::qwen2)},
      {"stablelm2", plain(Kind::qwen2)},
      {"megrez", plain(Kind::qwen2)},
      {"hunyuan", plain(Kind::qwen2)},
      {"grok-2", plain(Kind::qwen2)},
      {"solar-open", plain(Kind::qwen2)},
      {"kormo", plain(Kind::qwen2)},
      {"f2llmv2", plain(Kind::qwen2)},
      {"qwen35", plain(Kind::qwen35)},
      {"gpt-2", plain(Kind::gpt2)},
      {"phi-2", plain(Kind::gpt2)},
      {"olmo", plain(Kind::gpt2)},
      {"mpt", plain(Kind::gpt2)},
      {"jais", plain(Kind::gpt2)},
      {"trillion", plain(Kind::gpt2)},
      {"exaone4", plain(Kind::gpt2)},
      {"gigachat", plain(Kind::gpt2)},
      {"granite-docling", plain(Kind::gpt2)},
      {"a.x-4.0", plain(Kind::gpt2)},
      {"mellum", plain(Kind::gpt2)},
      {"modern-bert", plain(Kind::gpt2)},
      {"jina-es", plain(Kind::gpt2)},
      {"jina-de", plain(Kind::gpt2)},
      {"jina-v2-es", plain(Kind::gpt2)},
      {"jina-v2-de", plain(Kind::gpt2)},
      {"jina-v1-en", roberta},
      {"jina-v2-code", roberta},
      {"roberta-bpe", roberta},
      {"gpt-4o", plain(Kind::gpt4o)},
      {"llama4", plain(Kind::gpt4o)},
      {"kanana2", plain(Kind::gpt4o)},
      {"minimax-m2", plain(Kind::gpt4o)},
      {"talkie", plain(Kind::gpt4o)},
      {"granite-embed-multi-97m", {Kind::gpt4o, true, false, true}},
      {"tekken", {Kind::tekken, true, true, true}},
      {"smollm", plain(Kind::smollm)},
      {"starcoder", plain(Kind::smollm)},
      {"refact", plain(Kind::smollm)},
      {"command-r", plain(Kind::smollm)},
      {"codeshell", plain(Kind::smollm)},
      {"exaone", plain(Kind::smollm)},
      {"minerva-7b", plain(Kind::smollm)},
      {"mellum2", plain(Kind::smollm)},
      {"falcon", plain(Kind::falcon)},
      {"deepseek-llm", plain(Kind::deepseek_llm)},
      {"deepseek-coder", plain(Kind::deepseek_coder)},
      {"deepseek-v3", plain(Kind::deepseek_v3)},
      {"hunyuan-dense", plain(Kind::deepseek_v3)},
      {"hy_v4", plain(Kind::deepseek_v3)},
      {"joyai-llm", plain(Kind::deepseek_v3)},
      {"bloom", plain(Kind::bloom)},
      {"gpt3-finnish", plain(Kind::bloom)},
      {"poro-chat", plain(Kind::bloom)},
      {"viking", plain(Kind::viking)},
      {"seed-coder", plain(Kind::seed_coder)},
      {"bailingmoe", plain(Kind::bailing)},
      {"bailingmoe2", plain(Kind::bailing)},
      {"llada-moe", plain(Kind::bailing)},
      {"jais-2", plain(Kind::jais2)},
      {"kimi-k2", plain(Kind::kimi_k2)},
      {"laguna", plain(Kind::laguna)},
      {"minicpm5", {Kind::minicpm5, true, false, true}},
      {"tiny_aya", plain(Kind::tiny_aya)},
      {"cohere2moe", plain(Kind::tiny_aya)},
      {"youtu", {Kind::youtu, true, false, true}},
      {"superbpe", plain(Kind::superbpe)},
      {"ufakzeka", plain(Kind::ufakzeka)},
  };
  for (const auto& [name, traits] : table) {
    if (name == pre) return traits;
  }
  return std::nullopt;
}

Pretokenizer::Pretokenizer(PretokenizerKind kind) : kind_(kind), letter_(R"(\p{L})") {
  for (const std::string& regex : regexes_of(kind)) passes_.emplace_back(regex);
}

void Pretokenizer::split(std::string_view text, const Sink& sink) const {
  Pattern::Scratch scratch;
  while (!text.empty()) {
    const std::size_t valid = utf8::valid_prefix(text);
    if (valid > 0) split_from(0, text.substr(0, valid), sink, scratch);
    text.remove_prefix(valid);
    const std::size_t invalid = utf8::invalid_prefix(text);
    if (invalid > 0) sink(text.substr(0, invalid));
    text.remove_prefix(invalid);
  }
}

bool Pretokenizer::may_cut(std::string_view text, std::size_t at) const {
  const std::string_view before = text.substr(0, at), behind = text.substr(at);
  if (kind_ == PretokenizerKind::superbpe) {
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
    return is_digit(before.back()) != is_digit(behind[0]) && is_ascii(before.back()) &&
           is_ascii(behind[0]);
  }
  constexpr std::array<std::string_view, 5> ends = {"\n", ".", ",", "\u3002", "\uFF0C"};
  const bool is_at_end =
      std::ranges::any_of(ends, [&](std::string_view end) { return behind.starts_with(end); });
  if (!is_at_end && behind[0] != ' ') return false;
  const char last = before.back();
  if ((last >= 'a' && last <= 'z') || (last >= 'A' && last <= 'Z')) return true;
  if (!is_at_end || static_cast<unsigned char>(last) < 0x80) return false;
  const std::string_view letter = before.substr(utf8::character_start(before, at - 1));
  if (utf8::character_bytes(letter) != letter.size()) return false;
  Pattern::Scratch scratch;
  return letter_.find(letter, 0, scratch).has_value();
}

void Pretokenizer::split_from(std::size_t pass, std::string_view piece, const Sink& sink,
                              Pattern::Scratch& scratch) const {
  if (pass == passes_.size()) {
    sink(piece);
    return;
  }
  std::size_t done = 0;
  while (done < piece.size()) {
    const auto match = passes_[pass].find(piece, done, scratch);
    const std::size_t begin = match ? match->begin : piece.size();
    const std::size_t end = match ? match->end : piece.size();
    if (begin > done) {
      split_from(pass + 1, piece.substr(done, begin - done), sink, scratch);
    }
    if (end > begin) split_from(pass + 1, piece.substr(begin, end - begin), sink, scratch);
    done = end;
  }
}

std::vector<std::string_view> split_pretokens(PretokenizerKind kind, std::string_view text) {
  std::vector<std::string_view> pieces;
  Pretokenizer(kind).split(text, [&](std::string_view piece) { pieces.push_back(piece); });
  return pieces;
}

}  // namespace sluice::tokenizer
