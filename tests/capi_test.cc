// The library, through sluice.h alone: what it gives, and what hostile callers get. Beside it the
// example in C and the module for Python, and what an installation of them holds.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "core/capi/sluice.h"
#include "tests/program.h"
#include "tests/sanitized.h"

using namespace sluice::test;
using nlohmann::json;

namespace {

const std::string source = sluice::test::source_folder;
const std::string demo = source + "/scripts/train-demo/demo.gguf";
const char* const who = R"([{"role": "user", "content": "Who are you?"}])";

// Of the library and the example that were built.
std::string built(const std::string& name) {
  return (fs::path(program).parent_path() / "capi" / name).string();
}

std::string taken(char* text) {
  std::string copy = text;
  sluice_free(text);
  return copy;
}

sluice_model_options small_options() {
  sluice_model_options options = SLUICE_MODEL_OPTIONS_INIT;
  options.context = 256;
  options.threads = 1;
  return options;
}

class Model {
 public:
  explicit Model(const sluice_model_options& options = small_options()) {
    const int status = sluice_model_open(demo.c_str(), &options, &handle);
    INFO(sluice_last_error());
    REQUIRE(status == SLUICE_OK);
  }
  ~Model() { sluice_model_close(handle); }
  sluice_model* handle = nullptr;
};

sluice_request greedy(const char* prompt, std::int64_t tokens_max = 24) {
  sluice_request request = SLUICE_REQUEST_INIT;
  request.prompt = prompt;
  request.tokens_max = tokens_max;
  request.temperature = 0;
  return request;
}

int gather(void* user, const sluice_piece* piece) {
  static_cast<std::string*>(user)->append(piece->text, piece->text_bytes);
  return 0;
}

std::string text_of(sluice_model* model, const sluice_request& request,
                    sluice_result* result = nullptr) {
  std::string text;
  const int status = sluice_generate(model, &request, gather, &text, result);
  INFO(sluice_last_error());
  REQUIRE(status == SLUICE_OK);
  return text;
}

std::vector<sluice_token> tokens_of(sluice_model* model, const char* text, std::uint32_t flags) {
  std::size_t count = 0;
  REQUIRE(sluice_tokenize(model, text, flags, nullptr, 0, &count) == SLUICE_OK);
  std::vector<sluice_token> tokens(count);
  REQUIRE(sluice_tokenize(model, text, flags, tokens.data(), count, &count) == SLUICE_OK);
  return tokens;
}

void check_status(int status, int expected, const std::string& says) {
  INFO(sluice_last_error());
  CHECK(status == expected);
  CHECK(std::string(sluice_last_error()).find(says) != std::string::npos);
}

std::set<std::string> names_in(const std::string& text, const std::string& pattern) {
  std::set<std::string> names;
  const std::regex name(pattern);
  for (std::sregex_iterator at(text.begin(), text.end(), name), end; at != end; ++at) {
    names.insert((*at)[1].str());
  }
  return names;
}

bool is_there(const std::string& tool) {
  return shell("command -v " + tool).status == 0;
}

// With a window, so that texts have no end of their own.
sluice_model_options window_options() {
  sluice_model_options options = small_options();
  options.context = 0;
  options.window = 64;
  return options;
}

// A text without end.
class Endless {
 public:
  Endless() {
    const sluice_model_options options = window_options();
    REQUIRE(sluice_model_open(demo.c_str(), &options, &model) == SLUICE_OK);
    sluice_request request = greedy("One morning", 1 << 30);
    request.settings = R"({"ignore_eos": true})";
    REQUIRE(sluice_text_begin(model, &request, &text) == SLUICE_OK);
  }
  sluice_model* model = nullptr;
  sluice_text* text = nullptr;
};

// Runs `work` in a child of fork(), which then calls exit(0). Returns its status; -1 where it has
// not ended for a minute.
template <class Work>
int status_of_child(const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    std::exit(0);  // NOLINT(concurrency-mt-unsafe): that is what is tested
  }
  int status = -1;
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
      return -1;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return status;
}

}  // namespace

TEST_CASE("versions say what the header and the program say") {
  CHECK(sluice_abi_version() == SLUICE_ABI_VERSION);
  const Result result = shell("sluice --version");
  CHECK(result.output == "sluice " + std::string(sluice_version()) + "\n");
}

