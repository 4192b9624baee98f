// SHA-256 (FIPS 180-4) of bytes that come in pieces, by OpenSSL's libcrypto.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/fetch/libraries.h"

namespace sluice::fetch {

class Sha256 {
 public:
  Sha256();  // throws Error when the library is not there
  void add(std::span<const std::byte> bytes);
  // 64 hexadecimal digits, in lower case. Begins anew afterwards.
  std::string finish();

 private:
  void begin();
  struct Free {
    void operator()(EVP_MD_CTX* context) const { crypto().context_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

// Whether a text is such a sum.
bool is_sha256(std::string_view text);

}  // namespace sluice::fetch
