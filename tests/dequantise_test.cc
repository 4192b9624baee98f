// Weight blocks against an oracle that finds one element at a time by its bit positions, in exact
// double arithmetic; half floats against all values there are.
#include "kernels/dequantise.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/block_formats.h"
#include "tests/catch.h"
#include "tests/kernels_support.h"

namespace sluice::test {
namespace {

using kernels::BlockType;
using Bytes = const std::uint8_t*;

// The value of a half by the definition of IEEE 754.
double half_value(unsigned bits) {
  const double sign = bits & 0x8000 ? -1 : 1;
  const int exponent = static_cast<int>(bits >> 10 & 31);
  const double fraction = (bits & 1023) / 1024.0;
  if (exponent == 31) return fraction == 0 ? sign * HUGE_VAL : std::nan("");
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15));
}

unsigned u16(Bytes p) {
  return p[0] | p[1] << 8;
}
double half_at(Bytes p) {
  return half_value(u16(p));
}

// `width` bits that start at a bit offset of little-endian memory.
int bits(Bytes p, int offset, int width) {
  int value = 0;
  for (int i = 0; i < width; ++i) value |= (p[(offset + i) / 8] >> ((offset + i) % 8) & 1) << i;
  return value;
}

constexpr int nonlinear[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                             1,    13,   25,  38,  53,  69,  89,  113};
constexpr double e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6};

// Nibble i of a block of 32: first the low ones of 16 bytes, then the high ones.
int nibble_32(Bytes qs, int i) {
  return bits(qs, 8 * (i % 16) + 4 * (i / 16), 4);
}
// Nibble i of 64-element chunks: the low ones of 32 bytes, then the high ones.
int nibble_64(Bytes qs, int i) {
  return bits(qs, 256 * (i / 64) + 8 * (i % 32) + 4 * (i / 32 % 2), 4);
}

double element_of_32(BlockType type, Bytes b, int i) {
  const double d = half_at(b);
  switch (type) {
    case BlockType::q4_0:
      return d * (nibble_32(b + 2, i) - 8);
    case BlockType::q4_1:
      return d * nibble_32(b + 4, i) + half_at(b + 2);
    case BlockType::q5_0:
      return d * (nibble_32(b + 6, i) + 16 * bits(b + 2, i, 1) - 16);
    case BlockType::q5_1:
      return d * (nibble_32(b + 8, i) + 16 * bits(b + 4, i, 1)) + half_at(b + 2);
    case BlockType::q8_0:
      return d * static_cast<std::int8_t>(b[2 + i]);
    case BlockType::iq4_nl:
      return d * nonlinear[nibble_32(b + 2, i)];
    case BlockType::mxfp4:
      return e2m1[nibble_32(b + 1, i)] * std::ldexp(1.0, b[0] - 127);
    default:
      FAIL("not a block of 32");
  }
  return 0;
}

struct Pair {
  int scale, min;
};

Pair pair_of_q4_k(Bytes s, int j) {
  if (j < 4) return {bits(s, 8 * j, 6), bits(s, 8 * (j + 4), 6)};
  return {bits(s, 8 * (j + 4), 4) + 16 * bits(s, 8 * (j - 4) + 6, 2),
          bits(s, 8 * (j + 4) + 4, 4) + 16 * bits(s, 8 * j + 6, 2)};
}

int scale_of_q3_k(Bytes a, int s) {
  return bits(a, 8 * (s % 8) + 4 * (s / 8), 4) + 16 * bits(a, 8 * (8 + s % 4) + 2 * (s / 4), 2) -
         32;
}

