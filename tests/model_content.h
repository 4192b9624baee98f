// A model file in memory, to be written again with other keys, tensors or types; and what such a
// file evaluates to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "core/engine/engine.h"
#include "core/gguf/gguf.h"
#include "core/gguf/gguf_writer.h"
#include "streaming/mapped_file.h"

namespace sluice::test {

struct Stored {
  std::string name;
  std::vector<std::uint64_t> dims;
  std::uint32_t type;
  std::vector<std::byte> bytes;
};

class Content {
 public:
  explicit Content(const std::filesystem::path& path)
      : model_(std::make_shared<gguf::Model>(gguf::Model::open(path))) {
    const streaming::MappedFile file(path);
    for (const gguf::TensorInfo& tensor : model_->tensors()) {
      const auto data = file.bytes().subspan(tensor.offset, tensor.bytes);
      tensors.push_back({std::string(tensor.name),
                         {tensor.dims.begin(), tensor.dims.begin() + tensor.rank},
                         tensor.type,
                         {data.begin(), data.end()}});
    }
  }

  // Replaces or adds a key. The second form is for arrays.
  template <typename T>
  void set(const std::string& key, T value) {
    keys_[key] = [key, value](gguf::Writer& writer) { writer.add(key, value); };
  }
  template <typename T>
  void set_all(const std::string& key, const std::vector<T>& values) {
    keys_[key] = [key, values](gguf::Writer& writer) {
      writer.add_array(key, std::span<const T>(values));
    };
  }
  // Gives the keys that begin with `from` another beginning.
  void rename_keys(const std::string& from, const std::string& to) {
    for (const gguf::Metadata::Entry& entry : model_->metadata().entries()) {
      if (!entry.key.starts_with(from)) continue;
      remove_key(std::string(entry.key));
      const std::string key = to + std::string(entry.key.substr(from.size()));
      keys_[key] = [key, value = entry.value](gguf::Writer& writer) { writer.add(key, value); };
    }
  }
  void remove_key(const std::string& key) { keys_[key] = nullptr; }
  const gguf::Metadata& metadata() const { return model_->metadata(); }  // as it was read

  // Writes tensors [first, last), with all metadata or none.
  void write(const std::filesystem::path& path, std::size_t first, std::size_t last,
             bool has_metadata, const std::function<void(gguf::Writer&)>& add_more) const {
    gguf::Writer writer;
    if (has_metadata) add_metadata(writer);
    add_more(writer);
    for (std::size_t i = first; i < last; ++i) {
      writer.add_tensor(tensors[i].name, tensors[i].dims, tensors[i].type);
    }
    writer.write(path, [&](std::size_t index, const gguf::Writer::Sink& sink) {
      sink(tensors[first + index].bytes);
    });
  }
  void write(const std::filesystem::path& path) const {
    write(path, 0, tensors.size(), true, [](gguf::Writer&) {});
  }

  // Replaces each tensor that `replace` returns something for.
  void change(const std::function<std::vector<Stored>(const Stored&)>& replace) {
    std::vector<Stored> changed;
    for (const Stored& tensor : tensors) {
      std::vector<Stored> now = replace(tensor);
      if (now.empty()) now.push_back(tensor);
      std::ranges::move(now, std::back_inserter(changed));
    }
    tensors = std::move(changed);
  }

  void remove(std::string_view name) {
    const auto count = std::erase_if(tensors, [&](const Stored& t) { return t.name == name; });
    base::check(count == 1, "a tensor that a test removes is not there");
  }

  bool has(std::string_view name) const {
    return std::ranges::find(tensors, name, &Stored::name) != tensors.end();
  }

  const Stored& find(std::string_view name) const {
    const auto found = std::ranges::find(tensors, name, &Stored::name);
    base::check(found != tensors.end(), "a tensor that a test wants is not there");
    return *found;
  }
  Stored& find(std::string_view name) {
    return const_cast<Stored&>(std::as_const(*this).find(name));
  }

  // The values of a tensor in F32, to be changed in place.
  std::span<float> values(std::string_view name) {
    Stored& tensor = find(name);
    base::check(tensor.type == 0, "a tensor whose values a test wants is not in F32");
    return {reinterpret_cast<float*>(tensor.bytes.data()), tensor.bytes.size() / sizeof(float)};
  }

  void add_values(std::string name, std::vector<std::uint64_t> dims,
                  const std::vector<float>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    tensors.push_back({std::move(name), std::move(dims), 0, {bytes.begin(), bytes.end()}});
  }

  std::vector<Stored> tensors;

 private:
  void add_metadata(gguf::Writer& writer) const {
    for (const gguf::Metadata::Entry& entry : model_->metadata().entries()) {
      if (!keys_.contains(entry.key)) writer.add(entry.key, entry.value);
    }
    for (const auto& [key, add] : keys_) {
      if (add) add(writer);
    }
  }

  std::shared_ptr<const gguf::Model> model_;
  std::map<std::string, std::function<void(gguf::Writer&)>, std::less<>> keys_;
};

inline std::string replaced(const std::string& name, const std::string& from,
                            const std::string& to) {
  std::string out = name;
  return out.replace(out.find(from), from.size(), to);
}

inline engine::EngineOptions options_for_logits() {
  engine::EngineOptions options;
  options.context = 64;
  options.threads = 2;
  options.chunk = options.logits_columns = 8;
  return options;
}

// The logits of all tokens of a text of `count`.
inline std::vector<float> logits_of(engine::Engine& engine, int count = 20) {
  std::vector<tokenizer::Token> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(5 + 13 * i % 290);
  std::vector<float> out;
  engine.session().evaluate_all(tokens, [&](std::size_t, std::span<const float> logits) {
    out.insert(out.end(), logits.begin(), logits.end());
  });
  return out;
}
inline std::vector<float> logits_of(const std::filesystem::path& model,
                                    const engine::EngineOptions& options = options_for_logits()) {
  return logits_of(*engine::Engine::open(model, options));
}

inline bool are_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace sluice::test
