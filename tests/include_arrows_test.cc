// The source tree against its own rules: includes follow the arrows of docs/architecture.md, and
// lines stay short enough to read. Every rule is first tried on text that breaks it.
#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/catch.h"
#include "tests/temporary_folder.h"

namespace {

using Parts = std::set<std::string>;

constexpr std::size_t line_characters_max = 100;
constexpr std::size_t file_lines_habit = 600;

// What each part may include, besides itself. A part is a top-level folder, a folder of core, or
// one of core/http; the headers that lie in core itself are parts of their own.
const std::map<std::string, Parts>& arrows() {
  static const std::map<std::string, Parts> table = [] {
    const Parts leaves = {"base",      "topology",        "kernels",       "streaming",
                          "kvcache",   "core/error.h",    "core/random.h", "core/files",
                          "core/text", "core/allowance.h"};
    auto leaves_and = [&leaves](const Parts& more) {
      Parts all = leaves;
      all.insert(more.begin(), more.end());
      return all;
    };
    const Parts below_plan = leaves_and({"core/gguf", "core/tokenizer", "core/model"});
    const Parts below_rows =
        leaves_and({"core/gguf", "core/tokenizer", "core/chat", "core/constrain", "core/sampling"});
    Parts below_engine = below_plan;
    below_engine.insert("core/plan");
    below_engine.insert("core/chat");
    below_engine.insert("core/sampling");
    Parts below_serve = below_engine;
    below_serve.insert("core/engine");
    below_serve.insert("core/constrain");
    below_serve.insert("core/rows");
    below_serve.insert("core/speculate");
    Parts below_batch = below_serve;
    below_batch.insert("core/serve");
    Parts below_jobs = below_batch;
    below_jobs.insert("core/batch");
    below_jobs.insert("core/http/transport");
    Parts below_api = below_jobs;  // but no batch: it knows the jobs alone
    below_api.erase("core/batch");
    below_api.insert("core/http/jobs");
    Parts below_cli = below_jobs;
    below_cli.insert("core/http/jobs");
    below_cli.insert("core/http/api");
    below_cli.insert("core/synth");
    below_cli.insert("core/quant");
    below_cli.insert("core/convert");
    below_cli.insert("core/fetch");
    Parts everything = below_cli;
    everything.insert("core/cli");
    everything.insert("core/capi");
    return std::map<std::string, Parts>{
        {"base", {}},
        {"topology", {"base"}},
        {"kernels", {}},
        {"streaming", {"base", "topology"}},
        {"kvcache", {"base", "kernels", "topology"}},
        {"core/error.h", {}},
        {"core/random.h", {}},
        {"core/allowance.h", {"base"}},
        {"core/files", {}},
        {"core/text", {}},
        {"core/fetch", leaves_and({"core/gguf"})},
        {"core/gguf", leaves},
        {"core/tokenizer", leaves_and({"core/gguf"})},
        {"core/model", leaves_and({"core/gguf"})},
        {"core/quant", leaves_and({"core/gguf", "core/model"})},
        {"core/convert", leaves_and({"core/gguf", "core/model", "core/quant", "core/tokenizer"})},
        {"core/synth", leaves_and({"core/gguf", "core/quant"})},
        {"core/chat", leaves_and({"core/gguf", "core/tokenizer"})},
        {"core/constrain", leaves_and({"core/gguf", "core/tokenizer"})},
        {"core/sampling", leaves_and({"core/gguf", "core/tokenizer"})},
        {"core/rows", below_rows},
        {"core/speculate", leaves_and({"core/gguf", "core/tokenizer"})},
        {"core/plan", below_plan},
        {"core/engine", below_engine},
        {"core/serve", below_serve},
        {"core/batch", below_batch},
        {"core/capi", below_batch},
        {"core/http/transport", leaves},
        {"core/http/api", below_api},
        {"core/http/jobs", below_jobs},
        {"core/cli", below_cli},
        {"tests", everything},
        {"bench", everything},
    };
  }();
  return table;
}

// "core/gguf/reader.h" -> "core/gguf", "kernels/matmul.h" -> "kernels",
// "core/http/api/keys.h" -> "core/http/api".
std::string part_of(std::string_view path) {
  const std::size_t first = path.find('/');
  if (path.substr(0, first) != "core") return std::string(path.substr(0, first));
  std::size_t end = path.find('/', first + 1);
  if (path.substr(0, end) == "core/http") end = path.find('/', end + 1);
  return std::string(path.substr(0, end));
}

// Is this the path of something of ours, for an include in angle brackets?
bool starts_with_folder_of_ours(std::string_view path) {
  constexpr std::array<std::string_view, 8> folders = {
      "base/", "topology/", "kernels/", "streaming/", "kvcache/", "core/", "tests/", "bench/"};
  return std::any_of(folders.begin(), folders.end(), [&](std::string_view folder) {
    return path.substr(0, folder.size()) == folder;
  });
}

// Why `path` may not include `included`; empty when it may.
std::string objection(const std::string& path, const std::string& included) {
  const auto from = arrows().find(part_of(path));
  if (from == arrows().end()) return "its folder has no place in the order of layers";
  const std::string to = part_of(included);
  if (arrows().count(to) == 0) return "not a path from the root of the project";
  if (from->first == to || from->second.count(to) != 0) return "";
  return from->first + " may not depend on " + to;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::string place(const std::string& path, std::size_t line_index) {
  return path + ":" + std::to_string(line_index + 1) + ": ";
}

// Includes that go against the arrows, as "file:line: what, why". `path` is relative to the root.
// An include that names its file by a macro is reported too: nothing can be said about it.
std::vector<std::string> include_violations(const std::string& path, const std::string& text) {
  static const std::regex directive(R"(^\s*#\s*include\b\s*(.*)$)");
  static const std::regex operand(R"re(^(?:"([^"]+)"|<([^>]+)>).*$)re");
  std::vector<std::string> found;
  const std::vector<std::string> lines = lines_of(text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].find("include") == std::string::npos) continue;  // regex is slow and recursive
    std::smatch match;
    if (!std::regex_match(lines[i], match, directive)) continue;
    const std::string rest = match[1];
    if (!std::regex_match(rest, match, operand)) {
      found.push_back(place(path, i) + rest + ": not a plain file name");
      continue;
    }
    const bool quoted = match[1].matched;
    const std::string included = quoted ? match[1] : match[2];
    if (!quoted && !starts_with_folder_of_ours(included)) continue;
    const std::string why = objection(path, included);
    if (!why.empty()) found.push_back(place(path, i) + included + ": " + why);
  }
  return found;
}

// Characters, not bytes: continuation bytes of UTF-8 do not count.
std::size_t characters(const std::string& line) {
  return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

std::vector<std::string> line_violations(const std::string& path, const std::string& text) {
  std::vector<std::string> found;
  const std::vector<std::string> lines = lines_of(text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (characters(line) > line_characters_max) {
      found.push_back(place(path, i) + "longer than " + std::to_string(line_characters_max));
    }
    if (line.find('\t') != std::string::npos) found.push_back(place(path, i) + "a tab");
    if (line.find('\r') != std::string::npos) found.push_back(place(path, i) + "a carriage return");
    if (!line.empty() && line.back() == ' ') found.push_back(place(path, i) + "a space at the end");
  }
  if (!text.empty() && text.back() != '\n') found.push_back(path + ": no newline at the end");
  return found;
}

// What has a checked form in base: threads that would take signals, mutexes that clang knows
// nothing of, descriptors that an exception leaves open, assertions that are gone in a release
// build. Kernels stand on nothing, and have assertions; the system calls that tests replace are
// made in one file of core/files.
std::vector<std::string> unchecked_things(const std::string& path, const std::string& text) {
  static const std::regex bare(
      R"(std::(j?thread|async|(recursive_|shared_|timed_)*mutex|condition_variable(_any)?)"
      R"(|lock_guard|scoped_lock|unique_lock|shared_lock)\b|\bassert\(|(^|[^\w])::close\()");
  const std::string part = part_of(path);
  std::vector<std::string> found;
  if (part == "base" || part == "kernels" || part == "tests" || part == "bench") return found;
  if (path == "core/files/system_calls.cc") return found;
  const std::vector<std::string> lines = lines_of(text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string code = lines[i].substr(0, lines[i].find("//"));
    std::smatch match;
    const bool may_match =  // regex is slow
        std::ranges::any_of(std::array{"std::", "assert(", "::close("},
                            [&](const char* word) { return code.find(word) != std::string::npos; });
    if (!may_match || !std::regex_search(code, match, bare)) continue;
    found.push_back(place(path, i) + match.str() + ": use what base has for it");
  }
  return found;
}

struct SourceFile {
  std::string path;  // relative to the root, with '/'
  std::string text;
};

// The files below `folder`: sources, or all of them in folders of scripts.
std::vector<SourceFile> files_below(const std::string& folder, bool only_cpp) {
  const std::filesystem::path root = sluice::test::source_folder;
  std::vector<SourceFile> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
    if (!entry.is_regular_file()) continue;
    const std::string extension = entry.path().extension().string();
    if (only_cpp && extension != ".h" && extension != ".cc") continue;
    files.push_back({entry.path().lexically_relative(root).generic_string(),
                     sluice::test::content(entry.path())});
  }
  return files;
}

std::vector<SourceFile> cpp_files() {
  std::vector<SourceFile> all;
  for (const char* folder :
       {"base", "topology", "kernels", "streaming", "kvcache", "core", "tests", "bench"}) {
    for (SourceFile& file : files_below(folder, true)) all.push_back(std::move(file));
  }
  return all;
}

bool may_include(const std::string& path, const std::string& included) {
  const bool quoted = include_violations(path, "#include \"" + included + "\"\n").empty();
  const bool bracketed = include_violations(path, "#include <" + included + ">\n").empty();
  CHECK(quoted == bracketed);
  return quoted;
}

}  // namespace

