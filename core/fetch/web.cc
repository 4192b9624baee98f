#include "core/fetch/web.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <fmt/format.h>
#include <set>
#include <string_view>
#include <utility>

#include "base/number.h"
#include "base/trim.h"
#include "core/error.h"
#include "core/fetch/libraries.h"
#include "core/fetch/places.h"
#include "core/fetch/reference.h"
#include "core/text/lower_case.h"
#include "core/text/quoted.h"

namespace sluice::fetch {
namespace {

using namespace std::chrono_literals;

constexpr unsigned redirects_max = 10, attempts_max = 6;
constexpr std::size_t error_body_bytes_max = 4096;
constexpr long connect_seconds_max = 30, stall_seconds_max = 30;
constexpr std::uint64_t retry_seconds_max = 60;

const char* first_of_environment(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing changes it
    if (value != nullptr && *value != '\0') return value;
  }
  return nullptr;
}

// Whether a problem may be gone when the same is asked for again: the connection has failed, or has
// been cut. Everything else (a wrong URL, a certificate, a lack of memory) is the same again.
bool may_pass(int code) {
  constexpr std::array passing = {CURLE_COULDNT_RESOLVE_PROXY,
                                  CURLE_COULDNT_RESOLVE_HOST,
                                  CURLE_COULDNT_CONNECT,
                                  CURLE_WEIRD_SERVER_REPLY,
                                  CURLE_HTTP2,
                                  CURLE_PARTIAL_FILE,
                                  CURLE_OPERATION_TIMEDOUT,
                                  CURLE_SSL_CONNECT_ERROR,
                                  CURLE_GOT_NOTHING,
                                  CURLE_SEND_ERROR,
                                  CURLE_RECV_ERROR,
                                  CURLE_HTTP2_STREAM};
  return std::ranges::find(passing, code) != passing.end();
}

// What helps against a lasting problem; empty: nothing that is known.
const char* remedy_of(int code) {
  if (code == CURLE_COULDNT_RESOLVE_HOST) return ": check its name, and the network";
  if (code == CURLE_URL_MALFORMAT) return ": check the URL";
  if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE) {
    return ": SSL_CERT_FILE names the certificates that are trusted";
  }
  return "";
}

// Certificates that the environment names, where libcurl itself looks elsewhere; null: none.
const char* named_certificates() {
  return first_of_environment({"CURL_CA_BUNDLE", "SSL_CERT_FILE"});
}
const char* named_certificate_folder() {
  return first_of_environment({"SSL_CERT_DIR"});
}

}  // namespace

