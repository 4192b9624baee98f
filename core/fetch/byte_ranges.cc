#include "core/fetch/byte_ranges.h"

#include <fmt/format.h>
#include <optional>

#include "core/fetch/reference.h"
#include "core/text/quoted.h"

namespace sluice::fetch {

RangeSource::RangeSource(Web& web, const RemoteFile& remote)
    : web_(web), remote_(remote), version_(remote.version) {}

Request RangeSource::request(const ByteRange& range) const {
  Request request;
  request.url = direct_url_.empty() ? remote_.url : direct_url_;
  request.token = direct_url_.empty() ? remote_.token : "";
  request.range = range;
  request.headers = {"Accept-Encoding: identity"};
  return request;
}

std::string RangeSource::problem_of(const Answer& answer, const ByteRange& asked) {
  const std::string text = answer.header("content-range");
  const std::optional<ContentRange> range = answer.content_range();
  // Where a sum is stated, it decides: copies of one file may have different tags.
  const std::string version = answer.version();
  if (version_.empty()) version_ = version;
  if ((range && range->total != bytes()) || (remote_.sha256.empty() && version != version_)) {
    throw Error(ExitCode::io,
                fmt::format("{}: the file on the server has changed meanwhile; the same command "
                            "begins with the new one",
                            name()));
  }
  if (!range || range->first != asked.offset || range->last != asked.offset + asked.bytes - 1) {
    return fmt::format("asked for bytes from {} on, the server answers with {}", asked.offset,
                       text.empty() ? "none" : text::quoted(text));
  }
  has_ranges_ = true;
  const bool is_safe = remote_.token.empty() || host_of(answer.url) != host_of(remote_.url);
  // An answer may still come by a link that gives no other one any more.
  if (is_safe && answer.url != expired_url_) direct_url_ = answer.url;
  return "";
}

RangeRead::RangeRead(RangeSource& source, const ByteRange& range) : source_(source), range_(range) {
  bytes_.reserve(static_cast<std::size_t>(range.bytes));
  ask();
}

void RangeRead::ask() {
  asked_ = {range_.offset + bytes_.size(), range_.bytes - bytes_.size()};
  problem_.clear();
  is_checked_ = false;
  bytes_before_ = bytes_.size();
  Request request = source_.request(asked_);
  asked_url_ = request.url;
  request.on_body = [this](std::span<const std::byte> bytes) { return take(bytes); };
  transfer_ = source_.web().start(std::move(request));
}

// Called by libcurl, through which nothing may be thrown: advance() says what is wrong.
bool RangeRead::take(std::span<const std::byte> bytes) {
  if (transfer_ == nullptr || transfer_->answer().status != 206) return false;
  if (!is_checked_) {
    const std::optional<ContentRange> range = transfer_->answer().content_range();
    is_checked_ = range && range->first == asked_.offset && range->total == source_.bytes();
  }
  const bool is_good = is_checked_ && bytes.size() <= range_.bytes - bytes_.size();
  if (!is_good) return false;
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  source_.read_bytes_ += bytes.size();
  return true;
}

void RangeRead::advance() {
  if (is_done()) return;
  if (!transfer_) {
    if (std::chrono::steady_clock::now() >= not_before_) ask();
    return;
  }
  const Answer& answer = transfer_->answer();
  const bool has_range = transfer_->is_done() || !answer.header("content-range").empty();
  if (answer.status == 206 && problem_.empty() && has_range) {
    problem_ = source_.problem_of(answer, asked_);
  }
  if (answer.status == 200 && !source_.has_ranges_) {
    source_.refuses_ranges_ = true;
    return;
  }
  if (!transfer_->is_done()) return;
  if (has_all()) {
    transfer_.reset();
    return;
  }
  Answer failed = answer;
  transfer_.reset();
  // A link that was given for a while has expired: the server gives another one. Several reads find
  // out at a time, and one of them may have another one already.
  const bool is_stale = asked_url_ != source_.remote_.url && failed.status >= 400 &&
                        failed.status < 500 && failed.status != 429;
  if (is_stale) {
    source_.expired_url_ = asked_url_;
    if (source_.direct_url_ == asked_url_) source_.direct_url_.clear();
  }
  if (failed.status == 416) {
    throw Error(ExitCode::io, fmt::format("{}: the file on the server has changed meanwhile; the "
                                          "same command begins with the new one",
                                          source_.name()));
  }
  if (failed.status == 200) problem_ = "the whole file came for a part of it";
  if (!is_stale && failed.status != 206 && problem_.empty() && !is_passing(failed)) {
    throw_answer(source_.name(), failed);
  }
  if (!problem_.empty()) failed.problem = problem_;
  if (failed.problem.empty() && failed.status == 206) failed.problem = "the answer was cut";
  if (bytes_.size() > bytes_before_) failures_ = 0;
  ++failures_;
  not_before_ = std::chrono::steady_clock::now() +
                source_.web().pause_before(failures_, failed, source_.name());
}

Error no_ranges(const RangeSource& source) {
  return {ExitCode::io,
          fmt::format("{}: its server gives no parts of files, so it has to be pulled "
                      "before it can be looked at",
                      source.name())};
}

std::vector<std::byte> read_range(RangeSource& source, const ByteRange& range) {
  RangeRead read(source, range);
  while (!read.is_done()) {
    source.web().poll();
    read.advance();
    if (source.refuses_ranges()) throw no_ranges(source);
  }
  return {read.bytes().begin(), read.bytes().end()};
}

}  // namespace sluice::fetch
