#include "core/engine/session.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <vector>

#include "core/error.h"
#include "core/gguf/gguf.h"
#include "core/model/architecture.h"
#include "core/model/compute.h"
#include "core/model/weights.h"
#include "kernels/kernel_table.h"
#include "kvcache/kv_cache.h"
#include "streaming/choose_reader.h"
#include "streaming/streamed_tape.h"
#include "topology/machine.h"
#include "topology/thread_team.h"

namespace sluice::engine {
namespace {

using tokenizer::Token;

// Segments of a resident model: large, since nothing waits for them.
constexpr std::size_t slice_bytes_max = std::size_t{64} << 20;
constexpr std::size_t wave_bytes_max = std::size_t{1} << 30;
constexpr std::uint32_t held_max = 64;

// With logits wanted after every token, as many tokens go together: their logits have to be held.
constexpr std::uint32_t logits_columns_max = 32;

kvcache::ElementType element_type(KvType type) {
  return type == KvType::f32 ? kvcache::ElementType::f32 : kvcache::ElementType::f16;
}

std::uint32_t choose_context(const EngineOptions& options, const model::HyperParameters& hp) {
  if (options.context == 0) return std::min<std::uint32_t>(hp.context, 4096);
  return options.context;
}

std::unique_ptr<streaming::StreamedTape> open_tape(const gguf::Model& model,
                                                   const model::WeightLayout& layout) {
  std::vector<std::filesystem::path> files;
  for (const gguf::ModelFile& file : model.files()) files.push_back(file.path);
  streaming::ReaderChoice choice = streaming::choose_reader(streaming::Io::mmap, files, true);
  const streaming::TapeOptions options{std::numeric_limits<std::int64_t>::max(), held_max + 1,
                                       held_max};
  return std::make_unique<streaming::StreamedTape>(layout.segments(), std::move(choice.reader),
                                                   options);
}

topology::CpuList choose_cpus(unsigned threads) {
  try {
    return topology::choose_threads(topology::read_machine(), threads).cpus;
  } catch (const std::invalid_argument& e) {
    throw UsageError(fmt::format("--threads {}: {}", threads, e.what()));
  }
}

class Resident final : public Engine, public Session {
 public:
  Resident(const std::filesystem::path& path, const EngineOptions& options)
      : model_(gguf::Model::open(path)),
        tokenizer_(tokenizer::Tokenizer::from_metadata(model_.metadata())),
        layout_(model_, slice_bytes_max),
        architecture_(model::make_architecture(model_, layout_)),
        embedding_(model_, model_.require_tensor("token_embd.weight")),
        kernels_(kernels::kernel_table()),
        cpus_(choose_cpus(options.threads)),
        team_(cpus_),
        tape_(open_tape(model_, layout_)),
        context_(choose_context(options, hyper_parameters())),
        chunk_(std::clamp<std::uint32_t>(options.chunk, 1, context_)),
        logits_columns_(std::min(logits_columns_max, chunk_)),
        cache_(architecture_->cache_config(context_, element_type(options.kv)), kernels_.attention),
        compute_(kernels_, team_, *tape_, architecture_->size_max(), chunk_, wave_bytes_max),
        x_(std::size_t{chunk_} * hyper_parameters().embedding * sizeof(float)),
        logits_(std::size_t{logits_columns_} * hyper_parameters().vocabulary * sizeof(float)) {
    check_vocabulary();
    layout_.load();
    architecture_->allocate(chunk_, context_, team_.size());
    topology::pin_calling_thread(cpus_.front());
    state_facts();
  }

  const tokenizer::Tokenizer& tokenizer() const override { return *tokenizer_; }
  const EngineFacts& facts() const override { return facts_; }
  Session& session() override { return *this; }

