// The prompt cache: what is restored gives the same bits as what is computed; it is found by the
// same model, settings and tokens and by no others; and whatever happens to its files, the answers
// stay right.
#include "core/engine/prompt_cache.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "core/engine/engine.h"
#include "core/error.h"
#include "tests/cached_tokens.h"
#include "tests/model_file.h"
#include "tests/program.h"
#include "tests/sanitized.h"
#include "tests/sequence_text.h"
#include "tests/temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using namespace sluice::engine;
using sluice::kvcache::ElementType;
using sluice::test::SequenceText;
using sluice::test::TemporaryFolder;
using sluice::tokenizer::Token;
using Tokens = std::vector<Token>;
using Logits = std::vector<float>;

fs::path model_file(std::uint64_t seed = 7) {
  return sluice::test::model_file("tiny", "Q8_0", seed);
}

Tokens some_tokens(std::size_t count, std::uint32_t seed = 1) {
  std::mt19937 random(seed);
  Tokens tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(random() % 2000);
  return tokens;
}

// An engine with a prompt cache, and what it warned of.
struct Cached {
  explicit Cached(const fs::path& folder, EngineOptions options = {},
                  const fs::path& model = model_file()) {
    options.prompt_cache.folder = folder;
    options.prompt_cache.on_warning = [this](const std::string& line) { warnings.push_back(line); };
    if (options.context == 0 && options.window == 0) options.context = 512;
    engine = Engine::open(model, options);
  }

  // Restores what can be, evaluates the rest in parts, and gives the logits after the last token.
  Logits evaluate(const Tokens& tokens, std::size_t part = 64) {
    restored = restore(std::span(tokens).first(tokens.size() - 1));
    CHECK(restored == text->sequence().position());
    Logits logits;
    for (std::size_t done = restored; done < tokens.size();) {
      const std::size_t next = std::min(part, tokens.size() - done);
      logits = text->append(std::span(tokens).subspan(done, next));
      done += next;
      text->save(std::span(tokens).first(done));
    }
    return logits;
  }

  std::uint32_t restore(std::span<const Token> tokens) {
    text.emplace(*engine, tokens.size());
    return text->restore(tokens);
  }

  std::unique_ptr<Engine> engine;
  std::optional<SequenceText> text;
  std::vector<std::string> warnings;
  std::uint32_t restored = 0;
};

// The logits of an engine that knows no prompt cache.
Logits uninterrupted(const Tokens& tokens, EngineOptions options = {}) {
  if (options.context == 0 && options.window == 0) options.context = 512;
  const auto engine = Engine::open(model_file(), options);
  const std::span<const float> logits = engine->session().evaluate(tokens);
  return {logits.begin(), logits.end()};
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

void flip_byte(const fs::path& path, std::uint64_t offset) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(offset));
  const int byte = file.get();
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(static_cast<char>(byte ^ 0x40));
}

}  // namespace