TEST_CASE("leaves include themselves, and of the project what the arrows name") {
  const std::map<std::string, Parts> allowed = {{"base", {}},
                                                {"topology", {"base"}},
                                                {"kernels", {}},
                                                {"streaming", {"base", "topology"}},
                                                {"kvcache", {"base", "kernels", "topology"}}};
  for (const auto& [leaf, below] : allowed) {
    CHECK(may_include(leaf + "/a.cc", leaf + "/b.h"));
    for (const std::string other : {"base", "topology", "kernels", "streaming", "kvcache",
                                    "core/gguf", "core/cli", "tests", "bench"}) {
      INFO(leaf << " -> " << other);
      const bool expected = leaf == other || below.count(other) != 0;
      CHECK(may_include(leaf + "/a.cc", other + "/b.h") == expected);
    }
    CHECK_FALSE(may_include(leaf + "/a.cc", "core/error.h"));
  }
}

TEST_CASE("inside core the arrows point one way") {
  // Each row: a folder, and which of the folders below it may include.
  const std::vector<std::string> folders = {"gguf", "tokenizer", "chat",  "constrain", "model",
                                            "plan", "engine",    "batch", "cli"};
  const std::map<std::string, Parts> allowed = {
      {"gguf", {}},
      {"tokenizer", {"gguf"}},
      {"chat", {"gguf", "tokenizer"}},
      {"constrain", {"gguf", "tokenizer"}},
      {"model", {"gguf"}},
      {"plan", {"gguf", "tokenizer", "model"}},
      {"engine", {"gguf", "tokenizer", "chat", "model", "plan"}},
      {"batch", {"gguf", "tokenizer", "chat", "constrain", "model", "plan", "engine"}},
      {"cli", {"gguf", "tokenizer", "chat", "constrain", "model", "plan", "engine", "batch"}}};
  for (const std::string& from : folders) {
    const std::string path = "core/" + from + "/a.cc";
    for (const std::string& to : folders) {
      INFO(from << " -> " << to);
      const bool expected = from == to || allowed.at(from).count(to) != 0;
      CHECK(may_include(path, "core/" + to + "/b.h") == expected);
    }
    for (const char* leaf : {"base", "topology", "kernels", "streaming", "kvcache"}) {
      CHECK(may_include(path, std::string(leaf) + "/b.h"));
    }
    CHECK(may_include(path, "core/error.h"));
    CHECK(may_include(path, "core/files/b.h"));
    CHECK_FALSE(may_include(path, "tests/catch.h"));
    CHECK_FALSE(may_include(path, "bench/b.h"));
    CHECK_FALSE(may_include("core/error.h", "core/" + from + "/b.h"));
    CHECK_FALSE(may_include("core/files/a.cc", "core/" + from + "/b.h"));
  }
}

