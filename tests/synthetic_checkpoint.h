// Synthetic models written as Hugging Face would have them: `import` backwards, by code of its own.
// What a family does to names is a table; the rest of it is a function, `adapt`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/gguf/gguf.h"
#include "core/synth/shapes.h"
#include "tests/temporary_folder.h"

namespace sluice::test {

struct CheckpointTensor {
  std::vector<std::uint64_t> shape;  // the contiguous dimension last
  std::vector<float> values;
  bool is_of_bytes = false;  // the values are bytes, and stored so
};
using CheckpointTensors = std::map<std::string, CheckpointTensor>;

class SyntheticCheckpoint;

struct CheckpointFamily {
  std::string theirs;  // of config.json
  synth::Shape shape;
  // Names after "blk.N." with or without their suffix, and those of globals; to the names there.
  std::map<std::string, std::string> names;
  bool has_halves = false;  // of heads, which take turns in a GGUF file
  bool norms_lack_one = false;
  float tolerance = 0;  // of values and logits, where numbers are rounded on the way
  std::string stem = "model.";
  bool keeps_merges = false;
  void (*adapt)(const SyntheticCheckpoint& model, nlohmann::json& config,
                CheckpointTensors& tensors) = nullptr;
  std::string layers = "layers.";  // of the names of layers, behind the stem
  // Names here of tensors with which nothing computes: only their dimensions are compared.
  std::set<std::string> unused = {};
};

// One of each architecture that can be imported.
std::vector<CheckpointFamily> checkpoint_families();

// That with this name in config.json.
CheckpointFamily checkpoint_family(const std::string& theirs);

class SyntheticCheckpoint {
 public:
  // Refers to `family`. `gguf` is a file of its shape with F32 weights.
  SyntheticCheckpoint(const CheckpointFamily& family, const std::filesystem::path& gguf);

  const nlohmann::json& config() const { return config_; }
  const CheckpointTensors& tensors() const { return tensors_; }
  nlohmann::json tokenizer() const;
  void write_to(const std::filesystem::path& folder) const;

  // Metadata, by the key after the architecture.
  float number(const std::string& key, float otherwise = 0) const;
  int count(const std::string& key) const { return static_cast<int>(number(key)); }
  std::string text(const std::string& key) const;
  std::vector<std::int64_t> list(const std::string& key) const;
  std::vector<float> numbers(const std::string& whole_key) const;
  bool has(const std::string& tensor) const { return model_.find_tensor(tensor) != nullptr; }

 private:
  nlohmann::json common_config() const;
  CheckpointTensors named_tensors() const;
  std::string name_of(const std::string& ours) const;
  std::vector<float> floats_of(const gguf::TensorInfo& tensor) const;
  std::vector<float> values_of(const gguf::TensorInfo& tensor) const;

  const CheckpointFamily& family_;
  gguf::Model model_;
  std::string prefix_;
  nlohmann::json config_;
  CheckpointTensors tensors_;
};

// A folder with a small model of a family as a GGUF file, and the checkpoint that is made of it.
struct CheckpointFolder {
  explicit CheckpointFolder(const CheckpointFamily& family);
  const std::filesystem::path& path() const { return folder.path(); }

  const TemporaryFolder folder;
  const std::filesystem::path gguf = folder / "in.gguf";
  const std::filesystem::path output = folder / "out.gguf";  // where an import may be written
  const SyntheticCheckpoint checkpoint;
};

}  // namespace sluice::test
