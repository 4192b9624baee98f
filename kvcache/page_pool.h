// The pages of one layer group: which are free, how many sequences share each, and how many are
// promised to sequences.
//
// A sequence reserves the most pages that it will ever hold, so it never finds the pool empty. In a
// group that keeps everything, each page that a sequence holds, shared or not, uses up one page of
// its promise: so sharing saves memory. In a group with a window (which slides), pages that slide
// out of one sequence may still be shared by another. So every reservation counts in full there,
// and `step_pages` more are set aside for the tokens of a step. A pool that slides also counts the
// slots of recurrent states.
//
// Counts page numbers only; the cache owns the memory. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace sluice::kvcache {

class PagePool {
 public:
  PagePool(std::size_t pages, bool slides, std::size_t step_pages)
      : slides_(slides), step_pages_(step_pages), sharers_(pages) {
    for (std::size_t page = pages; page-- > 0;) free_.push_back(static_cast<std::uint32_t>(page));
  }

  // Pages that can still be reserved.
  std::size_t available() const {
    const std::size_t left = slides_ ? sharers_.size() - step_pages_ : free_.size();
    base::check(promised_ <= left, "more pages are promised than there are");
    return left - promised_;
  }
  std::size_t pages() const { return sharers_.size(); }
  std::size_t in_use() const { return sharers_.size() - free_.size(); }
  bool slides() const { return slides_; }
  bool is_shared(std::uint32_t page) const { return sharers_[page] > 1; }

  // reserve() promises pages to a sequence; cancel() takes the promise back once the sequence holds
  // no pages.
  void reserve(std::size_t pages) { promised_ += pages; }
  void cancel(std::size_t pages) {
    base::check(pages <= promised_, "more pages are taken back than were promised");
    promised_ -= pages;
  }

  // Gives a sequence a free page out of its promise.
  std::uint32_t take() {
    base::check(!free_.empty(), "a page was promised that is not there");
    const std::uint32_t page = free_.back();
    free_.pop_back();
    base::check(sharers_[page] == 0, "a page is free that somebody holds");
    sharers_[page] = 1;
    if (!slides_) cancel(1);
    return page;
  }
  // Lets a sequence share a page that another one holds; this uses its promise too.
  void share(std::uint32_t page) {
    base::check(is_held(page), "a page is shared that nobody holds");
    ++sharers_[page];
    if (!slides_) cancel(1);
  }
  // The sequence no longer holds the page, and is promised one again.
  void give_back(std::uint32_t page) {
    base::check(is_held(page), "a page is given back that nobody holds");
    if (--sharers_[page] == 0) free_.push_back(page);
    if (!slides_) reserve(1);
  }

 private:
  bool is_held(std::uint32_t page) const { return page < sharers_.size() && sharers_[page] > 0; }

  bool slides_;
  std::size_t step_pages_;
  std::vector<std::uint32_t> sharers_;  // [page], sequences that hold it
  std::vector<std::uint32_t> free_;
  std::size_t promised_ = 0;
};

}  // namespace sluice::kvcache
