// What the fuzzers share. A fuzzer is one file, which defines run() and seeds(); main.cc is the
// rest.
//
// An input has parts, separated by one byte that texts do not have (split()). Where a fuzzer has
// choices to make beside a text, it takes them from the last part (Choices).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::fuzz {

// Reads one input. Whatever it is, the reader at hand takes it or refuses it with the errors that
// its header names; run() catches these and no others. What does not hold then, and what a
// sanitizer finds, is a finding.
void run(std::string_view input);

// Inputs to begin with.
std::vector<std::string> seeds();

// Ends the process with a message unless it holds.
void require(bool holds, const char* what);

inline constexpr char separator = '\x1e';

// The parts of an input: always `count`, where those that are missing are empty.
std::vector<std::string_view> split(std::string_view input, std::size_t count);

// Joins parts as split() takes them apart.
std::string joined(const std::vector<std::string>& parts);

// Numbers that an input decides; 0 once it is used up.
class Choices {
 public:
  explicit Choices(std::string_view bytes) : bytes_(bytes) {}

  bool is_empty() const { return bytes_.empty(); }
  std::uint8_t byte();
  // Below `end`, which is not 0.
  std::size_t below(std::size_t end);
  // A piece from the front of `text`, which loses it: the whole text once nothing is left to
  // choose by.
  std::string_view piece_of(std::string_view& text);

 private:
  std::string_view bytes_;
};

// A file with the given contents, in memory if the system has a folder for that. It goes with the
// object.
class InputFile {
 public:
  explicit InputFile(std::string_view contents, const std::string& name = "input");
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// The folder of this process for files, which is removed at its end.
const std::filesystem::path& scratch_folder();

}  // namespace sluice::fuzz
