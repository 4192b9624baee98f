/* sluice as a library: language models larger than the memory at hand, from C.
 *
 *     sluice_model_options options = SLUICE_MODEL_OPTIONS_INIT;
 *     options.budget_bytes = (uint64_t)4 << 30;
 *     sluice_model* model = NULL;
 *     if (sluice_model_open("model.gguf", &options, &model) != SLUICE_OK)
 *       fprintf(stderr, "%s\n", sluice_last_error());
 *     sluice_request request = SLUICE_REQUEST_INIT;
 *     request.prompt = "One morning";
 *     sluice_generate(model, &request, on_piece, NULL, NULL);
 *     sluice_model_close(model);
 *
 * Errors. Functions that return `int` return a sluice_status. It is SLUICE_OK, or says what kind of
 * error it was, as the exit status of the program does; sluice_last_error() then has one line of
 * text. Where a function fails it writes nothing through its pointers, unless it says so. Nothing
 * of C++ crosses this boundary, and no function ends the process or prints anything, but for a
 * defect of the library itself, which it reports in a line before it ends.
 *
 * Handles. sluice_model, sluice_text and sluice_sequence are closed by the function of that name.
 * A handle is a number that is never used again, so a closed or invented one gives SLUICE_USAGE and
 * no crash. NULL may be closed. A model that is closed ends its texts; they and its sequences have
 * to be closed as well, before or after it.
 *
 * Threads. Any thread may call any function at any time, and a handle may move between threads.
 * Calls with one sluice_text or one sluice_sequence run one after the other; only
 * sluice_text_stop() does not wait. Texts of one model run side by side if `parallel` allows it,
 * and else one after the other. Callbacks run on the thread that called, and may call any function
 * but those of their own text or sequence. A thread that calls needs 2 MiB of stack. exit() may be
 * called while texts run. After fork() a child must not use what its parent has opened, but it may
 * end.
 *
 * Texts are UTF-8 and end with a zero byte; where a length stands beside one that is given out, it
 * does not count that byte. What is given in is copied. Bytes that are no UTF-8 are SLUICE_USAGE.
 *
 * Versions. Structs that the caller makes begin with their size, which the _INIT macros set. So a
 * program that was compiled with an older header runs with a newer library of the same
 * SLUICE_ABI_VERSION; with an older library it gets SLUICE_USAGE where it would be misread. */
#ifndef SLUICE_H
#define SLUICE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define SLUICE_API __attribute__((visibility("default")))
#else
#define SLUICE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define SLUICE_ABI_VERSION 1

/* "0.1.0": the version of the program and of the library. */
SLUICE_API const char* sluice_version(void);
/* The SLUICE_ABI_VERSION that the library was built with. */
SLUICE_API uint32_t sluice_abi_version(void);

typedef enum sluice_status {
  SLUICE_OK = 0,
  SLUICE_FAILURE = 1, /* anything not named below, such as no memory */
  SLUICE_USAGE = 2,   /* an argument is wrong */
  SLUICE_MODEL = 3,   /* the model file is bad or not supported */
  SLUICE_BUDGET = 4,  /* the memory budget cannot be met; the text names the least that can */
  SLUICE_IO = 5,      /* reading failed */
  SLUICE_BUSY = 6     /* texts hold all memory that is planned for them, or too many wait */
} sluice_status;

/* What went wrong in the last call of this thread that failed, in one line; "" before. Valid until
 * the next call of this thread fails. */
SLUICE_API const char* sluice_last_error(void);

/* Frees a text that a function has given out through a `char**`. NULL is allowed. */
SLUICE_API void sluice_free(char* text);

/* ---- models ---- */

typedef struct sluice_model sluice_model;

/* Zero stands for what the program does where an option is not given. */
typedef struct sluice_model_options {
  size_t size;             /* of this struct: SLUICE_MODEL_OPTIONS_INIT sets it */
  uint64_t budget_bytes;   /* all memory of this process; 0: what the system allows */
  uint32_t threads;        /* that compute, the engine's own included; 0: sluice chooses */
  uint32_t context;        /* tokens of a text with its prompt; 0: what the budget allows */
  uint32_t window;         /* newest tokens that a token sees, 4 first ones included; 0: all */
  uint32_t parallel;       /* texts that run side by side; 0: 1 */
  const char* kv;          /* how keys and values are kept: "int8", "f16", "f32"; NULL: int8 */
  const char* io;          /* how weights are read: "auto", "mmap", "uring", "pread"; NULL: auto */
  const char* chat_format; /* "auto" (the file's template) or a family; NULL: auto */
  const char* think;       /* whether a model that can thinks first: "auto", "on", "off" */
} sluice_model_options;

