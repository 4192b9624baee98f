#include "core/rows/task.h"

#include <fmt/format.h>

#include "core/files/checksum.h"
#include "core/rows/row_json.h"

namespace sluice::rows {

std::uint64_t waiting_bytes(const Task& task) {
  constexpr std::uint64_t functions = 1024;
  std::uint64_t bytes = sizeof(Task) + functions + task.held_bytes + task.header.model.size() +
                        task.prompt.capacity() * sizeof(tokenizer::Token);
  for (const std::string& stop : task.stop) bytes += sizeof(std::string) + stop.size();
  return bytes;
}

std::uint64_t result_bytes(const Task& task) {
  constexpr std::uint64_t text_bytes_per_token = 16, completion = 512;
  return task.tokens_max * text_bytes_per_token + completion;
}

Task task_of_choice(const Task& first, std::uint32_t choice) {
  Task task = first;
  task.choice = choice;
  if (choice != 0) task.sampler.seed ^= files::checksum_of(std::to_string(choice));
  return task;
}

Task::Forced limit_thought(const std::shared_ptr<const chat::Dialogue>& dialogue,
                           bool opens_thought, std::uint64_t tokens_max) {
  struct State {
    chat::AnswerReader reader;
    std::uint64_t tokens = 0;
    bool is_ended = false;
  };
  const auto state =
      std::make_shared<State>(State{chat::AnswerReader(*dialogue, opens_thought, nullptr)});
  return [dialogue, state, tokens_max](std::string_view text) -> std::vector<tokenizer::Token> {
    state->reader.feed(text);
    if (state->is_ended || !state->reader.is_thinking()) return {};
    if (++state->tokens < tokens_max) return {};
    state->is_ended = true;
    return dialogue->end_of_thought();
  };
}

chat::AnswerEnd answer_end(const Completion& completion) {
  return completion.finish == Finish::length ? chat::AnswerEnd::cut : chat::AnswerEnd::whole;
}

void split_text(const Task& task, Completion& completion) {
  if (!task.make_reader) return;
  chat::AnswerReader reader = task.make_reader();
  const chat::SplitText text = reader.feed(completion.text);
  const chat::SplitText rest = reader.finish(answer_end(completion));
  completion.thought = text.thought + rest.thought;
  completion.text = text.answer + rest.answer;
  std::vector<chat::ToolCall> calls = reader.calls();
  if (task.one_call && calls.size() > 1) calls.resize(1);
  completion.tool_calls = to_json(calls, task);
}

nlohmann::ordered_json to_json(const std::vector<chat::ToolCall>& calls, const Task& task) {
  std::string answer = task.answer_id.empty() ? std::to_string(task.row) : task.answer_id;
  if (task.choice != 0) answer += fmt::format("_{}", task.choice);
  nlohmann::ordered_json list;
  for (const chat::ToolCall& call : calls) {
    list.push_back({{"id", fmt::format("call_{}_{}", answer, list.size())},
                    {"type", "function"},
                    {"function", {{"name", call.name}, {"arguments", json_text(call.arguments)}}}});
  }
  return list;
}

}  // namespace sluice::rows
