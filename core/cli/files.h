// Files that the user names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::cli {

// The name of an input for messages: of "-" it is "standard input".
std::string input_name(const std::filesystem::path& path);

// A text that is read piece by piece, from a file or, for "-", from the standard input. All
// functions throw std::system_error.
class TextInput {
 public:
  explicit TextInput(const std::filesystem::path& path);

  // Appends up to `bytes_max` bytes to `text`. False at the end.
  bool read(std::size_t bytes_max, std::string& text);

  const std::string& name() const { return name_; }
  std::uint64_t bytes_read() const { return bytes_read_; }
  // Of a regular file; otherwise nothing.
  std::optional<std::uint64_t> bytes() const { return bytes_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const {
      if (file != stdin) std::fclose(file);
    }
  };
  std::string name_;
  std::unique_ptr<std::FILE, Close> file_;
  std::optional<std::uint64_t> bytes_;
  std::uint64_t bytes_read_ = 0;
};

// All bytes of a file ("-" is standard input). Throws std::system_error, and Error with
// ExitCode::budget when the text is larger than what memory there is.
std::string read_text(const std::filesystem::path& path);

// Editors and echo end a text with a newline that is not meant as part of a message.
std::string without_last_newline(std::string text);

// The message of -p behind what is piped into the standard input, if that is a file or a pipe: a
// document, and what to do with it. A pipe that stays open and empty is given up after ten seconds,
// with a warning. Throws as read_text does.
std::string behind_piped_text(const std::string& prompt, bool quiet);

// Throws UsageError when the file to be written is the same file as `other`, which is read or
// written as `role` ("the input"), even if it has another name: a link, or another spelling of the
// path. For files that do not exist yet the places are compared. A device such as /dev/null may be
// both.
void refuse_same_file(const std::filesystem::path& written, const std::filesystem::path& other,
                      std::string_view role);

// The same for all files of a model. Throws ModelError when there is no model.
void refuse_files_of_model(const std::filesystem::path& written,
                           const std::filesystem::path& model);

// Whether there is a file with something in it. Devices and pipes are none.
bool holds_something(const std::filesystem::path& path);

// Throws UsageError when the name of an output is empty, as that of a variable that is not set.
void refuse_unnamed(const std::filesystem::path& written);

// Throws UsageError when the file to be written holds something, unless it may be replaced, and
// std::system_error when it has no folder to lie in. The other asks somebody at the terminal first.
void refuse_existing(const std::filesystem::path& written, bool may_replace);
void ask_before_replacing(const std::filesystem::path& written, bool may_replace);

// Where sluice keeps what is not configuration of this user: $XDG_STATE_HOME/sluice, or
// ~/.local/state/sluice. Empty where there is no such place.
std::filesystem::path state_folder();

// Writes a files::DurableFile with a name that the user chose. Throws std::system_error.
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace sluice::cli
