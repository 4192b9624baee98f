// A whole model, end to end: results do not depend on how the work is cut up, how much memory there
// is, who reads the file or how many threads compute.
#include "core/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/gguf/gguf.h"
#include "core/gguf/gguf_writer.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/model_file.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"

namespace {

using sluice::engine::Engine;
using sluice::engine::EngineOptions;
using sluice::engine::RunPlanner;
using sluice::kvcache::ElementType;
using sluice::tokenizer::Token;
namespace fs = std::filesystem;

// A few MiB, several layers and a Q4_K_M mix.
fs::path model_file() {
  return sluice::test::model_file("small");
}

std::vector<Token> some_tokens(std::size_t count) {
  std::vector<Token> tokens(count);
  for (std::size_t i = 0; i < count; ++i) tokens[i] = static_cast<Token>((i * 7919 + 300) % 4096);
  return tokens;
}

EngineOptions options_for(std::uint32_t context) {
  EngineOptions options;
  options.context = context;
  options.threads = 1;
  return options;
}

// The logits after every token, one after the other.
std::vector<float> all_logits(const EngineOptions& options, const std::vector<Token>& tokens) {
  const auto engine = Engine::open(model_file(), options);
  std::vector<float> out;
  engine->session().evaluate_all(tokens, [&](std::size_t, std::span<const float> logits) {
    out.insert(out.end(), logits.begin(), logits.end());
  });
  return out;
}

// Room for what the process comes to hold between planning and opening, under a sanitizer too.
// The records of the thread sanitizer are part of what the process holds.
constexpr std::uint64_t slack = std::uint64_t{sluice::test::is_thread_sanitized ? 8 : 4} << 20;

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<float> last_logits(Engine& engine, std::span<const Token> tokens) {
  const std::span<const float> logits = engine.session().evaluate(tokens);
  return {logits.begin(), logits.end()};
}

}  // namespace

TEST_CASE("an engine opened from a planner counts what the process has come to hold") {
  const std::vector<Token> tokens = some_tokens(9);
  RunPlanner planner(model_file(), {});
  const std::uint64_t planned_bytes = planner.plan(options_for(64)).plan.total_bytes();
  const sluice::tokenizer::Tokenizer* tokenizer = &planner.tokenizer();
  const std::vector<char> held(std::size_t{32} << 20, 'x');
  const auto engine = Engine::open(std::move(planner), options_for(64));
  CHECK(engine->plan().total_bytes() >= planned_bytes + held.size() - slack);
  // The records of a sanitizer or of an emulator grow.
  if (!sluice::test::is_sanitized && *sluice::test::emulator == '\0') {
    CHECK(engine->plan().total_bytes() <= planned_bytes + held.size() + slack);
  }
  CHECK(held[planned_bytes % held.size()] == 'x');
  CHECK(&engine->tokenizer() == tokenizer);
  const auto usual = Engine::open(model_file(), options_for(64));
  CHECK(same_bits(last_logits(*engine, tokens), last_logits(*usual, tokens)));
}

TEST_CASE("a planner asks for the weights only if an engine is to be opened") {
  const sluice::test::TemporaryFolder folder;
  const fs::path path = folder.path() / "cut.gguf";
  fs::copy_file(model_file(), path);
  fs::resize_file(path, fs::file_size(path) - 1000);
  CHECK(RunPlanner(path).plan(options_for(64)).plan.fits());
  CHECK_THROWS_AS(RunPlanner(path, {}), sluice::ModelError);
}

