// The probabilities that llama.cpp's library gives, for `scripts/compare-models --judge`.
//
//   cc -O2 scripts/lib/llama_judge.c -o llama_judge -lllama -lggml -lggml-base -lm
//   ./llama_judge MODEL OUT TOKEN...
//
// Writes float32 [tokens][vocabulary]: the probabilities of all tokens after each token of the
// text. Keys and values are F16, attention is not fused, and the whole text is one batch of one
// thread, so that nothing but the arithmetic differs from other programs. Needs the headers of
// llama.cpp (Debian: libllama-dev, libggml-dev; 0.7.0 was tried).
#include <ggml-backend.h>
#include <llama.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void show_errors(enum ggml_log_level level, const char* text, void* user) {
  (void)user;
  if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

static int fail(const char* what) {
  fprintf(stderr, "llama_judge: %s\n", what);
  return 1;
}

static struct llama_context* open_context(struct llama_model* model, int tokens) {
  struct llama_context_params params = llama_context_default_params();
  params.n_ctx = tokens < 256 ? 256 : tokens;
  params.n_batch = params.n_ubatch = params.n_ctx;
  params.n_threads = params.n_threads_batch = 1;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  return llama_init_from_model(model, params);
}

static void normalise(const float* logits, int width, float* probabilities) {
  double top = -INFINITY, sum = 0;
  for (int t = 0; t < width; ++t) top = fmax(top, logits[t]);
  for (int t = 0; t < width; ++t) sum += exp(logits[t] - top);
  for (int t = 0; t < width; ++t) probabilities[t] = (float)(exp(logits[t] - top) / sum);
}

int main(int count, char** words) {
  if (count < 4) return fail("usage: llama_judge MODEL OUT TOKEN...");
  const int tokens = count - 3;
  llama_log_set(show_errors, NULL);
  ggml_backend_load_all();
  struct llama_model* model = llama_model_load_from_file(words[1], llama_model_default_params());
  if (!model) return fail("the model was not loaded");
  struct llama_context* context = open_context(model, tokens);
  if (!context) return fail("there is no context");

  struct llama_batch batch = llama_batch_init(tokens, 0, 1);
  batch.n_tokens = tokens;
  for (int i = 0; i < tokens; ++i) {
    batch.token[i] = atoi(words[3 + i]);
    batch.pos[i] = i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  if (llama_decode(context, batch) != 0) return fail("the text was not evaluated");

  const int width = llama_vocab_n_tokens(llama_model_get_vocab(model));
  float* row = malloc(width * sizeof *row);
  FILE* out = fopen(words[2], "wb");
  if (!row || !out) return fail("there is no output");
  for (int i = 0; i < tokens; ++i) {
    normalise(llama_get_logits_ith(context, i), width, row);
    if (fwrite(row, sizeof *row, width, out) != (size_t)width) return fail("the disk is full");
  }
  return fclose(out) == 0 ? 0 : fail("the disk is full");
}
