#include "core/chat/dialogue.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

#include "core/error.h"

namespace sluice::chat {
namespace {

using Json = nlohmann::ordered_json;
using tokenizer::Token;

std::string text_of(const Json& message, const char* key) {
  const auto value = message.find(key);
  return value != message.end() && value->is_string() ? value->get<std::string>() : "";
}

Role role_named(const std::string& name) {
  if (is_role_of_system(name)) return Role::system;
  if (name == "user") return Role::user;
  if (name == "assistant") return Role::assistant;
  throw UsageError(fmt::format("the role \"{}\" is not system, user or assistant", name));
}

// For the formats of families, which only take texts.
Conversation to_conversation(const DialogueBody& body) {
  if (!body.tools.is_null()) {
    throw UsageError("tools need a chat template of the model, and there is none");
  }
  for (const auto& item : body.variables.items()) {
    throw UsageError(
        fmt::format("\"{}\" needs a chat template of the model, and there is none", item.key()));
  }
  Conversation conversation;
  conversation.reserve(body.messages.size());
  for (const Json& message : body.messages) {
    conversation.push_back(
        {role_named(text_of(message, "role")), text_of_content(message.value("content", Json()))});
  }
  return conversation;
}

// What a message of this role is called in a warning, which may become a field of an answer: only
// words are repeated.
std::string called(const std::string& role) {
  const bool is_word = !role.empty() && role.size() <= 32 &&
                       role.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos;
  return is_word ? role : "unknown";
}

}  // namespace

ChatSource ChatSource::choose(const std::string& format, const gguf::Metadata& metadata) {
  if (format != "auto") return {nullptr, family_named(format)};
  const std::string text(metadata.find_string("tokenizer.chat_template").value_or(""));
  if (is_family_name(text)) return {nullptr, family_named(text)};
  auto chat_template = ChatTemplate::from_metadata(metadata);
  if (!chat_template) {
    throw UsageError(
        fmt::format("the model file has no chat template; if it is a base model, --chat-format "
                    "plain holds a plain dialogue, or else name one with --chat-format ({})",
                    fmt::join(family_names(), ", ")));
  }
  return {std::make_shared<const ChatTemplate>(*std::move(chat_template)), find_family(text)};
}

std::optional<ChatSource> ChatSource::find(const std::string& format,
                                           const gguf::Metadata& metadata, std::string& reason) {
  try {
    return choose(format, metadata);
  } catch (const Error& error) {
    reason = error.what();
    return std::nullopt;
  }
}

std::optional<Thinking> parse_thinking(std::string_view name) {
  if (name == "auto") return Thinking::automatic;
  if (name == "on") return Thinking::on;
  if (name == "off") return Thinking::off;
  return std::nullopt;
}

Dialogue::Dialogue(const ChatSource& source, const tokenizer::Tokenizer& tokenizer,
                   const DialogueOptions& options)
    : template_(source.chat_template), tokenizer_(&tokenizer), options_(options) {
  if (source.family) {
    format_.emplace(*source.family, tokenizer);
    stop_texts_ = format_->stop_texts();
  }
  if (template_) {
    encoder_.emplace(tokenizer, *template_);
    thinking_form_ = chat::thinking_form(template_->sources());
    traits_ = traits_of(*template_);
  }
  if (options.thinking == Thinking::on && !thinking_form_) {
    throw UsageError("this model's chat template knows no thoughts: leave out --think on");
  }
}

std::string Dialogue::name() const {
  if (!template_) return format_->name();
  return format_ ? format_->name() + " (the model's template)" : "the model's template";
}

DialoguePrompt Dialogue::encode(const DialogueBody& body) const {
  if (!template_) return {format_->encode(to_conversation(body), true)};
  DialoguePrompt prompt;
  jinja::Text text = render(body, prompt.warning);
  const bool opens = thinking_form_ && opens_thought(*thinking_form_, text.bytes());
  const bool is_closed = opens && options_.thinking == Thinking::off;
  if (is_closed) text.append(thinking_form_->forced_end, jinja::Origin::markup);
  prompt.tokens = encoder_->encode(text);
  prompt.opens_thought = opens && !is_closed;
  return prompt;
}

DialoguePrompt Dialogue::encode(const Conversation& conversation) const {
  if (!template_) return {format_->encode(conversation, true)};
  return encode(DialogueBody{to_messages(conversation)});
}

Json Dialogue::variables_of(const DialogueBody& body) const {
  Json variables = Json::object();
  if (!body.tools.is_null()) variables["tools"] = body.tools;
  if (options_.thinking != Thinking::automatic) {
    for (const char* name : {"enable_thinking", "thinking"}) {
      variables[name] = options_.thinking == Thinking::on;
    }
  }
  for (const auto& item : body.variables.items()) {
    if (!template_->mentions(item.key())) {
      throw UsageError(fmt::format("the model's chat template knows no \"{}\"", item.key()));
    }
    variables[item.key()] = item.value();
  }
  return variables;
}

// The message that the template leaves out of its `prompt`, if there is one. A text that it edits,
// or of which it trims more than white space of ASCII, is not to be found there either; but then a
// number in its place is.
std::optional<std::size_t> Dialogue::find_left_out(const Given& given,
                                                   const jinja::Text& prompt) const {
  const Json& messages = given.variables["messages"];
  const auto missing = find_missing(messages, prompt.bytes());
  if (!missing) return std::nullopt;
  Json variables = given.variables;
  Json& numbers = variables["messages"] = with_numbers(messages);
  try {
    return find_missing(numbers, template_->render(variables, given.now).bytes());
  } catch (const jinja::RenderError&) {
    return missing;
  }
}

// Renders `messages` as they are, or in the first other form of their system texts with which all
// of them appear in the prompt. Nothing: there is no such form; then `best` may be a prompt in
// which a message is missing. No prompt may contain `mark`, if that is not empty.
std::optional<jinja::Text> Dialogue::try_forms(Json messages, std::string_view mark, Given& given,
                                               Incomplete& best) const {
  best.refusal.clear();
  for (std::optional<Json> form = std::move(messages); form;) {
    Json& tried = given.variables["messages"] = *std::move(form);
    std::string missing_role = "system";  // what is refused may be the system texts
    try {
      jinja::Text text = template_->render(given.variables, given.now);
      if (!mark.empty() && text.bytes().find(mark) != std::string::npos) return std::nullopt;
      const auto missing = find_left_out(given, text);
      if (!missing) return text;
      missing_role = text_of(tried[*missing], "role");
      if (!best.text || *missing > best.missing)
        best = {std::move(text), *missing, missing_role, {}};
    } catch (const jinja::RenderError& error) {
      if (best.refusal.empty()) best.refusal = error.what();
    }
    if (!is_role_of_system(missing_role)) return std::nullopt;
    form = with_joined_systems(tried);
    if (!form) form = with_merged_system(tried);
  }
  return std::nullopt;
}

// Contents reach the template as parts if they have parts and it looks into them, and as texts
// otherwise; as parts also where it takes nothing else.
jinja::Text Dialogue::render(const DialogueBody& body, std::string& warning) const {
  constexpr std::string_view mark = "sluice_mark_of_a_part";
  Given given{variables_of(body), body.now.value_or(options_.now)};
  const Json messages = adapted(body.messages, traits_);
  Incomplete best;
  std::optional<jinja::Text> text;
  if (has_parts(messages)) {
    text = try_forms(with_marked_parts(messages, mark), mark, given, best);
  }
  if (!text) text = try_forms(with_texts(messages), {}, given, best);
  if (!text && best.text && best.role == "user") {
    text = try_forms(with_user_parts(with_texts(messages)), {}, given, best);
  }
  if (text) return *std::move(text);
  if (!best.text) {
    throw UsageError(
        fmt::format("the model's chat template refuses the conversation: {}", best.refusal));
  }
  warning = fmt::format(
      "the model's chat template leaves a message of the role \"{}\" out of the "
      "prompt",
      called(best.role));
  return *std::move(best.text);
}

bool Dialogue::ends_answer(Token token) const {
  return tokenizer_->is_end_of_generation(token) || (format_ && format_->ends_answer(token));
}

std::string_view Dialogue::piece(Token token, bool has_tools) const {
  const std::string_view text = tokenizer_->piece(token);
  if (!text.empty() || (!thinking_form_ && !has_tools)) return text;
  const std::string_view markup = tokenizer_->piece(token, true);
  if (has_tools) return markup;
  const ThinkingForm& form = *thinking_form_;
  const auto has_markup = [&](const std::string& marker) {
    return marker.find(markup) != std::string::npos;
  };
  const bool is_of_form = has_markup(form.open) || has_markup(form.close) ||
                          (form.is_harmony && std::ranges::any_of(harmony_marks(), has_markup));
  return is_of_form ? markup : text;
}

std::vector<Token> Dialogue::thought_openers() const {
  std::vector<Token> openers;
  if (!thinking_form_) return openers;
  for (std::size_t id = 0; id < tokenizer_->vocabulary_size(); ++id) {
    const auto token = static_cast<Token>(id);
    if (tokenizer_->is_ordinary(token)) continue;
    const std::string_view text = piece(token, false);
    if (!text.empty() && thinking_form_->open.starts_with(text)) openers.push_back(token);
  }
  return openers;
}

std::optional<Dialogue::CallMark> Dialogue::call_mark() const {
  if (!template_) return std::nullopt;
  const auto mark = std::ranges::find_if(
      call_marks(), [this](const std::string& one) { return template_->mentions(one); });
  if (mark == call_marks().end()) return std::nullopt;
  CallMark found{*mark, tokenizer::tokens_where(*tokenizer_, [&](Token token) {
                   return !tokenizer_->is_ordinary(token) && piece(token, true) == *mark;
                 })};
  return found.tokens.empty() ? std::nullopt : std::optional(std::move(found));
}

std::optional<WrittenCall> Dialogue::written_call() const {
  return template_ ? chat::written_call(template_->sources()) : std::nullopt;
}

std::vector<Token> Dialogue::end_of_thought() const {
  if (!thinking_form_) return {};
  const tokenizer::TextPart part{thinking_form_->forced_end, true};
  return tokenizer_->encode_parts({&part, 1}, {}, true);
}

AnswerReader::AnswerReader(const Dialogue& dialogue, bool opens_thought, const Json& tools,
                           const std::string& call_mark, bool has_form) {
  const std::optional<ThinkingForm>& form = dialogue.thinking_form();
  const bool has_tools = !tools.is_null();
  if (form && form->is_harmony) {
    harmony_.emplace(opens_thought, has_tools, has_form);
    return;
  }
  if (form) {
    splitter_.emplace(*form, opens_thought,
                      has_tools ? possible_call_marks() : std::vector<std::string>());
  }
  if (has_tools) call_stream_.emplace(tools, call_mark);
}

SplitText AnswerReader::feed(std::string_view piece) {
  if (harmony_) return harmony_->feed(piece);
  SplitText result = splitter_ ? splitter_->feed(piece) : SplitText{"", std::string(piece)};
  if (call_stream_) result.answer = call_stream_->feed(result.answer);
  return result;
}

// The end of a thought that did not end is where the first call in it begins.
SplitText AnswerReader::finish_thought(AnswerEnd end) {
  SplitText result = splitter_->finish();
  const std::string& held = splitter_->held();
  if (held.empty()) return result;
  const auto call = call_stream_ ? call_stream_->first_call_in(held, end) : std::nullopt;
  const SplitText rest = splitter_->release(call.value_or(held.size()));
  result.thought += rest.thought;
  result.answer += rest.answer;
  return result;
}

SplitText AnswerReader::finish(AnswerEnd end) {
  if (harmony_) {
    SplitText result = harmony_->finish(end);
    calls_ = harmony_->calls();
    return result;
  }
  SplitText result = splitter_ ? finish_thought(end) : SplitText{};
  if (!call_stream_) return result;
  result.answer = call_stream_->feed(result.answer);
  AnswerWithCalls rest = call_stream_->finish(end);
  result.answer += rest.content;
  calls_ = std::move(rest.calls);
  return result;
}

}  // namespace sluice::chat
