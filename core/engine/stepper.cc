#include "core/engine/stepper.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <limits>
#include <utility>

#include "base/check.h"
#include "core/engine/engine.h"
#include "core/error.h"
#include "core/model/keys.h"

namespace sluice::engine {

using tokenizer::Token;

namespace {

std::uint32_t short_tokens(const model::Decoder& decoder, const kvcache::Window& window) {
  const std::uint32_t most = decoder.short_tokens_max();
  const bool sees_no_more = window.positions != 0 && window.positions <= most;
  return sees_no_more ? kvcache::unlimited : most;
}

}  // namespace

std::string no_text_of(const std::string& architecture) {
  return fmt::format(
      "a model of architecture {} writes no text: it makes vectors of texts, with `sluice embed`, "
      "`sluice rerank` and /v1/embeddings",
      architecture);
}

bool writes_text(const gguf::Model& model) {
  return model::Keys(model).flag_or("attention.causal", true);
}

void require_text(const gguf::Model& model) {
  if (!writes_text(model)) throw UsageError(no_text_of(model::Keys(model).architecture()));
}

void require_room(const kvcache::Sequence& sequence, std::size_t length, std::size_t count) {
  if (count <= sequence.capacity() - length) return;
  throw UsageError(fmt::format(
      "{} more tokens do not fit: the context holds {}, of which {} are used; give a larger --ctx",
      count, sequence.capacity(), length));
}

Stepper::Stepper(model::Decoder& decoder, const plan::MemoryPlan& plan,
                 const kernels::KernelTable& kernels, topology::ThreadTeam& team,
                 streaming::StreamedTape& tape, model::EmbeddingTable embedding,
                 std::optional<model::EmbeddingTable> predictor_embedding, std::size_t tokens,
                 std::vector<Token> suppressed)
    : decoder_(decoder),
      plan_(plan),
      tape_(tape),
      embedding_(std::move(embedding)),
      predictor_embedding_(std::move(predictor_embedding)),
      tokens_(tokens),
      short_tokens_max_(short_tokens(decoder, plan.cache.window)),
      suppressed_(std::move(suppressed)),
      cache_(plan.cache, kernels),
      compute_(kernels, team, tape, decoder.size_max(), plan.chunk, decoder.rotated_max(),
               plan.tape_options.held_max),
      x_(std::size_t{plan.chunk} * decoder.hyper_parameters().embedding * sizeof(float)),
      logits_(decoder.has_head() ? std::size_t{plan.logits_columns} *
                                       decoder.hyper_parameters().vocabulary * sizeof(float)
                                 : 0) {
  decoder_.allocate({plan.chunk, team.size(), plan.cache, plan.kept_columns});
  base::check(
      decoder_.held_bytes() + compute_.held_bytes() + x_.size() == plan.bytes_of("activations") &&
          logits_.size() == plan.bytes_of("logits"),
      "an engine allocates other memory than was planned");
  columns_.reserve(plan.chunk);
  if (decoder_.predictor() != nullptr) guess_state_.resize(decoder_.hyper_parameters().embedding);
  kept_columns_.reserve(plan.kept_columns);
}

void Stepper::run(std::span<const StepPart> parts) {
  check(parts);
  std::size_t wanted = 0;
  for (const StepPart& part : parts) wanted += part.logits;
  // A step without logits ends before the head, and the head should not be read ahead.
  tape_.expect_step_end(wanted == 0 && decoder_.has_head()
                            ? decoder_.head_turn()
                            : std::numeric_limits<std::size_t>::max());
  embed(parts);
  find_kept(parts);
  const auto has_sink = [](const StepPart& part) { return part.on_hidden != nullptr; };
  const float* hidden = nullptr;
  hidden_of_.clear();
  const bool predicts = decoder_.predictor() != nullptr;
  try {
    for (const StepPart& part : parts) {
      cache_.prepare(*part.sequence, static_cast<std::uint32_t>(part.tokens.size()));
    }
    decoder_.run_layers(compute_, {columns_, cache_, column(0), kept_columns_});
    if (predicts) {
      hidden = hidden_ = decoder_.keep_hidden(compute_, column(0), columns_.size());
      store_predicted(parts);
    } else if (std::ranges::any_of(parts, has_sink)) {
      hidden = decoder_.run_output_norm(compute_, column(0), columns_.size());
    }
    if (wanted != 0) run_head(parts, wanted, predicts ? hidden : nullptr);
  } catch (...) {
    for (const StepPart& part : parts) cache_.abandon(*part.sequence);
    throw;
  }
  // The sequences advance only now. A step that failed before has written only behind the ends of
  // its sequences, where the next attempt writes again.
  // Drafts that are not accepted are the same case.
  for (const StepPart& part : parts) {
    if (part.drafts != 0) continue;
    cache_.advance(*part.sequence, static_cast<std::uint32_t>(part.tokens.size()));
  }
  if (hidden != nullptr) tell_hidden(parts, hidden);
  std::size_t first = 0;
  for (const StepPart& part : parts) {
    if (predicts) hidden_of_.push_back({part.sequence, first, part.tokens.size()});
    first += part.tokens.size();
  }
}

// Embeds the tokens again, for the predictor, in the place of what the layers have made of them.
void Stepper::store_predicted(std::span<const StepPart> parts) {
  model::EmbeddingTable& table = predictor_table();
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    table.row(static_cast<std::size_t>(columns_[c].token), column(c));
  }
  decoder_.store_predicted(
      compute_, {columns_, cache_, column(0)}, [&](std::size_t c) -> const float* {
        const auto part = std::ranges::find(parts, columns_[c].sequence, &StepPart::sequence);
        return part == parts.end() || part->state.empty() ? nullptr : part->state.data();
      });
}

