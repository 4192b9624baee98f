#include "core/rows/task_maker.h"

#include <algorithm>
#include <fmt/format.h>
#include <iterator>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/rows/answer_guide.h"
#include "core/rows/row_json.h"
#include "core/rows/row_problem.h"
#include "core/rows/row_settings.h"
#include "core/text/limited_json.h"
#include "core/text/quoted.h"
#include "core/text/utf8.h"

namespace sluice::rows {
namespace {

using tokenizer::Token;

// Why a row cannot be run. Never leaves this file.
struct Refusal {
  std::string_view code;
  std::string reason;
};

// The most bytes that a tokenizer needs per byte of text, for a text that is one word; measured,
// rounded up.
constexpr std::uint64_t tokenizer_bytes_per_text_byte = 40;

// The most bytes that a template may use; see jinja::RenderOptions.
constexpr std::uint64_t rendering_bytes_max = std::uint64_t{32} << 20;

constexpr std::string_view invalid = "invalid_request";
constexpr std::string_view too_long = "prompt_too_long";

std::uint64_t limit_of(std::uint32_t positions_max) {
  return positions_max == 0 ? std::numeric_limits<std::uint32_t>::max() / 2 : positions_max;
}

// The bytes that a running row holds because of its settings. The results of a row that are done
// wait until all of them are.
std::uint64_t settings_bytes(const Task& task) {
  const sampling::SamplerOptions& sampler = task.sampler;
  const bool has_penalty = sampler.repeat_penalty != 1 || sampler.presence_penalty != 0 ||
                           sampler.frequency_penalty != 0;
  const std::uint64_t positions = task.prompt.size() + task.tokens_max;
  std::uint64_t bytes = has_penalty ? positions * sampling::Sampler::penalty_bytes_per_token : 0;
  if (task.top_logprobs) {
    const std::uint64_t entries = std::uint64_t{task.tokens_max} * (1 + *task.top_logprobs);
    bytes += entries * (2 * sizeof(sampling::TokenLogprob) + logprob_text_bytes);
  }
  constexpr std::uint64_t prediction_bytes_per_token = 48;  // with its place in an index
  bytes += task.prediction.size() * prediction_bytes_per_token;
  if (task.choices > 1) bytes += result_bytes(task);
  return bytes;
}

// The longest end (or beginning) of the text that has at most `bytes_max` bytes and consists of
// whole characters.
std::string cut_text(const std::string& text, std::size_t bytes_max, Truncate truncate) {
  if (truncate == Truncate::tail) return text.substr(0, utf8::character_start(text, bytes_max));
  std::size_t begin = text.size() - bytes_max;
  while (begin < text.size() && utf8::is_continuation(text[begin])) ++begin;
  return text.substr(begin);
}

}  // namespace

TaskMaker::TaskMaker(const tokenizer::Tokenizer& tokenizer, const TaskOptions& options)
    : tokenizer_(tokenizer), options_(options) {
  std::vector<Token> marks;
  if (options_.dialogue) {
    thought_openers_ = options_.dialogue->thought_openers();
    call_mark_ = options_.dialogue->call_mark();
    if (const auto form = options_.dialogue->written_call()) {
      constrain::CallSyntax syntax = call_syntax(*form, tokenizer);
      marks = marks_of(syntax);
      calls_ = std::make_shared<const constrain::CallSyntax>(syntax);
      syntax.may_repeat = false;
      one_call_ = std::make_shared<const constrain::CallSyntax>(std::move(syntax));
    }
  }
  library_ = std::make_unique<constrain::Library>(tokenizer, std::move(marks));
  for (std::size_t token = 0; token < tokenizer.vocabulary_size(); ++token) {
    piece_bytes_max_ =
        std::max(piece_bytes_max_, tokenizer.piece(static_cast<Token>(token), true).size());
  }
  set_end_tokens();
}

void TaskMaker::set_end_tokens() {
  const auto shared = [this](auto&& holds) {
    return std::make_shared<const std::vector<Token>>(tokenizer::tokens_where(tokenizer_, holds));
  };
  text_ends_ = shared([this](Token token) { return tokenizer_.is_end_of_generation(token); });
  answer_ends_ = shared(
      [this](Token token) { return options_.dialogue && options_.dialogue->ends_answer(token); });
}

// Makes the checks that need to know the model.
void TaskMaker::check_request(const RowHeader& header, const Request& request) const {
  const std::vector<std::string>& names = options_.model_names;
  if (!names.empty() && !header.model.empty() &&
      std::ranges::find(names, header.model) == names.end()) {
    throw Refusal{model_not_found,
                  fmt::format("\"model\" is \"{}\", but the model here is \"{}\" (--check-model)",
                              text::escaped(header.model, 100), names.front())};
  }
  const auto vocabulary = static_cast<Token>(tokenizer_.vocabulary_size());
  const auto check_of = [vocabulary](std::string_view where) {
    return [where, vocabulary](Token token) {
      if (token < vocabulary) return;
      throw Refusal{invalid, fmt::format("{}token {} is not in the vocabulary of {} tokens", where,
                                         token, vocabulary)};
    };
  };
  std::ranges::for_each(request.stop_tokens, check_of("\"stop_token_ids\": "));
  std::ranges::for_each(request.sampler.logit_bias, check_of("\"logit_bias\": "),
                        &sampling::LogitBias::token);
  if (const auto* ids = std::get_if<std::vector<Token>>(&request.prompt)) {
    std::ranges::for_each(*ids, check_of(""));
  }
}

std::variant<Task, RefusedRow> TaskMaker::make(ParsedRow parsed, std::uint64_t row) const {
  const RowHeader& header = parsed.header;
  if (!parsed.request) return RefusedRow{header, invalid, parsed.reason};
  Request& request = *parsed.request;
  auto* conversation = std::get_if<chat::DialogueBody>(&request.prompt);
  Task task;
  static_cast<ResultSettings&>(task) = request;
  task.row = row;
  task.header = header;
  task.end_tokens = text_ends_;
  if (request.wants_logprobs) task.top_logprobs = request.top_logprobs;
  try {
    check_request(header, request);
    AnswerFacts answer;
    if (request.wants_all_tokens && options_.positions_max == 0) {
      throw Refusal{invalid, "\"max_tokens\" is -1, but with a window nothing limits a text"};
    }
    const constrain::TextForm form = request.must_call ? form_of_calls(request) : request.form;
    if (conversation != nullptr) {
      const bool has_form = !request.must_call && form.kind != constrain::TextForm::Kind::free;
      answer = write_conversation(std::move(*conversation), has_form, task);
    } else {
      task.prompt = tokenize(request);
      const bool is_text = std::holds_alternative<std::string>(request.prompt);
      if (is_text && !options_.warning_of_texts.empty() && options_.on_warning) {
        options_.on_warning(options_.warning_of_texts);
      }
    }
    const bool may_shorten = options_.shortens_default && request.is_default_tokens_max;
    if (may_shorten || options_.defaults.shortens) shorten(task);
    fit(task, request, conversation != nullptr);
    set_guide(request, form, answer, task);
    task.prediction = tokenize_prediction(request.prediction, task.tokens_max);
    task.prompt.shrink_to_fit();  // the task may wait and run for long
    task.held_bytes += settings_bytes(task);
  } catch (const Refusal& refusal) {
    return RefusedRow{header, refusal.code, refusal.reason};
  } catch (const Error& error) {  // from the chat format, or a schema
    return RefusedRow{header, invalid, error.what()};
  } catch (const std::exception& error) {  // a defect, or no memory
    return RefusedRow{header, cannot_run, problem_of(error)};
  }
  return task;
}

std::variant<Task, RefusedRow> TaskMaker::make_embedding(const Prompt& prompt,
                                                         const std::string& model,
                                                         std::uint64_t row, Pooling pooling) const {
  ParsedRow parsed;
  parsed.header.form = Form::completions;
  parsed.header.model = model;
  parsed.request.emplace().prompt = prompt;
  parsed.request->wants_vector = true;
  auto made = make(std::move(parsed), row);
  if (auto* task = std::get_if<Task>(&made)) task->pooling = pooling;
  return made;
}

// A row is parsed first, then its prompt is tokenised, so the larger of the two counts.
std::uint64_t TaskMaker::work_bytes(std::uint64_t row_bytes) const {
  const std::uint64_t row = row_bytes;
  const std::uint64_t text = std::min(row, limit_of(options_.positions_max) * piece_bytes_max_);
  const std::uint64_t rendering = options_.dialogue ? std::min(64 * row, rendering_bytes_max) : 0;
  return std::max(parse_bytes(row), 2 * row + tokenizer_bytes_per_text_byte * text + rendering) +
         library_->bytes_max();
}

// The form of an answer that has to consist of calls.
constrain::TextForm TaskMaker::form_of_calls(const Request& request) const {
  const std::shared_ptr<const constrain::CallSyntax> syntax = request.one_call ? one_call_ : calls_;
  if (!syntax) {
    throw Refusal{invalid,
                  "\"tool_choice\" can only be \"auto\" or \"none\": the form in which this model "
                  "writes calls is not known"};
  }
  nlohmann::ordered_json functions = nlohmann::ordered_json::array();
  for (const auto& tool : std::get<chat::DialogueBody>(request.prompt).tools) {
    const RowJson& function = function_of(tool);
    const RowJson& name = function.at("name");
    if (!request.called_tool.empty() && name != request.called_tool) continue;
    functions.push_back({{"name", name}});
    const RowJson* parameters = find_member(function, "parameters");
    if (parameters != nullptr) functions.back()["parameters"] = *parameters;
  }
  return {.kind = constrain::TextForm::Kind::calls, .text = functions.dump(), .calls = syntax};
}

void TaskMaker::set_guide(const Request& request, const constrain::TextForm& form,
                          const AnswerFacts& answer, Task& task) const {
  constrain::Guide::IsOver (*make_is_over)(std::shared_ptr<const chat::Dialogue>, bool,
                                           std::shared_ptr<const nlohmann::ordered_json>) = nullptr;
  if (request.one_call && answer.tools) {
    make_is_over = first_call_is_over;
    constexpr std::uint64_t text_bytes_per_token = 16;  // a copy of the answer
    task.held_bytes += task.tokens_max * text_bytes_per_token;
  }
  const auto is_over = [make_is_over, dialogue = options_.dialogue, answer] {
    return make_is_over != nullptr ? make_is_over(dialogue, answer.opens_thought, answer.tools)
                                   : constrain::Guide::IsOver();
  };
  if (form.kind == constrain::TextForm::Kind::free) {
    if (make_is_over != nullptr) {
      task.guide = [is_over] { return std::make_unique<constrain::Guide>(is_over()); };
    }
    return;
  }
  const std::shared_ptr<const constrain::Constraint> constraint = library_->get(form);
  warn_of(constraint->grammar().warning, task);
  const bool is_answer = std::holds_alternative<chat::DialogueBody>(request.prompt);
  // Where thoughts are messages, the form of calls has them.
  const bool has_gate = is_answer && !(form.calls && !form.calls->thought_open.empty());
  const bool may_call = answer.tools && !request.must_call;
  task.guide = [constraint, ends = task.end_tokens, opens_thought = answer.opens_thought, is_over,
                openers = thought_openers_, dialogue = has_gate ? options_.dialogue : nullptr,
                calls = call_mark_ ? call_mark_->tokens : std::vector<Token>(), may_call,
                must_call = request.must_call] {
    constrain::ThoughtGate gate;
    if (dialogue) gate = thought_gate(*dialogue, opens_thought, openers);
    if (must_call) gate.closers = calls;  // a call inside of a thought ends it
    return std::make_unique<constrain::Guide>(constraint, ends, std::move(gate),
                                              may_call ? calls : std::vector<Token>(), is_over());
  };
  task.held_bytes += constraint->bytes_max() + constrain::Guide::bytes_max(*constraint);
}

void TaskMaker::warn_of(const std::string& warning, Task& task) const {
  if (warning.empty()) return;
  task.warning += (task.warning.empty() ? "" : "; ") + warning;
  if (options_.on_warning) options_.on_warning(warning);
}

// `has_form`: the answer has to have a form; then it may be calls only as a whole.
TaskMaker::AnswerFacts TaskMaker::write_conversation(chat::DialogueBody body, bool has_form,
                                                     Task& task) const {
  if (!options_.dialogue) throw Refusal{invalid, options_.no_dialogue};
  const std::shared_ptr<const chat::Dialogue> dialogue = options_.dialogue;
  body.now = options_.now ? *options_.now : chat::template_time();
  chat::DialoguePrompt prompt = dialogue->encode(body);
  task.prompt = std::move(prompt.tokens);
  warn_of(prompt.warning, task);
  const bool has_tools = !body.tools.is_null();
  AnswerFacts facts{prompt.opens_thought, nullptr};
  if (has_tools && has_form && !call_mark_) {
    throw Refusal{invalid,
                  "\"tools\" cannot stand beside a form of the answer (\"response_format\", "
                  "\"grammar\"): no token of this model says that a call begins (with "
                  "\"tool_choice\": \"none\" it can)"};
  }
  task.end_tokens = answer_ends_;
  task.piece = [dialogue, has_tools](Token token) { return dialogue->piece(token, has_tools); };
  std::ranges::copy(dialogue->stop_texts(), std::back_inserter(task.stop));
  if (!has_tools && !dialogue->thinking_form()) return facts;
  if (options_.thought_tokens_max && dialogue->thinking_form()) {
    task.watch = [dialogue, opens_thought = prompt.opens_thought,
                  most = *options_.thought_tokens_max] {
      return limit_thought(dialogue, opens_thought, most);
    };
  }
  // All results of the row share the tools; a copy is made while an answer is parsed.
  if (has_tools) task.held_bytes += json_bytes(body.tools);
  const auto tools = std::make_shared<const nlohmann::ordered_json>(std::move(body.tools));
  if (has_tools) facts.tools = tools;
  task.make_reader = [dialogue, opens_thought = prompt.opens_thought, tools,
                      mark = has_tools && has_form ? call_mark_->text : std::string(), has_form] {
    return chat::AnswerReader(*dialogue, opens_thought, *tools, mark, has_form);
  };
  return facts;
}

std::vector<Token> TaskMaker::tokenize(const Request& request) const {
  const Prompt& prompt = request.prompt;
  std::vector<Token> tokens;
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    const std::uint32_t wanted = request.wants_all_tokens ? 0 : request.tokens_max;
    tokens = tokenize_text(*text, wanted, request.wants_vector);
  } else if (const auto* ids = std::get_if<std::vector<Token>>(&prompt)) {
    tokens = *ids;
  }
  if (!tokens.empty()) return tokens;
  const std::optional<Token> bos = tokenizer_.bos();
  if (!bos) throw Refusal{invalid, "the prompt is empty and the model has no token to begin one"};
  return {*bos};
}

