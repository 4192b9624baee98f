#include "core/model/rotation.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>

#include "core/error.h"
#include "core/model/weights.h"
#include "core/text/quoted.h"
#include "kernels/kernel_table.h"

namespace sluice::model {
namespace {

constexpr std::string_view prefix = "prism.hadamard.";
constexpr std::string_view table_name = "token_embd.weight";

// Matrices that may be rotated, without what stands in front of and behind these words.
constexpr std::array<std::string_view, 10> rotated_words = {
    "attn_q",    "attn_k",  "attn_v",   "attn_output", "attn_qkv",
    "attn_gate", "ssm_out", "ffn_gate", "ffn_up",      "ffn_down"};

bool may_be_rotated(std::string_view name) {
  constexpr std::string_view suffix = ".weight";
  if (name == "output.weight") return true;
  if (!block_number(name) || !name.ends_with(suffix)) return false;
  name.remove_suffix(suffix.size());
  name.remove_prefix(name.find('.', name.find('.') + 1) + 1);
  if (name == "ffn_gate_up_exps") return true;
  for (const std::string_view of_experts : {"_exps", "_shexp"}) {
    if (name.starts_with("ffn_") && name.ends_with(of_experts)) {
      name.remove_suffix(of_experts.size());
    }
  }
  return std::ranges::find(rotated_words, name) != rotated_words.end();
}

}  // namespace

void Rotation::multiply_by_signs(float* x) const {
  if (!signs_.empty()) kernels::kernel_table().vector_ops.multiply(signs_.data(), size_, x);
}

// The kernel transforms up to 256 elements together. Larger blocks are combined from its results.
void Rotation::transform(float* x) const {
  const kernels::KvRowKernels& kernels = kernels::kernel_table().kv_rows;
  const std::size_t together = std::min(block_, kernels::hadamard_block_max);
  const std::size_t parts = block_ / together;
  const float norm = 1 / std::sqrt(static_cast<float>(parts));
  for (float* block = x; block < x + size_; block += block_) {
    kernels.hadamard(block, block_);
    for (std::size_t stride = together; stride < block_; stride *= 2) {
      for (std::size_t first = 0; first < block_; first += 2 * stride) {
        for (std::size_t i = first; i < first + stride; ++i) {
          const float a = block[i], b = block[i + stride];
          block[i] = a + b;
          block[i + stride] = a - b;
        }
      }
    }
  }
  if (norm != 1) kernels::kernel_table().vector_ops.scale(x, size_, norm);
}

void Rotation::turn(const float* x, float* out) const {
  if (heads_.values == 0) {
    std::copy_n(x, size_, out);
  } else {
    const std::size_t head = size_ / heads_.values, shared = heads_.values / heads_.keys;
    for (std::size_t k = 0; k < heads_.keys; ++k) {
      for (std::size_t j = 0; j < shared; ++j, out += head) {
        std::copy_n(x + (j * heads_.keys + k) * head, head, out);
      }
    }
    out -= size_;
  }
  multiply_by_signs(out);
  transform(out);
}

void Rotation::turn_back(float* row) const {
  transform(row);
  multiply_by_signs(row);
}

// Reads the keys, each once.
class Rotations::Reader {
 public:
  Reader(const gguf::Model& model, Rotations& out)
      : model_(model), metadata_(model.metadata()), out_(out) {}

  void read() {
    refuse_unknown();
    version_ = metadata_.require_u32(key("version"));
    if (version_ != 1 && version_ != 2) throw error("version", "is not 1 or 2");
    expect("transform", "normalized-sylvester-walsh-hadamard");
    expect("axis", "input-last-dimension");
    block_ = metadata_.require_u32(key("block_size"));
    if (block_ < 2 || !std::has_single_bit(block_)) {
      throw error("block_size", fmt::format("is {}, expected a power of two", block_));
    }
    read_signs();
    for (const std::string_view name : metadata_.require_strings(key("weight_names"))) {
      if (!may_be_rotated(name)) throw error("weight_names", refusal(name));
      add(name, out_.inputs_);
    }
    for (const std::string_view name : metadata_.require_strings(key("inverse_weight_names"))) {
      if (name != table_name) throw error("inverse_weight_names", refusal(name));
      add(name, out_.rows_);
    }
    read_head();
  }

 private:
  static std::string key(std::string_view name) { return std::string(prefix) + std::string(name); }
  ModelError error(std::string_view name, const std::string& what) const {
    return metadata_.error(key(name), what);
  }
  static std::string refusal(std::string_view name) {
    return fmt::format("names {}, which sluice does not know as rotated", text::quoted(name));
  }

  void refuse_unknown() const {
    static constexpr std::array<std::string_view, 11> known = {
        "version",       "block_size",   "transform",
        "axis",          "sign_mode",    "sign_widths",
        "sign_values",   "weight_names", "inverse_weight_names",
        "gdn_v_grouped", "tied_output"};
    for (const gguf::Metadata::Entry& entry : metadata_.entries()) {
      if (!entry.key.starts_with("prism.")) continue;
      const bool is_known =
          entry.key.starts_with(prefix) &&
          std::ranges::find(known, entry.key.substr(prefix.size())) != known.end();
      if (!is_known) {
        throw metadata_.error(entry.key,
                              "is not known, and without it the text could be wrong; use a newer "
                              "version of sluice");
      }
    }
  }