TEST_CASE("weights are those of the header that was read, or the file is refused") {
  using sluice::streaming::Io;
  const sluice::test::TemporaryFolder folder;
  const fs::path path = folder / "model.gguf", other = folder / "other.gguf";
  const auto write_over = [&] {  // one byte of the last tensor
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('x');
  };
  const auto replace = [&] {
    fs::copy_file(path, other);
    fs::rename(other, path);
  };
  for (const Io io : {Io::uring, Io::pread, Io::mmap}) {
    EngineOptions options = options_for(64);
    options.io = io;
    for (const bool is_written : {true, false}) {
      INFO("io " << static_cast<int>(io) << ", written to: " << is_written);
      fs::copy_file(model_file(), path, fs::copy_options::overwrite_existing);
      // The clock of a file system may stand still for some milliseconds.
      fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
      RunPlanner planner(path, {});
      is_written ? write_over() : replace();
      try {
        Engine::open(std::move(planner), options);
        FAIL("a file was taken for another");
      } catch (const std::system_error& error) {
        CHECK(std::string(error.what()).find(path.string() + " was replaced") == 0);
      }
      CHECK_NOTHROW(Engine::open(path, options));
    }
  }
}

TEST_CASE("logits do not depend on how a prompt is cut into chunks") {
  const std::vector<Token> tokens = some_tokens(41);
  const std::vector<float> expected = all_logits(options_for(64), tokens);
  const std::size_t vocabulary = expected.size() / tokens.size();
  REQUIRE(std::all_of(expected.begin(), expected.end(), [](float x) { return std::isfinite(x); }));

  for (const std::uint32_t chunk : {1u, 2u, 3u, 7u, 16u, 41u}) {
    EngineOptions options = options_for(64);
    options.chunk = chunk;
    const auto engine = Engine::open(model_file(), options);
    const std::vector<float> last = last_logits(*engine, tokens);
    INFO("chunk " << chunk);
    CHECK(same_bits(last,
                    {expected.end() - static_cast<std::ptrdiff_t>(vocabulary), expected.end()}));
    CHECK(engine->session().position() == 41);
  }
}

TEST_CASE("decoding token by token gives the logits of the prompt evaluated at once") {
  const std::vector<Token> tokens = some_tokens(19);
  const std::vector<float> expected = all_logits(options_for(19), tokens);
  const auto engine = Engine::open(model_file(), options_for(19));
  std::vector<float> got;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::vector<float> logits = last_logits(*engine, std::span(tokens).subspan(i, 1));
    got.insert(got.end(), logits.begin(), logits.end());
  }
  CHECK(same_bits(got, expected));
}

TEST_CASE("logits do not depend on the number of threads") {
  const std::vector<Token> tokens = some_tokens(9);
  EngineOptions two = options_for(16);
  two.threads = 2;
  std::vector<float> with_two;
  try {
    with_two = all_logits(two, tokens);
  } catch (const sluice::UsageError& e) {
    SLUICE_SKIP(e.what());
  }
  CHECK(same_bits(with_two, all_logits(options_for(16), tokens)));
}

TEST_CASE("a session can be cleared and starts anew") {
  const std::vector<Token> tokens = some_tokens(8);
  const auto engine = Engine::open(model_file(), options_for(8));
  const std::vector<float> first = last_logits(*engine, tokens);
  engine->session().clear();
  CHECK(engine->session().position() == 0);
  CHECK(same_bits(last_logits(*engine, tokens), first));
}

TEST_CASE("float32 keys and values are close to half ones and not the same") {
  const std::vector<Token> tokens = some_tokens(24);
  EngineOptions f32 = options_for(24);
  f32.kv = ElementType::f32;
  const std::vector<float> a = all_logits(f32, tokens), b = all_logits(options_for(24), tokens);
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += a[i] * a[i];
  }
  CHECK(difference > 0);
  CHECK(std::sqrt(difference / norm) < 0.1);
}

