// A file on a server, as its server describes it before it is downloaded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sluice::fetch {

struct RemoteFile {
  std::string name;  // for messages
  std::string url;
  std::string token;                   // for the host of the URL; empty: none
  std::optional<std::uint64_t> bytes;  // nothing: the server does not say
  std::string sha256;                  // empty: the server does not state it
  std::string version;                 // what the server calls this one; may be empty
};

}  // namespace sluice::fetch
