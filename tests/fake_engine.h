// An engine without a model: the logits after a sequence are a hash of all its tokens, so that a
// token that is lost, doubled or given to the wrong sequence changes everything after it. Text is
// made of printable bytes, each a token. Checks the contract of engine::Engine on every call and
// accounts for pages as the real cache does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/engine.h"
#include "core/error.h"

namespace sluice::test {

using tokenizer::Token;

// Token 0 to 255 is that byte, 256 begins a text, 257 ends it.
class ByteTokenizer : public tokenizer::Tokenizer {
 public:
  static constexpr Token begin_token = 256, end_token = 257;
  static constexpr std::size_t tokens = 258;

  ByteTokenizer() {
    for (int byte = 0; byte < 256; ++byte) bytes_ += static_cast<char>(byte);
  }
  std::vector<Token> encode(std::string_view text,
                            const tokenizer::EncodeOptions& options) const override {
    std::vector<Token> out;
    if (options.add_bos) out.push_back(begin_token);
    for (const char byte : text) out.push_back(static_cast<unsigned char>(byte));
    return out;
  }
  std::vector<Token> encode_parts(std::span<const tokenizer::TextPart> parts,
                                  std::span<const Token>, bool) const override {
    std::vector<Token> out;
    for (const tokenizer::TextPart& part : parts) {
      for (const char byte : part.text) out.push_back(static_cast<unsigned char>(byte));
    }
    return out;
  }
  std::string_view piece(Token token, bool = false) const override {
    if (token >= begin_token) return {};
    return std::string_view(bytes_).substr(static_cast<std::size_t>(token), 1);
  }
  std::string decode(std::span<const Token> tokens_, bool = false) const override {
    std::string text;
    for (const Token token : tokens_) text += piece(token);
    return text;
  }
  bool is_ordinary(Token token) const override { return token < begin_token; }
  bool is_end_of_generation(Token token) const override { return token == end_token; }
  std::size_t vocabulary_size() const override { return tokens; }
  std::optional<Token> bos() const override { return begin_token; }
  std::optional<Token> eos() const override { return end_token; }
  bool adds_bos() const override { return true; }
  const std::vector<std::string>& warnings() const override { return warnings_; }

 private:
  std::string bytes_;
  std::vector<std::string> warnings_;
};

// The logits after `sequence`: printable bytes and the end are possible.
inline std::vector<float> fake_logits(std::span<const Token> sequence) {
  std::uint64_t state = 0x9e3779b97f4a7c15;
  const auto mix = [&state](std::uint64_t value) {
    state = (state ^ value) * 0xbf58476d1ce4e5b9;
    state ^= state >> 29;
  };
  for (const Token token : sequence) mix(static_cast<std::uint64_t>(token) + 1);
  std::vector<float> logits(ByteTokenizer::tokens, -std::numeric_limits<float>::infinity());
  const auto draw = [&] {
    mix(77);
    return static_cast<float>(state >> 40) * 0x1p-21f;  // [0, 8)
  };
  for (Token token = 32; token < 127; ++token) logits[static_cast<std::size_t>(token)] = draw();
  logits[ByteTokenizer::end_token] = draw() - 0.5f;
  return logits;
}

// The hidden state after `sequence`.
inline std::vector<float> fake_hidden(std::span<const Token> sequence) {
  const std::vector<float> logits = fake_logits(sequence);
  return {logits.begin() + 32, logits.begin() + 40};
}

struct FakeLimits {
  std::uint32_t columns = 16;
  std::uint32_t logits = 8;
  std::uint32_t pages = 64;  // of 32 positions
  std::uint32_t window = 0;  // longer sequences have lost their beginning; 0: none
  bool is_endless = false;   // sequences have no limit, as with a window
  bool predicts = false;     // and knows what it will write
  bool is_reranker = false;  // an encoder; a text's score is the first number of its hidden state
};

class FakeEngine final : public engine::Engine {
 public:
  static constexpr std::uint32_t page_positions = 32;

  explicit FakeEngine(const FakeLimits& limits = {}) : limits_(limits) {
    facts_.vocabulary = ByteTokenizer::tokens;
    facts_.takes_drafts = true;
    facts_.predicts = limits.predicts;
    facts_.cuts_back = limits.window == 0;
    facts_.text_numbers = 8;
    facts_.makes_scores = facts_.has_text_head = facts_.is_encoder = limits.is_reranker;
  }