// No token stands for more than piece_bytes_max_ bytes, so a text can be known to be too long
// before it is tokenised. That bounds the memory of the tokenizer, which grows with the text.
std::vector<Token> TaskMaker::tokenize_text(const std::string& text, std::uint32_t tokens_max,
                                            bool adds_end) const {
  const tokenizer::EncodeOptions encoding{.add_end = adds_end};
  const std::uint64_t bytes_max = limit_of(options_.positions_max) * piece_bytes_max_;
  if (text.size() <= bytes_max) return tokenizer_.encode(text, encoding);
  if (options_.truncate == Truncate::no) {
    const std::string needing =
        adds_end ? fmt::format("the text of {} bytes needs", text.size())
        : tokens_max == 0
            ? fmt::format("the prompt of {} bytes needs", text.size())
            : fmt::format("the prompt of {} bytes and {} new tokens need", text.size(), tokens_max);
    throw Refusal{too_long, fmt::format("{} more than the {} positions of a sequence ({})", needing,
                                        options_.positions_max, options_.remedy)};
  }
  return tokenizer_.encode(cut_text(text, bytes_max, options_.truncate), encoding);
}

// No more of it than the text can have.
std::vector<Token> TaskMaker::tokenize_prediction(const std::string& text,
                                                  std::uint32_t tokens_max) const {
  if (text.empty()) return {};
  const std::uint64_t bytes_max = std::uint64_t{tokens_max} * piece_bytes_max_;
  return tokenizer_.encode(text.substr(0, bytes_max), {.add_bos = false, .parse_special = false});
}

