#include "core/synth/random_blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/dequantise.h"
#include "kernels/formats/all.h"

namespace sluice::synth {
namespace {

using namespace kernels;

// Draws of a few bits at a time out of 64.
class Bits {
 public:
  explicit Bits(std::uint64_t bits) : bits_(bits) {}

  std::uint32_t take(unsigned count) {
    const auto value = static_cast<std::uint32_t>(bits_ & ((1u << count) - 1));
    bits_ >>= count;
    return value;
  }

 private:
  std::uint64_t bits_;
};

// A scale near `value`: real ones differ from block to block.
float jittered(float value, Bits& bits) {
  return value * (0.8f + 0.4f * static_cast<float>(bits.take(16)) / 65536.0f);
}

// The same with either sign, for formats whose values are not symmetric about zero.
float jittered_signed(float value, Bits& bits) {
  const float scale = jittered(value, bits);
  return bits.take(1) != 0 ? -scale : scale;
}

// The root mean squares of what random bits stand for, by format. The K-quants choose integer
// scales for their sub-blocks below; the root mean squares of those are named beside them.
constexpr float rms_4_bits = 4.61f;         // 0..15 about 7.5
constexpr float rms_4_bits_signed = 4.64f;  // -8..7 about 0
constexpr float rms_5_bits = 9.23f;         // 0..31 about 15.5
constexpr float rms_5_bits_signed = 9.25f;
constexpr float rms_2_bits = 1.118f;        // 0..3 about 1.5
constexpr float rms_3_bits_signed = 2.35f;  // -4..3 about 0
constexpr float rms_6_bits_signed = 18.48f;
constexpr float rms_8_bits_signed = 73.6f;
constexpr float rms_iq4 = 67.4f;  // the table of IQ4_NL and IQ4_XS
constexpr float rms_e2m1 = 2.93f;

void set_scales(BlockQ4_0& block, float std_deviation, Random& random) {
  Bits bits(random.next());
  block.d = float_to_half(jittered_signed(std_deviation / rms_4_bits_signed, bits));
}

void set_scales(BlockQ4_1& block, float std_deviation, Random& random) {
  Bits bits(random.next());
  const float d = jittered(std_deviation / rms_4_bits, bits);
  block.d = float_to_half(d);
  block.m = float_to_half(-7.5f * d);
}

void set_scales(BlockQ5_0& block, float std_deviation, Random& random) {
  Bits bits(random.next());
  block.d = float_to_half(jittered_signed(std_deviation / rms_5_bits_signed, bits));
}

void set_scales(BlockQ5_1& block, float std_deviation, Random& random) {
  Bits bits(random.next());
  const float d = jittered(std_deviation / rms_5_bits, bits);
  block.d = float_to_half(d);
  block.m = float_to_half(-15.5f * d);
}

void set_scales(BlockQ8_0& block, float std_deviation, Random& random) {
  Bits bits(random.next());
  block.d = float_to_half(jittered(std_deviation / rms_8_bits_signed, bits));
  // Quantisers never produce -128, and kernels may rely on that.
  for (std::int8_t& q : block.qs) q = std::max<std::int8_t>(q, -127);
}

void set_scales(BlockQ2_K& block, float std_deviation, Random& random) {
  constexpr float rms_scale = 11.73f;  // of 8..15
  Bits scale_bits(random.next());
  for (std::uint8_t& scale : block.scales) {
    const std::uint32_t s = 8 + scale_bits.take(3);
    scale = static_cast<std::uint8_t>(s | s << 4);  // scale and minimum alike: mean zero
  }
  Bits bits(random.next());
  const float d = jittered(std_deviation / (rms_2_bits * rms_scale), bits);
  block.d = float_to_half(d);
  block.dmin = float_to_half(1.5f * d);
}

constexpr float rms_signed_scale = 16.17f;  // of 8..23, either sign

// A 6-bit scale that stands for itself minus 32.
std::uint32_t signed_scale(Bits& bits) {
  const std::uint32_t magnitude = 8 + bits.take(4);
  return bits.take(1) != 0 ? 32 + magnitude : 32 - magnitude;
}

void set_scales(BlockQ3_K& block, float std_deviation, Random& random) {
  std::fill(std::begin(block.scales), std::end(block.scales), std::uint8_t{0});
  Bits low_half(random.next());
  Bits high_half(random.next());
  for (unsigned k = 0; k < 16; ++k) {
    const std::uint32_t s = signed_scale(k < 8 ? low_half : high_half);
    block.scales[k % 8] |= static_cast<std::uint8_t>((s & 15) << (k < 8 ? 0 : 4));
    block.scales[8 + k % 4] |= static_cast<std::uint8_t>((s >> 4) << (2 * (k / 4)));
  }
  block.d =
      float_to_half(jittered(std_deviation / (rms_3_bits_signed * rms_signed_scale), low_half));
}

constexpr float rms_k_scale = 32.8f;  // of 16..47

// Eight 6-bit scales, and eight minima that equal them.
void set_k_scales(std::uint8_t (&packed)[12], Bits& bits) {
  std::uint32_t scales[8];
  for (std::uint32_t& scale : scales) scale = 16 + bits.take(5);
  for (unsigned j = 0; j < 4; ++j) {
    const auto first = static_cast<std::uint8_t>(scales[j] | (scales[j + 4] >> 4) << 6);
    packed[j] = first;
    packed[j + 4] = first;
    packed[j + 8] = static_cast<std::uint8_t>((scales[j + 4] & 15) * 17);
  }
}

void set_scales(BlockQ4_K& block, float std_deviation, Random& random) {
  Bits bits(random.next());
  set_k_scales(block.scales, bits);
  const float d = jittered(std_deviation / (rms_4_bits * rms_k_scale), bits);
  block.d = float_to_half(d);
  block.dmin = float_to_half(7.5f * d);
}

void set_scales(BlockQ5_K& block, float std_deviation, Random& random) {
  Bits bits(random.next());
  set_k_scales(block.scales, bits);
  const float d = jittered(std_deviation / (rms_5_bits * rms_k_scale), bits);
  block.d = float_to_half(d);
  block.dmin = float_to_half(15.5f * d);
}

void set_scales(BlockQ6_K& block, float std_deviation, Random& random) {
  constexpr float rms_scale = 66.1f;  // of 32..95, either sign
  Bits signs(random.next());
  const std::uint64_t draws[2] = {random.next(), random.next()};
  Bits magnitudes[2] = {Bits(draws[0]), Bits(draws[1])};
  for (unsigned s = 0; s < 16; ++s) {
    const int magnitude = static_cast<int>(32 + magnitudes[s / 8].take(6));
    block.scales[s] = static_cast<std::int8_t>(signs.take(1) != 0 ? -magnitude : magnitude);
  }
  block.d = float_to_half(jittered(std_deviation / (rms_6_bits_signed * rms_scale), signs));
}

void set_scales(BlockIQ4_NL& block, float std_deviation, Random& random) {
  Bits bits(random.next());
  block.d = float_to_half(jittered_signed(std_deviation / rms_iq4, bits));
}

void set_scales(BlockIQ4_XS& block, float std_deviation, Random& random) {
  Bits bits(random.next());
  std::fill(std::begin(block.scales_l), std::end(block.scales_l), std::uint8_t{0});
  std::uint32_t high = 0;
  for (unsigned s = 0; s < 8; ++s) {
    const std::uint32_t scale = signed_scale(bits);
    block.scales_l[s / 2] |= static_cast<std::uint8_t>((scale & 15) << (4 * (s % 2)));
    high |= (scale >> 4) << (2 * s);
  }
  block.scales_h = static_cast<std::uint16_t>(high);
  block.d = float_to_half(jittered(std_deviation / (rms_iq4 * rms_signed_scale), bits));
}

void set_scales(BlockMXFP4& block, float std_deviation, Random& random) {
  // The scale is a power of two: at random the one below or above the wanted.
  const int exponent = std::ilogb(std_deviation / rms_e2m1);
  Bits bits(random.next());
  block.e = static_cast<std::uint8_t>(
      std::clamp(127 + exponent + static_cast<int>(bits.take(1)), 2, 254));
}

void set_scales(BlockNVFP4& block, float std_deviation, Random& random) {
  // Of the scales next to the wanted one, one is drawn such that the mean of the squares is right.
  const float wanted = std_deviation / (2 * rms_e2m1);  // half of it, as the others
  int below = 0;
  while (below < 125 && half_of_ue4m3(static_cast<std::uint8_t>(below + 1)) <= wanted) ++below;
  const float low = half_of_ue4m3(static_cast<std::uint8_t>(below));
  const float high = half_of_ue4m3(static_cast<std::uint8_t>(below + 1));
  Bits bits(random.next());
  for (std::uint8_t& e : block.e) {
    const float drawn = static_cast<float>(bits.take(16)) / 65536.0f;
    const bool is_above = low * low + drawn * (high * high - low * low) < wanted * wanted;
    e = static_cast<std::uint8_t>(below + (is_above ? 1 : 0));
  }
}

// The scale of a format that needs no more than one: its random bits are valid, and of the given
// root mean square about zero.
std::uint16_t only_scale(float std_deviation, float rms, Random& random) {
  Bits bits(random.next());
  return float_to_half(jittered_signed(std_deviation / rms, bits));
}

// The code 3 stands for 2, which quantisers do not write; 1, which takes its place, stands for 0.
void clear_threes(std::uint8_t* codes, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    codes[i] = static_cast<std::uint8_t>(codes[i] & ~((codes[i] >> 1 & codes[i] & 0x55) << 1));
  }
}

// The root mean squares of random bits in formats whose one half, `d`, may have either sign.
constexpr std::pair<BlockType, float> rms_of_types[] = {
    {BlockType::iq2_xxs, 53.4f},  {BlockType::iq2_xs, 56.2f}, {BlockType::iq2_s, 56.3f},
    {BlockType::iq3_xxs, 142.7f}, {BlockType::iq3_s, 141.1f}, {BlockType::iq1_s, 7.18f},
    {BlockType::iq1_m, 7.18f},    {BlockType::tq1_0, 0.817f}, {BlockType::ptq1_0, 0.817f},
    {BlockType::q1_0, 1},         {BlockType::q2_0, 0.707f},  // -1, 0, 0 and 1
    {BlockType::pq2_0, 0.707f},   {BlockType::tq2_0, 0.707f},
};
constexpr float rms_of(BlockType type) {
  for (const auto& [known, rms] : rms_of_types) {
    if (known == type) return rms;
  }
  return 0;  // a format with scales of its own
}

template <typename Format, typename Block>
void set_only_scale(Block& block, float std_deviation, Random& random) {
  constexpr BlockType type = Format::type;
  if constexpr (type == BlockType::q2_0 || type == BlockType::pq2_0 || type == BlockType::tq2_0) {
    clear_threes(block.qs, sizeof block.qs);
  }
  const std::uint16_t d = only_scale(std_deviation, rms_of(type), random);
  if constexpr (requires { block.d; }) {
    block.d = d;
  } else {  // IQ1_M has four bits of it in each of four words
    for (unsigned i = 0; i < 4; ++i) {
      block.scales[i] =
          static_cast<std::uint16_t>((block.scales[i] & 0xfff) | (d >> (4 * i) & 15) << 12);
    }
  }
}

template <typename Format>
void fill_blocks(std::span<std::byte> out, float std_deviation, Random& random) {
  using Block = typename Format::Block;
  random.fill(out);
  auto* blocks = reinterpret_cast<Block*>(out.data());
  for (std::size_t i = 0; i < out.size() / sizeof(Block); ++i) {
    if constexpr (rms_of(Format::type) != 0) {
      set_only_scale<Format>(blocks[i], std_deviation, random);
    } else {
      set_scales(blocks[i], std_deviation, random);
    }
  }
}

template <typename Element, typename Convert>
void fill_elements(std::span<std::byte> out, float std_deviation, Random& random,
                   const Convert& convert) {
  for (std::size_t at = 0; at + sizeof(Element) <= out.size(); at += sizeof(Element)) {
    const Element element = convert(std_deviation * random.normal());
    std::memcpy(out.data() + at, &element, sizeof(Element));
  }
}

// The upper half of a float, rounded to nearest even; not for NaN.
std::uint16_t bfloat_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

}  // namespace