TEST_CASE("a restored prompt goes on with the bits of an uninterrupted one") {
  const Tokens tokens = some_tokens(300);
  for (const ElementType kv : {ElementType::int8, ElementType::f16, ElementType::f32}) {
    for (const std::uint32_t window : {0U, 96U, 1000U}) {
      for (const std::size_t count : {1U, 32U, 33U, 64U, 65U, 300U}) {
        // Every form of the cache meets every window; every length is tried with one form.
        const bool is_other = kv != ElementType::int8;
        if (is_other && count != 33 && (count != 300 || sluice::test::is_sanitized)) continue;
        INFO(static_cast<int>(kv) << " " << window << " " << count);
        const TemporaryFolder folder;
        EngineOptions options;
        options.kv = kv;
        options.window = window;
        const Tokens prompt(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
        const Logits expected = uninterrupted(prompt, options);
        Cached first(folder.path(), options);
        CHECK(first.evaluate(prompt, 32) == expected);
        CHECK(first.restored == 0);
        CHECK(files_in(folder.path()).size() == count / 32);
        Cached second(folder.path(), options);
        CHECK(second.evaluate(prompt) == expected);
        CHECK(second.restored == (count - 1) / 32 * 32);
        CHECK(second.warnings.empty());
        // And so do the tokens after it.
        const Tokens more = some_tokens(70, 2);
        CHECK(first.text->append(more) == second.text->append(more));
      }
    }
  }
}

TEST_CASE("prompts share what they have in common") {
  const TemporaryFolder folder;
  const Tokens first = some_tokens(200);
  Tokens second = first;
  second[100] ^= 1;
  Cached(folder.path()).evaluate(first);
  Cached other(folder.path());
  CHECK(other.evaluate(second) == uninterrupted(second));
  CHECK(other.restored == 96);
  CHECK(files_in(folder.path()).size() == 6 + 3);
  Cached again(folder.path());
  again.evaluate(second);
  CHECK(again.restored == 192);
  // What has slid in nothing fits a smaller context too.
  EngineOptions small;
  small.context = 40;
  Cached least(folder.path(), small);
  CHECK(least.restore(first) == 32);
}

TEST_CASE("an engine finds only what it would compute itself") {
  const TemporaryFolder folder;
  const Tokens tokens = some_tokens(100);
  Cached(folder.path()).evaluate(tokens);
  const auto restored = [&](const EngineOptions& options, const fs::path& model = model_file()) {
    Cached cached(folder.path(), options, model);
    const std::uint32_t count = cached.restore(tokens);
    CHECK(cached.warnings.empty());
    return count;
  };
  CHECK(restored({}) == 96);
  EngineOptions options;
  options.chunk = 16;
  options.threads = 1;
  options.context = 300;
  CHECK(restored(options) == 96);
  options = {};
  options.kv = ElementType::f16;
  CHECK(restored(options) == 0);
  options = {};
  options.window = 64;
  CHECK(restored(options) == 0);
  // Another model with the same header, and the same one under another name.
  CHECK(restored({}, model_file(8)) == 0);
  const TemporaryFolder elsewhere;
  fs::copy_file(model_file(), elsewhere.path() / "copy.gguf");
  CHECK(restored({}, elsewhere.path() / "copy.gguf") == 96);
}

TEST_CASE("a damaged page is passed over with a warning, and made anew") {
  const Tokens tokens = some_tokens(150);
  const Logits expected = uninterrupted(tokens);
  const TemporaryFolder folder;
  Cached(folder.path()).evaluate(tokens);
  const auto files = files_in(folder.path());
  REQUIRE(files.size() == 4);
  std::mt19937 random(4);
  std::set<std::uint32_t> lengths;
  // Each kind of damage meets each page once in 20 rounds.
  constexpr int rounds = sluice::test::is_sanitized ? 20 : 40;
  for (int round = 0; round < rounds; ++round) {
    const fs::path& file = files[static_cast<std::size_t>(round) % files.size()];
    const std::uint64_t bytes = fs::file_size(file);
    if (round % 5 == 0) {
      fs::resize_file(file, random() % bytes);
    } else if (round % 5 == 1) {
      fs::remove(file);
      fs::copy_file(files[static_cast<std::size_t>(round + 1) % files.size()], file);
    } else {
      flip_byte(file, round % 2 == 0 ? random() % bytes : random() % 200);
    }
    Cached cached(folder.path());
    CHECK(cached.evaluate(tokens) == expected);
    REQUIRE(cached.warnings.size() == 1);
    CHECK(cached.warnings[0].find(file.string()) != std::string::npos);
    lengths.insert(cached.restored);
    Cached after(folder.path());
    CHECK(after.evaluate(tokens) == expected);
    CHECK(after.restored == 128);
    CHECK(after.warnings.empty());
  }
  CHECK(lengths == std::set<std::uint32_t>{0, 32, 64, 96});
}

TEST_CASE("with a window, what has slid out before it was kept is not missed") {
  const TemporaryFolder folder;
  const Tokens tokens = some_tokens(400);
  EngineOptions options;
  options.window = 64;
  options.sinks = 4;
  Cached first(folder.path(), options);
  // In one part: only now is anything kept.
  CHECK(first.evaluate(tokens, 400) == uninterrupted(tokens, options));
  Cached second(folder.path(), options);
  CHECK(second.evaluate(tokens, 32) == uninterrupted(tokens, options));
  CHECK(second.restored < 400);
  Cached third(folder.path(), options);
  CHECK(third.evaluate(tokens) == uninterrupted(tokens, options));
  CHECK(third.restored == 384);
}

TEST_CASE("the folder keeps to its size, and a text to its rules") {
  const TemporaryFolder folder;
  const Tokens tokens = some_tokens(200);
  Cached(folder.path()).evaluate(tokens);
  const std::uint64_t page_bytes = fs::file_size(files_in(folder.path()).front());
  EngineOptions options;
  options.prompt_cache.bytes_max = 2 * page_bytes;
  Cached small(folder.path(), options);
  CHECK(files_in(folder.path()).size() == 2);
  CHECK(small.evaluate(tokens) == uninterrupted(tokens));
  CHECK(small.restored == 64);  // the last pages have gone first
  CHECK(files_in(folder.path()).size() == 2);

  CHECK_THROWS_AS(small.text->restore(tokens), sluice::UsageError);
  CHECK_THROWS_AS(small.text->save(some_tokens(201)), sluice::UsageError);
  EngineOptions plain;
  plain.context = 64;
  const auto without = Engine::open(model_file(), plain);
  SequenceText other(*without, 40);
  CHECK(other.restore(tokens) == 0);
  other.append(some_tokens(40));
  other.save(some_tokens(40));
  small.text->sequence().truncate(10);
  CHECK(small.text->sequence().position() == 10);
  const Tokens rest(tokens.begin() + 10, tokens.begin() + 90);
  const Tokens all(tokens.begin(), tokens.begin() + 90);
  CHECK(small.text->append(rest) == uninterrupted(all));
}

TEST_CASE("a folder that can no longer be written is a warning, not the end") {
  TemporaryFolder folder;
  const fs::path cache = folder.path() / "cache";
  Cached cached(cache);
  fs::remove(cache);
  const Tokens tokens = some_tokens(100);
  CHECK(cached.evaluate(tokens) == uninterrupted(tokens));
  CHECK(cached.warnings.size() == 1);
}

namespace {

using sluice::test::Folder;
using sluice::test::shell;

std::string long_prompt() {
  std::string text;
  for (int i = 0; i < 120; ++i) text += " tena" + std::to_string(i);
  return text;
}

}  // namespace

TEST_CASE("run and chat use the prompt cache, and say so") {
  const Folder folder;
  const std::string model = sluice::test::make_model(folder);
  const std::string cache = " --prompt-cache " + folder.file("cache") + " ";
  const std::string run = "sluice run " + model + " -n 8 --temp 0 -p '" + long_prompt() + "'";
  const auto expected = shell(run);
  const auto first = shell(run + cache);
  const auto second = shell(run + cache);
  CHECK(first.output == expected.output);
  CHECK(second.output == expected.output);
  CHECK(first.errors.find("from the prompt cache") == std::string::npos);
  CHECK(second.errors.find("from the prompt cache") != std::string::npos);

  const std::string chat = "sluice chat " + model +
                           " --chat-format chatml -n 8 --temp 0 --system '" + long_prompt() + "'";
  const auto talk = shell("printf 'a\\nb\\n' | " + chat + cache);
  CHECK(talk.output == shell("printf 'a\\nb\\n' | " + chat).output);
  // The system text is there for any conversation, and after a reset.
  const auto other = shell("printf 'c\\n/reset\\nb\\n' | " + chat + cache);
  CHECK(other.errors.find("from the prompt cache") != std::string::npos);
  CHECK(other.output == shell("printf 'c\\n/reset\\nb\\n' | " + chat).output);

  sluice::test::write(folder.file("file"), "");
  sluice::test::check_fails(run + " -q --prompt-cache " + folder.file("file"), 5, "prompt cache");
  sluice::test::check_fails(run + " --prompt-cache-size 1GiB", 2, "--prompt-cache");
  sluice::test::check_fails(run + cache + "--prompt-cache-size auto", 2, "auto");
}

TEST_CASE("a prompt of a model with states is found up to its last whole page") {
  const Folder folder;
  const std::string model = folder.file("model.gguf");
  for (const char* shape : {"tiny-qwen3next", "tiny-rwkv7", "tiny-falcon-h1"}) {
    INFO(shape);
    REQUIRE(shell(std::string("sluice synth --force ") + shape + " " + model).status == 0);
    const std::string run = "sluice run " + model + " --raw -n 8 --temp 0 -p '" + long_prompt();
    const std::string cache = " --prompt-cache " + folder.file(shape);
    const auto expected = shell(run + "'"), longer = shell(run + " and so on'");
    const auto restored = [](const sluice::test::Result& result) {
      std::smatch found;
      const std::regex line("prompt ([0-9]+) tokens.* and ([0-9]+) from the prompt cache");
      if (!std::regex_search(result.errors, found, line)) return std::pair{0, 0};
      return std::pair{std::stoi(found[1]), std::stoi(found[2])};
    };
    const auto first = shell(run + "'" + cache), second = shell(run + "'" + cache);
    const auto third = shell(run + " and so on'" + cache);
    CHECK(first.output == expected.output);
    CHECK(second.output == expected.output);
    CHECK(third.output == longer.output);
    CHECK(restored(first).second == 0);
    CHECK(restored(second).second % 32 == 0);
    CHECK(restored(second).second > 0);
    CHECK(restored(second).first <= 32);  // what is left to compute
    CHECK(restored(third).second == restored(second).second);
  }
}

TEST_CASE("rows of a batch begin with what the prompt cache has, and have the same results") {
  const Folder folder;
  const std::string model = sluice::test::make_model(folder);
  std::string rows;
  for (const char* end : {"a", "b", "c", "d"}) {
    rows += R"({"prompt": ")" + long_prompt() + end +
            R"(", "max_tokens": 6, "temperature": 1})"
            "\n";
  }
  rows += R"({"prompt": "short", "max_tokens": 6})"
          "\n";
  sluice::test::write(folder.file("in"), rows);
  int outputs = 0;
  // The output, and how many tokens of prompts were found.
  const auto batch = [&](const std::string& options) {
    const std::string out = folder.file("out" + std::to_string(++outputs));
    const std::string report = folder.file("report" + std::to_string(outputs));
    const auto result =
        shell("sluice batch " + model + " " + folder.file("in") + " -q --seed 3 -o " + out +
              " --ordered --report " + report + " " + options);
    INFO(result.errors);
    REQUIRE(result.status == 0);
    CHECK(result.errors.empty());
    const auto facts = nlohmann::json::parse(sluice::test::content(report));
    return std::pair(sluice::test::content(out),
                     facts["prompt_tokens_shared"].get<std::uint64_t>());
  };
  for (const std::string more : {"", " --window 1024", " --parallel 1"}) {
    const std::string cache =
        more + " --prompt-cache " + folder.file("cache" + std::to_string(outputs));
    const auto expected = batch(more), first = batch(cache), second = batch(cache);
    INFO(more);
    CHECK(first.first == expected.first);
    CHECK(second.first == expected.first);
    // How much of the rows before it a row finds depends on what is written by then.
    CHECK(second.second > 1200);  // of all four, some 370 each
    CHECK(second.second > first.second);
  }
  // A run finds what a batch has kept.
  const auto run = shell("sluice run " + model + " -n 8 --temp 0 --raw -p '" + long_prompt() +
                         "' --prompt-cache " + folder.file("cache0"));
  CHECK(run.errors.find("from the prompt cache") != std::string::npos);
}