struct Web::State {
  State() : multi(curl().multi_init()) {
    if (multi == nullptr) throw std::bad_alloc();
  }
  ~State() { curl().multi_cleanup(multi); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  CURLM* multi;
  std::set<std::string> hosts;  // that have answered
};

struct Transfer::Handle {
  explicit Handle(CURLM* owner) : multi(owner), easy(curl().easy_init()) {
    if (easy == nullptr) throw std::bad_alloc();
  }
  ~Handle() {
    curl().multi_remove_handle(multi, easy);
    curl().easy_cleanup(easy);
    curl().slist_free_all(headers);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  CURLM* multi;
  CURL* easy;
  curl_slist* headers = nullptr;
  std::array<char, CURL_ERROR_SIZE> error{};
};

std::string Answer::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

std::optional<std::uint64_t> Answer::content_length() const {
  return base::whole_number<std::uint64_t>(header("content-length"));
}

std::string Answer::etag() const {
  std::string tag = header("etag");
  if (tag.starts_with("W/")) tag.erase(0, 2);
  std::erase(tag, '"');
  return tag;
}

std::optional<ContentRange> Answer::content_range() const {
  const std::string header_text = header("content-range");
  std::string_view text = header_text;
  constexpr std::string_view unit = "bytes ";
  if (!text.starts_with(unit)) return std::nullopt;
  text.remove_prefix(unit.size());
  ContentRange range;
  const auto take = [&](std::uint64_t& number, char behind) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (behind == '\0') return text.empty();
    if (!text.starts_with(behind)) return false;
    text.remove_prefix(1);
    return true;
  };
  const bool is_good = take(range.first, '-') && take(range.last, '/') && take(range.total, '\0');
  return is_good ? std::optional(range) : std::nullopt;
}

std::string Answer::version() const {
  const std::string tag = etag();
  return tag.empty() ? header("last-modified") : tag;
}

std::optional<std::uint64_t> retry_after_seconds(const Answer& answer) {
  return base::whole_number<std::uint64_t>(answer.header("retry-after"));
}

std::vector<std::filesystem::path> trusted_certificates() {
  std::vector<std::filesystem::path> found;
  const auto add = [&found](const char* path) {
    if (path != nullptr) found.emplace_back(path);
  };
  add(named_certificates());
  add(named_certificate_folder());
#if LIBCURL_VERSION_NUM >= 0x075400  // 7.84; an older one does not tell where it looks
  CURL* const easy = curl().easy_init();
  for (const CURLINFO own : {CURLINFO_CAINFO, CURLINFO_CAPATH}) {
    char* path = nullptr;
    if (easy != nullptr) curl().easy_getinfo(easy, own, &path);
    add(path);
  }
  curl().easy_cleanup(easy);
#endif
  return found;
}

bool is_passing(const Answer& answer) {
  constexpr long not_implemented = 501;
  if (answer.status == 0 || !answer.problem.empty()) return !answer.is_lasting;
  return answer.status == 408 || answer.status == 429 ||
         (answer.status >= 500 && answer.status != not_implemented);
}

Web::Web(WebOptions options) : options_(std::move(options)), state_(std::make_unique<State>()) {}

Web::~Web() = default;

std::unique_ptr<Transfer> Web::start(Request request) {
  std::unique_ptr<Transfer> transfer(new Transfer(*this, std::move(request)));
  transfer->begin("");
  return transfer;
}

void Web::poll() {
  int running = 0, left = 0;
  bool has_finished = false;
  curl().multi_perform(state_->multi, &running);
  while (CURLMsg* message = curl().multi_info_read(state_->multi, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    void* transfer = nullptr;
    const CURLcode code = message->data.result;
    curl().easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
    static_cast<Transfer*>(transfer)->finish(code);
    has_finished = true;
  }
  options_.on_wait();
  if (has_finished) return;
  curl().multi_poll(state_->multi, nullptr, 0, running > 0 ? 200 : 50, nullptr);
}

void Web::wait(std::chrono::milliseconds duration) {
  const auto end = std::chrono::steady_clock::now() + duration;
  for (auto now = end - duration; now < end; now = std::chrono::steady_clock::now()) {
    const auto part = std::min<std::chrono::milliseconds>(
        200ms, std::chrono::ceil<std::chrono::milliseconds>(end - now));
    curl().multi_poll(state_->multi, nullptr, 0, static_cast<int>(part.count()), nullptr);
    options_.on_wait();
  }
}

Answer Web::ask(const Request& request) {
  for (unsigned attempts = 1;; ++attempts) {
    const std::unique_ptr<Transfer> transfer = start(request);
    while (!transfer->is_done()) poll();
    const Answer& answer = transfer->answer();
    if (!is_passing(answer) && answer.problem.empty()) return answer;
    wait(pause_before(attempts, answer, shown_url(request.url)));
  }
}

std::chrono::milliseconds Web::pause_before(unsigned attempts, const Answer& answer,
                                            const std::string& what) const {
  const std::optional<std::uint64_t> asked = retry_after_seconds(answer);
  if (answer.is_lasting || attempts >= attempts_max || asked.value_or(0) > retry_seconds_max) {
    throw_answer(what, answer);
  }
  const auto pause = asked ? std::chrono::milliseconds(1000 * *asked)
                           : std::chrono::milliseconds(250U << (attempts - 1));
  const std::string happened =
      answer.problem.empty() ? fmt::format("answers {}", answer.status) : answer.problem;
  options_.on_retry(
      fmt::format("{}: {}; trying again in {} ms", host_of(answer.url), happened, pause.count()));
  return pause;
}

void check_url(const std::string& url, const std::string& from, bool insecure_http) {
  if (url.starts_with("https://")) return;
  std::string shown = text::quoted(shown_url(url));
  if (!from.empty()) {
    shown += fmt::format(", where {} redirects to,", text::printable(host_of(from), 100));
  }
  if (!url.starts_with("http://")) {
    throw UsageError(
        fmt::format("{} is neither https:// nor http://, and models come by no other way", shown));
  }
  if (insecure_http) return;
  if (is_loopback(url)) {
    if (from.empty() || is_loopback(from)) return;
    throw UsageError(
        fmt::format("{} is a service of this machine, where no other machine may "
                    "lead: --insecure-http allows it",
                    shown));
  }
  throw UsageError(
      fmt::format("{} is plain HTTP, which anybody on the way can read and change: "
                  "take https://, or give --insecure-http",
                  shown));
}

Transfer::Transfer(Web& web, Request request) : web_(web), request_(std::move(request)) {}

Transfer::~Transfer() = default;

// Every hop is a request of its own, with headers of its own.
void Transfer::begin(const std::string& from) {
  const std::string& url = request_.url;
  check_url(url, from, web_.options_.insecure_http);
  answer_ = Answer{};
  answer_.url = url;
  handle_ = std::make_unique<Handle>(web_.state_->multi);
  CURL* easy = handle_->easy;
  const auto set = [easy](CURLoption option, auto value) {
    curl().easy_setopt(easy, option, value);
  };
  for (const std::string& header : request_.headers) {
    handle_->headers = curl().slist_append(handle_->headers, header.c_str());
  }
  if (!request_.token.empty() && (url.starts_with("https://") || is_loopback(url))) {
    handle_->headers = curl().slist_append(
        handle_->headers, fmt::format("Authorization: Bearer {}", request_.token).c_str());
  }
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_PRIVATE, static_cast<void*>(this));
  set(CURLOPT_ERRORBUFFER, handle_->error.data());
  set(CURLOPT_USERAGENT, "sluice");
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_HTTPHEADER, handle_->headers);
  set(CURLOPT_CONNECTTIMEOUT, connect_seconds_max);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, stall_seconds_max);
  if (request_.is_head) set(CURLOPT_NOBODY, 1L);
  // What may go in the clear because it stays on this machine goes by no proxy.
  if (is_loopback(url) && url.starts_with("http://")) set(CURLOPT_PROXY, "");
  const std::string range = request_.range
                                ? fmt::format("{}-{}", request_.range->offset,
                                              request_.range->offset + request_.range->bytes - 1)
                                : "";
  if (request_.range) set(CURLOPT_RANGE, range.c_str());
  if (const char* file = named_certificates()) set(CURLOPT_CAINFO, file);
  if (const char* folder = named_certificate_folder()) set(CURLOPT_CAPATH, folder);
    // Other schemes are refused above too; libcurl follows no redirects by itself.
