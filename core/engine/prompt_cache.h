// Keys and values of prompts, kept on disk: what one run computed, the next one reads.
//
// A page of the store (core/engine/page_store.h) holds one cache page of all layers, as it lies in
// memory. Its name is made of the model, the settings of the cache and all tokens up to its end, so
// it is found only by a run that would compute the very same bytes: a restored prefix is
// bit-identical to a computed one. (The tiers of kernels agree bit for bit, and results do not
// depend on threads, chunk or budget; so none of these are in the name.)
//
// The recurrent states of a model are stored beside the page that they follow. They exist only for
// pages at whose end the sequence had a state when it was saved: at its own end, or at a
// checkpoint. A prefix can be restored only up to such a page.
//
// A failure of the cache never ends a run: what cannot be read or written causes a warning.
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
  std::filesystem::path folder;  // empty: no cache
  std::uint64_t bytes_max = std::uint64_t{4} << 30;
  // Called with one line of text when something is wrong with the folder or a file in it.
  std::function<void(const std::string& line)> on_warning = {};
};

class PromptCache {
 public:
  // `model`: see core/engine/model_key.h. `cache` must outlive this. Throws std::system_error when
  // the folder cannot be made.
  PromptCache(const PromptCacheOptions& options, const PageKey& model, kvcache::KvCache& cache);

  // Fills an empty sequence with the longest stored prefix of `tokens`, in whole pages (and with
  // the recurrent states if the model has them), and returns its length.
  std::uint32_t restore(kvcache::Sequence& sequence, std::span<const tokenizer::Token> tokens);

  // Stores the whole pages of `tokens`, which the sequence must begin with. Stops at the first page
  // that is not in the store and has already slid out of a window.
  void save(const kvcache::Sequence& sequence, std::span<const tokenizer::Token> tokens);

 private:
  bool keep(const kvcache::Sequence& sequence, std::span<const tokenizer::Token> tokens,
            const PageKey& key, std::size_t page) const;
  bool keep_state(const kvcache::Sequence& sequence, std::span<const tokenizer::Token> tokens,
                  std::span<const PageKey> pages) const;
  void touch_kept() const;
  // How many pages, from the beginning of kept_, can be restored.
  std::size_t restorable_pages() const;
  bool has_states() const;
  static PageKey state_key(const PageKey& page);
  // The names of the whole pages of `tokens`, as the sequence rotates its keys.
  std::vector<PageKey> keys_of(const kvcache::Sequence& sequence,
                               std::span<const tokenizer::Token> tokens) const;

  kvcache::KvCache& cache_;
  std::function<void(const std::string&)> warn_;
  PageStore store_;
  PageKey root_;
  // The pages that were restored or saved last, from the first on, of whichever sequence.
  std::vector<PageKey> kept_;
  bool writes_ = true;  // false after a write has failed
};

}  // namespace sluice::engine
