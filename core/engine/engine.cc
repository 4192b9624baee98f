#include "core/engine/engine.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/engine/cached_text.h"
#include "core/engine/memory_guard.h"
#include "core/engine/model_key.h"
#include "core/engine/preparation.h"
#include "core/engine/stepper.h"
#include "core/error.h"
#include "core/model/decoder.h"
#include "core/model/weights.h"
#include "kernels/kernel_table.h"
#include "kvcache/kv_cache.h"
#include "topology/thread_team.h"

namespace sluice::engine {
namespace {

using tokenizer::Token;

class CachedSequence final : public Sequence {
 public:
  explicit CachedSequence(CachedText text) : text_(std::move(text)) {}

  std::uint32_t position() const override { return text_.length(); }
  std::uint32_t capacity() const override { return text_.capacity(); }
  void truncate(std::uint32_t position) override { text_.truncate(position); }
  std::uint32_t reachable(std::uint32_t position) const override {
    return text_.reachable(position);
  }
  void checkpoint() override { text_.checkpoint(); }
  bool reserve(std::uint32_t positions) override { return text_.reserve(positions); }
  void expect(std::uint32_t tokens) override { text_.expect(tokens); }
  void accept(std::size_t count) override { text_.accept(count); }
  bool is_long() const override { return text_.is_long(); }

  CachedText& text() { return text_; }
  const CachedText& text() const { return text_; }

 private:
  CachedText text_;
};

// One sequence of the stepper's cache, evaluated in chunks.
class ChunkedSession final : public Session {
 public:
  ChunkedSession(Stepper& stepper, const plan::MemoryPlan& plan, kvcache::Sequence sequence,
                 std::function<void()> before_step)
      : stepper_(stepper),
        plan_(plan),
        text_(stepper, std::move(sequence)),
        before_step_(std::move(before_step)) {}

  std::span<const float> evaluate(std::span<const Token> tokens) override {
    if (tokens.empty()) throw UsageError("there is no token to evaluate");
    require_room(text_.pages(), text_.length(), tokens.size());
    const std::size_t end = position() + tokens.size();
    while (!tokens.empty()) {
      const std::size_t columns = std::min<std::size_t>(tokens.size(), plan_.chunk);
      step(tokens.first(columns), columns == tokens.size() ? 1 : 0, end);
      tokens = tokens.subspan(columns);
    }
    return stepper_.logits(0);
  }

  void evaluate_all(
      std::span<const Token> tokens,
      const std::function<void(std::size_t, std::span<const float>)>& on_logits) override {
    require_room(text_.pages(), text_.length(), tokens.size());
    for (std::size_t done = 0; done < tokens.size();) {
      std::size_t columns = std::min<std::size_t>(tokens.size() - done, plan_.logits_columns);
      // The logits of a step are all those of a short text, or all those of a long one.
      const std::uint32_t limit = stepper_.short_tokens_max();
      if (position() < limit) columns = std::min<std::size_t>(columns, limit - position());
      step(tokens.subspan(done, columns), columns, position() + columns);
      for (std::size_t c = 0; c < columns; ++c) on_logits(done + c, stepper_.logits(c));
      done += columns;
    }
  }

  std::uint32_t position() const override { return text_.length(); }
  std::uint32_t capacity() const override { return text_.capacity(); }
  void clear() override { text_.truncate(0); }
  void truncate(std::uint32_t position) override { text_.truncate(position); }

 private:
  // `end`: the length of the text when logits are wanted next.
  void step(std::span<const Token> tokens, std::size_t logits, std::size_t end) {
    before_step_();
    text_.prepare(static_cast<std::uint32_t>(end), logits != 0);
    const StepPart part{&text_.pages(), tokens, logits, {}, text_.state()};
    stepper_.run({&part, 1});
    text_.appended(tokens, 0);
  }