TEST_CASE("logits are the same bits at every budget and with every reader") {
  const std::vector<Token> tokens = some_tokens(11);
  const std::vector<float> expected = all_logits(options_for(16), tokens);
  for (const auto io :
       {sluice::streaming::Io::uring, sluice::streaming::Io::pread, sluice::streaming::Io::mmap}) {
    EngineOptions options = options_for(16);
    options.io = io;
    bool has_streamed = false;
    for (int eighths = 0; eighths <= 8; eighths += 2) {
      // What this process holds changes from one engine to the next, and the plan with it.
      options.budget_bytes = std::uint64_t{4} << 30;
      const auto all = sluice::engine::plan_run(model_file(), options).plan;
      const std::uint64_t streamed = all.tape.pinned_bytes / 8 * (8 - eighths);
      options.budget_bytes = std::max(all.total_bytes() - streamed, all.least_budget_bytes) + slack;
      INFO("io " << static_cast<int>(io) << ", " << eighths << " eighths pinned");
      CHECK(same_bits(all_logits(options, tokens), expected));
      has_streamed |= sluice::engine::plan_run(model_file(), options).work.streamed_bytes > 0;
    }
    // A small model in the page cache needs less memory than the ring does, and what the thread
    // sanitizer records of memory moves the budget by more than the model has.
    if (sluice::test::is_thread_sanitized) continue;
    CHECK((has_streamed || io == sluice::streaming::Io::mmap));
  }
}

TEST_CASE("a plan fits exactly where its budget is at least the least") {
  constexpr std::uint64_t MiB = std::uint64_t{1} << 20;
  EngineOptions options = options_for(64);
  options.budget_bytes = 1024 * MiB;
  const std::uint64_t least =
      sluice::engine::plan_run(model_file(), options).plan.least_budget_bytes;
  // What this process holds, and the least with it, changes from one plan to the next: the first
  // two budgets lie far from it, one on either side.
  std::vector<std::uint64_t> budgets = {MiB, 1024 * MiB};
  for (std::uint64_t bytes = 0; bytes <= 4 * MiB; bytes += MiB / 8)
    budgets.push_back(least + MiB - bytes);
  bool has_fitted = false, has_not_fitted = false;
  for (const std::uint64_t budget : budgets) {
    options.budget_bytes = budget;
    const auto plan = sluice::engine::plan_run(model_file(), options).plan;
    INFO("budget " << plan.budget.bytes << ", least " << plan.least_budget_bytes);
    CHECK(plan.fits() == (plan.least_budget_bytes <= plan.budget.bytes));
    (plan.fits() ? has_fitted : has_not_fitted) = true;
  }
  CHECK((has_fitted && has_not_fitted));
}

TEST_CASE("a budget that cannot be met is refused with the least that can") {
  EngineOptions options = options_for(64);
  options.budget_bytes = 1 << 20;
  const auto plan = sluice::engine::plan_run(model_file(), options).plan;
  CHECK_FALSE(plan.fits());
  CHECK(plan.least_budget_bytes > plan.budget.bytes);
  const std::string message = sluice::plan::budget_error(plan).what();
  const std::string least = std::to_string((plan.least_budget_bytes + (1 << 20) - 1) >> 20);
  CHECK(message.find(least + " MiB") != std::string::npos);
  // A budget that is far less than the least has a unit of its own.
  auto large = plan;
  large.budget.bytes = std::uint64_t{500} << 20;
  large.least_budget_bytes = std::uint64_t{200} << 30;
  const std::string far = sluice::plan::budget_error(large).what();
  CHECK(far.find("a budget of 500 MiB") != std::string::npos);
  CHECK(far.find(" is 200 GiB") != std::string::npos);
  large.budget.bytes = 4;
  const std::string tiny = sluice::plan::budget_error(large).what();
  CHECK(tiny.find("a budget of 4 bytes") != std::string::npos);
  try {
    Engine::open(model_file(), options);
    FAIL("opened within 1 MiB");
  } catch (const sluice::Error& e) {
    CHECK(e.code() == sluice::ExitCode::budget);
  }
}

TEST_CASE("what cannot be evaluated is refused and changes nothing") {
  const auto engine = Engine::open(model_file(), options_for(4));
  CHECK_THROWS_AS(engine->session().evaluate({}), sluice::UsageError);
  CHECK_THROWS_AS(engine->session().evaluate(some_tokens(5)), sluice::UsageError);
  CHECK_THROWS_AS(engine->session().evaluate(std::vector<Token>{-1}), sluice::UsageError);
  CHECK_THROWS_AS(engine->session().evaluate(std::vector<Token>{4096}), sluice::UsageError);
  CHECK(engine->session().position() == 0);
  engine->session().evaluate(some_tokens(4));
  CHECK_THROWS_AS(engine->session().evaluate(some_tokens(1)), sluice::UsageError);
}

