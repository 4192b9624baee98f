#include "core/engine/session.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "core/engine/memory_guard.h"
#include "core/error.h"
#include "core/gguf/gguf.h"
#include "core/model/architecture.h"
#include "core/model/compute.h"
#include "core/model/weights.h"
#include "kernels/kernel_table.h"
#include "kvcache/kv_cache.h"
#include "topology/thread_team.h"

namespace sluice::engine {
namespace {

using tokenizer::Token;

kvcache::ElementType element_type(KvType type) {
  return type == KvType::f32 ? kvcache::ElementType::f32 : kvcache::ElementType::f16;
}

topology::CpuList choose_cpus(unsigned threads) {
  try {
    return topology::choose_threads(topology::read_machine(), threads).cpus;
  } catch (const std::invalid_argument& e) {
    throw UsageError(fmt::format("--threads {}: {}", threads, e.what()));
  }
}

// A model whose header and tokenizer are loaded, and what the process holds with them.
struct OpenedModel {
  OpenedModel(const std::filesystem::path& path, const gguf::ParseOptions& options)
      : model(gguf::Model::open(path, options)) {
    watch.header_loaded();
    tokenizer = tokenizer::Tokenizer::from_metadata(model.metadata());
    baseline = watch.finish();
  }

  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> paths;
    for (const gguf::ModelFile& file : model.files()) paths.push_back(file.path);
    return paths;
  }

  plan::BaselineWatch watch;
  gguf::Model model;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  plan::Baseline baseline;
};

// A plan and the reader that it was made for.
struct Preparation {
  Preparation(const OpenedModel& opened, const EngineOptions& options, std::size_t threads) {
    plan::Request request;
    request.budget_bytes = options.budget_bytes;
    request.context = options.context;
    request.chunk = options.chunk;
    request.kv = element_type(options.kv);
    request.threads = static_cast<unsigned>(threads);
    request.io = options.io;
    planned = plan::plan_model(opened.model, opened.baseline, request);
    reader = streaming::choose_reader(options.io, opened.files(), planned.plan.is_resident);
    // The reader may be another than was asked for, or read in larger units than is usual.
    const bool maps_files = reader.reader->maps_files();
    if (maps_files == planned.plan.tape.is_in_page_cache &&
        reader.reader->alignment() == request.alignment) {
      return;
    }
    request.io = maps_files ? streaming::Io::mmap : streaming::Io::pread;
    request.alignment = reader.reader->alignment();
    planned = plan::plan_model(opened.model, opened.baseline, request);
  }

  plan::PlannedModel planned;
  streaming::ReaderChoice reader;
};

DecodeWork decode_work(const plan::PlannedModel& planned) {
  return {planned.layout->matrix_bytes(), planned.plan.tape.streamed_bytes_per_step,
          planned.layout->matrix_weights()};
}

class Runner final : public Engine, public Session {
 public:
  Runner(const std::filesystem::path& path, const EngineOptions& options)
      : opened_(path, {}),
        kernels_(kernels::kernel_table()),
        cpus_(choose_cpus(options.threads)),
        team_(cpus_),
        prepared_(opened_, options, team_.size()) {
    if (!plan().fits()) throw plan::budget_error(plan());
    check_vocabulary();
    prepared_.planned.layout->load();
    const gguf::Model& model = opened_.model;
    embedding_.emplace(model, model.require_tensor("token_embd.weight"));
    io_reason_ = prepared_.reader.reason;
    notes_ = std::move(prepared_.reader.notes);
    tape_ = std::make_unique<streaming::StreamedTape>(prepared_.planned.layout->segments(),
                                                      std::move(prepared_.reader.reader),
                                                      plan().tape_options, options.on_load);
    allocate(options);
    // Pages of a mapping are the system's to take back; only memory of its own needs a guard.
    if (!plan().tape.is_in_page_cache) guard_.emplace(plan(), *tape_, options.on_memory_change);
    pin_.emplace(cpus_.front());
    state_facts();
  }

  const tokenizer::Tokenizer& tokenizer() const override { return *opened_.tokenizer; }
  const EngineFacts& facts() const override { return facts_; }
  const plan::MemoryPlan& plan() const override { return prepared_.planned.plan; }
  streaming::TapeStatistics tape_statistics() const override { return tape_->statistics(); }
  Session& session() override { return *this; }

  std::span<const float> evaluate(std::span<const Token> tokens) override {
    if (tokens.empty()) throw UsageError("there is no token to evaluate");
    require_room(tokens.size());
    while (!tokens.empty()) {
      const std::size_t columns = std::min<std::size_t>(tokens.size(), plan().chunk);
      run_layers(tokens.first(columns));
      tokens = tokens.subspan(columns);
      if (tokens.empty()) run_head(columns - 1, 1);
    }
    return logits(0);
  }

  void evaluate_all(
      std::span<const Token> tokens,
      const std::function<void(std::size_t, std::span<const float>)>& on_logits) override {
    require_room(tokens.size());
    for (std::size_t done = 0; done < tokens.size();) {
      const std::size_t columns =
          std::min<std::size_t>(tokens.size() - done, plan().logits_columns);
      run_layers(tokens.subspan(done, columns));
      run_head(0, columns);
      for (std::size_t c = 0; c < columns; ++c) on_logits(done + c, logits(c));
      done += columns;
    }
  }