std::span<const float> Stepper::state_after(const kvcache::Sequence& sequence,
                                            std::size_t count) const {
  const auto part = std::ranges::find(hidden_of_, &sequence, &Kept::sequence);
  if (part == hidden_of_.end() || count == 0) return {};
  base::check(count <= part->count, "a step has fewer hidden states of a sequence");
  const std::size_t embedding = decoder_.hyper_parameters().embedding;
  return {hidden_ + (part->first + count - 1) * embedding, embedding};
}

void Stepper::predict(kvcache::Sequence& sequence, std::span<const float> state, Token next,
                      std::size_t most, const ChooseGuess& choose) {
  base::check(decoder_.predictor() != nullptr, "a model predicts that has nothing to predict with");
  most = std::min<std::size_t>(most, plan_.chunk);
  require_room(sequence, sequence.length(), most);
  tape_.expect_step_end(std::numeric_limits<std::size_t>::max());
  model::EmbeddingTable& table = predictor_table();
  struct Restore {
    model::Compute& compute;
    kvcache::KvCache& cache;
    kvcache::Sequence& sequence;
    std::function<void()> stop_check = compute.stop_check();
    ~Restore() {
      compute.set_stop_check(std::move(stop_check));
      cache.abandon(sequence);  // nothing of the guesses stays
    }
  };
  const Restore on_exit{compute_, cache_, sequence};
  compute_.set_stop_check({});
  cache_.prepare(sequence, static_cast<std::uint32_t>(most));
  float* const x = column(0);
  const float* before = state.empty() ? nullptr : state.data();
  for (std::size_t i = 0; i < most; ++i) {
    require_token(next);
    if (before == x) {
      std::copy_n(x, guess_state_.size(), guess_state_.begin());
      before = guess_state_.data();
    }
    table.row(static_cast<std::size_t>(next), x);
    columns_.assign(1, {&sequence, sequence.length() + static_cast<std::uint32_t>(i), next});
    const std::span<float> logits = row_of_logits(0);
    decoder_.predict(compute_, {columns_, cache_, x}, before, logits.data());
    mask(logits);
    const std::optional<Token> guess = choose(logits);
    if (!guess) return;
    next = *guess;
    before = x;
  }
}

// Where no layer has a state, nothing needs to be kept.
void Stepper::find_kept(std::span<const StepPart> parts) {
  kept_columns_.clear();
  kept_.clear();
  if (plan_.kept_columns == 0) return;
  std::size_t end = 0;
  for (const StepPart& part : parts) {
    const std::size_t begin = std::exchange(end, end + part.tokens.size());
    if (part.drafts == 0) continue;
    kept_.push_back({part.sequence, kept_columns_.size(), part.tokens.size()});
    for (std::size_t c = begin; c < end; ++c) kept_columns_.push_back(c);
  }
  base::check(kept_columns_.size() <= plan_.kept_columns,
              "more columns are kept than there is memory for");
}

void Stepper::accept(kvcache::Sequence& sequence, std::size_t count) {
  if (plan_.kept_columns != 0) {
    const auto kept = std::ranges::find(kept_, &sequence, &Kept::sequence);
    base::check(kept != kept_.end() && count <= kept->count,
                "drafts are accepted that are not those of the last step");
    if (count != kept->count) {
      columns_.clear();
      for (std::size_t i = 0; i < count; ++i) {
        columns_.push_back({&sequence, sequence.length() + static_cast<std::uint32_t>(i), 0});
      }
      decoder_.replay(compute_, columns_, cache_, kept->first);
    }
  }
  cache_.advance(sequence, static_cast<std::uint32_t>(count));
  cache_.abandon(sequence);
}

