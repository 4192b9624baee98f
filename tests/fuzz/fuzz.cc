#include "tests/fuzz/fuzz.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "tests/temporary_folder.h"

namespace sluice::fuzz {
void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: does not hold: %s\n", what);
  std::abort();
}

std::vector<std::string_view> split(std::string_view input, std::size_t count) {
  std::vector<std::string_view> parts;
  while (parts.size() + 1 < count) {
    const std::size_t end = std::min(input.find(separator), input.size());
    parts.push_back(input.substr(0, end));
    input.remove_prefix(std::min(end + 1, input.size()));
  }
  parts.push_back(input);
  return parts;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += part + separator;
  all.pop_back();
  return all;
}

std::uint8_t Choices::byte() {
  if (bytes_.empty()) return 0;
  const auto value = static_cast<std::uint8_t>(bytes_.front());
  bytes_.remove_prefix(1);
  return value;
}

std::size_t Choices::below(std::size_t end) {
  std::size_t value = byte();
  for (std::size_t most = 255; most < end - 1; most = most * 256 + 255)
    value = value * 256 + byte();
  return value % end;
}

std::string_view Choices::piece_of(std::string_view& text) {
  const std::size_t bytes = is_empty() ? text.size() : std::min<std::size_t>(byte(), text.size());
  const std::string_view piece = text.substr(0, bytes);
  text.remove_prefix(bytes);
  return piece;
}

const std::filesystem::path& scratch_folder() {
  static const test::TemporaryFolder folder(std::filesystem::exists("/dev/shm") ? "/dev/shm"
                                                                                : "/tmp");
  return folder.path();
}

InputFile::InputFile(std::string_view contents, const std::string& name)
    : path_(scratch_folder() / name) {
  test::write(path_, std::string(contents));
}

InputFile::~InputFile() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace sluice::fuzz
