// Uploads: CONTENT TYPE, BODY, CHOICES. However a body is cut, the same fields and file come of it.
#include "core/http/jobs/multipart.h"

#include <string>
#include <vector>

#include "core/http/transport/error.h"
#include "tests/fuzz/fuzz.h"

namespace sluice::fuzz {
namespace {

std::string read(std::string_view type, std::string_view body, Choices choices) {
  std::string file, result;
  try {
    http::MultipartReader reader(type, {"purpose"}, [&](std::string_view piece) { file += piece; });
    while (!body.empty()) reader.take(choices.piece_of(body));
    require(reader.fields().size() <= 1, "fields are bounded");
    for (const auto& [name, value] : reader.fields()) {
      require(value.size() <= http::MultipartReader::value_bytes_max, "a field is bounded");
      result += name + "=" + value + "\n";
    }
    // Of a body that has not ended, what waits for more depends on how it was cut.
    if (!reader.is_complete()) return result + "incomplete";
    result += reader.has_file() ? reader.file_name() + ": " + file : "no file";
  } catch (const http::ApiError& error) {
    result = std::to_string(error.status);
  }
  return result;
}

}  // namespace

void run(std::string_view input) {
  const auto parts = split(input, 3);
  const std::string whole = read(parts[0], parts[1], Choices(""));
  const std::string pieces = read(parts[0], parts[1], Choices(parts[2]));
  require(whole == pieces, "pieces give what the whole gives");
}

std::vector<std::string> seeds() {
  const std::string body =
      "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--b\r\n"
      "Content-Disposition: form-data; name=\"file\"; filename=\"a\\\"b.jsonl\"\r\n"
      "Content-Type: application/json\r\n\r\n{\"a\": 1}\r\n--\r\n\r\n--b--\r\n";
  return {joined({"multipart/form-data; boundary=b", body, "\x03\x10\x01\x05"}),
          joined({"multipart/form-data; charset=x; boundary=\"b\"", body, "\x01\x01\x01\x01"}),
          joined({"multipart/form-data;boundary=b", "preamble\r\n" + body, ""})};
}

}  // namespace sluice::fuzz
