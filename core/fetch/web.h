// HTTP and HTTPS requests through libcurl: a few at a time, by one thread.
//
// Proxies (https_proxy, no_proxy), certificates (SSL_CERT_FILE, SSL_CERT_DIR, CURL_CA_BUNDLE) and
// names are libcurl's matter. Redirects are followed here: a token goes to the host that it was
// meant for alone, other schemes than these two are refused, and plain HTTP stays on this machine,
// unless the user has allowed it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sluice::fetch {

struct WebOptions {
  bool insecure_http = false;
  // Called several times a second while something is waited for; what it throws ends the wait.
  std::function<void()> on_wait = [] {};
  // Called before a request is tried again: "HOST answers 429; trying again in 3 s".
  std::function<void(const std::string& line)> on_retry = [](const std::string&) {};
};

struct ByteRange {
  std::uint64_t offset = 0, bytes = 0;
};

// "bytes 0-99/1000" (RFC 9110, 14.4).
struct ContentRange {
  std::uint64_t first = 0, last = 0, total = 0;
};

struct Request {
  std::string url;
  std::vector<std::string> headers;  // "Name: value"
  std::string token;                 // for the host of `url` alone; empty: none
  std::optional<ByteRange> range;
  bool is_head = false;              // asks for no body
  bool is_headers_only = false;      // ends the answer where its body begins
  bool leaves_host = true;           // false: a redirect to another host is the answer
  std::uint64_t body_bytes_max = 0;  // of a body that is kept; a longer one fails
  // Takes the body of an answer 200 or 206 piece by piece; empty: it is kept. False ends it.
  std::function<bool(std::span<const std::byte>)> on_body;
};

struct Answer {
  long status = 0;                             // 0: none came
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // of errors: the beginning
  std::string url;                             // that answered, behind all redirects
  std::string problem;                         // what has failed, fit to print; empty: nothing
  bool is_lasting = false;                     // the problem: it will be the same again

  std::string header(const std::string& name) const;
  std::optional<std::uint64_t> content_length() const;
  std::optional<ContentRange> content_range() const;  // nothing for one without a total, too
  std::string etag() const;                           // without quotes and without W/
  std::string version() const;  // the ETag, or when the file was last modified; may be empty
};

// Seconds that a server asks to wait (Retry-After); nothing when it does not say.
std::optional<std::uint64_t> retry_after_seconds(const Answer& answer);

// Whether a request may succeed when it is made again: cuts, timeouts, 408, 429 and the server's
// errors.
bool is_passing(const Answer& answer);

// Throws UsageError unless a request may go to `url`, where `from` has redirected it; empty: the
// user has named it. Plain HTTP may go to this machine alone, and no other machine may lead there:
// what listens here takes requests from here for those of a friend.
void check_url(const std::string& url, const std::string& from, bool insecure_http);

// The files and folders of certificates that servers are checked with.
std::vector<std::filesystem::path> trusted_certificates();

class Transfer;

class Web {
 public:
  explicit Web(WebOptions options = {});  // throws Error when libcurl is not there
  ~Web();
  Web(const Web&) = delete;
  Web& operator=(const Web&) = delete;

  // Starts a request, which goes on while poll() is called. Destroying the transfer ends it.
  // Throws UsageError for a URL that check_url() refuses.
  std::unique_ptr<Transfer> start(Request request);
  // Lets the transfers go on, and waits up to a fifth of a second for them.
  void poll();
  void wait(std::chrono::milliseconds duration);  // calls on_wait meanwhile

  // Asks and waits for the answer. What may pass is tried again a few times. Any status returns;
  // throws Error where no whole answer comes.
  Answer ask(const Request& request);

  // How long to wait before the next of `attempts` is made; throws Error with what the server said
  // when that would be too long or too often, or the problem lasts.
  std::chrono::milliseconds pause_before(unsigned attempts, const Answer& answer,
                                         const std::string& what) const;
  const WebOptions& options() const { return options_; }

 private:
  friend class Transfer;
  struct State;
  WebOptions options_;
  std::unique_ptr<State> state_;
};

class Transfer {
 public:
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  bool is_done() const { return is_done_; }
  const Answer& answer() const { return answer_; }  // headers while it runs, all when it is done

 private:
  friend class Web;
  Transfer(Web& web, Request request);
  void begin(const std::string& from);  // where it was redirected; empty: nowhere
  void finish(int code);
  std::size_t take_header(std::string_view line);
  bool take_body(std::span<const std::byte> bytes);
  // Runs what libcurl calls. An exception must not pass through a library in C: it is kept, ends
  // the transfer, and goes on where the transfer is finished.
  template <typename Take>
  std::size_t guarded(const Take& take);

  struct Handle;
  Web& web_;
  Request request_;
  Answer answer_;
  std::unique_ptr<Handle> handle_;
  std::exception_ptr failure_;
  unsigned redirects_ = 0;
  bool is_done_ = false;
};

// The line that ends a command: what was asked for, what came, and what helps.
[[noreturn]] void throw_answer(const std::string& what, const Answer& answer);

}  // namespace sluice::fetch
