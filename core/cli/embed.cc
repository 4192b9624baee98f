#include "core/cli/embed.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>

#include "core/batch/input.h"
#include "core/cli/batch.h"
#include "core/cli/files.h"
#include "core/cli/interrupt.h"
#include "core/cli/output.h"
#include "core/cli/report.h"
#include "core/cli/sandbox.h"
#include "core/cli/vector_file.h"
#include "core/engine/model_key.h"
#include "core/error.h"
#include "core/rows/pair_prompt.h"
#include "core/rows/row_json.h"
#include "core/rows/task_maker.h"
#include "core/serve/scheduler.h"
#include "core/text/byte_order_mark.h"
#include "core/text/quoted.h"

namespace sluice::cli {
namespace {

using rows::RowJson;

// Rows that are computed, and written, together: enough to sort them by their lengths.
constexpr std::uint64_t block_rows = VectorFile::block_rows;
constexpr std::uint64_t block_bytes_max = std::uint64_t{32} << 20;  // of their texts
constexpr std::uint64_t vectors_bytes = std::uint64_t{16} << 20;    // of a block, as text too

// A row as it stands in the input.
struct TextRow {
  std::string id;  // as JSON; empty: none
  rows::Prompt prompt;
};

// An object with a text or the ids of its tokens, and perhaps an id. Throws BadRow.
TextRow parse_row(const std::string& line) {
  const RowJson json = rows::parse_row_object(line, "row");
  rows::check_members(json, {"id", "input"});
  TextRow row;
  if (const RowJson* id = rows::find_member(json, "id")) {
    if (!id->is_string() && !id->is_number_integer()) {
      rows::throw_wrong_type("id", "a text or a whole number", *id);
    }
    row.id = rows::json_text(*id);
  }
  const RowJson* input = rows::find_member(json, "input");
  if (input == nullptr) throw rows::BadRow("\"input\" is missing");
  row.prompt = rows::text_or_tokens(*input, "input");
  return row;
}

rows::TaskOptions options_for(const engine::Engine& engine) {
  rows::TaskOptions options;
  options.positions_max = engine.facts().context;
  options.remedy =
      engine.facts().is_encoder ? "--ctx, up to what the model was trained for" : "--ctx";
  return options;
}

// Computes tasks together, and keeps what comes of each under its number.
class VectorMaker {
 public:
  VectorMaker(engine::Engine& engine, std::uint32_t parallel)
      : engine_(engine),
        parallel_(parallel),
        pooling_(rows::pooling_of(engine.facts().pooling_type, engine.facts().is_encoder)),
        maker_(engine.tokenizer(), options_for(engine)) {}

  std::variant<rows::Task, rows::RefusedRow> make(const rows::Prompt& prompt,
                                                  std::uint64_t row) const {
    return maker_.make_embedding(prompt, "", row, pooling_);
  }

  // Calls done(task, outcome) for each; the longest texts come first, so that those that share a
  // step have about the same length. Throws Interrupted, between two steps.
  void run(std::vector<rows::Task> tasks, const serve::Scheduler::Sink& done) {
    std::ranges::stable_sort(tasks, std::greater<>(),
                             [](const rows::Task& task) { return task.prompt.size(); });
    std::size_t next = 0;
    const auto source = [&](rows::Priority) -> std::optional<rows::Task> {
      if (next == tasks.size()) return std::nullopt;
      return std::move(tasks[next++]);
    };
    serve::Scheduler scheduler(engine_, {.parallel = parallel_, .kept_max = 0}, source, done);
    while (scheduler.step()) throw_if_interrupted();
  }

