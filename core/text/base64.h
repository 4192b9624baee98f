// Base64 in the alphabet of RFC 4648.
#pragma once

#include <string>
#include <string_view>

namespace sluice::text {

std::string to_base64(std::string_view bytes);

// Empty for what is no Base64. Padding may be missing.
std::string from_base64(std::string_view text);

}  // namespace sluice::text