TEST_CASE("the library exports what its list names, and the header declares the same") {
  if (!is_there("nm")) SLUICE_SKIP("there is no nm");
  const Result exported = shell("nm -D --defined-only " + built("libsluice.so"));
  REQUIRE(exported.status == 0);
  const std::set<std::string> symbols = names_in(exported.output, " [A-Za-z] (\\w+)(?:@|\n)");
  const std::string map = content(source + "/core/capi/sluice.map");
  std::set<std::string> listed = names_in(map, "\n    (sluice_\\w+);");
  const std::string header = content(source + "/core/capi/sluice.h");
  CHECK(names_in(header, "SLUICE_API [^;(]*?\\**(sluice_\\w+)\\(") == listed);
  listed.insert("SLUICE_1");  // the node of the versions
  CHECK(symbols == listed);
}

// A change of these is a change of SLUICE_ABI_VERSION, unless a struct has grown at its end.
TEST_CASE("structs have the layout of version 1") {
  if (sizeof(void*) != 8) SLUICE_SKIP("the layout is known for 64 bits");
  CHECK(SLUICE_ABI_VERSION == 1);
  CHECK(sizeof(sluice_model_options) == 64);
  CHECK(offsetof(sluice_model_options, kv) == 32);
  CHECK(sizeof(sluice_request) == 120);
  CHECK(offsetof(sluice_request, temperature) == 48);
  CHECK(offsetof(sluice_request, settings) == 112);
  CHECK(sizeof(sluice_piece) == 40);
  CHECK(sizeof(sluice_result) == 40);
  CHECK(SLUICE_IO == 5);
  CHECK(SLUICE_BUSY == 6);
  CHECK(SLUICE_FINISH_STOPPED == 3);
}

TEST_CASE("a plan is made of the header, and says what the open model says") {
  const sluice_model_options options = small_options();
  char* text = nullptr;
  REQUIRE(sluice_plan(demo.c_str(), &options, &text) == SLUICE_OK);
  const json plan = json::parse(taken(text));
  CHECK(plan["fits"] == true);
  CHECK(plan["context"] == 256);
  std::uint64_t sum = 0;
  for (const json& line : plan["lines"]) sum += line["bytes"].get<std::uint64_t>();
  CHECK(plan["total_bytes"] == sum);

  const Model model;
  REQUIRE(sluice_model_info(model.handle, &text) == SLUICE_OK);
  const json info = json::parse(taken(text));
  for (const char* name : {"context", "pinned_bytes", "streamed_bytes_per_step"}) {
    CHECK(info[name] == plan[name]);
  }
  CHECK(info["threads"] == 1);
  CHECK(info["has_chat"] == true);
  CHECK(info["vocabulary"].get<int>() > 256);

  sluice_model_options tight = options;
  tight.budget_bytes = 1;
  REQUIRE(sluice_plan(demo.c_str(), &tight, &text) == SLUICE_OK);
  CHECK(json::parse(taken(text))["fits"] == false);
  sluice_model* none = nullptr;
  check_status(sluice_model_open(demo.c_str(), &tight, &none), SLUICE_BUDGET,
               "raise options.budget_bytes, or lower options.context or options.window (or "
               "options.parallel, where");
  CHECK(none == nullptr);
}

TEST_CASE("tokens are those of the program, and become their text again") {
  const Model model;
  const char* text = "The fox said: h\xC3\xA9llo!";
  const auto tokens = tokens_of(model.handle, text, SLUICE_ADD_BOS);
  std::istringstream ids(shell("sluice tokenize " + demo + " --ids -p '" + text + "'").output);
  CHECK(std::vector<sluice_token>(std::istream_iterator<sluice_token>(ids), {}) == tokens);
  const auto bare = tokens_of(model.handle, text, 0);
  char* again = nullptr;
  std::size_t bytes = 0;
  REQUIRE(sluice_detokenize(model.handle, bare.data(), bare.size(), 0, &again, &bytes) ==
          SLUICE_OK);
  CHECK(bytes == std::strlen(text));
  CHECK(taken(again) == text);
  std::size_t count = 0;
  sluice_token first[2] = {-7, -7};
  REQUIRE(sluice_tokenize(model.handle, text, SLUICE_ADD_BOS, first, 1, &count) == SLUICE_OK);
  CHECK(count == tokens.size());
  CHECK(first[0] == tokens[0]);
  CHECK(first[1] == -7);
  REQUIRE(sluice_detokenize(model.handle, nullptr, 0, 0, &again, nullptr) == SLUICE_OK);
  CHECK(taken(again).empty());
}

