// Models that are fetched, from servers that are worse than the real ones; by the functions of
// core/fetch, and by the program where it is killed.
#include "core/fetch/fetch.h"

#include <array>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fmt/format.h>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <sys/file.h>

#include "base/descriptor.h"
#include "core/error.h"
#include "core/fetch/download.h"
#include "core/fetch/hub.h"
#include "core/fetch/ollama.h"
#include "core/fetch/reference.h"
#include "tests/contains.h"
#include "tests/program.h"
#include "tests/random_seed.h"
#include "tests/small_hub.h"

using namespace sluice;
using namespace sluice::test;
using fetch::Reference;
using fetch::ReferenceKind;

namespace {

std::string random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text(count, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text.replace(0, std::min<std::size_t>(count, 4), "GGUF", std::min<std::size_t>(count, 4));
}

fs::path pull(
    const std::string& text, const fetch::OnProgress& on_progress = [](const auto&) {}) {
  fetch::Web web;
  return fetch::pull(web, fetch::parse_reference(text), on_progress);
}

// The paths below a folder that end so.
std::vector<fs::path> paths_below(const fs::path& folder, const std::string& end) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().string().ends_with(end)) out.push_back(entry.path());
  }
  return out;
}

// The line that a pull fails with.
std::string failure(const std::string& text) {
  try {
    pull(text);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a reference is read as it is meant") {
  const Reference file = fetch::parse_reference("hf:Qwen/Qwen3-8B-GGUF/a/b-Q4_K_M.gguf");
  CHECK(file.kind == ReferenceKind::hub_file);
  CHECK(file.repository == "Qwen/Qwen3-8B-GGUF");
  CHECK(file.revision == "main");
  CHECK(file.file == "a/b-Q4_K_M.gguf");
  const Reference quant = fetch::parse_reference("hf:o/r@v1.0:Q4_K_M");
  CHECK(quant.kind == ReferenceKind::hub_quant);
  CHECK(quant.revision == "v1.0");
  CHECK(quant.quant == "Q4_K_M");
  CHECK(fetch::parse_reference("hf:o/r").kind == ReferenceKind::hub_repository);
  const Reference ollama = fetch::parse_reference("ollama:qwen3:0.6b");
  CHECK(ollama.repository == "library/qwen3");
  CHECK(ollama.revision == "0.6b");
  CHECK(ollama.url == "https://registry.ollama.ai");
  const Reference own = fetch::parse_reference("ollama:localhost:5000/me/m");
  CHECK(own.url == "http://localhost:5000");
  CHECK(own.repository == "me/m");
  CHECK(own.revision == "latest");
  CHECK(fetch::parse_reference("https://h/a/m.gguf?x=/y").kind == ReferenceKind::url);
  CHECK(fetch::parse_reference("file:///a/b").file == "/a/b");
  CHECK(fetch::parse_reference("file:b").file == "b");
  CHECK_FALSE(fetch::is_reference("model.gguf"));
  CHECK(fetch::is_loopback("http://127.0.0.1:80/a"));
  CHECK(fetch::is_loopback("http://[::1]:80/a"));
  for (const char* other : {"http://127.evil.com/", "http://localhost.evil.com/",
                            "http://localhost@evil.com/", "http://evil.com/localhost"}) {
    CHECK_FALSE(fetch::is_loopback(other));
  }
}

TEST_CASE("a reference that would lead astray is refused") {
  for (const std::string text : {"hf:",
                                 "hf:o",
                                 "hf:/r/f",
                                 "hf:o//f",
                                 "hf:../r/f",
                                 "hf:o/..",
                                 "hf:o/r/../f",
                                 "hf:o/r/f/",
                                 "hf:o/r//f",
                                 "hf:o/r@/f",
                                 "hf:o/r@../f",
                                 "hf:o/r:",
                                 "hf:o/r:a/b",
                                 "hf:o/r/a\nb",
                                 "hf:o/r/a\\b",
                                 "hf:o--x/r/f",
                                 "hf:o/r@a/../../b/f",
                                 "ollama:",
                                 "ollama:a/b/c/d",
                                 "ollama:..",
                                 "ollama:a:..",
                                 "ollama:a b",
                                 "https://",
                                 "https://h",
                                 "https://h/",
                                 "https://h/..",
                                 "https://h/a\nb",
                                 "file:",
                                 "file://h/a",
                                 "model.gguf",
                                 ""}) {
    INFO(text);
    CHECK_THROWS_AS(fetch::parse_reference(text), UsageError);
  }
  CHECK_THROWS_AS(fetch::parse_reference("hf:o/r/" + std::string(2000, 'a')), UsageError);
}

TEST_CASE("a quantisation names one file") {
  const std::vector<std::string> files = {"m-F16.gguf",        "m-IQ4_XS.gguf",
                                          "m-Q4_K_M.gguf",     "m-Q4_K_S.gguf",
                                          "mmproj-m-F16.gguf", "m-Q8_0-00001-of-00002.gguf",
                                          "m-UD-Q4_K_XL.gguf", "m-Q8_0-00002-of-00002.gguf"};
  const auto choose = [&](const std::string& quant) {
    return fetch::choose_quant(files, fetch::parse_reference("hf:o/r:" + quant));
  };
  CHECK(choose("Q4_K_M") == "m-Q4_K_M.gguf");
  CHECK(choose("q4_k_m") == "m-Q4_K_M.gguf");
  CHECK(choose("F16") == "m-F16.gguf");
  CHECK(choose("Q8_0") == "m-Q8_0-00001-of-00002.gguf");
  CHECK(choose("UD-Q4_K_XL") == "m-UD-Q4_K_XL.gguf");
  CHECK_THROWS_WITH(choose("Q4"), Contains("there are m-F16.gguf, m-IQ4_XS.gguf"));
  CHECK(fetch::shards_of("a/m-00001-of-00003.gguf").size() == 3);
  CHECK(fetch::shards_of("m-00001-of-00003.gguf")[2] == "m-00003-of-00003.gguf");
  CHECK(fetch::shards_of("m.gguf") == std::vector<std::string>{"m.gguf"});
}

TEST_CASE("a file of the hub lies where the hub's own programs look for it") {
  SmallHub hub;
  const Caches caches(hub);
  const std::string text = random_bytes(100'000, 1);
  hub.put("a/m-Q4_K_M.gguf", text);
  const std::string reference = "hf:o/r/a/m-Q4_K_M.gguf";
  CHECK_FALSE(fetch::find_here(fetch::parse_reference(reference)));
  const fs::path path = pull(reference);
  CHECK(path == caches.repository() / "snapshots" / hub.commit / "a/m-Q4_K_M.gguf");
  CHECK(content(path) == text);
  CHECK(fs::read_symlink(path) == "../../../blobs/" + sha256_of(text));
  CHECK(content(caches.repository() / "refs/main") == hub.commit);
  CHECK(files_in(caches.repository() / "blobs") == 1);
  CHECK(fetch::find_here(fetch::parse_reference(reference)) == path);
  CHECK(fetch::find_here(fetch::parse_reference("hf:o/r:q4_k_m")) == path);
  CHECK(pull("hf:o/r:Q4_K_M") == path);
  CHECK(hub.sent_bytes() == text.size());  // once
  // A new version comes beside the old one.
  hub.commit = std::string(40, 'd');
  hub.put("a/m-Q4_K_M.gguf", "GGUF new");
  CHECK(content(pull(reference)) == "GGUF new");
  CHECK(content(path) == text);
  CHECK(content(*fetch::find_here(fetch::parse_reference(reference))) == "GGUF new");
}

TEST_CASE("all shards come, and files of other kinds") {
  SmallHub hub;
  const Caches caches(hub);
  hub.put("m-00001-of-00002.gguf", "GGUF one");
  hub.put("m-00002-of-00002.gguf", "GGUF two");
  hub.put("ollama", "GGUF of ollama");
  hub.put("plain.gguf", "GGUF plain");
  const fs::path first = pull("hf:o/r/m-00001-of-00002.gguf");
  CHECK(content(first) == "GGUF one");
  CHECK(content(first.parent_path() / "m-00002-of-00002.gguf") == "GGUF two");
  const std::string ollama = "ollama:" + hub.host() + "/library/tiny";
  CHECK(content(pull(ollama)) == "GGUF of ollama");
  CHECK(content(*fetch::find_here(fetch::parse_reference(ollama))) == "GGUF of ollama");
  const std::string url = hub.url() + "/cdn/plain.gguf";
  CHECK(content(pull(url)) == "GGUF plain");
  const std::uint64_t sent = hub.sent_bytes();
  CHECK(content(pull(url)) == "GGUF plain");
  CHECK(hub.sent_bytes() == sent);
  hub.put("plain.gguf", "GGUF other");  // as long, but not the same
  CHECK(content(pull(url)) == "GGUF other");
  hub.put("empty.txt", "");
  CHECK(content(pull("hf:o/r/empty.txt")).empty());
  const std::string file = caches.folder.file("here.gguf");
  CHECK_THROWS(pull("file:" + file));
  write(file, "here");
  CHECK_THROWS_AS(pull("file:" + file), ModelError);
  fs::rename(make_model(caches.folder), file);
  CHECK(pull("file:" + file) == file);
}

TEST_CASE("a model that the disk has no room for is refused before a byte of it comes") {
  SmallHub hub;
  const Caches caches(hub);
  constexpr std::uint64_t petabyte = std::uint64_t{1} << 50;
  hub.put("large.gguf", "large");
  hub.state_size_of("large.gguf", petabyte);
  CHECK_THAT(failure("hf:o/r/large.gguf"), Contains("are free"));
  // Each shard alone would fit.
  const std::uint64_t half = fs::space(caches.folder.path()).available / 10 * 6;
  for (const char* name : {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}) {
    hub.put(name, name);
    hub.state_size_of(name, half);
  }
  const std::string said = failure("hf:o/r/m-00001-of-00002.gguf");
  CHECK_THAT(said, Contains("m-00001-of-00002.gguf needs "));
  CHECK_THAT(said, Contains("are free"));
  CHECK(hub.sent_bytes() == 0);
}

TEST_CASE("a token goes to the hub and to no other host") {
  SmallHub hub;
  const Caches caches(hub);
  hub.put("m.gguf", "GGUF text");
  hub.token = "secret";
  CHECK_THAT(failure("hf:o/r/m.gguf"), Contains("set HF_TOKEN"));
  CHECK_THAT(failure("hf:o/r/m.gguf"), Contains("(401)"));
  ::setenv("HF_TOKEN", "one\ntwo", 1);
  CHECK_THAT(failure("hf:o/r/m.gguf"), Contains("HF_TOKEN has more than one line"));
  ::setenv("HF_TOKEN", " secret\r\n", 1);
  CHECK(content(pull("hf:o/r/m.gguf")) == "GGUF text");
  for (const HubRequest& request : hub.log()) {
    if (request.is_download()) CHECK(request.headers.count("authorization") == 0);
  }
  ::unsetenv("HF_TOKEN");
}

TEST_CASE("without a home no file of the working folder is taken for the token") {
  SmallHub hub;
  const Caches caches(hub);
  hub.put("m.gguf", "GGUF text");
  write(caches.folder.file("token"), "secret");
  const Result pulled = shell("cd " + caches.folder.path().string() +
                              "; unset HOME HF_HOME XDG_CACHE_HOME; export HF_HUB_CACHE=" +
                              caches.folder.file("hub") + "; sluice pull -q hf:o/r/m.gguf");
  CHECK(pulled.status == 0);
  CHECK(hub.requests() > 0);
  for (const HubRequest& request : hub.log()) CHECK(request.headers.count("authorization") == 0);
}

TEST_CASE("a redirect leads to https and to http alone, and to this machine from here alone") {
  SmallHub hub;
  const Caches caches(hub);
  const SmallHub other;
  write(caches.folder.file("here.gguf"), "GGUF");
  const std::string place = other.host() + "/cdn/m.gguf";
  for (const std::string& target :
       {"gopher://" + place, "dict://" + place, "ftp://" + place, "ldap://" + place,
        "file://localhost" + caches.folder.file("here.gguf")}) {
    hub.redirect("m.gguf", target);
    for (const bool insecure_http : {false, true}) {
      INFO(target << " " << insecure_http);
      fetch::WebOptions options;
      options.insecure_http = insecure_http;
      fetch::Web web(options);
      const Reference reference = fetch::parse_reference(hub.url() + "/cdn/m.gguf");
      CHECK_THROWS_WITH(
          fetch::pull(web, reference, [](const auto&) {}),
          Contains("is neither https:// nor http://") && Contains(hub.host() + " redirects to"));
    }
  }
  CHECK(other.connections() == 0);
  for (const bool insecure_http : {false, true}) {
    CHECK_NOTHROW(fetch::check_url("https://h/m", "http://h/m", insecure_http));
    CHECK_NOTHROW(fetch::check_url("http://127.0.0.1/m", "", insecure_http));
    CHECK_NOTHROW(fetch::check_url("http://127.0.0.1/m", "http://localhost:1/", insecure_http));
    CHECK_THROWS_AS(fetch::check_url("HTTP+unix://localhost/m", "", insecure_http), UsageError);
  }
  CHECK_THROWS_WITH(fetch::check_url("http://127.0.0.1/m", "https://h/m", false),
                    Contains("'http://127.0.0.1/m', where h redirects to, is a service of this"));
  CHECK_THROWS_WITH(fetch::check_url("http://h/m", "https://h/m", false),
                    Contains("is plain HTTP"));
  CHECK_NOTHROW(fetch::check_url("http://127.0.0.1/m", "https://h/m", true));
}

TEST_CASE("what a HEAD does not tell, the first byte tells") {
  for (const Fault refusal : {Fault::error_403, Fault::error_404, Fault::error_501, Fault::empty}) {
    for (const Fault other : {Fault::none, Fault::whole}) {
      SmallHub hub(
          [&](const HubRequest& request) { return request.method == "HEAD" ? refusal : other; });
      const Caches caches(hub);
      hub.put("m.gguf", "GGUF of a signed URL");
      CHECK(content(pull(hub.url() + "/cdn/m.gguf?sig=1")) == "GGUF of a signed URL");
      CHECK(hub.requests() <= 4);  // HEAD, the first byte, the bytes by a range and without one
      CHECK_THAT(failure(hub.url() + "/cdn/absent.gguf"), Contains("has no such file (404)"));
    }
  }
}

TEST_CASE("who refuses access is not always the hub") {
  SmallHub hub([](const HubRequest&) { return Fault::error_403; });
  const Caches caches(hub);
  CHECK_THAT(failure("hf:o/r/m.gguf"), Contains("set HF_TOKEN"));
  ::setenv("HF_ENDPOINT", "https://hub.example.com", 1);
  const std::string said = failure(hub.url() + "/cdn/m.gguf");
  CHECK_THAT(said, Contains("refuses access (403): check that the URL is whole"));
  CHECK_THAT(said, !Contains("HF_TOKEN"));
}

TEST_CASE("what cannot pass is not tried again") {
  SmallHub hub([](const HubRequest&) { return Fault::error_501; });
  const Caches caches(hub);
  fetch::WebOptions options;
  int retries = 0;
  options.on_retry = [&](const std::string&) { ++retries; };
  fetch::Web web(options);
  const auto said = [&](const std::string& url) -> std::string {
    try {
      fetch::pull(web, fetch::parse_reference(url), [](const auto&) {});
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  CHECK_THAT(said("http://127.0.0.1:99999/m.gguf"),
             Contains("127.0.0.1:99999: ") && Contains("check the URL") && !Contains("goes on"));
  CHECK_THAT(said(hub.url() + "/cdn/m.gguf"), Contains("answers 501"));
  CHECK_THAT(said("https://no-such-host.invalid/m.gguf"), Contains("check its name"));
  CHECK(retries == 0);
}

TEST_CASE("messages show neither a password nor the query of a URL") {
  CHECK(fetch::shown_url("https://u:p@h:1/a@b/m.gguf?x=y@z/#f") == "https://h:1/a@b/m.gguf");
  CHECK(fetch::shown_url("https://u@p@h") == "https://h");
  CHECK(fetch::shown_url("https://h?token=a/b") == "https://h");
  SmallHub hub([](const HubRequest& request) {
    return request.path.ends_with("/busy.gguf") ? Fault::error_429 : Fault::none;
  });
  const Caches caches(hub);
  hub.put("bad.gguf", "GGUF, and nothing of one behind it");
  hub.put("busy.gguf", "GGUF");
  hub.redirect("away.gguf", "http://u:SECRET@example.com/m.gguf?sig=SECRET");
  hub.redirect("other.gguf", "gopher://u:SECRET@127.0.0.1:1/m.gguf?sig=SECRET");
  const std::string here = "http://u:SECRET@" + hub.host() + "/cdn/", query = "?token=SECRET'";
  const auto check = [](const std::string& command, const std::string& url) {
    INFO(command << url);
    const Result result = shell("sluice " + command + "\"" + url + "\"");
    CHECK(result.status != 0);
    CHECK(result.errors.find("SECRET") == std::string::npos);
    CHECK(result.errors.find("\\'") == std::string::npos);
    CHECK_FALSE(result.errors.empty());
  };
  for (const std::string& url :
       {here + "absent.gguf" + query, here + "busy.gguf" + query, here + "away.gguf" + query,
        here + "other.gguf" + query, "http://u:SECRET@example.com/m.gguf" + query,
        "https://u:SECRET@/m.gguf" + query}) {
    check("pull ", url);
    check("plan ", url);
  }
  check("plan ", here + "bad.gguf" + query);
  check("pull ", "http://u:SECRET@127.0.0.1:1/m.gguf" + query);
  check("pull ", "ftp://u:SECRET@h/m.gguf" + query);
}

TEST_CASE("what cannot be had is said in a line") {
  SmallHub hub([](const HubRequest& request) {
    return request.path.ends_with("/busy.gguf") ? Fault::error_429 : Fault::none;
  });
  const Caches caches(hub);
  CHECK_THAT(failure("hf:o/r/absent.gguf"), Contains("no such file (404)"));
  CHECK_THAT(failure("hf:o/none:Q4_0"), Contains("(404)"));
  CHECK_THAT(failure("hf:o/r:Q4_0"), Contains("has none that ends in .gguf"));
  CHECK_THAT(failure("hf:o/r"), Contains("name one"));
  hub.put("busy.gguf", "x");
  CHECK_THAT(failure("hf:o/r/busy.gguf"), Contains("too many requests (429)"));
  CHECK_THAT(failure("http://example.com/m.gguf"), Contains("--insecure-http"));
  hub.put("lie.gguf", "not what is stated");
  hub.lie_about("lie.gguf");
  CHECK_THAT(failure("hf:o/r/lie.gguf"), Contains("nothing was kept"));
  CHECK(files_in(caches.repository() / "blobs") == 0);
  CHECK_FALSE(fs::exists(caches.repository() / "snapshots"));
}

TEST_CASE("a server that is no hub is told from a hub that lacks a file") {
  SmallHub hub([](const HubRequest& request) {
    return request.path.find("/o/loop") != std::string::npos ? Fault::endless_redirect
                                                             : Fault::no_hub;
  });
  const Caches caches(hub);
  for (const char* reference : {"hf:o/r/m.gguf", "hf:o/r:Q4_0"}) {
    INFO(reference);
    CHECK_THAT(failure(reference), Contains(hub.url() + " does not answer as a hub does"));
    CHECK_THAT(failure(reference), Contains("check HF_ENDPOINT"));
  }
  CHECK_THAT(failure("hf:o/loop/m.gguf"), Contains("redirects without end"));
  CHECK_THAT(failure("ollama:" + hub.host() + "/library/tiny"), Contains("no manifest of a model"));
  CHECK_FALSE(fs::exists(caches.repository() / "snapshots"));
}

TEST_CASE("a list of files is read to its last page") {
  SmallHub hub;
  const Caches caches(hub);
  hub.files_per_page = 2;
  for (int i = 1; i <= 5; ++i) hub.put("m-Q" + std::to_string(i) + "_0.gguf", "text");
  fetch::Web web;
  const auto listed = fetch::Hub(web).list(fetch::parse_reference("hf:o/r"));
  REQUIRE(listed.size() == 5);
  CHECK(listed.front().path == "m-Q1_0.gguf");
  CHECK(listed.back().path == "m-Q5_0.gguf");
}

TEST_CASE("the next page of a list is not asked of another host") {
  SmallHub hub, other;
  const Caches caches(hub);
  hub.files_per_page = 1;
  hub.other_pages = other.url();
  hub.put("m-Q1_0.gguf", "text");
  hub.put("m-Q2_0.gguf", "text");
  fetch::Web web;
  CHECK_THROWS_WITH(fetch::Hub(web).list(fetch::parse_reference("hf:o/r")),
                    Contains("does not answer as a hub does"));
  CHECK(other.requests() == 0);
}

TEST_CASE("a manifest whose sizes are no counts names no weights") {
  const std::string sum(64, 'a');
  const auto manifest = [&](const std::string& size) {
    return R"({"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:)" +
           sum + R"(", "size": )" + size + "}]}";
  };
  CHECK(fetch::weights_of_manifest(manifest("5"), "m").bytes == 5);
  for (const char* size : {"-1", "1e300", "0.5", "\"5\"", "null", "[5]"}) {
    INFO(size);
    CHECK_THROWS_AS(fetch::weights_of_manifest(manifest(size), "m"), Error);
  }
}