 private:
  engine::Engine& engine_;
  std::uint32_t parallel_;
  rows::Pooling pooling_;
  rows::TaskMaker maker_;
};

std::unique_ptr<engine::Engine> open_text_engine(const CommonOptions& common,
                                                 std::uint32_t parallel, std::uint64_t text_bytes,
                                                 std::uint64_t result_bytes = 0) {
  engine::EngineOptions options = options_of_texts(common, parallel, text_bytes);
  options.caller_bytes += result_bytes;
  options.stop_check = throw_if_interrupted;
  return open_engine(common, options);
}

// For batch::Input; its rows are checked by require_rows().
void check_interrupt(const batch::Input::Progress& /*progress*/) {
  throw_if_interrupted();
}

void require_rows(const batch::Input& input, const std::filesystem::path& file) {
  if (input.rows() == 0) throw UsageError(fmt::format("{} has no texts", input_name(file)));
}

// A line of text, without what some systems put around it: a carriage return at its end, and a byte
// order mark before the first.
std::string text_of_line(const batch::Input& input, std::uint64_t row) {
  std::string line = input.read(row);
  if (line.ends_with('\r')) line.pop_back();
  return input.line_number(row) == 1 ? std::string(text::without_byte_order_mark(line)) : line;
}

bool is_json(const std::filesystem::path& file) {
  return file.extension() == ".jsonl";
}

// Throws BadRow.
TextRow read_row(const std::filesystem::path& file, const batch::Input& input, std::uint64_t row) {
  if (is_json(file)) return parse_row(input.read(row));
  return {{}, text_of_line(input, row)};
}

// "2 have an error in place of a vector, such as line 3: ..."
std::string errors_text(const RowErrors& errors, std::string_view place_of) {
  return fmt::format("{} {} an error in place of a {}, such as {}", errors.count,
                     errors.count == 1 ? "has" : "have", place_of,
                     text::printable(errors.first, 200));
}

// The end of the block that begins with row `first`. `more_bytes`: of each row, besides its line.
std::uint64_t block_end(const batch::Input& input, std::uint64_t first, std::uint64_t more_bytes) {
  std::uint64_t bytes = 0;
  std::uint64_t row = first;
  for (; row <= input.rows() && row - first < block_rows; ++row) {
    bytes += input.row_bytes(row) + more_bytes;
    if (bytes > block_bytes_max && row != first) break;
  }
  return row;
}

// The rows of a block, one after the other.
class EmbedRun {
 public:
  EmbedRun(const EmbedOptions& options, const batch::Input& input, engine::Engine& engine)
      : options_(options), input_(input), maker_(engine, options.parallel) {}

  std::uint64_t tokens() const { return tokens_; }

  // The vectors of rows from `first` on, as many as make a block.
  std::vector<RowVector> block(std::uint64_t first) {
    const std::uint64_t end = block_end(input_, first, 0);
    std::vector<RowVector> vectors(end - first);
    std::vector<rows::Task> tasks;
    for (std::uint64_t row = first; row != end; ++row) add(row, vectors[row - first], tasks);
    maker_.run(std::move(tasks), [&](const rows::Task& task, const rows::Outcome& outcome) {
      RowVector& vector = vectors[task.row - first];
      if (outcome.end != rows::Outcome::End::completed)
        return fail("cannot_run", outcome.problem, vector, task.row);
      vector.tokens = outcome.completion.prompt_tokens;
      vector.values = outcome.completion.embedding;
      tokens_ += vector.tokens;
    });
    return vectors;
  }

 private:
  void add(std::uint64_t row, RowVector& vector, std::vector<rows::Task>& tasks) {
    try {
      TextRow text = read_row(options_.file, input_, row);
      vector.id = std::move(text.id);
      auto made = maker_.make(text.prompt, row);
      if (const auto* refused = std::get_if<rows::RefusedRow>(&made)) {
        return fail(std::string(refused->code), refused->reason, vector, row);
      }
      tasks.push_back(std::get<rows::Task>(std::move(made)));
    } catch (const rows::BadRow& bad) {
      fail("invalid_request", bad.what(), vector, row);
    }
  }

  void fail(std::string code, const std::string& problem, RowVector& vector, std::uint64_t row) {
    vector.code = std::move(code);
    vector.problem = fmt::format("line {}: {}", input_.line_number(row), problem);
  }

  const EmbedOptions& options_;
  const batch::Input& input_;
  VectorMaker maker_;
  std::uint64_t tokens_ = 0;
};

// The rows in blocks, so that only their scores are held together.
class RerankRun {
 public:
  static constexpr std::uint64_t bytes_per_row = sizeof(float) + sizeof(std::uint32_t);

  RerankRun(const RerankOptions& options, const batch::Input& input, engine::Engine& engine)
      : options_(options),
        input_(input),
        maker_(engine, options.parallel),
        pair_(engine.tokenizer(), engine.facts().rerank_template),
        scores_(input.rows(), std::numeric_limits<float>::quiet_NaN()) {}

  std::uint64_t tokens() const { return tokens_; }

