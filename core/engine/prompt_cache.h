// Keys and values of prompts that are kept on disk: what a run computed, the next one reads.
//
// A page of the store (core/engine/page_store.h) holds one page of positions of all layers, as they
// lie in memory. It is named by the model, the settings of the cache and all tokens up to its end,
// so that it is found only by a run that would compute the very same bytes: a restored prefix is
// bit-identical to a computed one. (The tiers of kernels agree bit for bit, and no number of
// threads, chunk or budget changes a result; none of these are in the name.)
//
// Keeping a prompt is never worth failing for: what cannot be read or written is a warning.
//
// Used by one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/engine/page_store.h"
#include "core/gguf/gguf.h"
#include "core/tokenizer/tokenizer.h"
#include "kvcache/kv_cache.h"

namespace sluice::engine {

struct PromptCacheOptions {
  std::filesystem::path folder;  // empty: none
  std::uint64_t bytes_max = std::uint64_t{4} << 30;
  // Told, in one line, what is wrong with the folder or a file in it.
  std::function<void(const std::string& line)> on_warning = {};
};

// What distinguishes a model from all others: the headers and sizes of its files, and the beginning
// of each tensor, since a model that was trained further may have the same header. Names and times
// of files do not count. Throws std::system_error.
PageKey model_key(const gguf::Model& model);

class PromptCache {
 public:
  // `model`: see model_key. `cache` must outlive this. Throws std::system_error when the folder
  // cannot be made.
  PromptCache(const PromptCacheOptions& options, const PageKey& model, kvcache::KvCache& cache);

  // Fills an empty sequence with the longest beginning of `tokens` that is kept, in whole pages,
  // and returns its length.
  std::uint32_t restore(kvcache::Sequence& sequence, std::span<const tokenizer::Token> tokens);

  // Keeps the whole pages of `tokens`, all of which the sequence holds from its beginning, up to
  // the first that has slid out of a window and was not kept before.
  void save(const kvcache::Sequence& sequence, std::span<const tokenizer::Token> tokens);

 private:
  bool keep(const kvcache::Sequence& sequence, std::span<const tokenizer::Token> tokens,
            const PageKey& key, std::size_t page) const;
  // The names of the whole pages of `tokens`.
  std::vector<PageKey> keys_of(std::span<const tokenizer::Token> tokens) const;

  kvcache::KvCache& cache_;
  std::function<void(const std::string&)> warn_;
  PageStore store_;
  PageKey root_;
  std::vector<PageKey> kept_;  // the pages that were restored or saved last, from the beginning
  bool writes_ = true;         // false after a write has failed
};

}  // namespace sluice::engine