  Stepper& stepper_;
  const plan::MemoryPlan& plan_;
  CachedText text_;
  std::function<void()> before_step_;
};

// The threads that compute, and where.
struct Team : topology::ThreadTeam {
  explicit Team(const topology::CpuList& on) : ThreadTeam(on), cpus(on) {}
  topology::CpuList cpus;
};

class LoadedEngine final : public Engine {
 public:
  LoadedEngine(std::unique_ptr<const OpenedModel> opened, const EngineOptions& options)
      : opened_(std::move(opened)),
        kernels_(kernels::kernel_table()),
        team_(team_for(options)),
        prepared_(*opened_, options, team_->size()) {
    if (!plan().fits()) throw plan::budget_error(plan());
    check_files();
    check_vocabulary();
    prepared_.planned.layout->load();
    const gguf::Model& model = opened_->model;
    io_reason_ = prepared_.reader.reason;
    notes_ = std::move(prepared_.reader.notes);
    const std::string& budget_note = prepared_.planned.plan.budget.note;
    if (!budget_note.empty()) notes_.insert(notes_.begin(), budget_note);
    for (const std::string& note : prepared_.planned.layout->notes()) notes_.push_back(note);
    std::unique_ptr<streaming::Reader> reader = std::move(prepared_.reader.reader);
    if (options.wrap_reader) reader = options.wrap_reader(std::move(reader));
    tape_ = std::make_unique<streaming::StreamedTape>(
        prepared_.planned.layout->segments(), std::move(reader), plan().tape_options,
        copy_for_kernels(), prepared_.planned.layout->expert_groups());
    // The system can take back pages of a mapping; only anonymous memory needs a guard.
    if (!plan().tape.is_in_page_cache && options.helped == nullptr) {
      MemorySource& memory = options.memory != nullptr ? *options.memory : memory_.emplace();
      guard_.emplace(plan(), *tape_, memory, options.on_change);
    }
    tape_->load(options.on_load);
    stepper_.emplace(*prepared_.planned.decoder, plan(), kernels_, *team_, *tape_,
                     embedding_table("token_embd.weight"), predictor_table(),
                     opened_->tokenizer->vocabulary_size(), suppressed_tokens());
    stepper_->set_stop_check(options.stop_check);
    stepper_->set_watch(options.watch);
    stepper_->set_expert_watch(options.expert_watch);
    if (!options.prompt_cache.folder.empty()) {
      prompt_cache_.emplace(options.prompt_cache, model_key(model), cache());
    }
    if (options.helped == nullptr) pin_.emplace(team_->cpus.front());
    on_change_ = options.on_change;
    state_facts();
  }

  const tokenizer::Tokenizer& tokenizer() const override { return *opened_->tokenizer; }
  const EngineFacts& facts() const override { return facts_; }
  const plan::MemoryPlan& plan() const override { return prepared_.planned.plan; }
  streaming::TapeStatistics tape_statistics() const override { return tape_->statistics(); }
  std::optional<streaming::ExpertStatistics> expert_statistics() const override {
    const auto groups = tape_->expert_statistics();
    return groups.empty() ? std::nullopt : std::optional(streaming::sum_of(groups));
  }

  std::unique_ptr<Sequence> new_sequence(std::uint32_t positions) override {
    if (positions > plan().cache.positions) return nullptr;
    std::optional<kvcache::Sequence> made = cache().new_sequence(capacity_for(positions));
    if (!made) return nullptr;
    return std::make_unique<CachedSequence>(CachedText(*stepper_, std::move(*made)));
  }

  std::unique_ptr<Sequence> fork(const Sequence& source, std::uint32_t prefix,
                                 std::uint32_t positions) override {
    if (prefix > source.position() || prefix > positions) {
      throw UsageError(
          fmt::format("a sequence of {} tokens cannot share {} with one of {} positions",
                      source.position(), prefix, positions));
    }
    if (positions > plan().cache.positions) return nullptr;
    try {
      std::optional<CachedText> made =
          dynamic_cast<const CachedSequence&>(source).text().fork(prefix, capacity_for(positions));
      if (!made) return nullptr;
      return std::make_unique<CachedSequence>(std::move(*made));
    } catch (const std::length_error& e) {
      throw UsageError(e.what());
    }
  }