TEST_CASE("a download goes on behind the bytes that are there") {
  SmallHub hub;
  const Caches caches(hub);
  const std::string text = random_bytes(20'000'000, 2);
  hub.put("m.gguf", text);
  const fs::path partial = caches.blob(text).string() + ".incomplete";
  fs::create_directories(partial.parent_path());
  write(partial, text.substr(0, 15'000'000));
  CHECK(content(pull("hf:o/r/m.gguf")) == text);
  CHECK(hub.sent_bytes() == 5'000'000);
  CHECK_FALSE(fs::exists(partial));
  // All of it, or too much.
  for (const std::string& before : {text, text + "more"}) {
    fs::remove_all(caches.repository());
    fs::create_directories(partial.parent_path());
    write(partial, before);
    CHECK(content(pull("hf:o/r/m.gguf")) == text);
  }
  CHECK(hub.sent_bytes() == 5'000'000 + text.size());
  // Bytes of another file are noticed at the end.
  fs::remove_all(caches.repository());
  fs::create_directories(partial.parent_path());
  write(partial, "other bytes");
  CHECK(content(pull("hf:o/r/m.gguf")) == text);
}

TEST_CASE("a file that changes while it is read is not mixed") {
  SmallHub* server = nullptr;
  std::atomic<int> asked = 0;
  SmallHub hub([&](const HubRequest& request) {
    const bool is_part = request.is_download() && request.headers.count("range") != 0;
    if (is_part && ++asked == 2) server->put("m.gguf", "GGUF" + std::string(10'000'000, 'b'));
    return is_part ? Fault::cut : Fault::none;
  });
  server = &hub;
  const Caches caches(hub);
  hub.put("m.gguf", "GGUF" + std::string(10'000'000, 'a'));
  CHECK_THAT(failure(hub.url() + "/cdn/m.gguf"), Contains("has changed meanwhile"));
}