TEST_CASE("a text is the one that the program writes") {
  const Model model;
  sluice_result result = SLUICE_RESULT_INIT;
  const std::string text = text_of(model.handle, greedy("One morning"), &result);
  CHECK(
      shell("sluice run " + demo + " --raw -p 'One morning' -n 24 --temp 0 -q --ctx 256").output ==
      text);
  CHECK(result.text_tokens == 24);
  CHECK(result.finish == SLUICE_FINISH_LENGTH);

  const auto tokens = tokens_of(model.handle, "One morning", SLUICE_ADD_BOS);
  sluice_request of_tokens = greedy(nullptr);
  of_tokens.tokens = tokens.data();
  of_tokens.token_count = tokens.size();
  CHECK(text_of(model.handle, of_tokens) == text);

  sluice_request drawn = greedy("One morning");
  drawn.temperature = 1.5;
  drawn.seed = 11;
  const std::string one = text_of(model.handle, drawn);
  CHECK(text_of(model.handle, drawn) == one);
  drawn.settings = R"({"seed": 5, "max_tokens": 3})";  // the struct wins
  CHECK(text_of(model.handle, drawn) == one);
}

TEST_CASE("stop texts end a text before they appear") {
  const Model model;
  const std::string whole = text_of(model.handle, greedy("One morning", 64));
  REQUIRE(whole.find('.') != std::string::npos);
  const char* const stop[] = {"."};
  sluice_request request = greedy("One morning", 64);
  request.stop = stop;
  request.stop_count = 1;
  sluice_result result = SLUICE_RESULT_INIT;
  CHECK(text_of(model.handle, request, &result) == whole.substr(0, whole.find('.')));
  CHECK(result.finish == SLUICE_FINISH_STOP_TEXT);
}

TEST_CASE("further settings are those of requests") {
  const Model model;
  sluice_request request = greedy("One morning");
  request.settings = R"({"grammar": "root ::= \" yes\" | \" no\""})";
  const std::string text = text_of(model.handle, request);
  CHECK((text == " yes" || text == " no"));
  // A member of the struct wins.
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    INFO(name);
    const std::string settings = "{\"" + std::string(name) + "\": 7, \"ignore_eos\": true}";
    request = greedy("One morning", SLUICE_DEFAULT);
    request.settings = settings.c_str();
    sluice_result result = SLUICE_RESULT_INIT;
    text_of(model.handle, request, &result);
    CHECK(result.text_tokens == 7);
    request.tokens_max = 3;
    text_of(model.handle, request, &result);
    CHECK(result.text_tokens == 3);
  }
}

TEST_CASE("a conversation is answered piece by piece") {
  const Model model;
  std::size_t count = 0;
  REQUIRE(sluice_chat_tokens(model.handle, who, nullptr, 0, &count) == SLUICE_OK);
  sluice_request request = greedy(nullptr);
  request.messages = who;
  sluice_text* text = nullptr;
  REQUIRE(sluice_text_begin(model.handle, &request, &text) == SLUICE_OK);
  sluice_result result = SLUICE_RESULT_INIT;
  check_status(sluice_text_result(text, &result), SLUICE_USAGE, "has not ended");
  std::string answer;
  const sluice_piece* piece = nullptr;
  std::uint64_t tokens = 0;
  for (;;) {
    REQUIRE(sluice_text_next(text, &piece) == SLUICE_OK);
    if (piece == nullptr) break;
    answer += piece->text;
    tokens += piece->token >= 0 ? 1 : 0;
  }
  REQUIRE(sluice_text_next(text, &piece) == SLUICE_OK);
  CHECK(piece == nullptr);
  REQUIRE(sluice_text_result(text, &result) == SLUICE_OK);
  CHECK(result.prompt_tokens == count);
  CHECK(result.text_tokens == tokens);
  char* calls = nullptr;
  REQUIRE(sluice_text_tool_calls(text, &calls) == SLUICE_OK);
  CHECK(taken(calls) == "null");
  CHECK(sluice_text_close(text) == SLUICE_OK);
  CHECK(text_of(model.handle, request) == answer);
}