  std::uint32_t restore(Sequence& sequence, std::span<const Token> tokens) override {
    CachedText& text = dynamic_cast<CachedSequence&>(sequence).text();
    if (text.length() != 0) throw UsageError("only an empty sequence can be restored");
    if (!prompt_cache_) return 0;
    const std::uint32_t restored = prompt_cache_->restore(text.pages(), tokens);
    text.restored(tokens.first(restored));
    return restored;
  }

  void save(const Sequence& sequence, std::span<const Token> tokens) override {
    const CachedText& text = dynamic_cast<const CachedSequence&>(sequence).text();
    if (tokens.size() > text.length()) throw UsageError("only what was evaluated can be saved");
    // While keys are made anew, and that was interrupted, there are fewer than the text has tokens.
    const std::size_t held = std::min<std::size_t>(tokens.size(), text.pages().length());
    if (prompt_cache_) prompt_cache_->save(text.pages(), tokens.first(held));
  }

  std::size_t saved_until(std::size_t tokens) const override {
    if (!prompt_cache_ || !plan().has_states() || tokens == 0) return 0;
    return (tokens - 1) / kvcache::page_positions * kvcache::page_positions;
  }

  std::span<const std::span<const float>> step(std::span<const SequenceWork> works) override {
    const auto text_of = [](const SequenceWork& work) -> CachedText& {
      return dynamic_cast<CachedSequence&>(*work.sequence).text();
    };
    parts_.clear();
    for (const SequenceWork& work : works) {
      check_drafts(work);
      parts_.push_back({&text_of(work).pages(),
                        work.tokens,
                        work.wants_logits ? 1 + work.drafts : 0,
                        work.on_hidden,
                        {},
                        work.drafts});
    }
    check_distinct();
    tell_changes();
    for (std::size_t i = 0; i < works.size(); ++i) {
      CachedText& text = text_of(works[i]);
      text.prepare(static_cast<std::uint32_t>(text.length() + works[i].tokens.size()),
                   works[i].wants_logits);
      parts_[i].state = text.state();
    }
    if (!parts_.empty()) stepper_->run(parts_);
    for (const SequenceWork& work : works) text_of(work).appended(work.tokens, work.drafts);
    results_.clear();
    std::size_t next = 0;
    for (const StepPart& part : parts_) {
      results_.push_back(stepper_->logits(next, part.logits));
      next += part.logits;
    }
    return results_;
  }

  void predict(Sequence& sequence, Token next, std::size_t most,
               const ChooseGuess& choose) override {
    if (!facts_.predicts) throw UsageError("this run has no block that predicts further tokens");
    CachedText& text = dynamic_cast<CachedSequence&>(sequence).text();
    text.give_up_drafts();
    tell_changes();
    stepper_->predict(text.pages(), text.state(), next, most, choose);
  }

  std::vector<float> text_vector(std::span<const float> pooled) const override {
    return prepared_.planned.decoder->text_head().apply(pooled);
  }
  std::uint32_t step_columns() const override { return plan().chunk; }
  std::uint32_t step_logits() const override { return plan().logits_columns; }
  std::uint32_t free_positions() const override { return stepper_->cache().free_positions(); }

  Session& session() override {
    if (!session_) {
      auto sequence = cache().new_sequence(plan().cache.positions);
      if (!sequence) throw UsageError("other sequences have taken the room of the context");
      session_.emplace(*stepper_, plan(), std::move(*sequence), [this] { tell_changes(); });
    }
    return *session_;
  }

 private:
  static std::shared_ptr<Team> team_for(const EngineOptions& options) {
    if (options.helped == nullptr) return std::make_shared<Team>(choose_cpus(options));
    return dynamic_cast<const LoadedEngine&>(*options.helped).team_;
  }

