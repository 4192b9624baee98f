#include "core/rows/answer_body.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "core/rows/row_json.h"
#include "core/text/utf8.h"

namespace sluice::rows {
namespace {

using nlohmann::ordered_json;

std::string openai_choice(Form form, const Completion& completion, std::size_t index) {
  ObjectText choice;
  choice.add("index", index);
  if (form == Form::chat) {
    ObjectText message;
    message.add("role", "assistant").add("content", completion.text).add("refusal", nullptr);
    add_thought_and_calls(message, completion);
    choice.add_text("message", message.end());
  } else {
    choice.add("text", completion.text);
  }
  choice.add_text("logprobs", completion.logprobs_text.empty() ? "null" : completion.logprobs_text);
  return choice.add("finish_reason", finish_name(completion)).end();
}

// A token in the form of OpenAI's chat API. Its text may be only part of a character, so its bytes
// are given too.
std::string logprob_object(const sampling::TokenLogprob& entry,
                           const tokenizer::Tokenizer& tokenizer, const std::string& more) {
  const std::string piece(tokenizer.piece(entry.token, true));
  std::string bytes;
  for (const char byte : piece) {
    bytes += fmt::format("{}{}", bytes.empty() ? "" : ",", static_cast<unsigned char>(byte));
  }
  return fmt::format("{{\"token\":{},\"logprob\":{},\"bytes\":[{}]{}}}", json_text(piece),
                     json_text(entry.logprob), bytes, more);
}

std::string chat_logprobs(const Completion& completion, std::size_t width,
                          const tokenizer::Tokenizer& tokenizer) {
  std::string list = "[";
  for (std::size_t i = 0; i < completion.logprobs.size(); i += width) {
    std::string others = ",\"top_logprobs\":[";
    for (std::size_t other = i + 1; other < i + width; ++other) {
      if (other != i + 1) others += ',';
      others += logprob_object(completion.logprobs[other], tokenizer, "");
    }
    if (i != 0) list += ',';
    list += logprob_object(completion.logprobs[i], tokenizer, others + "]");
  }
  return list + "]";
}

// A token may end within a character, which counts where it begins.
std::uint64_t characters_of(std::string_view piece) {
  return static_cast<std::uint64_t>(
      std::ranges::count_if(piece, [](char byte) { return !utf8::is_continuation(byte); }));
}

std::string completion_logprobs(const Completion& completion, std::size_t width,
                                const tokenizer::Tokenizer& tokenizer, std::uint64_t& text_offset) {
  std::string tokens = "[", chosen = "[", others = "[", offsets = "[";
  const auto piece = [&](const sampling::TokenLogprob& entry) {
    return json_text(tokenizer.piece(entry.token, true));
  };
  for (std::size_t i = 0; i < completion.logprobs.size(); i += width) {
    const std::string_view comma = i == 0 ? "" : ",";
    tokens.append(comma).append(piece(completion.logprobs[i]));
    chosen.append(comma).append(json_text(completion.logprobs[i].logprob));
    offsets.append(comma).append(std::to_string(text_offset));
    text_offset += characters_of(tokenizer.piece(completion.logprobs[i].token, true));
    others.append(comma).append("{");
    for (std::size_t other = i + 1; other < i + width; ++other) {
      const sampling::TokenLogprob& entry = completion.logprobs[other];
      others +=
          fmt::format("{}{}:{}", other == i + 1 ? "" : ",", piece(entry), json_text(entry.logprob));
    }
    others += '}';
  }
  ObjectText object;
  object.add_text("tokens", tokens + "]").add_text("token_logprobs", chosen + "]");
  object.add_text("top_logprobs", width == 1 ? "null" : others + "]");
  return object.add_text("text_offset", offsets + "]").end();
}

}  // namespace

ObjectText& ObjectText::add_text(std::string_view name, std::string_view json) {
  text_ += fmt::format("{}\"{}\":", text_.size() == 1 ? "" : ",", name);
  text_ += json;
  return *this;
}

ObjectText& ObjectText::add(std::string_view name, const ordered_json& value) {
  return add_text(name, json_text(value));
}

std::string ObjectText::end() {
  return std::move(text_ += '}');
}

void add_thought_and_calls(ObjectText& object, const Completion& completion) {
  if (!completion.thought.empty()) object.add("reasoning_content", completion.thought);
  if (!completion.tool_calls.is_null()) object.add("tool_calls", completion.tool_calls);
}

std::string_view finish_name(const Completion& completion) {
  if (completion.finish == Finish::length) return "length";
  return completion.tool_calls.is_null() ? "stop" : "tool_calls";
}

ordered_json usage_of(std::span<const Completion> choices, std::size_t prompts) {
  std::uint64_t read = 0, truncated = 0, generated = 0, drafted = 0, accepted = 0;
  for (const Completion& completion : choices) {
    generated += completion.completion_tokens;
    drafted += completion.drafted_tokens;
    accepted += completion.accepted_tokens;
  }
  for (std::size_t i = 0; i < choices.size(); i += choices.size() / prompts) {
    read += choices[i].prompt_tokens;
    truncated += choices[i].truncated_tokens;
  }
  ordered_json usage = {{"prompt_tokens", read},
                        {"completion_tokens", generated},
                        {"total_tokens", read + generated}};
  if (truncated != 0) usage["truncated_tokens"] = truncated;
  if (drafted != 0) {
    usage["completion_tokens_details"] = {{"accepted_prediction_tokens", accepted},
                                          {"rejected_prediction_tokens", drafted - accepted}};
  }
  return usage;
}

std::string openai_body(Form form, const OpenAiBody& facts, std::span<const Completion> choices) {
  return ObjectText()
      .add("id", facts.id)
      .add("object", form == Form::chat ? "chat.completion" : "text_completion")
      .add("created", facts.created)
      .add("model", facts.model)
      .add_text("choices", list_text(choices,
                                     [&](const Completion& completion, std::size_t index) {
                                       return openai_choice(form, completion, index);
                                     }))
      .add("usage", facts.usage)
      .end();
}

std::string numbers_text(std::span<const float> values) {
  std::string text = "[";
  for (const float value : values) {
    std::array<char, 32> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    if (text.size() > 1) text += ',';
    text += std::isfinite(value) ? std::string_view(digits.data(), end) : "null";
  }
  return text + "]";
}

std::string logprobs_text(Form form, const Completion& completion, std::uint32_t top,
                          const tokenizer::Tokenizer& tokenizer, std::uint64_t& text_offset) {
  const std::size_t width = 1 + top;
  if (form == Form::completions) {
    return completion_logprobs(completion, width, tokenizer, text_offset);
  }
  const std::string list = chat_logprobs(completion, width, tokenizer);
  return form == Form::chat ? ObjectText().add_text("content", list).end() : list;
}

}  // namespace sluice::rows