TEST_CASE("a run that is killed at any moment never misleads the next one, nor do two at once") {
  const Folder folder;
  const std::string model = sluice::test::make_model(folder);
  const std::string arguments = " run " + model + " -n 8 --temp 0 -p '" + long_prompt() + "'";
  const std::string run = "sluice" + arguments;
  const auto expected = shell(run);
  REQUIRE(expected.status == 0);
  std::mt19937 random(8);
  for (int round = 0; round < 15; ++round) {
    const std::string cache = " --prompt-cache " + folder.file("cache" + std::to_string(round / 3));
    // The program itself, not a shell that runs it.
    shell("'" + sluice::test::program + "'" + arguments + cache + " & pid=$!; sleep 0.0" +
          std::to_string(10 + random() % 80) + "; kill -9 $pid; wait $pid");
    const auto next = shell(run + cache);
    CHECK(next.output == expected.output);
    CHECK(next.errors.find("warning") == std::string::npos);
  }
  const std::string cache =
      " --prompt-cache " + folder.file("shared") + " --prompt-cache-size 1MiB";
  const auto both = shell(run + " -q" + cache + " >" + folder.file("a") + " & " + run + " -q" +
                          cache + " >" + folder.file("b") + "; wait $!");
  CHECK(both.errors.empty());
  CHECK(sluice::test::content(folder.file("a")) == expected.output);
  CHECK(sluice::test::content(folder.file("b")) == expected.output);
}

