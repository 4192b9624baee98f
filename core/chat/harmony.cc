#include "core/chat/harmony.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/chat/bounded_json.h"

namespace sluice::chat {
namespace {

constexpr std::string_view start_mark = "<|start|>", channel_mark = "<|channel|>";
constexpr std::string_view message_mark = "<|message|>", constrain_mark = "<|constrain|>";
constexpr std::string_view recipient_key = "to=";
constexpr std::size_t undecided_bytes_max = 256;  // longer ones are text

// Whether a text at the beginning of an answer may be the beginning of a header without a role.
bool may_begin_header(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(white_space), text.size()));
  return text.starts_with(recipient_key) || recipient_key.starts_with(text);
}

// Whether a word of a header is markup where it stands: behind `mark`, if any, or behind a
// recipient. `may_go_on`: the word may be the beginning of one. Any word is a role, since tools
// have their names there.
bool is_header_word(std::string_view word, std::string_view mark, bool has_recipient,
                    bool may_go_on) {
  constexpr std::array<std::string_view, 3> channels = {"analysis", "commentary", "final"};
  constexpr std::array<std::string_view, 2> constraints = {"json", "code"};
  const auto is_it = [&](std::string_view known) {
    return word == known || (may_go_on && known.starts_with(word));
  };
  if (mark == start_mark || word.starts_with(recipient_key) || is_it(recipient_key)) return true;
  return (mark == channel_mark && std::ranges::any_of(channels, is_it)) ||
         ((mark == constrain_mark || has_recipient) && std::ranges::any_of(constraints, is_it));
}

// The word that a text begins with, or its first character.
std::string_view first_word(std::string_view text) {
  return text.substr(0, std::max<std::size_t>(text.find_first_of(" \t\r\n<"), 1));
}

// How many bytes of a header are markup, where no message follows it.
std::size_t markup_bytes(std::string_view header, AnswerEnd end) {
  std::string_view rest = header, mark;
  bool has_recipient = false;
  while (true) {
    rest.remove_prefix(std::min(rest.find_first_not_of(white_space), rest.size()));
    if (rest.empty()) break;
    const auto found = std::ranges::find_if(harmony_marks(), [&](const std::string& known) {
      return rest.starts_with(known) ||
             ((rest.size() > 1 || end == AnswerEnd::cut) && known.starts_with(rest));
    });
    if (found != harmony_marks().end()) {
      mark = *found;
      rest.remove_prefix(std::min(mark.size(), rest.size()));
      continue;
    }
    const std::string_view word = first_word(rest);
    const bool may_go_on = end == AnswerEnd::cut && word.size() == rest.size();
    if (!is_header_word(word, mark, has_recipient, may_go_on)) break;
    has_recipient = word.starts_with(recipient_key);
    mark = {};
    rest.remove_prefix(word.size());
  }
  return header.size() - rest.size();
}

}  // namespace

const std::vector<std::string>& harmony_marks() {
  static const std::vector<std::string> marks = {"<|start|>",   "<|end|>",       "<|message|>",
                                                 "<|channel|>", "<|constrain|>", "<|return|>",
                                                 "<|call|>"};
  return marks;
}

HarmonyHeader read_harmony_header(std::string_view text) {
  HarmonyHeader header;
  bool is_channel_next = false;
  while (!text.empty()) {
    if (text.starts_with("<|")) {
      is_channel_next = text.starts_with(channel_mark);
      text.remove_prefix(std::min(text.find("|>", 2), text.size() - 2) + 2);
      continue;
    }
    std::string_view word = first_word(text);
    text.remove_prefix(word.size());
    if (trimmed(word).empty()) continue;
    if (word.starts_with(recipient_key)) {
      word.remove_prefix(recipient_key.size());
      header.recipient = word;
    } else if (std::exchange(is_channel_next, false)) {
      header.channel = word;
    }
  }
  return header;
}

bool begins_formed_answer(std::string_view header) {
  return header.ends_with(message_mark) && read_harmony_header(header).channel == "final";
}

HarmonyScanner::HarmonyScanner(bool begins_in_body)
    : scanner_(harmony_marks()), place_(begins_in_body ? Place::body : Place::beginning) {}

std::vector<HarmonyScanner::Event> HarmonyScanner::take(
    const std::vector<MarkerScanner::Event>& events) {
  std::vector<Event> result;
  for (const MarkerScanner::Event& event : events) {
    if (event.marker) {
      take_mark(harmony_marks()[*event.marker], result);
    } else {
      take_text(event.text, result);
    }
  }
  return result;
}

// Models leave out the end of a message before the next header.
void HarmonyScanner::take_mark(const std::string& mark, std::vector<Event>& result) {
  const bool is_in_header = place_ == Place::header || place_ == Place::beginning;
  if (mark == start_mark || mark == channel_mark) {
    if (place_ == Place::body) result.push_back({Event::Kind::end, ""});
    if (is_in_header && mark == channel_mark && takes_channel()) {
      known_markup_ = header_.size();
    } else {
      if (is_in_header) end_header("", AnswerEnd::whole, result);
      header_.clear();
    }
    header_ += mark;
    place_ = Place::header;
  } else if (is_in_header && mark == message_mark) {
    result.push_back({Event::Kind::header, take_header() + mark});
    place_ = Place::body;
  } else if (is_in_header && mark == constrain_mark) {
    header_ += mark;
  } else if (mark == message_mark || mark == constrain_mark) {
    take_text(mark, result);
  } else {
    if (place_ == Place::body) result.push_back({Event::Kind::end, mark});
    if (is_in_header) end_header(mark, AnswerEnd::whole, result);
    header_.clear();
    place_ = Place::between;
  }
}