TEST_CASE("a plan gives up drafts only where a chunk of half the size leaves no room for them") {
  if (sluice::test::is_sanitized) SLUICE_SKIP("what sanitizers hold grows with each plan");
  constexpr std::uint64_t KiB = std::uint64_t{1} << 10;
  EngineOptions options = options_for(2048);
  options.drafts = 16;
  const auto plan_of = [&](std::uint32_t chunk, std::uint64_t budget) {
    options.chunk = chunk;
    options.budget_bytes = budget;
    return sluice::engine::plan_run(model_file(), options).plan;
  };
  const std::uint64_t least = plan_of(512, 1024 * KiB * KiB).least_budget_bytes;
  bool has_drafts = false;
  for (std::uint64_t more = 0; more < 8192 * KiB; more += 128 * KiB) {
    const auto plan = plan_of(512, least + more);
    if (!plan.fits() || plan.chunk == 512) continue;
    INFO(plan.budget.bytes << " bytes, chunks of " << plan.chunk);
    has_drafts |= plan.logits_columns > 1;
    if (plan.logits_columns > 1 || plan.chunk == 16) continue;
    // With less memory, for what this process holds changes from one plan to the next.
    const auto other = plan_of(plan.chunk / 2, least + more - 256 * KiB);
    CHECK((other.logits_columns == 1 || other.chunk < plan.chunk / 2));
  }
  CHECK(has_drafts);
}

TEST_CASE("a plan is made from the header alone and covers what it says") {
  const sluice::test::TemporaryFolder folder;
  const fs::path header = folder.path() / "header.gguf";
  const auto model = sluice::gguf::Model::open(model_file());
  fs::copy_file(model_file(), header);
  fs::resize_file(header, model.files()[0].data_offset);

  const auto whole = sluice::engine::plan_run(model_file(), options_for(64)).plan;
  const auto alone = sluice::engine::plan_run(header, options_for(64)).plan;
  REQUIRE(whole.lines.size() == alone.lines.size());
  CHECK(whole.tape.pinned_bytes == alone.tape.pinned_bytes);
  std::uint64_t total = 0;
  for (const auto& line : whole.lines) total += line.bytes;
  CHECK(total == whole.total_bytes());
  CHECK_THROWS_AS(Engine::open(header, options_for(64)), sluice::ModelError);
}

TEST_CASE("a step is rehearsed at every budget, with every reader, and from the header alone") {
  for (const auto io :
       {sluice::streaming::Io::uring, sluice::streaming::Io::pread, sluice::streaming::Io::mmap}) {
    // A minute each there, and the threads do the same with all.
    if (sluice::test::is_thread_sanitized && io != sluice::streaming::Io::uring) continue;
    EngineOptions options = options_for(64);
    options.io = io;
    options.parallel = 3;
    // Planned anew each time: a sanitizer keeps what the rehearsal before has freed.
    const auto plan_for_all = [&options] {
      options.budget_bytes = std::uint64_t{4} << 30;
      return sluice::engine::plan_run(model_file(), options).plan;
    };
    for (const bool streams : {false, true}) {
      const auto all = plan_for_all();
      const std::uint64_t half =
          std::max(all.total_bytes() - all.tape.pinned_bytes / 2, all.least_budget_bytes);
      options.budget_bytes = (streams ? half : all.total_bytes()) + slack;
      const auto step = sluice::engine::RunPlanner(model_file()).rehearse_step(options);
      CHECK(step.seconds > 0);
      CHECK(step.has_read);
    }
    options.budget_bytes = plan_for_all().least_budget_bytes / 2;
    CHECK_THROWS_AS(sluice::engine::RunPlanner(model_file()).rehearse_step(options), sluice::Error);
  }
  const sluice::test::TemporaryFolder folder;
  const fs::path header = folder.path() / "header.gguf";
  fs::copy_file(model_file(), header);
  fs::resize_file(header, sluice::gguf::Model::open(model_file()).files()[0].data_offset);
  const sluice::engine::RunPlanner planner(header);
  auto options = options_for(64);
  options.parallel = 3;
  options.cache_positions = 96;  // not all sequences can be as long as the context
  const auto least = planner.plan(options).plan;
  options.budget_bytes = least.least_budget_bytes + (std::uint64_t{1} << 20);
  const auto narrow = planner.plan(options).plan;
  REQUIRE(narrow.cache.total_positions < std::uint64_t{3} * narrow.cache.positions);
  CHECK(planner.rehearse_step(options).seconds > 0);
  options = options_for(64);
  CHECK_FALSE(planner.rehearse_step(options).has_read);
  // What the process came to hold since it read the header is no part of the plan.
  options.budget_bytes = planner.plan(options).plan.least_budget_bytes;
  const std::vector<char> other(std::size_t{64} << 20, 'x');
  CHECK(planner.rehearse_step(options).seconds > 0);
  REQUIRE(other.back() == 'x');
}