  model::EmbeddingTable embedding_table(const std::string& name) const {
    return {opened_->model, opened_->model.require_tensor(name),
            prepared_.planned.layout->rotations().of_rows(name)};
  }

  std::optional<model::EmbeddingTable> predictor_table() const {
    const model::Predictor* const predictor = prepared_.planned.decoder->predictor();
    if (predictor == nullptr || predictor->table() == "token_embd.weight") return std::nullopt;
    return embedding_table(predictor->table());
  }

  // How weights are copied into anonymous memory: packed, or as they are if the kernels read no
  // panels.
  streaming::StreamedTape::Copy copy_for_kernels() {
    if (!kernels_.matmul.reads_packed) return {};
    return [this](std::size_t turn, std::span<const std::byte> from, std::byte* to) {
      prepared_.planned.layout->pack(turn, from, to, *team_);
    };
  }

  const model::HyperParameters& hyper_parameters() const {
    return prepared_.planned.decoder->hyper_parameters();
  }

  kvcache::KvCache& cache() { return stepper_->cache(); }

  // With a window a sequence has no end, even if the number of its positions is known.
  std::uint32_t capacity_for(std::uint32_t positions) const {
    return plan().cache.positions == kvcache::unlimited ? kvcache::unlimited : positions;
  }

  void tell_changes() {
    if (guard_) guard_->between_steps();
    if (!on_change_ || has_told_trouble_) return;
    const std::string trouble = tape_->trouble();
    has_told_trouble_ = !trouble.empty();
    if (has_told_trouble_) on_change_(trouble);
  }

  void check_drafts(const SequenceWork& work) const {
    if (work.drafts == 0) return;
    if (!facts_.takes_drafts) throw UsageError("this run cannot take tokens back: give no drafts");
    const std::size_t before = work.tokens.size() - std::min(work.tokens.size(), work.drafts);
    if (before == 0 || (before > 1 && facts_.has_states) || !work.wants_logits) {
      throw UsageError("drafts stand behind another token, and want logits");
    }
    const std::size_t end = work.sequence->position() + work.tokens.size();
    const std::uint32_t limit = facts_.short_tokens_max;
    if (end > limit && end - work.drafts <= limit) {
      throw UsageError(fmt::format("drafts make a text longer than {} tokens", limit));
    }
  }

  void check_distinct() {
    std::vector<const kvcache::Sequence*>& sequences = distinct_;
    sequences.clear();
    for (const StepPart& part : parts_) sequences.push_back(part.sequence);
    std::sort(sequences.begin(), sequences.end());
    if (std::adjacent_find(sequences.begin(), sequences.end()) == sequences.end()) return;
    throw UsageError("a sequence has two works in one step: put their tokens together");
  }

  // The weights are those of the header that was read.
  void check_files() const {
    const std::span<const streaming::ReaderFile> opened = prepared_.reader.reader->files();
    for (std::size_t i = 0; i < opened.size(); ++i) {
      opened_->model.files()[i].require_same(opened[i].identity);
    }
  }

  // The model may have more rows than there are tokens (padding), never fewer.
  void check_vocabulary() const {
    if (opened_->tokenizer->vocabulary_size() > hyper_parameters().vocabulary) {
      throw ModelError(
          fmt::format("{}: the tokenizer has {} tokens but the token embedding only {} rows",
                      opened_->model.metadata().source(), opened_->tokenizer->vocabulary_size(),
                      hyper_parameters().vocabulary));
    }
  }

