// Thoughts and calls of tools, in one piece and as a stream, from a model that says what it is
// told.
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "tests/catch.h"
#include "tests/scripted_server.h"

namespace {

using nlohmann::json;
using sluice::test::Answer;
using sluice::test::answer_script;
using sluice::test::ask_for;
using sluice::test::body_with;
using sluice::test::call_byte;

std::string ask(const json& body) {
  const Answer answer = ask_for(body, answer_script, false);
  CHECK(answer.status == 200);
  return answer.body;
}

}  // namespace

TEST_CASE("thoughts and calls are split off an answer") {
  const json answer = json::parse(ask(body_with(true, false)));
  const json& choice = answer["choices"][0];
  CHECK(choice["finish_reason"] == "tool_calls");
  CHECK(choice["message"]["reasoning_content"] == "let me see");
  CHECK(choice["message"]["content"] == "I shall look.");
  const json& call = choice["message"]["tool_calls"][0];
  CHECK(call["type"] == "function");
  CHECK(call["function"]["name"] == "get_weather");
  CHECK(json::parse(call["function"]["arguments"].get<std::string>()) == json({{"town", "Ulm"}}));
}

TEST_CASE("no two calls have the same id, of one server's choices or of a server started again") {
  json body = body_with(true, false);
  body["n"] = 2;
  std::set<std::string> ids;
  for (int server = 0; server < 2; ++server) {
    const json answer = json::parse(ask(body));
    for (const json& choice : answer["choices"]) {
      REQUIRE(choice["message"]["tool_calls"].size() == 1);
      CHECK(ids.insert(choice["message"]["tool_calls"][0]["id"].get<std::string>()).second);
    }
  }
  CHECK(ids.size() == 4);
}

TEST_CASE("thoughts and calls are split off a stream, as they are off an answer") {
  const bool has_tools = GENERATE(true, false);
  const json whole = json::parse(ask(body_with(has_tools, false)))["choices"][0];
  std::istringstream events(ask(body_with(has_tools, true)));
  std::string thought, content;
  json calls, finish;
  int thought_pieces = 0;
  for (std::string line; std::getline(events, line);) {
    if (!line.starts_with("data: {")) continue;
    const json event = json::parse(line.substr(6));
    const json& choice = event["choices"][0];
    const json& delta = choice["delta"];
    CHECK(finish.is_null());
    finish = choice["finish_reason"];
    if (delta.contains("reasoning_content")) {
      CHECK(content.empty());  // thoughts come first
      thought += delta["reasoning_content"].get<std::string>();
      ++thought_pieces;
    }
    content += delta.value("content", "");
    if (delta.contains("tool_calls")) calls = delta["tool_calls"];
  }
  CHECK(whole["message"]["reasoning_content"] == thought);
  CHECK(whole["message"]["content"] == content);
  CHECK(thought_pieces > 3);
  CHECK(finish == whole["finish_reason"]);
  if (!has_tools) {
    CHECK(calls.is_null());
    CHECK(content.find("<tool_call>") != std::string::npos);
    return;
  }
  REQUIRE(calls.size() == 1);
  CHECK(calls[0]["index"] == 0);
  CHECK(calls[0]["function"] == whole["message"]["tool_calls"][0]["function"]);
}

namespace {

// What the model writes when it may call tools and its answer has to have a form. "name" is what
// calls have too.
json choice_with_form(const std::string& text, bool streams = false) {
  json body = body_with(true, streams);
  body["response_format"] = {
      {"type", "json_schema"},
      {"json_schema",
       {{"name", "weather"},
        {"schema",
         {{"type", "object"},
          {"properties", {{"name", {{"enum", {"Ulm", "Bonn"}}}}, {"sun", {{"type", "boolean"}}}}},
          {"required", {"name", "sun"}}}}}}};
  const Answer answer = ask_for(body, "let me see\n</think>\n\n" + text, true);
  INFO(answer.body);
  REQUIRE(answer.status == 200);
  if (!streams) return json::parse(answer.body)["choices"][0];
  std::istringstream events(answer.body);
  json whole = {{"message", {{"content", ""}}}};
  for (std::string line; std::getline(events, line);) {
    if (!line.starts_with("data: {")) continue;
    const json choice = json::parse(line.substr(6))["choices"][0];
    json& content = whole["message"]["content"];
    content = content.get<std::string>() + choice["delta"].value("content", "");
    if (choice["delta"].contains("tool_calls")) {
      whole["message"]["tool_calls"] = choice["delta"]["tool_calls"];
    }
    whole["finish_reason"] = choice["finish_reason"];
  }
  return whole;
}

}  // namespace