TEST_CASE("the rooms of the server know what is below them, and not each other's insides") {
  const std::string transport = "core/http/transport/a.cc", api = "core/http/api/a.cc";
  for (const char* other : {"core/http/api/b.h", "core/http/jobs/jobs_api.h", "core/rows/b.h",
                            "core/serve/b.h", "core/batch/b.h"}) {
    CHECK_FALSE(may_include(transport, other));
  }
  CHECK(may_include(transport, "core/allowance.h"));
  CHECK(may_include(api, "core/http/transport/b.h"));
  CHECK(may_include(api, "core/http/jobs/jobs_api.h"));
  CHECK_FALSE(may_include(api, "core/batch/b.h"));
  CHECK(may_include("core/http/jobs/jobs_api.cc", "core/http/transport/b.h"));
  CHECK_FALSE(may_include("core/http/jobs/jobs_api.cc", "core/http/api/b.h"));
  CHECK(may_include("core/cli/a.cc", "core/http/api/b.h"));
}

TEST_CASE("tests and benches include all but each other") {
  for (const char* included : {"kernels/a.h", "core/error.h", "core/cli/a.h"}) {
    CHECK(may_include("tests/a_test.cc", included));
    CHECK(may_include("bench/a_bench.cc", included));
  }
  CHECK_FALSE(may_include("tests/a_test.cc", "bench/a.h"));
  CHECK_FALSE(may_include("bench/a_bench.cc", "tests/a.h"));
}