Random::Random(std::uint64_t seed, std::uint64_t stream) : bits_(splitmix64(seed) + stream) {}

void Random::fill(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const std::uint64_t word = next();
    const std::size_t length = std::min(bytes.size(), sizeof(word));
    std::memcpy(bytes.data(), &word, length);
    bytes = bytes.subspan(length);
  }
}

float Random::normal() {
  const std::uint64_t word = next();
  std::int32_t sum = -131070;  // four times the mean of 0..65535
  for (unsigned shift = 0; shift < 64; shift += 16)
    sum += static_cast<std::int32_t>((word >> shift) & 0xFFFF);
  constexpr float inverse_deviation = 1.0f / 37837.227f;  // sqrt(4 * 65536^2 / 12)
  return static_cast<float>(sum) * inverse_deviation;
}

void fill_random_blocks(BlockType type, std::span<std::byte> out, float std_deviation,
                        Random& random) {
  switch (type) {
    case BlockType::f32:
      return fill_elements<float>(out, std_deviation, random, [](float x) { return x; });
    case BlockType::f16:
      return fill_elements<std::uint16_t>(out, std_deviation, random, float_to_half);
    case BlockType::bf16:
      return fill_elements<std::uint16_t>(out, std_deviation, random, bfloat_bits);
    default:
      visit_format(type, [&]<typename Format>(Format) {
        if constexpr (!is_float<Format>) {
          fill_blocks<Format>(out, std_deviation, random);
        }
      });
  }
}

}  // namespace sluice::synth