// Lowers tokens_max to the room that is left behind the prompt.
void TaskMaker::shorten(Task& task) const {
  const std::uint64_t positions = limit_of(options_.positions_max);
  if (task.prompt.size() >= positions) return;
  const std::uint64_t room = positions - task.prompt.size();
  task.tokens_max = static_cast<std::uint32_t>(std::min<std::uint64_t>(task.tokens_max, room));
  task.tokens_min = std::min(task.tokens_min, task.tokens_max);
}

// Why a prompt and the tokens that are wanted behind it do not fit.
std::string TaskMaker::no_room(const Task& task, const Request& request) const {
  const std::uint64_t prompt = task.prompt.size(), positions = limit_of(options_.positions_max);
  const std::string sequence = fmt::format("the {} positions of a sequence", positions);
  if (request.wants_vector) {
    return fmt::format("{} tokens are more than {} ({})", prompt, sequence, options_.remedy);
  }
  if (request.wants_all_tokens) {
    return fmt::format("{} prompt tokens leave no room in {} ({})", prompt, sequence,
                       options_.remedy);
  }
  return fmt::format(
      "{} prompt tokens and {} new ones need more than {}: behind this prompt there is room for {} "
      "({})",
      prompt, task.tokens_max, sequence, positions - std::min(positions, prompt), options_.remedy);
}

void TaskMaker::fit(Task& task, const Request& request, bool is_conversation) const {
  const std::uint64_t positions = limit_of(options_.positions_max);
  std::vector<Token>& prompt = task.prompt;
  if (prompt.size() + task.tokens_max <= positions) return;
  const bool may_cut = options_.truncate == Truncate::head ||
                       (options_.truncate == Truncate::tail && !is_conversation);
  if (!may_cut || task.tokens_max + 2 > positions) {
    throw Refusal{too_long, no_room(task, request)};
  }
  const std::uint64_t excess = prompt.size() + task.tokens_max - positions;
  task.truncated_tokens = excess;
  if (options_.truncate == Truncate::tail) {
    prompt.resize(prompt.size() - excess);
    return;
  }
  const bool begins_with_bos = prompt.front() == tokenizer_.bos();
  const auto begin = prompt.begin() + (begins_with_bos ? 1 : 0);
  prompt.erase(begin, begin + static_cast<std::ptrdiff_t>(excess));
}

}  // namespace sluice::rows