TEST_CASE("a callback ends a text") {
  const Model model;
  struct Counted {
    std::string text;
    int left = 3;
  } counted;
  sluice_result result = SLUICE_RESULT_INIT;
  const sluice_request request = greedy("One morning", 100);
  REQUIRE(sluice_generate(
              model.handle, &request,
              [](void* user, const sluice_piece* piece) {
                auto* of = static_cast<Counted*>(user);
                of->text += piece->text;
                return --of->left == 0 ? 42 : 0;
              },
              &counted, &result) == SLUICE_OK);
  CHECK(counted.left == 0);
  CHECK(result.finish == SLUICE_FINISH_STOPPED);
  CHECK(result.text_tokens < 100);
  CHECK(text_of(model.handle, request).starts_with(counted.text));
}

TEST_CASE("what a callback throws comes out as an error") {
  const Model model;
  const sluice_request request = greedy("One morning");
  check_status(sluice_generate(
                   model.handle, &request, [](void*, const sluice_piece*) -> int { throw 1; },
                   nullptr, nullptr),
               SLUICE_FAILURE, "callback");
  CHECK_FALSE(text_of(model.handle, request).empty());
}

TEST_CASE("a sequence is continued, and what was computed is used again") {
  const Model model;
  sluice_sequence* sequence = nullptr;
  REQUIRE(sluice_sequence_new(model.handle, &sequence) == SLUICE_OK);
  REQUIRE(sluice_sequence_append(sequence, "One morning", 0) == SLUICE_OK);
  const sluice_request request = greedy(nullptr, 10);
  std::string halves;
  sluice_result result = SLUICE_RESULT_INIT;
  REQUIRE(sluice_sequence_generate(sequence, &request, gather, &halves, nullptr) == SLUICE_OK);
  REQUIRE(sluice_sequence_generate(sequence, &request, gather, &halves, &result) == SLUICE_OK);
  CHECK(result.shared_tokens + 1 >= result.prompt_tokens);
  CHECK(halves == text_of(model.handle, greedy("One morning", 20)));

  std::size_t count = 0;
  const std::size_t prompt = tokens_of(model.handle, "One morning", SLUICE_ADD_BOS).size();
  REQUIRE(sluice_sequence_tokens(sequence, nullptr, 0, &count) == SLUICE_OK);
  CHECK(count == prompt + 20);
  REQUIRE(sluice_sequence_truncate(sequence, prompt) == SLUICE_OK);
  std::string again;
  REQUIRE(sluice_sequence_generate(sequence, &request, gather, &again, nullptr) == SLUICE_OK);
  CHECK(halves.starts_with(again));

  check_status(sluice_sequence_truncate(sequence, 1000), SLUICE_USAGE, "are to stay");
  const sluice_request other = greedy("x");
  check_status(sluice_sequence_generate(sequence, &other, nullptr, nullptr, nullptr), SLUICE_USAGE,
               "without one");
  const sluice_token wrong = 1 << 30;
  check_status(sluice_sequence_append_tokens(sequence, &wrong, 1), SLUICE_USAGE, "vocabulary");
  CHECK(sluice_sequence_close(sequence) == SLUICE_OK);
  check_status(sluice_sequence_append(sequence, "x", 0), SLUICE_USAGE, "closed");
}