  const tokenizer::Tokenizer& tokenizer() const override { return tokenizer_; }
  const engine::EngineFacts& facts() const override { return facts_; }
  const plan::MemoryPlan& plan() const override { return plan_; }
  streaming::TapeStatistics tape_statistics() const override { return {}; }
  std::optional<streaming::ExpertStatistics> expert_statistics() const override { return experts; }
  engine::Session& session() override { throw std::logic_error("not of use here"); }

  std::unique_ptr<engine::Sequence> new_sequence(std::uint32_t positions) override {
    return make({}, {}, positions);
  }

  std::unique_ptr<engine::Sequence> fork(const engine::Sequence& source, std::uint32_t prefix,
                                         std::uint32_t positions) override {
    const auto& from = dynamic_cast<const FakeSequence&>(source);
    if (prefix > from.tokens.size() || prefix > positions) throw std::logic_error("bad fork");
    if (from.reachable(prefix) != prefix) throw UsageError("slid");
    ++forks;
    std::vector<Page> shared(from.pages.begin(), from.pages.begin() + prefix / page_positions);
    return make({from.tokens.begin(), from.tokens.begin() + prefix}, std::move(shared), positions);
  }

  std::span<const std::span<const float>> step(
      std::span<const engine::SequenceWork> works) override {
    if (read_weights) read_weights(columns_of(works));
    for (int wave = 0; stop_check && wave < 4; ++wave) stop_check();
    std::set<engine::Sequence*> seen;
    std::size_t columns = 0, wanted = 0;
    logits_.clear();
    for (const engine::SequenceWork& work : works) {
      auto& sequence = dynamic_cast<FakeSequence&>(*work.sequence);
      if (work.drafts != 0 && !work.wants_logits) throw std::logic_error("drafts without logits");
      if (work.drafts >= work.tokens.size()) throw std::logic_error("nothing but drafts");
      if (!sequence.open.empty()) throw std::logic_error("drafts that nobody has judged");
      columns += work.tokens.size();
      wanted += work.wants_logits ? 1 + work.drafts : 0;
      for (const Token token : work.tokens) {
        if (token >= 0 && token < static_cast<Token>(ByteTokenizer::tokens)) continue;
        throw std::logic_error("a token that there is not");
      }
      if (!seen.insert(work.sequence).second) throw std::logic_error("a sequence twice");
      if (work.tokens.empty()) throw std::logic_error("no tokens");
      sequence.tokens.insert(sequence.tokens.end(), work.tokens.begin(), work.tokens.end());
      if (sequence.position() > sequence.capacity()) throw std::logic_error("no room");
      for (std::size_t i = 0; work.on_hidden && i < work.tokens.size(); ++i) {
        const std::size_t end = sequence.tokens.size() - work.tokens.size() + i + 1;
        work.on_hidden(i, fake_hidden(std::span(sequence.tokens).first(end)));
      }
      logits_.emplace_back();
      for (std::size_t left = work.drafts + 1; work.wants_logits && left-- > 0;) {
        const std::vector<float> logits =
            fake_logits(std::span(sequence.tokens).first(sequence.tokens.size() - left));
        logits_.back().insert(logits_.back().end(), logits.begin(), logits.end());
      }
      if (work.drafts == 0) continue;
      sequence.tokens.resize(sequence.tokens.size() - work.tokens.size());
      sequence.open.assign(work.tokens.begin(), work.tokens.end());
      sequence.drafts = work.drafts;
    }
    if (works.empty() || columns > limits_.columns || wanted > limits_.logits) {
      throw std::logic_error("a step beyond its limits");
    }
    columns_used += columns;
    spans_.assign(logits_.begin(), logits_.end());
    return spans_;
  }

  void predict(engine::Sequence& of, Token next, std::size_t most,
               const engine::ChooseGuess& choose) override {
    const auto& sequence = dynamic_cast<const FakeSequence&>(of);
    if (!limits_.predicts) throw std::logic_error("nothing to predict with");
    if (!sequence.open.empty()) throw std::logic_error("drafts that nobody has judged");
    if (most > sequence.capacity() - sequence.position()) throw std::logic_error("no room");
    std::vector<Token> text = sequence.tokens;
    for (std::optional<Token> token = next; token && most-- > 0;) {
      text.push_back(*token);
      token = choose(fake_logits(text));
    }
  }

