#include "core/model/blocks/whole_text_attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/attention.h"

namespace sluice::model {
namespace {

// The rows of one head, out of those of all heads side by side, and back.
struct HeadRows {
  std::size_t heads, dim;

  void part(const float* row, std::size_t column, std::size_t columns, float* parted) const {
    for (std::size_t h = 0; h < heads; ++h) {
      std::memcpy(parted + (h * columns + column) * dim, row + h * dim, dim * sizeof(float));
    }
  }
  void join(const float* parted, std::size_t column, std::size_t columns, float* row) const {
    for (std::size_t h = 0; h < heads; ++h) {
      std::memcpy(row + h * dim, parted + (h * columns + column) * dim, dim * sizeof(float));
    }
  }
};

std::size_t runs_of(std::size_t positions) {
  return (positions + kernels::attention_run_max - 1) / kernels::attention_run_max;
}

}  // namespace

float alibi_slope(std::size_t head, std::size_t heads) {
  const auto full = static_cast<float>(std::bit_floor(heads));
  const auto h = static_cast<float>(head);
  if (h < full) return std::exp2(-8 * (h + 1) / full);
  return std::exp2(-4 * (2 * (h - full) + 1) / full);
}

WholeTextAttention::Buffers WholeTextAttention::place(Arena& arena,
                                                      const BufferShape& shape) const {
  const Heads& heads = spec_.heads;
  const std::size_t columns = shape.columns;
  Buffers out;
  out.q = arena.floats(columns * heads.query * heads.key_dim);
  out.k = arena.floats(columns * heads.kv * heads.key_dim);
  out.v = arena.floats(columns * heads.kv * heads.value_dim);
  out.out = arena.floats(columns * heads.query * heads.value_dim);
  if (spec_.has_alibi) out.distances = arena.floats(2 * columns - 1);
  out.scores = arena.floats(shape.threads * block_columns *
                            kernels::attention_scratch(columns, runs_of(columns), heads.key_dim));
  out.runs = arena.take<kernels::AttentionRun>(shape.threads * runs_of(columns));
  out.blocks = arena.take<Stretch>(columns);
  return out;
}

void WholeTextAttention::bind(Arena& arena, const BufferShape& shape) {
  buffers_ = place(arena, shape);
  columns_max_ = shape.columns;
  runs_max_ = runs_of(shape.columns);
  score_stride_ = kernels::attention_scratch(shape.columns, runs_max_, spec_.heads.key_dim);
}

void WholeTextAttention::run(Pass& pass, const float* q, const float* k, const float* v,
                             float* out) {
  // Blocks share their buffers, so nothing lasts until the next run.
  if (spec_.has_alibi) {
    for (std::size_t i = 0; i < 2 * columns_max_ - 1; ++i) {
      const std::size_t middle = columns_max_ - 1;
      buffers_.distances[i] = static_cast<float>(i < middle ? middle - i : i - middle);
    }
  }
  part_heads(pass, q, k, v);
  const std::size_t blocks = find_blocks(pass);
  pass.compute.for_each(
      spec_.heads.query * blocks, [&](std::size_t member, std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
          const Stretch& columns = buffers_.blocks[i % blocks];
          const auto text = std::ranges::find_if(pass.stretches, [&](const Stretch& stretch) {
            return columns.first < stretch.first + stretch.count;
          });
          attend(pass, {columns, *text}, i / blocks, member);
        }
      });
  join_heads(pass, out);
}

// Cuts the texts of a step into blocks; returns their number.
std::size_t WholeTextAttention::find_blocks(const Pass& pass) const {
  std::size_t count = 0;
  for (const Stretch& text : pass.stretches) {
    for (std::size_t done = 0; done < text.count; done += block_columns) {
      buffers_.blocks[count++] = {text.first + done, std::min(block_columns, text.count - done)};
    }
  }
  return count;
}

void WholeTextAttention::part_heads(Pass& pass, const float* q, const float* k,
                                    const float* v) const {
  const Heads& heads = spec_.heads;
  const HeadRows queries{heads.query, heads.key_dim}, keys{heads.kv, heads.key_dim},
      values{heads.kv, heads.value_dim};
  const std::size_t columns = pass.columns.size();
  pass.compute.for_each(columns, [&](std::size_t, std::size_t begin, std::size_t end) {
    for (std::size_t c = begin; c < end; ++c) {
      queries.part(q + c * heads.query * heads.key_dim, c, columns, buffers_.q);
      keys.part(k + c * heads.kv * heads.key_dim, c, columns, buffers_.k);
      values.part(v + c * heads.kv * heads.value_dim, c, columns, buffers_.v);
    }
  });
}

