#include "core/cli/token_reader.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "core/cli/output.h"
#include "core/error.h"

namespace sluice::cli {
namespace {

using tokenizer::Token;

constexpr std::size_t piece_bytes = 8192;
// What encoding holds for a byte of one long word: two numbers of a token, a symbol, and its place
// in the queue of merges, each in a list that may have doubled.
constexpr std::uint64_t encoding_bytes = 96;
static_assert(piece_bytes * encoding_bytes < TokenReader::bytes_max);

}  // namespace

TokenReader::TokenReader(TextInput text, const engine::Engine& engine, const Options& options)
    : text_(std::move(text)),
      options_(options),
      encoder_(engine.tokenizer(), options.encode),
      spare_bytes_(engine.plan().budget.bytes -
                   std::min(engine.plan().budget.bytes, engine.plan().total_bytes())) {}

void TokenReader::read(std::size_t count, std::vector<Token>& out) {
  while (count > 0 && (next_ < ready_.size() || read_more())) {
    const std::size_t taken = std::min(count, ready_.size() - next_);
    const auto begin = ready_.begin() + static_cast<std::ptrdiff_t>(next_);
    out.insert(out.end(), begin, begin + static_cast<std::ptrdiff_t>(taken));
    next_ += taken;
    count -= taken;
  }
}

std::uint64_t TokenReader::skip_rest() {
  std::uint64_t tokens = 0;
  do {
    tokens += ready_.size() - std::exchange(next_, ready_.size());
  } while (read_more());
  return tokens;
}

std::string TokenReader::progress() const {
  if (!text_.bytes()) return format_bytes(text_.bytes_read());
  const double all = std::max<double>(1, static_cast<double>(*text_.bytes()));
  return fmt::format("{:.0f} %",
                     std::min(100.0, 100 * static_cast<double>(text_.bytes_read()) / all));
}

// Encodes until there are tokens. False at the end of the text. A newline waits for what follows,
// since it may be the last.
bool TokenReader::read_more() {
  ready_.clear();
  next_ = 0;
  while (ready_.empty() && !is_at_end_) {
    check_held();
    is_at_end_ = !text_.read(piece_bytes, piece_);
    const bool waits = options_.drops_last_newline && piece_.ends_with('\n');
    const std::string_view piece = std::string_view(piece_).substr(0, piece_.size() - waits);
    encoder_.push(piece, ready_);
    piece_.erase(0, piece.size());
    if (is_at_end_) encoder_.finish(ready_);
  }
  return !ready_.empty();
}

void TokenReader::check_held() const {
  const std::uint64_t bytes = (encoder_.held_bytes() + piece_bytes) * encoding_bytes;
  if (bytes <= bytes_max + spare_bytes_) return;
  throw Error(ExitCode::budget,
              fmt::format("{}: a stretch of more than {} KiB has no space or other place to cut it "
                          "at, and the budget has no room to encode it at once: raise --budget, or "
                          "lower --ctx",
                          text_.name(), encoder_.held_bytes() >> 10));
}

}  // namespace sluice::cli