TEST_CASE("versions of a file are told apart where the server gives no ETag") {
  const std::string old_text(20'000'000, 'a'), new_text(20'000'000, 'b');
  for (const bool has_dates : {true, false}) {
    INFO(has_dates);
    std::atomic<bool> is_broken = false;  // it answers to one request for bytes, and then no more
    std::atomic<int> answered = 0;
    SmallHub hub([&](const HubRequest& request) {
      const bool is_part = request.headers.count("range") != 0;
      return is_broken && is_part && ++answered > 1 ? Fault::error_403 : Fault::none;
    });
    hub.has_tags = false;
    const auto put = [&](const std::string& text, const char* day) {
      hub.put("m.gguf", "GGUF" + text);
      hub.last_modified = has_dates ? std::string(day) + " Oct 2026 07:28:00 GMT" : "";
    };
    const Caches caches(hub);
    const std::string url = hub.url() + "/cdn/m.gguf";
    is_broken = true;
    put(old_text, "Wed, 21");
    CHECK_THAT(failure(url), Contains("refuses access"));
    CHECK(paths_below(caches.folder.path(), ".incomplete").size() == 1);
    is_broken = false;
    // What an earlier program has left is gone on with if it is certain that it belongs there.
    const std::uint64_t before = hub.sent_bytes();
    CHECK(content(pull(url)) == "GGUF" + old_text);
    // The refusal may have come before a byte, so only that nothing is taken over is certain.
    if (!has_dates) CHECK(hub.sent_bytes() - before >= old_text.size());
    put(new_text, "Thu, 22");
    CHECK(content(pull(url)) == "GGUF" + new_text);
    // The other way round: the old one was begun.
    fs::remove_all(caches.folder.path() / "cache/sluice/urls");
    is_broken = true;
    answered = 0;
    CHECK_THAT(failure(url), Contains("refuses access"));
    is_broken = false;
    put(old_text, "Fri, 23");
    CHECK(content(pull(url)) == "GGUF" + old_text);
    // What is here already comes again only where nobody knows whether it is the same.
    const std::uint64_t all = hub.sent_bytes();
    CHECK(content(pull(url)) == "GGUF" + old_text);
    CHECK((hub.sent_bytes() == all) == has_dates);
  }
}

