// Files that the user names.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace sluice::cli {

// The bytes of a file ("-" is standard input). Throws std::system_error.
std::string read_text(const std::filesystem::path& path);

// Throws UsageError when the file to be written is the same file as `other`, which is read or
// written as `role` ("the input"), even if it has another name: a link, or another spelling of the
// path. For files that do not exist yet the places are compared.
void refuse_same_file(const std::filesystem::path& written, const std::filesystem::path& other,
                      std::string_view role);

// The same for all files of a model. Throws ModelError when there is no model.
void refuse_files_of_model(const std::filesystem::path& written,
                           const std::filesystem::path& model);

// Where sluice keeps what is not configuration of this user: $XDG_STATE_HOME/sluice, or
// ~/.local/state/sluice. Empty where there is no such place.
std::filesystem::path state_folder();

// Writes a files::DurableFile with a name that the user chose. Throws std::system_error.
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace sluice::cli
