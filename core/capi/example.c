/* A story that is begun, gone on with, and a question to the model: what sluice.h is for.
 *
 *     cc -std=c11 example.c $(pkg-config --cflags --libs sluice) -o example
 *     ./example model.gguf "One morning"
 */
#include <sluice.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int status) {
  if (status == SLUICE_OK) return;
  fprintf(stderr, "example: %s\n", sluice_last_error());
  exit(status);
}

/* Prints a text as it comes; any other value than 0 would end it. */
static int print_piece(void* user, const sluice_piece* piece) {
  (void)user;
  fwrite(piece->text, 1, piece->text_bytes, stdout);
  return fflush(stdout);
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: example MODEL.gguf TEXT\n");
    return SLUICE_USAGE;
  }

  /* How much memory would it take? */
  sluice_model_options options = SLUICE_MODEL_OPTIONS_INIT;
  options.budget_bytes = (uint64_t)1 << 30;
  options.context = 512;
  char* plan = NULL;
  check(sluice_plan(argv[1], &options, &plan));
  printf("plan: %s\n", plan);
  sluice_free(plan);

  sluice_model* model = NULL;
  check(sluice_model_open(argv[1], &options, &model));

  /* A text, its first sentence alone. */
  const char* stop[] = {"."};
  sluice_request request = SLUICE_REQUEST_INIT;
  request.tokens_max = 40;
  request.temperature = 0;
  request.stop = stop;
  request.stop_count = 1;
  request.prompt = argv[2];
  sluice_result result = SLUICE_RESULT_INIT;
  printf("%s", argv[2]);
  check(sluice_generate(model, &request, print_piece, NULL, &result));
  printf("\n%llu tokens\n", (unsigned long long)result.text_tokens);

  /* A sequence: what was computed for its beginning is not computed again. */
  sluice_sequence* sequence = NULL;
  check(sluice_sequence_new(model, &sequence));
  request = (sluice_request)SLUICE_REQUEST_INIT;
  request.tokens_max = 12;
  request.seed = 7;
  for (int part = 0; part < 2; ++part) {
    check(sluice_sequence_append(sequence, part == 0 ? argv[2] : " Then", 0));
    check(sluice_sequence_generate(sequence, &request, print_piece, NULL, &result));
    printf("\n%llu of %llu tokens were held\n", (unsigned long long)result.shared_tokens,
           (unsigned long long)result.prompt_tokens);
  }
  check(sluice_sequence_close(sequence));

  /* A conversation, piece by piece, if the model holds one. */
  char* info = NULL;
  check(sluice_model_info(model, &info));
  if (strstr(info, "\"has_chat\":true") != NULL) {
    request = (sluice_request)SLUICE_REQUEST_INIT;
    request.tokens_max = 20;
    request.messages = "[{\"role\": \"user\", \"content\": \"Who are you?\"}]";
    sluice_text* text = NULL;
    const sluice_piece* piece = NULL;
    check(sluice_text_begin(model, &request, &text));
    for (;;) {
      check(sluice_text_next(text, &piece));
      if (piece == NULL) break;
      print_piece(NULL, piece);
    }
    printf("\n");
    check(sluice_text_close(text));
  }
  sluice_free(info);
  check(sluice_model_close(model));
  return SLUICE_OK;
}