TEST_CASE("a new version replaces the old one when it is whole, and not before") {
  std::atomic<bool> is_broken = false;
  SmallHub hub([&](const HubRequest& request) {
    const bool is_second = request.path.find("00001-of") == std::string::npos;
    return is_broken && is_second && request.headers.count("range") != 0 ? Fault::error_403
                                                                         : Fault::none;
  });
  const Caches caches(hub);
  const auto put = [&](const std::string& text) {
    hub.put("m.gguf", "GGUF" + text);
    hub.put("s-00001-of-00002.gguf", "GGUF 1" + text);
    hub.put("s-00002-of-00002.gguf", "GGUF 2" + text);
  };
  put("old");
  const std::string one = hub.url() + "/cdn/m.gguf", two = hub.url() + "/cdn/s-00001-of-00002.gguf";
  const fs::path single = pull(one), first = pull(two);
  const fs::path second = first.parent_path() / "s-00002-of-00002.gguf";
  CHECK(fetch::find_here(fetch::parse_reference(two)) == first);
  put("new");
  is_broken = true;
  CHECK_THAT(failure(one), Contains("refuses access"));
  CHECK(content(single) == "GGUFold");
  CHECK(fetch::find_here(fetch::parse_reference(one)) == single);
  // A new shard and an old one are no model: what names it goes on with the pull.
  CHECK_THAT(failure(two), Contains("refuses access"));
  CHECK(content(first) == "GGUF 1new");
  CHECK_FALSE(fetch::find_here(fetch::parse_reference(two)));
  is_broken = false;
  CHECK(content(pull(one)) == "GGUFnew");
  CHECK(pull(two) == first);
  CHECK(content(second) == "GGUF 2new");
  CHECK(fetch::find_here(fetch::parse_reference(two)) == first);
  // A shard that is not here is missed as well.
  fs::remove(second);
  CHECK_FALSE(fetch::find_here(fetch::parse_reference(two)));
  CHECK(pull(two) == first);
  CHECK(content(second) == "GGUF 2new");
}