namespace {

// A cache with keys, values and states, some layers with a window of their own.
sluice::kvcache::CacheConfig hybrid_cache() {
  sluice::kvcache::CacheConfig config;
  config.layers = {{0, 0, 0, 0, 33}, {1, 5, 3, 0, 0}, {2, 17, 24, 100, 16}};
  config.positions = 200;
  config.step_columns = 64;
  config.checkpoints = 1;
  return config;
}

// A sequence of its own cache that was restored from a folder.
struct Restored {
  explicit Restored(const fs::path& folder)
      : cache(hybrid_cache(), sluice::test::table()),
        kept({.folder = folder}, PageKey{}, cache),
        tracked(sluice::test::start(cache)) {}

  std::uint32_t restore(const std::vector<std::uint32_t>& tokens) {
    const Tokens wanted(tokens.begin(), tokens.end());
    const std::uint32_t length = kept.restore(tracked.sequence, wanted);
    tracked.tokens.assign(tokens.begin(), tokens.begin() + length);
    return length;
  }
  void save() {
    const Tokens tokens(tracked.tokens.begin(), tracked.tokens.end());
    kept.save(tracked.sequence, tokens);
  }
  void step(const std::vector<std::uint32_t>& tokens) {
    sluice::test::step(cache, tracked, tokens);
  }