  std::uint32_t position() const override { return static_cast<std::uint32_t>(cache_->length()); }
  std::uint32_t capacity() const override { return plan().context; }
  void clear() override { cache_->clear(); }

 private:
  const model::HyperParameters& hyper_parameters() const {
    return architecture().hyper_parameters();
  }

  model::Architecture& architecture() const { return *prepared_.planned.architecture; }

  // Everything of size, as planned.
  void allocate(const EngineOptions& options) {
    const plan::MemoryPlan& p = plan();
    const model::HyperParameters& hp = hyper_parameters();
    cache_.emplace(architecture().cache_config(p.context, element_type(options.kv)),
                   kernels_.attention);
    architecture().allocate(p.chunk, p.context, team_.size());
    compute_.emplace(kernels_, team_, *tape_, architecture().size_max(), p.chunk, p.wave_bytes_max);
    x_ = model::AlignedBytes(std::size_t{p.chunk} * hp.embedding * sizeof(float));
    logits_ = model::AlignedBytes(std::size_t{p.logits_columns} * hp.vocabulary * sizeof(float));
  }

  // The model may have more rows than there are tokens (padding), never fewer.
  void check_vocabulary() const {
    if (opened_.tokenizer->vocabulary_size() > hyper_parameters().vocabulary) {
      throw ModelError(
          fmt::format("{}: the tokenizer has {} tokens but the token embedding only {} rows",
                      opened_.model.metadata().source(), opened_.tokenizer->vocabulary_size(),
                      hyper_parameters().vocabulary));
    }
  }

  void require_room(std::size_t count) const {
    if (count <= capacity() - cache_->length()) return;
    throw UsageError(fmt::format(
        "{} more tokens do not fit: the context holds {}, of which {} are used; give a larger "
        "--ctx",
        count, capacity(), cache_->length()));
  }

  float* column(std::size_t c) const {
    return reinterpret_cast<float*>(x_.data()) + c * hyper_parameters().embedding;
  }

  std::span<float> logits(std::size_t c) const {
    const std::size_t size = hyper_parameters().vocabulary;
    return {reinterpret_cast<float*>(logits_.data()) + c * size, size};
  }

  // Embeds the tokens and runs them through all layers, into the columns of x_.
  void run_layers(std::span<const Token> tokens) {
    if (guard_) guard_->check();
    for (std::size_t c = 0; c < tokens.size(); ++c) {
      const Token token = tokens[c];
      if (token < 0 || static_cast<std::uint32_t>(token) >= hyper_parameters().vocabulary) {
        throw UsageError(fmt::format("token {} is not in the vocabulary of {}", token,
                                     hyper_parameters().vocabulary));
      }
      embedding_->row(static_cast<std::size_t>(token), column(c));
    }
    architecture().run_layers(*compute_, {tokens.size(), cache_->length(), *cache_, column(0)});
    cache_->set_length(cache_->length() + tokens.size());
  }

  void run_head(std::size_t first, std::size_t columns) {
    architecture().run_head(*compute_, column(first), columns, logits(0).data());
    for (std::size_t c = 0; c < columns; ++c) {  // rows that stand for no token are never chosen
      std::ranges::fill(logits(c).subspan(opened_.tokenizer->vocabulary_size()),
                        -std::numeric_limits<float>::infinity());
    }
  }

  void state_facts() {
    facts_.model_name =
        std::string(opened_.model.metadata().find_string("general.name").value_or(""));
    facts_.architecture = hyper_parameters().architecture;
    facts_.isa = std::string(kernels::isa_name(kernels_.isa));
    facts_.io = tape_->statistics().reader;
    facts_.io_reason = io_reason_;
    facts_.notes = notes_;
    for (const std::string& note : tape_->statistics().notes) facts_.notes.push_back(note);
    facts_.threads = static_cast<unsigned>(team_.size());
    facts_.context = capacity();
    facts_.vocabulary = hyper_parameters().vocabulary;
    facts_.weights_bytes = opened_.model.data_bytes();
    facts_.work = decode_work(prepared_.planned);
    facts_.pinned_bytes = plan().tape.pinned_bytes;
    facts_.planned_peak_bytes = plan().total_bytes();
  }

  OpenedModel opened_;
  const kernels::KernelTable& kernels_;
  topology::CpuList cpus_;
  topology::ThreadTeam team_;
  Preparation prepared_;
  std::string io_reason_;
  std::vector<std::string> notes_;
  std::optional<model::EmbeddingTable> embedding_;
  std::unique_ptr<streaming::StreamedTape> tape_;
  std::optional<MemoryGuard> guard_;
  std::optional<kvcache::KvCache> cache_;
  std::optional<model::Compute> compute_;
  std::optional<topology::ScopedPin> pin_;
  model::AlignedBytes x_;
  model::AlignedBytes logits_;
  EngineFacts facts_;
};

}  // namespace

std::unique_ptr<Engine> Engine::open(const std::filesystem::path& model,
                                     const EngineOptions& options) {
  return std::make_unique<Runner>(model, options);
}

PlannedRun plan_run(const std::filesystem::path& model, const EngineOptions& options) {
  const OpenedModel opened(model, {.header_only = true});
  const topology::CpuList cpus = choose_cpus(options.threads);
  const Preparation prepared(opened, options, cpus.size());
  return {prepared.planned.plan, decode_work(prepared.planned), cpus};
}

}  // namespace sluice::engine