  // Tokens that must never be generated according to the file, such as those that open an image.
  std::vector<Token> suppressed_tokens() const {
    const std::string_view key = "tokenizer.ggml.suppress_tokens";
    const gguf::Metadata& metadata = opened_->model.metadata();
    std::vector<Token> tokens;
    const auto listed = metadata.find_integers(key);
    for (std::size_t i = 0; listed && i < listed->size(); ++i) {
      const std::int64_t token = (*listed)[i];
      if (token < 0 || token >= static_cast<std::int64_t>(opened_->tokenizer->vocabulary_size())) {
        throw ModelError(fmt::format("{}: {} names token {}, but there are only {}",
                                     metadata.source(), key, token,
                                     opened_->tokenizer->vocabulary_size()));
      }
      tokens.push_back(static_cast<Token>(token));
    }
    return tokens;
  }

  void state_facts() {
    facts_.model_name =
        std::string(opened_->model.metadata().find_string("general.name").value_or(""));
    facts_.architecture = hyper_parameters().architecture;
    facts_.isa = std::string(kernels::isa_name(kernels_.isa));
    facts_.io = tape_->reader_name();
    facts_.io_reason = io_reason_;
    facts_.notes = notes_;
    for (const std::string& note : tape_->notes()) facts_.notes.push_back(note);
    facts_.threads = static_cast<unsigned>(team_->size());
    facts_.context = plan().context;
    facts_.short_tokens_max = stepper_->short_tokens_max();
    facts_.vocabulary = hyper_parameters().vocabulary;
    facts_.embedding = hyper_parameters().embedding;
    facts_.has_states = plan().has_states();
    facts_.cuts_back = plan().cuts_back();
    facts_.takes_drafts = prepared_.planned.decoder->takes_drafts() && plan().has_room_for_drafts();
    facts_.predicts = prepared_.planned.decoder->predictor() != nullptr;
    state_text_facts();
    facts_.weights_bytes = opened_->model.data_bytes();
    facts_.work = decode_work(prepared_.planned);
    facts_.pinned_bytes = plan().tape.pinned_bytes;
    facts_.planned_peak_bytes = plan().total_bytes();
  }

  void state_text_facts() {
    const model::TextHead& head = prepared_.planned.decoder->text_head();
    facts_.is_encoder = hyper_parameters().is_encoder;
    facts_.makes_scores = head.makes_scores();
    facts_.text_numbers = head.outputs();
    facts_.has_text_head = head.has_parts();
    const auto pair = opened_->model.metadata().find_string("tokenizer.chat_template.rerank");
    facts_.rerank_template = std::string(pair.value_or(""));
    facts_.pooling_type = opened_->model.metadata().find_int(facts_.architecture + ".pooling_type");
    if (facts_.makes_scores) {
      facts_.pooling_type = static_cast<std::int64_t>(head.spec().scored_pooling);
    }
  }

  std::unique_ptr<const OpenedModel> opened_;
  const kernels::KernelTable& kernels_;
  std::shared_ptr<Team> team_;  // perhaps of the engine that this one helps
  Preparation prepared_;
  std::string io_reason_;
  std::vector<std::string> notes_;
  std::unique_ptr<streaming::StreamedTape> tape_;
  std::optional<Stepper> stepper_;
  std::optional<PromptCache> prompt_cache_;
  std::optional<ChunkedSession> session_;
  std::optional<SystemMemory> memory_;
  std::optional<MemoryGuard> guard_;
  std::function<void(const std::string& line)> on_change_;
  bool has_told_trouble_ = false;
  std::optional<topology::ScopedPin> pin_;
  std::vector<StepPart> parts_;
  std::vector<const kvcache::Sequence*> distinct_;
  std::vector<std::span<const float>> results_;
  EngineFacts facts_;
};

}  // namespace

std::unique_ptr<Engine> Engine::open(const std::filesystem::path& model,
                                     const EngineOptions& options) {
  return open(RunPlanner(model, {}), options);
}

std::unique_ptr<Engine> Engine::open(RunPlanner planner, const EngineOptions& options) {
  planner.opened_->baseline = plan::with_growth(planner.opened_->baseline);
  return std::make_unique<LoadedEngine>(std::move(planner.opened_), options);
}

}  // namespace sluice::engine
