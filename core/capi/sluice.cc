// The functions of sluice.h. Each checks its arguments and hands over, inside of guarded().
#include "core/capi/sluice.h"

#include <algorithm>
#include <cstdlib>
#include <span>

#include "core/capi/boundary.h"
#include "core/capi/model.h"
#include "core/capi/text.h"
#include "core/rows/row_json.h"

namespace sluice::capi {
namespace {

using tokenizer::Token;

Handles<sluice_model, Model>& models() {
  static Handles<sluice_model, Model> handles("model");
  return handles;
}
Handles<sluice_text, Text>& texts() {
  static Handles<sluice_text, Text> handles("text");
  return handles;
}
Handles<sluice_sequence, Sequence>& sequences() {
  static Handles<sluice_sequence, Sequence> handles("sequence");
  return handles;
}

sluice_model_options options_of(const sluice_model_options* options) {
  return options == nullptr ? sluice_model_options SLUICE_MODEL_OPTIONS_INIT
                            : sized(options, "options");
}

void check_flags(std::uint32_t flags, std::uint32_t allowed) {
  if ((flags & ~allowed) == 0) return;
  throw UsageError(
      fmt::format("flags are {:#x}, of which {:#x} mean nothing here", flags, flags & ~allowed));
}

// The way in which all functions give tokens out.
void give(std::span<const Token> from, sluice_token* tokens, std::size_t capacity,
          std::size_t* count) {
  not_null(count, "count");
  if (capacity != 0) not_null(tokens, "tokens");
  std::copy_n(from.begin(), std::min(capacity, from.size()), tokens);
  *count = from.size();
}

std::span<const Token> taken(const sluice_token* tokens, std::size_t count) {
  return {count == 0 ? tokens : not_null(tokens, "tokens"), count};
}

std::function<bool(const sluice_piece&)> sink(sluice_callback callback, void* user) {
  return [callback, user](const sluice_piece& piece) {
    return callback == nullptr || callback(user, &piece) == 0;
  };
}

}  // namespace
}  // namespace sluice::capi

// NOLINTBEGIN(readability-identifier-naming)
using namespace sluice::capi;

const char* sluice_version() {
  return SLUICE_VERSION;
}

uint32_t sluice_abi_version() {
  return SLUICE_ABI_VERSION;
}

const char* sluice_last_error() {
  return last_error();
}

void sluice_free(char* text) {
  std::free(text);
}

int sluice_plan(const char* path, const sluice_model_options* options, char** json) {
  return guarded([&] {
    not_null(json, "json");
    const auto plan = plan_json(not_null(path, "path"), options_of(options));
    *json = copied(sluice::rows::json_text(plan));
  });
}

int sluice_model_open(const char* path, const sluice_model_options* options, sluice_model** model) {
  return guarded([&] {
    not_null(model, "model");
    auto opened = std::make_shared<Model>(not_null(path, "path"), options_of(options));
    *model = models().add(std::move(opened));
  });
}

int sluice_model_close(sluice_model* model) {
  return guarded([&] { models().close(model); });
}

int sluice_model_info(sluice_model* model, char** json) {
  return guarded([&] {
    const auto opened = models().get(model);
    not_null(json, "json");
    *json = copied(sluice::rows::json_text(opened->info()));
  });
}

int sluice_tokenize(sluice_model* model, const char* text, uint32_t flags, sluice_token* tokens,
                    size_t capacity, size_t* count) {
  return guarded([&] {
    const auto opened = models().get(model);
    check_flags(flags, SLUICE_ADD_BOS | SLUICE_PARSE_SPECIAL);
    const auto encoded = opened->tokenizer().encode(
        text_of(text, "text"), {.add_bos = (flags & SLUICE_ADD_BOS) != 0,
                                .parse_special = (flags & SLUICE_PARSE_SPECIAL) != 0});
    give(encoded, tokens, capacity, count);
  });
}