double element_of_256(BlockType type, Bytes b, int i) {
  const int two_bits = 256 * (i / 128) + 8 * (i % 32) + 2 * (i / 32 % 4);  // for Q2_K and Q3_K
  switch (type) {
    case BlockType::q2_k:
      return half_at(b + 80) * bits(b, 8 * (i / 16), 4) * bits(b + 16, two_bits, 2) -
             half_at(b + 82) * bits(b, 8 * (i / 16) + 4, 4);
    case BlockType::q3_k: {
      const int third = bits(b, 8 * (i % 32) + i / 32, 1);
      const int q = bits(b + 32, two_bits, 2) - (third ? 0 : 4);
      return half_at(b + 108) * scale_of_q3_k(b + 96, i / 16) * q;
    }
    case BlockType::q4_k: {
      const auto [scale, min] = pair_of_q4_k(b + 4, i / 32);
      return half_at(b) * scale * nibble_64(b + 16, i) - half_at(b + 2) * min;
    }
    case BlockType::q5_k: {
      const auto [scale, min] = pair_of_q4_k(b + 4, i / 32);
      const int q = nibble_64(b + 48, i) + 16 * bits(b + 16, 8 * (i % 32) + i / 32, 1);
      return half_at(b) * scale * q - half_at(b + 2) * min;
    }
    case BlockType::q6_k: {
      const int low = bits(b, 512 * (i / 128) + 8 * (i % 64) + 4 * (i / 64 % 2), 4);
      const int high = bits(b + 128, 256 * (i / 128) + 8 * (i % 32) + 2 * (i / 32 % 4), 2);
      const auto scale = static_cast<std::int8_t>(b[192 + i / 16]);
      return half_at(b + 208) * scale * (low + 16 * high - 32);
    }
    case BlockType::iq4_xs: {
      const int j = i / 32;
      const int scale = bits(b + 4, 4 * j, 4) + 16 * bits(b + 2, 2 * j, 2) - 32;
      return half_at(b) * scale * nonlinear[nibble_32(b + 8 + 16 * j, i % 32)];
    }
    default:
      FAIL("not a block of 256");
  }
  return 0;
}

float oracle(BlockType type, Bytes row, std::size_t i) {
  const kernels::BlockTraits& t = kernels::traits(type);
  const Bytes block = row + i / t.elements_per_block * t.bytes_per_block;
  const int within = static_cast<int>(i % t.elements_per_block);
  if (type == BlockType::f32) {
    float value;
    std::memcpy(&value, block, sizeof value);
    return value;
  }
  if (type == BlockType::f16) return static_cast<float>(half_at(block));
  if (type == BlockType::bf16) return std::bit_cast<float>(u16(block) << 16);
  return static_cast<float>(t.elements_per_block == 32 ? element_of_32(type, block, within)
                                                       : element_of_256(type, block, within));
}

// Offsets of the half floats of a block, to set them to chosen values.
std::vector<std::size_t> half_offsets(BlockType type) {
  switch (type) {
    case BlockType::q4_1:
    case BlockType::q5_1:
    case BlockType::q4_k:
    case BlockType::q5_k:
      return {0, 2};
    case BlockType::q2_k:
      return {80, 82};
    case BlockType::q3_k:
      return {108};
    case BlockType::q6_k:
      return {208};
    case BlockType::f32:
    case BlockType::bf16:
    case BlockType::mxfp4:
      return {};
    default:
      return {0};
  }
}

// What llama.cpp's own decoders in numpy make of 64 blocks of a stream of bytes: the hash of all
// values. tests/block_goldens.py prints these lines; the last five are of a decoder of its own in
// numpy, because that package does not know these formats.
struct Golden {
  BlockType type;
  // The bytes with the exponents of the scales; their bit 6 is 0: no infinity.
  std::vector<std::size_t> tops_of_scales;
  std::uint64_t hash;
};
const Golden goldens[] = {
    {BlockType::iq2_xxs, {1}, 0x0305647ced34f869},   {BlockType::iq2_xs, {1}, 0xc9addcd0694c5ac3},
    {BlockType::iq3_xxs, {1}, 0x71180731b9bde99a},   {BlockType::iq1_s, {1}, 0x5b14f037d7c7b1b5},
    {BlockType::iq3_s, {1}, 0xc5271a47ea30b063},     {BlockType::iq2_s, {1}, 0x021d5708bed68529},
    {BlockType::iq1_m, {55}, 0xdb737f412b2376d7},    {BlockType::tq1_0, {53}, 0xd706f6de5d9e0b03},
    {BlockType::tq2_0, {65}, 0x3ee94f536ac51dbb},    {BlockType::q4_0, {1}, 0x4981ff26a8e0d0a1},
    {BlockType::q4_1, {1, 3}, 0x973596faa9e43bea},   {BlockType::q5_0, {1}, 0xeb94cf08b4096f13},
    {BlockType::q5_1, {1, 3}, 0xd59ee529f6af3d41},   {BlockType::q8_0, {1}, 0x9dfbe94efe0c48fe},
    {BlockType::q2_k, {81, 83}, 0xeceeb75fa913058c}, {BlockType::q3_k, {109}, 0x0dc70d081e68c60c},
    {BlockType::q4_k, {1, 3}, 0x8ab3a4c82f968c56},   {BlockType::q5_k, {1, 3}, 0x4c71c96baabda866},
    {BlockType::q6_k, {209}, 0x185937135ba05568},    {BlockType::iq4_nl, {1}, 0x92d8c16395ae1f63},
    {BlockType::iq4_xs, {1}, 0x2c0fe0f7cbc95581},    {BlockType::mxfp4, {0}, 0x022d6f844c5d8e2e},
    {BlockType::q1_0, {1}, 0x11f54dbbc78c48a5},      {BlockType::q2_0, {1}, 0xf57ffda86e24ac65},
    {BlockType::nvfp4, {0}, 0xc83b201e14b97c47},     {BlockType::pq2_0, {1}, 0x0cf010fd9fd7fe63},
    {BlockType::ptq1_0, {27}, 0x6c9becd3658e09d0},
};

