// Reads a body of multipart/form-data (RFC 7578) that arrives in pieces: the short values of known
// fields are kept, the contents of one file are passed on. So it holds little of any body.
//
// Threads: used by one thread.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::http {

class MultipartReader {
 public:
  static constexpr std::size_t head_bytes_max = 4096;  // of a part
  static constexpr std::size_t value_bytes_max = 255;  // of a field, and of the name of the file

  using TakeFile = std::function<void(std::string_view piece)>;

  // `content_type` is that of the request. `take_file` gets the contents of the part "file";
  // `names` are those of the other parts that there may be. Throws ApiError when it is no
  // multipart/form-data with a boundary.
  MultipartReader(std::string_view content_type, std::vector<std::string> names,
                  TakeFile take_file);

  // Throws ApiError for a body that is malformed, for a part that is unknown or too long, by its
  // name, and what `take_file` throws.
  void take(std::string_view piece);

  bool is_complete() const { return state_ == State::end; }
  bool has_file() const { return has_file_; }
  const std::string& file_name() const { return file_name_; }
  const std::map<std::string, std::string>& fields() const { return fields_; }

 private:
  enum class State { preamble, after_boundary, head, content, end };

  bool advance();
  bool read_content();
  void begin_part(std::string_view head);
  void add_content(std::string_view bytes);

  std::vector<std::string> names_;
  TakeFile take_file_;
  std::string delimiter_;  // a line break, two dashes and the boundary
  State state_ = State::preamble;
  std::string waiting_;  // received, not yet understood
  std::map<std::string, std::string> fields_;
  std::string name_;  // of the present part
  bool is_file_ = false;
  bool has_file_ = false;
  std::string file_name_;
};

}  // namespace sluice::http
