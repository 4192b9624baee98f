#include "core/convert/tiktoken.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fmt/format.h>
#include <functional>
#include <optional>
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
#include "core/tokenizer/merge.h"

namespace sluice::convert {
namespace {

using nlohmann::json;
using Ranks = std::unordered_map<std::string, std::uint32_t, text::KeyedHash, std::equal_to<>>;

// The two tokens that become this one last; the second is empty where none do. `merger` is reused.
std::pair<std::string_view, std::string_view> parts_of(std::string_view token, const Ranks& ranks,
                                                       tokenizer::Merger& merger) {
  const std::uint32_t own = ranks.find(token)->second;
  merger.clear();
  for (std::size_t i = 0; i < token.size(); ++i) merger.push(1, 0);
  merger.merge([&](const tokenizer::Symbol& left,
                   const tokenizer::Symbol& right) -> std::optional<tokenizer::Merge> {
    const auto found = ranks.find(token.substr(left.begin, left.bytes + right.bytes));
    if (found == ranks.end() || found->second >= own) return std::nullopt;
    return tokenizer::Merge{found->second, 0};
  });
  std::vector<std::string_view> parts;
  merger.for_each([&](const tokenizer::Symbol& symbol) {
    parts.push_back(token.substr(symbol.begin, symbol.bytes));
  });
  if (parts.size() != 2) return {};
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
  tokenizer::Merger merger;
  for (const auto& [rank, token] : tokens) {
    vocabulary[text::encode_byte_alphabet(token)] = rank;
    if (token.size() == 1) continue;
    const auto [left, right] = parts_of(token, ranks, merger);
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