#if LIBCURL_VERSION_NUM >= 0x075500  // 7.85
  set(CURLOPT_PROTOCOLS_STR, "http,https");
#else
  set(CURLOPT_PROTOCOLS, long{CURLPROTO_HTTP | CURLPROTO_HTTPS});
#endif
  using TakeBytes = std::size_t (*)(char*, std::size_t, std::size_t, void*);
  set(CURLOPT_HEADERDATA, static_cast<void*>(this));
  set(CURLOPT_HEADERFUNCTION,
      static_cast<TakeBytes>([](char* data, std::size_t, std::size_t bytes, void* self) {
        auto* transfer = static_cast<Transfer*>(self);
        return transfer->guarded([&] { return transfer->take_header({data, bytes}); });
      }));
  set(CURLOPT_WRITEDATA, static_cast<void*>(this));
  set(CURLOPT_WRITEFUNCTION,
      static_cast<TakeBytes>([](char* data, std::size_t, std::size_t bytes, void* self) {
        auto* transfer = static_cast<Transfer*>(self);
        return transfer->guarded([&] {
          const bool taken = transfer->take_body(std::as_bytes(std::span<const char>(data, bytes)));
          return taken ? bytes : std::size_t{0};
        });
      }));
  curl().multi_add_handle(web_.state_->multi, easy);
}

template <typename Take>
std::size_t Transfer::guarded(const Take& take) {
  try {
    return take();
  } catch (...) {
    failure_ = std::current_exception();
    return 0;  // fewer bytes than there were: libcurl ends the transfer
  }
}

