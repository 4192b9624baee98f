#include "core/capi/model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string_view>
#include <utility>
#include <variant>

#include "core/capi/boundary.h"
#include "core/capi/piece_queue.h"
#include "core/chat/dialogue.h"
#include "core/engine/usual_sinks.h"
#include "core/plan/plan_json.h"
#include "core/rows/row_json.h"
#include "core/sampling/model_defaults.h"
#include "core/text/limited_json.h"
#include "kvcache/layout.h"
#include "streaming/choose_reader.h"

namespace sluice::capi {
namespace {

using nlohmann::ordered_json;
using tokenizer::Token;

// A text of the options; nothing where the default is wanted.
std::string word(const char* text, std::string_view name, const char* usual) {
  return text == nullptr ? usual : text_of(text, name);
}

template <class T>
T known(const std::optional<T>& value, std::string_view name, const std::string& text,
        std::string_view allowed) {
  if (value) return *value;
  throw UsageError(fmt::format("{} is \"{}\", which is none of {}", name, text, allowed));
}

chat::Thinking thinking_of(const sluice_model_options& options) {
  const std::string think = word(options.think, "options.think", "auto");
  return known(chat::parse_thinking(think), "options.think", think, "auto, on, off");
}

std::string chat_format_of(const sluice_model_options& options) {
  std::string format = word(options.chat_format, "options.chat_format", "auto");
  if (format != "auto" && !chat::is_family_name(format)) {
    throw UsageError(fmt::format("options.chat_format is \"{}\", which is none of auto, {}", format,
                                 fmt::join(chat::family_names(), ", ")));
  }
  return format;
}

engine::EngineOptions engine_options(const sluice_model_options& options) {
  engine::EngineOptions result;
  const std::string kv = word(options.kv, "options.kv", "int8");
  const std::string io = word(options.io, "options.io", "auto");
  if (options.budget_bytes != 0) result.budget_bytes = options.budget_bytes;
  result.kv = known(kvcache::parse_element_type(kv), "options.kv", kv, "int8, f16, f32");
  result.io = known(streaming::parse_io(io), "options.io", io, "auto, mmap, uring, pread");
  result.threads = options.threads;
  result.context = options.context;
  result.window = options.window;
  if (options.window != 0) result.sinks = engine::usual_sinks(options.window);
  result.parallel = std::max(options.parallel, 1U);
  return result;
}

// The memory that texts hold from their begin until they are closed, beside what the scheduler
// holds of those that run.
struct TextsMemory {
  std::uint64_t bytes = 0;
  std::uint64_t reserve_bytes = 0;  // of it, for pieces alone
};

// Room for as many texts as run side by side, for many short ones or some long ones that wait, and
// for all pieces of those that run.
TextsMemory texts_memory(std::uint32_t parallel, std::uint64_t positions) {
  constexpr std::uint64_t prompts_least = std::uint64_t{4} << 20;
  constexpr std::uint64_t pieces_least = std::uint64_t{512} << 10;  // for texts without end
  constexpr std::uint64_t text_bytes = PieceQueue::share_bytes + (std::uint64_t{8} << 10);
  // Vectors hold up to twice their size.
  const std::uint64_t prompts =
      prompts_least + parallel * (2 * positions * sizeof(Token) + text_bytes);
  const std::uint64_t pieces =
      std::max(pieces_least, parallel * positions * PieceQueue::piece_bytes);
  return {.bytes = prompts + pieces, .reserve_bytes = pieces};
}

// What is known before the engine is there.
struct Preparation {
  engine::RunPlanner planner;
  engine::EngineOptions engine;
  serve::ServiceOptions service;
  rows::TaskOptions tasks;
  TextsMemory texts;
  chat::DialogueOptions dialogue;
  std::string chat_format;
};

Preparation prepare(const std::filesystem::path& path, const sluice_model_options& options,
                    const gguf::ParseOptions& parsing) {
  constexpr std::uint32_t parallel_max = 4096;
  if (options.parallel > parallel_max) {
    throw UsageError(fmt::format("options.parallel is {}: at most {} texts run side by side",
                                 options.parallel, parallel_max));
  }
  engine::EngineOptions wanted = engine_options(options);
  const chat::DialogueOptions dialogue{thinking_of(options)};
  const std::string chat_format = chat_format_of(options);
  Preparation result{
      engine::RunPlanner(path, parsing), std::move(wanted), {}, {}, {}, dialogue, chat_format};
  const gguf::Metadata& metadata = result.planner.header().metadata();
  rows::TaskOptions& tasks = result.tasks;
  tasks.defaults.sampler = sampling::model_defaults(metadata).sampler;
  tasks.defaults.sampler.seed = sampling::random_seed();
  tasks.defaults.shortens = true;
  tasks.remedy = "open the model with a larger context";
  // A sequence is kept for what comes next, if it begins alike by a token.
  result.service.scheduler.parallel = result.engine.parallel;
  result.service.scheduler.shared_tokens_min = 1;
  const std::uint64_t positions =
      std::max(result.planner.plan(result.engine).plan.context, std::uint32_t{1});
  constexpr std::uint64_t stack_bytes = std::uint64_t{512} << 10;
  result.texts = texts_memory(result.engine.parallel, positions);
  result.engine.caller_bytes =
      stack_bytes + result.texts.bytes + serve::rows_bytes(result.service.scheduler, positions) +
      rows::TaskMaker(result.planner.tokenizer(), tasks).work_bytes(rows::request_bytes_max);
  return result;
}

ordered_json to_json(const plan::MemoryPlan& plan, std::uint64_t streamed_bytes) {
  ordered_json json = plan::plan_json(plan);
  json["streamed_bytes_per_step"] = streamed_bytes;
  return json;
}

// What is wrong with JSON of the caller is a wrong argument.
template <class Read>
auto as_argument(std::string_view name, const Read& read) {
  try {
    return read();
  } catch (const rows::BadRow& error) {
    throw UsageError(fmt::format("{}: {}", name, error.what()));
  } catch (const JsonError& error) {
    throw UsageError(fmt::format("{}: {}", name, error.what()));
  }
}

ordered_json messages_of(const std::string& text) {
  return as_argument("messages", [&] {
    return parse_limited_json(
               text, {"list", rows::row_values_max, rows::row_members_max, rows::row_depth_max})
        .value;
  });
}

// Rows know no negative counts but for -1, and tell them by their type.
ordered_json count(std::int64_t value) {
  return value < 0 ? ordered_json(value) : ordered_json(static_cast<std::uint64_t>(value));
}

// Copies the texts of a request, up to those that memory is planned for.
class RequestTexts {
 public:
  std::string of(const char* text, std::string_view name) {
    left_ -= std::min(left_, std::strlen(not_null(text, name)));
    if (left_ == 0) {
      throw UsageError(fmt::format(
          "{}: the texts of a request have {} KiB or more together: give a long prompt as tokens",
          name, rows::request_bytes_max >> 10));
    }
    return text_of(text, name);
  }

