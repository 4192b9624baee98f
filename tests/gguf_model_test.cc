// GGUF files on disk: the writer and its failures, split models, files that cannot be read.

#include <algorithm>
#include <array>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <span>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <vector>

#include "core/gguf/gguf.h"
#include "core/gguf/gguf_writer.h"
#include "core/gguf/quant_name.h"
#include "streaming/mapped_file.h"
#include "tests/catch.h"
#include "tests/contains.h"
#include "tests/gguf_support.h"
#include "tests/temporary_folder.h"

namespace sluice::gguf {
namespace {

// A model of `count` shards; `change` may spoil what is written into shard `index`.
struct ShardKeys {
  std::uint16_t number, count;
  std::int32_t tensors;
};

std::filesystem::path write_shards(
    const std::filesystem::path& folder, std::uint16_t count,
    const std::function<void(std::uint16_t index, ShardKeys& keys, std::string& tensor)>& change) {
  for (std::uint16_t i = 0; i < count; ++i) {
    ShardKeys keys{i, count, count};
    std::string tensor = fmt::format("blk.{}.x", i);
    change(i, keys, tensor);
    Writer writer;
    if (i == 0) writer.add("general.architecture", "llama");
    writer.add("split.no", keys.number);
    writer.add("split.count", keys.count);
    writer.add("split.tensors.count", keys.tensors);
    const std::array<std::uint64_t, 1> dims = {10u + i};
    writer.add_tensor(tensor, dims, 0);
    write_bytes(folder / fmt::format("m-{:05}-of-{:05}.gguf", i + 1, count), whole_file(writer));
  }
  return folder / fmt::format("m-{:05}-of-{:05}.gguf", 1, count);
}

constexpr auto unchanged = [](std::uint16_t, ShardKeys&, std::string&) {};

}  // namespace

TEST_CASE("a file round trip through the disk") {
  const test::TemporaryFolder folder;
  const Writer writer = small_model();
  const auto path = folder.path() / "model.gguf";
  writer.write(path, [&](std::size_t index, const Writer::Sink& sink) {
    const Bytes data(writer.tensor_bytes(index), std::byte(index + 1));
    const std::span<const std::byte> all(data);
    sink(all.first(5));
    sink(all.subspan(5));
  });
  const Model model = Model::open(path);
  CHECK(model.files().size() == 1);
  CHECK(model.file_bytes() == writer.file_bytes());
  CHECK(model.file_bytes() == std::filesystem::file_size(path));
  CHECK(model.data_bytes() == writer.data_bytes());
  CHECK(model.elements() == 768 + 7 + 768);
  CHECK(model.require_tensor("output_norm.weight").bytes == 28);
  CHECK(model.find_tensor("output") == nullptr);
  CHECK_THROWS_AS(model.require_tensor("output"), ModelError);
  const streaming::MappedFile mapped(path);
  for (std::size_t i = 0; i < 3; ++i) {
    const TensorInfo& tensor = model.tensors()[i];
    CHECK(mapped.bytes()[tensor.offset] == std::byte(i + 1));
    CHECK(mapped.bytes()[tensor.offset + tensor.bytes - 1] == std::byte(i + 1));
  }
}

TEST_CASE("a model is called as its file_type says, if its weights agree, or as most of them are") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "model.gguf";
  constexpr std::uint32_t f16 = 1, q4_k = 12, q6_k = 14;
  const auto name_of = [&](std::uint64_t q4_k_rows, const auto& file_type) {
    Writer writer;
    writer.add("general.file_type", file_type);
    writer.add_tensor("a", std::array<std::uint64_t, 2>{256, q4_k_rows}, q4_k);
    writer.add_tensor("b", std::array<std::uint64_t, 2>{256, 50}, q6_k);
    write_bytes(path, whole_file(writer));
    return quant_name(Model::open(path));
  };
  CHECK(name_of(40, std::uint32_t{15}) == "Q4_K_M");
  CHECK(name_of(40, std::uint32_t{14}) == "Q4_K_S");
  CHECK(name_of(40, std::uint32_t{18}) == "Q6_K");
  CHECK(name_of(2, std::uint32_t{15}) == "Q6_K");  // next to nothing of it is Q4_K
  CHECK(name_of(40, f16) == "Q6_K");
  CHECK(name_of(400, f16) == "Q4_K");
  CHECK(name_of(40, std::uint32_t{999}) == "Q6_K");
  CHECK(name_of(40, "Q4_K_M") == "Q6_K");
}