TEST_CASE("threads write texts side by side, each its own") {
  sluice_model_options options = small_options();
  options.parallel = 2;
  const Model model(options);
  const std::vector<std::string> prompts = {"One morning", "The fox", "Far away", "A cat"};
  std::vector<std::string> alone, together(prompts.size());
  for (const std::string& prompt : prompts) {
    alone.push_back(text_of(model.handle, greedy(prompt.c_str())));
  }
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    threads.emplace_back([&, i] {
      const sluice_request request = greedy(prompts[i].c_str());
      failures += sluice_generate(model.handle, &request, gather, &together[i], nullptr);
      // The text of an error is that of its own thread.
      if (std::strlen(sluice_last_error()) != 0) ++failures;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  CHECK(together == alone);
}

TEST_CASE("another thread stops a text, or closes its model") {
  for (const bool closes : {false, true}) {
    const Endless running;
    sluice_model* const model = running.model;
    sluice_text* const text = running.text;
    std::atomic<int> pieces{0};
    int status = SLUICE_OK;
    std::thread reader([&] {
      const sluice_piece* piece = nullptr;
      while ((status = sluice_text_next(text, &piece)) == SLUICE_OK && piece != nullptr) ++pieces;
    });
    while (pieces < 5) std::this_thread::yield();
    CHECK((closes ? sluice_model_close(model) : sluice_text_stop(text)) == SLUICE_OK);
    reader.join();
    CHECK(status == (closes ? SLUICE_USAGE : SLUICE_OK));
    CHECK(sluice_text_close(text) == SLUICE_OK);
    CHECK(sluice_model_close(model) == (closes ? SLUICE_USAGE : SLUICE_OK));
  }
}

TEST_CASE("a process may end while its texts run, and so may a child that has not their threads") {
  if (is_sanitized) SLUICE_SKIP("to a leak checker what other threads hold is lost");
  for (int turn = 0; turn < 5; ++turn) {
    CHECK(status_of_child([] {
            const Endless running;
            const sluice_piece* piece = nullptr;
            for (int i = 0; i < 5; ++i) sluice_text_next(running.text, &piece);
            std::thread([text = running.text] {
              const sluice_piece* next = nullptr;
              while (sluice_text_next(text, &next) == SLUICE_OK && next != nullptr) {
              }
            }).detach();
            std::this_thread::yield();
          }) == 0);
  }
  CHECK(status_of_child([] {
          const Endless running;
          const int status = status_of_child([] {});
          ::_exit(status == 0 ? 0 : 1);
        }) == 0);
}

TEST_CASE("the library destroys nothing when a process ends") {
  if (!is_there("nm")) SLUICE_SKIP("there is no nm");
  if (is_sanitized) SLUICE_SKIP("sanitizers link more into the library");
  const Result needed = shell("nm -D --undefined-only " + built("libsluice.so"));
  REQUIRE(needed.status == 0);
  CHECK(needed.output.find(" __cxa_finalize") != std::string::npos);
  CHECK(needed.output.find("__cxa_atexit") == std::string::npos);
}

TEST_CASE("texts are refused where they would hold more than is planned for them") {
  const Model model(window_options());
  const std::vector<sluice_token> prompt(600'000, 1);
  sluice_request request = greedy(nullptr, 1);
  request.tokens = prompt.data();
  request.token_count = prompt.size();
  sluice_text *text = nullptr, *more = nullptr;
  REQUIRE(sluice_text_begin(model.handle, &request, &text) == SLUICE_OK);
  check_status(sluice_text_begin(model.handle, &request, &more), SLUICE_BUSY, "planned for them");
  CHECK(sluice_text_close(text) == SLUICE_OK);
  // The one that was closed gives its memory back soon.
  int status = SLUICE_BUSY;
  while (status == SLUICE_BUSY) status = sluice_text_begin(model.handle, &request, &text);
  REQUIRE(status == SLUICE_OK);
  CHECK(sluice_text_close(text) == SLUICE_OK);
}

TEST_CASE("a text without end fails when nobody takes its pieces") {
  if (is_sanitized) SLUICE_SKIP("that many tokens take too long");
  Endless running;
  const sluice_piece* piece = nullptr;
  sluice_text *next = nullptr, *last = nullptr;
  const sluice_request short_one = greedy("x", 1);
  REQUIRE(sluice_text_begin(running.model, &short_one, &next) == SLUICE_OK);
  // Takes the memory that its pieces would have otherwise.
  const std::vector<sluice_token> prompt(1'000'000, 1);
  sluice_request long_one = greedy(nullptr, 1);
  long_one.tokens = prompt.data();
  long_one.token_count = prompt.size();
  REQUIRE(sluice_text_begin(running.model, &long_one, &last) == SLUICE_OK);
  REQUIRE(sluice_text_next(next, &piece) == SLUICE_OK);  // the first one has ended
  int status = SLUICE_OK, pieces = 0;
  while ((status = sluice_text_next(running.text, &piece)) == SLUICE_OK && piece != nullptr) {
    ++pieces;
  }
  check_status(status, SLUICE_BUSY, "were not taken");
  CHECK(pieces > 1000);
  for (sluice_text* text : {running.text, next, last}) CHECK(sluice_text_close(text) == SLUICE_OK);
  CHECK(text_of(running.model, greedy("One morning")).size() > 10);
  CHECK(sluice_model_close(running.model) == SLUICE_OK);
}

TEST_CASE("a conversation is written with the time of the call") {
  const Folder folder;
  std::string bytes = content(demo);
  const std::string name = "tokenizer.chat_template";
  const std::size_t at = bytes.find(name) + name.size() + 4;  // behind the type of the value
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data() + at, sizeof length);
  std::string clock = "{{ strftime_now('%H:%M:%S') }}";
  REQUIRE(length >= clock.size());
  clock.resize(length, ' ');
  bytes.replace(at + sizeof length, length, clock);
  write(folder.file("clock.gguf"), bytes);
  sluice_model_options options = small_options();
  sluice_model* model = nullptr;
  REQUIRE(sluice_model_open(folder.file("clock.gguf").c_str(), &options, &model) == SLUICE_OK);
  const auto written = [&] {
    std::size_t count = 0;
    std::vector<sluice_token> tokens(100);
    REQUIRE(sluice_chat_tokens(model, who, tokens.data(), tokens.size(), &count) == SLUICE_OK);
    tokens.resize(count);
    return tokens;
  };
  const auto first = written();
  while (written() == first) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(sluice_model_close(model) == SLUICE_OK);
}

TEST_CASE("two models are open at a time") {
  const Model one, other;
  const std::string text = text_of(one.handle, greedy("One morning"));
  CHECK(text_of(other.handle, greedy("One morning")) == text);
}

TEST_CASE("null pointers and wrong handles are errors") {
  const Model model;
  char* text = nullptr;
  std::size_t count = 0;
  sluice_model* opened = nullptr;
  const sluice_request request = greedy("One morning");
  const sluice_piece* piece = nullptr;
  sluice_text* begun = nullptr;
  const auto is_usage = [](int status) { check_status(status, SLUICE_USAGE, ""); };
  is_usage(sluice_plan(nullptr, nullptr, &text));
  is_usage(sluice_plan(demo.c_str(), nullptr, nullptr));
  is_usage(sluice_model_open(nullptr, nullptr, &opened));
  is_usage(sluice_model_open(demo.c_str(), nullptr, nullptr));
  is_usage(sluice_model_info(nullptr, &text));
  is_usage(sluice_model_info(model.handle, nullptr));
  is_usage(sluice_tokenize(nullptr, "x", 0, nullptr, 0, &count));
  is_usage(sluice_tokenize(model.handle, nullptr, 0, nullptr, 0, &count));
  is_usage(sluice_tokenize(model.handle, "x", 0, nullptr, 0, nullptr));
  is_usage(sluice_tokenize(model.handle, "x", 0, nullptr, 4, &count));
  is_usage(sluice_tokenize(model.handle, "x", 1U << 31U, nullptr, 0, &count));
  is_usage(sluice_detokenize(model.handle, nullptr, 3, 0, &text, nullptr));
  is_usage(sluice_chat_tokens(model.handle, nullptr, nullptr, 0, &count));
  is_usage(sluice_generate(model.handle, nullptr, nullptr, nullptr, nullptr));
  is_usage(sluice_generate(nullptr, &request, nullptr, nullptr, nullptr));
  is_usage(sluice_text_begin(model.handle, &request, nullptr));
  is_usage(sluice_text_next(nullptr, &piece));
  is_usage(sluice_text_stop(nullptr));
  is_usage(sluice_text_result(nullptr, nullptr));
  is_usage(sluice_sequence_new(model.handle, nullptr));
  is_usage(sluice_sequence_append(nullptr, "x", 0));
  // A handle of another kind, and a pointer to something.
  is_usage(sluice_text_next(reinterpret_cast<sluice_text*>(model.handle), &piece));
  is_usage(sluice_model_info(reinterpret_cast<sluice_model*>(&count), &text));
  is_usage(sluice_model_close(reinterpret_cast<sluice_model*>(&count)));
  CHECK(text == nullptr);
  CHECK(opened == nullptr);
  CHECK(begun == nullptr);
  CHECK(sluice_model_close(nullptr) == SLUICE_OK);
  CHECK(sluice_text_close(nullptr) == SLUICE_OK);
  CHECK(sluice_sequence_close(nullptr) == SLUICE_OK);
  sluice_free(nullptr);
}

TEST_CASE("closing twice is an error, and nothing can be done with what is closed") {
  sluice_model* model = nullptr;
  REQUIRE(sluice_model_open(demo.c_str(), nullptr, &model) == SLUICE_OK);
  sluice_sequence* sequence = nullptr;
  REQUIRE(sluice_sequence_new(model, &sequence) == SLUICE_OK);
  CHECK(sluice_model_close(model) == SLUICE_OK);
  check_status(sluice_model_close(model), SLUICE_USAGE, "closed");
  const sluice_request request = greedy("x");
  check_status(sluice_generate(model, &request, nullptr, nullptr, nullptr), SLUICE_USAGE, "closed");
  const sluice_request next = greedy(nullptr);
  check_status(sluice_sequence_generate(sequence, &next, nullptr, nullptr, nullptr), SLUICE_USAGE,
               "closed");
  CHECK(sluice_sequence_close(sequence) == SLUICE_OK);
  check_status(sluice_sequence_close(sequence), SLUICE_USAGE, "closed");
}

TEST_CASE("a wrong file is refused as the program refuses it") {
  const Folder folder;
  sluice_model* model = nullptr;
  check_status(sluice_model_open("/nowhere/at.gguf", nullptr, &model), SLUICE_IO, "/nowhere");
  check_status(sluice_model_open(folder.path().c_str(), nullptr, &model), SLUICE_IO, "");
  std::ofstream(folder.file("text.gguf")) << "no model";
  check_status(sluice_model_open(folder.file("text.gguf").c_str(), nullptr, &model), SLUICE_MODEL,
               "");
  const std::string whole = content(demo);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{3}, std::size_t{24},
                                  std::size_t{5000}, whole.size() / 2, whole.size() - 1}) {
    INFO(bytes);
    const std::string cut = folder.file("cut.gguf");
    std::ofstream(cut, std::ios::binary | std::ios::trunc).write(whole.data(), bytes);
    check_status(sluice_model_open(cut.c_str(), nullptr, &model), SLUICE_MODEL, "");
  }
  const std::string encoder = folder.file("bert.gguf");
  REQUIRE(shell("sluice synth tiny-bert " + encoder).status == 0);
  check_status(sluice_model_open(encoder.c_str(), nullptr, &model), SLUICE_USAGE, "writes no text");
  CHECK(model == nullptr);
}

