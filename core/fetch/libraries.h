// libcurl and OpenSSL's libcrypto, loaded when the first of their functions is needed.
//
// libcurl brings thirty libraries along, which cost a megabyte of memory and ten milliseconds in
// every process that is linked with them. A run in a small budget does not pay for what only `pull`
// needs, and a machine without libcurl runs models that are there.
#pragma once

#include <curl/curl.h>
#include <openssl/evp.h>

namespace sluice::fetch {

struct Curl {
  decltype(&curl_global_init) global_init;
  decltype(&curl_easy_init) easy_init;
  decltype(&curl_easy_cleanup) easy_cleanup;
  decltype(&curl_easy_reset) easy_reset;
  decltype(&curl_easy_setopt) easy_setopt;
  decltype(&curl_easy_getinfo) easy_getinfo;
  decltype(&curl_easy_strerror) easy_strerror;
  decltype(&curl_slist_append) slist_append;
  decltype(&curl_slist_free_all) slist_free_all;
  decltype(&curl_multi_init) multi_init;
  decltype(&curl_multi_cleanup) multi_cleanup;
  decltype(&curl_multi_add_handle) multi_add_handle;
  decltype(&curl_multi_remove_handle) multi_remove_handle;
  decltype(&curl_multi_perform) multi_perform;
  decltype(&curl_multi_poll) multi_poll;
  decltype(&curl_multi_info_read) multi_info_read;
};

struct Crypto {
  decltype(&EVP_MD_CTX_new) context_new;
  decltype(&EVP_MD_CTX_free) context_free;
  decltype(&EVP_sha256) sha256;
  decltype(&EVP_DigestInit_ex) init;
  decltype(&EVP_DigestUpdate) update;
  decltype(&EVP_DigestFinal_ex) final;
};

// Both throw Error when the library is not installed, with what to install. Never unloaded.
const Curl& curl();
const Crypto& crypto();

}  // namespace sluice::fetch