TEST_CASE("the writer leaves no file when it fails") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "model.gguf";
  const Writer writer = small_model();
  const auto is_empty = [&] { return std::filesystem::is_empty(folder.path()); };
  const Bytes data(1000);
  const std::span<const std::byte> all(data);
  const auto wrong_size = [&](const Writer::Source& source) -> std::string {
    try {
      writer.write(path, source);
    } catch (const std::logic_error& error) {
      CHECK(is_empty());
      return error.what();
    }
    return "written";
  };
  CHECK(wrong_size([&](std::size_t, const Writer::Sink& sink) { sink(all); }) ==
        "tensor 0: 1000 bytes given, 432 expected");
  CHECK(wrong_size([&](std::size_t, const Writer::Sink& sink) { sink(all.first(432)); }) ==
        "tensor 1: 432 bytes given, 28 expected");
  CHECK(wrong_size([&](std::size_t index, const Writer::Sink& sink) {
          sink(all.first(index == 0 ? 432 : 20));
          if (index == 1) sink(all.first(9));
        }) == "tensor 1: 29 bytes given, 28 expected");
  CHECK(wrong_size([](std::size_t, const Writer::Sink&) {}) ==
        "tensor 0: 0 bytes given, 432 expected");
  CHECK_THROWS_AS(writer.write(path, [](std::size_t, const Writer::Sink&) { throw 42; }), int);
  CHECK(is_empty());
  CHECK_THROWS_AS(writer.write(folder.path() / "absent" / "x.gguf", {}), std::system_error);
  CHECK_THROWS_AS(writer.write(folder.path(), {}), std::system_error);
}

TEST_CASE("a device is written to, and stays one") {
  const Writer writer = small_model();
  writer.write("/dev/null", [&](std::size_t index, const Writer::Sink& sink) {
    sink(Bytes(writer.tensor_bytes(index)));
  });
  CHECK(std::filesystem::is_character_file("/dev/null"));
}

TEST_CASE("a failed rewrite keeps the old file") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "model.gguf";
  write_bytes(path, whole_file(small_model()));
  CHECK_THROWS_AS(small_model().write(path, [](std::size_t, const Writer::Sink&) { throw 42; }),
                  int);
  CHECK_NOTHROW(Model::open(path));
}

TEST_CASE("the writer refuses what has no layout") {
  Writer writer;
  const std::array<std::uint64_t, 1> odd = {33};
  CHECK_THROWS_AS(writer.add_tensor("x", odd, 2), std::invalid_argument);
  CHECK_THROWS_AS(writer.add_tensor("x", odd, 4), std::invalid_argument);
  CHECK_THROWS_AS(writer.add_tensor("x", {}, 0), std::invalid_argument);
  const std::array<std::uint64_t, 5> five = {1, 1, 1, 1, 1};
  CHECK_THROWS_AS(writer.add_tensor("x", five, 0), std::invalid_argument);
  CHECK_NOTHROW(writer.add_tensor("x", std::span(five).first(4), 0));
  // The rows alone are 0 in 64 bits.
  constexpr std::uint64_t many = std::uint64_t{1} << 32;
  for (const auto& dims : {std::array<std::uint64_t, 3>{1, many, many}, {many, many, 1}}) {
    CHECK_THROWS_AS(writer.add_tensor("x", dims, 0), std::invalid_argument);
  }
}

TEST_CASE("a split model opens as one") {
  const test::TemporaryFolder folder;
  const auto first = write_shards(folder.path(), 3, unchanged);
  const Model model = Model::open(first);
  REQUIRE(model.files().size() == 3);
  REQUIRE(model.tensors().size() == 3);
  CHECK(model.tensors()[2].name == "blk.2.x");
  CHECK(model.tensors()[2].file == 2);
  CHECK(model.require_tensor("blk.1.x").offset == model.files()[1].data_offset);
  CHECK(model.metadata().require_string("general.architecture") == "llama");
  CHECK(model.data_bytes() == 3 * 64);
  CHECK(model.files()[1].path.filename() == "m-00002-of-00003.gguf");
}