TEST_CASE("wrong requests are refused with their reason") {
  const Model model;
  const auto refuses = [&](const sluice_request& request, const std::string& says) {
    check_status(sluice_generate(model.handle, &request, nullptr, nullptr, nullptr), SLUICE_USAGE,
                 says);
  };
  refuses(greedy(nullptr), "one of prompt, tokens and messages");
  sluice_request both = greedy("x");
  both.messages = who;
  refuses(both, "one of prompt, tokens and messages");
  refuses(greedy("bad \xFF byte"), "byte 4 ");
  refuses(greedy("x", 0), "max_tokens");
  refuses(greedy("x", -5), "max_tokens");
  for (const char* messages : {"", "{}", "[1]", "[{\"role\"", "[]", "\xC3\x28"}) {
    INFO(messages);
    sluice_request request = greedy(nullptr);
    request.messages = messages;
    refuses(request, "");
  }
  for (const char* settings :
       {"", "[]", "{\"n\": 2}", "{\"unknown\": 1}", "{\"top_p\": \"x\"}", "{\"prompt\": \"y\"}"}) {
    INFO(settings);
    sluice_request request = greedy("x");
    request.settings = settings;
    refuses(request, "");
  }
  sluice_request request = greedy("x");
  request.temperature = -2;
  refuses(request, "temperature");
  request.temperature = std::numeric_limits<double>::quiet_NaN();
  refuses(request, "request.temperature is nan");
  request = greedy("x");
  request.stop_count = 1;
  refuses(request, "stop");
  const sluice_token tokens[] = {0, -1};
  request = greedy(nullptr);
  request.tokens = tokens;
  request.token_count = 2;
  refuses(request, "token -1");
  request = greedy("x");
  request.size = 8;
  refuses(request, "8 bytes");
  request.size = sizeof(request) + 8;
  refuses(request, "128 bytes");
  refuses(greedy(std::string(100000, 'x').c_str()), "256 positions");
  refuses(greedy(std::string(1 << 20, 'x').c_str()), "give a long prompt as tokens");
}

