// A decoder: embedded tokens go through the layers, each of which adds to the residual stream; the
// head turns the result into logits. An encoder is one without that head, whose tokens see the
// whole text.
//
// The page of an architecture (core/model/families.h) makes a decoder: it reads its own metadata,
// fills a Spec for each layer, and adds the blocks in the order of its paper. This needs only the
// header of the model file. The tensors are declared in the order in which a step reads them. After
// allocate() has taken the buffers, steps can run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/model/arena.h"
#include "core/model/blocks/block.h"
#include "core/model/hyper_parameters.h"
#include "core/model/norm.h"
#include "core/model/predictor.h"
#include "core/model/rotary_table.h"
#include "core/model/step.h"
#include "core/model/text_head.h"
#include "core/model/weights.h"
#include "kvcache/kv_cache.h"
#include "topology/aligned_bytes.h"

namespace sluice::model {

// x = sum_norm((x + scale * post_norm(block(norm(x)))) * stream_scale), and if there is a second
// norm of sums, x = second_sum_norm(x + what x was before).
struct Residual {
  Norm norm = {};  // empty: the block sees x itself
  std::unique_ptr<Block> block = {};
  std::unique_ptr<Block> beside = {};  // sees the same norm(x), and is added too; needs a norm
  Norm post_norm = {};                 // empty: none
  float scale = 1;
  Vector stream_scale = {};                  // [1]; empty: 1
  Norm sum_norm = {}, second_sum_norm = {};  // empty: none; the second needs keeps_input
  bool keeps_input = false;                  // a later block needs x as it was: Pass::kept_input
  bool replaces_stream = false;              // x = block(x) instead of all that
};

struct DecoderOptions {
  float embedding_scale = 1;  // of the embedded tokens; does not apply to a tied head
  // Embedded tokens go through a norm without weights.
  bool normalises_embeddings = false;
  // Embedded tokens go through a norm of this name, once their positions and their type have been
  // added, if the file has these: position_embd and token_types. Null: none of that (most models).
  const char* embedding_norm = nullptr;
  bool has_position_table = false;
  const char* final_norm = "output_norm.weight";  // null: none
  TextHeadSpec text_head = {};
  float logit_scale = 1;
  float logit_softcap = 0;  // logits become softcap * tanh(logits / softcap); 0: none
};

class Decoder {
 public:
  Decoder(const HyperParameters& hp, WeightLayout& layout, const DecoderOptions& options = {});

  // The next six members are for pages, while they make the decoder.
  //
  // Adds a rotation that blocks can share. The pointer stays valid as long as the decoder.
  const RotaryTable* add_rope(const RotarySpec& spec);
  // Adds a layer to the cache and returns its index.
  std::size_t add_cache_layer(const kvcache::LayerShape& shape);
  // Sets a block that runs once a step on the embedded tokens, before the layers. It has no output;
  // later blocks read its buffers, which last for the whole step.
  void set_prologue(std::unique_ptr<Block> prologue) { prologue_ = std::move(prologue); }
  // Appends the next sublayer of the model.
  void add(Residual residual);
  // Begins the block that predicts further tokens, for HyperParameters::predictors: what is added
  // from here on is its layer. The first of it is what writes keys and values.
  void begin_predictor();
  // Declares the head and checks that every tensor of the file was declared. Throws ModelError.
  void finish();

  const HyperParameters& hyper_parameters() const { return hp_; }

  // The most tokens of a text that is short (RotarySpec); kvcache::unlimited for most models, which
  // rotate all texts alike.
  std::uint32_t short_tokens_max() const;

  // Whether tokens can be taken back after a step: not if a block has a state that it does not
  // replay.
  bool takes_drafts() const;

  // What each layer keeps of a token.
  const std::vector<kvcache::LayerShape>& cache_layers() const { return cache_layers_; }

  // The largest input size of any matrix, for Compute.
  std::size_t size_max() const;
  // The same of products with rotated inputs; 0 where there are none.
  std::size_t rotated_max() const { return layout_.rotations().is_empty() ? 0 : size_max(); }

  // The bytes that steps of this shape need, and the allocation of them. The vectors of the layout
  // must be loaded before allocate().
  std::size_t buffer_bytes(const BufferShape& shape) const;
  void allocate(const BufferShape& shape);
  std::size_t held_bytes() const { return memory_.size(); }  // what allocate() has made

  // Runs all layers of a step, and writes keys, values and states of its columns to the cache.
  // Throws what Compute::multiply throws; no sequence has advanced then, and the step may be tried
  // again after embedding x again.
  void run_layers(Compute& compute, const Step& step);

