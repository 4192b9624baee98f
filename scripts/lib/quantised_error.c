/* Mean squared error of quantised models: a helper of scripts/compare-quantisers, compiled by it
 * and linked with llama.cpp's libggml-base, whose own decoders read the tensors.
 *
 *   quantised_error ORIGINAL.gguf QUANTISED.gguf...
 *
 * One line per tensor that has another type in the first quantised file:
 * NAME ELEMENTS SUM_OF_SQUARES TYPE ERROR [TYPE ERROR]..., errors being sums of squares.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* What is used of ggml.h and gguf.h. */
struct gguf_context;
struct ggml_context;
struct gguf_init_params {
  bool no_alloc;
  struct ggml_context** ctx;
};
struct ggml_type_traits {
  const char* type_name;
  int64_t block_size, block_size_interleave;
  size_t type_size;
  bool is_quantized;
  void (*to_float)(const void* from, float* to, int64_t count);
};
struct gguf_context* gguf_init_from_file(const char* path, struct gguf_init_params params);
int64_t gguf_get_n_tensors(const struct gguf_context* file);
int64_t gguf_find_tensor(const struct gguf_context* file, const char* name);
const char* gguf_get_tensor_name(const struct gguf_context* file, int64_t index);
int gguf_get_tensor_type(const struct gguf_context* file, int64_t index);
size_t gguf_get_tensor_offset(const struct gguf_context* file, int64_t index);
size_t gguf_get_tensor_size(const struct gguf_context* file, int64_t index);
size_t gguf_get_data_offset(const struct gguf_context* file);
const struct ggml_type_traits* ggml_get_type_traits(int type);

enum { step = 8192 }; /* a multiple of every block */

struct file {
  struct gguf_context* header;
  const char* bytes;
};

static void fail(const char* path, const char* what) {
  fprintf(stderr, "%s: %s\n", path, what);
  exit(1);
}

static struct file open_file(const char* path) {
  const struct gguf_init_params params = {true, NULL};
  struct file file = {gguf_init_from_file(path, params), NULL};
  struct stat status;
  const int descriptor = open(path, O_RDONLY);
  if (file.header == NULL || descriptor < 0 || fstat(descriptor, &status) != 0) {
    fail(path, "cannot be read");
  }
  void* bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (bytes == MAP_FAILED) fail(path, "cannot be mapped");
  file.bytes = bytes;
  return file;
}

static const char* data_of(const struct file* file, int64_t index) {
  return file->bytes + gguf_get_data_offset(file->header) +
         gguf_get_tensor_offset(file->header, index);
}

static void decode(const struct file* file, int64_t index, int64_t first, int64_t count,
                   float* out) {
  const int type = gguf_get_tensor_type(file->header, index);
  const struct ggml_type_traits* traits = ggml_get_type_traits(type);
  const char* from =
      data_of(file, index) + (size_t)(first / traits->block_size) * traits->type_size;
  if (type == 0) {
    memcpy(out, from, (size_t)count * sizeof *out);
  } else {
    traits->to_float(from, out, count);
  }
}

int main(int argc, char** argv) {
  if (argc < 3 || argc > 9) fail("quantised_error", "expected ORIGINAL QUANTISED...");
  struct file files[8];
  for (int i = 1; i < argc; ++i) files[i - 1] = open_file(argv[i]);
  const struct file* original = &files[0];
  const int64_t tensors = gguf_get_n_tensors(original->header);
  static float values[step], others[step];
  for (int64_t t = 0; t < tensors; ++t) {
    const char* name = gguf_get_tensor_name(original->header, t);
    const int type = gguf_get_tensor_type(original->header, t);
    int64_t index[8];
    for (int i = 1; i < argc - 1; ++i) {
      index[i] = gguf_find_tensor(files[i].header, name);
      if (index[i] < 0) fail(argv[i + 1], "lacks a tensor");
    }
    if (gguf_get_tensor_type(files[1].header, index[1]) == type) continue;
    const struct ggml_type_traits* traits = ggml_get_type_traits(type);
    const int64_t count = (int64_t)(gguf_get_tensor_size(original->header, t) /
                                    traits->type_size * (size_t)traits->block_size);
    double squares = 0, errors[8] = {0};
    for (int64_t at = 0; at < count; at += step) {
      const int64_t part = count - at < step ? count - at : step;
      decode(original, t, at, part, values);
      for (int64_t k = 0; k < part; ++k) squares += (double)values[k] * values[k];
      for (int i = 1; i < argc - 1; ++i) {
        decode(&files[i], index[i], at, part, others);
        for (int64_t k = 0; k < part; ++k) {
          const double rest = (double)values[k] - others[k];
          errors[i] += rest * rest;
        }
      }
    }
    printf("%s %lld %.9g", name, (long long)count, squares);
    for (int i = 1; i < argc - 1; ++i) {
      const int to = gguf_get_tensor_type(files[i].header, index[i]);
      printf(" %s %.9g", ggml_get_type_traits(to)->type_name, errors[i]);
    }
    printf("\n");
  }
  return 0;
}