  void compute() {
    Progress progress(options_.common.quiet);
    for (std::uint64_t first = 1; first <= input_.rows();) {
      progress.show(fmt::format("rerank: {} of {} texts", first - 1, input_.rows()));
      const std::uint64_t end = block_end(input_, first, options_.query.size());
      std::vector<rows::Task> tasks;
      for (; first != end; ++first) {
        auto made = make(first);
        if (auto* task = std::get_if<rows::Task>(&made)) tasks.push_back(std::move(*task));
      }
      maker_.run(std::move(tasks), [&](const rows::Task& task, const rows::Outcome& outcome) {
        if (outcome.end != rows::Outcome::End::completed) {
          if (failure_.empty()) failure_ = outcome.problem;
          return;
        }
        scores_[task.row - 1] = outcome.completion.embedding.front();
        tokens_ += outcome.completion.prompt_tokens;
      });
    }
    progress.clear();
  }

  // The best first. Returns false when the reader of the output has gone away.
  bool print() const {
    const std::vector<std::uint32_t> order = best_first();
    if (options_.json && !write_output("{\n  \"results\": [")) return false;
    for (std::size_t place = 0; place < order.size(); ++place) {
      if (!print_row(order[place], place == 0)) return false;
    }
    if (!options_.json) return true;
    bool is_first = true;
    for (std::uint64_t row = 1; row <= input_.rows(); ++row) {
      if (has_score(row)) continue;
      if (!print_error(row, std::exchange(is_first, false))) return false;
    }
    return write_output(fmt::format("\n  ],\n  \"prompt_tokens\": {}\n}}\n", tokens_));
  }

  RowErrors errors() const {
    RowErrors errors;
    for (std::uint64_t row = 1; row <= input_.rows(); ++row) {
      if (!has_score(row)) errors.add(errors.count == 0 ? problem_of(row).reason : "");
    }
    return errors;
  }

 private:
  bool has_score(std::uint64_t row) const { return !std::isnan(scores_[row - 1]); }

  std::variant<rows::Task, rows::RefusedRow> make(std::uint64_t row) const {
    const auto refused = [&](std::string_view code, const std::string& reason) {
      return rows::RefusedRow{
          {}, code, fmt::format("line {}: {}", input_.line_number(row), reason)};
    };
    try {
      const TextRow text = read_row(options_.file, input_, row);
      const auto* words = std::get_if<std::string>(&text.prompt);
      if (words == nullptr) throw rows::BadRow("\"input\" must be a text here");
      auto made = maker_.make(pair_.encode(options_.query, *words), row);
      const auto* bad = std::get_if<rows::RefusedRow>(&made);
      if (bad != nullptr) return refused(bad->code, bad->reason);
      return made;
    } catch (const rows::BadRow& bad) {
      return refused("invalid_request", bad.what());
    }
  }

  // Of a row that has no score. Problems are found again, since there may be many.
  rows::RefusedRow problem_of(std::uint64_t row) const {
    auto made = make(row);
    if (auto* refused = std::get_if<rows::RefusedRow>(&made)) return std::move(*refused);
    return {{},
            rows::cannot_run,
            fmt::format("line {}: {}", input_.line_number(row),
                        failure_.empty() ? "the model gave no usable number" : failure_)};
  }

  std::vector<std::uint32_t> best_first() const {
    std::vector<std::uint32_t> order(scores_.size());
    std::iota(order.begin(), order.end(), 0U);
    std::erase_if(order, [&](std::uint32_t i) { return std::isnan(scores_[i]); });
    std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) {
      return scores_[a] != scores_[b] ? scores_[a] > scores_[b] : a < b;
    });
    if (options_.top != 0 && options_.top < order.size()) order.resize(options_.top);
    return order;
  }

  bool print_row(std::uint32_t i, bool is_first) const {
    const std::uint64_t line = input_.line_number(i + 1U);
    if (!options_.json) {
      return write_output(
          fmt::format("{}\t{}\t{}\n", scores_[i], line, text_of_line(input_, i + 1U)));
    }
    return write_output(fmt::format(
        "{}\n    {{\n      \"index\": {},\n      \"line\": {},\n      \"relevance_score\": {}\n"
        "    }}",
        is_first ? "" : ",", i, line, nlohmann::ordered_json(scores_[i]).dump()));
  }

  bool print_error(std::uint64_t row, bool is_first) const {
    const rows::RefusedRow problem = problem_of(row);
    return write_output(
        fmt::format("{}\n    {{\n      \"index\": {},\n      \"line\": {},\n      \"code\": {},\n"
                    "      \"message\": {}\n    }}",
                    is_first ? "\n  ],\n  \"errors\": [" : ",", row - 1, input_.line_number(row),
                    rows::json_text(std::string(problem.code)), rows::json_text(problem.reason)));
  }