int sluice_detokenize(sluice_model* model, const sluice_token* tokens, size_t count, uint32_t flags,
                      char** text, size_t* bytes) {
  return guarded([&] {
    const auto opened = models().get(model);
    not_null(text, "text");
    check_flags(flags, SLUICE_RENDER_SPECIAL);
    const auto given = taken(tokens, count);
    opened->check_tokens(given);
    const std::string decoded =
        opened->tokenizer().decode(given, (flags & SLUICE_RENDER_SPECIAL) != 0);
    *text = copied(decoded);
    if (bytes != nullptr) *bytes = decoded.size();
  });
}

int sluice_chat_tokens(sluice_model* model, const char* messages, sluice_token* tokens,
                       size_t capacity, size_t* count) {
  return guarded([&] {
    const auto opened = models().get(model);
    give(opened->chat_tokens(text_of(messages, "messages")), tokens, capacity, count);
  });
}

int sluice_text_begin(sluice_model* model, const sluice_request* request, sluice_text** text) {
  return guarded([&] {
    const auto opened = models().get(model);
    not_null(text, "text");
    auto task = opened->task(sized(request, "request"));
    *text = texts().add(std::make_shared<Text>(opened, std::move(task)));
  });
}

int sluice_text_next(sluice_text* text, const sluice_piece** piece) {
  return guarded([&] {
    const auto running = texts().get(text);
    not_null(piece, "piece");
    *piece = running->next();
  });
}

int sluice_text_stop(sluice_text* text) {
  return guarded([&] { texts().get(text)->stop(); });
}

int sluice_text_result(sluice_text* text, sluice_result* result) {
  return guarded([&] {
    const auto running = texts().get(text);
    sized(result, "result");
    running->result(*result);
  });
}

int sluice_text_tool_calls(sluice_text* text, char** json) {
  return guarded([&] {
    const auto running = texts().get(text);
    not_null(json, "json");
    *json = copied(sluice::rows::json_text(running->tool_calls()));
  });
}

int sluice_text_close(sluice_text* text) {
  return guarded([&] { texts().close(text); });
}

int sluice_generate(sluice_model* model, const sluice_request* request, sluice_callback callback,
                    void* user, sluice_result* result) {
  return guarded([&] {
    const auto opened = models().get(model);
    if (result != nullptr) sized(result, "result");
    Text text(opened, opened->task(sized(request, "request")));
    read_all(text, sink(callback, user));
    if (result != nullptr) text.result(*result);
  });
}

int sluice_sequence_new(sluice_model* model, sluice_sequence** sequence) {
  return guarded([&] {
    const auto opened = models().get(model);
    not_null(sequence, "sequence");
    *sequence = sequences().add(std::make_shared<Sequence>(opened));
  });
}

int sluice_sequence_append(sluice_sequence* sequence, const char* text, uint32_t flags) {
  return guarded([&] {
    const auto grown = sequences().get(sequence);
    check_flags(flags, SLUICE_PARSE_SPECIAL);
    grown->append(text_of(text, "text"), flags != 0);
  });
}

int sluice_sequence_append_tokens(sluice_sequence* sequence, const sluice_token* tokens,
                                  size_t count) {
  return guarded([&] { sequences().get(sequence)->append(taken(tokens, count)); });
}

int sluice_sequence_generate(sluice_sequence* sequence, const sluice_request* request,
                             sluice_callback callback, void* user, sluice_result* result) {
  return guarded([&] {
    const auto grown = sequences().get(sequence);
    if (result != nullptr) sized(result, "result");
    grown->generate(sized(request, "request"), sink(callback, user), result);
  });
}

int sluice_sequence_tokens(sluice_sequence* sequence, sluice_token* tokens, size_t capacity,
                           size_t* count) {
  return guarded([&] { give(sequences().get(sequence)->tokens(), tokens, capacity, count); });
}

int sluice_sequence_truncate(sluice_sequence* sequence, size_t count) {
  return guarded([&] { sequences().get(sequence)->truncate(count); });
}

int sluice_sequence_close(sluice_sequence* sequence) {
  return guarded([&] { sequences().close(sequence); });
}
// NOLINTEND(readability-identifier-naming)
