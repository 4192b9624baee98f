// The answers of /tokenize and /detokenize.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/rows/task_maker.h"
#include "core/tokenizer/tokenizer.h"

namespace sluice::http {

// The most bytes of a text; the tokenizer needs some 40 times as much memory for one long word.
inline constexpr std::size_t tokenized_bytes_max = std::size_t{256} << 10;

// {"content": text, "add_special": bool, "parse_special": bool, "with_pieces": bool}, or the body
// of a chat, whose prompt is tokenised. Gives {"tokens": [...], "count": n}. Throws ApiError.
std::string tokenize_answer(const rows::TaskMaker& maker, const tokenizer::Tokenizer& tokenizer,
                            std::string_view body, std::uint64_t number);

// {"tokens": [...]} gives {"content": text}, with U+FFFD for what is not UTF-8. Throws ApiError.
std::string detokenize_answer(const tokenizer::Tokenizer& tokenizer, std::string_view body);

}  // namespace sluice::http
