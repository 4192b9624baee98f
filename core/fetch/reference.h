// Names of models that lie elsewhere: what stands in the place of a file.
//
//   hf:OWNER/REPO[@REVISION]/FILE      a file of a repository of the hub; / in a revision is %2F
//   hf:OWNER/REPO[@REVISION]:QUANT     the file of that quantisation: Q4_K_M
//   hf:OWNER/REPO[@REVISION]           all its files, for `sluice plan`
//   ollama:[HOST/][SPACE/]NAME[:TAG]   a model of a registry of ollama
//   https://HOST/FILE                  a file of any server
//   file:PATH                          a file here
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice::fetch {

enum class ReferenceKind { hub_file, hub_quant, hub_repository, ollama, url, file };

struct Reference {
  ReferenceKind kind = ReferenceKind::file;
  std::string text;        // as it was given
  std::string repository;  // of the hub: OWNER/REPO; of ollama: SPACE/NAME
  std::string revision;    // of the hub: a branch, tag or commit; of ollama: the tag
  std::string file;        // hub_file: the path in the repository; file: the path here
  std::string quant;       // hub_quant
  std::string url;         // url: as given; ollama: of the registry, without a slash at the end
  bool is_default_host = true;  // of ollama
};

// Whether a text begins as a reference does; it may still be a wrong one.
bool is_reference(std::string_view text);

// Whether a text is OWNER/REPO:QUANT, which only lacks "hf:".
bool lacks_hub_scheme(std::string_view text);

// Throws UsageError, which says what is wrong and shows the right form. What comes out is safe as a
// path below a folder: no part is empty, "." or "..", none has control characters.
Reference parse_reference(std::string_view text);

// Whether a name of a file in a repository is safe as a path below a folder.
bool is_safe_path(std::string_view path);

// Whether a URL's host is this machine: localhost, 127.0.0.0/8 or [::1].
bool is_loopback(std::string_view url);

// "https://host:1/a?b" -> "host:1"; "file.gguf" of "https://host/a/file.gguf?x".
std::string host_of(std::string_view url);
std::string file_name_of(std::string_view url);

// A URL as messages show it: what may be secret, user:password@ and all from ? or # on, is left
// out.
std::string shown_url(std::string_view url);

}  // namespace sluice::fetch
