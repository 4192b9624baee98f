#include "core/convert/tiktoken.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fmt/format.h>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/convert/json_file.h"
#include "core/text/base64.h"
#include "core/text/byte_alphabet.h"
#include "core/text/keyed_hash.h"

namespace sluice::convert {
namespace {

using nlohmann::json;
using Ranks = std::unordered_map<std::string, std::uint32_t, text::KeyedHash>;

// The two tokens that become this one last; the second is empty where none do.
std::pair<std::string, std::string> parts_of(const std::string& token, const Ranks& ranks) {
  const std::uint32_t own = ranks.at(token);
  std::vector<std::string> parts;
  for (const char byte : token) parts.emplace_back(1, byte);
  while (parts.size() > 2) {
    std::uint32_t least = own;
    std::size_t place = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find(parts[i] + parts[i + 1]);
      if (found == ranks.end() || found->second >= least) continue;
      least = found->second;
      place = i;
    }
    if (least == own) return {};
    parts[place] += parts[place + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
  return {parts.front(), parts.back()};
}

// The rank of each token, by its bytes.
Ranks read_ranks(const std::filesystem::path& file) {
  std::istringstream lines(read_file(file, vocabulary_bytes_max));
  Ranks ranks;
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty()) continue;
    const std::size_t space = std::min(line.find(' '), line.size());
    std::string token = text::from_base64(std::string_view(line).substr(0, space));
    std::uint32_t rank = 0;
    const char* end = line.data() + line.size();
    const auto parsed = std::from_chars(line.data() + std::min(space + 1, line.size()), end, rank);
    const bool is_rank = parsed.ec == std::errc() && (parsed.ptr == end || *parsed.ptr == '\r');
    if (!is_rank || token.empty() || token.size() > token_bytes_max ||
        !ranks.emplace(std::move(token), rank).second) {
      throw ModelError(fmt::format("{}: line {} is not a token in Base64, seen once, and its rank",
                                   file.string(), number));
    }
  }
  return ranks;
}

}  // namespace

json read_tiktoken(const std::filesystem::path& file, const Config& settings) {
  // The file does not say how text is split before; the code of Kimi's tokenizer does.
  if (settings.find_text("tokenizer_class").value_or("") != "TikTokenTokenizer") {
    throw settings.error("tokenizer_class", "is not TikTokenTokenizer, as tiktoken.model needs it");
  }
  const Ranks ranks = read_ranks(file);
  std::vector<std::pair<std::uint32_t, std::string_view>> tokens;
  for (const auto& [token, rank] : ranks) tokens.emplace_back(rank, token);
  std::ranges::sort(tokens);
  json vocabulary = json::object(), merges = json::array();
  for (const auto& [rank, token] : tokens) {
    vocabulary[text::encode_byte_alphabet(token)] = rank;
    if (token.size() == 1) continue;
    const auto [left, right] = parts_of(std::string(token), ranks);
    if (right.empty()) continue;
    merges.push_back({text::encode_byte_alphabet(left), text::encode_byte_alphabet(right)});
  }
  return {{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}},
          {"pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers",
             {{{"type", "Split"}, {"pattern", {{"Regex", kimi_regex}}}},
              {{"type", "ByteLevel"}, {"use_regex", false}}}}}}};
}

}  // namespace sluice::convert
