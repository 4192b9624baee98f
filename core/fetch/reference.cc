#include "core/fetch/reference.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <vector>

#include "core/error.h"
#include "core/text/quoted.h"

namespace sluice::fetch {
namespace {

constexpr std::string_view hub_scheme = "hf:", ollama_scheme = "ollama:", file_scheme = "file:";
constexpr std::string_view ollama_registry = "https://registry.ollama.ai";

[[noreturn]] void refuse(std::string_view text, std::string_view form) {
  const bool is_url = text.find("://") != text.npos;
  throw UsageError(fmt::format("{} is no reference to a model: {}",
                               sluice::text::quoted(is_url ? shown_url(text) : std::string(text)),
                               form));
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

// A part of a repository's name.
bool is_name(std::string_view text) {
  return !text.empty() && text != "." && text != ".." && text.find("--") == text.npos &&
         std::ranges::all_of(text, is_name_character);
}

std::vector<std::string> parts_of(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    if (end == text.size()) return parts;
    begin = end + 1;
  }
}

// A revision with its slashes, which are written %2F: refs%2Fpr%2F1.
std::string with_slashes(std::string_view text) {
  std::string out(text);
  for (const char* const code : {"%2F", "%2f"}) {
    for (std::size_t at = 0; (at = out.find(code, at)) != out.npos; ++at) out.replace(at, 3, "/");
  }
  return out;
}

Reference begun(ReferenceKind kind, std::string_view text) {
  Reference reference;
  reference.kind = kind;
  reference.text = std::string(text);
  return reference;
}

Reference parse_hub(std::string_view text) {
  constexpr std::string_view form =
      "write hf:OWNER/REPO/FILE.gguf, or hf:OWNER/REPO:Q4_K_M; @REVISION may stand behind REPO "
      "(a slash in it is %2F)";
  std::string_view rest = text.substr(hub_scheme.size());
  const std::size_t slash = rest.find('/');
  if (slash == rest.npos) refuse(text, form);
  const std::size_t end = std::min(rest.find_first_of("@:/", slash + 1), rest.size());
  Reference reference = begun(ReferenceKind::hub_repository, text);
  reference.repository = std::string(rest.substr(0, end));
  if (!is_name(rest.substr(0, slash)) || !is_name(rest.substr(slash + 1, end - slash - 1))) {
    refuse(text, form);
  }
  rest.remove_prefix(end);
  reference.revision = "main";
  if (rest.starts_with('@')) {
    const std::size_t revision_end = std::min(rest.find_first_of(":/"), rest.size());
    reference.revision = with_slashes(rest.substr(1, revision_end - 1));
    if (!is_safe_path(reference.revision)) refuse(text, form);
    rest.remove_prefix(revision_end);
  }
  if (rest.starts_with('/')) {
    reference.kind = ReferenceKind::hub_file;
    reference.file = std::string(rest.substr(1));
    if (!is_safe_path(reference.file)) refuse(text, form);
  } else if (rest.starts_with(':')) {
    reference.kind = ReferenceKind::hub_quant;
    reference.quant = std::string(rest.substr(1));
    if (!is_name(reference.quant)) refuse(text, form);
  }
  return reference;
}

Reference parse_ollama(std::string_view text) {
  constexpr std::string_view form = "write ollama:NAME or ollama:NAME:TAG";
  const std::string_view rest = text.substr(ollama_scheme.size());
  std::vector<std::string> parts = parts_of(rest, '/');
  Reference reference = begun(ReferenceKind::ollama, text);
  reference.url = ollama_registry;
  if (parts.size() == 3) {
    const std::string& host = parts[0];
    const bool is_host = !host.empty() && std::ranges::all_of(host, [](char c) {
      return is_name_character(c) || c == ':' || c == '[' || c == ']';
    });
    if (!is_host) refuse(text, form);
    reference.url = (is_loopback("http://" + host) ? "http://" : "https://") + host;
    reference.is_default_host = host == host_of(ollama_registry);
    parts.erase(parts.begin());
  }
  const std::string last = parts.back();
  const std::size_t colon = last.find(':');
  parts.back() = last.substr(0, colon);
  reference.revision = colon == last.npos ? "latest" : last.substr(colon + 1);
  if (parts.size() > 2 || !is_name(reference.revision)) refuse(text, form);
  if (!std::ranges::all_of(parts, [](const std::string& part) { return is_name(part); })) {
    refuse(text, form);
  }
  if (parts.size() == 1) parts.insert(parts.begin(), "library");
  reference.repository = parts[0] + "/" + parts[1];
  return reference;
}

Reference parse_url(std::string_view text) {
  constexpr std::string_view form = "write https://HOST/FILE.gguf";
  const bool has_controls = std::ranges::any_of(
      text, [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == '\x7F'; });
  if (has_controls || host_of(text).empty() || !is_safe_path(file_name_of(text))) {
    refuse(text, form);
  }
  Reference reference = begun(ReferenceKind::url, text);
  reference.url = reference.text;
  return reference;
}

Reference parse_file(std::string_view text) {
  std::string_view path = text.substr(file_scheme.size());
  if (path.starts_with("///")) path.remove_prefix(2);  // file:///PATH
  if (path.empty() || path.starts_with("//")) refuse(text, "write file:PATH");
  Reference reference = begun(ReferenceKind::file, text);
  reference.file = std::string(path);
  return reference;
}

}  // namespace

bool is_reference(std::string_view text) {
  constexpr std::array<std::string_view, 5> schemes = {hub_scheme, ollama_scheme, file_scheme,
                                                       "https://", "http://"};
  return std::ranges::any_of(schemes, [&](auto scheme) { return text.starts_with(scheme); });
}

bool lacks_hub_scheme(std::string_view text) {
  try {
    return parse_hub(std::string(hub_scheme) + std::string(text)).kind == ReferenceKind::hub_quant;
  } catch (const UsageError&) {
    return false;
  }
}

Reference parse_reference(std::string_view text) {
  if (text.starts_with(hub_scheme)) return parse_hub(text);
  if (text.starts_with(ollama_scheme)) return parse_ollama(text);
  if (text.starts_with(file_scheme)) return parse_file(text);
  if (is_reference(text)) return parse_url(text);
  if (lacks_hub_scheme(text)) refuse(text, "write hf: before it");
  refuse(text, "write hf:OWNER/REPO/FILE, ollama:NAME, https://... or file:PATH");
}

bool is_safe_path(std::string_view path) {
  constexpr std::size_t length_max = 1024, part_length_max = 240;
  if (path.empty() || path.size() > length_max) return false;
  const bool is_printable = text::printable(path, length_max) == path;
  if (!is_printable || path.find('\\') != path.npos) return false;
  return std::ranges::none_of(parts_of(path, '/'), [](const std::string& part) {
    return part.empty() || part == "." || part == ".." || part.size() > part_length_max;
  });
}

bool is_loopback(std::string_view url) {
  std::string host = host_of(url);
  if (host.starts_with("[::1]")) return true;
  host.resize(std::min(host.find(':'), host.size()));
  const bool is_number = host.find_first_not_of("0123456789.") == host.npos;
  return host == "localhost" || (is_number && host.starts_with("127."));
}

std::string host_of(std::string_view url) {
  const std::size_t scheme = url.find("://");
  if (scheme == url.npos) return "";
  url.remove_prefix(scheme + 3);
  url = url.substr(0, url.find_first_of("/?#"));
  if (const std::size_t at = url.rfind('@'); at != url.npos) url.remove_prefix(at + 1);
  return std::string(url);
}

std::string file_name_of(std::string_view url) {
  url = url.substr(0, url.find_first_of("?#"));
  const std::size_t scheme = url.find("://");
  const std::size_t slash = url.rfind('/');
  if (slash == url.npos || (scheme != url.npos && slash < scheme + 3)) return "";
  return std::string(url.substr(slash + 1));
}

std::string shown_url(std::string_view url) {
  std::string shown(url.substr(0, url.find_first_of("?#")));
  const std::size_t scheme = shown.find("://");
  if (scheme == shown.npos) return shown;
  const std::size_t host = scheme + 3, end = std::min(shown.find('/', host), shown.size());
  const std::size_t at = std::string_view(shown).substr(0, end).rfind('@');
  if (at != shown.npos && at >= host) shown.erase(host, at + 1 - host);
  return shown;
}

}  // namespace sluice::fetch
