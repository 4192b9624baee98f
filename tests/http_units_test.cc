// The parts of the server that need no server: where it listens, what systemd gives it, how a
// request is read, who may send one, and what a request for a response means.
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "core/error.h"
#include "core/http/api/keys.h"
#include "core/http/api/origins.h"
#include "core/http/api/response_request.h"
#include "core/http/api/served_model.h"
#include "core/http/transport/listener.h"
#include "core/http/transport/request_reader.h"
#include "core/http/transport/systemd.h"
#include "core/rows/row_json.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/temporary_folder.h"

using namespace sluice::http;
using sluice::UsageError;
using sluice::base::Descriptor;
using sluice::rows::RowJson;
using sluice::test::Contains;
using sluice::test::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

// Bound to a path, or to an abstract name that begins with '@'; closed with the descriptor.
Descriptor bound_socket(const std::string& name, int type) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path, sizeof address.sun_path - 1);
  if (name.front() == '@') address.sun_path[0] = '\0';
  Descriptor socket(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  REQUIRE(::bind(socket.number(), reinterpret_cast<const sockaddr*>(&address), size) == 0);
  return socket;
}

std::string received(const Descriptor& socket) {
  std::string text(100, '\0');
  const ssize_t got = ::recv(socket.number(), text.data(), text.size(), MSG_DONTWAIT);
  text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return text;
}

