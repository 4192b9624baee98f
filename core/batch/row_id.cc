#include "core/batch/row_id.h"

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/text/limited_json.h"

namespace sluice::batch {
namespace {

// Handles the events of the parser, in the form that nlohmann::json_sax describes. Stops where the
// row exceeds a limit of parse_row().
class IdReader {
 public:
  // A member of the row, as far as it is needed.
  struct Member {
    bool is_there = false;
    enum class Kind { null, text, integer, other } kind = Kind::null;
    std::string text;  // of a text or an integer
  };

  bool null() { return take(Member::Kind::null); }
  bool boolean(bool) { return take(Member::Kind::other); }
  bool number_integer(std::int64_t value) { return take_integer(value); }
  bool number_unsigned(std::uint64_t value) { return take_integer(value); }
  bool number_float(double, const std::string& text) {
    return !is_integer_literal(text) && take(Member::Kind::other);
  }
  bool string(std::string& value) {
    if (!take(Member::Kind::text)) return false;
    if (taken_ != nullptr) taken_->text = std::move(value);
    return true;
  }
  static bool binary(nlohmann::json::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(true); }
  bool start_array(std::size_t) { return open(false); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  static bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) {
    return false;
  }

  bool key(const std::string& name) {
    if (!count() || ++members_.back() > rows::row_members_max) return false;
    if (members_.size() != 1) return true;
    named_ = name == "id"          ? &id_
             : name == "custom_id" ? &custom_id_
             : name == "body"      ? &body_
                                   : nullptr;
    if (named_ != nullptr) *named_ = {.is_there = true, .kind = Member::Kind::null, .text = {}};
    return true;
  }

  // Whether an object has more members than a row may have; repeated names count each time.
  bool has_many_members() const {
    return !members_.empty() && members_.back() > rows::row_members_max;
  }

  // Call these after the row was read, as far as it could be.
  bool is_plain() const { return !custom_id_.is_there && !body_.is_there; }
  std::optional<std::string> id() const {
    const Member& member = is_plain() ? id_ : custom_id_;
    if (member.kind == Member::Kind::integer && is_plain()) return member.text;
    if (member.kind != Member::Kind::text || member.text.size() > rows::text_bytes_max) {
      return std::nullopt;
    }
    return nlohmann::json(member.text).dump();
  }
  bool is_object() const { return is_object_; }

 private:
  bool count() { return ++values_ <= rows::row_values_max; }

  template <typename Integer>
  bool take_integer(Integer value) {
    if (!take(Member::Kind::integer)) return false;
    if (taken_ != nullptr) taken_->text = std::to_string(value);
    return true;
  }

  // Called for each value. taken_ points to the member that it belongs to, if that is needed.
  bool take(typename Member::Kind kind) {
    taken_ = members_.size() == 1 ? std::exchange(named_, nullptr) : nullptr;
    if (taken_ != nullptr) taken_->kind = kind;
    return count();
  }

  bool open(bool is_object) {
    if (members_.size() == rows::row_depth_max || !take(Member::Kind::other)) return false;
    if (members_.empty()) is_object_ = is_object;
    members_.push_back(0);
    return true;
  }

  bool close() {
    members_.pop_back();
    return true;
  }

  std::size_t values_ = 0;
  bool is_object_ = false;
  std::vector<std::size_t> members_;  // member counts of the open containers
  Member id_, custom_id_, body_;
  Member* named_ = nullptr;  // the member whose value comes next
  Member* taken_ = nullptr;
};

}  // namespace

std::optional<std::string> read_row_id(std::string_view line) {
  if (line.size() > rows::row_bytes_max) return std::nullopt;
  IdReader reader;
  if (nlohmann::json::sax_parse(line.begin(), line.end(), &reader)) {
    return reader.is_object() ? reader.id() : std::nullopt;
  }
  if (!reader.has_many_members()) return std::nullopt;
  const rows::RowHeader header = rows::parse_row(line, 1, {}).header;  // names may occur twice
  return header.id.is_null() ? std::nullopt : std::optional(header.id.dump());
}

rows::RowHeader header_of_long_row(std::string_view line) {
  IdReader reader;
  nlohmann::json::sax_parse(line.begin(), line.end(), &reader);
  rows::RowHeader header;
  header.form = reader.is_plain() ? rows::Form::plain : rows::Form::completions;
  if (const auto id = reader.id()) header.id = nlohmann::json::parse(*id);
  return header;
}

}  // namespace sluice::batch
