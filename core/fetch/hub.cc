#include "core/fetch/hub.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "core/error.h"
#include "core/fetch/places.h"
#include "core/fetch/sha256.h"
#include "core/text/limited_json.h"
#include "core/text/quoted.h"

namespace sluice::fetch {
namespace {

constexpr JsonLimits listing_limits{
    .what = "listing", .values_max = 2'000'000, .members_max = 1000, .depth_max = 16};
constexpr std::uint64_t listing_bytes_max = std::uint64_t{64} << 20;

std::string upper(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return out;
}

// A path as a part of a URL.
std::string url_path(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = std::isalnum(byte) != 0 || std::string_view("-_.~/").find(c) != path.npos;
    out += is_plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return out;
}

// A revision is one part of a URL, even one with slashes (refs/pr/1).
std::string url_part(std::string_view text) {
  std::string out = url_path(text);
  for (std::size_t at = 0; (at = out.find('/', at)) != out.npos; at += 3) out.replace(at, 1, "%2F");
  return out;
}

// The reference to a file.
std::string name_of(const Reference& reference, const std::string& file) {
  std::string revision = reference.revision == "main" ? "" : "@" + reference.revision;
  for (std::size_t at = 0; (at = revision.find('/', at)) != revision.npos;) {
    revision.replace(at, 1, "%2F");
  }
  return fmt::format("hf:{}{}/{}", reference.repository, revision, file);
}

bool is_commit(std::string_view text) {
  return text.size() == 40 && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// The URL of the next part of a list: <URL>; rel="next".
std::string next_page(const Answer& answer) {
  const std::string link = answer.header("link");
  const std::size_t begin = link.find('<'), end = link.find('>');
  const bool has_next = link.find("rel=\"next\"") != link.npos && begin < end && end != link.npos;
  return has_next ? link.substr(begin + 1, end - begin - 1) : "";
}

}  // namespace

Hub::Hub(Web& web) : web_(web), endpoint_(hub_endpoint()), token_(hub_token()) {}

HubFile Hub::find(const Reference& reference, const std::string& file) {
  Request request;
  request.url = resolve_url(reference, file);
  request.token = token_;
  request.is_head = true;
  request.leaves_host = false;
  request.headers = {"Accept-Encoding: identity"};
  const Answer answer = web_.ask(request);
  HubFile out;
  out.remote.name = name_of(reference, file);
  if (answer.status < 200 || answer.status >= 400) throw_answer(out.remote.name, answer);
  Answer linked = answer;
  if (const std::string tag = answer.header("x-linked-etag"); !tag.empty()) {
    linked.headers["etag"] = tag;
  }
  if (const std::string size = answer.header("x-linked-size"); !size.empty()) {
    linked.headers["content-length"] = size;
  } else if (answer.status >= 300) {
    linked.headers.erase("content-length");  // of the redirect itself
  }
  out.remote.url = answer.url;
  // A renamed repository redirects on the same host, and the token stays with it.
  out.remote.token = token_;
  out.remote.bytes = linked.content_length();
  out.remote.version = linked.etag();
  if (is_sha256(out.remote.version)) out.remote.sha256 = out.remote.version;
  out.commit = answer.header("x-repo-commit");
  if (!is_commit(out.commit) || !is_safe_path(out.remote.version) ||
      out.remote.version.find('/') != std::string::npos) {
    throw Error(ExitCode::io, fmt::format("{}: {} does not answer as a hub does: check HF_ENDPOINT",
                                          out.remote.name, shown_url(endpoint_)));
  }
  return out;
}

std::vector<ListedFile> Hub::list(const Reference& reference) {
  std::vector<ListedFile> files;
  std::string url = fmt::format("{}/api/models/{}/tree/{}?recursive=true", endpoint_,
                                reference.repository, url_part(reference.revision));
  const auto refuse = [&] {
    throw Error(ExitCode::io,
                fmt::format("hf:{}: {} does not answer as a hub does: check HF_ENDPOINT",
                            reference.repository, shown_url(endpoint_)));
  };
  for (int pages = 0; !url.empty() && pages < 1000; ++pages) {
    // A server leads nobody to another one, nor to a service of this machine.
    if (host_of(url) != host_of(endpoint_)) refuse();
    Request request;
    request.url = url;
    request.token = token_;
    request.body_bytes_max = listing_bytes_max;
    const Answer answer = web_.ask(request);
    if (answer.status != 200) throw_answer("hf:" + reference.repository, answer);
    try {
      for (const auto& entry : parse_limited_json(answer.body, listing_limits).value) {
        if (entry.at("type") != "file") continue;
        const auto size = entry.find("size");
        const bool has_size = size != entry.end() && size->is_number_unsigned();
        ListedFile file{entry.at("path").get<std::string>(),
                        has_size ? size->get<std::uint64_t>() : 0};
        if (file.path.ends_with(".gguf") && is_safe_path(file.path)) files.push_back(file);
      }
    } catch (const std::exception&) {
      refuse();
    }
    url = next_page(answer);
  }
  std::ranges::sort(files, {}, &ListedFile::path);
  return files;
}

RemoteFile Hub::listed(const Reference& reference, const ListedFile& file) const {
  RemoteFile out;
  out.name = name_of(reference, file.path);
  out.url = resolve_url(reference, file.path);
  out.token = token_;
  out.bytes = file.bytes;
  return out;
}

std::string Hub::resolve_url(const Reference& reference, const std::string& file) const {
  return fmt::format("{}/{}/resolve/{}/{}", endpoint_, reference.repository,
                     url_part(reference.revision), url_path(file));
}

bool is_whole_model(const std::string& file) {
  return shards_of(file).front() == file &&
         file_name_of("/" + file).find("mmproj") == std::string::npos;
}

std::string choose_quant(const std::vector<std::string>& files, const Reference& reference) {
  std::vector<std::string> chosen, all;
  for (const std::string& file : files) {
    if (!is_whole_model(file)) continue;
    all.push_back(file);
    if (upper(quant_in_name(file)) == upper(reference.quant)) chosen.push_back(file);
  }
  if (chosen.size() == 1) return chosen.front();
  const auto& shown = chosen.empty() ? all : chosen;
  throw UsageError(fmt::format(
      "{} names {} file{}: {}", text::printable(reference.text, 200),
      chosen.empty() ? "no" : std::to_string(chosen.size()), chosen.empty() ? "" : "s",
      shown.empty() ? "the repository has none that ends in .gguf"
                    : text::printable(fmt::format("there are {}", fmt::join(shown, ", ")), 1000)));
}

std::vector<std::string> shards_of(const std::string& file) {
  static const std::regex shard(R"((.*)-(\d{5})-of-(\d{5})\.gguf)");
  std::smatch match;
  if (!std::regex_match(file, match, shard)) return {file};
  const int count = std::stoi(match[3]);
  std::vector<std::string> out;
  for (int i = 1; i <= count; ++i) {
    out.push_back(fmt::format("{}-{:05}-of-{:05}.gguf", match[1].str(), i, count));
  }
  if (out.empty()) out.push_back(file);
  return out;
}

std::string quant_in_name(std::string_view file) {
  static const std::regex quant(
      R"((^|[-._/])((UD-)?(IQ[1-4]_[A-Z0-9_]+|T?Q[1-8]_[A-Z0-9_]+|MXFP4(_[A-Z]+)?|NVFP4|)"
      R"(BF16|F16|F32))(?=[-.]|$))",
      std::regex::icase);
  const std::string text(file);
  std::string last;
  for (std::sregex_iterator at(text.begin(), text.end(), quant), end; at != end; ++at) {
    last = (*at)[2].str();
  }
  return last;
}

}  // namespace sluice::fetch
