// The body of an answer in OpenAI's form, and its parts: what a result of a batch holds, and what a
// server sends.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/rows/completion.h"
#include "core/rows/request.h"
#include "core/tokenizer/tokenizer.h"

namespace sluice::rows {

// The log probabilities of a completion as JSON. `top` is how many other tokens each token has.
// `text_offset` is how many characters of the generated text come before its first token, and then
// those up to its end: a stream has a text in parts. Only Form::completions tells it.
std::string logprobs_text(Form form, const Completion& completion, std::uint32_t top,
                          const tokenizer::Tokenizer& tokenizer, std::uint64_t& text_offset);

// "stop", "length" or "tool_calls".
std::string_view finish_name(const Completion& completion);

// {"prompt_tokens", "completion_tokens", "total_tokens"}; a prompt counts once for all its choices.
// With a prediction also "completion_tokens_details", which tells how much of it was right. Each of
// the prompts has as many choices, one behind the other.
nlohmann::ordered_json usage_of(std::span<const Completion> choices, std::size_t prompts = 1);

// The body of an answer in the form of OpenAI's API, as a row's result holds it and as a server
// sends it.
struct OpenAiBody {
  std::string id;
  std::uint64_t created = 0;  // seconds since 1970; 0 in results, which have no time
  std::string_view model = {};
  nlohmann::ordered_json usage = nullptr;  // usage_of() the choices
};
std::string openai_body(Form form, const OpenAiBody& facts, std::span<const Completion> choices);

// A vector as JSON: a float that has the same bits comes of each number, and null stands for what
// is not finite.
std::string numbers_text(std::span<const float> values);

// Builds the text of an object from members that are text already: there are too many log
// probabilities to hold them as JSON values.
class ObjectText {
 public:
  ObjectText& add_text(std::string_view name, std::string_view json);
  ObjectText& add(std::string_view name, const nlohmann::ordered_json& value);
  std::string end();

 private:
  std::string text_ = "{";
};

// Adds no members where there are no thoughts and no calls.
void add_thought_and_calls(ObjectText& object, const Completion& completion);

// "[A,B]", where text(choice, index) gives the text of each.
template <class ChoiceText>
std::string list_text(std::span<const Completion> choices, ChoiceText text) {
  std::string list = "[";
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (i != 0) list += ',';
    list += text(choices[i], i);
  }
  return list + "]";
}

}  // namespace sluice::rows