#define SLUICE_MODEL_OPTIONS_INIT \
  { sizeof(sluice_model_options), 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL }

/* What opening the model would hold in memory, from the header of the file alone. `options` may be
 * NULL. `*json` is an object, to be freed with sluice_free():
 *   "fits", "total_bytes", "budget_bytes", "budget_source", "least_budget_bytes", "context",
 *   "pinned_bytes", "streamed_bytes_per_step", "lines" (a list of {"name", "bytes", "kind"}),
 * with the meaning that `sluice plan --json` gives them. A plan that does not fit is no error. */
SLUICE_API int sluice_plan(const char* path, const sluice_model_options* options, char** json);

/* Opens a model, and reads the part of its weights that stays in memory. `path` is that of a GGUF
 * file, or of the first of several parts. `options` may be NULL. A process has room for one model
 * as a rule: what a first one holds counts in the plan of a second one. */
SLUICE_API int sluice_model_open(const char* path, const sluice_model_options* options,
                                 sluice_model** model);
SLUICE_API int sluice_model_close(sluice_model* model);

/* The same object as sluice_plan() gives, of the open model, and of the model itself "name",
 * "architecture", "vocabulary", "threads", "isa", "io", "has_chat". */
SLUICE_API int sluice_model_info(sluice_model* model, char** json);

/* ---- tokens ---- */

typedef int32_t sluice_token;

enum {
  SLUICE_ADD_BOS = 1,       /* the token that begins a text goes in front, if the model wants one */
  SLUICE_PARSE_SPECIAL = 2, /* control tokens that are written out in the text are recognised */
  SLUICE_RENDER_SPECIAL = 4 /* control tokens are written out */
};

/* Writes the first `capacity` tokens of `text` to `tokens` (NULL if it is 0), and how many there
 * are to `*count`, which may be more. `flags`: SLUICE_ADD_BOS, SLUICE_PARSE_SPECIAL. */
SLUICE_API int sluice_tokenize(sluice_model* model, const char* text, uint32_t flags,
                               sluice_token* tokens, size_t capacity, size_t* count);

/* The text of tokens that begin a text, to be freed with sluice_free(); its bytes go to `*bytes`,
 * which may be NULL. Tokens that end amid a character give bytes that are no UTF-8. `flags`:
 * SLUICE_RENDER_SPECIAL. */
SLUICE_API int sluice_detokenize(sluice_model* model, const sluice_token* tokens, size_t count,
                                 uint32_t flags, char** text, size_t* bytes);

/* The tokens that make the model answer a conversation, by its chat template; as sluice_tokenize().
 * `messages` is JSON as in sluice_request. */
SLUICE_API int sluice_chat_tokens(sluice_model* model, const char* messages, sluice_token* tokens,
                                  size_t capacity, size_t* count);

/* ---- texts ---- */

#define SLUICE_DEFAULT (-1)

/* What to write. Exactly one of `prompt`, `tokens` and `messages` is given, and none where a
 * sequence is continued. The texts of a request are shorter than 1 MiB together; a longer prompt is
 * given as tokens. */
typedef struct sluice_request {
  size_t size;                /* of this struct: SLUICE_REQUEST_INIT sets it */
  const char* prompt;         /* a text to go on with; "" begins one */
  const sluice_token* tokens; /* the same as tokens, used as they are */
  size_t token_count;
  const char* messages; /* a conversation to answer: [{"role": "user", "content": "..."}, ...] */
  int64_t tokens_max;   /* SLUICE_DEFAULT: until the model ends its text or the context is full */
  /* SLUICE_DEFAULT: what the model file recommends, and else what the program does. */
  double temperature; /* 0: always the most probable token */
  double top_p;       /* among the fewest tokens of this probability; 1: off */
  double min_p;       /* among tokens this much as probable as the best one; 0: off */
  double repeat_penalty;
  int64_t top_k; /* among so many tokens; 0: off */
  int64_t seed;  /* the same seed gives the same text; SLUICE_DEFAULT: another each time */
  const char* const* stop; /* the text ends before one of these would appear in it */
  size_t stop_count;
  /* A JSON object with further members of a request, or NULL: "tools", "response_format",
   * "grammar", "logit_bias", "frequency_penalty", ... (docs/batch.md has the table). A member of
   * the struct that is not SLUICE_DEFAULT wins over one of the same name. */
  const char* settings;
} sluice_request;

#define SLUICE_REQUEST_INIT                                                                      \
  {                                                                                              \
    sizeof(sluice_request), NULL, NULL, 0, NULL, SLUICE_DEFAULT, SLUICE_DEFAULT, SLUICE_DEFAULT, \
        SLUICE_DEFAULT, SLUICE_DEFAULT, SLUICE_DEFAULT, SLUICE_DEFAULT, NULL, 0, NULL            \
  }