 private:
  std::size_t left_ = rows::request_bytes_max;
};

// The members of a request, in the words of the table of row settings.
ordered_json body_of(const sluice_request& request, RequestTexts& texts) {
  ordered_json body = ordered_json::object();
  if (request.settings != nullptr) {
    const std::string text = texts.of(request.settings, "request.settings");
    body = as_argument("request.settings", [&] { return rows::parse_row_object(text, "object"); });
    for (const char* name : {"prompt", "messages", "n", "logprobs", "top_logprobs"}) {
      if (rows::find_member(body, name) == nullptr) continue;
      throw UsageError(fmt::format("request.settings: \"{}\" cannot stand here", name));
    }
  }
  const auto set = [&](const char* name, const ordered_json& value) {
    if (value != SLUICE_DEFAULT) body[name] = value;
  };
  const auto set_number = [&](const char* name, double value) {
    // JSON has no such number.
    if (!std::isfinite(value)) throw UsageError(fmt::format("request.{} is {}", name, value));
    set(name, value);
  };
  set_number("temperature", request.temperature);
  set_number("top_p", request.top_p);
  set_number("min_p", request.min_p);
  set_number("repeat_penalty", request.repeat_penalty);
  if (request.seed < SLUICE_DEFAULT) throw UsageError("request.seed is negative");
  set("seed", count(request.seed));
  set("top_k", count(request.top_k));
  if (request.tokens_max != SLUICE_DEFAULT) body.erase("max_completion_tokens");  // would win
  if (request.tokens_max != SLUICE_DEFAULT || !body.contains("max_tokens")) {
    body["max_tokens"] = count(request.tokens_max);
  }
  if (request.stop_count != 0) {
    not_null(request.stop, "request.stop");
    ordered_json& stop = body["stop"] = ordered_json::array();
    for (std::size_t i = 0; i < request.stop_count; ++i) {
      stop.push_back(texts.of(request.stop[i], fmt::format("request.stop[{}]", i)));
    }
  }
  return body;
}

void check_prompts(const sluice_request& request, bool has_sequence) {
  const int prompts = (request.prompt != nullptr ? 1 : 0) + (request.tokens != nullptr ? 1 : 0) +
                      (request.messages != nullptr ? 1 : 0);
  if (has_sequence && prompts != 0) {
    throw UsageError("the request has a prompt: a sequence is continued without one");
  }
  if (!has_sequence && prompts != 1) {
    throw UsageError("the request has to have one of prompt, tokens and messages");
  }
}

}  // namespace

ordered_json plan_json(const std::filesystem::path& path, const sluice_model_options& options) {
  const Preparation prepared = prepare(path, options, {.header_only = true});
  const engine::PlannedRun run = prepared.planner.plan(prepared.engine);
  return to_json(run.plan, run.work.streamed_bytes);
}

Model::Model(const std::filesystem::path& path, const sluice_model_options& options) {
  Preparation prepared = prepare(path, options, {});
  engine::require_text(prepared.planner.header());
  rows::TaskOptions& tasks = prepared.tasks;
  const auto source = chat::ChatSource::find(
      prepared.chat_format, prepared.planner.header().metadata(), tasks.no_dialogue);
  service_ = std::make_unique<serve::Service>(
      [&prepared](const std::function<void()>& stop_check) {
        prepared.engine.stop_check = stop_check;
        prepared.engine.on_load = [stop_check](std::uint64_t, std::uint64_t) { stop_check(); };
        return engine::Engine::open(std::move(prepared.planner), prepared.engine);
      },
      prepared.service);
  service_->wait_until_ready();
  tasks.positions_max = options.window == 0 ? service_->engine().plan().context : 0;
  if (source)
    tasks.dialogue =
        std::make_shared<const chat::Dialogue>(*source, tokenizer(), prepared.dialogue);
  maker_.emplace(tokenizer(), tasks);
  texts_.emplace(prepared.texts.bytes, prepared.texts.reserve_bytes);
}

ordered_json Model::info() const {
  const engine::Engine& engine = service_->engine();
  const engine::EngineFacts& facts = engine.facts();
  ordered_json json = to_json(engine.plan(), facts.work.streamed_bytes);
  json["name"] = facts.model_name;
  json["architecture"] = facts.architecture;
  json["vocabulary"] = facts.vocabulary;
  json["threads"] = facts.threads;
  json["isa"] = facts.isa;
  json["io"] = facts.io;
  json["has_chat"] = maker_->options().dialogue != nullptr;
  return json;
}

void Model::check_tokens(std::span<const Token> tokens) const {
  const std::size_t vocabulary = tokenizer().vocabulary_size();
  for (const Token token : tokens) {
    if (token >= 0 && static_cast<std::size_t>(token) < vocabulary) continue;
    throw UsageError(
        fmt::format("token {} is not in the vocabulary of {} tokens", token, vocabulary));
  }
}

std::vector<Token> Model::chat_tokens(const std::string& messages) const {
  const auto& dialogue = maker_->options().dialogue;
  if (!dialogue) throw UsageError(maker_->options().no_dialogue);
  const base::MutexLock lock(making_);
  // Read as a request is, so that the same messages are refused.
  ordered_json body = {{"messages", messages_of(messages)}, {"max_tokens", SLUICE_DEFAULT}};
  rows::ParsedRow parsed =
      rows::read_body(std::move(body), rows::Form::chat, 0, maker_->options().defaults);
  if (!parsed.request) throw UsageError(parsed.reason);
  auto& conversation = std::get<chat::DialogueBody>(parsed.request->prompt);
  conversation.now = chat::template_time();
  return dialogue->encode(conversation).tokens;
}

rows::Task Model::task(const sluice_request& request,
                       const std::optional<std::vector<Token>>& tokens) {
  const base::MutexLock lock(making_);
  return make_task(request, tokens);
}

rows::Task Model::make_task(const sluice_request& request,
                            const std::optional<std::vector<Token>>& tokens) {
  check_prompts(request, tokens.has_value());
  RequestTexts texts;
  ordered_json body = body_of(request, texts);
  const bool is_chat = request.messages != nullptr;
  if (is_chat) {
    body["messages"] = messages_of(texts.of(request.messages, "request.messages"));
  } else {
    body["prompt"] = "";
  }
  const std::uint64_t row = requests_++;
  rows::ParsedRow parsed =
      rows::read_body(std::move(body), is_chat ? rows::Form::chat : rows::Form::completions, row,
                      maker_->options().defaults);
  if (!parsed.request) throw UsageError(parsed.reason);
  rows::Prompt& prompt = parsed.request->prompt;
  if (tokens) {
    prompt = *tokens;
  } else if (request.tokens != nullptr) {
    prompt = std::vector<Token>(request.tokens, request.tokens + request.token_count);
    check_tokens(std::get<std::vector<Token>>(prompt));
  } else if (request.prompt != nullptr) {
    prompt = texts.of(request.prompt, "request.prompt");
  }
  auto made = maker_->make(std::move(parsed), row);
  if (const auto* refused = std::get_if<rows::RefusedRow>(&made)) {
    const bool is_machine = refused->code == rows::cannot_run;
    throw Error(is_machine ? ExitCode::failure : ExitCode::usage, refused->reason);
  }
  auto task = std::get<rows::Task>(std::move(made));
  if (task.tokens_max == 0) throw UsageError("max_tokens is 0: a text has one token at least");
  task.priority = rows::Priority::interactive;
  return task;
}

Allowance::Held Model::memory_for(const rows::Task& task) {
  std::optional<Allowance::Held> held =
      texts_->take(rows::waiting_bytes(task) + PieceQueue::share_bytes);
  if (held) return std::move(*held);
  throw Busy(
      fmt::format("the texts that were begun hold the {} MiB that are planned for them: "
                  "take their pieces and close those that have ended",
                  texts_->bytes() >> 20));
}

std::uint64_t Model::submit(rows::Task task, serve::Events events) {
  const auto accepted = service_->submit(std::move(task), std::move(events));
  if (const auto* id = std::get_if<std::uint64_t>(&accepted)) return *id;
  if (std::get<serve::Service::Refusal>(accepted) == serve::Service::Refusal::queue_is_full) {
    throw Busy("too many texts wait: begin another when one of them has ended");
  }
  if (const std::exception_ptr failure = service_->failure()) std::rethrow_exception(failure);
  throw UsageError("the model was closed");
}

}  // namespace sluice::capi
