// The pages of one layer group: which are free, who shares them, and how many are promised.
//
// A sequence reserves the most pages that it will hold, so that it never finds the pool empty. In a
// group that keeps everything, a page that a sequence holds is one less that it is owed, whether it
// is shared or not: sharing saves memory. In a group with a window, pages that slide out of one
// sequence may still be shared by another, so every reservation counts in full, and `step_pages`
// are set aside for the tokens of a step. Slots of recurrent state are counted as such pages are.
//
// Numbers only: the memory is the cache's. Used by one thread.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::kvcache {

class PagePool {
 public:
  PagePool(std::size_t pages, bool slides, std::size_t step_pages)
      : slides_(slides), step_pages_(step_pages), sharers_(pages) {
    for (std::size_t page = pages; page-- > 0;) free_.push_back(static_cast<std::uint32_t>(page));
  }

  // Pages that can still be reserved.
  std::size_t available() const {
    return (slides_ ? sharers_.size() - step_pages_ : free_.size()) - promised_;
  }
  std::size_t in_use() const { return sharers_.size() - free_.size(); }
  bool slides() const { return slides_; }
  bool is_shared(std::uint32_t page) const { return sharers_[page] > 1; }

  // Promises pages to a sequence, or takes the promise back once the sequence holds none.
  void reserve(std::size_t pages) { promised_ += pages; }
  void cancel(std::size_t pages) {
    assert(pages <= promised_);
    promised_ -= pages;
  }

  // A page of the sequence's own, out of what it was promised.
  std::uint32_t take() {
    assert(!free_.empty());
    const std::uint32_t page = free_.back();
    free_.pop_back();
    sharers_[page] = 1;
    if (!slides_) cancel(1);
    return page;
  }
  // The same, of a page that another sequence holds.
  void share(std::uint32_t page) {
    ++sharers_[page];
    if (!slides_) cancel(1);
  }
  // The sequence holds the page no longer; it is promised one again.
  void give_back(std::uint32_t page) {
    assert(sharers_[page] > 0);
    if (--sharers_[page] == 0) free_.push_back(page);
    if (!slides_) reserve(1);
  }

 private:
  bool slides_;
  std::size_t step_pages_;
  std::vector<std::uint32_t> sharers_;  // [page], sequences that hold it
  std::vector<std::uint32_t> free_;
  std::size_t promised_ = 0;
};

}  // namespace sluice::kvcache
