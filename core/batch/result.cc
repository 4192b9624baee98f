#include "core/batch/result.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <initializer_list>
#include <utility>

namespace sluice::batch {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view id_prefix = "batch_req_";

std::string json_text(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// Builds the text of an object from members that are text already: there are too many log
// probabilities to hold them as JSON values.
class ObjectText {
 public:
  ObjectText& add_text(std::string_view name, std::string_view json) {
    text_ += fmt::format("{}\"{}\":", text_.size() == 1 ? "" : ",", name);
    text_ += json;
    return *this;
  }
  ObjectText& add(std::string_view name, const ordered_json& value) {
    return add_text(name, json_text(value));
  }
  std::string end() { return std::move(text_ += '}'); }

 private:
  std::string text_ = "{";
};

// Adds no members where there are no thoughts and no calls.
void add_thought_and_calls(ObjectText& object, const rows::Completion& completion) {
  if (!completion.thought.empty()) object.add("reasoning_content", completion.thought);
  if (!completion.tool_calls.is_null()) object.add("tool_calls", completion.tool_calls);
}

std::string openai_choice(rows::Form form, const rows::Completion& completion, std::size_t index) {
  ObjectText choice;
  choice.add("index", index);
  if (form == rows::Form::chat) {
    ObjectText message;
    message.add("role", "assistant").add("content", completion.text);
    add_thought_and_calls(message, completion);
    choice.add_text("message", message.end());
  } else {
    choice.add("text", completion.text);
  }
  choice.add_text("logprobs", completion.logprobs_text.empty() ? "null" : completion.logprobs_text);
  return choice.add("finish_reason", finish_name(completion)).end();
}

void add_plain_choice(ObjectText& object, const rows::Completion& completion) {
  object.add("text", completion.text);
  add_thought_and_calls(object, completion);
  if (!completion.logprobs_text.empty()) object.add_text("logprobs", completion.logprobs_text);
  object.add("finish_reason", finish_name(completion));
}

template <class ChoiceText>
std::string list_text(std::span<const rows::Completion> choices, ChoiceText text) {
  std::string list = "[";
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i != 0) list += ',';
    list += text(choices[i], i);
  }
  return list + "]";
}

std::string plain_line(std::uint64_t row, const rows::RowHeader& header,
                       std::span<const rows::Completion> choices) {
  ObjectText line;
  line.add("row", row).add("id", header.id);
  if (choices.size() == 1) {
    add_plain_choice(line, choices.front());
  } else {
    line.add_text("choices",
                  list_text(choices, [](const rows::Completion& completion, std::size_t) {
                    ObjectText choice;
                    add_plain_choice(choice, completion);
                    return choice.end();
                  }));
  }
  return line.add("usage", usage_of(choices)).add("error", nullptr).end() + "\n";
}

// Whether an object has exactly these members, in this order. Members with a question mark may be
// missing.
bool has_just(const ordered_json& object, std::initializer_list<std::string_view> members) {
  auto item = object.items().begin();
  const auto end = object.items().end();
  for (std::string_view member : members) {
    const bool is_optional = member.starts_with('?');
    if (is_optional) member.remove_prefix(1);
    if (item != end && std::string_view(item.key()) == member) {
      ++item;
    } else if (!is_optional) {
      return false;
    }
  }
  return !(item != end);
}

bool has_members_of_result(const ordered_json& object) {
  return has_just(object, {"row", "id", "text", "?reasoning_content", "?tool_calls", "?logprobs",
                           "finish_reason", "usage", "error"}) ||
         has_just(object, {"row", "id", "choices", "usage", "error"}) ||
         has_just(object, {"row", "id", "text", "error"}) ||
         has_just(object, {"id", "custom_id", "response", "error"});
}

std::optional<std::uint64_t> row_of(const ordered_json& object) {
  if (const auto row = object.find("row"); row != object.end()) {
    if (!row->is_number_unsigned()) return std::nullopt;
    return row->get<std::uint64_t>();
  }
  const ordered_json& id = object.at("id");
  if (!id.is_string()) return std::nullopt;
  const auto& text = id.get_ref<const std::string&>();
  if (!text.starts_with(id_prefix)) return std::nullopt;
  std::uint64_t row = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data() + id_prefix.size(), end, row);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return row;
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