TEST_CASE("an include is found however it is written") {
  const std::string path = "kernels/a.cc";
  for (const std::string line :
       {"#include \"core/error.h\"", "#include\"core/error.h\"", "  #  include   \"core/error.h\"",
        "#include <core/error.h>", "#include \"core/error.h\"  // why", "#include \"b.h\"",
        "#include \"../core/error.h\"", "#include \"util/b.h\"", "#include ERROR_HEADER"}) {
    INFO(line);
    CHECK(include_violations(path, line).size() == 1);
    CHECK(include_violations(path, "int a;\n" + line + "\nint b;\n").size() == 1);
  }
  for (const std::string line : {"#include <vector>", "// #include \"core/error.h\"",
                                 "#include <sys/mman.h>", "#define X \"core/error.h\""}) {
    INFO(line);
    CHECK(include_violations(path, line).empty());
  }
  const auto found = include_violations(path, "\n\n#include \"core/gguf/b.h\"\n");
  REQUIRE(found.size() == 1);
  CHECK(found[0] == "kernels/a.cc:3: core/gguf/b.h: kernels may not depend on core/gguf");
  CHECK(include_violations("core/new_layer/a.cc", "#include \"kernels/a.h\"\n").size() == 1);
}

TEST_CASE("lines that break the habits are found") {
  const std::string fits(line_characters_max, 'x');
  CHECK(line_violations("a", fits + "\n").empty());
  CHECK(line_violations("a", fits + "x\n").size() == 1);
  std::string accents;
  for (std::size_t i = 0; i < line_characters_max; ++i) accents += "\xC3\xA9";
  CHECK(line_violations("a", accents + "\n").empty());
  CHECK(line_violations("a", accents + "\xC3\xA9\n").size() == 1);
  CHECK(line_violations("a", "x\ty\n").size() == 1);
  CHECK(line_violations("a", "x\r\n").size() == 1);
  CHECK(line_violations("a", "x \n\n").size() == 1);
  CHECK(line_violations("a", "x").size() == 1);
  CHECK(line_violations("a", "").empty());
}

TEST_CASE("the includes of the source tree follow the arrows") {
  const std::vector<SourceFile> files = cpp_files();
  REQUIRE(std::any_of(files.begin(), files.end(), [](const SourceFile& file) {
    return file.path == "tests/include_arrows_test.cc";
  }));
  for (const SourceFile& file : files) {
    REQUIRE_FALSE(file.text.empty());
    for (const std::string& violation : include_violations(file.path, file.text)) {
      FAIL_CHECK(violation);
    }
  }
}