  const RerankOptions& options_;
  const batch::Input& input_;
  VectorMaker maker_;
  rows::PairPrompt pair_;
  std::vector<float> scores_;  // of rows without one, not a number
  std::string failure_;        // of the first row that could not be run
  std::uint64_t tokens_ = 0;
};

batch::JobState state_of(const EmbedOptions& options, const batch::Input& input) {
  batch::JobState state{input.bytes(), input.digest(), input.rows(), {}, {}};
  state.settings = {
      {"the version of sluice", SLUICE_VERSION},
      {"the model", engine::model_key(gguf::Model::open(options.common.model)).text()},
      {"--ctx", options.common.context},
      {"--window", options.common.window},
      {"--sinks", settled_sinks(options.common)},
      {"--kv", options.common.kv},
      {"the form of the texts", is_json(options.file) ? "JSON" : "lines"}};
  return state;
}

void add_shared_options(CLI::App& command, CommonOptions& common, std::filesystem::path& file,
                        std::uint32_t& parallel, const std::string& file_help) {
  add_common_options(command, common);
  command.add_option("-f,--file", file, file_help)->type_name("FILE")->required();
  command.add_option("--parallel", parallel, "How many texts may share a step")
      ->type_name("N")
      ->check(count_between(1, 4096))
      ->capture_default_str();
}

}  // namespace

engine::EngineOptions options_of_texts(const CommonOptions& common, std::uint32_t parallel,
                                       std::uint64_t text_bytes) {
  engine::EngineOptions options = engine_options(common);
  options.parallel = parallel;
  options.caller_bytes = vectors_bytes + 4 * std::min(text_bytes, block_bytes_max);
  return options;
}

CLI::App* add_embed(CLI::App& program, EmbedOptions& options) {
  CLI::App* command = add_command(
      program, "embed", "Make a vector of each text of a file",
      "Each line that is not blank is a text. In a file named *.jsonl it is an object:\n"
      "{\"id\": \"a\", \"input\": ...}, with a text or an array of token ids, and perhaps an id.\n"
      "The vectors are pooled as the model's file says, and have the length 1.\n"
      "Whatever stopped the command, the same one goes on with OUT; OUT.state holds what it was\n"
      "begun with. In OUT.npy a row whose text cannot be read is one of \"not a number\".\n"
      "Ctrl-C ends with status 75 when rows are left.\n\n"
      "Examples:\n"
      "  sluice embed bge.gguf -f texts.txt -o vectors.npy\n"
      "  sluice embed bge.gguf -f texts.jsonl -o vectors.jsonl --budget 512MiB");
  add_shared_options(*command, options.common, options.file, options.parallel,
                     "The file of texts; - reads the standard input");
  command
      ->add_option("-o,--output", options.output,
                   "Where the vectors go: OUT.npy as an array of float32, any other as lines of "
                   "JSON (default: the standard output)")
      ->type_name("OUT");
  command->add_flag("--restart", options.restart,
                    "Delete the vectors of an earlier run and start over");
  command->get_option("--force")->description(
      "Replace a file that is no report with that of --report; OUT is for --restart");
  return command;
}