TEST_CASE("what is no model is not kept as one") {
  SmallHub hub([](const HubRequest&) { return Fault::slow; });
  hub.slowness = std::chrono::milliseconds(20);
  const Caches caches(hub);
  const std::string page = "\r\n<!DOCTYPE HTML><html>sign in</html>";
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n";
  hub.put("page.gguf", page);
  hub.put("a/blob/main/m.gguf", page);
  hub.put("page", page);
  hub.put("pointer.gguf", pointer);
  hub.put("a/raw/main/m.gguf", pointer);
  hub.put("zip.gguf", "PK\x03\x04...");
  hub.put("text", "Come back tomorrow.\n");
  hub.put("video", std::string(30'000'000, 'v'));
  hub.put("empty.gguf", "");
  hub.put("ollama", "PK");
  const auto said = [&](const std::string& file) { return failure(hub.url() + "/cdn/" + file); };
  CHECK_THAT(said("page.gguf"), Contains("gives a page of HTML"));
  CHECK_THAT(said("a/blob/main/m.gguf"), Contains("take /resolve/ instead of /blob/"));
  CHECK_THAT(said("page"), Contains("gives a page of HTML"));
  CHECK_THAT(said("pointer.gguf"), Contains("a pointer of git-lfs, a text in the place"));
  CHECK_THAT(said("a/raw/main/m.gguf"), Contains("take /resolve/ instead of /raw/"));
  CHECK_THAT(said("zip.gguf"), Contains("it does not begin with 'GGUF'"));
  CHECK_THAT(said("empty.gguf"), Contains("no GGUF file"));
  CHECK_THAT(said("text"), Contains("no GGUF file"));
  CHECK_THAT(said("video"), Contains("no GGUF file"));
  CHECK(hub.sent_bytes() < 15'000'000);  // its beginning shows it
  for (const std::string& reference :
       {std::string("hf:o/r/zip.gguf"), "ollama:" + hub.host() + "/library/tiny"}) {
    CHECK_THAT(failure(reference), Contains("no GGUF file"));
  }
  CHECK_THAT(failure("hf:o/r/page.gguf"), Contains("gives a page of HTML"));
  ::setenv("HF_ENDPOINT", "https://hub.example.com", 1);
  CHECK_THAT(said("a/blob/main/m.gguf"), !Contains("/resolve/"));
  for (const char* end :
       {".incomplete", "m.gguf", "zip.gguf", "/page", "/text", "/video", ".etag"}) {
    INFO(end);
    CHECK(paths_below(caches.folder.path(), end).empty());
  }
}