  std::uint32_t step_columns() const override { return limits_.columns; }
  std::uint32_t step_logits() const override { return limits_.logits; }
  std::uint32_t free_positions() const override {
    return limits_.is_endless ? kvcache::unlimited : free_pages() * page_positions;
  }
  std::uint32_t free_pages() const { return limits_.pages - *used_pages_; }

  // Both are called in each step, before anything changes.
  std::function<void(std::size_t columns)> read_weights;
  std::function<void()> stop_check;
  std::optional<streaming::ExpertStatistics> experts;
  std::uint64_t forks = 0;
  std::uint64_t columns_used = 0;

 private:
  using Page = std::shared_ptr<void>;

  struct FakeSequence final : engine::Sequence {
    std::uint32_t position() const override { return static_cast<std::uint32_t>(tokens.size()); }
    std::uint32_t capacity() const override { return capacity_; }
    void truncate(std::uint32_t position) override {
      if (position > tokens.size()) throw std::logic_error("truncate upwards");
      if (reachable(position) != position) throw UsageError("slid");
      tokens.resize(position);
    }
    void accept(std::size_t count) override {
      if (open.empty() || count > drafts) throw std::logic_error("more drafts than there are");
      open.resize(open.size() - drafts + count);
      tokens.insert(tokens.end(), open.begin(), open.end());
      open.clear();
    }
    std::uint32_t reachable(std::uint32_t to) const override {
      if (to >= tokens.size()) return position();
      return window != 0 && tokens.size() > window ? 0 : to;
    }
    bool reserve(std::uint32_t positions) override {
      if (capacity_ == kvcache::unlimited) return true;
      positions = std::max(positions, position());
      const std::size_t needed = pages_of(positions);
      if (needed > pages.size() && needed - pages.size() > pages_max - *used_pages) return false;
      take_pages(needed);
      capacity_ = positions;
      return true;
    }
    // Holds `count` pages: gives some back, or takes more.
    void take_pages(std::size_t count) {
      pages.resize(std::min(pages.size(), count));
      while (pages.size() < count) {
        ++*used_pages;
        pages.emplace_back(nullptr, [used = used_pages](void*) { --*used; });
      }
    }
    std::vector<Token> tokens;
    std::vector<Token> open;  // of a step with drafts that has not ended
    std::size_t drafts = 0;   // of these
    std::vector<Page> pages;
    std::uint32_t capacity_ = 0;
    std::uint32_t window = 0;
    std::uint32_t pages_max = 0;                // of the engine
    std::shared_ptr<std::uint32_t> used_pages;  // of the engine
  };

  static std::size_t columns_of(std::span<const engine::SequenceWork> works) {
    std::size_t columns = 0;
    for (const engine::SequenceWork& work : works) columns += work.tokens.size();
    return columns;
  }
  static std::size_t pages_of(std::uint32_t positions) {
    return (positions + page_positions - 1) / page_positions;
  }

  std::unique_ptr<engine::Sequence> make(std::vector<Token> tokens, std::vector<Page> pages,
                                         std::uint32_t positions) {
    if (pages_of(positions) > pages.size() + free_pages()) return nullptr;
    auto sequence = std::make_unique<FakeSequence>();
    sequence->tokens = std::move(tokens);
    sequence->pages = std::move(pages);
    sequence->capacity_ = limits_.is_endless ? kvcache::unlimited : positions;
    sequence->window = limits_.window;
    sequence->pages_max = limits_.pages;
    sequence->used_pages = used_pages_;
    sequence->take_pages(pages_of(positions));
    return sequence;
  }

  FakeLimits limits_;
  ByteTokenizer tokenizer_;
  engine::EngineFacts facts_;
  plan::MemoryPlan plan_;
  std::shared_ptr<std::uint32_t> used_pages_ = std::make_shared<std::uint32_t>(0);
  std::vector<std::vector<float>> logits_;
  std::vector<std::span<const float>> spans_;
};

}  // namespace sluice::test
