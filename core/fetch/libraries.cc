#include "core/fetch/libraries.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <initializer_list>
#include <string>

#include "core/error.h"

namespace sluice::fetch {
namespace {

class Library {
 public:
  Library(std::initializer_list<const char*> names, std::string remedy)
      : remedy_(std::move(remedy)) {
    for (const char* name : names) {
      if (handle_ == nullptr) handle_ = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (handle_ == nullptr) fail();
  }

  template <typename Function>
  void load(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(::dlsym(handle_, name));
    if (function == nullptr) fail();
  }

 private:
  [[noreturn]] void fail() const {
    const char* reason = ::dlerror();  // NOLINT(concurrency-mt-unsafe): of this thread, in glibc
    throw Error(ExitCode::failure,
                fmt::format("{} ({})", remedy_, reason == nullptr ? "not found" : reason));
  }

  std::string remedy_;
  void* handle_ = nullptr;
};

Curl load_curl() {
  const Library library({"libcurl.so.4", "libcurl-gnutls.so.4"},
                        "models are fetched with libcurl, which is not installed: install it "
                        "(Debian, Ubuntu: apt install libcurl4)");
  Curl curl{};
  library.load(curl.global_init, "curl_global_init");
  library.load(curl.easy_init, "curl_easy_init");
  library.load(curl.easy_cleanup, "curl_easy_cleanup");
  library.load(curl.easy_reset, "curl_easy_reset");
  library.load(curl.easy_setopt, "curl_easy_setopt");
  library.load(curl.easy_getinfo, "curl_easy_getinfo");
  library.load(curl.easy_strerror, "curl_easy_strerror");
  library.load(curl.slist_append, "curl_slist_append");
  library.load(curl.slist_free_all, "curl_slist_free_all");
  library.load(curl.multi_init, "curl_multi_init");
  library.load(curl.multi_cleanup, "curl_multi_cleanup");
  library.load(curl.multi_add_handle, "curl_multi_add_handle");
  library.load(curl.multi_remove_handle, "curl_multi_remove_handle");
  library.load(curl.multi_perform, "curl_multi_perform");
  library.load(curl.multi_poll, "curl_multi_poll");
  library.load(curl.multi_info_read, "curl_multi_info_read");
  if (curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    throw Error(ExitCode::failure, "libcurl cannot start");
  }
  return curl;
}

Crypto load_crypto() {
  const Library library({"libcrypto.so.3", "libcrypto.so.1.1"},
                        "downloads are checked with OpenSSL's libcrypto, which is not installed: "
                        "install it (Debian, Ubuntu: apt install libssl3)");
  Crypto crypto{};
  library.load(crypto.context_new, "EVP_MD_CTX_new");
  library.load(crypto.context_free, "EVP_MD_CTX_free");
  library.load(crypto.sha256, "EVP_sha256");
  library.load(crypto.init, "EVP_DigestInit_ex");
  library.load(crypto.update, "EVP_DigestUpdate");
  library.load(crypto.final, "EVP_DigestFinal_ex");
  return crypto;
}

}  // namespace

const Curl& curl() {
  static const Curl loaded = load_curl();
  return loaded;
}

const Crypto& crypto() {
  static const Crypto loaded = load_crypto();
  return loaded;
}

}  // namespace sluice::fetch
