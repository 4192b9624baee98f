// The body of a request for text, in OpenAI's form, made into a task.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/rows/request.h"
#include "core/rows/row_settings.h"
#include "core/rows/task.h"
#include "core/rows/task_maker.h"

namespace sluice::http {

struct TextRequest {
  // One for each prompt, of its first choice; Task::choices tells how many each prompt has. Only
  // completions may have several prompts.
  std::vector<rows::Task> tasks;
  bool streams = false;
  bool includes_usage = false;    // of a stream
  bool returns_progress = false;  // of a stream: how far the prompt has been read
  // What the answer repeats of a request in the form of the Responses API, as JSON; empty in other
  // forms.
  std::string echo = {};

  std::size_t choices() const { return tasks.size() * tasks.front().choices; }  // of the answer
  // What it holds until it is answered, apart from what a running row has of the scheduler.
  std::uint64_t bytes() const;
};

// Called with the bytes of all tasks of a request that were made so far, before more are made: what
// they have in common is in each of them, so they can be many times as large as the body. What it
// throws ends the reading.
using TasksGrow = std::function<void(std::uint64_t bytes)>;

struct TextLimits {
  std::size_t texts_max = rows::choices_max;  // of all prompts together
  TasksGrow grow = [](std::uint64_t) {};
};

enum class TextRoute { completions, chat, responses };

// The body has the members of a batch row (core/rows/row_settings.h), and besides them "stream",
// "stream_options" and "return_progress", and "prompt" may be a list of prompts; that of a response
// is translated first (response_request.h). `number` is another one for each request. Throws
// ApiError, and what TextLimits::grow throws.
//
// Threads: any.
TextRequest read_text_request(const rows::TaskMaker& maker, TextRoute route, std::string_view body,
                              std::uint64_t number, const TextLimits& limits = {});

}  // namespace sluice::http
