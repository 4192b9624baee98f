// The answer of the Responses API: a list of items (a thought, a message, calls), and as a stream
// the events in which they grow.
#include <fmt/format.h>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/http/api/answer_writer.h"
#include "core/rows/row_json.h"

namespace sluice::http {
namespace {

using nlohmann::ordered_json;
using rows::json_text;

ordered_json usage_of(const rows::Completion& completion) {
  return {{"input_tokens", completion.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", completion.shared_tokens}}},
          {"output_tokens", completion.completion_tokens},
          // Thoughts are not counted apart; the member may not be missing.
          {"output_tokens_details", {{"reasoning_tokens", 0}}},
          {"total_tokens", completion.prompt_tokens + completion.completion_tokens}};
}

class ResponseWriter final : public AnswerWriter {
 public:
  ResponseWriter(AnswerFacts facts, std::string request)
      : facts_(std::move(facts)), request_(std::move(request)) {}

  std::string whole(std::span<const rows::Completion> choices) override {
    const rows::Completion& completion = choices.front();
    if (!completion.thought.empty()) grow(Kind::thought, completion.thought);
    if (!completion.text.empty()) grow(Kind::message, completion.text);
    end_items(completion.finish == rows::Finish::length, completion.tool_calls);
    return text_of(response(&completion));
  }

  std::string begin() override {
    tell_response("response.created", response(nullptr));
    tell_response("response.in_progress", response(nullptr));
    return take_events();
  }

  // The Responses API has no event for it.
  std::string progress(const rows::PromptProgress& /*prompt*/, double /*seconds*/) override {
    return {};
  }

  std::string piece(const Piece& piece) override {
    if (!piece.thought.empty()) grow(Kind::thought, piece.thought);
    if (!piece.text.empty()) grow(Kind::message, piece.text);
    if (piece.finish.empty()) return take_events();
    end_items(piece.finish == "length", piece.tool_calls);
    return {};  // there is one choice, so that end() follows at once and takes them along
  }

  std::string end(std::span<const rows::Completion> choices) override {
    const rows::Completion& completion = choices.front();
    const bool is_cut = completion.finish == rows::Finish::length;
    tell_response(is_cut ? "response.incomplete" : "response.completed", response(&completion));
    return take_events();
  }

  std::string failure(const ApiError& error) override {
    ordered_json failed = response(nullptr);
    failed["status"] = "failed";
    failed["error"] = {{"code", "server_error"}, {"message", error.what()}};
    tell_response("response.failed", failed);
    return take_events();
  }

 private:
  enum class Kind { thought, message };
  // The item that grows.
  struct Open {
    Kind kind;
    std::string id;
    std::string text = {};
  };

  std::string suffix() const { return facts_.id.substr(facts_.id.find('_') + 1); }

  static ordered_json part_of(const Open& open) {
    if (open.kind == Kind::thought) return {{"type", "reasoning_text"}, {"text", open.text}};
    return {{"type", "output_text"},
            {"text", open.text},
            {"annotations", ordered_json::array()},
            {"logprobs", ordered_json::array()}};
  }

  // `status`: "in_progress", and of an item that has ended "completed" or "incomplete".
  static ordered_json item_of(const Open& open, std::string_view status) {
    ordered_json item = {{"id", open.id}};
    if (open.kind == Kind::thought) {
      item["type"] = "reasoning";
      item["summary"] = ordered_json::array();
    } else {
      item["type"] = "message";
      item["role"] = "assistant";
    }
    item["status"] = status;
    item["content"] = ordered_json::array();
    if (status != "in_progress") item["content"].push_back(part_of(open));
    return item;
  }

  // Names the part of the item that grows.
  ordered_json place() const {
    return {{"item_id", open_->id}, {"output_index", items_.size()}, {"content_index", 0}};
  }

  static std::string_view text_event(Kind kind) {
    return kind == Kind::thought ? "response.reasoning_text" : "response.output_text";
  }

  // Adds text to the item of this kind, which it begins if need be.
  void grow(Kind kind, std::string_view text) {
    if (open_ && open_->kind != kind) close();
    if (!open_) {
      has_message_ |= kind == Kind::message;
      open_ = Open{kind, fmt::format("{}_{}_{}", kind == Kind::thought ? "rs" : "msg", suffix(),
                                     items_.size())};
      tell("response.output_item.added",
           {{"output_index", items_.size()}, {"item", item_of(*open_, "in_progress")}});
      ordered_json members = place();
      members["part"] = part_of(*open_);
      tell("response.content_part.added", members);
    }
    if (text.empty()) return;
    open_->text += text;
    ordered_json members = place();
    members["delta"] = text;
    if (kind == Kind::message) members["logprobs"] = ordered_json::array();
    tell(fmt::format("{}.delta", text_event(kind)), members);
  }

  // Ends the answer: with a message, be it empty, where it is neither calls nor cut in a thought.
  void end_items(bool is_cut, const ordered_json& calls) {
    if (!has_message_ && !(is_cut && open_) && calls.is_null()) grow(Kind::message, "");
    close(is_cut ? "incomplete" : "completed");
    add_calls(calls);
  }

  // Ends the item that grows.
  void close(std::string_view status = "completed") {
    if (!open_) return;
    ordered_json text = place(), part = place();
    text["text"] = open_->text;
    if (open_->kind == Kind::message) text["logprobs"] = ordered_json::array();
    tell(fmt::format("{}.done", text_event(open_->kind)), text);
    part["part"] = part_of(*open_);
    tell("response.content_part.done", part);
    end_item(item_of(*open_, status));
    open_.reset();
  }

  void end_item(ordered_json item) {
    tell("response.output_item.done", {{"output_index", items_.size()}, {"item", item}});
    items_.push_back(std::move(item));
  }

  void add_calls(const ordered_json& calls) {
    for (const ordered_json& call : calls) {
      const ordered_json& function = call.at("function");
      ordered_json item = {{"id", fmt::format("fc_{}_{}", suffix(), items_.size())},
                           {"type", "function_call"},
                           {"status", "in_progress"},
                           {"call_id", call.at("id")},
                           {"name", function.at("name")},
                           {"arguments", ""}};
      const ordered_json where = {{"item_id", item["id"]}, {"output_index", items_.size()}};
      tell("response.output_item.added", {{"output_index", items_.size()}, {"item", item}});
      ordered_json delta = where, done = where;
      delta["delta"] = done["arguments"] = item["arguments"] = function.at("arguments");
      tell("response.function_call_arguments.delta", delta);
      done["name"] = item["name"];
      tell("response.function_call_arguments.done", done);
      item["status"] = "completed";
      end_item(std::move(item));
    }
  }

  // Without what it repeats of its request. `completion`: null while the answer is under way.
  ordered_json response(const rows::Completion* completion) const {
    const bool is_cut = completion != nullptr && completion->finish == rows::Finish::length;
    ordered_json json = {{"id", facts_.id},
                         {"object", "response"},
                         {"created_at", facts_.created},
                         {"status", completion == nullptr ? "in_progress"
                                    : is_cut              ? "incomplete"
                                                          : "completed"},
                         {"background", false},
                         {"error", nullptr},
                         {"incomplete_details", nullptr},
                         {"model", facts_.model},
                         {"output", items_},
                         {"previous_response_id", nullptr},
                         {"store", false},
                         {"truncation", "disabled"},
                         {"usage", nullptr}};
    if (is_cut) json["incomplete_details"] = {{"reason", "max_output_tokens"}};
    if (completion != nullptr) json["usage"] = usage_of(*completion);
    return json;
  }

  // What is repeated is long where there are many tools. It stays a text, as other clients wait
  // while it is written.
  std::string text_of(const ordered_json& response) const {
    return with_more(json_text(response), std::string_view(request_).substr(1));
  }

  // The text of an object to which the end of another one is added: members and a brace.
  static std::string with_more(std::string object, std::string_view end) {
    object.back() = ',';
    object += end;
    return object;
  }

  ordered_json event_head(std::string_view type) {
    return {{"type", type}, {"sequence_number", events_told_++}};
  }

  void tell_text(std::string_view type, std::string_view event) {
    events_ += fmt::format("event: {}\n{}", type, event_of(event));
  }

  void tell(std::string_view type, const ordered_json& members) {
    ordered_json event = event_head(type);
    event.update(members);
    tell_text(type, json_text(event));
  }

  void tell_response(std::string_view type, const ordered_json& response) {
    tell_text(type, with_more(json_text(event_head(type)),
                              fmt::format("\"response\":{}}}", text_of(response))));
  }

  std::string take_events() { return std::exchange(events_, {}); }

  AnswerFacts facts_;
  std::string request_;                         // an object that is not empty
  ordered_json items_ = ordered_json::array();  // that are done
  std::optional<Open> open_;
  bool has_message_ = false;
  std::string events_;
  std::uint64_t events_told_ = 0;
};

}  // namespace

std::unique_ptr<AnswerWriter> response_writer(AnswerFacts facts, std::string request) {
  return std::make_unique<ResponseWriter>(std::move(facts), std::move(request));
}

}  // namespace sluice::http