namespace {

// The model with one list more.
fs::path with_suppressed(const fs::path& folder, const std::vector<std::int32_t>& tokens) {
  namespace gguf = sluice::gguf;
  const gguf::Model model = gguf::Model::open(model_file());
  gguf::Writer writer;
  for (const auto& entry : model.metadata().entries()) writer.add(entry.key, entry.value);
  writer.add_array("tokenizer.ggml.suppress_tokens", std::span<const std::int32_t>(tokens));
  for (const gguf::TensorInfo& tensor : model.tensors()) {
    writer.add_tensor(tensor.name, {tensor.dims.data(), tensor.rank}, tensor.type);
  }
  std::ifstream file(model_file(), std::ios::binary);
  const fs::path path = folder / "suppressed.gguf";
  writer.write(path, [&](std::size_t index, const gguf::Writer::Sink& sink) {
    const gguf::TensorInfo& tensor = model.tensors()[index];
    std::vector<std::byte> bytes(tensor.bytes);
    file.seekg(static_cast<std::streamoff>(tensor.offset));
    file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    sink(bytes);
  });
  return path;
}

}  // namespace

TEST_CASE("tokens that the file suppresses are never likely, and all others as before") {
  const sluice::test::TemporaryFolder folder;
  const std::vector<Token> tokens = some_tokens(7);
  const auto logits_of = [&tokens](const fs::path& path) {
    const auto engine = Engine::open(path, options_for(16));
    const auto logits = engine->session().evaluate(tokens);
    return std::vector<float>(logits.begin(), logits.end());
  };
  std::vector<float> expected = logits_of(model_file());
  for (const std::size_t token : {0u, 17u, 4095u}) expected[token] = -INFINITY;
  CHECK(logits_of(with_suppressed(folder.path(), {17, 0, 4095})) == expected);

  for (const std::int32_t wrong : {-1, 1 << 20}) {
    const fs::path path = with_suppressed(folder.path(), {3, wrong});
    CHECK_THROWS_WITH(
        Engine::open(path, options_for(16)),
        sluice::test::Contains("suppress_tokens") && sluice::test::Contains(std::to_string(wrong)));
  }
}

TEST_CASE("models whose numbers make no sense are refused") {
  for (const char* name : {"hp_block_count_100000", "hp_head_count_0", "hp_head_count_kv_3",
                           "hp_rope_dim_odd", "no_architecture"}) {
    const auto path = sluice::test::fixture(std::string("malformed/") + name + ".gguf");
    if (!path) SLUICE_SKIP("malformed fixtures are absent");
    INFO(name);
    CHECK_THROWS_AS(Engine::open(*path, {}), sluice::ModelError);
  }
}
