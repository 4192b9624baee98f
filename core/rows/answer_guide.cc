#include "core/rows/answer_guide.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

namespace sluice::rows {
namespace {

using tokenizer::Token;

// Reads an answer as it comes, and looks for a call only where one may have come to its end: at a
// closing tag, or where the brackets of an answer that begins with one are all closed. (A call of
// harmony ends its answer by itself.)
class FirstCall {
 public:
  FirstCall(std::shared_ptr<const chat::Dialogue> dialogue, bool opens_thought,
            std::shared_ptr<const nlohmann::ordered_json> tools)
      : dialogue_(std::move(dialogue)), tools_(std::move(tools)) {
    const auto& form = dialogue_->thinking_form();
    if (form && !form->is_harmony) splitter_.emplace(*form, opens_thought);
  }

  bool is_over(std::string_view piece) {
    const std::size_t begin = answer_.size();
    answer_ += splitter_ ? splitter_->feed(piece).answer : std::string(piece);
    if (!may_have_ended(begin) || looks_ == looks_max) return false;
    ++looks_;
    return !chat::parse_tool_calls(answer_, *tools_, chat::AnswerEnd::cut).calls.empty();
  }

 private:
  // Answers that hold many tags and no call are read a bounded number of times.
  static constexpr int looks_max = 32;

  bool may_have_ended(std::size_t begin) {
    bool closes = false;
    for (const std::string_view tag :
         {"</tool_call>", "</function>", "<|tool_call_end|>", "<tool_call|>"}) {
      const std::size_t from = begin - std::min(begin, tag.size() - 1);
      closes = closes || answer_.find(tag, from) != std::string::npos;
    }
    for (const char c : std::string_view(answer_).substr(begin)) closes = read(c) || closes;
    return closes;
  }

  // Whether a bracket closes the outermost one.
  bool read(char c) {
    if (first_ == 0 && c != ' ' && c != '\n') first_ = c;
    if (first_ != '{' && first_ != '[') return false;
    if (in_text_) {
      in_text_ = c != '"' || is_escaped_;
      is_escaped_ = c == '\\' && !is_escaped_;
      return false;
    }
    in_text_ = c == '"';
    if (c == '{' || c == '[') ++depth_;
    return (c == '}' || c == ']') && --depth_ == 0;
  }

  std::shared_ptr<const chat::Dialogue> dialogue_;
  std::shared_ptr<const nlohmann::ordered_json> tools_;
  std::optional<chat::ThinkingSplitter> splitter_;
  std::string answer_;
  int looks_ = 0;
  int depth_ = 0;
  char first_ = 0;  // of the answer
  bool in_text_ = false, is_escaped_ = false;
};

// The control tokens whose text occurs in a text, the longest first.
using Marks = std::vector<std::pair<std::string, Token>>;

constrain::MarkedText marked(std::string_view text, const Marks& marks) {
  constrain::MarkedText parts;
  std::string literal;
  const auto end_literal = [&] {
    if (!literal.empty()) parts.emplace_back(std::exchange(literal, {}));
  };
  while (!text.empty()) {
    const auto mark =
        std::ranges::find_if(marks, [&](const auto& one) { return text.starts_with(one.first); });
    if (mark == marks.end()) {
      literal += text[0];
      text.remove_prefix(1);
    } else {
      end_literal();
      parts.emplace_back(mark->second);
      text.remove_prefix(mark->first.size());
    }
  }
  end_literal();
  return parts;
}

}  // namespace

constrain::ThoughtGate thought_gate(const chat::Dialogue& dialogue, bool opens_thought,
                                    std::vector<Token> openers) {
  const std::optional<chat::ThinkingForm>& form = dialogue.thinking_form();
  if (!form) return {};
  const auto start = std::make_shared<chat::AnswerStart>(*form);
  return {.answer = [start](std::string_view text) { return start->feed(text); },
          .begins_inside = opens_thought || chat::always_thinks(*form),
          .openers = std::move(openers)};
}

constrain::Guide::IsOver first_call_is_over(std::shared_ptr<const chat::Dialogue> dialogue,
                                            bool opens_thought,
                                            std::shared_ptr<const nlohmann::ordered_json> tools) {
  const auto call =
      std::make_shared<FirstCall>(std::move(dialogue), opens_thought, std::move(tools));
  return [call](std::string_view text) { return call->is_over(text); };
}

constrain::CallSyntax call_syntax(const chat::WrittenCall& form,
                                  const tokenizer::Tokenizer& tokenizer) {
  using Source = std::string chat::WrittenCall::*;
  using Target = constrain::MarkedText constrain::CallSyntax::*;
  using From = chat::WrittenCall;
  using To = constrain::CallSyntax;
  constexpr std::pair<Source, Target> texts[] = {{&From::list_open, &To::list_open},
                                                 {&From::list_close, &To::list_close},
                                                 {&From::open, &To::open},
                                                 {&From::behind_name, &To::behind_name},
                                                 {&From::close, &To::close},
                                                 {&From::separator, &To::separator},
                                                 {&From::key_open, &To::key_open},
                                                 {&From::key_close, &To::key_close},
                                                 {&From::before_close, &To::before_close},
                                                 {&From::value_close, &To::value_close},
                                                 {&From::thought_open, &To::thought_open},
                                                 {&From::thought_close, &To::thought_close}};
  std::string all;
  for (const auto& [source, target] : texts) all += form.*source + '\n';
  Marks marks;
  for (const Token token :
       tokenizer::tokens_where(tokenizer, [&](Token one) { return !tokenizer.is_ordinary(one); })) {
    const std::string text(tokenizer.piece(token, true));
    if (text.size() > 1 && all.find(text) != std::string::npos) marks.emplace_back(text, token);
  }
  std::ranges::stable_sort(marks, std::ranges::greater(),
                           [](const auto& mark) { return mark.first.size(); });
  constrain::CallSyntax syntax;
  using Arguments = constrain::CallSyntax::Arguments;
  syntax.arguments = form.arguments == From::Arguments::json     ? Arguments::json
                     : form.arguments == From::Arguments::tagged ? Arguments::tagged
                                                                 : Arguments::python;
  syntax.may_repeat = form.may_repeat;
  for (const auto& [source, target] : texts) syntax.*target = marked(form.*source, marks);
  return syntax;
}

std::vector<Token> marks_of(const constrain::CallSyntax& syntax) {
  std::vector<Token> marks;
  for (const constrain::MarkedText* text :
       {&syntax.list_open, &syntax.list_close, &syntax.open, &syntax.behind_name, &syntax.close,
        &syntax.separator, &syntax.key_open, &syntax.key_close, &syntax.before_close,
        &syntax.value_close, &syntax.thought_open, &syntax.thought_close}) {
    for (const auto& part : *text) {
      if (const auto* mark = std::get_if<Token>(&part)) marks.push_back(*mark);
    }
  }
  return marks;
}

}  // namespace sluice::rows