// Runs `work` in a child with these descriptors as 3, 4, ... and LISTEN_FDS of `count`. True where
// it returns true.
bool in_child_of_systemd(std::initializer_list<int> sockets, const char* count,
                         const std::function<bool()>& work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int number = 100;  // first out of the way of each other
    for (const int socket : sockets) ::dup2(socket, number++);
    for (int i = 3; i < 100; ++i) ::close(i);
    for (int i = 100; i < number; ++i) ::dup2(i, i - 97);
    ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
    ::setenv("LISTEN_FDS", count, 1);
    ::_exit(work() ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

template <typename Error>
bool fails(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error&) {
    return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a path is listened on where nothing is lost by it") {
  const TemporaryFolder folder;
  const fs::path path = folder / "socket";
  {
    const Listener listener = Listener::on_path(path);
    CHECK(listener.family() == Listener::Family::local);
    CHECK(listener.is_local());
    CHECK(listener.name() == "unix:" + path.string());
    struct stat facts {};
    REQUIRE(::stat(path.c_str(), &facts) == 0);
    CHECK((facts.st_mode & 0777) == 0600);
    CHECK_THROWS_WITH(Listener::on_path(path), Contains("another server listens there"));
  }
  CHECK_FALSE(fs::exists(path));
  static_cast<void>(bound_socket(path.string(), SOCK_STREAM));  // left behind
  REQUIRE(fs::exists(path));
  {
    const Listener listener = Listener::on_path(path);
    fs::remove(path);
    std::ofstream(path) << "somebody else's";
  }
  CHECK(fs::exists(path));
  CHECK_THROWS_WITH(Listener::on_path(path), Contains("no socket"));
  fs::remove(path);
  {
    const Listener listener = Listener::on_path(path);
    fs::rename(path, folder / "old");
    const Listener other = Listener::on_path(folder / "new");
    fs::rename(folder / "new", path);
  }
  CHECK(fs::exists(path));  // it is another's socket now
  CHECK_THROWS_AS(Listener::on_path(""), UsageError);
  CHECK_THROWS_AS(Listener::on_path(std::string(200, 'x')), UsageError);
  CHECK_THROWS_AS(Listener::on_path(folder / "missing" / "socket"), std::system_error);
}

TEST_CASE("an address is listened on, and a name is none") {
  const Listener listener = Listener::on_port("localhost", 0);
  CHECK(listener.family() == Listener::Family::ipv4);
  CHECK(listener.is_local());
  CHECK(listener.name() == "http://127.0.0.1:" + std::to_string(listener.port()));
  CHECK_THROWS_AS(Listener::on_port("127.0.0.1", listener.port()), std::system_error);
  CHECK_FALSE(Listener::on_port("0.0.0.0", 0).is_local());
  CHECK_THROWS_WITH(Listener::on_port("example.org", 0), Contains("--host example.org"));
  try {
    const Listener six = Listener::on_port("::1", 0);
    CHECK(six.family() == Listener::Family::ipv6);
    CHECK(six.is_local());
    CHECK(six.name() == "http://[::1]:" + std::to_string(six.port()));
  } catch (const std::system_error&) {  // there is no IPv6
  }
}

TEST_CASE("systemd's sockets are taken by the process that they are for") {
  const TemporaryFolder folder;
  const Descriptor on_path = bound_socket((folder / "socket").string(), SOCK_STREAM);
  const Descriptor abstract =
      bound_socket("@sluice-test-" + std::to_string(::getpid()), SOCK_STREAM);
  const Listener on_port = Listener::on_port("127.0.0.1", 0);
  const std::string path = "unix:" + (folder / "socket").string();
  CHECK(in_child_of_systemd({on_path.number(), on_port.descriptor(), abstract.number()}, "3", [&] {
    const std::vector<Listener> all = Listener::from_systemd();
    return all.size() == 3 && all[0].descriptor() == 3 && all[0].name() == path &&
           all[1].name() == on_port.name() && all[2].name() == "unix:(without a path)" &&
           (::fcntl(3, F_GETFD) & FD_CLOEXEC) != 0 && (::fcntl(3, F_GETFL) & O_NONBLOCK) != 0 &&
           std::getenv("LISTEN_FDS") == nullptr;
  }));
  CHECK(in_child_of_systemd({on_path.number()}, "1", [] {
    ::setenv("LISTEN_PID", "1", 1);
    return Listener::from_systemd().empty() && std::getenv("LISTEN_PID") == nullptr;
  }));
  for (const char* count : {"", "x", "-1", "0"}) {
    CHECK(in_child_of_systemd({on_path.number()}, count,
                              [] { return Listener::from_systemd().empty(); }));
  }
  CHECK(in_child_of_systemd({on_path.number()}, "1000000000", [] {
    return fails<std::system_error>([] { static_cast<void>(Listener::from_systemd()); });
  }));
  const Descriptor netlink(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0));
  CHECK(in_child_of_systemd({netlink.number()}, "1", [] {
    return fails<UsageError>([] { static_cast<void>(Listener::from_systemd()); });
  }));
  const Descriptor file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  CHECK(in_child_of_systemd({file.number()}, "1", [] {
    return fails<std::system_error>([] { static_cast<void>(Listener::from_systemd()); });
  }));
}

TEST_CASE("the service manager hears what the server says") {
  const TemporaryFolder folder;
  const std::string path = (folder / "notify").string();
  Descriptor socket = bound_socket(path, SOCK_DGRAM);
  ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
  ::setenv("WATCHDOG_USEC", "3000000", 1);
  const ServiceManager manager;
  CHECK(std::getenv("NOTIFY_SOCKET") == nullptr);
  CHECK(manager.watchdog_period() == std::chrono::seconds(3));
  manager.notify("READY=1\nSTATUS=serving");
  CHECK(received(socket) == "READY=1\nSTATUS=serving");
  socket = Descriptor();
  manager.notify("WATCHDOG=1");  // nobody listens any more, which is no error
  CHECK_FALSE(ServiceManager().watchdog_period().has_value());
}

TEST_CASE("a service manager is told where it listens, and how often it wants to hear") {
  const TemporaryFolder folder;
  for (const std::string& name :
       {(folder / "notify").string(), "@sluice-notify-" + std::to_string(::getpid())}) {
    const Descriptor manager = bound_socket(name, SOCK_DGRAM);
    ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
    const ServiceManager service;
    CHECK(std::getenv("NOTIFY_SOCKET") == nullptr);
    CHECK_FALSE(service.watchdog_period());
    service.notify("READY=1");
    CHECK(received(manager) == "READY=1");
  }
  for (const std::string& name : {std::string(200, 'x'), (folder / "missing").string()}) {
    ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
    ServiceManager().notify("READY=1");  // to nobody
  }
  const auto period = [](const char* usec, const std::string& process) {
    ::setenv("WATCHDOG_USEC", usec, 1);
    if (!process.empty()) ::setenv("WATCHDOG_PID", process.c_str(), 1);
    return ServiceManager().watchdog_period();
  };
  const std::string own = std::to_string(::getpid());
  CHECK(period("2000", "") == std::chrono::microseconds(2000));
  CHECK(period("2000", own) == std::chrono::microseconds(2000));
  CHECK(period("2000", "x") == std::chrono::microseconds(2000));
  CHECK_FALSE(period("2000", "1"));
  CHECK_FALSE(period("0", own));
  CHECK_FALSE(period("soon", own));
}

TEST_CASE("an origin is a scheme and a host") {
  for (const char* good : {"*", "https://chat.example", "http://localhost:8080", "app://x"}) {
    CHECK_NOTHROW(check_origin(good));
  }
  for (const char* bad : {"", "chat.example", "https://", "https://a/", "https://a?b",
                          "https://a#b", "https://a b", "https://\x7f", "https://\xc3\xa9"}) {
    INFO(bad);
    CHECK_THROWS_AS(check_origin(bad), UsageError);
  }
}

TEST_CASE("a request comes from a page that may send it") {
  OriginRules rules;
  rules.allowed = {"https://chat.example"};
  const auto head = [](const char* host, const char* origin) {
    RequestHead made;
    made.method = "GET";
    if (*host) made.fields.push_back({"Host", host});
    if (*origin) made.fields.push_back({"Origin", origin});
    return made;
  };
  const auto passes = [&](const char* host, const char* origin) {
    return !origin_problem(rules, head(host, origin));
  };
  CHECK(passes("", ""));
  CHECK(passes("localhost:80", "http://LOCALHOST:80"));
  CHECK(passes("a.localhost", ""));
  CHECK(passes("[fe80::1]:80", ""));
  CHECK(passes("10.0.0.1", "https://CHAT.example"));
  CHECK_FALSE(passes(".com", ""));
  CHECK_FALSE(passes(":80", ""));
  CHECK_FALSE(passes("notlocalhost", ""));
  CHECK_FALSE(passes("", "http://"));
  CHECK_FALSE(passes("localhost", "null"));
  CHECK_FALSE(passes("localhost", "http://localhost.example"));
  CHECK_FALSE(passes("localhost:80", "http://localhost:81"));

  CHECK(origin_fields(rules, head("localhost", "")).empty());
  CHECK(origin_fields(rules, head("localhost", "https://other.example")).empty());
  CHECK(origin_fields(rules, head("localhost", "https://chat.example")).size() == 3);
  RequestHead asked = head("localhost", "https://chat.example");
  asked.method = "OPTIONS";
  CHECK(origin_fields(rules, asked).size() == 6);
  rules.allowed = {"*"};
  CHECK(passes("localhost", "https://any.example"));
  CHECK(origin_fields(rules, head("localhost", "https://any.example"))[0].value ==
        "https://any.example");
}

TEST_CASE("a target is a path with a query, or the address that proxies are sent") {
  const auto read = [](const std::string& target) {
    RequestReader reader(4096);
    reader.take("GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n");
    return reader.head().path + " " + reader.head().query;
  };
  CHECK(read("/a/b?c=d?e") == "/a/b c=d?e");
  CHECK(read("/a?") == "/a ");
  CHECK(read("*") == "* ");
  CHECK(read("http://host/a?b") == "/a b");
  CHECK(read("https://host:80/") == "/ ");
  CHECK(read("http://host") == "/ ");
  CHECK_THROWS_WITH(read("host/a"), Contains("slash"));
  CHECK_THROWS_WITH(read("ftp://host/a"), Contains("slash"));
}

TEST_CASE("a request has a bounded number of fields, and trailers that say nothing") {
  const auto request = [](int fields) {
    std::string text = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n";
    for (int i = 2; i < fields; ++i) text += "X: y\r\n";
    return text + "\r\n";
  };
  RequestReader most(16384);
  const std::string head = request(128);
  REQUIRE(most.take(head) == head.size());
  most.take_body(10);
  std::string_view body = "1\r\na\r\n0\r\nTrailer: z\r\n\r\n";
  while (const std::size_t taken = most.take(body)) body.remove_prefix(taken);
  CHECK(body.empty());
  CHECK(most.state() == RequestReader::State::complete);
  CHECK(most.head().fields.size() == 128);
  CHECK(most.head().field("Trailer").empty());
  CHECK(most.body() == "a");
  RequestReader more(16384);
  CHECK_THROWS_WITH(more.take(request(129)), Contains("too many fields"));
}

TEST_CASE("the head of a request has so many bytes at most, however it comes") {
  constexpr std::size_t most = 600;
  std::string head = "GET /a HTTP/1.1\r\nHost: a\r\n";
  for (int i = 0; i < 20; ++i)
    head += "f" + std::to_string(i) + ": " + std::string(20, 'x') + "\r\n";
  REQUIRE(head.size() < most - 9);
  for (const std::size_t bytes : {most - 1, most, most + 1, most + 17, 2 * most}) {
    std::string whole = head;
    while (whole.size() + 40 < bytes) whole += "f: " + std::string(20, 'y') + "\r\n";
    whole += "l: " + std::string(bytes - whole.size() - 7, 'z') + "\r\n\r\n";
    REQUIRE(whole.size() == bytes);
    for (const std::size_t piece : {std::size_t{1}, std::size_t{30}, std::size_t{333}, bytes}) {
      INFO(bytes << " bytes, " << piece << " at a time");
      RequestReader reader(most);
      std::string waiting;
      unsigned status = 0;
      try {
        for (std::size_t at = 0; at < whole.size(); at += piece) {
          waiting += whole.substr(at, piece);
          waiting.erase(0, reader.take(waiting));
        }
      } catch (const ApiError& error) {
        status = error.status;
      }
      CHECK(status == (bytes > most ? 431U : 0U));
      if (status == 0) CHECK(reader.state() == RequestReader::State::complete);
    }
  }
}

TEST_CASE("a status has its standard phrase") {
  for (const unsigned status : {200U, 204U, 400U, 401U, 403U, 404U, 405U, 408U, 409U, 413U, 414U,
                                417U, 429U, 431U, 501U, 503U, 505U, 507U}) {
    INFO(status);
    CHECK(reason_phrase(status) != reason_phrase(499));
    CHECK(reason_phrase(status) != reason_phrase(599));
  }
  CHECK(reason_phrase(499) == "Error");
  CHECK(reason_phrase(599) == "Internal Server Error");
  CHECK(percent_decoded("a%20b%zz%4") == "a b%zz%4");
  CHECK(percent_decoded("%41%2fb%") == "A/b%");
  using State = sluice::serve::Service::State;
  CHECK(state_name(State::loading) == "loading");
  CHECK(state_name(State::ready) == "ok");
  CHECK(state_name(State::draining) == "stopping");
  CHECK(state_name(State::stopped) == "stopped");
  CHECK(state_name(State::failed) == "failed");
}

TEST_CASE("a file of keys has a bounded length and few readers") {
  const TemporaryFolder folder;
  const fs::path path = folder / "keys";
  const auto write = [&](const std::string& text, mode_t mode) {
    std::ofstream(path, std::ios::trunc) << text;
    ::chmod(path.c_str(), mode);
  };
  write("key-number-1\n", 0600);
  CHECK(ApiKeys::read(path).size() == 1);
  write("key-number-1\n", 0644);
  CHECK_THROWS_WITH(ApiKeys::read(path), Contains("chmod 600"));
  write(std::string((std::size_t{1} << 20) + 1, '#'), 0600);
  CHECK_THROWS_WITH(ApiKeys::read(path), Contains("1 MiB"));
  CHECK_THROWS_AS(ApiKeys::read(folder / "missing"), std::system_error);
  CHECK_FALSE(ApiKeys::parse("key-number-1", "test").find(""));
}

TEST_CASE("items of a response's input become messages") {
  const auto messages = [](const char* input) {
    return chat_body_of({{"input", RowJson::parse(input)}}, true)["messages"];
  };
  const auto parsed = [](const char* text) { return RowJson::parse(text); };
  CHECK(messages(R"("hi")") == parsed(R"([{"role":"user","content":"hi"}])"));
  // A thought without its text is another server's own.
  CHECK(messages(R"([{"type":"reasoning","id":"x"},{"role":"assistant","content":"a"}])") ==
        parsed(R"([{"role":"assistant","content":"a"}])"));
  CHECK(messages(R"([{"type":"reasoning","content":[{"type":"reasoning_text","text":"t"}]},
                     {"role":"assistant","content":[{"type":"refusal","refusal":"no"}]},
                     {"role":"assistant","content":"more"}])") ==
        parsed(R"([{"role":"assistant","content":"no","reasoning_content":"t"},
                   {"role":"assistant","content":"more"}])"));
  const char* const call = R"({"type":"function_call","call_id":"1","name":"f","arguments":"{}"})";
  const std::string calls = std::string("[") + call + "," + call +
                            R"(,{"type":"function_call_output","call_id":"1","output":"x"}])";
  const RowJson called = messages(calls.c_str());
  REQUIRE(called.size() == 2);
  CHECK(called[0]["tool_calls"].size() == 2);
  CHECK(called[1] == parsed(R"({"role":"tool","tool_call_id":"1","content":"x"})"));
  CHECK(messages(R"([{"role":"user","content":[{"type":"input_text","text":"a","more":1}]}])") ==
        parsed(R"([{"role":"user","content":[{"type":"text","text":"a","more":1}]}])"));
  for (const char* bad :
       {R"([7])", R"([{"type":7}])", R"([{"role":"user"}])", R"([{"content":"a"}])",
        R"([{"role":"user","content":7}])", R"([{"role":"user","content":[7]}])",
        R"([{"role":"user","content":[{"text":"a"}]}])",
        R"([{"role":"user","content":[{"type":7,"text":"a"}]}])",
        R"([{"role":"user","content":[{"type":"text"}]}])",
        R"([{"role":"user","content":[{"type":"text","text":7}]}])",
        R"([{"type":"reasoning","content":[{"type":"text","text":"a"}]}])",
        R"([{"type":"function_call","call_id":"1","name":"f"}])",
        R"([{"type":"function_call_output","output":"x"}])"}) {
    INFO(bad);
    CHECK_THROWS_AS(messages(bad), sluice::rows::BadRow);
  }
}