TEST_CASE("beside tools an answer has the form, or is a call") {
  const bool streams = GENERATE(false, true);
  const std::string form = "{\"name\":\"Ulm\",\"sun\":true}";
  const json answer = choice_with_form(form, streams);
  CHECK(answer["message"]["content"] == form);
  CHECK_FALSE(answer["message"].contains("tool_calls"));
  CHECK(answer["finish_reason"] == "stop");
  const json call = choice_with_form(std::string(1, call_byte) +
                                         "{\"name\": \"get_weather\", \"arguments\": {\"town\": "
                                         "\"Ulm\"}}\n</tool_call>",
                                     streams);
  REQUIRE(call["message"]["tool_calls"].size() == 1);
  CHECK(call["message"]["tool_calls"][0]["function"]["name"] == "get_weather");
  CHECK(call["message"]["content"] == "");
  CHECK(call["finish_reason"] == "tool_calls");
  // Neither prose nor a call behind the beginning of the form.
  for (const std::string& text : {std::string("I shall look."), "{" + std::string(1, call_byte)}) {
    const json kept = choice_with_form(text, streams);
    const json value = json::parse(kept["message"]["content"].get<std::string>());
    CHECK(value.size() == 2);
    CHECK(value["sun"].is_boolean());
    CHECK_FALSE(kept["message"].contains("tool_calls"));
  }
}

TEST_CASE("where no token begins a call, tools and a form refuse each other by name") {
  json body = body_with(true, false);
  body["response_format"] = {{"type", "json_object"}};
  const Answer answer = ask_for(body, answer_script, false);
  CHECK(answer.status == 400);
  const json error = json::parse(answer.body)["error"];
  CHECK(error["param"] == "tools");
  CHECK(error["message"].get<std::string>().find("response_format") != std::string::npos);
  body["tool_choice"] = "none";
  const Answer none = ask_for(body, "\n</think>\n\n{}", false);
  CHECK(none.status == 200);
  CHECK(json::parse(none.body)["choices"][0]["message"]["content"] == "{}");
}

TEST_CASE("thoughts and calls are items of a response, and go into the next one") {
  const json chat = body_with(true, false);
  json tool = chat["tools"][0]["function"];
  tool["type"] = "function";
  json body = {{"input", chat["messages"][0]["content"]}, {"tools", json::array({tool})}};
  const json whole = json::parse(ask_for(body, answer_script, false, "/v1/responses").body);
  const json& output = whole["output"];
  REQUIRE(output.size() == 3);
  CHECK(output[0]["type"] == "reasoning");
  CHECK(output[0]["content"][0]["text"] == "let me see");
  CHECK(output[1]["content"][0]["text"] == "I shall look.");
  CHECK(output[2]["type"] == "function_call");
  CHECK(output[2]["name"] == "get_weather");
  CHECK(json::parse(output[2]["arguments"].get<std::string>()) == json({{"town", "Ulm"}}));
  CHECK(whole["tools"] == body["tools"]);

  body["stream"] = true;
  std::map<std::string, std::string> grown;
  json last;
  for (const std::string& text :
       sluice::test::response_events(ask_for(body, answer_script, false, "/v1/responses").body)) {
    last = json::parse(text);
    if (last.contains("delta")) {
      grown[last["type"].get<std::string>()] += last["delta"].get<std::string>();
    }
  }
  CHECK(grown["response.reasoning_text.delta"] == "let me see");
  CHECK(grown["response.output_text.delta"] == "I shall look.");
  CHECK(grown["response.function_call_arguments.delta"] ==
        output[2]["arguments"].get<std::string>());
  CHECK(last["type"] == "response.completed");
  REQUIRE(last["response"]["output"].size() == 3);

  // What came goes into the next request as it is.
  json next = {{"input", json::array({{{"role", "user"}, {"content", "How is it?"}}})},
               {"tools", json::array({tool})},
               {"tool_choice", "none"}};
  for (const json& item : output) next["input"].push_back(item);
  next["input"].push_back(
      {{"type", "function_call_output"}, {"call_id", output[2]["call_id"]}, {"output", "sunny"}});
  const Answer answer = ask_for(next, answer_script, false, "/v1/responses");
  INFO(answer.body);
  REQUIRE(answer.status == 200);
  json again = {{"messages", chat["messages"]}, {"tools", chat["tools"]}, {"tool_choice", "none"}};
  again["messages"][0]["content"] = "How is it?";
  again["messages"].push_back(
      {{"role", "assistant"},
       {"content", "I shall look."},
       {"reasoning_content", "let me see"},
       {"tool_calls",
        {{{"id", output[2]["call_id"]},
          {"type", "function"},
          {"function", {{"name", "get_weather"}, {"arguments", output[2]["arguments"]}}}}}}});
  again["messages"].push_back(
      {{"role", "tool"}, {"tool_call_id", output[2]["call_id"]}, {"content", "sunny"}});
  const json same = json::parse(ask_for(again, answer_script, false).body);
  CHECK(json::parse(answer.body)["usage"]["input_tokens"] == same["usage"]["prompt_tokens"]);
}