  // After run_layers(), writes the recurrent states anew, of a sequence of which only the first of
  // its columns in Step::kept become part: `columns`, which are the kept ones from number `first`
  // on. Reads no weights.
  void replay(Compute& compute, std::span<const Column> columns, const kvcache::KvCache& cache,
              std::size_t first);

  // The turn of the tape at which run_head() begins; run_layers() reads all turns before it.
  std::size_t head_turn() const {
    return has_head() ? head_.slices.front().turn : layout_.segments().size();
  }
  // Whether there are logits: not of an encoder.
  bool has_head() const { return !hp_.is_encoder; }
  // What makes a vector of a text of its pooled hidden states.
  const TextHead& text_head() const { return text_head_; }

  // The hidden states [columns][E] of the columns of x after the output norm. Valid until the next
  // run_layers(), also after run_head(). Leaves x as it is.
  const float* run_output_norm(Compute& compute, const float* x, std::size_t columns) const;

  // Writes the logits [columns][vocabulary] of the columns of x. Overwrites x.
  void run_head(Compute& compute, float* x, std::size_t columns, float* logits);
  // The same of hidden states after the output norm, which stay as they are.
  void run_head_on_hidden(Compute& compute, const float* hidden, std::size_t columns,
                          float* logits) const;

  // Null: there is none, or it is not wanted. What follows is for decoders that have one.
  const Predictor* predictor() const { return predictor_ ? &*predictor_ : nullptr; }
  // The turn at which its weights begin; they end with those of the head.
  std::size_t predictor_turn() const { return predictor_turn_; }

  // The hidden states [columns][E] of the columns of x after the output norm. Valid until the next
  // call, also after all that is below.
  const float* keep_hidden(Compute& compute, const float* x, std::size_t columns);

  // After run_layers() and keep_hidden(): writes the predictor's keys and values of all columns.
  // Step::x has their embeddings (Predictor::table), and is overwritten. `state_before` gives the
  // state before the first column of a stretch; null: not known.
  void store_predicted(Compute& compute, const Step& step,
                       const Predictor::StateBefore& state_before);

  // Guesses what comes behind the only column of a step. Step::x has its embedding (Predictor::
  // table); out: its y, the state of the next guess. `state` is the state before it, or null.
  // Writes keys and values of the predictor, and logits [vocabulary].
  void predict(Compute& compute, const Step& step, const float* state, float* logits);

 private:
  struct Buffers {
    float* normed = nullptr;  // [columns][E], also the output of the blocks
    float* beside = nullptr;  // [columns][E], where a residual has two blocks
    float* kept = nullptr;    // [columns][E], where a residual keeps its input
    float* hidden = nullptr;  // [columns][E], with a predictor
  };

  template <typename F>
  void for_each_block(F&& f) const;
  Buffers place(Arena& arena, const BufferShape& shape) const;
  void embed(Compute& compute, const Step& step) const;
  void read_embedding_tensors();
  void multiply_head(Compute& compute, const Matrix& head, Vector bias, const float* hidden,
                     std::size_t columns, float* logits) const;
  void find_stretches(std::span<const Column> columns);
  void run(Pass& pass, const Residual& residual, float* x);
  // The residuals of the layers, and those of the predictor.
  std::span<const Residual> layers() const {
    return std::span(residuals_).first(predictor_ ? predictor_begin_ : residuals_.size());
  }
  std::span<const Residual> predicting_layer() const {
    return std::span(residuals_).subspan(layers().size());
  }
  void add_to_stream(Pass& pass, const Residual& residual, float* delta, float* x);
  void normalise(Compute& compute, const float* x, std::size_t columns, const Norm& norm,
                 float* out) const;
  template <typename F>
  void for_each_row(Compute& compute, std::size_t columns, std::size_t size, F&& f) const;

  HyperParameters hp_;
  WeightLayout& layout_;
  DecoderOptions options_;
  std::deque<RotaryTable> ropes_;  // never moved: blocks point at them
  std::vector<kvcache::LayerShape> cache_layers_;
  std::unique_ptr<Block> prologue_;  // null in most models
  std::vector<Residual> residuals_;  // those of the predictor last
  std::optional<Predictor> predictor_;
  std::size_t predictor_begin_ = 0;  // of the residuals, where there is one
  std::size_t predictor_turn_ = 0;
  Vector token_type_, positions_;  // [E], [context][E]; empty in most models
  Norm embedding_norm_;
  TextHead text_head_;
  Norm output_norm_;
  Matrix head_;       // [V][E]
  Vector head_bias_;  // [V], empty in most models
  topology::AlignedBytes memory_;
  Buffers buffers_;
  std::vector<Stretch> stretches_;
};

}  // namespace sluice::model