TEST_CASE("a revision is the one that was named") {
  SmallHub hub;
  const Caches caches(hub);
  CHECK(fetch::parse_reference("hf:o/r@refs%2Fpr%2f1/m.gguf").revision == "refs/pr/1");
  CHECK_THROWS_AS(fetch::parse_reference("hf:o/r@..%2Fx/m.gguf"), UsageError);
  hub.put("m.gguf", "GGUF of a pull request");
  hub.revision = "refs%2Fpr%2F1";
  const std::string request = "hf:o/r@refs%2Fpr%2F1/m.gguf";
  CHECK(content(pull(request)) == "GGUF of a pull request");
  CHECK(fetch::find_here(fetch::parse_reference(request)));
  CHECK_THAT(failure("hf:o/r@refs%2Fpr%2F2/m.gguf"), Contains("hf:o/r@refs%2Fpr%2F2/m.gguf"));
  // What llama.cpp has is of its main branch.
  const fs::path other = caches.folder.path() / "cache/llama.cpp/o_r_m.gguf";
  fs::create_directories(other.parent_path());
  write(other, "GGUF of llama.cpp");
  CHECK(fetch::find_here(fetch::parse_reference("hf:o/r/m.gguf")) == other);
  CHECK_FALSE(fetch::find_here(fetch::parse_reference("hf:o/r@v2/m.gguf")));
}

