// Keys and values of prompts that are kept on disk: what a run computed, the next one reads.
//
// A page of the store (core/engine/page_store.h) holds one page of positions of all layers, as they
// lie in memory. It is named by the model, the settings of the cache and all tokens up to its end,
// so that it is found only by a run that would compute the very same bytes: a restored prefix is
// bit-identical to a computed one. (The tiers of kernels agree bit for bit, and no number of
// threads, chunk or budget changes a result; none of these are in the name.)
//
// The recurrent states of a model are kept beside the page that they follow. They are there only
// after pages at whose end a sequence had them when it was saved: where it ended, or where it has a
// checkpoint; and a prefix can be restored up to such a page.
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
#include "core/tokenizer/tokenizer.h"
#include "kvcache/kv_cache.h"

namespace sluice::engine {

struct PromptCacheOptions {
  std::filesystem::path folder;  // empty: none
  std::uint64_t bytes_max = std::uint64_t{4} << 30;
  // Told, in one line, what is wrong with the folder or a file in it.
  std::function<void(const std::string& line)> on_warning = {};
};

class PromptCache {
 public:
  // `model`: see core/engine/model_key.h. `cache` must outlive this. Throws std::system_error when
  // the folder cannot be made.
  PromptCache(const PromptCacheOptions& options, const PageKey& model, kvcache::KvCache& cache);

  // Fills an empty sequence with the longest beginning of `tokens` that is kept, in whole pages,
  // with recurrent states if the model has them, and returns its length.
  std::uint32_t restore(kvcache::Sequence& sequence, std::span<const tokenizer::Token> tokens);

  // Keeps the whole pages of `tokens`, all of which the sequence holds from its beginning, up to
  // the first that has slid out of a window and was not kept before.
  void save(const kvcache::Sequence& sequence, std::span<const tokenizer::Token> tokens);

 private:
  bool keep(const kvcache::Sequence& sequence, std::span<const tokenizer::Token> tokens,
            const PageKey& key, std::size_t page) const;
  bool keep_state(const kvcache::Sequence& sequence, std::span<const tokenizer::Token> tokens,
                  std::span<const PageKey> pages) const;
  void touch_kept() const;
  // How many of the pages of kept_ can be restored, from the beginning.
  std::size_t restorable_pages() const;
  bool has_states() const;
  static PageKey state_key(const PageKey& page);
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