std::size_t Transfer::take_header(std::string_view line) {
  if (line.starts_with("HTTP/")) {  // another answer: of a proxy, or 100 Continue
    answer_.headers.clear();
    curl().easy_getinfo(handle_->easy, CURLINFO_RESPONSE_CODE, &answer_.status);
    web_.state_->hosts.insert(host_of(request_.url));
  }
  const std::size_t bytes = line.size(), colon = line.find(':');
  if (colon == line.npos) return bytes;
  const std::string name = text::lower_case(base::trimmed(line.substr(0, colon)));
  answer_.headers[name] = base::trimmed(line.substr(colon + 1));
  return bytes;
}

bool Transfer::take_body(std::span<const std::byte> bytes) {
  curl().easy_getinfo(handle_->easy, CURLINFO_RESPONSE_CODE, &answer_.status);
  const bool is_good = answer_.status == 200 || answer_.status == 206;
  if (is_good && request_.is_headers_only) return false;
  if (is_good && request_.on_body) return request_.on_body(bytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (is_good) {
    answer_.body += text;
    return answer_.body.size() <= request_.body_bytes_max;
  }
  answer_.body += text.substr(0, error_body_bytes_max - answer_.body.size());
  return true;
}

void Transfer::finish(int code) {
  if (failure_) {
    is_done_ = true;
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
  curl().easy_getinfo(handle_->easy, CURLINFO_RESPONSE_CODE, &answer_.status);
  if (code == CURLE_WRITE_ERROR && request_.is_headers_only) code = CURLE_OK;
  if (code != CURLE_OK) {
    const std::string said = handle_->error.data();
    answer_.problem = text::printable(
        said.empty() ? curl().easy_strerror(static_cast<CURLcode>(code)) : said, 300);
    answer_.problem += remedy_of(code);
    // Who takes a body refuses what is cut or of another range.
    const bool is_refused = code == CURLE_WRITE_ERROR && request_.on_body;
    // libcurl does not tell a name that nobody knows from name servers that do not answer.
    const bool is_unknown =
        code == CURLE_COULDNT_RESOLVE_HOST && !web_.state_->hosts.contains(host_of(request_.url));
    answer_.is_lasting = is_unknown || (!may_pass(code) && !is_refused);
    if (code == CURLE_WRITE_ERROR && !is_refused) answer_.problem = "the answer is too long";
  }
  char* target = nullptr;
  curl().easy_getinfo(handle_->easy, CURLINFO_REDIRECT_URL, &target);
  const std::string next = target == nullptr ? "" : target;
  const bool is_same_host = host_of(next) == host_of(request_.url);
  const bool follows = answer_.status >= 300 && answer_.status < 400 && !next.empty() &&
                       code == CURLE_OK && (is_same_host || request_.leaves_host);
  is_done_ = !follows;
  if (!follows) return;
  if (++redirects_ > redirects_max) {
    throw Error(ExitCode::io, fmt::format("{} redirects without end", host_of(request_.url)));
  }
  if (!is_same_host) request_.token.clear();
  begin(std::exchange(request_.url, next));
}

void throw_answer(const std::string& what, const Answer& answer) {
  const auto fail = [&](std::string_view text) {
    throw Error(ExitCode::io, fmt::format("{}: {}", text::printable(what, 300), text));
  };
  const std::string host = text::printable(host_of(answer.url), 100);
  if (answer.status == 401 || answer.status == 403) {
    const bool is_hub = host_of(answer.url) == host_of(hub_endpoint());
    fail(fmt::format("{} refuses access ({}): {}", host, answer.status,
                     is_hub ? "accept its terms there, and set HF_TOKEN to a token that may read it"
                            : "check that the URL is whole, and that what it allows has not "
                              "expired"));
  }
  if (answer.status == 404 || answer.status == 410) {
    fail(fmt::format("{} has no such file ({}): check its name", host, answer.status));
  }
  if (answer.status == 429) {
    const auto seconds = retry_after_seconds(answer);
    fail(fmt::format("{} has had too many requests (429): {}", host,
                     seconds ? fmt::format("the same command goes on in {} s", *seconds)
                             : "the same command goes on later"));
  }
  if (answer.is_lasting) fail(fmt::format("{}: {}", host, answer.problem));
  if (!answer.problem.empty() || answer.status == 0) {
    fail(fmt::format("{}: {}; the same command goes on where it stopped", host, answer.problem));
  }
  fail(fmt::format("{} answers {}", host, answer.status));
  std::abort();
}

}  // namespace sluice::fetch