TEST_CASE("wrong options are refused with their reason") {
  sluice_model* model = nullptr;
  const auto refuses = [&](const sluice_model_options& options, const std::string& says) {
    check_status(sluice_model_open(demo.c_str(), &options, &model), SLUICE_USAGE, says);
    char* plan = nullptr;
    check_status(sluice_plan(demo.c_str(), &options, &plan), SLUICE_USAGE, says);
  };
  sluice_model_options options = small_options();
  options.kv = "int9";
  refuses(options, "int9");
  options = small_options();
  options.io = "tape";
  refuses(options, "tape");
  options = small_options();
  options.think = "maybe";
  refuses(options, "maybe");
  options = small_options();
  options.chat_format = "chatmk";
  refuses(options, "options.chat_format is \"chatmk\"");
  options = small_options();
  options.parallel = 1U << 31U;
  refuses(options, "parallel");
  options = {};
  refuses(options, "0 bytes");
}

TEST_CASE("the example in C runs") {
  const Result result = shell(built("example") + " " + demo + " 'One morning'");
  INFO(result.errors);
  CHECK(result.status == 0);
  CHECK(result.output.find("plan: {\"fits\":true") == 0);
  CHECK(result.output.find("\nOne morning") != std::string::npos);
  const Result wrong = shell(built("example") + " /nowhere.gguf x");
  CHECK(wrong.status == SLUICE_IO);
  CHECK(wrong.errors.find("example: ") == 0);
}