void WholeTextAttention::join_heads(Pass& pass, float* out) const {
  const HeadRows outputs{spec_.heads.query, spec_.heads.value_dim};
  const std::size_t columns = pass.columns.size(), size = outputs.heads * outputs.dim;
  pass.compute.for_each(columns, [&](std::size_t, std::size_t begin, std::size_t end) {
    for (std::size_t c = begin; c < end; ++c) {
      outputs.join(buffers_.out, c, columns, out + c * size);
    }
  });
}

// The queries from column `first` of the block on that one call can compute.
WholeTextAttention::Call WholeTextAttention::call_at(const Block& block, std::size_t first) const {
  const std::size_t text_end = block.text.first + block.text.count;
  const std::size_t block_end = block.columns.first + block.columns.count;
  const std::size_t reach = spec_.reach == 0 ? block.text.count : spec_.reach;
  const auto begin_of = [&](std::size_t c) { return c - std::min(c - block.text.first, reach); };
  const auto end_of = [&](std::size_t c) { return std::min(text_end, c + reach + 1); };
  Call call{first, 1, begin_of(first), end_of(first), 0};
  while (call.first + call.count < block_end && begin_of(first + call.count) == call.begin &&
         end_of(first + call.count) == call.end) {
    ++call.count;
  }
  if (call.count > 1 || first + reach + 1 > text_end) return call;
  // A window that moves with the query.
  call.count = std::min(block_end, text_end - reach) - first;
  call.end = end_of(first + call.count - 1);
  call.window = 2 * reach + 1;
  return call;
}

void WholeTextAttention::attend(const Pass& pass, const Block& block, std::size_t head,
                                std::size_t member) const {
  const std::size_t end = block.columns.first + block.columns.count;
  for (std::size_t c = block.columns.first; c < end;) {
    const Call call = call_at(block, c);
    compute(pass, block, call, head, member);
    c += call.count;
  }
}

void WholeTextAttention::compute(const Pass& pass, const Block& block, const Call& call,
                                 std::size_t head, std::size_t member) const {
  const Heads& heads = spec_.heads;
  const std::size_t columns = pass.columns.size(), kv = head / (heads.query / heads.kv);
  const float* keys = buffers_.k + kv * columns * heads.key_dim;
  const float* values = buffers_.v + kv * columns * heads.value_dim;
  const float* queries = buffers_.q + (head * columns + call.first) * heads.key_dim;
  kernels::AttentionRun* const runs = buffers_.runs + member * runs_max_;
  std::size_t count = 0;
  for (std::size_t at = call.begin; at < call.end; at += kernels::attention_run_max) {
    runs[count++] = {.keys = keys,
                     .values = values,
                     .key_scales = nullptr,
                     .value_scales = nullptr,
                     .first = at,
                     .positions = std::min(kernels::attention_run_max, call.end - at),
                     .queries = queries};
  }
  kernels::AttentionArgs args{};
  args.runs = runs;
  args.run_count = count;
  args.positions = call.end - call.begin;
  // Queries that see the same are the heads of one column to the kernel.
  args.columns = call.window == 0 ? 1 : call.count;
  args.query_heads = call.window == 0 ? call.count : 1;
  args.window = call.window;
  args.query_stride = heads.key_dim;
  args.out_stride = heads.value_dim;
  args.head_dim = heads.key_dim;
  args.value_dim = heads.value_dim;
  args.scale = spec_.scale;
  if (spec_.has_alibi) {
    args.distances = buffers_.distances + columns_max_ - 1 - (call.first - block.text.first);
    args.slope = alibi_slope(head, heads.query);
  }
  args.scores = buffers_.scores + member * block_columns * score_stride_;
  args.score_stride = score_stride_;
  args.out = buffers_.out + (head * columns + call.first) * heads.value_dim;
  pass.compute.kernels().attention.f32(args);
}

}  // namespace sluice::model
