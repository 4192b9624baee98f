#include "core/synth/shapes.h"

#include <fmt/format.h>

#include "core/error.h"

namespace sluice::synth {
namespace {

// clang-format off
std::vector<Shape> real_shapes() {
  return {
    {.name = "yi-9b", .architecture = "llama", .layers = 48, .embedding = 4096,
     .heads = {32, 4, 128}, .feed_forward = 11008, .vocabulary = 64000, .context = 4096,
     .norm_epsilon = 1e-6f, .rope = {.base = 5e6f}},
    {.name = "llama-8b", .architecture = "llama", .layers = 32, .embedding = 4096,
     .heads = {32, 8, 128}, .feed_forward = 14336, .vocabulary = 128256, .context = 131072,
     .rope = {.base = 5e5f, .llama3 = 8}},
    {.name = "llama-1b", .architecture = "llama", .layers = 16, .embedding = 2048,
     .heads = {32, 8, 64}, .feed_forward = 8192, .vocabulary = 128256, .context = 131072,
     .tied = true, .rope = {.base = 5e5f, .llama3 = 32}},
    {.name = "mistral-7b", .architecture = "llama", .layers = 32, .embedding = 4096,
     .heads = {32, 8, 128}, .feed_forward = 14336, .vocabulary = 32768, .context = 32768,
     .rope = {.base = 1e6f}},
    {.name = "ministral3-8b", .architecture = "mistral3", .layers = 34, .embedding = 4096,
     .heads = {32, 8, 128}, .feed_forward = 14336, .vocabulary = 131072, .context = 262144,
     .rope = {.base = 1e6f, .scaling = "yarn", .factor = 16, .original_context = 16384,
              .beta_fast = 32, .beta_slow = 1, .log_multiplier = 1},
     .scales = {.temperature = 0.1f}},
    {.name = "qwen2.5-7b", .architecture = "qwen2", .layers = 28, .embedding = 3584,
     .heads = {28, 4, 128}, .feed_forward = 18944, .vocabulary = 152064, .context = 32768,
     .norm_epsilon = 1e-6f, .rope = {.base = 1e6f}},
    {.name = "qwen3-8b", .architecture = "qwen3", .layers = 36, .embedding = 4096,
     .heads = {32, 8, 128}, .feed_forward = 12288, .vocabulary = 151936, .context = 40960,
     .norm_epsilon = 1e-6f, .rope = {.base = 1e6f}},
    {.name = "qwen3-4b", .architecture = "qwen3", .layers = 36, .embedding = 2560,
     .heads = {32, 8, 128}, .feed_forward = 9728, .vocabulary = 151936, .context = 40960,
     .norm_epsilon = 1e-6f, .tied = true, .rope = {.base = 1e6f}},
    {.name = "qwen35-9b", .architecture = "qwen35", .layers = 32, .embedding = 4096,
     .heads = {16, 4, 256}, .feed_forward = 12288, .vocabulary = 248320, .context = 262144,
     .norm_epsilon = 1e-6f, .kinds = "MMM*", .rope = {.base = 1e7f, .size = 64},
     .recurrence = {.inner = 4096, .heads = 32, .state = 128, .groups = 16, .taps = 4}},
    {.name = "qwen35-4b", .architecture = "qwen35", .layers = 32, .embedding = 2560,
     .heads = {16, 4, 256}, .feed_forward = 9216, .vocabulary = 248320, .context = 262144,
     .norm_epsilon = 1e-6f, .tied = true, .kinds = "MMM*", .rope = {.base = 1e7f, .size = 64},
     .recurrence = {.inner = 4096, .heads = 32, .state = 128, .groups = 16, .taps = 4}},
    {.name = "qwen3-30b-a3b", .architecture = "qwen3moe", .layers = 48, .embedding = 2048,
     .heads = {32, 4, 128}, .feed_forward = 6144, .vocabulary = 151936, .context = 40960,
     .norm_epsilon = 1e-6f, .rope = {.base = 1e6f},
     .experts = {.count = 128, .used = 8, .feed_forward = 768}},
    {.name = "qwen35-35b-a3b", .architecture = "qwen35moe", .layers = 40, .embedding = 2048,
     .heads = {16, 2, 256}, .feed_forward = 512, .vocabulary = 248320, .context = 262144,
     .norm_epsilon = 1e-6f, .kinds = "MMM*", .rope = {.base = 1e7f, .size = 64},
     .recurrence = {.inner = 4096, .heads = 32, .state = 128, .groups = 16, .taps = 4},
     .experts = {.count = 256, .used = 8, .feed_forward = 512, .shared_feed_forward = 512}},
    {.name = "gpt-oss-20b", .architecture = "gpt-oss", .layers = 24, .embedding = 2880,
     .heads = {64, 8, 64}, .feed_forward = 2880, .vocabulary = 201088, .context = 131072,
     .kinds = "~*",
     .rope = {.base = 1.5e5f, .scaling = "yarn", .factor = 32, .original_context = 4096},
     .window = {.positions = 128}, .experts = {.count = 32, .used = 4, .feed_forward = 2880}},
    {.name = "glm-4.7-flash", .architecture = "deepseek2", .layers = 47, .embedding = 2048,
     .heads = {20, 20, 256}, .latent = {.rank = 512, .query_rank = 768, .value_size = 256},
     .feed_forward = 10240, .vocabulary = 154880, .context = 202752,
     .rope = {.base = 1e6f, .size = 64},
     .experts = {.count = 64, .used = 4, .feed_forward = 1536, .shared_feed_forward = 1536,
                 .is_sigmoid = true, .weights_scale = 1.8f, .leading_dense = 1}},
    {.name = "deepseek-v2-lite", .architecture = "deepseek2", .tensors = "deepseek2-lite",
     .layers = 27, .embedding = 2048,
     .heads = {16, 16, 192}, .latent = {.rank = 512, .value_size = 128, .is_old_form = true},
     .feed_forward = 10944, .vocabulary = 102400, .context = 163840, .norm_epsilon = 1e-6f,
     .rope = {.base = 1e4f, .size = 64, .scaling = "yarn", .factor = 40,
              .original_context = 4096, .log_multiplier = 0.0707f},
     .experts = {.count = 64, .used = 6, .feed_forward = 1408, .shared_feed_forward = 2816,
                 .leading_dense = 1}},
    {.name = "smollm3-3b", .architecture = "smollm3", .layers = 36, .embedding = 2048,
     .heads = {16, 4, 128}, .feed_forward = 11008, .vocabulary = 128256, .context = 65536,
     .norm_epsilon = 1e-6f, .tied = true, .rope = {.base = 5e6f}},
    {.name = "granite-8b", .architecture = "granite", .layers = 40, .embedding = 4096,
     .heads = {32, 8, 128}, .feed_forward = 12800, .vocabulary = 49159, .context = 131072,
     .tied = true, .rope = {.base = 1e7f},
     .scales = {.attention = 1.0f / 128, .embedding = 12, .residual = 0.22f, .logit = 16}},
    {.name = "granite4-h-micro", .architecture = "granitehybrid", .layers = 40, .embedding = 2048,
     .heads = {32, 8, 64}, .feed_forward = 8192, .vocabulary = 100352, .context = 1048576,
     .tied = true, .kinds = "MMMMM*MMMM",
     .scales = {.attention = 1.0f / 64, .embedding = 12, .residual = 0.22f, .logit = 8},
     .recurrence = {.inner = 4096, .heads = 64, .state = 128, .groups = 1, .taps = 4}},
    {.name = "granite4-h-tiny", .architecture = "granitehybrid", .tensors = "granitehybrid-moe",
     .layers = 40, .embedding = 1536,
     .heads = {12, 4, 128}, .feed_forward = 512, .vocabulary = 100352, .context = 1048576,
     .tied = true, .kinds = "MMMMM*MMMM",
     .scales = {.attention = 1.0f / 128, .embedding = 12, .residual = 0.22f, .logit = 6},
     .recurrence = {.inner = 3072, .heads = 48, .state = 128, .groups = 1, .taps = 4},
     .experts = {.count = 64, .used = 6, .shared_feed_forward = 1024}},
    {.name = "gemma2-9b", .architecture = "gemma2", .layers = 42, .embedding = 3584,
     .heads = {16, 8, 256}, .feed_forward = 14336, .vocabulary = 256000, .context = 8192,
     .norm_epsilon = 1e-6f, .tied = true, .kinds = "~*", .window = {.positions = 4096},
     .scales = {.attention_cap = 50, .logit_cap = 30}},
    {.name = "gemma3-4b", .architecture = "gemma3", .layers = 34, .embedding = 2560,
     .heads = {8, 4, 256}, .feed_forward = 10240, .vocabulary = 262144, .context = 131072,
     .norm_epsilon = 1e-6f, .tied = true, .kinds = "~~~~~*",
     .rope = {.base = 1e6f, .scaling = "linear", .factor = 8}, .window = {.positions = 1024}},
    {.name = "gemma4-e4b", .architecture = "gemma4", .layers = 42, .embedding = 2560,
     .heads = {8, 2, 512}, .feed_forward = 10240, .vocabulary = 262144, .context = 131072,
     .norm_epsilon = 1e-6f, .tied = true, .kinds = "~~~~~*", .rope = {.base = 1e6f},
     .window = {.positions = 512, .head_size = 256, .rope_base = 1e4f},
     .scales = {.logit_cap = 30}, .shared_layers = 18, .layer_embedding = 256},
    {.name = "gemma4-e2b", .architecture = "gemma4", .layers = 35, .embedding = 1536,
     .heads = {8, 1, 512}, .feed_forward = 6144, .vocabulary = 262144, .context = 131072,
     .norm_epsilon = 1e-6f, .tied = true, .kinds = "~~~~*", .rope = {.base = 1e6f},
     .window = {.positions = 512, .head_size = 256, .rope_base = 1e4f},
     .scales = {.logit_cap = 30}, .shared_layers = 20, .shared_feed_forward = 12288,
     .layer_embedding = 256},
    {.name = "gemma4-12b", .architecture = "gemma4", .tensors = "gemma4-dense", .layers = 48,
     .embedding = 3840, .heads = {16, 1, 512}, .feed_forward = 15360, .vocabulary = 262144,
     .context = 262144, .norm_epsilon = 1e-6f, .tied = true, .kinds = "~~~~~*",
     .rope = {.base = 1e6f},
     .window = {.positions = 1024, .head_size = 256, .keys = 8, .rope_base = 1e4f},
     .scales = {.logit_cap = 30}},
    {.name = "gemma4-26b-a4b", .architecture = "gemma4", .tensors = "gemma4-moe", .layers = 30,
     .embedding = 2816, .heads = {16, 2, 512}, .feed_forward = 2112, .vocabulary = 262144,
     .context = 262144, .norm_epsilon = 1e-6f, .tied = true, .kinds = "~~~~~*",
     .rope = {.base = 1e6f},
     .window = {.positions = 1024, .head_size = 256, .keys = 8, .rope_base = 1e4f},
     .scales = {.logit_cap = 30}, .experts = {.count = 128, .used = 8, .feed_forward = 704}},
    {.name = "phi4-mini", .architecture = "phi3", .layers = 32, .embedding = 3072,
     .heads = {24, 8, 128}, .feed_forward = 8192, .vocabulary = 200064, .context = 131072,
     .tied = true,
     .rope = {.size = 96, .scaling = "longrope", .original_context = 4096,
              .attention_factor = 1.190238f}},
    {.name = "phi3-mini", .architecture = "phi3", .layers = 32, .embedding = 3072,
     .heads = {32, 32, 96}, .feed_forward = 8192, .vocabulary = 32064, .context = 4096,
     .rope = {.original_context = 4096}},
    {.name = "glm4-9b", .architecture = "glm4", .layers = 40, .embedding = 4096,
     .heads = {32, 2, 128}, .feed_forward = 13696, .vocabulary = 151552, .context = 32768,
     .rope = {.size = 64}},
    {.name = "olmo2-7b", .architecture = "olmo2", .layers = 32, .embedding = 4096,
     .heads = {32, 32, 128}, .feed_forward = 11008, .vocabulary = 100352, .context = 4096,
     .norm_epsilon = 1e-6f, .rope = {.base = 5e5f}},
    {.name = "olmo3-7b", .architecture = "olmo2", .layers = 32, .embedding = 4096,
     .heads = {32, 32, 128}, .feed_forward = 11008, .vocabulary = 100278, .context = 65536,
     .norm_epsilon = 1e-6f, .kinds = "~~~*",
     .rope = {.base = 5e5f, .scaling = "yarn", .factor = 8, .original_context = 8192,
              .beta_fast = 32, .beta_slow = 1},
     .window = {.positions = 4096}},
    {.name = "lfm2-1.2b", .architecture = "lfm2", .layers = 16, .embedding = 2048,
     .heads = {32, 8, 64}, .feed_forward = 8192, .vocabulary = 65536, .context = 128000,
     .tied = true, .kinds = "MM*MM*MM*M*M*M*M", .rope = {.base = 1e6f}, .short_convolution = 3},
    {.name = "lfm2-2.6b", .architecture = "lfm2", .layers = 30, .embedding = 2048,
     .heads = {32, 8, 64}, .feed_forward = 10752, .vocabulary = 65536, .context = 128000,
     .tied = true, .kinds = "MM*MM*MMM*MMM*MMM*MMM*MM*MM*MM", .rope = {.base = 1e6f},
     .short_convolution = 3},
    {.name = "lfm2-8b-a1b", .architecture = "lfm2moe", .layers = 24, .embedding = 2048,
     .heads = {32, 8, 64}, .feed_forward = 7168, .vocabulary = 65536, .context = 128000,
     .tied = true, .kinds = "MM*MMM*MMM*MMM*MMM*MM*MM", .rope = {.base = 1e6f},
     .short_convolution = 3,
     .experts = {.count = 32, .used = 4, .feed_forward = 1792, .leading_dense = 2}},
    {.name = "nemotron-nano-4b", .architecture = "nemotron_h", .layers = 42, .embedding = 3136,
     .heads = {40, 8, 128}, .feed_forward = 12544, .vocabulary = 131072, .context = 262144,
     .kinds = "M-M-M-MM-M-M*-M-M*-M-M-M*-M-M-MM*-MMM-M-M-",
     .recurrence = {.inner = 7680, .heads = 96, .state = 128, .groups = 8, .taps = 4}},
    {.name = "nemotron-nano-9b", .architecture = "nemotron_h", .layers = 56, .embedding = 4480,
     .heads = {40, 8, 128}, .feed_forward = 15680, .vocabulary = 131072, .context = 131072,
     .kinds = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
     .recurrence = {.inner = 10240, .heads = 128, .state = 128, .groups = 8, .taps = 4}},
    {.name = "falcon-h1-7b", .architecture = "falcon-h1", .layers = 44, .embedding = 3072,
     .heads = {12, 2, 128}, .feed_forward = 12288, .vocabulary = 130048, .context = 262144,
     .rope = {.base = 1e11f},
     .recurrence = {.inner = 3072, .heads = 24, .state = 256, .groups = 1, .taps = 4}},
    {.name = "falcon-h1-1.5b", .architecture = "falcon-h1", .layers = 24, .embedding = 2048,
     .heads = {8, 2, 128}, .feed_forward = 4096, .vocabulary = 65536, .context = 131072,
     .rope = {.base = 1e11f},
     .recurrence = {.inner = 3072, .heads = 48, .state = 256, .groups = 1, .taps = 4}},
  };
}

// For tests and comparisons: small numbers, in which a mistake shows within twenty tokens.
std::vector<Shape> tiny_shapes() {
  return {
    {.name = "tiny-llama", .architecture = "llama", .layers = 3,
     .rope = {.base = 5e5f, .llama3 = 8}},
    {.name = "tiny-llama-biased", .architecture = "llama", .tensors = "llama-biased", .layers = 3},
    {.name = "tiny-llama-fused", .architecture = "llama", .tensors = "llama-fused", .layers = 3},
    {.name = "tiny-qwen2", .architecture = "qwen2", .layers = 3, .rope = {.base = 1e6f}},
    {.name = "tiny-qwen3", .architecture = "qwen3", .layers = 3, .tied = true,
     .rope = {.base = 1e6f}},
    {.name = "tiny-qwen3moe", .architecture = "qwen3moe", .layers = 3,
     .experts = {.count = 8, .used = 3, .feed_forward = 256}},
    {.name = "tiny-qwen35moe", .architecture = "qwen35moe", .layers = 5, .kinds = "MMM*",
     .rope = {.base = 1e7f, .size = 16},
     .recurrence = {.inner = 512, .heads = 4, .state = 128, .groups = 2, .taps = 4},
     .experts = {.count = 8, .used = 3, .feed_forward = 256, .shared_feed_forward = 512}},
    {.name = "tiny-gpt-oss", .architecture = "gpt-oss", .layers = 4, .kinds = "~*",
     .rope = {.scaling = "yarn", .factor = 32, .original_context = 1024},
     .window = {.positions = 8}, .experts = {.count = 8, .used = 3, .feed_forward = 256}},
    {.name = "tiny-lfm2moe", .architecture = "lfm2moe", .layers = 5, .heads = {8, 2, 32},
     .tied = true, .kinds = "MM*M*", .short_convolution = 4,
     .experts = {.count = 8, .used = 3, .feed_forward = 256, .leading_dense = 1}},
    {.name = "tiny-nemotron_h_moe", .architecture = "nemotron_h_moe", .layers = 9,
     .kinds = "M-M*-MM*-",
     .recurrence = {.inner = 768, .heads = 24, .state = 64, .groups = 4, .taps = 4},
     .experts = {.count = 8, .used = 3, .feed_forward = 256, .shared_feed_forward = 512}},
    {.name = "tiny-deepseek2", .architecture = "deepseek2", .layers = 4, .heads = {6, 6, 96},
     .latent = {.rank = 256, .query_rank = 512, .value_size = 128}, .rope = {.size = 32},
     .experts = {.count = 8, .used = 3, .feed_forward = 256, .shared_feed_forward = 256,
                 .is_sigmoid = true, .weights_scale = 1.8f, .leading_dense = 1}},
    {.name = "tiny-deepseek2-v3", .architecture = "deepseek2", .layers = 3, .heads = {6, 6, 96},
     .latent = {.rank = 256, .query_rank = 512, .value_size = 128},
     .rope = {.size = 32, .scaling = "yarn", .factor = 40, .original_context = 64,
              .log_multiplier = 0.1f},
     .experts = {.count = 16, .used = 3, .feed_forward = 256, .shared_feed_forward = 256,
                 .groups = 4, .groups_used = 2, .is_sigmoid = true, .weights_scale = 2.5f,
                 .leading_dense = 1}},
    {.name = "tiny-deepseek2-lite", .architecture = "deepseek2", .tensors = "deepseek2-lite",
     .layers = 26, .heads = {2, 2, 96},
     .latent = {.rank = 256, .value_size = 128, .is_old_form = true},
     .rope = {.size = 32, .scaling = "yarn", .factor = 40, .original_context = 64,
              .log_multiplier = 0.0707f},
     .experts = {.count = 8, .used = 3, .feed_forward = 256, .shared_feed_forward = 512,
                 .leading_dense = 23}},
    {.name = "tiny-smollm3", .architecture = "smollm3", .layers = 5, .tied = true},
    {.name = "tiny-mistral3", .architecture = "mistral3", .layers = 3,
     .rope = {.scaling = "yarn", .factor = 8, .original_context = 6, .beta_fast = 0.2f,
              .beta_slow = 0.005f, .log_multiplier = 0.5f},
     .scales = {.temperature = 0.7f}, .gain = 1.15f},
    {.name = "tiny-granite", .architecture = "granite", .layers = 4, .tied = true,
     .scales = {.attention = 0.04f, .embedding = 2.5f, .residual = 0.5f, .logit = 3.5f}},
    {.name = "tiny-granitehybrid", .architecture = "granitehybrid", .layers = 5, .tied = true,
     .kinds = "M*MM*",
     .scales = {.attention = 0.04f, .embedding = 2.5f, .residual = 0.5f, .logit = 3.5f},
     .recurrence = {.inner = 512, .heads = 16, .state = 64, .groups = 2, .taps = 4}},
    {.name = "tiny-granitehybrid-moe", .architecture = "granitehybrid",
     .tensors = "granitehybrid-moe", .layers = 5,
     .feed_forward = 256, .tied = true, .kinds = "M*MM*",
     .scales = {.attention = 0.04f, .embedding = 2.5f, .residual = 0.5f, .logit = 3.5f},
     .recurrence = {.inner = 512, .heads = 16, .state = 64, .groups = 2, .taps = 4},
     .experts = {.count = 8, .used = 3, .shared_feed_forward = 512}},
    {.name = "tiny-gemma2", .architecture = "gemma2", .layers = 4, .tied = true, .kinds = "~*",
     .window = {.positions = 8}, .scales = {.attention_cap = 5, .logit_cap = 6}},
    {.name = "tiny-gemma3", .architecture = "gemma3", .layers = 7, .tied = true,
     .kinds = "~~~~~*", .rope = {.base = 1e6f, .scaling = "linear", .factor = 8},
     .window = {.positions = 8}},
    {.name = "tiny-gemma4", .architecture = "gemma4", .layers = 8, .heads = {4, 2, 128},
     .tied = true, .kinds = "~*~~*~~*", .rope = {.base = 1e6f},
     .window = {.positions = 8, .head_size = 64, .rope_base = 1e4f}, .scales = {.logit_cap = 6},
     .shared_layers = 3, .shared_feed_forward = 1024, .layer_embedding = 256},
    {.name = "tiny-gemma4-moe", .architecture = "gemma4", .tensors = "gemma4-moe", .layers = 6,
     .heads = {4, 1, 128}, .tied = true, .kinds = "~~*", .rope = {.base = 1e6f},
     .window = {.positions = 8, .head_size = 64, .keys = 2, .rope_base = 1e4f},
     .scales = {.logit_cap = 6}, .experts = {.count = 8, .used = 3, .feed_forward = 256}},
    {.name = "tiny-phi3", .architecture = "phi3", .layers = 3,
     .rope = {.size = 48, .scaling = "longrope", .original_context = 8,
              .attention_factor = 1.19f}},
    {.name = "tiny-glm4", .architecture = "glm4", .layers = 3, .rope = {.size = 32}},
    {.name = "tiny-olmo2", .architecture = "olmo2", .layers = 3, .heads = {8, 2, 32}},
    {.name = "tiny-olmo3", .architecture = "olmo2", .layers = 5, .heads = {8, 2, 32},
     .kinds = "~~~*",
     .rope = {.scaling = "yarn", .factor = 8, .original_context = 2048, .beta_fast = 32,
              .beta_slow = 1},
     .window = {.positions = 7}},
    {.name = "tiny-lfm2", .architecture = "lfm2", .layers = 6, .heads = {8, 2, 32}, .tied = true,
     .kinds = "M*MM*M", .short_convolution = 4},
    {.name = "tiny-nemotron_h", .architecture = "nemotron_h", .layers = 9, .kinds = "M-M*-MM*-",
     .recurrence = {.inner = 768, .heads = 24, .state = 64, .groups = 4, .taps = 4}},
    {.name = "tiny-falcon-h1", .architecture = "falcon-h1", .layers = 3,
     .recurrence = {.inner = 768, .heads = 24, .state = 64, .groups = 2, .taps = 4}},
    {.name = "tiny-qwen35", .architecture = "qwen35", .layers = 5, .kinds = "MMM*",
     .rope = {.base = 1e7f, .size = 16},
     .recurrence = {.inner = 512, .heads = 4, .state = 128, .groups = 2, .taps = 4}},
  };
}
// clang-format on

// What most tiny shapes have in common.
Shape with_tiny_sizes(Shape shape) {
  shape.embedding = 256;
  if (shape.heads.size == 0) shape.heads = {4, 2, 64};
  if (shape.feed_forward == 0) shape.feed_forward = 512;
  shape.vocabulary = 512;
  shape.context = 2048;
  if (shape.gain == 1) shape.gain = 1.6f;
  shape.logit_deviation = 1.6f;
  shape.experts.router_bias = 0.3f;
  shape.experts.layer_gain = 0;  // as of dense models, so that errors of a layer show
  return shape;
}

// The models of the examples and of the tests of the program.
Shape test_shape(const char* name, std::uint32_t width, std::uint32_t queries,
                 std::uint32_t inner_width, std::uint32_t vocabulary, std::uint32_t context) {
  Shape shape{.name = name, .architecture = "llama", .layers = 4, .embedding = width};
  shape.heads = {queries, 2, 64};
  shape.feed_forward = inner_width;
  shape.vocabulary = vocabulary;
  shape.context = context;
  return shape;
}

// Small as a file, but with as many experts as a model of 30 billion weights: 75 MB in Q4_K_M.
Shape small_mixture() {
  Shape shape = test_shape("small-moe", 512, 8, 1024, 4096, 4096);
  shape.architecture = "qwen3moe";
  shape.experts = {.count = 128, .used = 8, .feed_forward = 256};
  return shape;
}

}  // namespace

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = [] {
    std::vector<Shape> list = {test_shape("tiny", 256, 4, 512, 2048, 2048),
                               test_shape("small", 512, 8, 1536, 4096, 4096), small_mixture()};
    for (Shape& shape : real_shapes()) list.push_back(std::move(shape));
    for (Shape& shape : tiny_shapes()) list.push_back(with_tiny_sizes(std::move(shape)));
    return list;
  }();
  return all;
}

const Shape& shape_by_name(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Shape& shape : shapes()) {
    if (shape.name == name) return shape;
    names.push_back(shape.name);
  }
  throw UsageError(fmt::format("unknown shape '{}'; known: {}", name, fmt::join(names, ", ")));
}

}  // namespace sluice::synth
