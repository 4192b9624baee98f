// Which of the well-known models to take: the list that is shipped and one of the user's, planned
// from shapes alone.
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "tests/program.h"
#include "tests/sanitized.h"

using namespace sluice::test;

namespace {

using nlohmann::json;

std::string text_of(const json& object, const char* member) {
  return object.at(member).get<std::string>();
}

json recommend(const std::string& options) {
  const Result result = shell("sluice recommend --json " + options);
  INFO(options << "\n" << result.errors);
  REQUIRE(result.status == 0);
  CHECK(result.errors.empty());
  return json::parse(result.output);
}

// The speed of an entry; 0 where there is none.
double speed_of(const json& model, const char* member) {
  return model.at(member).is_null() ? 0 : model.at(member).get<double>();
}

std::string model(const std::string& name, const std::string& shape,
                  const std::string& quants = R"(["Q8_0", "Q4_K_M"])") {
  return R"({"name": ")" + name + R"(", "repository": "hf:o/r", "quants": )" + quants +
         R"(, "tasks": ["chat"], "shape": ")" + shape + R"("})";
}

}  // namespace

TEST_CASE("each model of the shipped list is planned, and one is chosen for each task") {
  for (const char* task : {"chat", "code", "embed"}) {
    const char* speed = std::string(task) == "embed" ? "most_prefill_tokens_per_s"
                                                     : "predicted_decode_tokens_per_s";
    const double enough = std::string(task) == "embed" ? 100 : 5;
    const json found =
        recommend("--budget 6GiB --disk 1GB/s --dram 20GB/s --task " + std::string(task));
    INFO(found.dump(2));
    CHECK(text_of(found, "task") == task);
    CHECK(found.at("budget_bytes").get<std::uint64_t>() == std::uint64_t{6} << 30);
    REQUIRE(found.at("models").size() >= 3);
    json choice;
    for (const json& one : found.at("models")) {
      if (!one.at("is_choice").get<bool>()) continue;
      CHECK(choice.is_null());
      choice = one;
    }
    REQUIRE(choice.is_object());
    CHECK(text_of(found.at("choice"), "reference") == text_of(choice, "reference"));
    CHECK(text_of(choice, "reference").starts_with("hf:"));
    CHECK(found.at("choice").at("next").size() == 3);
    // What is fast enough comes first, and the most precise file of a model.
    const bool is_any_enough = std::ranges::any_of(found.at("models"), [&](const json& one) {
      return one.at("fits").get<bool>() && speed_of(one, speed) >= enough;
    });
    CHECK((speed_of(choice, speed) >= enough) == is_any_enough);
    for (const json& one : found.at("models")) {
      CHECK(one.at(speed).is_null() != one.at("fits").get<bool>());
      const json& rates = one.at("made_from");
      REQUIRE(rates.is_null() == one.at(speed).is_null());
      if (rates.is_null()) continue;
      CHECK(rates.at("dram_bytes_per_s").get<double>() == 20e9);
      const bool is_streamed = one.at("streamed_bytes_per_step").get<std::uint64_t>() != 0;
      CHECK(rates.value("disk_bytes_per_s", 0.0) == (is_streamed ? 1e9 : 0));
      const bool is_of_choice = text_of(one, "name") == text_of(choice, "name");
      if (is_of_choice && one.at("bytes") > choice.at("bytes")) {
        CHECK(speed_of(one, speed) < enough);
      }
    }
  }
}

TEST_CASE("a table says for what the disk is read each time") {
  if (sluice::test::is_sanitized) SLUICE_SKIP("its own memory is beyond a budget that streams");
  const std::string command = "sluice recommend --budget 2GiB --disk 1GB/s --dram 20GB/s --task ";
  const std::string texts = shell(command + "embed").output, chat = shell(command + "chat").output;
  INFO(texts << chat);
  CHECK(texts.find("GiB a step") != std::string::npos);
  CHECK(texts.find("GiB a token") == std::string::npos);
  CHECK(chat.find("GiB a token") != std::string::npos);
}

