#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <utility>

#include "core/http/api/answer_writer.h"
#include "core/rows/answer_body.h"
#include "core/rows/row_json.h"

namespace sluice::http {
namespace {

using nlohmann::ordered_json;

ordered_json envelope(const AnswerFacts& facts) {
  const bool is_chat = facts.form == rows::Form::chat;
  return {{"id", facts.id},
          {"object", is_chat ? "chat.completion.chunk" : "text_completion"},
          {"created", facts.created},
          {"model", facts.model}};
}

// The calls, each with its place in the list.
ordered_json numbered(const ordered_json& calls) {
  ordered_json list = ordered_json::array();
  for (const ordered_json& call : calls) {
    ordered_json item = {{"index", list.size()}};
    item.update(call);
    list.push_back(std::move(item));
  }
  return list;
}

ordered_json delta_of(const Piece& piece) {
  ordered_json delta = ordered_json::object();
  if (piece.is_first) delta["role"] = "assistant";
  if (!piece.thought.empty()) delta["reasoning_content"] = piece.thought;
  if (!piece.text.empty() || piece.is_first) delta["content"] = piece.text;
  if (!piece.tool_calls.is_null()) delta["tool_calls"] = numbered(piece.tool_calls);
  return delta;
}

// Unlike a batch's result, an answer also tells what was known of its prompts: it depends on what
// else has run. The first choice of a prompt evaluates it, and the others find it known.
ordered_json usage_of(const AnswerFacts& facts, std::span<const rows::Completion> choices) {
  const std::size_t choices_each = choices.size() / facts.prompts;
  std::uint64_t cached = 0;
  for (std::size_t i = 0; i < choices.size(); i += choices_each) {
    cached += std::ranges::min_element(choices.subspan(i, choices_each), {},
                                       &rows::Completion::shared_tokens)
                  ->shared_tokens;
  }
  ordered_json usage = rows::usage_of(choices, facts.prompts);
  usage["prompt_tokens_details"] = {{"cached_tokens", cached}};
  return usage;
}

std::string piece_json(const AnswerFacts& facts, const Piece& piece) {
  ordered_json choice = {{"index", piece.choice}};
  if (facts.form == rows::Form::chat) {
    choice["delta"] = delta_of(piece);
  } else {
    choice["text"] = piece.text;
  }
  choice["logprobs"] =
      piece.logprobs.empty() ? ordered_json() : ordered_json::parse(piece.logprobs);
  choice["finish_reason"] = piece.finish.empty() ? ordered_json() : ordered_json(piece.finish);
  ordered_json json = envelope(facts);
  json["choices"] = ordered_json::array({std::move(choice)});
  if (facts.includes_usage) json["usage"] = nullptr;
  return rows::json_text(json);
}

std::string usage_piece_json(const AnswerFacts& facts, const ordered_json& usage) {
  ordered_json json = envelope(facts);
  json["choices"] = ordered_json::array();
  json["usage"] = usage;
  return rows::json_text(json);
}

// As the server of llama.cpp tells it.
std::string progress_json(const AnswerFacts& facts, const rows::PromptProgress& prompt,
                          double seconds) {
  ordered_json json = envelope(facts);
  json["choices"] = ordered_json::array();
  if (facts.includes_usage) json["usage"] = nullptr;
  json["prompt_progress"] = {{"total", prompt.tokens},
                             {"cache", prompt.shared},
                             {"processed", prompt.evaluated},
                             {"time_ms", static_cast<std::uint64_t>(seconds * 1000)}};
  return rows::json_text(json);
}

class CompletionWriter final : public AnswerWriter {
 public:
  explicit CompletionWriter(AnswerFacts facts) : facts_(std::move(facts)) {}

  std::string whole(std::span<const rows::Completion> choices) override {
    return rows::openai_body(
        facts_.form, {facts_.id, facts_.created, facts_.model, usage_of(facts_, choices)}, choices);
  }
  std::string begin() override { return {}; }
  std::string progress(const rows::PromptProgress& prompt, double seconds) override {
    return event_of(progress_json(facts_, prompt, seconds));
  }
  std::string piece(const Piece& piece) override { return event_of(piece_json(facts_, piece)); }
  std::string end(std::span<const rows::Completion> choices) override {
    std::string events;
    if (facts_.includes_usage) {
      events = event_of(usage_piece_json(facts_, usage_of(facts_, choices)));
    }
    return events + event_of("[DONE]");
  }
  std::string failure(const ApiError& error) override { return event_of(error_json(error)); }

 private:
  AnswerFacts facts_;
};

}  // namespace

std::string event_of(std::string_view json) {
  return fmt::format("data: {}\n\n", json);
}

std::unique_ptr<AnswerWriter> completion_writer(AnswerFacts facts) {
  return std::make_unique<CompletionWriter>(std::move(facts));
}

}  // namespace sluice::http