TEST_CASE("the module for Python does what it says") {
  if (*sluice::test::emulator != '\0') SLUICE_SKIP("python3 is of another machine");
  if (shell("/usr/bin/python3 -c 'import ctypes'").status != 0) {
    SLUICE_SKIP("there is no /usr/bin/python3");
  }
  if (is_sanitized) SLUICE_SKIP("python3 cannot load a library with sanitizers");
  const Result result = shell("PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=" + source +
                              "/core/capi/python SLUICE_LIBRARY=" + built("libsluice.so") +
                              " /usr/bin/python3 " + source + "/tests/capi_module.py " + demo);
  INFO(result.output << result.errors);
  CHECK(result.status == 0);
}

TEST_CASE("an installation has the library and what finds it") {
  if (*sluice::test::emulator != '\0') SLUICE_SKIP("this machine cannot build for the other");
  if (is_sanitized) SLUICE_SKIP("programs with sanitizers are linked otherwise");
  if (!is_there("pkg-config") || !is_there("cc")) SLUICE_SKIP("there is no pkg-config or cc");
  const Folder folder;
  const std::string root = folder.file("root");
  const fs::path build = fs::path(program).parent_path().parent_path();
  const Result installed =
      shell("cmake --install " + build.string() + " --prefix " + root + " --component Unspecified");
  INFO(installed.errors);
  REQUIRE(installed.status == 0);
  const std::string example = source + "/core/capi/example.c";
  const std::string run = "LD_LIBRARY_PATH=$(pkg-config --variable=libdir sluice) ";
  const Result by_pkg_config =
      shell("export PKG_CONFIG_PATH=$(dirname $(find " + root + " -name sluice.pc)); cc -std=c11 " +
            example + " $(pkg-config --cflags --libs sluice) -o " + folder.file("a") + " && " +
            run + folder.file("a") + " " + demo + " Once");
  INFO(by_pkg_config.errors);
  CHECK(by_pkg_config.status == 0);
  std::ofstream(folder.file("CMakeLists.txt"))
      << "cmake_minimum_required(VERSION 3.22)\nproject(a C)\nfind_package(sluice 0.1 REQUIRED)\n"
      << "add_executable(a " << example << ")\ntarget_link_libraries(a PRIVATE sluice::sluice)\n";
  const Result by_cmake =
      shell("cd " + folder.path().string() + " && cmake -G Ninja -B b -DCMAKE_PREFIX_PATH=" + root +
            " && cmake --build b && b/a " + demo + " Once");
  INFO(by_cmake.output << by_cmake.errors);
  CHECK(by_cmake.status == 0);
}