TEST_CASE("shards that do not belong together are errors") {
  const test::TemporaryFolder folder;
  const auto error_of = [&](const std::filesystem::path& path) {
    const std::string message = lookup_error([&] { Model::open(path); });
    UNSCOPED_INFO(message);
    return message;
  };
  SECTION("a later shard names the first") {
    write_shards(folder.path(), 3, unchanged);
    const auto second = folder.path() / "m-00002-of-00003.gguf", other = folder.path() / "m.gguf";
    CHECK(error_of(second) == second.string() + ": this is shard 2 of 3; give the first one, " +
                                  (folder.path() / "m-00001-of-00003.gguf").string());
    std::filesystem::rename(second, other);
    CHECK(error_of(other) == other.string() +
                                 ": this is shard 2 of 3; give the first one, whose "
                                 "name ends in -00001-of-00003.gguf");
  }
  SECTION("a shard is missing") {
    const auto first = write_shards(folder.path(), 3, unchanged);
    std::filesystem::remove(folder.path() / "m-00003-of-00003.gguf");
    const std::string message = error_of(first);
    CHECK(contains(message, "missing"));
    CHECK(contains(message, "m-00003-of-00003.gguf"));
  }
  SECTION("the first shard has another name") {
    const auto first = write_shards(folder.path(), 2, unchanged);
    std::filesystem::rename(first, folder.path() / "model.gguf");
    CHECK(contains(error_of(folder.path() / "model.gguf"), "rename"));
  }
  SECTION("a wrong number") {
    const auto first = write_shards(
        folder.path(), 3, [](auto i, ShardKeys& keys, auto&) { keys.number = i == 2 ? 1 : i; });
    CHECK(contains(error_of(first), "belong together"));
  }
  SECTION("a wrong count") {
    const auto first = write_shards(folder.path(), 3, [](auto i, ShardKeys& keys, auto&) {
      if (i == 1) keys.count = 4;
    });
    CHECK(contains(error_of(first), "belong together"));
  }
  SECTION("a number beyond the count") {
    const auto first = write_shards(folder.path(), 2, [](auto i, ShardKeys& keys, auto&) {
      if (i == 0) keys.number = 2;
    });
    CHECK(error_of(first).ends_with("'split.no': is 2, expected less than split.count, 2"));
  }
  SECTION("a count of zero") {
    const auto first =
        write_shards(folder.path(), 1, [](auto, ShardKeys& keys, auto&) { keys.count = 0; });
    CHECK(error_of(first).ends_with("'split.count': is 0, expected 1 to 65535"));
  }
  SECTION("a count that no file has") {
    Writer writer;
    writer.add("split.count", std::uint32_t{65536});
    write_bytes(folder.path() / "m.gguf", whole_file(writer));
    CHECK(error_of(folder.path() / "m.gguf").ends_with("is 65536, expected 1 to 65535"));
  }
  SECTION("a wrong number of tensors") {
    const auto first =
        write_shards(folder.path(), 2, [](auto, ShardKeys& keys, auto&) { keys.tensors = 3; });
    CHECK(
        error_of(first).ends_with("'split.tensors.count': is 3, but the 2 shards have 2 tensors"));
  }
  SECTION("the same tensor in two shards") {
    const auto first = write_shards(
        folder.path(), 2, [](auto, ShardKeys&, std::string& tensor) { tensor.resize(3); });
    CHECK(contains(error_of(first), "occurs twice"));
  }
}

TEST_CASE("tensors that are larger than any model together are refused where only headers are") {
  const test::TemporaryFolder folder;
  const auto write = [&](std::uint16_t count, std::uint64_t shard_bytes) {
    for (std::uint16_t i = 0; i < count; ++i) {
      Writer writer;
      writer.add("split.no", i);
      writer.add("split.count", count);
      writer.add("split.tensors.count", std::int32_t{count});
      const std::array<std::uint64_t, 2> dims = {1024, shard_bytes / 4096};
      writer.add_tensor(fmt::format("blk.{}.x", i), dims, 0);
      write_bytes(folder.path() / fmt::format("m-{:05}-of-{:05}.gguf", i + 1, count),
                  writer.header());
    }
    return Model::open(folder.path() / fmt::format("m-{:05}-of-{:05}.gguf", 1, count),
                       {.header_only = true});
  };
  const Model largest = write(4, data_bytes_max / 4);
  CHECK(largest.data_bytes() == data_bytes_max);
  CHECK(largest.elements() == data_bytes_max / 4);
  const std::string message = lookup_error([&] { write(5, data_bytes_max / 4); });
  INFO(message);
  CHECK(contains(message, "m-00005-of-00005.gguf: tensor 'blk.4.x'"));
  // Eight times 2^61 bytes are 0 in 64 bits.
  CHECK(contains(lookup_error([&] { write(8, std::uint64_t{1} << 61); }), "'blk.0.x'"));
}

