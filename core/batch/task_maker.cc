#include "core/batch/task_maker.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <utility>

#include "core/error.h"

namespace sluice::batch {
namespace {

using tokenizer::Token;

// Why a row cannot be run. Does not leave this file.
struct Refusal {
  std::string_view code;
  std::string reason;
};

// What a tokenizer takes at most, for a text that is one word; measured, rounded up.
constexpr std::uint64_t tokenizer_bytes_per_text_byte = 40;

constexpr std::string_view invalid = "invalid_request";
constexpr std::string_view too_long = "prompt_too_long";

std::uint64_t limit_of(std::uint32_t positions_max) {
  return positions_max == 0 ? std::numeric_limits<std::uint32_t>::max() / 2 : positions_max;
}

// The longest end (or beginning) of the text that has at most `bytes_max` bytes and begins and ends
// with whole characters.
std::string cut_text(const std::string& text, std::size_t bytes_max, Truncate truncate) {
  const auto is_continuation = [&](std::size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
  };
  if (truncate == Truncate::tail) {
    std::size_t end = bytes_max;
    while (end > 0 && is_continuation(end)) --end;
    return text.substr(0, end);
  }
  std::size_t begin = text.size() - bytes_max;
  while (begin < text.size() && is_continuation(begin)) ++begin;
  return text.substr(begin);
}

}  // namespace

TaskMaker::TaskMaker(const tokenizer::Tokenizer& tokenizer, const Input& input,
                     const TaskOptions& options)
    : tokenizer_(tokenizer), input_(input), options_(options) {
  for (std::size_t token = 0; token < tokenizer.vocabulary_size(); ++token) {
    piece_bytes_max_ =
        std::max(piece_bytes_max_, tokenizer.piece(static_cast<Token>(token), true).size());
  }
}

std::variant<Task, RefusedRow> TaskMaker::make(std::uint64_t row) const {
  const ParsedRow parsed = parse_row(input_.read(row), row, options_.defaults);
  const RowHeader& header = parsed.header;
  if (!parsed.request) return RefusedRow{header, invalid, parsed.reason};
  if (const auto first = input_.first_of_same_id(row)) {
    return RefusedRow{
        header, "duplicate_id",
        fmt::format("line {} has the same id {}", input_.line_number(*first), header.id.dump())};
  }
  const Request& request = *parsed.request;
  const bool is_conversation = std::holds_alternative<std::vector<Message>>(request.prompt);
  Task task;
  task.row = row;
  task.header = header;
  task.tokens_max = request.tokens_max;
  task.sampler = request.sampler;
  task.stop = request.stop;
  try {
    task.prompt = tokenize(request);
    fit(task, is_conversation);
    task.prompt.shrink_to_fit();  // it may wait and run for long
  } catch (const Refusal& refusal) {
    return RefusedRow{header, refusal.code, refusal.reason};
  } catch (const Error& error) {  // of the chat format
    return RefusedRow{header, invalid, error.what()};
  }
  if (is_conversation) {
    task.ends_text = options_.chat.ends_answer;
    const std::vector<std::string>& stop = options_.chat.stop_texts;
    task.stop.insert(task.stop.end(), stop.begin(), stop.end());
  }
  return task;
}

// First the row is parsed, then its prompt is tokenised.
std::uint64_t TaskMaker::work_bytes() const {
  const std::uint64_t row = input_.row_bytes();
  const std::uint64_t text = std::min(row, limit_of(options_.positions_max) * piece_bytes_max_);
  return std::max(parse_bytes(row), 2 * row + tokenizer_bytes_per_text_byte * text);
}

std::vector<Token> TaskMaker::tokenize(const Request& request) const {
  const Prompt& prompt = request.prompt;
  std::vector<Token> tokens;
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    tokens = tokenize_text(*text, request.tokens_max);
  } else if (const auto* ids = std::get_if<std::vector<Token>>(&prompt)) {
    tokens = *ids;
    const auto vocabulary = static_cast<Token>(tokenizer_.vocabulary_size());
    for (const Token token : tokens) {
      if (token < vocabulary) continue;
      throw Refusal{invalid, fmt::format("token {} is not in the vocabulary of {} tokens", token,
                                         vocabulary)};
    }
  } else if (options_.chat.encode) {
    tokens = options_.chat.encode(std::get<std::vector<Message>>(prompt));
  } else {
    throw Refusal{invalid, "the model has no chat format that is known"};
  }
  if (!tokens.empty()) return tokens;
  const std::optional<Token> bos = tokenizer_.bos();
  if (!bos) throw Refusal{invalid, "the prompt is empty and the model has no token to begin one"};
  return {*bos};
}

// No token stands for more than piece_bytes_max_ bytes, so a text can be too long without a look at
// its tokens. What a tokenizer takes for a text grows with it, and this keeps it bounded.
std::vector<Token> TaskMaker::tokenize_text(const std::string& text,
                                            std::uint32_t tokens_max) const {
  const tokenizer::EncodeOptions encoding{.add_bos = true, .parse_special = false};
  const std::uint64_t bytes_max = limit_of(options_.positions_max) * piece_bytes_max_;
  if (text.size() <= bytes_max) return tokenizer_.encode(text, encoding);
  if (options_.truncate == Truncate::no) {
    throw Refusal{too_long,
                  fmt::format("the prompt of {} bytes and {} new tokens need more than the {} "
                              "positions of a sequence (--ctx, --truncate)",
                              text.size(), tokens_max, options_.positions_max)};
  }
  return tokenizer_.encode(cut_text(text, bytes_max, options_.truncate), encoding);
}

void TaskMaker::fit(Task& task, bool is_conversation) const {
  const std::uint64_t positions = limit_of(options_.positions_max);
  std::vector<Token>& prompt = task.prompt;
  if (prompt.size() + task.tokens_max <= positions) return;
  const bool may_cut = options_.truncate == Truncate::head ||
                       (options_.truncate == Truncate::tail && !is_conversation);
  if (!may_cut || task.tokens_max + 2 > positions) {
    throw Refusal{too_long,
                  fmt::format("{} prompt tokens and {} new ones need more than the {} positions "
                              "of a sequence (--ctx, --truncate)",
                              prompt.size(), task.tokens_max, positions)};
  }
  const std::uint64_t excess = prompt.size() + task.tokens_max - positions;
  task.truncated_tokens = excess;
  if (options_.truncate == Truncate::tail) {
    prompt.resize(prompt.size() - excess);
    return;
  }
  const bool begins_with_bos = prompt.front() == tokenizer_.bos();
  const auto begin = prompt.begin() + (begins_with_bos ? 1 : 0);
  prompt.erase(begin, begin + static_cast<std::ptrdiff_t>(excess));
}

}  // namespace sluice::batch
