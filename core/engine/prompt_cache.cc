#include "core/engine/prompt_cache.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <system_error>
#include <unistd.h>

#include "streaming/data_file.h"

namespace sluice::engine {
namespace {

using kvcache::page_positions;
using tokenizer::Token;

// Changes whenever the same model and settings would give other bytes.
constexpr std::uint64_t snapshot_version = 3;
constexpr std::uint64_t tensor_sample_bytes = 256;

PageKey derive(const PageKey& key, std::span<const std::uint64_t> numbers) {
  return key.derive(std::as_bytes(numbers));
}

// Derives a key from a part of a file.
PageKey derive(PageKey key, const streaming::DataFile& file, std::uint64_t begin,
               std::uint64_t bytes) {
  std::array<std::byte, 65536> buffer;
  while (bytes > 0) {
    const ssize_t n =
        ::pread(file.descriptor(), buffer.data(), std::min<std::uint64_t>(bytes, buffer.size()),
                static_cast<off_t>(begin));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      throw std::system_error(n < 0 ? errno : EIO, std::generic_category(),
                              fmt::format("cannot read {}", file.path().string()));
    }
    key = key.derive(std::span(buffer).first(static_cast<std::size_t>(n)));
    begin += static_cast<std::uint64_t>(n);
    bytes -= static_cast<std::uint64_t>(n);
  }
  return key;
}

// What the bytes of a page depend on besides the model and the tokens. Which layers form a group
// depends on the context too: a window that it does not reach is none.
PageKey settings_key(const PageKey& model, const kvcache::CacheConfig& config) {
  std::vector<std::uint64_t> numbers = {snapshot_version, page_positions, config.window.positions,
                                        config.window.sinks,
                                        static_cast<std::uint64_t>(config.type)};
  for (const kvcache::LayerShape& layer : config.layers) {
    numbers.insert(numbers.end(), {layer.kv_heads, layer.key_dim, layer.value_dim, layer.window});
  }
  for (const kvcache::LayerGroup& group : kvcache::layer_groups(config)) {
    numbers.insert(numbers.end(),
                   {group.window.positions, group.window.sinks, group.layers.size()});
    numbers.insert(numbers.end(), group.layers.begin(), group.layers.end());
  }
  return derive(model, numbers);
}

}  // namespace

PageKey model_key(const gguf::Model& model) {
  PageKey key;
  for (std::uint32_t i = 0; i < model.files().size(); ++i) {
    const gguf::ModelFile& facts = model.files()[i];
    const streaming::DataFile file(facts.path, streaming::DataFile::Access::buffered);
    // Reading ahead would read much of the model for its samples.
    (void)::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_RANDOM);
    key = derive(key, std::array{facts.file_bytes, facts.data_offset});
    key = derive(key, file, 0, facts.data_offset);
    for (const gguf::TensorInfo& tensor : model.tensors()) {
      if (tensor.file != i) continue;
      key = derive(key, file, tensor.offset, std::min(tensor.bytes, tensor_sample_bytes));
    }
  }
  return key;
}

PromptCache::PromptCache(const PromptCacheOptions& options, const PageKey& model,
                         kvcache::KvCache& cache)
    : cache_(cache),
      warn_(options.on_warning ? options.on_warning : [](const std::string&) {}),
      store_(options.folder, options.bytes_max, warn_),
      root_(settings_key(model, cache.config())) {
  store_.trim();
}

// A page is restored as a step would compute it, but for where its keys and values come from.
std::uint32_t PromptCache::restore(kvcache::Sequence& sequence, std::span<const Token> tokens) {
  const std::size_t room = std::min<std::size_t>(tokens.size(), sequence.capacity());
  kept_ = keys_of(tokens.first(room));
  std::size_t page = 0;
  for (; page < kept_.size() && store_.contains(kept_[page]); ++page) {
    cache_.prepare(sequence, page_positions);
    const auto memory = cache_.page_memory(sequence, static_cast<std::uint32_t>(page));
    const auto of_page = tokens.subspan(page * page_positions, page_positions);
    if (!store_.read(kept_[page], of_page, memory)) break;
    cache_.advance(sequence, page_positions);
  }
  kept_.resize(page);
  store_.touch(kept_);
  return sequence.length();
}

void PromptCache::save(const kvcache::Sequence& sequence, std::span<const Token> tokens) {
  if (!writes_) return;
  const std::vector<PageKey> keys = keys_of(tokens);
  const auto known = std::ranges::mismatch(kept_, keys).in2 - keys.begin();
  auto page = static_cast<std::size_t>(known);
  try {
    while (page < keys.size() && keep(sequence, tokens, keys[page], page)) ++page;
  } catch (const std::system_error& error) {
    writes_ = false;
    warn_(fmt::format("nothing more is kept in the prompt cache: {}", error.what()));
  }
  kept_.assign(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(page));
  if (page == static_cast<std::size_t>(known)) return;
  store_.touch(kept_);
  store_.trim();
}

// Whether the page is in the store now.
bool PromptCache::keep(const kvcache::Sequence& sequence, std::span<const Token> tokens,
                       const PageKey& key, std::size_t page) const {
  if (store_.contains(key)) return true;
  const auto memory = cache_.page_memory(sequence, static_cast<std::uint32_t>(page));
  if (memory.empty()) return false;
  const std::vector<std::span<const std::byte>> parts(memory.begin(), memory.end());
  store_.write(key, tokens.subspan(page * page_positions, page_positions), parts);
  return true;
}

std::vector<PageKey> PromptCache::keys_of(std::span<const Token> tokens) const {
  std::vector<PageKey> keys;
  PageKey key = root_;
  for (; tokens.size() >= page_positions; tokens = tokens.subspan(page_positions)) {
    key = key.derive(tokens.first(page_positions));
    keys.push_back(key);
  }
  return keys;
}

}  // namespace sluice::engine
