// Calls that a request asks for or limits: what the choice of tools makes of an answer, and what
// other programs send beside it.
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/scripted_server.h"

namespace {

using nlohmann::json;
using sluice::test::Answer;
using sluice::test::answer_script;
using sluice::test::ask_for;
using sluice::test::body_with;
using sluice::test::call_byte;
using sluice::test::reasoning_template;

// Two tools whose calls are short, whatever is chosen.
json body_of_two_tools(bool is_response) {
  const auto tool = [&](const char* name, const char* parameter, const json& values) {
    const json function = {{"name", name},
                           {"parameters",
                            {{"type", "object"},
                             {"properties", {{parameter, {{"enum", values}}}}},
                             {"required", {parameter}}}}};
    if (!is_response) return json{{"type", "function"}, {"function", function}};
    json flat = function;
    flat["type"] = "function";
    return flat;
  };
  json body = {
      {"seed", 1},
      {"tools",
       {tool("get_weather", "town", {"Ulm", "Bonn"}), tool("get_time", "zone", {"CET", "UTC"})}}};
  if (is_response) {
    body["input"] = "How is the weather in Ulm?";
  } else {
    body["messages"] = {{{"role", "user"}, {"content", "How is the weather in Ulm?"}}};
  }
  return body;
}

struct Called {
  std::string name;
  json arguments;
};

// The calls of an answer, and its content; events are put together.
struct Read {
  std::vector<Called> calls;
  std::string content;
};

Read read_chat(const Answer& answer, bool streams) {
  Read read;
  const auto add = [&](const json& message) {
    if (message.contains("content") && message["content"].is_string()) {
      read.content += message["content"].get<std::string>();
    }
    for (const json& call : message.value("tool_calls", json::array())) {
      const json& function = call["function"];
      read.calls.push_back({function["name"].get<std::string>(),
                            json::parse(function["arguments"].get<std::string>())});
    }
  };
  if (!streams) {
    add(json::parse(answer.body)["choices"][0]["message"]);
    return read;
  }
  std::istringstream events(answer.body);
  for (std::string line; std::getline(events, line);) {
    if (line.starts_with("data: {")) add(json::parse(line.substr(6))["choices"][0]["delta"]);
  }
  return read;
}

Read read_response(const Answer& answer, bool streams) {
  json response;
  if (streams) {
    response = json::parse(sluice::test::response_events(answer.body).back())["response"];
  } else {
    response = json::parse(answer.body);
  }
  Read read;
  for (const json& item : response["output"]) {
    if (item["type"] == "message") read.content += item["content"][0]["text"].get<std::string>();
    if (item["type"] != "function_call") continue;
    read.calls.push_back(
        {item["name"].get<std::string>(), json::parse(item["arguments"].get<std::string>())});
  }
  return read;
}

bool is_right(const Called& call) {
  if (call.name == "get_time") {
    return call.arguments == json({{"zone", "CET"}}) || call.arguments == json({{"zone", "UTC"}});
  }
  return call.name == "get_weather" &&
         (call.arguments == json({{"town", "Ulm"}}) || call.arguments == json({{"town", "Bonn"}}));
}

}  // namespace

TEST_CASE("a choice of tools is obeyed, whatever the model would like to say") {
  const bool is_response = GENERATE(false, true), streams = GENERATE(false, true);
  const bool has_call_token = GENERATE(false, true);
  json body = body_of_two_tools(is_response);
  body["stream"] = streams;
  const auto ask_with = [&](const json& choice) {
    json asked = body;
    asked["tool_choice"] = choice;
    const Answer answer = ask_for(asked, "let me see\n</think>\n\nI shall look.", has_call_token,
                                  is_response ? "/v1/responses" : "/v1/chat/completions");
    INFO(choice.dump() << answer.body);
    REQUIRE(answer.status == 200);
    return is_response ? read_response(answer, streams) : read_chat(answer, streams);
  };
  const auto named = [&](const char* name) {
    if (is_response) return json{{"type", "function"}, {"name", name}};
    return json{{"type", "function"}, {"function", {{"name", name}}}};
  };
  for (const char* free : {"auto", "none"}) {
    const Read read = ask_with(free);
    CHECK(read.content == "I shall look.");
    CHECK(read.calls.empty());
  }
  const Read any = ask_with("required");
  CHECK(any.content.empty());
  CHECK_FALSE(any.calls.empty());
  for (const Called& call : any.calls) CHECK(is_right(call));
  for (const char* name : {"get_weather", "get_time"}) {
    json allowed = {{"type", "allowed_tools"}, {"mode", "required"}, {"tools", {named(name)}}};
    if (!is_response) {
      allowed = {{"type", "allowed_tools"},
                 {"allowed_tools", {{"mode", "required"}, {"tools", {named(name)}}}}};
    }
    for (const json& choice : {named(name), allowed}) {
      const Read read = ask_with(choice);
      CHECK(read.content.empty());
      CHECK_FALSE(read.calls.empty());
      for (const Called& call : read.calls) {
        CHECK(is_right(call));
        CHECK(call.name == name);
      }
    }
  }
}

