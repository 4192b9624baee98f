// Structured output through the program, with the demonstration model: run and batch, texts that
// are cut off, refusals, and results that depend neither on --parallel nor on log probabilities.
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/program.h"

using namespace sluice::test;
using nlohmann::json;

namespace {

const std::string demo = std::string(sluice::test::source_folder) + "/scripts/train-demo/demo.gguf";
const std::string person = R"({"type":"object","properties":{
  "name":{"type":"string","minLength":1,"maxLength":20},"age":{"type":"integer","minimum":0,
  "maximum":120},"kind":{"enum":["cat","dog"]}},"required":["name","age","kind"]})";

void check_person(const json& value) {
  INFO(value.dump());
  REQUIRE(value.is_object());
  REQUIRE(value.size() == 3);
  CHECK(value["name"].get<std::string>().size() >= 1);
  CHECK(value["age"].get<int>() >= 0);
  CHECK(value["age"].get<int>() <= 120);
  CHECK((value["kind"] == "cat" || value["kind"] == "dog"));
}

std::vector<json> run_rows(const Folder& folder, const std::vector<json>& rows,
                           const std::string& options) {
  std::string lines;
  for (const json& row : rows) lines += row.dump() + "\n";
  write(folder.file("rows"), lines);
  const std::string out = folder.file("results");
  const Result result = shell("sluice batch " + demo + " " + folder.file("rows") + " -o " + out +
                              " --ordered --restart -q " + options);
  INFO(result.errors);
  REQUIRE(result.status == 0);
  std::vector<json> results;
  std::istringstream in(content(out));
  for (std::string line; std::getline(in, line);) results.push_back(json::parse(line));
  REQUIRE(results.size() == rows.size());
  return results;
}

}  // namespace

TEST_CASE("run --json-schema and --grammar write what they promise") {
  const Folder folder;
  write(folder.file("schema"), person);
  write(folder.file("grammar"), "root ::= (\"yes\" | \"no\") \", \" [a-z]{3,5} \".\"\n");
  for (int seed = 1; seed <= 5; ++seed) {
    const std::string options = " -q -n 200 --temp 1.5 --seed " + std::to_string(seed);
    for (const std::string prompt :
         {" -p \"Tell me of a pet\"", " --raw -p \"Once upon a time\""}) {
      const Result made = shell("sluice run " + demo + prompt + options + " --json-schema " +
                                folder.file("schema"));
      INFO(made.errors);
      REQUIRE(made.status == 0);
      check_person(json::parse(made.output));
    }
    const Result made = shell("sluice run " + demo + " --raw -p \"Is it so?\"" + options +
                              " --grammar " + folder.file("grammar"));
    REQUIRE(made.status == 0);
    CHECK(std::regex_match(made.output, std::regex("(yes|no), [a-z]{3,5}\\.")));
  }
}

TEST_CASE("run refuses a schema or grammar by name, before the model runs") {
  const Folder folder;
  write(folder.file("not"), R"({"properties":{"a":{"not":{"type":"null"}}}})");
  write(folder.file("text"), "{");
  write(folder.file("grammar"), "root ::= \"a\" b\n");
  const std::string run = "sluice run " + demo + " -q --raw -p x ";
  check_fails(run + "--json-schema " + folder.file("not"), 2,
              folder.file("not") + ": schema, /properties/a/not");
  check_fails(run + "--json-schema " + folder.file("text"), 2, "not JSON");
  check_fails(run + "--grammar " + folder.file("grammar"), 2,
              folder.file("grammar") + ": grammar, line 1, column 14");
}

TEST_CASE("rows of a batch have the form that they ask for") {
  const Folder folder;
  const json schema = json::parse(person);
  const json chat = {{{"role", "user"}, {"content", "Tell me of a pet"}}};
  const json format = {{"type", "json_schema"},
                       {"json_schema", {{"name", "pet"}, {"schema", schema}}}};
  const std::vector<json> rows = {
      {{"prompt", "Once"}, {"response_format", format}, {"max_tokens", 200}},
      {{"messages", chat}, {"response_format", format}, {"max_tokens", 200}},
      {{"prompt", "Once"}, {"guided_json", schema}, {"max_tokens", 200}, {"temperature", 2}},
      {{"prompt", "Once"}, {"grammar", "root ::= [0-9]{12}"}},
      {{"prompt", "Once"}, {"response_format", {{"type", "json_object"}}}, {"max_tokens", 5}},
      {{"prompt", "Once"}, {"guided_json", {{"not", {{"type", "null"}}}}}},
      {{"prompt", "Once"}, {"guided_grammar", "root = "}},
      {{"prompt", "Once"}, {"grammar", "root ::= \"abc\""}, {"max_tokens", 20}, {"min_tokens", 9}},
      {{"prompt", "Once"}, {"grammar", "root ::= \"abc\""}, {"ignore_eos", true}},
  };
  const std::vector<json> results = run_rows(folder, rows, "");
  for (int i = 0; i < 3; ++i) {
    INFO(results[i].dump());
    CHECK(results[i]["finish_reason"] == "stop");
    check_person(json::parse(results[i]["text"].get<std::string>()));
  }
  CHECK(std::regex_match(results[3]["text"].get<std::string>(), std::regex("[0-9]{12}")));
  CHECK(results[3]["finish_reason"] == "stop");
  CHECK(results[4]["finish_reason"] == "length");
  CHECK(results[4]["text"].get<std::string>().substr(0, 1) == "{");
  CHECK(results[5]["error"].dump().find("schema, /not") != std::string::npos);
  CHECK(results[6]["error"].dump().find("line 1, column 6") != std::string::npos);
  for (int i : {7, 8}) {  // the end of the grammar is the end of the text
    CHECK(results[i]["text"] == "abc");
    CHECK(results[i]["finish_reason"] == "stop");
  }
}

TEST_CASE("structured texts depend neither on --parallel nor on log probabilities") {
  const Folder folder;
  std::vector<json> rows;
  for (int i = 0; i < 8; ++i) {
    json row = {{"id", i}, {"prompt", "Once upon"}, {"max_tokens", 120}, {"temperature", 1.2}};
    if (i % 4 != 3) row["guided_json"] = json::parse(person);
    rows.push_back(row);
  }
  const std::vector<json> alone = run_rows(folder, rows, "--parallel 1");
  CHECK(run_rows(folder, rows, "--parallel 5") == alone);
  for (json& row : rows) row["logprobs"] = true;
  const std::vector<json> told = run_rows(folder, rows, "--parallel 3");
  for (std::size_t i = 0; i < rows.size(); ++i) CHECK(told[i]["text"] == alone[i]["text"]);
}