  void expect(std::string_view name, std::string_view wanted) const {
    const std::string_view found = metadata_.require_string(key(name));
    if (found == wanted) return;
    throw error(name, fmt::format("is {}, expected {}", text::quoted(found), text::quoted(wanted)));
  }

  // The signs of each width; with the mode "identity" there are none.
  void read_signs() {
    has_signs_ = metadata_.require_string(key("sign_mode")) != "identity";
    if (!has_signs_) return;
    expect("sign_mode", "explicit");
    const gguf::IntegerArray widths = metadata_.require_integers(key("sign_widths"));
    const gguf::IntegerArray values = metadata_.require_integers(key("sign_values"));
    std::size_t at = 0;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::int64_t width = widths[i];
      if (width <= 0 || static_cast<std::uint64_t>(width) > values.size() - at) {
        throw error("sign_widths", "does not add up to the elements of sign_values");
      }
      std::vector<float>& signs = signs_[static_cast<std::size_t>(width)];
      signs.clear();
      for (const std::size_t end = at + static_cast<std::size_t>(width); at < end; ++at) {
        if (values[at] != 1 && values[at] != -1) {
          throw error("sign_values", fmt::format("holds {}, expected 1 or -1", values[at]));
        }
        signs.push_back(static_cast<float>(values[at]));
      }
    }
    if (at != values.size()) {
      throw error("sign_widths", "does not add up to the elements of sign_values");
    }
  }

  void add(std::string_view name, Names& names) {
    const gguf::TensorInfo& tensor = model_.require_tensor(std::string(name));
    const auto width = static_cast<std::size_t>(tensor.dims[0]);
    const bool is_grouped = name.ends_with(".ssm_out.weight") &&
                            metadata_.find_bool(key("gdn_v_grouped")).value_or(false);
    std::unique_ptr<Rotation>& rotation = out_.rotations_[{width, is_grouped}];
    if (!rotation) rotation = make(name, width, is_grouped);
    names.insert_or_assign(std::string(name), rotation.get());
  }

  std::unique_ptr<Rotation> make(std::string_view name, std::size_t width, bool is_grouped) const {
    if (width % block_ != 0) {
      throw error("block_size", fmt::format("is {}, which does not divide the {} inputs of {}",
                                            block_, width, text::quoted(name)));
    }
    std::vector<float> signs;
    if (has_signs_) {
      const auto found = signs_.find(width);
      if (found == signs_.end()) {
        throw error("sign_widths",
                    fmt::format("lacks {}, the inputs of {}", width, text::quoted(name)));
      }
      signs = found->second;
    }
    return std::make_unique<Rotation>(width, block_, std::move(signs),
                                      is_grouped ? heads(width) : Rotation::Heads{});
  }

  // The heads of the recurrent layers. Activations have the order of these architectures.
  Rotation::Heads heads(std::size_t width) const {
    const std::string architecture(metadata_.require_string("general.architecture"));
    if (architecture != "qwen35" && architecture != "qwen35moe") {
      throw error("gdn_v_grouped",
                  fmt::format("is not known of the architecture {}", text::quoted(architecture)));
    }
    const std::size_t keys = metadata_.require_u32(architecture + ".ssm.group_count");
    const std::size_t values = metadata_.require_u32(architecture + ".ssm.time_step_rank");
    if (keys == 0 || values == 0 || values % keys != 0 || width % values != 0) {
      throw error("gdn_v_grouped", fmt::format("cannot order {} inputs of {} value heads and {} "
                                               "key heads",
                                               width, values, keys));
    }
    return {keys, values};
  }

  // Where there is no output matrix, the table stands for it, and has to be rotated as one.
  void read_head() {
    const bool is_tied = metadata_.find_bool(key("tied_output")).value_or(false);
    const bool has_output = model_.find_tensor("output.weight") != nullptr;
    if (is_tied && (version_ != 2 || has_output)) {
      throw error("tied_output", "is true, in version 1 or beside an output matrix");
    }
    if (!has_output && !is_tied && !out_.rows_.empty()) {
      throw error("tied_output", "is not true, and there is no output matrix");
    }
    if (is_tied) add(table_name, out_.inputs_);
  }

  const gguf::Model& model_;
  const gguf::Metadata& metadata_;
  Rotations& out_;
  std::uint32_t version_ = 0, block_ = 0;
  bool has_signs_ = false;
  std::map<std::size_t, std::vector<float>> signs_;  // by width
};

Rotations::Rotations(const gguf::Model& model) {
  const auto is_of_prism = [](const gguf::Metadata::Entry& entry) {
    return entry.key.starts_with("prism.");
  };
  if (std::ranges::any_of(model.metadata().entries(), is_of_prism)) Reader(model, *this).read();
}

std::size_t Rotations::bytes() const {
  std::size_t total = 0;
  for (const auto& [of, rotation] : rotations_) total += rotation->bytes();
  return total;
}

}  // namespace sluice::model