/* A part of a text, as it comes. The library makes it, so it has no size: members may be added at
 * its end. Its texts are whole characters, perhaps none, and no beginning of a stop text. */
typedef struct sluice_piece {
  const char* text; /* what comes next of the text, or of the answer */
  size_t text_bytes;
  const char* thought; /* what comes next of the thought in front of an answer; mostly "" */
  size_t thought_bytes;
  sluice_token token; /* that was chosen; -1: text that was held back, at the end */
} sluice_piece;

typedef enum sluice_finish {
  SLUICE_FINISH_END = 0,       /* the model ended its text */
  SLUICE_FINISH_STOP_TEXT = 1, /* a stop text came */
  SLUICE_FINISH_LENGTH = 2,    /* tokens_max, or the end of the context */
  SLUICE_FINISH_STOPPED = 3    /* the callback, or sluice_text_stop() */
} sluice_finish;

typedef struct sluice_result {
  size_t size; /* of this struct: SLUICE_RESULT_INIT sets it */
  int32_t finish;
  uint32_t reserved;
  uint64_t prompt_tokens;
  uint64_t shared_tokens; /* of these, those that were held already for an earlier text */
  uint64_t text_tokens;
} sluice_result;

#define SLUICE_RESULT_INIT \
  { sizeof(sluice_result), 0, 0, 0, 0, 0 }

typedef struct sluice_text sluice_text;

/* Begins a text. It is computed from here on, whether or not its pieces are taken. SLUICE_BUSY
 * while the texts that are open hold what is planned for them: their prompts, and pieces that were
 * not taken. Taking these and closing texts helps. Of each text 500 pieces may wait; where more do
 * and there is no memory for them, it fails with SLUICE_BUSY. */
SLUICE_API int sluice_text_begin(sluice_model* model, const sluice_request* request,
                                 sluice_text** text);
/* Waits for the next piece. It is valid until the next call with this text. `*piece` becomes NULL
 * at the end of the text, once it has gone well. */
SLUICE_API int sluice_text_next(sluice_text* text, const sluice_piece** piece);
/* Ends the text soon: pieces that are there already still come. Does not wait. */
SLUICE_API int sluice_text_stop(sluice_text* text);
/* How the text ended. SLUICE_USAGE before sluice_text_next() has given NULL. */
SLUICE_API int sluice_text_result(sluice_text* text, sluice_result* result);
/* The calls of tools in an answer, a JSON list in OpenAI's form or "null"; otherwise as
 * sluice_text_result(). To be freed with sluice_free(). */
SLUICE_API int sluice_text_tool_calls(sluice_text* text, char** json);
SLUICE_API int sluice_text_close(sluice_text* text);

/* Gets each piece of a text; any other value than 0 ends the text. */
typedef int (*sluice_callback)(void* user, const sluice_piece* piece);

/* All of that in one call. `callback` and `result` may be NULL. A text that the callback ends is no
 * error. */
SLUICE_API int sluice_generate(sluice_model* model, const sluice_request* request,
                               sluice_callback callback, void* user, sluice_result* result);

/* ---- sequences ---- */

/* Tokens that grow: what is appended, and what the model writes behind it. What was computed for
 * the tokens before is used again as long as the cache has room for it. */
typedef struct sluice_sequence sluice_sequence;

SLUICE_API int sluice_sequence_new(sluice_model* model, sluice_sequence** sequence);
/* Appends a text; at the beginning, behind the token that begins a text if the model wants one.
 * `flags`: SLUICE_PARSE_SPECIAL. */
SLUICE_API int sluice_sequence_append(sluice_sequence* sequence, const char* text, uint32_t flags);
SLUICE_API int sluice_sequence_append_tokens(sluice_sequence* sequence, const sluice_token* tokens,
                                             size_t count);
/* Continues the sequence and appends the tokens that were chosen, also where a callback has ended
 * it or an error has. Those of a stop text are among them, though no piece has its text; the token
 * by which the model ends its text is not. */
SLUICE_API int sluice_sequence_generate(sluice_sequence* sequence, const sluice_request* request,
                                        sluice_callback callback, void* user,
                                        sluice_result* result);
/* As sluice_tokenize() gives tokens. */
SLUICE_API int sluice_sequence_tokens(sluice_sequence* sequence, sluice_token* tokens,
                                      size_t capacity, size_t* count);
/* Removes the tokens from number `count` on. SLUICE_USAGE when there are fewer. */
SLUICE_API int sluice_sequence_truncate(sluice_sequence* sequence, size_t count);
SLUICE_API int sluice_sequence_close(sluice_sequence* sequence);

#ifdef __cplusplus
}
#endif

#endif
