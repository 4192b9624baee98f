// The folder of a prompt cache: what was written is read back, whatever is damaged or foreign is
// found out, and nothing half-written is ever seen.
#include "core/engine/page_store.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <iterator>
#include <random>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "core/engine/model_key.h"
#include "core/error.h"
#include "core/gguf/gguf_writer.h"
#include "tests/catch.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using namespace sluice::engine;
using sluice::test::files_in;
using sluice::test::TemporaryFolder;
using sluice::tokenizer::Token;
using Bytes = std::vector<std::byte>;

const std::vector<Token> tokens = {1, -2, 300000, 4, 5};

Bytes random_bytes(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xFFU);
  return bytes;
}

// A store that keeps its warnings.
struct Store {
  explicit Store(const fs::path& folder, std::uint64_t bytes_max = 1U << 30)
      : store(folder, bytes_max, [this](const std::string& line) { warnings.push_back(line); }) {}

  // The payload lies in two places that are not next to each other.
  void write(const PageKey& key, const Bytes& payload) const {
    const std::span<const std::byte> all(payload);
    const std::array<std::span<const std::byte>, 2> parts = {all.first(payload.size() / 3),
                                                             all.subspan(payload.size() / 3)};
    store.write(key, tokens, parts);
  }

  std::optional<Bytes> read(const PageKey& key, std::size_t size,
                            const std::vector<Token>& of = tokens) const {
    Bytes first(size / 2), second(size - size / 2);
    const std::array<std::span<std::byte>, 2> parts = {first, second};
    if (!store.read(key, of, parts)) return std::nullopt;
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }

  std::vector<std::string> warnings;
  PageStore store;
};

PageKey key_of(unsigned number) {
  return PageKey().derive(std::as_bytes(std::span(&number, 1)));
}

Bytes content(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void put(const fs::path& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
}

}  // namespace

TEST_CASE("keys depend on everything they are derived from") {
  const std::vector<Token> a = {1, 2, 3}, b = {1, 2, 4};
  const PageKey root = key_of(1);
  CHECK(root.derive(a) == root.derive(a));
  CHECK_FALSE(root.derive(a) == root.derive(b));
  CHECK_FALSE(root.derive(a) == key_of(2).derive(a));
  CHECK_FALSE(root.derive(a).derive(b) == root.derive(b).derive(a));
  CHECK(root.text().size() == 32);
  // RFC 4122, appendix B as corrected by erratum 1428, has the DNS name space; this is Python's
  // uuid5(NAMESPACE_DNS, "python.org").
  const PageKey dns{{0x6b, 0xa7, 0xb8, 0x10, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0x00, 0xc0, 0x4f,
                     0xd4, 0x30, 0xc8}};
  const std::string name = "python.org";
  CHECK(dns.derive(std::as_bytes(std::span(name))).text() == "886313e13b8a53729b900c9aee199e5d");
}