TEST_CASE("a file that cannot be read is an I/O error that names it") {
  const test::TemporaryFolder folder;
  for (const auto& path : {folder.path() / "absent.gguf", folder.path()}) {
    try {
      Model::open(path);
      FAIL("opened");
    } catch (const std::system_error& error) {
      CHECK(contains(error.what(), path.string()));
    }
  }
  const auto pipe = folder.path() / "pipe.gguf";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK_THROWS_WITH(Model::open(pipe),
                    test::Contains(pipe.string() + ": a model is read in several places"));
  const auto empty = folder.path() / "empty.gguf";
  write_bytes(empty, {});
  CHECK(streaming::MappedFile(empty).bytes().empty());
  CHECK_THROWS_AS(Model::open(empty), ModelError);
}

TEST_CASE("a model does not change when its file does") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "model.gguf";
  const Writer writer = small_model();
  writer.write(path, [&](std::size_t index, const Writer::Sink& sink) {
    sink(Bytes(writer.tensor_bytes(index)));
  });
  const Model model = Model::open(path);
  const std::string name(model.tensors().front().name);
  std::filesystem::resize_file(path, 0);  // a mapping would raise SIGBUS from here on
  CHECK(model.tensors().front().name == name);
  CHECK(model.metadata().entries().size() > 0);
  CHECK(model.find_tensor(name) == &model.tensors().front());
}

TEST_CASE("a file that is replaced after its header was read is not taken for the same") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "model.gguf";
  write_bytes(path, whole_file(small_model()));
  const Model model = Model::open(path);
  const ModelFile& file = model.files()[0];
  CHECK_NOTHROW(file.require_same(HeaderBytes(path).identity()));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) + 1);
  const base::FileIdentity later = HeaderBytes(path).identity();
  CHECK_THROWS_WITH(file.require_same(later),
                    test::Contains(path.string() + " was replaced or written to"));
}

TEST_CASE("a header is read no farther than it goes") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "large.gguf";
  write_bytes(path, Bytes(1000, std::byte{1}));
  std::filesystem::resize_file(path, std::uint64_t{1} << 40);  // a hole
  HeaderBytes header(path);
  CHECK(header.bytes().size() == std::uint64_t{1} << 40);
  header.read_to(1001);
  header.finish();
  CHECK(header.bytes()[999] == std::byte{1});
  CHECK(header.bytes()[1000] == std::byte{0});

  HeaderBytes shrinking(path);
  std::filesystem::resize_file(path, 500);
  CHECK_THROWS_AS(shrinking.read_to(1000), std::system_error);
}

TEST_CASE("a header that outgrows its addresses says so, and a model's is read all the same") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "file";
  write_bytes(path, Bytes(std::size_t{1} << 20, std::byte{1}));
  HeaderBytes small(path, std::size_t{300} << 10);  // two pieces
  small.read_to(std::size_t{512} << 10);
  CHECK(small.bytes()[(std::size_t{512} << 10) - 1] == std::byte{1});
  CHECK_THROWS_AS(small.read_to((std::size_t{512} << 10) + 1), HeaderBytes::Outgrown);

  const std::string text(std::size_t{70} << 20, 'x');
  Writer writer;
  writer.add("general.architecture", "none");
  writer.add("a.text", std::string_view(text));
  writer.add("a.last", std::uint32_t{7});
  writer.write(path, [](std::size_t, const Writer::Sink&) {});
  const Model model = Model::open(path);
  CHECK(model.metadata().require_string("a.text") == text);
  CHECK(model.metadata().require_u32("a.last") == 7);
}

TEST_CASE("a text as long as a large file is not read into memory") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "large.gguf";
  constexpr std::uint64_t claimed = std::uint64_t{300} << 20;
  Writer writer;
  writer.add("a.text", "");
  Bytes header = writer.header();
  const auto at = header.begin() + 4 + 4 + 8 + 8 + 8 + 6 + 4;  // behind the type: the length
  std::ranges::copy(std::as_bytes(std::span(&claimed, 1)), at);
  write_bytes(path, header);
  std::filesystem::resize_file(path, std::uint64_t{1} << 40);  // a hole
  const std::string message = lookup_error([&] { Model::open(path); });
  CHECK(contains(message, "the header reaches to byte 314572850, expected at most 268435456"));
}

TEST_CASE("a moved mapping keeps its bytes") {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "x";
  const Bytes bytes(10000, std::byte{7});
  write_bytes(path, bytes);
  streaming::MappedFile first(path);
  const auto* address = first.bytes().data();
  const streaming::MappedFile second(std::move(first));
  CHECK(second.bytes().data() == address);
  CHECK(second.bytes().size() == bytes.size());
  CHECK(second.bytes().back() == std::byte{7});
  CHECK(second.path() == path);
}

}  // namespace sluice::gguf