namespace {

// Throws Interrupted where nothing has been computed yet, and where there is no file.
int embed_rows(const EmbedOptions& options) {
  refuse_unnamed(options.output);
  const bool has_file = options.output != "-";
  if (options.restart && !has_file) {
    throw UsageError("--restart deletes what is in OUT: give -o, or leave it out");
  }
  enter_sandbox(options.common,
                {.read = {options.file},
                 .write = {options.output, has_file ? batch::state_path(options.output) : "-"},
                 .has_temporary = is_copied(options.file)});
  if (has_file) {
    refuse_files_of_model(options.output, options.common.model);
    if (options.file != "-") {
      refuse_same_file(options.output, options.file, "the input");
      refuse_same_file(batch::state_path(options.output), options.file, "the input");
    }
  }
  const RunWatch watch;
  const batch::Input input(options.file, check_interrupt);
  require_rows(input, options.file);
  std::unique_ptr<engine::Engine> engine =
      open_text_engine(options.common, options.parallel, block_rows * input.row_bytes());
  const engine::EngineFacts& facts = engine->facts();
  if (facts.makes_scores) {
    throw UsageError("the model rates texts by a query and makes no vectors: use `sluice rerank`");
  }
  EmbedRun run(options, input, *engine);
  std::optional<VectorFile> file;
  if (has_file) {
    file.emplace(options.output, state_of(options, input), facts.text_numbers, options.restart);
  }
  Progress progress(options.common.quiet);
  const Stopwatch stopwatch;
  std::uint64_t done = file ? file->rows_done() : 0;
  RowErrors errors = file ? file->errors_found() : RowErrors{};
  const std::uint64_t before = done;
  try {
    while (done < input.rows()) {
      progress.show(fmt::format("embed: {} of {} texts", done, input.rows()));
      const std::vector<RowVector> vectors = run.block(done + 1);
      if (file) file->append(vectors);
      for (std::size_t i = 0; !file && i < vectors.size(); ++i) {
        if (!write_output(vector_line(done + 1 + i, vectors[i]))) throw_no_reader();
      }
      for (const RowVector& vector : vectors) {
        if (!vector.problem.empty()) errors.add(vector.problem);
      }
      done += vectors.size();
    }
  } catch (const Interrupted&) {
    if (!file) throw;
  }
  progress.clear();
  const double seconds = stopwatch.seconds();
  const RunRecord record(*engine);
  engine.reset();  // frees its memory for measuring the limits
  if (!options.common.quiet) {
    std::string line = fmt::format("{} of {} texts are done", done, input.rows());
    if (before != 0) line += fmt::format(", {} of them now", done - before);
    if (errors.count != 0) line += "; " + errors_text(errors, "vector");
    if (done < input.rows()) line += "; the same command goes on with the rest";
    remark(line);
    remark(memory_line(record));
    announce_sandbox();
  }
  watch.write_report(
      options.common, record,
      {.prefill_tokens_per_s = rate(run.tokens(), seconds), .decode_tokens_per_s = std::nullopt});
  return done == input.rows() ? 0 : exit_status_resume;
}

}  // namespace

int run_embed(const EmbedOptions& options) {
  return run_resumable(options.output, [&] { return embed_rows(options); });
}

CLI::App* add_rerank(CLI::App& program, RerankOptions& options) {
  CLI::App* command = add_command(
      program, "rerank", "Rate the texts of a file by how well they answer a query",
      "Each line that is not blank is a text; in a file named *.jsonl it is an object with the\n"
      "text as \"input\", as `sluice embed` has it. Prints a line for each, the best first: its\n"
      "score, the number of its line, and the line. What cannot be rated is told at the end.\n"
      "Scores compare texts for one query; what they mean besides is for the model to say.\n\n"
      "Example:\n"
      "  sluice rerank gte-reranker.gguf --query \"Who wrote it?\" -f passages.txt");
  add_shared_options(*command, options.common, options.file, options.parallel,
                     "The file of texts; - reads the standard input");
  command->add_option("--query", options.query, "What the texts are to answer")
      ->type_name("TEXT")
      ->required();
  command->add_option("--top", options.top, "Print only the best N; 0 prints all")
      ->type_name("N")
      ->check(count_between(0, std::numeric_limits<std::uint32_t>::max()))
      ->capture_default_str();
  add_json_option(*command, options.json);
  return command;
}

int run_rerank(const RerankOptions& options) {
  enter_sandbox(options.common, {.read = {options.file}, .has_temporary = is_copied(options.file)});
  const RunWatch watch;
  const InterruptGuard guard;
  const batch::Input input(options.file, check_interrupt);
  require_rows(input, options.file);
  std::unique_ptr<engine::Engine> engine = open_text_engine(
      options.common, options.parallel, block_rows * (input.row_bytes() + options.query.size()),
      input.rows() * RerankRun::bytes_per_row);
  if (!engine->facts().makes_scores) {
    throw UsageError(
        "the model is no reranker, since it has no tensor 'cls.output.weight': take one that is, "
        "or use `sluice embed`");
  }
  RerankRun run(options, input, *engine);
  const Stopwatch stopwatch;
  run.compute();
  const double seconds = stopwatch.seconds();
  if (!run.print()) return 0;
  const RowErrors errors = run.errors();
  // Without --json nothing else tells of them.
  if (errors.count != 0 && !(options.common.quiet && options.json)) {
    remark(fmt::format("of {} texts {}", input.rows(), errors_text(errors, "score")));
  }
  const RunRecord record(*engine);
  engine.reset();
  watch.write_report(
      options.common, record,
      {.prefill_tokens_per_s = rate(run.tokens(), seconds), .decode_tokens_per_s = std::nullopt});
  return 0;
}

}  // namespace sluice::cli