TEST_CASE("a model's key stands for its headers, its sizes and samples of its tensors") {
  namespace gguf = sluice::gguf;
  const TemporaryFolder folder;
  fs::path path = folder / "model.gguf";
  // As large as all samples together; one element more; and with gaps between the samples.
  constexpr std::uint64_t elements[] = {8192, 8193, 40'001};
  gguf::Writer writer;
  writer.add("general.architecture", "llama");
  writer.add("a.text", std::string(150'000, 'x'));  // a header has more than is read at a time
  for (const std::uint64_t count : elements) {
    writer.add_tensor("x" + std::to_string(count), {&count, 1}, 0);
  }
  writer.write(path, [&](std::size_t index, const gguf::Writer::Sink& sink) {
    sink(random_bytes(writer.tensor_bytes(index), static_cast<unsigned>(index)));
  });
  const auto key = [&] { return model_key(gguf::Model::open(path)); };
  const PageKey before = key();
  const auto change = [&](std::uint64_t offset) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(offset));
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(byte);
  };
  const auto is_noticed = [&](std::uint64_t offset) {
    change(offset);
    const bool is_other = !(key() == before);
    change(offset);
    return is_other;
  };
  const gguf::Model model = gguf::Model::open(path);
  for (const gguf::TensorInfo& tensor : model.tensors()) {
    INFO(tensor.name);
    for (const std::uint64_t at : {std::uint64_t{0}, tensor.bytes / 3, tensor.bytes - 1}) {
      const bool is_whole = tensor.bytes <= tensor_samples * tensor_sample_bytes;
      if (is_whole || at != tensor.bytes / 3) CHECK(is_noticed(tensor.offset + at));
    }
  }
  const gguf::TensorInfo& large = model.tensors()[2];
  const std::uint64_t last = large.bytes - tensor_sample_bytes;
  for (std::uint64_t i = 0; i < tensor_samples; ++i) {
    INFO("sample " << i);
    const std::uint64_t begin =
        large.offset + (i + 1 == tensor_samples ? last : last / (tensor_samples - 1) * i);
    CHECK(is_noticed(begin));
    CHECK(is_noticed(begin + tensor_sample_bytes - 1));
    if (i != 0) CHECK_FALSE(is_noticed(begin - 1));
    if (i + 1 != tensor_samples) CHECK_FALSE(is_noticed(begin + tensor_sample_bytes));
  }
  CHECK(key() == before);
  const std::uint64_t first_value = 24 + 8 + 20 + 4 + 8;
  for (const std::uint64_t behind : {0, 50'000, 100'000, 149'000}) {
    CHECK(is_noticed(first_value + behind));
  }
  const fs::path other = folder / "other.gguf";
  fs::copy_file(path, other);
  path = other;
  CHECK(key() == before);
  fs::resize_file(path, fs::file_size(path) + 1);
  CHECK_FALSE(key() == before);
}

TEST_CASE("what was written is read back, in other parts") {
  const TemporaryFolder folder;
  for (const std::size_t size : {0U, 1U, 5U, 4096U, 100003U}) {
    Store writer(folder.path() / "made" / "here");
    const PageKey key = key_of(static_cast<unsigned>(size));
    CHECK_FALSE(writer.store.contains(key));
    CHECK_FALSE(writer.read(key, size));
    writer.write(key, random_bytes(size, 1));
    Store reader(folder.path() / "made" / "here");
    CHECK(reader.store.contains(key));
    CHECK(reader.read(key, size) == random_bytes(size, 1));
    CHECK(reader.warnings.empty());
    CHECK(writer.warnings.empty());
  }
}

TEST_CASE("whatever byte is changed, cut off or added, the page is passed over and made anew") {
  const TemporaryFolder folder;
  Store store(folder.path());
  const PageKey key = key_of(1);
  const fs::path file = store.store.path(key);
  constexpr std::size_t size = 300;
  store.write(key, random_bytes(size, 1));
  const Bytes whole = content(file);
  const auto check_refused = [&] {
    store.warnings.clear();
    CHECK_FALSE(store.read(key, size));
    REQUIRE(store.warnings.size() == 1);
    CHECK(store.warnings[0].find(file.string()) != std::string::npos);
    CHECK(store.warnings[0].find('\n') == std::string::npos);
    CHECK_FALSE(store.store.contains(key));
    CHECK_FALSE(store.read(key, size));  // gone, and no further warning
    CHECK(store.warnings.size() == 1);
  };
  for (std::size_t i = 0; i < whole.size(); ++i) {
    Bytes flipped = whole;
    flipped[i] ^= static_cast<std::byte>(1U << (i % 8));
    put(file, flipped);
    check_refused();
  }
  for (std::size_t length = 0; length < whole.size(); length += 7) {
    put(file, std::span(whole).first(length));
    check_refused();
  }
  Bytes longer = whole;
  longer.push_back(std::byte{0});
  put(file, longer);
  check_refused();
  put(file, random_bytes(whole.size(), 9));
  check_refused();
  store.write(key, random_bytes(size, 1));
  CHECK(store.read(key, size) == random_bytes(size, 1));
}

TEST_CASE("a page that cannot be opened for want of descriptors stays") {
  if (sluice::test::is_sanitized) SLUICE_SKIP("the undefined sanitizer needs descriptors itself");
  const TemporaryFolder folder;
  Store store(folder.path());
  const PageKey key = key_of(1);
  store.write(key, random_bytes(100, 1));
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit none{0, limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const bool is_read = store.read(key, 100).has_value();
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK_FALSE(is_read);
  CHECK(store.warnings.size() == 1);
  CHECK(store.read(key, 100) == random_bytes(100, 1));
}

TEST_CASE("a page of something else is passed over, though it is sound") {
  const TemporaryFolder folder;
  Store store(folder.path());
  store.write(key_of(1), random_bytes(100, 1));
  fs::copy_file(store.store.path(key_of(1)), store.store.path(key_of(2)));
  CHECK_FALSE(store.read(key_of(2), 100));
  CHECK(store.read(key_of(1), 100));
  CHECK(store.warnings.size() == 1);
  CHECK_FALSE(store.read(key_of(1), 100, {1, -2, 300000, 4, 6}));
  store.write(key_of(1), random_bytes(100, 1));
  CHECK_FALSE(store.read(key_of(1), 99));
  fs::create_directory(store.store.path(key_of(3)));
  CHECK_FALSE(store.store.contains(key_of(3)));
  CHECK_FALSE(store.read(key_of(3), 100));
}

TEST_CASE("the pages used longest ago go first, and of one prefix the last") {
  const TemporaryFolder folder;
  Store store(folder.path(), 0);
  std::vector<PageKey> keys;
  for (unsigned i = 0; i < 6; ++i) {
    keys.push_back(key_of(i));
    store.write(keys[i], random_bytes(1000, i));
  }
  const std::uint64_t page_bytes = fs::file_size(store.store.path(keys[0]));
  const std::span<const PageKey> all(keys);
  store.store.touch(all.first(3));    // a prefix of three pages,
  ::usleep(2000);                     // and later
  store.store.touch(all.subspan(3));  // another one
  put(folder.path() / "not ours", random_bytes(100000, 1));
  // The order in which they go.
  const std::vector<unsigned> order = {2, 1, 0, 5, 4, 3};
  for (std::size_t gone = 0; gone <= order.size(); ++gone) {
    const std::uint64_t room = page_bytes * (order.size() - gone) + page_bytes / 2;
    Store(folder.path(), room).store.trim();
    for (std::size_t i = 0; i < order.size(); ++i) {
      INFO(gone << " " << i);
      CHECK(store.store.contains(keys[order[i]]) == (i >= gone));
    }
  }
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("a full store keeps to its limit without counting its pages after each one") {
  const TemporaryFolder folder;
  constexpr std::uint64_t page_bytes = 1000, room = 1000 * page_bytes;
  Store store(folder.path(), room);
  for (unsigned i = 0; i < 1000; ++i) put(store.store.path(key_of(i)), random_bytes(page_bytes, i));
  // Each time that pages are counted, what somebody has left is removed.
  const std::string left = store.store.path(key_of(0)).string() + ".partial-1";
  std::size_t counted = 0;
  for (unsigned i = 1000; i < 1090; ++i) {
    store.write(key_of(i), random_bytes(page_bytes, i));
    put(left, random_bytes(10, 1));
    fs::last_write_time(left, fs::file_time_type::clock::now() - std::chrono::hours(1));
    store.store.trim_if_due();
    counted += fs::exists(left) ? 0 : 1;
    fs::remove(left);
    std::uint64_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(folder.path())) bytes += entry.file_size();
    CHECK(bytes <= room);
    CHECK(bytes > room * 9 / 10);
    CHECK(store.store.contains(key_of(i)));
  }
  CHECK(counted > 2);
  CHECK(counted < 30);
}

TEST_CASE("what a killed process left is removed when it is old") {
  const TemporaryFolder folder;
  Store store(folder.path());
  store.write(key_of(1), random_bytes(10, 1));
  const std::string page = store.store.path(key_of(2)).string();
  put(page + ".partial-1", random_bytes(10, 1));
  put(page + ".partial-2", random_bytes(10, 1));
  fs::last_write_time(page + ".partial-1",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  store.store.trim();
  CHECK_FALSE(fs::exists(page + ".partial-1"));
  CHECK(fs::exists(page + ".partial-2"));
  CHECK(store.store.contains(key_of(1)));
}

TEST_CASE("a process that is killed at any moment of writing leaves no bad page") {
  const TemporaryFolder folder;
  constexpr std::size_t size = 200000;
  constexpr unsigned pages = 40;
  std::mt19937 random(3);
  for (int round = 0; round < 12; ++round) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      const PageStore store(folder.path(), 1U << 30, [](const std::string&) {});
      for (unsigned i = 0;; i = (i + 1) % pages) {
        const Bytes payload = random_bytes(size, i);
        const std::array<std::span<const std::byte>, 1> parts = {payload};
        store.write(key_of(i), tokens, parts);
      }
    }
    ::usleep(1000 + static_cast<useconds_t>(random() % 30000));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status));  // it did not end on its own account
    Store store(folder.path());
    for (unsigned i = 0; i < pages; ++i) {
      const auto read = store.read(key_of(i), size);
      CHECK((!read || *read == random_bytes(size, i)));
    }
    CHECK(store.warnings.empty());
  }
}