TEST_CASE("a place that cannot be used is named") {
  SmallHub hub;
  const Caches caches(hub);
  hub.put("m.gguf", "GGUF");
  ::setenv("HF_HOME", "/proc/none", 1);
  CHECK_THAT(failure("hf:o/r/m.gguf"),
             Contains("cannot make the folder /proc/none/hub/models--o--r/blobs (HF_HOME"));
  const std::string pipe = caches.folder.file("pipe");
  REQUIRE(shell("mkfifo " + pipe).status == 0);
  CHECK_THAT(failure("file:" + pipe), Contains("is no file that is here"));
}

TEST_CASE("a query chooses a file, and a signature does not") {
  SmallHub hub;
  const Caches caches(hub);
  const std::string url = hub.url() + "/cdn/m.gguf";
  const auto here = [](const std::string& text) {
    return fetch::find_here(fetch::parse_reference(text));
  };
  hub.put("m.gguf", "GGUF of 1");
  const fs::path first = pull(url + "?id=1");
  CHECK(here(url + "?id=1&X-Amz-Signature=a/b&X-Amz-Date=1&Expires=2") == first);
  CHECK(here(url + "?token=x&id=1#f") == first);
  CHECK_FALSE(here(url + "?id=2"));
  CHECK_FALSE(here(url));
  CHECK_FALSE(here(url + "?id=1&tokens=2"));
  hub.put("m.gguf", "GGUF of 2");
  CHECK(content(pull(url + "?id=2")) == "GGUF of 2");
  CHECK(content(first) == "GGUF of 1");
  hub.put("s-00001-of-00002.gguf", "GGUF 1");
  hub.put("s-00002-of-00002.gguf", "GGUF 2");
  const std::string shards = hub.url() + "/cdn/s-00001-of-00002.gguf";
  const fs::path shard = pull(shards + "?sig=a/b");
  CHECK(content(shard.parent_path() / "s-00002-of-00002.gguf") == "GGUF 2");
  CHECK(here(shards + "?sig=c/d/e") == shard);
}

TEST_CASE("a server without ranges is served too") {
  SmallHub hub(
      [](const HubRequest& request) { return request.is_download() ? Fault::whole : Fault::none; });
  const Caches caches(hub);
  const std::string text = random_bytes(17'000'000, 3);
  hub.put("m.gguf", text);
  CHECK(content(pull("hf:o/r/m.gguf")) == text);
}

TEST_CASE("a server without ranges that gives another size than it states is told as one") {
  SmallHub hub(
      [](const HubRequest& request) { return request.is_download() ? Fault::whole : Fault::none; });
  const Caches caches(hub);
  hub.put("m.gguf", "GGUF and more");
  for (const std::uint64_t stated : {5, 500}) {
    hub.state_size_of("m.gguf", stated);
    CHECK_THAT(failure("hf:o/r/m.gguf"),
               Contains(fmt::format("states {} bytes, and gives 13", stated)));
    CHECK(paths_below(caches.folder.path(), ".incomplete").empty());
  }
}

TEST_CASE("a server that does not say which part it gives is told so") {
  SmallHub hub([](const HubRequest& request) {
    return request.is_download() ? Fault::no_range : Fault::none;
  });
  const Caches caches(hub);
  hub.put("m.gguf", "GGUF and more");
  CHECK_THAT(failure("hf:o/r/m.gguf"),
             Contains("asked for bytes from 0 on, the server answers with none"));
}

TEST_CASE("a link that has expired is asked for again, while an answer still comes by it") {
  std::mutex mutex;
  std::string first;                // pieces by their ends: the one that still comes
  std::set<std::string> asked_for;  // those for which there is another link
  int refused = 0;
  SmallHub hub([&](const HubRequest& request) {
    const auto range = request.headers.find("range");
    if (range == request.headers.end()) return Fault::none;
    const std::lock_guard lock(mutex);
    const std::string piece = range->second.substr(range->second.find('-'));
    if (!request.is_download()) asked_for.insert(piece);
    if (!request.is_download()) return Fault::none;
    if (first.empty()) first = piece;
    if (piece == first) return Fault::slow;
    if (asked_for.count(piece) != 0) return Fault::none;
    ++refused;
    return Fault::error_403;
  });
  hub.slowness = std::chrono::milliseconds(10);
  const Caches caches(hub);
  const std::string text = random_bytes(17'000'000, 3);
  hub.put("m.gguf", text);
  CHECK(content(pull("hf:o/r/m.gguf")) == text);
  CHECK(refused >= 1);
  CHECK(refused <= 2);  // once for each of the other pieces
}