  sluice::kvcache::KvCache cache;
  PromptCache kept;
  sluice::test::Tracked tracked;
};

}  // namespace

TEST_CASE("recurrent states are restored where they were saved, and nothing without them") {
  const TemporaryFolder folder;
  sluice::test::Rng rng(94);
  const std::vector<std::uint32_t> tokens = sluice::test::random_tokens(130, rng);
  const auto part = [&](std::size_t begin, std::size_t end) {
    return std::vector(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                       tokens.begin() + static_cast<std::ptrdiff_t>(end));
  };
  Restored first(folder.path());
  CHECK(first.restore(tokens) == 0);
  first.step(part(0, 50));
  first.save();  // a page, of which there is no state
  CHECK(Restored(folder.path()).restore(tokens) == 0);
  first.step(part(50, 64));
  first.tracked.sequence.checkpoint();
  first.step(part(64, 100));
  first.save();  // three pages, and the state after two
  Restored second(folder.path());
  REQUIRE(second.restore(tokens) == 64);
  const auto found = sluice::test::step(second.cache, second.tracked, part(64, 130)).back();
  const std::vector<float> expected = sluice::test::alone(hybrid_cache(), tokens);
  CHECK(found == expected);
  Restored shorter(folder.path());
  CHECK(shorter.restore(part(0, 63)) == 0);
}

TEST_CASE("a page that cannot be restored is not held") {
  const bool has_states = GENERATE(false, true);
  const TemporaryFolder folder;
  sluice::kvcache::CacheConfig config = hybrid_cache();
  if (!has_states) config.layers.erase(config.layers.begin());
  config.sequences = 2;
  sluice::kvcache::KvCache cache(config, sluice::test::table());
  PromptCache kept({.folder = folder.path()}, PageKey{}, cache);
  sluice::test::Rng rng(95);
  const std::vector<std::uint32_t> numbers = sluice::test::random_tokens(64, rng);
  const Tokens tokens(numbers.begin(), numbers.end());
  {
    sluice::test::Tracked first = sluice::test::start(cache);
    sluice::test::step(cache, first, numbers);
    first.sequence.checkpoint();
    kept.save(first.sequence, tokens);
  }
  for (const fs::path& file : files_in(folder.path())) flip_byte(file, fs::file_size(file) - 1);
  PromptCache damaged({.folder = folder.path()}, PageKey{}, cache);
  sluice::test::Tracked second = sluice::test::start(cache);
  const std::uint32_t others = cache.free_positions();
  CHECK(damaged.restore(second.sequence, tokens) == 0);
  CHECK(cache.free_positions() == others);
  second.sequence.reserve(0);
  CHECK(cache.free_positions() == config.positions);
}