TEST_CASE("settings of a response become those of a chat") {
  const auto body = [](const char* more, bool has_effort = true) {
    RowJson whole = {{"input", "hi"}};
    whole.update(RowJson::parse(more));
    return chat_body_of(whole, has_effort);
  };
  CHECK(body(R"({"instructions":"be short"})")["messages"][0]["role"] == "system");
  CHECK(body(R"({"max_output_tokens":5})")["max_completion_tokens"] == 5);
  CHECK(body(R"({"tools":[{"type":"web_search"},{"type":"function","name":"f"}]})")["tools"] ==
        RowJson::parse(R"([{"type":"function","function":{"name":"f"}}])"));
  CHECK(body(R"({"text":{"format":{"type":"json_schema","name":"n","schema":{}}}})")
            ["response_format"] ==
        RowJson::parse(R"({"type":"json_schema","json_schema":{"name":"n","schema":{}}})"));
  CHECK(body(R"({"text":{"format":{"type":"text"},"verbosity":"low"}})")["response_format"] ==
        RowJson::parse(R"({"type":"text"})"));
  CHECK(body(R"({"text":{"format":7}})")["response_format"] == 7);  // which a chat refuses
  CHECK(body(R"({"reasoning":{"effort":"low"}})")["reasoning_effort"] == "low");
  CHECK_FALSE(body(R"({"reasoning":{"effort":"low"}})", false).contains("reasoning_effort"));
  CHECK_FALSE(body(R"({"reasoning":{"summary":"auto"}})").contains("reasoning"));
  CHECK_FALSE(body(R"({"top_logprobs":0,"background":false,"include":[]})").contains("include"));
  for (const char* bad :
       {R"({"instructions":7})", R"({"tools":7})", R"({"tools":[7]})", R"({"tools":[{}]})",
        R"({"text":7})", R"({"text":{"verbosity":7}})", R"({"text":{"other":1}})",
        R"({"reasoning":7})", R"({"reasoning":{"effort":7}})", R"({"top_logprobs":1})",
        R"({"messages":[]})"}) {
    INFO(bad);
    CHECK_THROWS_AS(body(bad), sluice::rows::BadRow);
  }
  const RowJson echo = echo_of({{"temperature", 0.5}, {"other", 1}});
  CHECK(echo["temperature"] == 0.5);
  CHECK(echo["top_p"] == nullptr);
  CHECK_FALSE(echo.contains("other"));
  CHECK(with_own_names("\"messages\" is empty") == "\"input\" is empty");
  CHECK(with_own_names("nothing to rename") == "nothing to rename");
}