TEST_CASE("from a server that fails in every way, what comes is right") {
  const std::uint64_t seed = random_seed();
  std::mt19937_64 random(seed);
  std::mutex mutex;
  // A pull asks for one thing six times, unless bytes come: so often in a row nothing fails here.
  // A piece of a file is known by its end, as what is left of it is asked for again.
  std::map<std::string, int> failures;
  constexpr int failures_max = 5;
  SmallHub hub([&](const HubRequest& request) {
    const std::lock_guard lock(mutex);
    const std::uint64_t drawn = random() % 12;
    constexpr std::array faults = {Fault::cut,       Fault::wrong_range, Fault::overlong,
                                   Fault::error_429, Fault::error_500,   Fault::slow};
    Fault fault = drawn < faults.size() ? faults[drawn] : Fault::none;
    if (!request.is_download()) fault = drawn == 0 ? Fault::error_429 : Fault::none;
    const auto range = request.headers.find("range");
    const std::string end =
        range == request.headers.end() ? "" : range->second.substr(range->second.find('-'));
    // The first request of a file has no range, those after it do: so the file counts as well. What
    // leads to the bytes is part of the same attempt, and its success is none yet.
    const std::array keys = {std::string("file"), end};
    bool is_failure = fault != Fault::none && fault != Fault::slow;
    for (const std::string& key : keys) is_failure = is_failure && failures[key] < failures_max;
    for (const std::string& key : keys) {
      if (is_failure || request.is_download()) failures[key] = is_failure ? failures[key] + 1 : 0;
    }
    return is_failure || fault == Fault::slow ? fault : Fault::none;
  });
  const Caches caches(hub);
  for (int i = 0; i < 40; ++i) {
    const std::size_t bytes = i % 8 == 0 ? 20'000'000 + random() % 9'000'000 : random() % 300'000;
    const std::string text = random_bytes(bytes, seed + i);
    hub.put("m.gguf", text);
    hub.commit = sha256_of(text).substr(0, 40);
    const std::string right = sha256_of(text);
    CHECK(sha256_of(content(pull("hf:o/r/m.gguf"))) == right);
    fs::remove_all(caches.repository());
  }
}

TEST_CASE("a program that is killed at any moment is gone on with") {
  const std::uint64_t seed = random_seed();
  std::mt19937_64 random(seed);
  SmallHub hub([](const HubRequest&) { return Fault::slow; });
  const Caches caches(hub);
  const std::string text = random_bytes(30'000'000, seed);
  hub.put("m.gguf", text);
  const fs::path partial = caches.blob(text).string() + ".incomplete";
  std::uint64_t before = 0;
  int status = -1;
  for (int kills = 0; kills < 200 && status != 0; ++kills) {
    const std::string seconds = "0." + std::to_string(100 + random() % 200);
    status =
        shell("timeout -s KILL " + seconds + " '" + program + "' pull -q hf:o/r/m.gguf").status;
    // On a busy machine it may be killed before it has a file.
    const std::uint64_t whole = fs::exists(caches.blob(text)) ? text.size() : 0;
    const std::uint64_t now = fs::exists(partial) ? fs::file_size(partial) : whole;
    CHECK(now >= before);  // nothing is begun anew
    before = now;
    if (fs::exists(caches.blob(text))) CHECK(content(caches.blob(text)) == text);
    if (kills > 20) hub.slowness = std::chrono::microseconds(0);
  }
  const Result result = shell("sluice pull -q hf:o/r/m.gguf");
  CHECK(result.status == 0);
  CHECK(content(result.output.substr(0, result.output.size() - 1)) == text);
  CHECK(files_in(caches.repository() / "blobs") == 1);
}

TEST_CASE("two programs that pull one file download it once") {
  SmallHub hub([](const HubRequest&) { return Fault::slow; });
  const Caches caches(hub);
  const std::string text = random_bytes(10'000'000, 5);
  hub.put("m.gguf", text);
  const Result result = shell(
      "sluice pull -q hf:o/r/m.gguf & sluice pull -q hf:o/r/m.gguf & sluice pull -q hf:o/r/m.gguf\n"
      "wait");
  CHECK(result.errors.empty());
  CHECK(hub.sent_bytes() == text.size());
  CHECK(std::ranges::count(result.output, '\n') == 3);
  CHECK(content(caches.blob(text)) == text);
}

TEST_CASE("a lock whose file was removed while it was waited for is none") {
  SmallHub hub;
  const Caches caches(hub);
  const std::string text = random_bytes(9'000'000, 7);
  hub.put("m.gguf", text);
  const fs::path lock = caches.folder.file("m.lock");
  const auto open_lock = [&](int flags) {
    return base::Descriptor(::open(lock.c_str(), O_RDWR | O_CLOEXEC | flags, 0600));
  };
  base::Descriptor other = open_lock(O_CREAT);
  REQUIRE(::flock(other.number(), LOCK_EX) == 0);
  fetch::WebOptions options;
  options.on_retry = [&](const std::string&) {
    fs::remove(lock);
    other.close();
  };
  fetch::Web web(options);
  bool is_locked = true, is_watched = false;
  const fetch::RemoteFile remote{.name = "m.gguf",
                                 .url = hub.url() + "/cdn/m.gguf",
                                 .token = "",
                                 .bytes = text.size(),
                                 .sha256 = sha256_of(text),
                                 .version = ""};
  fetch::download(
      web, remote, {caches.folder.file("m.gguf"), caches.folder.file("m.incomplete"), lock},
      [&](const auto&) {
        const base::Descriptor third = open_lock(0);
        is_watched = true;
        is_locked = is_locked && third.is_open() && ::flock(third.number(), LOCK_EX | LOCK_NB) != 0;
      });
  CHECK(is_watched);
  CHECK(is_locked);
  CHECK_FALSE(other.is_open());
  CHECK(content(caches.folder.file("m.gguf")) == text);
}

TEST_CASE("a file that may not be written ends the pull in a line") {
  SmallHub hub;
  const Caches caches(hub);
  hub.put("m.gguf", random_bytes(3'000'000, 6));
  check_fails("ulimit -f 100; sluice pull hf:o/r/m.gguf", 5, "cannot write");
  check_fails("sluice pull nothing", 2, "is no reference");
  check_fails("HF_ENDPOINT=http://127.0.0.1:1 sluice pull hf:o/r/absent.gguf -q", 5, "127.0.0.1:1");
}