std::string chat_logprobs(const rows::Completion& completion, std::size_t width,
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

std::string completion_logprobs(const rows::Completion& completion, std::size_t width,
                                const tokenizer::Tokenizer& tokenizer) {
  std::string tokens = "[", chosen = "[", others = "[";
  const auto piece = [&](const sampling::TokenLogprob& entry) {
    return json_text(tokenizer.piece(entry.token, true));
  };
  for (std::size_t i = 0; i < completion.logprobs.size(); i += width) {
    const std::string_view comma = i == 0 ? "" : ",";
    tokens.append(comma).append(piece(completion.logprobs[i]));
    chosen.append(comma).append(json_text(completion.logprobs[i].logprob));
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
  return object.add_text("top_logprobs", width == 1 ? "null" : others + "]").end();
}

}  // namespace

std::string_view finish_name(const rows::Completion& completion) {
  if (completion.finish == rows::Finish::length) return "length";
  return completion.tool_calls.is_null() ? "stop" : "tool_calls";
}

ordered_json usage_of(std::span<const rows::Completion> choices) {
  std::uint64_t generated = 0;
  for (const rows::Completion& completion : choices) generated += completion.completion_tokens;
  const rows::Completion& first = choices.front();
  ordered_json usage = {{"prompt_tokens", first.prompt_tokens},
                        {"completion_tokens", generated},
                        {"total_tokens", first.prompt_tokens + generated}};
  if (first.truncated_tokens != 0) usage["truncated_tokens"] = first.truncated_tokens;
  return usage;
}

std::string openai_body(rows::Form form, const OpenAiBody& facts,
                        std::span<const rows::Completion> choices) {
  return ObjectText()
      .add("id", facts.id)
      .add("object", form == rows::Form::chat ? "chat.completion" : "text_completion")
      .add("created", facts.created)
      .add("model", facts.model)
      .add_text("choices", list_text(choices,
                                     [&](const rows::Completion& completion, std::size_t index) {
                                       return openai_choice(form, completion, index);
                                     }))
      .add("usage", usage_of(choices))
      .end();
}

std::string logprobs_text(rows::Form form, const rows::Completion& completion, std::uint32_t top,
                          const tokenizer::Tokenizer& tokenizer) {
  const std::size_t width = 1 + top;
  if (form == rows::Form::completions) return completion_logprobs(completion, width, tokenizer);
  const std::string list = chat_logprobs(completion, width, tokenizer);
  return form == rows::Form::chat ? ObjectText().add_text("content", list).end() : list;
}

std::string result_line(std::uint64_t row, const rows::RowHeader& header, std::string_view model,
                        std::span<const rows::Completion> choices) {
  if (header.form == rows::Form::plain) return plain_line(row, header, choices);
  const bool is_chat = header.form == rows::Form::chat;
  const OpenAiBody facts = {.id = fmt::format("{}-{}", is_chat ? "chatcmpl" : "cmpl", row),
                            .model = header.model.empty() ? model : header.model};
  const std::string response = ObjectText()
                                   .add("status_code", 200)
                                   .add("request_id", fmt::format("req_{}", row))
                                   .add_text("body", openai_body(header.form, facts, choices))
                                   .end();
  return ObjectText()
             .add("id", fmt::format("{}{}", id_prefix, row))
             .add("custom_id", header.id)
             .add_text("response", response)
             .add("error", nullptr)
             .end() +
         "\n";
}

std::string error_line(std::uint64_t row, const rows::RowHeader& header,
                       const RowProblem& problem) {
  const ordered_json error = {{"code", problem.code},
                              {"message", fmt::format("line {}: {}", problem.line, problem.reason)},
                              {"line", problem.line}};
  if (header.form == rows::Form::plain) {
    return json_text({{"row", row}, {"id", header.id}, {"text", nullptr}, {"error", error}}) + "\n";
  }
  return json_text({{"id", fmt::format("{}{}", id_prefix, row)},
                    {"custom_id", header.id},
                    {"response", nullptr},
                    {"error", error}}) +
         "\n";
}

std::optional<ResultFacts> read_result(std::string_view line) {
  if (line.size() >= result_bytes_max) return std::nullopt;
  const auto object = ordered_json::parse(line, nullptr, false);
  if (!object.is_object() || !has_members_of_result(object)) return std::nullopt;
  const std::optional<std::uint64_t> row = row_of(object);
  if (!row || *row == 0) return std::nullopt;
  return ResultFacts{*row, static_cast<std::uint32_t>(line.size() + 1),
                     !object.at("error").is_null()};
}

}  // namespace sluice::batch