// Formats that have goldens alone.
constexpr BlockType unknown_to_oracle[] = {
    BlockType::iq2_xxs, BlockType::iq2_xs, BlockType::iq3_xxs, BlockType::iq1_s, BlockType::iq3_s,
    BlockType::iq2_s,   BlockType::iq1_m,  BlockType::tq1_0,   BlockType::tq2_0, BlockType::q1_0,
    BlockType::q2_0,    BlockType::nvfp4,  BlockType::pq2_0,   BlockType::ptq1_0};

// The upper bytes of xorshift64*.
std::vector<std::uint8_t> stream_of_bytes(std::size_t size, std::uint64_t seed) {
  std::vector<std::uint8_t> bytes(size);
  for (std::uint8_t& byte : bytes) {
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    byte = static_cast<std::uint8_t>(seed * 0x2545f4914f6cdd1d >> 56);
  }
  return bytes;
}

// FNV-1a of the little-endian bytes.
std::uint64_t hash_of(const std::vector<float>& values) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const float value : values) {
    for (int i = 0; i < 32; i += 8) {
      hash = (hash ^ (std::bit_cast<std::uint32_t>(value) >> i & 255)) * 0x100000001b3;
    }
  }
  return hash;
}

TEST_CASE("blocks decode to the bit as llama.cpp's own decoders do") {
  constexpr std::size_t blocks = 64;
  for (const Golden& golden : goldens) {
    const kernels::BlockTraits& t = kernels::traits(golden.type);
    auto row = stream_of_bytes(blocks * t.bytes_per_block, static_cast<std::uint64_t>(t.type));
    for (std::size_t b = 0; b < blocks; ++b) {
      for (const std::size_t top : golden.tops_of_scales) row[b * t.bytes_per_block + top] &= 0xbf;
    }
    std::vector<float> values(blocks * t.elements_per_block);
    kernels::dequantise(t.type, reinterpret_cast<const std::byte*>(row.data()), values.size(),
                        values.data());
    INFO(t.name);
    CHECK(hash_of(values) == golden.hash);
  }
  for (const BlockType type : unknown_to_oracle) {
    INFO(kernels::traits(type).name);
    CHECK(std::ranges::find(goldens, type, &Golden::type) != std::end(goldens));
  }
}

TEST_CASE("every format decodes to the bit as the oracle does") {
  Rng rng(11);
  constexpr std::uint16_t special[] = {0,      0x8000, 0x0001, 0x83ff, 0x0400, 0x7bff,
                                       0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x3c00, 0x1234};
  for (const kernels::BlockTraits& t : kernels::all_block_types()) {
    if (std::ranges::find(unknown_to_oracle, t.type) != std::end(unknown_to_oracle)) continue;
    for (const std::size_t blocks : {1, 2, 3, 7, 64}) {
      for (const bool extreme : {false, true}) {
        const std::size_t columns = blocks * t.elements_per_block;
        const std::size_t row_bytes = kernels::row_bytes(t.type, columns);
        REQUIRE(row_bytes == blocks * t.bytes_per_block);
        std::vector<std::uint8_t> storage(row_bytes + 1);
        for (std::uint8_t& byte : storage) byte = static_cast<std::uint8_t>(rng());
        std::uint8_t* row = storage.data() + 1;  // blocks need no alignment
        for (std::size_t b = 0; extreme && b < blocks; ++b) {
          for (const std::size_t at : half_offsets(t.type)) {
            const std::uint16_t half = special[rng() % std::size(special)];
            std::memcpy(row + b * t.bytes_per_block + at, &half, sizeof half);
          }
        }
        Guarded<float> out(columns, 1);
        kernels::dequantise(t.type, reinterpret_cast<const std::byte*>(row), columns, out.data());
        std::vector<float> expected(columns);
        for (std::size_t i = 0; i < columns; ++i) expected[i] = oracle(t.type, row, i);
        INFO(t.name << ", " << blocks << " blocks");
        CHECK(difference(out.data(), expected.data(), columns).value_or("") == "");
        CHECK(out.intact());
      }
    }
  }
}