  std::span<const float> evaluate(std::span<const Token> tokens) override {
    if (tokens.empty()) throw UsageError("there is no token to evaluate");
    require_room(tokens.size());
    while (!tokens.empty()) {
      const std::size_t columns = std::min<std::size_t>(tokens.size(), chunk_);
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
      const std::size_t columns = std::min<std::size_t>(tokens.size() - done, logits_columns_);
      run_layers(tokens.subspan(done, columns));
      run_head(0, columns);
      for (std::size_t c = 0; c < columns; ++c) on_logits(done + c, logits(c));
      done += columns;
    }
  }

  std::uint32_t position() const override { return static_cast<std::uint32_t>(cache_.length()); }
  std::uint32_t capacity() const override { return context_; }
  void clear() override { cache_.clear(); }

 private:
  const model::HyperParameters& hyper_parameters() const {
    return architecture_->hyper_parameters();
  }

  // The model may have more rows than there are tokens (padding), never fewer.
  void check_vocabulary() const {
    if (tokenizer_->vocabulary_size() > hyper_parameters().vocabulary) {
      throw ModelError(
          fmt::format("{}: the tokenizer has {} tokens but the token embedding only {} rows",
                      model_.metadata().source(), tokenizer_->vocabulary_size(),
                      hyper_parameters().vocabulary));
    }
  }

  void require_room(std::size_t count) const {
    if (count <= context_ - cache_.length()) return;
    throw UsageError(fmt::format(
        "{} more tokens do not fit: the context holds {}, of which {} are used; give a larger "
        "--ctx",
        count, context_, cache_.length()));
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
    for (std::size_t c = 0; c < tokens.size(); ++c) {
      const Token token = tokens[c];
      if (token < 0 || static_cast<std::uint32_t>(token) >= hyper_parameters().vocabulary) {
        throw UsageError(fmt::format("token {} is not in the vocabulary of {}", token,
                                     hyper_parameters().vocabulary));
      }
      embedding_.row(static_cast<std::size_t>(token), column(c));
    }
    architecture_->run_layers(compute_, {tokens.size(), cache_.length(), cache_, column(0)});
    cache_.set_length(cache_.length() + tokens.size());
  }

  void run_head(std::size_t first, std::size_t columns) {
    architecture_->run_head(compute_, column(first), columns, logits(0).data());
    for (std::size_t c = 0; c < columns; ++c) {  // rows that stand for no token are never chosen
      std::ranges::fill(logits(c).subspan(tokenizer_->vocabulary_size()),
                        -std::numeric_limits<float>::infinity());
    }
  }

  void state_facts() {
    facts_.model_name = std::string(model_.metadata().find_string("general.name").value_or(""));
    facts_.architecture = hyper_parameters().architecture;
    facts_.isa = std::string(kernels::isa_name(kernels_.isa));
    facts_.io = tape_->statistics().reader;
    facts_.threads = static_cast<unsigned>(team_.size());
    facts_.context = context_;
    facts_.vocabulary = hyper_parameters().vocabulary;
    facts_.weights_bytes = model_.data_bytes();
    facts_.hot_bytes = layout_.matrix_bytes();
    facts_.pinned_bytes = tape_->plan().pinned_bytes;
    facts_.streamed_bytes_per_step = tape_->plan().streamed_bytes_per_step;
  }

  gguf::Model model_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  model::WeightLayout layout_;
  std::unique_ptr<model::Architecture> architecture_;
  model::EmbeddingTable embedding_;
  const kernels::KernelTable& kernels_;
  topology::CpuList cpus_;
  topology::ThreadTeam team_;
  std::unique_ptr<streaming::StreamedTape> tape_;
  std::uint32_t context_;
  std::uint32_t chunk_;
  std::uint32_t logits_columns_;
  kvcache::KvCache cache_;
  model::Compute compute_;
  model::AlignedBytes x_;
  model::AlignedBytes logits_;
  EngineFacts facts_;
};

}  // namespace

std::unique_ptr<Engine> Engine::open(const std::filesystem::path& model,
                                     const EngineOptions& options) {
  return std::make_unique<Resident>(model, options);
}

}  // namespace sluice::engine