TEST_CASE("sizes are those of the shapes, and a list can be replaced") {
  const Folder folder;
  const std::string list = folder.file("list.json");
  write(list, R"({"models": [)" + model("First", "tiny-qwen3") + ", " +
                  model("Second", "small", R"(["Q4_0"])") + "]}");
  // Beside the sanitizer's own memory, which grows with what was measured.
  const std::string budget = sluice::test::is_sanitized ? "900MiB" : "200MiB";
  const std::string options = "--list " + list + " --budget " + budget;
  const json found = recommend(options);
  REQUIRE(found.at("models").size() == 3);
  const json &first = found.at("models").at(1), &second = found.at("models").at(2);
  CHECK(text_of(first, "name") == "First");
  CHECK(text_of(first, "quant") == "Q4_K_M");
  CHECK(text_of(first, "reference") == "hf:o/r:Q4_K_M");
  CHECK(second.at("is_choice").get<bool>());
  for (const auto& [entry, shape] : {std::pair(first, "tiny-qwen3"), std::pair(second, "small")}) {
    const std::string file = folder.file("made.gguf");
    REQUIRE(shell("sluice synth " + std::string(shape) + " " + file +
                  " --force --header-only --quant " + text_of(entry, "quant"))
                .status == 0);
    CHECK(entry.at("bytes").get<std::uint64_t>() == fs::file_size(file));
  }
  const std::string table = shell("sluice recommend " + options).output;
  INFO(table);
  CHECK(table.find("* Second") != std::string::npos);
  CHECK(table.find("sluice pull hf:o/r:Q4_0\n") != std::string::npos);
  CHECK(table.find("sluice run hf:o/r:Q4_0 -p \"Hello\" --budget " + budget + "\n") !=
        std::string::npos);
  const Result none = shell("sluice recommend --list " + list + " --budget 2MiB");
  CHECK(none.status == 4);
  CHECK(none.errors.find("none of the models fits") != std::string::npos);
  check_fails("sluice recommend " + options + " --task code", 2, "no model for --task code");
}

TEST_CASE("the machine is measured each time, and the answer says what it is made from") {
  const Folder folder;
  const std::string list = folder.file("list.json");
  write(list, R"({"models": [)" + model("First", "tiny-qwen3") + "]}");
  const std::string command =
      "XDG_STATE_HOME=" + folder.path().string() + " sluice recommend --list " + list;
  for (const unsigned turn : {1, 2}) {
    const Result result = shell(command + " --json");
    INFO(result.errors);
    REQUIRE(result.status == 0);
    const json made_from = json::parse(result.output).at("made_from");
    CHECK(made_from.at("measurements").get<unsigned>() == turn);
    CHECK(made_from.at("is_slow_now").is_boolean());
  }
  CHECK(shell(command).output.find("made from 3 measurements of this machine") !=
        std::string::npos);
}

