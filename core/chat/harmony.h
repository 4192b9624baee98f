// The answers of gpt-oss, which are messages with headers ("harmony"):
//
//   <|channel|>analysis<|message|>a thought<|end|>
//   <|start|>assistant<|channel|>commentary<|message|>what it says before a call<|end|>
//   <|start|>assistant<|channel|>commentary to=functions.f
//   <|constrain|>json<|message|>{...}<|call|>
//   <|start|>assistant<|channel|>final<|message|>the answer<|return|>
//
// A header has a role, a recipient, a channel and a constraint, in any order and not all of them.
// Where <|message|> is missing, the message begins behind them all the same.
// Format: https://cookbook.openai.com/articles/openai-harmony
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat/marker_scanner.h"
#include "core/chat/tool_calls.h"

namespace sluice::chat {

// What a piece of an answer adds to the thoughts, and to the answer itself.
struct SplitText {
  std::string thought;
  std::string answer;
};

// The tokens that this form consists of.
const std::vector<std::string>& harmony_marks();

struct HarmonyHeader {
  std::string recipient;  // empty: the user
  std::string channel;    // empty: none was named
};

// Reads what stands in front of <|message|>.
HarmonyHeader read_harmony_header(std::string_view text);

// Whether an answer that has to keep to a form begins behind a header, which ends with its mark: it
// is that of the final channel. Without <|message|> nothing has kept the text to the form.
bool begins_formed_answer(std::string_view header);

// Cuts an answer into headers, bodies and their ends, wherever its pieces are cut.
class HarmonyScanner {
 public:
  struct Event {
    enum class Kind { header, body, end };
    Kind kind;
    std::string text;  // as the model wrote it, marks included
  };

  // `begins_in_body`: the prompt ends with a header. Otherwise the answer begins with one; text
  // that cannot be part of one is a body without a header.
  explicit HarmonyScanner(bool begins_in_body);

  std::vector<Event> feed(std::string_view piece) { return take(scanner_.feed(piece)); }
  // `end`: where the answer was cut off, its last word may be the beginning of markup.
  std::vector<Event> finish(AnswerEnd end = AnswerEnd::whole);

 private:
  enum class Place { beginning, header, body, between };

  std::vector<Event> take(const std::vector<MarkerScanner::Event>& events);
  void take_mark(const std::string& mark, std::vector<Event>& result);
  void take_text(const std::string& text, std::vector<Event>& result);
  bool takes_channel() const;
  std::string take_header();
  void end_header(std::string_view mark, AnswerEnd end, std::vector<Event>& result);

  MarkerScanner scanner_;
  Place place_;
  std::string header_;            // as far as it has come
  std::size_t known_markup_ = 0;  // bytes at its beginning that need not be looked at again
};

// Splits an answer: thoughts are what stands in the analysis channel, calls what has a recipient,
// and content is all other text. Where the content has to keep to a form, all that stands in front
// of it is a thought.
class HarmonyReader {
 public:
  // `begins_in_thought`: the prompt has opened a thought. `with_calls`: there are tools; otherwise
  // a message with a recipient is an ordinary one. `has_form`: the answer has to keep to a form.
  HarmonyReader(bool begins_in_thought, bool with_calls, bool has_form = false);

  SplitText feed(std::string_view piece) { return take(scanner_.feed(piece)); }
  // A call whose arguments have not begun where the answer was cut off is none, and no text.
  SplitText finish(AnswerEnd end = AnswerEnd::whole) {
    is_cut_ = end == AnswerEnd::cut;
    return take(scanner_.finish(end));
  }

  bool is_thinking() const { return kind_ == Kind::thought; }
  const std::vector<ToolCall>& calls() const { return calls_; }  // those that have ended

 private:
  enum class Kind { thought, content, call };
  // A text that grows by the bodies of its kind; white space around each of them is dropped.
  struct Growing {
    bool is_begun = false;
    bool is_new_body = true;
    std::string space;
    void begin_body();
    void add(std::string_view text, std::string& result);
  };

  SplitText take(const std::vector<HarmonyScanner::Event>& events);
  void begin(const std::string& header);
  void end_call(std::string_view mark, SplitText& result);

  HarmonyScanner scanner_;
  bool with_calls_, has_form_;
  bool is_cut_ = false;  // what comes now is the end of an answer that was cut off
  Kind kind_;
  Growing thought_, content_;
  std::string call_header_, call_name_, call_body_;
  std::vector<ToolCall> calls_;
};

}  // namespace sluice::chat
