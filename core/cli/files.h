// Files that the user names, and texts that are whole files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace sluice::cli {

// The bytes of a file ("-" is standard input). Throws std::system_error.
std::string read_text(const std::filesystem::path& path);

// Throws UsageError when a file that is to be written is one that is read or written as `role`
// ("the input"), by whatever name: a link, or a path that is written otherwise. Where no file is
// yet, places are compared.
void refuse_same_file(const std::filesystem::path& written, const std::filesystem::path& other,
                      std::string_view role);

// The same for all files of a model. Throws ModelError when there is no model.
void refuse_files_of_model(const std::filesystem::path& written,
                           const std::filesystem::path& model);

// Writes a files::DurableFile with a name that the user chose. Throws std::system_error.
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace sluice::cli