TEST_CASE("processes share a folder") {
  const TemporaryFolder folder;
  constexpr std::size_t size = 20000;
  constexpr unsigned pages = 8;
  std::array<pid_t, 3> children{};
  for (pid_t& child : children) {
    child = ::fork();
    REQUIRE(child >= 0);
    if (child != 0) continue;
    // Each reads, writes and removes the same pages; whatever is read must be right.
    Store store(folder.path(), size * pages / 2);
    bool is_right = true;
    for (unsigned i = 0; i < 10 * pages; ++i) {
      const PageKey key = key_of(i % pages);
      const auto read = store.read(key, size);
      is_right = is_right && (!read || *read == random_bytes(size, i % pages));
      if (!read) store.write(key, random_bytes(size, i % pages));
      store.store.trim();
    }
    ::_exit(is_right && store.warnings.empty() ? 0 : 1);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
  }
}

TEST_CASE("a prompt cache is for its owner alone") {
  const TemporaryFolder folder;
  const fs::path cache = folder.path() / "made" / "here";
  const auto mode_of = [](const fs::path& path) {
    return static_cast<unsigned>(fs::status(path).permissions());
  };
  const auto refusal = [&] {
    try {
      const Store store(cache);
      return std::string();
    } catch (const sluice::UsageError& error) {
      return std::string(error.what());
    }
  };
  const mode_t mask = ::umask(0);
  const PageKey key = key_of(1);
  {
    const Store store(cache / "");
    store.write(key, random_bytes(100, 1));
    CHECK(mode_of(cache) == 0700);
    CHECK(mode_of(store.store.path(key)) == 0600);
  }
  for (const unsigned mode : {0701U, 0710U, 0740U, 0777U, 0755U, 0770U}) {
    fs::permissions(cache, fs::perms(mode));
    CHECK(refusal().starts_with(cache.string() + " is open to other users"));
    CHECK(mode_of(cache) == mode);
  }
  fs::permissions(cache, fs::perms::owner_all);
  Store store(cache);
  CHECK(store.read(key, 100));
  // A page that others could read or change, or that lies elsewhere.
  const fs::path page = store.store.path(key);
  for (const unsigned mode : {0644U, 0620U, 0602U}) {
    fs::permissions(page, fs::perms(mode));
    store.warnings.clear();
    CHECK_FALSE(store.read(key, 100));
    CHECK(store.warnings.size() == 1);
    CHECK_FALSE(fs::exists(page));
    store.write(key, random_bytes(100, 1));
  }
  fs::rename(page, folder.path() / "elsewhere");
  fs::create_symlink(folder.path() / "elsewhere", page);
  CHECK_FALSE(store.read(key, 100));
  CHECK(fs::exists(folder.path() / "elsewhere"));
  fs::create_symlink(folder.path() / "elsewhere", page);
  store.write(key, random_bytes(200, 2));
  CHECK_FALSE(fs::is_symlink(page));
  CHECK(store.read(key, 200));
  ::umask(mask);
  if (::geteuid() != 0) return;  // only root can give a folder away
  REQUIRE(::chown(cache.c_str(), 1, static_cast<gid_t>(-1)) == 0);
  CHECK(refusal().find("another user") != std::string::npos);
}

TEST_CASE("a folder that cannot be one is an error that names it") {
  const TemporaryFolder folder;
  put(folder.path() / "file", {});
  for (const char* bad : {"file", "file/below"}) {
    std::string what;
    try {
      Store(folder.path() / bad);
    } catch (const std::system_error& error) {
      what = error.what();
    }
    CHECK(what.find(bad) != std::string::npos);
  }
}
