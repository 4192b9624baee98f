// sluice pull: downloads a model.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/fetch/remote_model.h"

namespace sluice::cli {

// How a server is asked.
struct FetchOptions {
  bool insecure_http = false;
  bool quiet = false;
  std::string sandbox = "auto";
};

struct PullOptions {
  std::string reference;
  FetchOptions fetch;
};

CLI::App* add_pull(CLI::App& program, PullOptions& options);

// Returns the exit status.
int run_pull(const PullOptions& options);

// The path of the model that a reference names; it is downloaded if it is not here. Throws
// UsageError and Error.
std::filesystem::path find_or_pull(const std::string& reference, const FetchOptions& options);

// The same, but of a model that is not here the header alone is read. Its file lasts as long as the
// program.
std::filesystem::path find_or_read_header(const std::string& reference,
                                          const FetchOptions& options);
// The same, but of a repository the headers of all its models are read, into the folder that is
// returned.
std::filesystem::path find_or_read_headers(const std::string& reference,
                                           const FetchOptions& options);
// The models whose headers are in that folder; empty for any other path.
const std::vector<fetch::RepositoryModel>& models_of_repository(const std::filesystem::path& path);
// The folder of which this program removes something when it ends; empty: it has read no header.
const std::filesystem::path& headers_to_remove();
// How much has been read from servers for that.
std::uint64_t header_bytes_read();

}  // namespace sluice::cli