TEST_CASE("a response that is cut in its thought is a thought alone, whole and streamed") {
  json body = {{"input", "How is it?"}, {"max_output_tokens", 5}};
  const json whole = json::parse(ask_for(body, answer_script, false, "/v1/responses").body);
  CHECK(whole["status"] == "incomplete");
  REQUIRE(whole["output"].size() == 1);
  CHECK(whole["output"][0]["type"] == "reasoning");
  CHECK(whole["output"][0]["status"] == "incomplete");
  CHECK(whole["output"][0]["content"][0]["text"] == "let m");

  body["stream"] = true;
  json last;
  for (const std::string& text :
       sluice::test::response_events(ask_for(body, answer_script, false, "/v1/responses").body)) {
    last = json::parse(text);
  }
  CHECK(last["type"] == "response.incomplete");
  json streamed = last["response"]["output"], expected = whole["output"];
  for (json* one : {&streamed, &expected}) (*one)[0].erase("id");
  CHECK(streamed == expected);
}

TEST_CASE("a call of a tool whose parameters are an empty list is answered") {
  json body = body_with(true, GENERATE(false, true));
  body["tools"][0]["function"]["parameters"] = json::array();  // as PHP writes an empty object
  const Answer answer = ask_for(
      body, "</think><function=get_weather><parameter=town>Ulm</parameter></function>", false);
  CHECK(answer.status == 200);
  CHECK(answer.body.find("get_weather") != std::string::npos);
  CHECK(answer.body.find("tool_calls") != std::string::npos);
  body["tools"][0]["function"]["parameters"] = json::array({1});
  const Answer refused = ask_for(body, answer_script, false);
  CHECK(refused.status == 400);
  CHECK(refused.body.find("get_weather") != std::string::npos);
}

TEST_CASE("the arguments of a call in the history reach the template as an object") {
  json body = body_with(true, false);
  const auto tokens_with = [&](const json& arguments) {
    json asked = body;
    asked["messages"].push_back(
        {{"role", "assistant"},
         {"content", nullptr},
         {"tool_calls",
          {{{"id", "a"},
            {"type", "function"},
            {"function", {{"name", "get_weather"}, {"arguments", arguments}}}}}}});
    asked["messages"].push_back({{"role", "tool"}, {"tool_call_id", "a"}, {"content", "sunny"}});
    const Answer answer = ask_for(asked, answer_script, false);
    REQUIRE(answer.status == 200);
    CHECK(answer.field("X-Sluice-Warning").empty());
    return json::parse(answer.body)["usage"]["prompt_tokens"].get<int>();
  };
  const int as_object = tokens_with({{"town", "Ulm"}});
  CHECK(tokens_with("{\"town\": \"Ulm\"}") == as_object);
  CHECK(tokens_with("{ \"town\":\"Ulm\" }\n") == as_object);
  CHECK(tokens_with("") == tokens_with(json::object()));
}

TEST_CASE("an answer warns of a message that the template leaves out") {
  const std::string users_only =
      "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}";
  const std::string path = "/v1/chat/completions";
  json body = body_with(false, GENERATE(false, true));
  CHECK(ask_for(body, "Yes.", false, path, users_only).field("X-Sluice-Warning").empty());
  body["messages"].push_back({{"role", "tool"}, {"content", "It is sunny."}});
  const Answer answer = ask_for(body, "Yes.", false, path, users_only);
  CHECK(answer.status == 200);
  CHECK(answer.field("X-Sluice-Warning").find("\"tool\"") != std::string::npos);
}

TEST_CASE("parts and the developer reach a template alike from both kinds of conversations") {
  const std::string reading =
      "{% for m in messages %}{% if m.role == 'developer' %}[a developer]{{ m.content }}"
      "{% elif m.role == 'user' %}{% for p in m.content %}[{{ p.source_lang_code }}]{{ p.text }}"
      "{% endfor %}{% endif %}{% endfor %}";
  const auto ask_both = [&](const json& member) {
    json part = {{"type", "text"}, {"text", "Good day."}};
    part.update(member);
    json messages = {{{"role", "developer"}, {"content", "Translate."}},
                     {{"role", "user"}, {"content", json::array({part})}}};
    const Answer chat =
        ask_for({{"messages", messages}}, "Yes.", false, "/v1/chat/completions", reading);
    messages[1]["content"][0]["type"] = "input_text";
    const Answer response = ask_for({{"input", messages}}, "Yes.", false, "/v1/responses", reading);
    INFO(chat.body << response.body);
    REQUIRE(chat.status == 200);
    REQUIRE(response.status == 200);
    CHECK(response.field("X-Sluice-Warning").empty());
    const int tokens = json::parse(chat.body)["usage"]["prompt_tokens"].get<int>();
    CHECK(json::parse(response.body)["usage"]["input_tokens"].get<int>() == tokens);
    return tokens;
  };
  const int without = ask_both(json::object());
  // A token for each byte, and the one that begins a text.
  CHECK(without == 1 + static_cast<int>(std::string("[a developer]Translate.[]Good day.").size()));
  CHECK(ask_both({{"source_lang_code", "en"}}) == without + 2);
}