TEST_CASE("all exponents of MXFP4, subnormal scales included") {
  for (unsigned e = 0; e < 256; ++e) {
    std::array<std::uint8_t, 17> block{static_cast<std::uint8_t>(e)};
    for (std::size_t j = 0; j < 16; ++j) block[j + 1] = static_cast<std::uint8_t>(j * 17);
    std::array<float, 32> out{}, expected{};
    kernels::dequantise(BlockType::mxfp4, reinterpret_cast<const std::byte*>(block.data()), 32,
                        out.data());
    for (std::size_t i = 0; i < 32; ++i) expected[i] = oracle(BlockType::mxfp4, block.data(), i);
    INFO("exponent " << e);
    CHECK(difference(out.data(), expected.data(), 32).value_or("") == "");
  }
}

TEST_CASE("every half becomes the float it stands for, and back") {
  std::size_t wrong = 0;
  for (unsigned h = 0; h < 65536; ++h) {
    const float value = kernels::half_to_float(static_cast<std::uint16_t>(h));
    if (!same(value, static_cast<float>(half_value(h)))) ++wrong;
    if (std::isnan(value)) {
      if (kernels::float_to_half(value) != (h | 0x200)) ++wrong;  // quiet, payload kept
    } else if (kernels::float_to_half(value) != h) {
      ++wrong;
    }
  }
  CHECK(wrong == 0);
}

// The nearest half by search among all of them, even on a tie.
std::uint16_t nearest_half(float value) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double magnitude = std::abs(static_cast<double>(value));
  unsigned below = 0, above = 0x7c00;  // finite ones in order, then 65536 in the place of infinity
  const auto at = [](unsigned h) { return h == 0x7c00 ? 65536.0 : half_value(h); };
  if (magnitude >= 65536) return sign | 0x7c00;
  while (above - below > 1) {
    const unsigned middle = (below + above) / 2;
    (at(middle) <= magnitude ? below : above) = middle;
  }
  const double to_below = magnitude - at(below), to_above = at(above) - magnitude;
  const bool up = to_above < to_below || (to_above == to_below && above % 2 == 0);
  return static_cast<std::uint16_t>(sign | (up ? above : below));
}

TEST_CASE("a float becomes the nearest half, in every tier") {
  Rng rng(12);
  std::vector<float> values = {0.0f,      -0.0f,        65519.996f,   65520.0f,
                               -65520.0f, 0x1p-25f,     0x1.8p-25f,   0x1.000002p-25f,
                               0x1p-24f,  0x1.ffcp-15f, 0x1.ffep-15f, infinity};
  for (int i = 0; i < 200000; ++i) values.push_back(sample(Data::any_bits, rng));
  for (int i = 0; i < 200000; ++i) {  // halves, ties and their neighbours
    const auto half = static_cast<std::uint16_t>(rng() % 0x7bff);
    const float tie = (kernels::half_to_float(half) + kernels::half_to_float(half + 1)) / 2;
    const auto nudge = static_cast<std::uint32_t>(rng() % 3);
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(tie) + nudge - 1;
    values.push_back(std::bit_cast<float>(bits));
  }
  std::size_t wrong = 0;
  for (const float v : values) {
    if (!std::isnan(v) && kernels::float_to_half(v) != nearest_half(v)) ++wrong;
  }
  CHECK(wrong == 0);

  std::vector<std::uint16_t> expected(values.size()), found(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) expected[i] = kernels::float_to_half(values[i]);
  for (const kernels::Isa isa : tiers_above_scalar()) {
    kernels::kernel_table(isa).attention.f32_to_f16(values.data(), values.size(), found.data());
    INFO(kernels::isa_name(isa));
    CHECK(difference(found.data(), expected.data(), values.size()).value_or("") == "");
  }
}

TEST_CASE("block types are found by id and named") {
  for (const kernels::BlockTraits& t : kernels::all_block_types()) {
    const auto id = static_cast<std::uint32_t>(t.type);
    REQUIRE(kernels::find_block_type(id));
    CHECK(kernels::find_block_type(id)->name == t.name);
    CHECK(kernels::gguf_type_name(id) == t.name);
    CHECK(kernels::traits(t.type).bytes_per_block == t.bytes_per_block);
  }
  CHECK_FALSE(kernels::find_block_type(15));
  CHECK(kernels::gguf_type_name(15) == "Q8_K");
  CHECK(kernels::gguf_type_name(97) == "type 97");
}

}  // namespace
}  // namespace sluice::test
