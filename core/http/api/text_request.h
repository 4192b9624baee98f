// The body of a request for text, in OpenAI's form, made into a task.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/rows/request.h"
#include "core/rows/task.h"
#include "core/rows/task_maker.h"

namespace sluice::http {

struct TextRequest {
  rows::Task task;  // of the first choice; Task::choices tells how many there are
  bool streams = false;
  bool includes_usage = false;    // of a stream
  bool returns_progress = false;  // of a stream: how far the prompt has been read
  // What the answer repeats of a request in the form of the Responses API, as JSON; empty in other
  // forms.
  std::string echo = {};

  // What it holds until it is answered, apart from what a running row has of the scheduler.
  std::uint64_t bytes() const;
};

enum class TextRoute { completions, chat, responses };

// The body has the members of a batch row (core/rows/row_settings.h), and besides them "stream",
// "stream_options" and "return_progress"; that of a response is translated first
// (response_request.h). `number` is another one for each request. Throws ApiError.
//
// Threads: any.
TextRequest read_text_request(const rows::TaskMaker& maker, TextRoute route, std::string_view body,
                              std::uint64_t number);

}  // namespace sluice::http