TEST_CASE("threads, mutexes, descriptors and assertions that nothing checks are found") {
  for (const std::string line :
       {"std::thread thread([] {});", "  std::jthread a;", "std::vector<std::thread> all;",
        "std::async([] {});", "mutable std::mutex mutex_;", "std::shared_mutex a;",
        "const std::lock_guard lock(mutex_);", "std::unique_lock<std::mutex> lock(a);",
        "std::condition_variable_any a;", "  assert(a == b);", "assert(a);", "::close(a);",
        "  if (a) ::close(a);"}) {
    INFO(line);
    CHECK(unchecked_things("streaming/a.cc", "int a;\n" + line + "\n").size() == 1);
    CHECK(unchecked_things("core/http/a.h", line + "\n").size() == 1);
    CHECK(unchecked_things("base/a.h", line + "\n").empty());
  }
  for (const std::string line :
       {"// not std::thread", "std::this_thread::yield();", "static_assert(a == b);",
        "base::MutexLock lock(mutex_);", "std::string thread;", "void File::close() {"}) {
    INFO(line);
    CHECK(unchecked_things("streaming/a.cc", line + "\n").empty());
  }
}

TEST_CASE("the source tree has threads, mutexes and descriptors that are checked") {
  for (const SourceFile& file : cpp_files()) {
    for (const std::string& thing : unchecked_things(file.path, file.text)) FAIL_CHECK(thing);
  }
}

TEST_CASE("the README lists the scripts that there are") {
  const std::filesystem::path root = sluice::test::source_folder;
  Parts there;
  for (const auto& entry : std::filesystem::directory_iterator(root / "scripts")) {
    const std::string name = entry.path().filename().string();
    if (name != "__pycache__") there.insert(name + (entry.is_directory() ? "/" : ""));
  }
  const std::string page = sluice::test::content(root / "README.md");
  const std::string begin = "| `scripts/` |";
  REQUIRE(page.find(begin) != std::string::npos);
  std::string row = page.substr(page.find(begin) + begin.size());
  row.resize(row.find('\n'));
  Parts listed;
  const std::regex name("`([^`]+)`");
  for (std::sregex_iterator at(row.begin(), row.end(), name), end; at != end; ++at) {
    listed.insert((*at)[1].str());
  }
  CHECK(listed == there);
}

// A page with speeds of a model that `sluice synth` has made says so.
bool hides_random_weights(const std::string& page) {
  const bool has_figures =
      page.find("tokens/s") != std::string::npos &&
      (page.find("yi-9b") != std::string::npos || page.find("9B model") != std::string::npos);
  const bool says_it = page.find("random weights") != std::string::npos ||
                       page.find("weights are random") != std::string::npos;
  return has_figures && !(says_it && page.find("`sluice synth") != std::string::npos);
}

TEST_CASE("pages with figures of a model of random weights say that it is one") {
  CHECK(hides_random_weights("yi-9b.gguf: 5.6 tokens/s"));
  CHECK_FALSE(hides_random_weights("yi-9b.gguf, whose weights are random (`sluice synth yi-9b`)"));
  const std::filesystem::path root = sluice::test::source_folder;
  std::vector<std::filesystem::path> pages{root / "README.md"};
  for (const auto& entry : std::filesystem::directory_iterator(root / "docs")) {
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  }
  for (const std::filesystem::path& page : pages) {
    INFO(page.string());
    CHECK_FALSE(hides_random_weights(sluice::test::content(page)));
  }
}

TEST_CASE("the source tree keeps to the habits of its lines") {
  std::vector<SourceFile> files = cpp_files();
  for (SourceFile& file : files_below("scripts", false)) files.push_back(std::move(file));
  for (SourceFile& file : files_below(".ci", false)) files.push_back(std::move(file));
  for (const SourceFile& file : files) {
    // The grammar of the demonstration corpus keeps a sentence with all its variants in one line.
    if (file.path.starts_with("scripts/train-demo/")) continue;
    for (const std::string& violation : line_violations(file.path, file.text)) {
      FAIL_CHECK(violation);
    }
    const std::size_t lines = lines_of(file.text).size();
    if (lines > file_lines_habit) {
      WARN(file.path << " has " << lines << " lines; could it be two files?");
    }
  }
}