TEST_CASE("a disk whose speed is known stays so when the rest is measured") {
  const Folder folder;
  const std::string list = folder.file("list.json"),
                    profile = folder.file("sluice/machine-quick.json");
  write(list, R"({"models": [)" + model("First", "qwen3-8b") + "]}");
  const std::string command = "SLUICE_QUICK_MEASURES=1 HF_HOME=" + folder.path().string() +
                              " XDG_STATE_HOME=" + folder.path().string() +
                              " sluice recommend --json --budget 2GiB --list " + list;
  const auto first_model = [&] {
    const Result result = shell(command);
    INFO(result.errors);
    REQUIRE(result.status == 0);
    return json::parse(result.output).at("models").at(0);
  };
  const char* const speed = "predicted_decode_tokens_per_s";
  CHECK(first_model().at(speed).is_null());
  struct stat facts {};
  REQUIRE(::stat(folder.path().c_str(), &facts) == 0);
  const std::string disk = "disk " + std::to_string(major(facts.st_dev)) + ":" +
                           std::to_string(minor(facts.st_dev)) + ", in order";
  json known = json::parse(content(profile));
  json& rates = known.at("rates");
  for (auto rate = rates.begin(); rate != rates.end();) {
    if (!rate.key().starts_with("dram")) {
      ++rate;
      continue;
    }
    json sample = rate.value().at(0);
    sample.at(0) = 1e9;
    rates[disk] = json::array({sample});
    rate = rates.erase(rates.find(rate.key()));
  }
  write(profile, known.dump());
  CHECK(first_model().at("made_from").at("disk_bytes_per_s").get<double>() == 1e9);
  CHECK(content(profile).find("dram, ") != std::string::npos);
  // A machine says what is known of its disk, and measures nothing.
  const std::string places = "HF_HOME=" + folder.path().string() + " XDG_STATE_HOME=";
  const auto machine = [&](const std::string& state) {
    const std::string here = "SLUICE_QUICK_MEASURES=1 " + places + state + " sluice ";
    const Result text = shell(here + "machine"), found = shell(here + "machine --json");
    return std::pair(json::parse(found.output).at("disk_bytes_per_s"), text.output);
  };
  const auto [speed_known, text_known] = machine(folder.path().string());
  CHECK(speed_known == 1e9);
  CHECK(text_known.find("1.00 GB/s") != std::string::npos);
  const auto [speed_unknown, text_unknown] = machine(folder.file("none"));
  CHECK(speed_unknown.is_null());
  CHECK(text_unknown.find("not measured") != std::string::npos);
  // What was not measured is no speed of 0.
  const json from =
      json::parse(shell(places + folder.file("none") + " sluice doctor --json").output)
          .at("made_from");
  CHECK(from.at("disk_bytes_per_s").at("now").is_null());
  CHECK(from.at("disk_bytes_per_s").at("high").is_null());
  CHECK(from.at("dram_bytes_per_s").at("now").is_number());
}

TEST_CASE("a list that is malformed gives one line that names the place") {
  const Folder folder;
  const std::string list = folder.file("list.json");
  const auto check_refused = [&](const std::string& text, const std::string& says) {
    write(list, text);
    check_fails("sluice recommend --list " + list, 2, says);
  };
  const std::string good = model("First", "tiny-qwen3");
  const auto of = [&](const std::string& second) {
    return R"({"models": [)" + good + ", " + second + "]}";
  };
  check_refused("", "not JSON");
  check_refused("{", "not JSON");
  check_refused("[]", "\"models\" has to be a list");
  check_refused(R"({"models": {}})", "\"models\" has to be a list");
  check_refused(R"({"models": []})", "\"models\" is empty");
  check_refused(of("3"), "model 2: is no object");
  check_refused(of("{}"), "model 2: \"name\" has to be a text");
  check_refused(of(model("", "tiny-qwen3")), "model 2: \"name\" has to be a text");
  check_refused(of(model("x", "none")), "model 2: \"shape\": 'none' is none");
  check_refused(of(model("x", "tiny-qwen3", "[]")), "\"quants\" has to be a list of texts");
  check_refused(of(model("x", "tiny-qwen3", "[4]")), "\"quants\" has to be a list of texts");
  check_refused(of(model("x", "tiny-qwen3", R"(["Q9_0"])")), "\"quants\": 'Q9_0' is no");
  std::string other = model("x", "tiny-qwen3");
  check_refused(of(other.replace(other.find("hf:o/r"), 6, "hf:o/r/f.gguf")), "hf:OWNER/REPO");
  other = model("x", "tiny-qwen3");
  check_refused(of(other.replace(other.find("\"chat\""), 6, "\"sing\"")),
                "\"tasks\": 'sing' is none");
  check_refused(std::string(100'000, '['), list);
  check_fails("sluice recommend --list " + folder.file("nothing.json"), 5, "nothing.json");
  check_fails("sluice recommend --task sing", 2, "sing");
}
