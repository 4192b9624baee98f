#include "core/quant/quant_mix.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

#include "core/error.h"
#include "core/gguf/quant_name.h"
#include "core/text/quoted.h"

namespace sluice::quant {
namespace {

using kernels::BlockType;
using When = LayerRule::When;

constexpr std::string_view pure = "pure-";  // of mixtures that have one type for all matrices

// The first and last eighth, and every third between them.
bool uses_more_bits(std::uint32_t index, std::uint32_t count) {
  const std::uint32_t eighth = count / 8;
  return index < eighth || index >= 7 * count / 8 || (index - eighth) % 3 == 2;
}

// Mixes of two to three bits: of the parts that a model is most sensitive to, some keep more.
struct FewBits {
  const char* name;
  BlockType base;
  BlockType attn_v;  // unless four heads of queries or more share one: then Q4_K
  BlockType attn_output;
  BlockType first_down;  // ffn_down of the first eighth of the layers
  BlockType embedding, head;
};
constexpr FewBits mixes_of_few_bits[] = {
    {"IQ1_S", BlockType::iq1_s, BlockType::q2_k, BlockType::iq2_xxs, BlockType::q2_k,
     BlockType::q2_k, BlockType::q5_k},
    {"IQ1_M", BlockType::iq1_m, BlockType::q2_k, BlockType::iq2_xxs, BlockType::q2_k,
     BlockType::q2_k, BlockType::q5_k},
    {"IQ2_XXS", BlockType::iq2_xxs, BlockType::q2_k, BlockType::iq2_xxs, BlockType::q2_k,
     BlockType::q2_k, BlockType::q5_k},
    {"IQ2_XS", BlockType::iq2_xs, BlockType::q2_k, BlockType::iq2_xs, BlockType::q2_k,
     BlockType::q2_k, BlockType::q5_k},
    {"IQ2_S", BlockType::iq2_xs, BlockType::iq3_s, BlockType::iq3_s, BlockType::iq3_s,
     BlockType::iq3_s, BlockType::q5_k},
    {"IQ2_M", BlockType::iq2_s, BlockType::iq3_s, BlockType::iq3_s, BlockType::iq3_s,
     BlockType::iq3_s, BlockType::q5_k},
    {"IQ3_XXS", BlockType::iq3_xxs, BlockType::iq3_xxs, BlockType::iq3_s, BlockType::iq3_xxs,
     BlockType::iq3_s, BlockType::q5_k},
    {"IQ3_S", BlockType::iq3_s, BlockType::iq3_s, BlockType::iq3_s, BlockType::iq3_s,
     BlockType::iq3_s, BlockType::q6_k},
    {"IQ3_M", BlockType::iq3_s, BlockType::q4_k, BlockType::q4_k, BlockType::q4_k, BlockType::iq3_s,
     BlockType::q6_k},
};

bool same_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

}  // namespace

BlockType LayerRule::type_for(const TensorPlace& place) const {
  const auto holds = [&] {
    switch (when) {
      case When::always:
        return true;
      case When::more:
        return uses_more_bits(place.index, place.count);
      case When::first_two:
        return place.index < 2;
      case When::first_four:
        return place.index < 4;
      case When::first_eighth:
        return place.index < place.count / 8;
      case When::first_sixteenth:
        return place.index < place.count / 16;
      case When::shared_kv:
        return place.heads_per_kv >= 4;
    }
    return true;
  };
  return holds() ? type : otherwise;
}

BlockType dividing_type(BlockType type, std::uint64_t columns) {
  while (columns % kernels::traits(type).elements_per_block != 0) {
    type = kernels::traits(type).fallback;
  }
  return type;
}

QuantMix::QuantMix(std::string name, std::uint32_t file_type, BlockType base)
    : name_(std::move(name)),
      file_type_(file_type),
      base_(base),
      embedding_{base},
      head_{base},
      attn_qk_{base},
      attn_v_{base},
      attn_qkv_{base},
      attn_output_{base},
      ffn_down_{base} {}

std::vector<QuantMix> QuantMix::stock() {
  std::vector<QuantMix> mixes;
  // Quantised below 8 bits, the head always gets Q6_K.
  const auto add = [&](std::string_view name, BlockType base) -> QuantMix& {
    mixes.push_back(QuantMix(std::string(name), gguf::file_type_of(name), base));
    mixes.back().head_ = {BlockType::q6_k};
    return mixes.back();
  };

  QuantMix& q4_k_m = add("Q4_K_M", BlockType::q4_k);
  q4_k_m.attn_v_ = {BlockType::q6_k, When::more, BlockType::q4_k};
  q4_k_m.attn_qkv_ = q4_k_m.attn_v_;
  q4_k_m.ffn_down_ = q4_k_m.attn_v_;

  QuantMix& q4_k_s = add("Q4_K_S", BlockType::q4_k);
  q4_k_s.attn_v_ = {BlockType::q5_k, When::first_four, BlockType::q4_k};
  q4_k_s.ffn_down_ = {BlockType::q5_k, When::first_eighth, BlockType::q4_k};

  QuantMix& q5_k_m = add("Q5_K_M", BlockType::q5_k);
  q5_k_m.attn_v_ = {BlockType::q6_k, When::more, BlockType::q5_k};
  q5_k_m.attn_qkv_ = {BlockType::q6_k};
  q5_k_m.ffn_down_ = q5_k_m.attn_v_;

  QuantMix& q3_k_m = add("Q3_K_M", BlockType::q3_k);
  q3_k_m.attn_v_ = {BlockType::q5_k, When::first_two, BlockType::q4_k};
  q3_k_m.attn_qkv_ = {BlockType::q4_k};
  q3_k_m.attn_output_ = {BlockType::q4_k};
  q3_k_m.ffn_down_ = {BlockType::q5_k, When::first_sixteenth, BlockType::q4_k};

  QuantMix& q2_k = add("Q2_K", BlockType::q2_k);
  q2_k.attn_v_ = {BlockType::q4_k, When::shared_kv, BlockType::q3_k};
  q2_k.attn_output_ = {BlockType::q3_k};
  q2_k.ffn_down_ = {BlockType::q3_k};

  for (const BlockType base : {BlockType::iq4_xs, BlockType::iq4_nl}) {
    QuantMix& mix = add(kernels::traits(base).name, base);
    mix.attn_v_ = {BlockType::q5_k, When::shared_kv, base};
    mix.ffn_down_ = {BlockType::q5_k, When::first_eighth, base};
  }
  for (const FewBits& few : mixes_of_few_bits) {
    QuantMix& mix = add(few.name, few.base);
    mix.embedding_ = {few.embedding};
    mix.head_ = {few.head};
    mix.attn_v_ = {BlockType::q4_k, When::shared_kv, few.attn_v};
    mix.attn_output_ = {few.attn_output};
    mix.ffn_down_ = {few.first_down, When::first_eighth, few.base};
    if (few.base == BlockType::iq3_xxs) mix.attn_qk_ = {BlockType::iq2_s};
  }
  for (const BlockType base : {BlockType::tq1_0, BlockType::tq2_0, BlockType::q2_0}) {
    add(kernels::traits(base).name, base).embedding_ = {BlockType::q4_k};
  }
  for (const BlockType base : {BlockType::q1_0, BlockType::q4_0, BlockType::q4_1, BlockType::q5_0,
                               BlockType::q5_1, BlockType::q6_k, BlockType::mxfp4}) {
    add(kernels::traits(base).name, base);
  }
  // Without a scale of the whole table, which is read by row, NVFP4 would be a bad choice for it.
  add("NVFP4", BlockType::nvfp4).embedding_ = {BlockType::q6_k};
  // As gpt-oss is published: four bits for the experts, eight for all else.
  QuantMix& mxfp4_moe =
      mixes.emplace_back(QuantMix("MXFP4_MOE", gguf::file_type_of("MXFP4_MOE"), BlockType::q8_0));
  mxfp4_moe.experts_ = BlockType::mxfp4;
  for (const BlockType base : {BlockType::q8_0, BlockType::f16, BlockType::bf16, BlockType::f32}) {
    mixes.push_back(
        QuantMix(std::string(kernels::traits(base).name), kernels::traits(base).file_type, base));
  }
  return mixes;
}

const std::vector<QuantMix>& QuantMix::all() {
  static const std::vector<QuantMix> mixes = [] {
    std::vector<QuantMix> list = stock();
    for (const kernels::BlockTraits& traits : kernels::all_block_types()) {
      list.push_back(
          QuantMix(std::string(pure) + std::string(traits.name), traits.file_type, traits.type));
    }
    return list;
  }();
  return mixes;
}

QuantMix QuantMix::by_name(std::string_view name) {
  for (const QuantMix& mix : all()) {
    if (same_ignoring_case(mix.name_, name)) return mix;
  }
  std::vector<std::string> mixtures = names();
  std::erase_if(mixtures, [](const std::string& known) { return known.starts_with(pure); });
  throw UsageError(fmt::format("unknown quantisation {}; known: {}, and pure-X with the type X",
                               text::quoted(name), fmt::join(mixtures, ", ")));
}

std::vector<std::string> QuantMix::names() {
  std::vector<std::string> list;
  for (const QuantMix& mix : all()) list.push_back(mix.name_);
  return list;
}

BlockType QuantMix::type_for(const TensorPlace& place) const {
  const auto wanted = [&] {
    if (place.is_of_experts && experts_) return *experts_;
    switch (place.role) {
      case TensorRole::head:
        return head_.type_for(place);
      case TensorRole::attn_qk:
        return attn_qk_.type_for(place);
      case TensorRole::attn_v:
        return attn_v_.type_for(place);
      case TensorRole::attn_qkv:
        return attn_qkv_.type_for(place);
      case TensorRole::attn_output:
        return attn_output_.type_for(place);
      case TensorRole::ffn_down:
        return ffn_down_.type_for(place);
      case TensorRole::side_projection:
        return base_ == BlockType::f32 || base_ == BlockType::f16 ? base_ : BlockType::bf16;
      case TensorRole::embedding:
        return embedding_.type_for(place);
      case TensorRole::other:
        return base_;
    }
    return base_;
  };
  return dividing_type(wanted(), place.columns);
}

}  // namespace sluice::quant