// Whether a channel that comes now belongs to the header. A header with text was a message, unless
// it has a recipient and no channel yet: then the text is a constraint.
bool HarmonyScanner::takes_channel() const {
  const std::string_view rest = std::string_view(header_).substr(known_markup_);
  if (markup_bytes(rest, AnswerEnd::whole) == rest.size()) return true;
  return header_.find(channel_mark) == header_.npos &&
         !read_harmony_header(header_).recipient.empty();
}

std::string HarmonyScanner::take_header() {
  known_markup_ = 0;
  return std::exchange(header_, {});
}

// Ends a header that no message follows. Its markup alone is dropped; what else stands in it is a
// message that lacks its mark.
void HarmonyScanner::end_header(std::string_view mark, AnswerEnd end, std::vector<Event>& result) {
  const std::string_view rest = std::string_view(header_).substr(known_markup_);
  const std::size_t markup = place_ == Place::header ? known_markup_ + markup_bytes(rest, end) : 0;
  const std::string header = take_header();
  if (trimmed(std::string_view(header).substr(markup)).empty()) return;
  result.push_back({Event::Kind::header, header.substr(0, markup)});
  result.push_back({Event::Kind::body, header.substr(markup)});
  result.push_back({Event::Kind::end, std::string(mark)});
}

void HarmonyScanner::take_text(const std::string& text, std::vector<Event>& result) {
  if (place_ == Place::body) return result.push_back({Event::Kind::body, text});
  if (place_ == Place::header) {
    header_ += text;
    return;
  }
  header_ += text;
  const bool may_be_markup =
      place_ == Place::beginning ? may_begin_header(header_) : trimmed(header_).empty();
  if (may_be_markup && header_.size() <= undecided_bytes_max) return;
  result.push_back({Event::Kind::header, ""});
  result.push_back({Event::Kind::body, std::exchange(header_, {})});
  place_ = Place::body;
}

std::vector<HarmonyScanner::Event> HarmonyScanner::finish(AnswerEnd end) {
  std::vector<Event> result = take(scanner_.finish());
  if (place_ == Place::body) {
    result.push_back({Event::Kind::end, ""});
  } else {
    end_header("", end, result);
  }
  place_ = Place::between;
  return result;
}

void HarmonyReader::Growing::begin_body() {
  is_new_body = true;
  space.clear();
}

void HarmonyReader::Growing::add(std::string_view text, std::string& result) {
  if (is_new_body) text.remove_prefix(std::min(text.find_first_not_of(white_space), text.size()));
  const std::size_t end = text.find_last_not_of(white_space) + 1;
  if (end > 0) {
    if (is_begun && is_new_body) result += "\n\n";
    is_begun = true;
    is_new_body = false;
    result += std::exchange(space, {});
    result += text.substr(0, end);
  }
  space += text.substr(end);
}

HarmonyReader::HarmonyReader(bool begins_in_thought, bool with_calls, bool has_form)
    : scanner_(begins_in_thought),
      with_calls_(with_calls),
      has_form_(has_form),
      kind_(begins_in_thought ? Kind::thought : Kind::content) {}

void HarmonyReader::begin(const std::string& text) {
  const HarmonyHeader header = read_harmony_header(text);
  const bool is_for_people = header.recipient.empty() || header.recipient == "user" ||
                             header.recipient == "assistant" || header.recipient == "all";
  if (with_calls_ && !is_for_people) {
    constexpr std::string_view space_of_names = "functions.";
    const bool is_function = header.recipient.starts_with(space_of_names);
    kind_ = Kind::call;
    call_header_ = text;
    call_name_ = header.recipient.substr(is_function ? space_of_names.size() : 0);
    call_body_.clear();
    return;
  }
  const bool is_thought = has_form_ ? !begins_formed_answer(text) : header.channel == "analysis";
  kind_ = is_thought ? Kind::thought : Kind::content;
  (kind_ == Kind::thought ? thought_ : content_).begin_body();
}

// A call that cannot be read stays in the answer as the model wrote it; but for its header alone,
// which is nothing but markup.
void HarmonyReader::end_call(std::string_view mark, SplitText& result) {
  if (is_cut_ && trimmed(call_body_).empty()) return;
  std::optional<nlohmann::ordered_json> arguments = nlohmann::ordered_json::object();
  if (!trimmed(call_body_).empty()) arguments = parse_bounded(call_body_);
  if (arguments && arguments->is_object() && !call_name_.empty()) {
    calls_.push_back({std::exchange(call_name_, {}), *std::move(arguments)});
  } else {
    content_.begin_body();
    content_.add(call_header_ + call_body_ + std::string(mark), result.answer);
  }
  call_body_.clear();
}

SplitText HarmonyReader::take(const std::vector<HarmonyScanner::Event>& events) {
  SplitText result;
  for (const HarmonyScanner::Event& event : events) {
    if (event.kind == HarmonyScanner::Event::Kind::header) {
      begin(event.text);
    } else if (event.kind == HarmonyScanner::Event::Kind::end) {
      if (kind_ == Kind::call) end_call(event.text, result);
      kind_ = Kind::content;
    } else if (kind_ == Kind::call) {
      call_body_ += event.text;
    } else if (kind_ == Kind::thought) {
      thought_.add(event.text, result.thought);
    } else {
      content_.add(event.text, result.answer);
    }
  }
  return result;
}

}  // namespace sluice::chat
