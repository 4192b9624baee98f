#include "core/http/jobs/multipart.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "core/http/transport/error.h"
#include "core/http/transport/message.h"
#include "core/text/quoted.h"

namespace sluice::http {
namespace {

constexpr std::size_t boundary_bytes_max = 70;  // as the standard says

[[noreturn]] void refuse(const std::string& reason) {
  throw ApiError(400, "the body is no valid multipart/form-data: " + reason);
}

void check_length(std::string_view name, std::size_t bytes) {
  if (bytes <= MultipartReader::value_bytes_max) return;
  throw ApiError(
      400, fmt::format("\"{}\" has more than {} bytes", name, MultipartReader::value_bytes_max));
}

// The value of a parameter such as name="file" or boundary=abc; empty where it is missing.
std::string parameter(std::string_view text, std::string_view name) {
  std::size_t at = 0;
  while ((at = text.find(';', at)) != std::string_view::npos) {
    ++at;
    while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
    const std::size_t equals = text.find('=', at);
    if (equals == std::string_view::npos) return "";
    const bool is_it = equal_ignoring_case(text.substr(at, equals - at), name);
    std::string value;
    at = equals + 1;
    if (at < text.size() && text[at] == '"') {
      for (++at; at < text.size() && text[at] != '"'; ++at) {
        if (text[at] == '\\' && at + 1 < text.size()) ++at;
        value += text[at];
      }
    } else {
      const std::size_t end = std::min(text.find(';', at), text.size());
      value = text.substr(at, end - at);
    }
    if (is_it) return value;
  }
  return "";
}

}  // namespace

// The body is read as if a line break came before it, so that the first delimiter is like the
// others.
MultipartReader::MultipartReader(std::string_view content_type, std::vector<std::string> names,
                                 TakeFile take_file)
    : names_(std::move(names)), take_file_(std::move(take_file)), waiting_("\r\n") {
  const std::string_view kind = content_type.substr(0, content_type.find(';'));
  if (!equal_ignoring_case(kind, "multipart/form-data")) {
    throw ApiError(400, "a file is sent as multipart/form-data");
  }
  const std::string boundary = parameter(content_type, "boundary");
  if (boundary.empty() || boundary.size() > boundary_bytes_max) refuse("it has no boundary");
  delimiter_ = "\r\n--" + boundary;
}

void MultipartReader::take(std::string_view piece) {
  if (state_ == State::end) return;  // what comes after the end has no meaning
  waiting_ += piece;
  while (advance()) {
  }
}

// Makes one step; false when more bytes are needed, or none.
bool MultipartReader::advance() {
  switch (state_) {
    case State::preamble: {
      const std::size_t at = waiting_.find(delimiter_);
      if (at == std::string::npos) {
        if (waiting_.size() > head_bytes_max) refuse("its boundary does not come");
        return false;
      }
      waiting_.erase(0, at + delimiter_.size());
      state_ = State::after_boundary;
      return true;
    }
    case State::after_boundary:
      if (waiting_.size() < 2) return false;
      if (waiting_.starts_with("--")) {
        state_ = State::end;
        waiting_.clear();
        return false;
      }
      if (!waiting_.starts_with("\r\n")) refuse("a boundary is followed by something else");
      state_ = State::head;
      return true;
    case State::head: {  // begins with the line break of the boundary
      const std::size_t end = waiting_.find("\r\n\r\n");
      if (end == std::string::npos) {
        if (waiting_.size() > head_bytes_max) refuse("a part has a long header");
        return false;
      }
      begin_part(std::string_view(waiting_).substr(0, end + 2));
      waiting_.erase(0, end + 4);
      state_ = State::content;
      return true;
    }
    case State::content:
      return read_content();
    case State::end:
      return false;
  }
  return false;
}

// Passes on what cannot be part of the next delimiter.
bool MultipartReader::read_content() {
  const std::size_t at = waiting_.find(delimiter_);
  if (at != std::string::npos) {
    add_content(std::string_view(waiting_).substr(0, at));
    waiting_.erase(0, at + delimiter_.size());
    state_ = State::after_boundary;
    return true;
  }
  if (waiting_.size() >= delimiter_.size()) {
    const std::size_t certain = waiting_.size() - delimiter_.size() + 1;
    add_content(std::string_view(waiting_).substr(0, certain));
    waiting_.erase(0, certain);
  }
  return false;
}

void MultipartReader::begin_part(std::string_view head) {
  constexpr std::string_view disposition = "content-disposition:";
  name_.clear();
  std::string file_name;
  std::size_t line = 0;
  while ((line = head.find("\r\n", line)) != std::string_view::npos) {
    line += 2;
    const std::string_view field = head.substr(line, head.find("\r\n", line) - line);
    if (!equal_ignoring_case(field.substr(0, disposition.size()), disposition)) continue;
    name_ = parameter(field, "name");
    file_name = parameter(field, "filename");
  }
  if (name_.empty()) refuse("a part has no name");
  is_file_ = name_ == "file";
  if (is_file_) {
    if (std::exchange(has_file_, true)) refuse("it has two files");
    check_length("filename", file_name.size());
    file_name_ = std::move(file_name);
    return;
  }
  if (std::ranges::find(names_, name_) == names_.end()) {
    throw ApiError(400, fmt::format("\"{}\" is unknown", text::escaped(name_, 100)));
  }
  fields_[name_].clear();
}

void MultipartReader::add_content(std::string_view bytes) {
  if (bytes.empty()) return;
  if (is_file_) return take_file_(bytes);
  std::string& value = fields_[name_];
  check_length(name_, value.size() + bytes.size());
  value += bytes;
}

}  // namespace sluice::http