TEST_CASE("a call that begins inside of a thought is one that was asked for") {
  json body = body_of_two_tools(false);
  body["tool_choice"] = {{"type", "function"}, {"function", {{"name", "get_weather"}}}};
  const Answer answer = ask_for(body,
                                "let me see\n" + std::string(1, call_byte) +
                                    "\n{\"name\": \"get_time\", \"arguments\": {}}\n</tool_call>",
                                true);
  INFO(answer.body);
  REQUIRE(answer.status == 200);
  const Read read = read_chat(answer, false);
  CHECK_FALSE(read.calls.empty());
  for (const Called& call : read.calls) {
    CHECK(is_right(call));
    CHECK(call.name == "get_weather");
  }
}

TEST_CASE("an answer ends behind its first call where calls may not be parallel") {
  const bool streams = GENERATE(false, true), has_call_token = GENERATE(false, true);
  json body = body_of_two_tools(false);
  body["stream"] = streams;
  const std::string open = has_call_token ? std::string(1, call_byte) : "<tool_call>";
  const std::string call =
      open + "\n{\"name\": \"get_time\", \"arguments\": {\"zone\": \"CET\"}}\n</tool_call>";
  const std::string script = "\n</think>\n\nI shall look.\n" + call + "\n" + call + " And more.";
  const auto ask_with = [&](bool parallel) {
    body["parallel_tool_calls"] = parallel;
    const Answer answer = ask_for(body, script, has_call_token);
    INFO(answer.body);
    REQUIRE(answer.status == 200);
    return read_chat(answer, streams);
  };
  const Read all = ask_with(true), first = ask_with(false);
  CHECK(all.calls.size() == 2);
  CHECK(all.content.find("And more.") != std::string::npos);
  REQUIRE(first.calls.size() == 1);
  CHECK(is_right(first.calls[0]));
  CHECK(first.content == "I shall look.");
  // An answer that has to be calls has one.
  body["tool_choice"] = "required";
  CHECK(ask_with(false).calls.size() == 1);
}

TEST_CASE("a choice of tools that cannot be is refused by name") {
  const auto refusal = [](const json& choice, const std::string& chat_template) {
    json body = body_of_two_tools(false);
    body["tool_choice"] = choice;
    const Answer answer =
        ask_for(body, answer_script, false, "/v1/chat/completions", chat_template);
    INFO(answer.body);
    CHECK(answer.status == 400);
    return json::parse(answer.body)["error"]["message"].get<std::string>();
  };
  const json unknown = {{"type", "function"}, {"function", {{"name", "get_up"}}}};
  CHECK(refusal(unknown, reasoning_template).find("not among") != std::string::npos);
  for (const json& bad : {json("sometimes"), json(7), json({{"type", "allowed_tools"}}),
                          json({{"type", "web_search"}})}) {
    CHECK(refusal(bad, reasoning_template).find("tool_choice") != std::string::npos);
  }
  // Calls of Gemma 4 have a notation of their own.
  const std::string gemma = "{{ messages[0].content }}<|tool_call>";
  CHECK(refusal("required", gemma).find("\"none\"") != std::string::npos);
  json body = body_with(false, false);
  body["tool_choice"] = "required";
  CHECK(ask_for(body, answer_script, false).status == 400);
}

TEST_CASE("a request of Codex is answered, with its functions as tools") {
  const std::string plain =
      "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %}<tool_call>"
      "{{ tools | tojson }}{% endif %}";
  const std::string efforts = plain + "[{{ reasoning_effort }}]";
  json body = body_of_two_tools(true);
  const std::string call =
      "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {\"zone\": \"CET\"}}\n</tool_call>";
  const auto ask_with = [&](const json& more, const std::string& chat_template) {
    json asked = body;
    asked.update(more);
    const Answer answer = ask_for(asked, call, false, "/v1/responses", chat_template);
    INFO(answer.body);
    REQUIRE(answer.status == 200);
    const json response = json::parse(answer.body);
    REQUIRE(response["output"].size() == 1);
    CHECK(response["output"][0]["name"].get<std::string>() == "get_time");
    return response["usage"]["input_tokens"].get<int>();
  };
  const int bare = ask_with(json::object(), plain);
  json codex = {{"include", {"reasoning.encrypted_content"}},
                {"reasoning", {{"effort", "high"}, {"summary", "auto"}}},
                {"text", {{"verbosity", "low"}}},
                {"store", false},
                {"prompt_cache_key", "a session"},
                {"client_metadata", {{"a", "b"}}},
                {"tool_choice", "auto"},
                {"parallel_tool_calls", false},
                {"instructions", nullptr},
                {"tools", body["tools"]}};
  codex["tools"].push_back({{"type", "web_search"}, {"external_web_access", false}});
  codex["tools"].push_back({{"type", "custom"}, {"name", "apply_patch"}});
  codex["tools"].push_back({{"type", "local_shell"}});
  CHECK(ask_with(codex, plain) == bare);  // the model is told of the functions, and nothing else
  CHECK(ask_with(codex, efforts) == bare + static_cast<int>(std::string("[high]").size()));
  codex["tools"] = {{{"type", "web_search"}}};
  codex["input"] = "hello";
  const Answer answer = ask_for(codex, "Good day.", false, "/v1/responses", plain);
  CHECK(answer.status == 200);
  CHECK(read_response(answer, false).content == "Good day.");
}
