// The models that are here, in the caches of several programs: found, used by name, and removed
// only where `sluice pull` has brought them.
#include <nlohmann/json.hpp>

#include "tests/sanitized.h"
#include "tests/small_hub.h"

using namespace sluice::test;

namespace {

nlohmann::json list() {
  const Result result = shell("sluice list --json");
  REQUIRE(result.status == 0);
  return nlohmann::json::parse(result.output);
}

// The entry of a name; null when there is none.
nlohmann::json entry(const std::string& name) {
  for (const nlohmann::json& model : list()) {
    if (model.at("name").get<std::string>() == name) return model;
  }
  return nullptr;
}

std::string text_of(const nlohmann::json& model, const char* member) {
  return model.at(member).get<std::string>();
}

// Paths, sizes and times of all that is below a folder.
std::string state_of(const fs::path& folder) {
  std::string text;
  for (const auto& found : fs::recursive_directory_iterator(folder)) {
    text += found.path().string() + " " +
            std::to_string(fs::last_write_time(found.path()).time_since_epoch().count()) + "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("what was pulled is listed, takes the place of a path, and can be removed") {
  SmallHub hub;
  const Caches caches(hub);
  const Folder folder;
  const std::string model = make_model(folder);
  hub.put("tiny-Q4_K_M.gguf", content(model));
  const std::string name = "hf:o/r/tiny-Q4_K_M.gguf";
  const Result pulled = shell("sluice pull " + name);
  REQUIRE(pulled.status == 0);
  CHECK(pulled.errors.empty());
  const nlohmann::json listed = entry(name);
  REQUIRE(listed.is_object());
  CHECK(text_of(listed, "path") + "\n" == pulled.output);
  CHECK(listed.at("bytes").get<std::uint64_t>() == fs::file_size(model));
  CHECK(text_of(listed, "quant") == "Q4_K_M");
  CHECK(text_of(entry("demo"), "name") == "demo");
  CHECK(shell("sluice list").output.find(name) != std::string::npos);
  const std::string expected = shell("sluice inspect --json " + model).output;
  const unsigned requests = hub.requests();
  for (const std::string& other : {name, std::string("tiny-Q4_K_M"), std::string("hf:o/r:q4_k_m"),
                                   std::string("tiny-Q4_K_M.gguf"), "file:" + model}) {
    INFO(other);
    const Result result = shell("sluice inspect --json " + other);
    CHECK(result.status == 0);
    CHECK(result.output.size() >= expected.size() / 2);
  }
  CHECK(hub.requests() == requests);  // what is here is asked of no server
  CHECK(shell("sluice run -q -n 2 --temp 0 -p x " + name).output ==
        shell("sluice run -q -n 2 --temp 0 -p x " + model).output);
  CHECK(shell("sluice rm " + name).status == 0);
  CHECK(entry(name).is_null());
  CHECK_FALSE(fs::exists(caches.repository()));
  check_fails("sluice rm " + name, 2, "no model");
  // A command brings what is not here.
  CHECK(shell("sluice run -q -n 1 -p x " + name).status == 0);
  CHECK(entry(name).is_object());
}

TEST_CASE("what a pull has left is listed, removed, and cleared away by a newer version") {
  std::atomic<bool> is_broken = true;  // it gives the beginning of a file
  SmallHub hub([&](const HubRequest& request) {
    const auto range = request.headers.find("range");
    const bool is_later = range != request.headers.end() && !range->second.starts_with("bytes=0-");
    if (!is_broken || !is_later) return Fault::none;
    std::this_thread::sleep_for(
        std::chrono::milliseconds(500));  // the first of them comes meanwhile
    return Fault::error_403;
  });
  const Caches caches(hub);
  const auto partials = [&] {
    std::size_t count = 0;
    for (const auto& found : fs::recursive_directory_iterator(caches.folder.path())) {
      count += found.path().extension() == ".incomplete" ? 1 : 0;
    }
    return count;
  };
  const std::string first = "GGUF" + std::string(20'000'000, 'a');
  hub.put("m-Q4_0.gguf", first);
  hub.put("ollama", first);
  const std::string url = hub.url() + "/cdn/m-Q4_0.gguf";
  const std::string ollama = "ollama:" + hub.host() + "/library/tiny:latest";
  const std::vector<std::string> names = {"hf:o/r/m-Q4_0.gguf", url, ollama};
  for (const std::string& name : names) {
    INFO(name);
    is_broken = true;
    hub.put("m-Q4_0.gguf", first);
    hub.put("ollama", first);
    CHECK(shell("sluice pull -q " + name).status == 5);
    const nlohmann::json begun = entry(name);
    REQUIRE(begun.is_object());
    CHECK_FALSE(begun.at("complete").get<bool>());
    CHECK(begun.at("bytes").get<std::uint64_t>() > 0);
    CHECK(shell("sluice list").output.find("incomplete") != std::string::npos);
    CHECK(partials() == 1);
    CHECK(shell("sluice rm " + name).status == 0);
    CHECK(entry(name).is_null());
    CHECK(partials() == 0);
    // A newer version.
    CHECK(shell("sluice pull -q " + name).status == 5);
    CHECK(partials() == 1);
    is_broken = false;
    hub.put("m-Q4_0.gguf", "GGUF b");
    hub.put("ollama", "GGUF b");
    const Result pulled = shell("sluice pull -q " + name);
    INFO(pulled.errors);
    CHECK(pulled.status == 0);
    CHECK(partials() == 0);
    // What has come of a newer one goes with the model.
    is_broken = true;
    hub.put("m-Q4_0.gguf", first);
    hub.put("ollama", first);
    CHECK(shell("sluice pull -q " + name).status == 5);
    const std::string path = pulled.output.substr(0, pulled.output.size() - 1);
    CHECK(content(path) == "GGUF b");
    CHECK(partials() == 1);
    CHECK(shell("sluice rm " + path).status == 0);
    CHECK_FALSE(fs::exists(path));
    CHECK(partials() == 0);
  }
  // It is not taken from a program that downloads it.
  CHECK(shell("sluice pull -q " + url).status == 5);
  std::string lock;
  for (const auto& found : fs::recursive_directory_iterator(caches.folder.path() / "cache")) {
    if (found.path().extension() == ".lock") lock = found.path().string();
  }
  check_fails("flock '" + lock + "' '" + program + "' rm m-Q4_0", 5,
              "is being downloaded by another program");
  CHECK(partials() == 1);
  CHECK(shell("sluice rm m-Q4_0").status == 0);
  CHECK(partials() == 0);
}

TEST_CASE("a model that something cut short is listed so, and pulled again") {
  SmallHub hub;
  const Caches caches(hub);
  const Folder folder;
  const std::string model = make_model(folder), whole = content(model);
  hub.put("m-Q4_0.gguf", whole);
  hub.put("ollama", whole);
  for (const std::string& name : {std::string("hf:o/r/m-Q4_0.gguf"), hub.url() + "/cdn/m-Q4_0.gguf",
                                  "ollama:" + hub.host() + "/library/tiny:latest"}) {
    INFO(name);
    const std::string line = shell("sluice pull -q " + name).output;
    const fs::path path = fs::canonical(line.substr(0, line.size() - 1));
    const auto listed = [&] {
      for (const nlohmann::json& one : list()) {
        if (fs::equivalent(text_of(one, "path"), path)) return one;
      }
      return nlohmann::json();
    };
    CHECK(listed().at("complete").get<bool>());
    for (const auto& [bytes, says] :
         {std::pair(whole.size() / 2, "incomplete"), std::pair(std::size_t{100}, "unreadable")}) {
      fs::resize_file(path, bytes);
      CHECK_FALSE(listed().at("complete").get<bool>());
      CHECK(shell("sluice list").output.find(says) != std::string::npos);
      check_fails("sluice pull file:" + path.string(), 3, "cut short");
      CHECK(shell("sluice pull -q " + name).output == line);
      CHECK(content(path) == whole);
      CHECK(listed().at("complete").get<bool>());
    }
    CHECK(shell("sluice rm " + name).status == 0);
  }
}

TEST_CASE("a split model of which shards are missing is listed as incomplete, and removed") {
  SmallHub hub([](const HubRequest& request) {
    const bool is_second = request.path.find("00002-of") != std::string::npos;
    return is_second && request.headers.count("range") != 0 ? Fault::error_403 : Fault::none;
  });
  const Caches caches(hub);
  hub.put("m-00001-of-00002.gguf", "GGUF 1");
  hub.put("m-00002-of-00002.gguf", "GGUF 2");
  for (const std::string& name : {std::string("hf:o/r/"), hub.url() + "/cdn/"}) {
    CHECK(shell("sluice pull -q " + name + "m-00001-of-00002.gguf").status == 5);
    const bool is_hub = name.starts_with("hf:");
    const std::string listed = is_hub ? name + "m-00001-of-00002.gguf" : "m-00001-of-00002";
    REQUIRE(entry(listed).is_object());
    CHECK_FALSE(entry(listed).at("complete").get<bool>());
    CHECK(shell("sluice rm " + listed).status == 0);
    CHECK(entry(listed).is_null());
  }
}

TEST_CASE("shards that another program brought stay when the model is removed") {
  SmallHub hub;
  const Caches caches(hub);
  hub.put("m-00001-of-00002.gguf", "GGUF 1");
  hub.put("m-00002-of-00002.gguf", "GGUF 2");
  REQUIRE(shell("sluice pull -q hf:o/r/m-00001-of-00002.gguf").status == 0);
  // As the hub's own library leaves it: without the mark of this program.
  const fs::path second = caches.blob("GGUF 2");
  std::size_t marks = 0;
  for (const auto& found : fs::recursive_directory_iterator(caches.folder.path() / "cache")) {
    if (found.path().filename() == second.filename()) marks += fs::remove(found.path()) ? 1 : 0;
  }
  REQUIRE(marks == 1);
  CHECK(shell("sluice rm hf:o/r/m-00001-of-00002.gguf").status == 0);
  CHECK(fs::exists(second));
  CHECK_FALSE(fs::exists(caches.blob("GGUF 1")));
}

TEST_CASE("what a URL led to is listed, and removed, whatever it is called") {
  SmallHub hub;
  const Caches caches(hub);
  const Folder folder;
  hub.put("download", content(make_model(folder)));
  const std::string path = shell("sluice pull -q '" + hub.url() + "/cdn/download?id=1'").output;
  REQUIRE(entry("download").is_object());
  CHECK(entry("download").at("complete").get<bool>());
  CHECK(text_of(entry("download"), "path") + "\n" == path);
  CHECK(shell("sluice inspect download").status == 0);
  CHECK(shell("sluice rm download").status == 0);
  CHECK(entry("download").is_null());
  CHECK_FALSE(fs::exists(path.substr(0, path.size() - 1)));
}

TEST_CASE("a model of another registry is listed by a name that leads to it") {
  SmallHub hub;
  const Caches caches(hub);
  const Folder folder;
  hub.put("ollama", content(make_model(folder)));
  CHECK(shell("sluice pull -q ollama:" + hub.host() + "/library/tiny").status == 0);
  const std::string name = "ollama:" + hub.host() + "/library/tiny:latest";
  REQUIRE(entry(name).is_object());
  const unsigned requests = hub.requests();
  CHECK(shell("sluice inspect " + name).status == 0);
  CHECK(hub.requests() == requests);
  CHECK(shell("sluice rm " + name).status == 0);
  CHECK(entry(name).is_null());
}

TEST_CASE("of models with one name, none is removed but by its path") {
  SmallHub hub;
  const Caches caches(hub);
  hub.put("m.gguf", "GGUF 1");
  const std::string url = hub.url() + "/cdn/m.gguf?id=";
  const std::string first = shell("sluice pull -q " + url + "1").output;
  const std::string second = shell("sluice pull -q " + url + "2").output;
  REQUIRE(first != second);
  check_fails("sluice rm m", 2, "2 models are called 'm': name one by its path, ");
  check_fails("sluice inspect m", 2, "2 models are called 'm'");
  CHECK(shell("sluice rm " + first).status == 0);
  check_fails("sluice rm " + url + "1", 2, "no model");
  CHECK(shell("sluice rm " + url + "2").status == 0);
  CHECK(entry("m").is_null());
}

TEST_CASE("a model is removed by what it was pulled as") {
  SmallHub hub;
  const Caches caches(hub);
  const Folder folder;
  const std::string model = make_model(folder);
  hub.put("tiny-Q4_K_M.gguf", content(model));
  hub.put("ollama", content(model));
  for (const std::string& name :
       {std::string("hf:o/r:q4_k_m"), hub.url() + "/cdn/tiny-Q4_K_M.gguf?token=1",
        "ollama:" + hub.host() + "/library/tiny"}) {
    INFO(name);
    const std::string path = shell("sluice pull -q " + name).output;
    REQUIRE(fs::exists(path.substr(0, path.size() - 1)));
    CHECK(shell("sluice rm " + name).status == 0);
    CHECK_FALSE(fs::exists(path.substr(0, path.size() - 1)));
  }
  check_fails("sluice rm file:" + model, 2, "no model");
  check_fails("sluice rm hf:o", 2, "hf:OWNER/REPO");
  CHECK(fs::exists(model));
}

TEST_CASE("models of other programs are found and never changed") {
  SmallHub hub;
  const Caches caches(hub);
  const Folder folder;
  const std::string text = content(make_model(folder));
  const fs::path root = caches.folder.path();
  const auto put = [&](const fs::path& path) {
    fs::create_directories(path.parent_path());
    write(path, text);
  };
  // As huggingface_hub, llama.cpp and ollama leave them.
  const fs::path repository = root / "hf/hub/models--a--b";
  put(repository / "blobs/1234");
  fs::create_directories(repository / "snapshots/abcd/sub");
  fs::create_symlink("../../../blobs/1234", repository / "snapshots/abcd/sub/m-F16.gguf");
  fs::create_directories(repository / "refs");
  write(repository / "refs/main", "abcd");
  put(root / "cache/llama.cpp/x_y_small-Q8_0.gguf");
  const std::string sum = sha256_of(text);
  put(root / "ollama/blobs" / ("sha256-" + sum));
  const fs::path manifest = root / "ollama/manifests/registry.ollama.ai/library/tiny/1b";
  fs::create_directories(manifest.parent_path());
  write(manifest,
        "{\"layers\": [{\"mediaType\": \"application/vnd.ollama.image.model\", \"size\": "
        "1, \"digest\": \"sha256:" +
            sum + "\"}]}");
  write(manifest.parent_path() / "broken", "{");
  const std::string before = state_of(root);
  CHECK(text_of(entry("hf:a/b/sub/m-F16.gguf"), "quant") == "F16");
  CHECK(text_of(entry("x_y_small-Q8_0"), "quant") == "Q8_0");
  CHECK_FALSE(text_of(entry("ollama:tiny:1b"), "quant").empty());
  CHECK(entry("ollama:tiny:broken").is_null());
  for (const char* name : {"hf:a/b/sub/m-F16.gguf", "hf:a/b:F16", "m-F16", "x_y_small-Q8_0",
                           "hf:x/y/small-Q8_0.gguf", "ollama:tiny:1b"}) {
    INFO(name);
    CHECK(shell(std::string("sluice inspect ") + name).status == 0);
  }
  for (const char* name : {"hf:a/b/sub/m-F16.gguf", "x_y_small-Q8_0", "ollama:tiny:1b", "demo"}) {
    check_fails(std::string("sluice rm ") + name, 2, "was not brought by `sluice pull`");
  }
  CHECK(state_of(root) == before);
}

TEST_CASE("a model that is not here is planned, and looked at, by its header alone") {
  SmallHub hub;
  const Caches caches(hub);
  const Folder folder;
  const std::string model = folder.file("small.gguf");
  REQUIRE(shell("sluice synth small " + model).status == 0);
  hub.put("small-Q4_K_M.gguf", content(model));
  hub.put("ollama", content(model));
  hub.put("no-Q4_0.gguf", std::string(1'000'000, 'x'));
  // All of the model fits: where some of it is streamed, how much follows from the process's own
  // memory, which differs by some pages from run to run.
  const std::string options = " --budget 2GiB --ctx 512 --threads 1 --json";
  const auto plan = [&](const std::string& name) {
    const Result result = shell("sluice plan " + name + options);
    INFO(result.errors);
    REQUIRE(result.status == 0);
    return nlohmann::json::parse(result.output);
  };
  const nlohmann::json of_file = plan(model);
  CHECK(of_file.at("header_bytes_read").get<std::uint64_t>() == 0);
  // Headers are removed, and those of plans that were killed a day later.
  const fs::path headers = caches.folder.path() / "cache/sluice/headers";
  for (const char* left : {"header-old", "header-new"}) fs::create_directories(headers / left);
  fs::last_write_time(headers / "header-old",
                      fs::file_time_type::clock::now() - std::chrono::hours(25));
  for (const std::string& name :
       {std::string("hf:o/r:Q4_K_M"), std::string("hf:o/r/small-Q4_K_M.gguf"),
        "ollama:" + hub.host() + "/library/tiny", hub.url() + "/cdn/small-Q4_K_M.gguf"}) {
    INFO(name);
    const std::uint64_t before = hub.sent_bytes();
    const nlohmann::json of_server = plan(name);
    const std::uint64_t sent = hub.sent_bytes() - before;
    CHECK(sent < fs::file_size(model) / 50);
    CHECK(of_server.at("header_bytes_read").get<std::uint64_t>() == sent);
    for (const char* member :
         {"budget_bytes", "fits", "pinned_bytes", "streamed_bytes_per_step", "context", "chunk"}) {
      INFO(member);
      CHECK(of_server.at(member).dump() == of_file.at(member).dump());
    }
    // By some pages of code and heap two runs of one program differ.
    constexpr std::int64_t noise_bytes = 1 << 20;
    const auto total = [](const nlohmann::json& of) {
      return of.at("total_bytes").get<std::int64_t>();
    };
    if (!is_sanitized) {  // what a sanitizer keeps varies by more
      CHECK(std::abs(total(of_server) - total(of_file)) < noise_bytes);
    }
  }
  CHECK(shell("sluice tokenize --ids -p 'one two' hf:o/r:Q4_K_M").output ==
        shell("sluice tokenize --ids -p 'one two' " + model).output);
  CHECK(shell("sluice inspect hf:o/r:Q4_K_M").output.find("16257536") != std::string::npos);
  check_fails("sluice plan hf:o/r:Q4_0", 3, "no-Q4_0.gguf");
  check_fails("sluice pull hf:o/r", 2, "name one");
  // Nothing is left of it.
  CHECK_FALSE(fs::exists(caches.repository()));
  CHECK(files_in(headers) == 1);
  CHECK(fs::exists(headers / "header-new"));
}

TEST_CASE("without a cache and a folder for temporary files a header has no place") {
  check_fails("unset HOME XDG_CACHE_HOME HF_HOME; TMPDIR=/no/such sluice plan hf:a/b/c.gguf", 5,
              "TMPDIR names no folder");
}

TEST_CASE("the list has the speed of a model that has run here, and of no other") {
  SmallHub hub;
  const Caches caches(hub);
  const auto speed = [](const std::string& before) {
    const Result result = shell(before + "sluice list --json");
    INFO(result.errors);
    REQUIRE(result.status == 0);
    for (const nlohmann::json& model : nlohmann::json::parse(result.output)) {
      if (text_of(model, "name") == "demo") return model.at("predicted_decode_tokens_per_s");
    }
    return nlohmann::json("not listed");
  };
  CHECK(speed("").is_null());
  const nlohmann::json known =
      speed("sluice run demo --raw -p One -n 64 --speculate off >/dev/null --quiet; ");
  REQUIRE(known.is_number());
  CHECK(known.get<double>() > 1);
  CHECK(shell("sluice list").output.find("tokens/s") != std::string::npos);
}

TEST_CASE("all models of a repository are planned by their headers, and one is chosen") {
  SmallHub hub;
  const Caches caches(hub);
  const Folder folder;
  const std::string model = folder.file("small.gguf");
  REQUIRE(shell("sluice synth small " + model).status == 0);
  const std::string large = folder.file("large.gguf");
  REQUIRE(shell("sluice synth small " + large + " --quant Q8_0").status == 0);
  hub.put("sub/small-Q4_K_M.gguf", content(model));
  hub.put("small-Q8_0.gguf", content(large));
  hub.put("mmproj-F16.gguf", content(model));
  hub.put("part-Q4_0-00001-of-00002.gguf", content(model));  // without its second shard
  hub.put("no-Q4_0.gguf", std::string(1'000'000, 'x'));
  hub.put("readme.md", "x");
  // Beside the sanitizer's own memory, which grows with what was measured.
  const std::string budget = sluice::test::is_sanitized ? "1GiB" : "100MiB";
  const std::string usual = " --ctx 512 --threads 1 --for disk=1GB/s,int8=100G/s,dram=";
  const std::string options = usual + "20GB/s --budget ";
  const Result result = shell("sluice plan hf:o/r --json" + options + budget);
  INFO(result.errors);
  REQUIRE(result.status == 0);
  const nlohmann::json json = nlohmann::json::parse(result.output);
  REQUIRE(json.at("files").size() == 2);
  const nlohmann::json &eight = json.at("files").at(0), &four = json.at("files").at(1);
  CHECK(text_of(eight, "name") == "small-Q8_0.gguf");
  CHECK(text_of(eight, "quant") == "Q8_0");
  CHECK(eight.at("bytes").get<std::uint64_t>() == fs::file_size(large));
  CHECK(text_of(four, "name") == "sub/small-Q4_K_M.gguf");
  CHECK(four.at("fits").get<bool>());
  CHECK(four.at("streamed_bytes_per_step").get<std::uint64_t>() == 0);
  CHECK(four.at("predicted_decode_tokens_per_s").get<double>() >
        eight.at("predicted_decode_tokens_per_s").get<double>());
  CHECK(eight.at("is_choice").get<bool>());
  CHECK_FALSE(four.at("is_choice").get<bool>());
  CHECK(text_of(json.at("choice"), "name") == "small-Q8_0.gguf");
  REQUIRE(json.at("refused").size() == 2);
  CHECK(text_of(json.at("refused").at(0), "reason").find("no-Q4_0.gguf") != std::string::npos);
  CHECK(text_of(json.at("refused").at(1), "reason").find("00002-of-00002.gguf is missing") !=
        std::string::npos);
  const auto read = json.at("header_bytes_read").get<std::uint64_t>();
  CHECK(read == hub.sent_bytes());
  CHECK(read < (fs::file_size(model) + fs::file_size(large)) / 50);
  const std::string table = shell("sluice plan hf:o/r" + options + budget).output;
  INFO(table);
  CHECK(table.find("* small-Q8_0.gguf") != std::string::npos);
  CHECK(table.find("refused: ") != std::string::npos);
  CHECK(table.find("mmproj") == std::string::npos);
  // It is a table, whether one asks for that or not.
  CHECK(shell("sluice plan --table hf:o/r" + options + budget).output.find("* small-Q8_0") !=
        std::string::npos);
  // Where none is fast enough to read along with, it is the fastest.
  CHECK(shell("sluice plan hf:o/r" + usual + "40MB/s --budget " + budget)
            .output.find("* sub/small-Q4_K_M.gguf") != std::string::npos);
  check_fails("sluice plan --table hf:o/r --budgets 1GiB,2GiB", 2, "one --budget");
  const Result none = shell("sluice plan hf:o/r" + options + "2MiB");
  CHECK(none.status == 4);
  CHECK(none.errors.find("none of the files fits") != std::string::npos);
  check_fails("sluice plan hf:o/other", 5, "o/other");
  CHECK(files_in(caches.folder.path() / "cache/sluice/headers") == 0);
}

TEST_CASE(
    "a file of a repository that comes as a whole only is refused, and the others are planned") {
  SmallHub hub([](const HubRequest& request) {
    return request.path == "/cdn/small-Q8_0.gguf" ? Fault::whole : Fault::none;
  });
  const Caches caches(hub);
  const Folder folder;
  const std::string model = folder.file("small.gguf");
  REQUIRE(shell("sluice synth small " + model).status == 0);
  for (const char* name : {"a-Q4_K_M.gguf", "small-Q8_0.gguf", "z-Q4_K_M.gguf"}) {
    hub.put(name, content(model));
  }
  const Result result = shell("sluice plan hf:o/r --json --ctx 64");
  INFO(result.errors);
  REQUIRE(result.status == 0);
  const nlohmann::json json = nlohmann::json::parse(result.output);
  CHECK(json.at("files").size() == 2);
  REQUIRE(json.at("refused").size() == 1);
  CHECK(text_of(json.at("refused").at(0), "reason").find("gives no parts of files") !=
        std::string::npos);
}

TEST_CASE("what a server does is not told where that is not wanted") {
  std::atomic<int> failures = 0;
  SmallHub hub([&](const HubRequest& request) {
    return request.is_download() && failures++ < 1 ? Fault::error_500 : Fault::none;
  });
  const Caches caches(hub);
  const Folder folder;
  hub.put("m.gguf", content(make_model(folder)));
  CHECK(shell("sluice plan -q hf:o/r/m.gguf --ctx 64").errors.empty());
  CHECK(failures > 1);
  failures = 0;
  CHECK(shell("sluice plan hf:o/r/m.gguf --ctx 64").errors.find("again") != std::string::npos);
}
