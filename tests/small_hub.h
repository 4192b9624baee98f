// A hub, and a registry of ollama, in miniature: on a port of this machine, for one test. It
// answers as the real ones do, unless the test makes it worse than they are.
#pragma once

#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "core/fetch/sha256.h"
#include "tests/program.h"

namespace sluice::test {

inline std::string sha256_of(const std::string& text) {
  fetch::Sha256 sum;
  sum.add(std::as_bytes(std::span(text)));
  return sum.finish();
}

// What goes wrong with one answer.
enum class Fault {
  none,
  cut,
  slow,
  wrong_range,
  no_range,  // part of the file, and no word which
  overlong,
  error_500,
  error_429,
  error_403,
  error_404,
  error_501,
  whole,
  no_hub,  // any page of the web
  empty,   // status 200, and nothing
  endless_redirect
};

struct HubRequest {
  std::string method, path, query;
  std::map<std::string, std::string> headers;  // names in lower case
  bool is_download() const { return path.starts_with("/cdn/") || path.starts_with("/v2/"); }
};

class SmallHub {
 public:
  // `fault` is asked for each request, by several threads.
  explicit SmallHub(std::function<Fault(const HubRequest&)> fault = {}) : fault_(std::move(fault)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener_, generic, bytes) != 0 || ::listen(listener_, 64) != 0 ||
        ::getsockname(listener_, generic, &bytes) != 0) {
      std::abort();
    }
    port_ = ntohs(address.sin_port);
    threads_.emplace_back([this] { accept_all(); });
  }
  ~SmallHub() {
    ends_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    threads_.front().join();
    for (const int connection : connections_) ::shutdown(connection, SHUT_RDWR);
    for (std::size_t i = 1; i < threads_.size(); ++i) threads_[i].join();
    for (const int connection : connections_) ::close(connection);
    ::close(listener_);
  }
  SmallHub(const SmallHub&) = delete;
  SmallHub& operator=(const SmallHub&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  std::string host() const { return "127.0.0.1:" + std::to_string(port_); }

  // Of the repository o/r, in its newest commit.
  void put(const std::string& file, std::string content) {
    const std::lock_guard lock(mutex_);
    etags_[file] = sha256_of(content);
    files_[file] = std::move(content);
  }
  // States another sum than that of the bytes.
  void lie_about(const std::string& file) {
    const std::lock_guard lock(mutex_);
    etags_[file] = std::string(64, 'a');
  }
  // What lies under /cdn/ is somewhere else.
  void redirect(const std::string& file, const std::string& location) {
    const std::lock_guard lock(mutex_);
    redirects_[file] = location;
  }
  // States another size in what leads to the file.
  void state_size_of(const std::string& file, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    stated_bytes_[file] = bytes;
  }
  std::uint64_t sent_bytes() const { return sent_bytes_; }  // of bodies of downloads
  unsigned requests() const { return requests_; }
  unsigned connections() const { return accepted_; }
  std::vector<HubRequest> log() const {
    const std::lock_guard lock(mutex_);
    return log_;
  }

  std::string commit = std::string(40, 'c');
  std::string revision = "main";            // as requests write it
  std::string token;                        // that requests to the hub must have; empty: none
  std::chrono::microseconds slowness{500};  // between pieces of 64 KiB
  std::size_t files_per_page = 1'000'000;   // of a listing
  std::string other_pages;                  // the host of all pages but the first; empty: here
  bool has_tags = true;                     // of files that are downloaded
  std::string last_modified;                // of these; empty: not said

 private:
  void accept_all() {
    while (!ends_) {
      const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) continue;
      ++accepted_;
      connections_.push_back(connection);
      threads_.emplace_back([this, connection] { serve(connection); });
    }
  }

  void serve(int connection) {
    std::string input;
    while (const std::optional<HubRequest> request = read_request(connection, input)) {
      ++requests_;
      {
        const std::lock_guard lock(mutex_);
        log_.push_back(*request);
      }
      if (!answer(connection, *request)) break;
    }
    ::shutdown(connection, SHUT_RDWR);
  }

  static std::optional<HubRequest> read_request(int connection, std::string& input) {
    std::size_t end = 0;
    while ((end = input.find("\r\n\r\n")) == std::string::npos) {
      char buffer[4096];
      const ssize_t got = ::recv(connection, buffer, sizeof buffer, 0);
      if (got <= 0) return std::nullopt;
      input.append(buffer, static_cast<std::size_t>(got));
    }
    HubRequest request;
    const std::string head = input.substr(0, end + 2);
    input.erase(0, end + 4);
    const std::size_t space = head.find(' ');
    request.method = head.substr(0, space);
    request.path = head.substr(space + 1, head.find(' ', space + 1) - space - 1);
    const std::size_t path_end = std::min(request.path.find('?'), request.path.size());
    request.query = request.path.substr(path_end);
    request.path.resize(path_end);
    for (std::size_t at = head.find("\r\n") + 2; at < head.size();) {
      const std::size_t line_end = head.find("\r\n", at), colon = head.find(": ", at);
      std::string name = head.substr(at, colon - at);
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      request.headers[name] = head.substr(colon + 2, line_end - colon - 2);
      at = line_end + 2;
    }
    return request;
  }

  static bool send_all(int connection, const std::string& text) {
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t sent = ::send(connection, text.data() + at, text.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) return false;
      at += static_cast<std::size_t>(sent);
    }
    return true;
  }

  static bool send_answer(int connection, const std::string& status, const std::string& headers,
                          const std::string& body, bool is_head = false) {
    return send_all(connection, "HTTP/1.1 " + status + "\r\n" + headers +
                                    "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
                                    (is_head ? "" : body));
  }

  bool answer(int connection, const HubRequest& request) {
    const Fault fault = fault_ ? fault_(request) : Fault::none;
    if (fault == Fault::error_500) return send_answer(connection, "500 No", "", "");
    if (fault == Fault::error_403) {
      return send_answer(connection, "403 No", "", "expired", request.method == "HEAD");
    }
    if (fault == Fault::error_404) return send_answer(connection, "404 No", "", "");
    if (fault == Fault::error_501) return send_answer(connection, "501 No", "", "");
    if (fault == Fault::error_429) {
      return send_answer(connection, "429 Slow", "Retry-After: 0\r\n", "too many");
    }
    if (fault == Fault::empty) return send_answer(connection, "200 OK", "", "");
    if (fault == Fault::no_hub) return send_answer(connection, "200 OK", "", "<html>Hello</html>");
    if (fault == Fault::endless_redirect) {
      return send_answer(connection, "302 Found", "Location: " + request.path + "\r\n", "");
    }
    const bool has_token = request.headers.count("authorization") != 0 &&
                           request.headers.at("authorization") == "Bearer " + token;
    if (!token.empty() && !request.is_download() && !has_token) {
      return send_answer(connection, "401 No", "", "");
    }
    const std::string resolve = "/o/r/resolve/" + revision + "/",
                      listing = "/api/models/o/r/tree/main";
    const std::string manifest = "/v2/library/tiny/manifests/latest";
    const std::string blob = "/v2/library/tiny/blobs/sha256:";
    if (request.path.starts_with(resolve)) {
      return answer_resolve(connection, request.path.substr(resolve.size()));
    }
    if (request.path.starts_with(listing)) return answer_listing(connection, request.path, listing);
    if (request.path == manifest) return send_answer(connection, "200 OK", "", manifest_text());
    if (request.path.starts_with("/cdn/")) {
      return answer_bytes(connection, request, request.path.substr(5), fault);
    }
    if (request.path.starts_with(blob)) {
      return answer_bytes(connection, request, "ollama", fault);
    }
    return send_answer(connection, "404 No", "", "");
  }

  // A file lies on another host, as the hub's do.
  bool answer_resolve(int connection, const std::string& file) {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(file);
    if (found == files_.end()) return send_answer(connection, "404 No", "", "");
    const auto stated = stated_bytes_.find(file);
    const std::uint64_t bytes =
        stated == stated_bytes_.end() ? found->second.size() : stated->second;
    return send_answer(connection, "302 Found",
                       "X-Repo-Commit: " + commit + "\r\nX-Linked-Etag: \"" + etags_[file] +
                           "\"\r\nX-Linked-Size: " + std::to_string(bytes) +
                           "\r\nLocation: http://localhost:" + std::to_string(port_) + "/cdn/" +
                           file + "\r\n",
                       "", true);
  }

  // The files of one page; that of page 2 is listing/2, and so on.
  bool answer_listing(int connection, const std::string& path, const std::string& listing) {
    const std::lock_guard lock(mutex_);
    const bool is_first = path.size() == listing.size();
    const std::size_t page = is_first ? 1 : std::stoul(path.substr(listing.size() + 1));
    std::string text = "[{\"type\": \"directory\", \"path\": \"x\", \"size\": 0}", next;
    std::size_t number = 0;
    for (const auto& [file, content] : files_) {
      const std::size_t page_of_file = 1 + number++ / files_per_page;
      if (page_of_file > page) next = std::to_string(page + 1);
      if (page_of_file != page) continue;
      text += ", {\"type\": \"file\", \"path\": \"" + file +
              "\", \"size\": " + std::to_string(content.size()) + "}";
    }
    if (!next.empty()) {
      const std::string host = other_pages.empty() ? url() : other_pages;
      next = "Link: <" + host + listing + "/" + next + ">; rel=\"next\"\r\n";
    }
    return send_answer(connection, "200 OK", next, text + "]");
  }

  std::string manifest_text() {
    const std::lock_guard lock(mutex_);
    return "{\"layers\": [{\"mediaType\": \"application/vnd.ollama.image.model\", \"digest\": "
           "\"sha256:" +
           etags_["ollama"] + "\", \"size\": " + std::to_string(files_["ollama"].size()) + "}]}";
  }

  bool answer_bytes(int connection, const HubRequest& request, const std::string& file,
                    Fault fault) {
    std::string content, etag;
    {
      const std::lock_guard lock(mutex_);
      if (const auto moved = redirects_.find(file); moved != redirects_.end()) {
        return send_answer(connection, "302 Found", "Location: " + moved->second + "\r\n", "");
      }
      const auto found = files_.find(file);
      if (found == files_.end()) return send_answer(connection, "404 No", "", "");
      content = found->second;
      if (has_tags) etag = "ETag: \"" + etags_[file] + "\"\r\n";
      if (!last_modified.empty()) etag += "Last-Modified: " + last_modified + "\r\n";
    }
    const auto range = request.headers.find("range");
    if (request.method == "HEAD" || range == request.headers.end() || fault == Fault::whole) {
      sent_bytes_ += request.method == "HEAD" ? 0 : content.size();
      return send_answer(connection, "200 OK", etag, content, request.method == "HEAD");
    }
    std::size_t first = 0, last = 0;
    std::sscanf(range->second.c_str(), "bytes=%zu-%zu", &first, &last);
    if (first >= content.size()) return send_answer(connection, "416 No", "", "");
    last = std::min(last, content.size() - 1);
    if (fault == Fault::wrong_range && first > 0) --first, --last;
    if (fault == Fault::wrong_range && first == 0) ++first;
    std::string body = content.substr(first, last - first + 1);
    const std::string head =
        "HTTP/1.1 206 Part\r\n" + etag +
        (fault == Fault::no_range
             ? ""
             : "Content-Range: bytes " + std::to_string(first) + "-" + std::to_string(last) + "/" +
                   std::to_string(content.size()) + "\r\n") +
        "Content-Length: " + std::to_string(body.size() + (fault == Fault::overlong ? 3 : 0)) +
        "\r\n\r\n";
    if (fault == Fault::overlong) body += "...";
    if (fault == Fault::cut) body.resize(body.size() / 2);
    bool is_sent = send_all(connection, head);
    constexpr std::size_t part = 65536;
    for (std::size_t at = 0; is_sent && at < body.size(); at += part) {
      is_sent = send_all(connection, body.substr(at, part));
      sent_bytes_ += std::min(part, body.size() - at);
      if (fault == Fault::slow) std::this_thread::sleep_for(slowness);
    }
    return is_sent && fault != Fault::cut;
  }

  std::function<Fault(const HubRequest&)> fault_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<bool> ends_ = false;
  std::atomic<std::uint64_t> sent_bytes_ = 0;
  std::atomic<unsigned> requests_ = 0, accepted_ = 0;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> files_, etags_, redirects_;
  std::map<std::string, std::uint64_t> stated_bytes_;
  std::vector<HubRequest> log_;
  std::vector<int> connections_;      // of the first thread, and at the end
  std::vector<std::thread> threads_;  // the first accepts, the others serve
};

// Caches that are a folder of the test, and its hub.
class Caches {
 public:
  explicit Caches(const SmallHub& hub) {
    ::setenv("HF_HOME", folder.file("hf").c_str(), 1);
    ::setenv("XDG_CACHE_HOME", folder.file("cache").c_str(), 1);
    ::setenv("OLLAMA_MODELS", folder.file("ollama").c_str(), 1);
    ::setenv("HF_ENDPOINT", hub.url().c_str(), 1);
    ::unsetenv("HF_TOKEN");
    ::unsetenv("HF_HUB_CACHE");
  }
  fs::path repository() const { return folder.path() / "hf/hub/models--o--r"; }
  fs::path blob(const std::string& text) const { return repository() / "blobs" / sha256_of(text); }
  Folder folder;
};

}  // namespace sluice::test
