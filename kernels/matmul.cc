// What the matrix product shares between instruction sets: the layout of activations in memory.
#include "kernels/matmul.h"

#include <cassert>

namespace sluice::kernels {
namespace {

constexpr std::size_t alignment = 64;

constexpr std::size_t round_up(std::size_t n) {
  return (n + alignment - 1) / alignment * alignment;
}

}  // namespace

Activations::ColumnLayout::ColumnLayout(std::size_t size) {
  std::size_t at = 0;
  const auto take = [&at](std::size_t count) {
    const std::size_t start = at;
    at = round_up(at + count);
    return start;
  };
  const std::size_t groups_of_32 = (size + 31) / 32;
  a256_q = take(size);
  a256_d = take((size + 255) / 256 * sizeof(float));
  a256_sums = take(groups_of_32 * sizeof(std::int16_t));
  a256_minus_32 = take((size + 15) / 16 * sizeof(std::int32_t));
  a32_q = take(size);
  a32_d = take(groups_of_32 * sizeof(float));
  a32_d_sums = take(groups_of_32 * sizeof(float));
  a32_minus_8 = take(groups_of_32 * sizeof(std::int32_t));
  a32_minus_16 = take(groups_of_32 * sizeof(std::int32_t));
  a32_minus_128 = take(groups_of_32 * sizeof(std::int32_t));
  bytes = at;
}

ActivationForm activation_form(BlockType type) {
  switch (type) {
    case BlockType::q4_k:
    case BlockType::q5_k:
    case BlockType::q6_k:
      return ActivationForm::a256;
    case BlockType::q4_0:
    case BlockType::q4_1:
    case BlockType::q5_0:
    case BlockType::q5_1:
    case BlockType::q8_0:
      return ActivationForm::a32;
    default:
      return ActivationForm::f32;
  }
}

std::size_t Activations::buffer_bytes(std::size_t size, std::size_t columns) {
  return ColumnLayout(size).bytes * columns;
}

Activations::Activations(const float* x, std::size_t x_stride, std::size_t size,
                         std::size_t columns, std::byte* buffer)
    : x_(x), x_stride_(x_stride), size_(size), columns_(columns), buffer_(buffer), layout_(size) {
  assert(reinterpret_cast<std::uintptr_t>(buffer) % alignment == 0);
}

void Activations::quantise(const QuantiseKernels& kernels, ActivationForm form,
                           std::size_t column) const {
  if (form == ActivationForm::a256) kernels.a256(f32(column), size_, a256(column));
  if (form == ActivationForm::a32) kernels.a32(f32(column), size_, a32(column));
}

std::size_t Activations::size() const {
  return size_;
}

std::size_t Activations::columns() const {
  return columns_;
}

const float* Activations::f32(std::size_t column) const {
  return x_ + column * x_stride_;
}

std::size_t Activations::column_bytes() const {
  return layout_.bytes;
}

ColumnA256 Activations::a256(std::size_t column) const {
  std::byte* base = buffer_ + column * layout_.bytes;
  return {reinterpret_cast<std::int8_t*>(base + layout_.a256_q),
          reinterpret_cast<float*>(base + layout_.a256_d),
          reinterpret_cast<std::int16_t*>(base + layout_.a256_sums),
          reinterpret_cast<std::int32_t*>(base + layout_.a256_minus_32)};
}

ColumnA32 Activations::a32(std::size_t column) const {
  std::byte* base = buffer_ + column * layout_.bytes;
  return {reinterpret_cast<std::int8_t*>(base + layout_.a32_q),
          reinterpret_cast<float*>(base + layout_.a32_d),
          reinterpret_cast<float*>(base + layout_.a32_d_sums),
          reinterpret_cast<std::int32_t*>(base + layout_.a32_minus_8),
          reinterpret_cast<std::int32_t*>(base + layout_.a32_minus_16),
          reinterpret_cast<std::int32_t*>(base + layout_.a32_minus_128)};
}

}  // namespace sluice::kernels