// `hidden`: [columns][embedding].
void Stepper::tell_hidden(std::span<const StepPart> parts, const float* hidden) const {
  const std::size_t embedding = decoder_.hyper_parameters().embedding;
  for (const StepPart& part : parts) {
    for (std::size_t i = 0; i < part.tokens.size(); ++i, hidden += embedding) {
      if (part.on_hidden) part.on_hidden(i, {hidden, embedding});
    }
  }
}

void Stepper::require_token(Token token) const {
  const std::uint32_t vocabulary = decoder_.hyper_parameters().vocabulary;
  if (token >= 0 && static_cast<std::uint32_t>(token) < vocabulary) return;
  throw UsageError(fmt::format("token {} is not in the vocabulary of {}", token, vocabulary));
}

void Stepper::check(std::span<const StepPart> parts) const {
  const bool is_encoder = decoder_.hyper_parameters().is_encoder;
  std::size_t columns = 0, wanted = 0;
  for (const StepPart& part : parts) {
    if (is_encoder && (part.logits != 0 || part.sequence->length() != 0)) {
      throw UsageError(part.logits != 0 ? no_text_of(decoder_.hyper_parameters().architecture)
                                        : "the tokens of a text come in one step");
    }
    if (part.tokens.empty()) throw UsageError("there is no token to evaluate");
    require_room(*part.sequence, part.sequence->length(), part.tokens.size());
    for (const Token token : part.tokens) require_token(token);
    columns += part.tokens.size();
    wanted += part.logits;
  }
  if (columns > plan_.chunk || wanted > plan_.logits_columns) {
    throw UsageError(fmt::format(
        "a step of {} tokens with logits of {} is too large: there is memory for {} and {}",
        columns, wanted, plan_.chunk, plan_.logits_columns));
  }
}

void Stepper::embed(std::span<const StepPart> parts) {
  columns_.clear();
  for (const StepPart& part : parts) {
    std::uint32_t position = part.sequence->length();
    for (const Token token : part.tokens) {
      embedding_.row(static_cast<std::size_t>(token), column(columns_.size()));
      columns_.push_back({part.sequence, position++, token});
    }
  }
}

// Moves the columns that need logits to the front, so that the head computes only those. `hidden`:
// where they are after the output norm; null: they are not.
void Stepper::run_head(std::span<const StepPart> parts, std::size_t count, const float* hidden) {
  const std::size_t embedding = decoder_.hyper_parameters().embedding;
  std::size_t to = 0, end = 0;
  for (const StepPart& part : parts) {
    end += part.tokens.size();
    for (std::size_t c = end - part.logits; c < end; ++c, ++to) {
      const float* const from = hidden != nullptr ? hidden + c * embedding : column(c);
      if (from != column(to)) std::memcpy(column(to), from, embedding * sizeof(float));
    }
  }
  if (hidden != nullptr) {
    decoder_.run_head_on_hidden(compute_, column(0), count, row_of_logits(0).data());
  } else {
    decoder_.run_head(compute_, column(0), count, row_of_logits(0).data());
  }
  for (std::size_t i = 0; i < count; ++i) mask(row_of_logits(i));
}

// Rows without a token, and tokens that must not be generated, are never chosen.
void Stepper::mask(std::span<float> logits) const {
  constexpr float never = -std::numeric_limits<float>::infinity();
  std::ranges::fill(logits.subspan(tokens_), never);
  for (const Token token : suppressed_) logits[static_cast<std::size_t>(token)] = never;
}

std::span<const float> Stepper::logits(std::size_t i, std::size_t count) const {
  if (count == 0) return {};
  const std::span<const float> first = row_of_logits(i), last = row_of_logits(i + count - 1);
  return {first.data(), last.data() + last.size()};
}

float* Stepper::column(std::size_t c) const {
  base::check(c < plan_.chunk, "a step has more columns than there is memory for");
  return reinterpret_cast<float*>(x_.data()) + c * decoder_.hyper_parameters().embedding;
}

std::span<float> Stepper::row_of_logits(std::size_t i) const {
  const std::size_t size = decoder_.hyper_parameters().vocabulary;
  base::check(i < plan_.logits_columns, "logits are asked for that have no memory");
  return {reinterpret_cast<float*>(logits_.data()) + i * size, size};
}

}  // namespace sluice::engine
