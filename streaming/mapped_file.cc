#include "streaming/mapped_file.h"

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/file_mapping.hpp>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace sluice::streaming {
namespace {

namespace interprocess = boost::interprocess;

std::system_error mapping_error(const std::filesystem::path& path, int code) {
  return {code, std::generic_category(), path.string() + ": cannot be mapped for reading"};
}

// Checked here because Boost cannot map an empty file, and opens a directory without an error.
bool is_empty_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (error) throw mapping_error(path, error.value());
  if (std::filesystem::is_directory(status)) throw mapping_error(path, EISDIR);
  if (!std::filesystem::is_regular_file(status)) throw mapping_error(path, EINVAL);
  const auto size = std::filesystem::file_size(path, error);
  if (error) throw mapping_error(path, error.value());
  return size == 0;
}

interprocess::mapped_region map_whole(const std::filesystem::path& path) {
  if (is_empty_file(path)) return {};
  try {
    const interprocess::file_mapping file(path.c_str(), interprocess::read_only);
    return {file, interprocess::read_only};
  } catch (const interprocess::interprocess_exception& error) {
    throw mapping_error(path, error.get_native_error());
  }
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path path)
    : path_(std::move(path)), region_(map_whole(path_)) {}

std::span<const std::byte> MappedFile::bytes() const {
  return {static_cast<const std::byte*>(region_.get_address()), region_.get_size()};
}

}  // namespace sluice::streaming
