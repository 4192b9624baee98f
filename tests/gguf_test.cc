// The GGUF reader against files that the writer made, against every hostile file at hand, and
// against systematic damage. Damage must end in acceptance or a ModelError; that nothing else
// happens is what the sanitizer builds of this test add.

#include "core/gguf/gguf.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "core/gguf/gguf_writer.h"
#include "core/gguf/tensor_type.h"
#include "kernels/block_formats.h"
#include "tests/catch.h"
#include "tests/gguf_support.h"

namespace sluice::gguf {
namespace {

template <typename T>
T random_value(std::mt19937_64& random) {
  if constexpr (std::same_as<T, bool>) {
    return random() % 2 != 0;
  } else {
    const std::uint64_t bits = random();
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    return value;
  }
}

template <>
float random_value<float>(std::mt19937_64& random) {
  return static_cast<float>(static_cast<double>(random()) / 3.7e12);
}

template <>
double random_value<double>(std::mt19937_64& random) {
  return static_cast<double>(random()) / 3.7e12;
}

template <>
std::string random_value<std::string>(std::mt19937_64& random) {
  std::string text(random() % 40, ' ');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

using Array =
    std::variant<std::vector<std::uint8_t>, std::vector<std::int8_t>, std::vector<std::uint16_t>,
                 std::vector<std::int16_t>, std::vector<std::uint32_t>, std::vector<std::int32_t>,
                 std::vector<float>, std::vector<std::string>, std::vector<std::uint64_t>,
                 std::vector<std::int64_t>, std::vector<double>>;

// True when accepted. Anything but a ModelError with the file's name in it fails the test.
bool accepts(std::span<const std::byte> bytes, const ParseOptions& options = {}) {
  try {
    parse_header(bytes, "memory.gguf", options);
    return true;
  } catch (const ModelError& error) {
    if (std::string(error.what()).find("memory.gguf") == std::string::npos) {
      FAIL("no file name in: " << error.what());
    }
    return false;
  }
}

std::string rejection(std::span<const std::byte> bytes) {
  try {
    parse_header(bytes, "memory.gguf");
  } catch (const ModelError& error) {
    return error.what();
  }
  FAIL("accepted");
  return {};
}

}  // namespace

TEST_CASE("metadata of every type comes back as written") {
  const Bytes bytes = whole_file(small_model());
  const Header header = parse_header(bytes, "memory.gguf");
  const Metadata& metadata = header.metadata;
  CHECK(header.version == 3);
  CHECK(metadata.entries().size() == 17);
  CHECK(metadata.entries()[1].key == "a.u8");
  CHECK(metadata.require_string("general.architecture") == "llama");
  CHECK(metadata.require_uint("a.u8") == 200);
  CHECK(metadata.require_int("a.i8") == -100);
  CHECK(metadata.require_uint("a.u16") == 60000);
  CHECK(metadata.require_int("a.i16") == -30000);
  CHECK(metadata.require_u32("a.u32") == 4000000000);
  CHECK(metadata.require_int("a.i32") == -2000000000);
  CHECK(metadata.require_uint("a.u64") == std::uint64_t{1} << 63);
  CHECK(metadata.require_int("a.i64") == std::numeric_limits<std::int64_t>::min());
  CHECK(metadata.require_f32("a.f32") == 1.5f);
  CHECK(metadata.require_f32("a.f64") == 2.5f);
  CHECK(metadata.require_bool("a.bool"));
  const StringArray strings = metadata.require_strings("a.strings");
  const std::vector<std::string_view> list(strings.begin(), strings.end());
  CHECK(list == std::vector<std::string_view>{"", "one", "two words"});
  CHECK(metadata.require_floats("a.floats")[1] == -3.0f);
  CHECK(metadata.require_integers("a.bools")[2] == 1);
  CHECK(metadata.require_integers("a.u64s")[2] == std::int64_t{1} << 62);
  CHECK(metadata.require_integers("a.empty").empty());
  CHECK_FALSE(metadata.find_uint("absent"));
  CHECK_FALSE(metadata.find_strings("absent"));
  CHECK(metadata.find("absent") == nullptr);
}

TEST_CASE("values that are copied to another file are the same bytes there") {
  const Bytes bytes = small_model().header();
  const Header header = parse_header(bytes, "memory.gguf", {.header_only = true});
  Writer copy;
  for (const Metadata::Entry& entry : header.metadata.entries()) copy.add(entry.key, entry.value);
  for (const TensorInfo& tensor : header.tensors) {
    copy.add_tensor(tensor.name, std::span(tensor.dims).first(tensor.rank), tensor.type);
  }
  CHECK(copy.header() == bytes);
}

TEST_CASE("random arrays of every type come back as written") {
  std::mt19937_64 random(11);
  for (int round = 0; round < 50; ++round) {
    std::map<std::string, Array> arrays;
    Writer writer;
    for (int i = 0; i < 20; ++i) {
      // Keys of every length put the values at every alignment.
      const std::string key = fmt::format("{}{}", std::string(random() % 17, 'k'), i);
      const auto fill = [&]<typename T>(std::vector<T> values) {
        values.resize(random() % 30);
        for (T& value : values) value = random_value<T>(random);
        writer.add_array(key, std::span<const T>(values));
        arrays[key] = values;
      };
      switch (random() % 11) {
        case 0:
          fill(std::vector<std::uint8_t>());
          break;
        case 1:
          fill(std::vector<std::int8_t>());
          break;
        case 2:
          fill(std::vector<std::uint16_t>());
          break;
        case 3:
          fill(std::vector<std::int16_t>());
          break;
        case 4:
          fill(std::vector<std::uint32_t>());
          break;
        case 5:
          fill(std::vector<std::int32_t>());
          break;
        case 6:
          fill(std::vector<float>());
          break;
        case 7:
          fill(std::vector<std::string>());
          break;
        case 8:
          fill(std::vector<std::uint64_t>());
          break;
        case 9:
          fill(std::vector<std::int64_t>());
          break;
        case 10:
          fill(std::vector<double>());
          break;
      }
    }
    const Bytes bytes = writer.header();
    const Header header = parse_header(bytes, "memory.gguf");
    REQUIRE(header.metadata.entries().size() == arrays.size());
    for (const auto& entry : arrays) {
      const std::string& key = entry.first;  // clang 14 cannot capture a structured binding
      std::visit(
          [&]<typename T>(const std::vector<T>& values) {
            const Value& value = header.metadata.require(key);
            REQUIRE(value.is_array());
            REQUIRE(value.count() == values.size());
            if constexpr (std::same_as<T, std::string>) {
              const StringArray strings(value);
              REQUIRE(std::vector<std::string>(strings.begin(), strings.end()) == values);
            } else {
              REQUIRE(value.element_type() == value_type_of<T>());
              REQUIRE(value.bytes().size() == values.size() * sizeof(T));
              REQUIRE(std::equal(value.bytes().begin(), value.bytes().end(),
                                 std::as_bytes(std::span(values)).begin()));
            }
            if constexpr (std::same_as<T, float>) {
              const FloatArray floats = header.metadata.require_floats(key);
              for (std::size_t i = 0; i < values.size(); ++i) REQUIRE(floats[i] == values[i]);
            }
            if constexpr (std::integral<T> && !std::same_as<T, std::uint64_t>) {
              const IntegerArray integers = header.metadata.require_integers(key);
              for (std::size_t i = 0; i < values.size(); ++i) {
                REQUIRE(integers[i] == static_cast<std::int64_t>(values[i]));
              }
            }
          },
          entry.second);
    }
  }
}

TEST_CASE("a value of another type is an error that says what was found and expected") {
  const Bytes bytes = whole_file(small_model());
  const Header header = parse_header(bytes, "memory.gguf");
  const Metadata& metadata = header.metadata;
  const auto check = [](const std::string& message, std::vector<std::string> parts) {
    parts.emplace_back("memory.gguf: key 'a.");
    for (const std::string& part : parts) {
      INFO(message);
      CHECK(contains(message, part));
    }
  };
  check(lookup_error([&] { metadata.find_uint("a.f32"); }),
        {"found f32", "expected an integer", "at byte"});
  check(lookup_error([&] { metadata.find_f32("a.u32"); }), {"found u32", "expected f32"});
  check(lookup_error([&] { metadata.find_bool("a.u8"); }), {"found u8", "expected bool"});
  check(lookup_error([&] { metadata.find_string("a.strings"); }),
        {"found array of 3 string", "expected string"});
  check(lookup_error([&] { metadata.find_strings("a.floats"); }),
        {"found array of 2 f32", "expected array of string"});
  check(lookup_error([&] { metadata.find_floats("a.u64s"); }),
        {"found array of 3 u64", "expected array of f32"});
  check(lookup_error([&] { metadata.find_floats("a.f32"); }), {"found f32"});
  check(lookup_error([&] { metadata.find_f32("a.floats"); }), {"found array of 2 f32"});
  check(lookup_error([&] { metadata.find_integers("a.u32"); }),
        {"found u32", "expected array of integers"});
  check(lookup_error([&] { metadata.find_string("a.strings"); }), {"found array of 3 string"});
  CHECK(lookup_error([&] {
          metadata.find_strings("general.architecture");
        }).ends_with("expected array of string"));
  check(lookup_error([&] { metadata.find_integers("a.floats"); }),
        {"found array of 2 f32", "expected array of integers"});
  check(lookup_error([&] { metadata.find_uint("a.i8"); }), {"-100"});
  check(lookup_error([&] { metadata.find_int("a.u64"); }), {"9223372036854775808"});
  check(lookup_error([&] { metadata.find_u32("a.u64"); }), {"4294967295"});
  const auto missing = [&](const auto& require) {
    const std::string message = lookup_error(require);
    const std::string begin = "memory.gguf: key 'a.absent': is missing, expected ";
    REQUIRE(message.starts_with(begin));
    return message.substr(begin.size());
  };
  CHECK(missing([&] { metadata.require("a.absent"); }) == "a value");
  CHECK(missing([&] { metadata.require_uint("a.absent"); }) == "an integer");
  CHECK(missing([&] { metadata.require_int("a.absent"); }) == "an integer");
  CHECK(missing([&] { metadata.require_u32("a.absent"); }) == "an integer");
  CHECK(missing([&] { metadata.require_f32("a.absent"); }) == "f32");
  CHECK(missing([&] { metadata.require_bool("a.absent"); }) == "bool");
  CHECK(missing([&] { metadata.require_string("a.absent"); }) == "string");
  CHECK(missing([&] { metadata.require_strings("a.absent"); }) == "array of string");
  CHECK(missing([&] { metadata.require_integers("a.absent"); }) == "array of integers");
  CHECK(missing([&] { metadata.require_floats("a.absent"); }) == "array of f32");
}

TEST_CASE("numbers that do not fit are errors") {
  constexpr std::uint64_t int64_max = std::numeric_limits<std::int64_t>::max();
  constexpr float f32_max = std::numeric_limits<float>::max();
  Writer writer;
  writer.add("u32", std::uint64_t{0xFFFFFFFF});
  writer.add("no.u32", std::uint64_t{0x100000000});
  writer.add("i64", int64_max);
  writer.add("no.i64", int64_max + 1);
  writer.add("no.uint", std::int8_t{-1});
  writer.add("f32", double{-f32_max});
  writer.add("no.f32", std::nextafter(double{f32_max}, 1e300));
  writer.add("infinite", std::numeric_limits<double>::infinity());
  writer.add("not.a.number", std::numeric_limits<double>::quiet_NaN());
  const std::vector<std::uint64_t> fits = {1, int64_max}, beyond = {1, 2, int64_max + 1};
  writer.add_array("u64s", std::span<const std::uint64_t>(fits));
  writer.add_array("no.u64s", std::span<const std::uint64_t>(beyond));
  const Bytes bytes = writer.header();
  const Metadata metadata = parse_header(bytes, "memory.gguf").metadata;
  CHECK(metadata.find_u32("u32") == 0xFFFFFFFF);
  CHECK(metadata.find_int("i64") == std::numeric_limits<std::int64_t>::max());
  CHECK(metadata.find_uint("no.i64") == int64_max + 1);
  CHECK(metadata.find_int("no.uint") == -1);
  CHECK(metadata.find_f32("f32") == -f32_max);
  CHECK(metadata.find_f32("infinite") == std::numeric_limits<float>::infinity());
  CHECK(std::isnan(metadata.require_f32("not.a.number")));
  CHECK(metadata.require_integers("u64s")[1] == std::numeric_limits<std::int64_t>::max());

  const auto error = [&](const std::string& key, const auto& look_up) {
    const std::string message = lookup_error([&] { look_up(key); });
    INFO(message);
    CHECK(message.starts_with("memory.gguf: key '" + key + "': "));
    const std::string place =
        fmt::format(" (at byte {})", metadata.require(key).offset() + (key == "no.u64s" ? 16 : 0));
    const std::size_t at = message.find(place);
    REQUIRE(at != std::string::npos);
    return message.substr(key.size() + 21, at - key.size() - 21) +
           message.substr(at + place.size());
  };
  CHECK(error("no.u32", [&](const auto& key) { metadata.find_u32(key); }) ==
        "is 4294967296, expected at most 4294967295");
  CHECK(error("no.i64", [&](const auto& key) { metadata.find_int(key); }) ==
        "is 9223372036854775808, expected at most 9223372036854775807");
  CHECK(error("no.uint", [&](const auto& key) { metadata.find_uint(key); }) ==
        "is -1, expected no negative number");
  CHECK(error("no.f32", [&](const auto& key) {
          metadata.find_f32(key);
        }).ends_with(", expected a number in the range of f32"));
  CHECK(error("no.u64s", [&](const auto& key) { metadata.find_integers(key); }) ==
        "element 2 is above 9223372036854775807");
}

TEST_CASE("tensors lie where the writer put them") {
  const Writer writer = small_model();
  const Bytes bytes = whole_file(writer);
  const Header header = parse_header(bytes, "memory.gguf");
  REQUIRE(header.tensors.size() == 3);
  CHECK(header.data_offset % 32 == 0);
  CHECK(header.data_offset + writer.data_bytes() == bytes.size());
  const TensorInfo& cube = header.tensors[2];
  CHECK(cube.name == "blk.0.x");
  CHECK(cube.shape() == "32 x 2 x 3 x 4");
  CHECK(cube.rank == 4);
  CHECK(cube.bytes == 34u * 24);
  CHECK(cube.elements() == 768);
  CHECK(header.tensors[0].offset == header.data_offset);
  CHECK(header.tensors[0].bytes == 3u * 144);
  CHECK(header.tensors[0].dims == std::array<std::uint64_t, 4>{256, 3, 1, 1});
  CHECK(header.tensors[1].offset == header.data_offset + 448);
}

TEST_CASE("the size of every type is the published one") {
  const std::map<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>> published = {
      {0, {1, 4}},      {1, {1, 2}},      {2, {32, 18}},    {3, {32, 20}},    {6, {32, 22}},
      {7, {32, 24}},    {8, {32, 34}},    {9, {32, 36}},    {10, {256, 84}},  {11, {256, 110}},
      {12, {256, 144}}, {13, {256, 176}}, {14, {256, 210}}, {15, {256, 292}}, {16, {256, 66}},
      {17, {256, 74}},  {18, {256, 98}},  {19, {256, 50}},  {20, {32, 18}},   {21, {256, 110}},
      {22, {256, 82}},  {23, {256, 136}}, {24, {1, 1}},     {25, {1, 2}},     {26, {1, 4}},
      {27, {1, 8}},     {28, {1, 8}},     {29, {256, 56}},  {30, {1, 2}},     {34, {256, 54}},
      {35, {256, 66}},  {39, {32, 17}},   {40, {64, 36}},   {41, {128, 18}},  {42, {64, 18}},
      {142, {128, 34}}, {143, {128, 28}}};
  for (std::uint32_t type = 0; type < 300; ++type) {
    INFO("type " << type);
    const auto layout = find_type_layout(type);
    const auto expected = published.find(type);
    REQUIRE(layout.has_value() == (expected != published.end()));
    if (!layout) continue;
    CHECK(layout->elements_per_block == expected->second.first);
    CHECK(layout->bytes_per_block == expected->second.second);
    CHECK_FALSE(is_removed_type(type));
    CHECK(tensor_bytes(*layout, 1024, 3) ==
          3 * (1024u / layout->elements_per_block * layout->bytes_per_block));
  }
  for (const std::uint32_t type : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u}) {
    CHECK(is_removed_type(type));
  }
}

TEST_CASE("unknown and removed types are rejected by number") {
  const Bytes bytes = whole_file(small_model());
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t type_at = text.find("token_embd.weight") + 17 + 4 + 2 * 8;
  for (const std::uint32_t type : {4u, 33u, 38u, 43u, 97u, 4294967295u}) {
    Bytes damaged = bytes;
    std::memcpy(damaged.data() + type_at, &type, sizeof(type));
    const std::string message = rejection(damaged);
    INFO(message);
    CHECK(contains(message, fmt::format("type {}", type)));
    CHECK(contains(message, "'token_embd.weight'"));
    CHECK(contains(message, "removed") == is_removed_type(type));
  }
}

TEST_CASE("a file cut anywhere in its header is rejected") {
  const Writer writer = small_model();
  const Bytes bytes = whole_file(writer);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const Bytes cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
    // The padding behind the last tensor (816 bytes, 16 of padding) carries nothing.
    const bool is_whole = length >= bytes.size() - 16;
    REQUIRE(accepts(cut) == is_whole);
  }
}

TEST_CASE("a header alone is enough when only the header is asked for") {
  const Writer writer = small_model();
  const Bytes header = writer.header();
  CHECK_FALSE(accepts(header));
  CHECK(accepts(header, {.header_only = true}));
  Bytes unpadded = header;
  while (unpadded.back() == std::byte{0}) unpadded.pop_back();
  unpadded.resize(unpadded.size() - 1);
  CHECK_FALSE(accepts(unpadded, {.header_only = true}));
}

TEST_CASE("no damaged byte of a header does harm") {
  const Bytes bytes = whole_file(small_model());
  const std::size_t header_bytes = small_model().header().size();
  std::size_t rejected = 0;
  for (std::size_t at = 0; at < header_bytes; ++at) {
    for (const unsigned value : {0x00u, 0x01u, 0x7Fu, 0x80u, 0xFFu, 0x100u}) {
      Bytes damaged(bytes);
      damaged[at] = value == 0x100 ? damaged[at] ^ std::byte{0x10} : std::byte(value);
      if (!accepts(damaged)) ++rejected;
      accepts(damaged, {.header_only = true});
    }
  }
  CHECK(rejected > header_bytes);
}

TEST_CASE("no random damage of a header does harm") {
  std::mt19937_64 random(12);
  const Bytes bytes = whole_file(small_model());
  const std::size_t header_bytes = small_model().header().size();
  for (int round = 0; round < 20000; ++round) {
    Bytes damaged(bytes);
    for (std::uint64_t n = random() % 6; n-- > 0;) {
      const std::size_t at = random() % header_bytes;
      damaged[at] = std::byte(random());
      // Lengths and counts are eight bytes; try extreme ones.
      if (random() % 4 == 0 && at + 8 < header_bytes) {
        const std::uint64_t extreme = (random() % 3) - 1 + (std::uint64_t{1} << (random() % 64));
        std::memcpy(damaged.data() + at, &extreme, sizeof(extreme));
      }
    }
    accepts(damaged);
    accepts(damaged, {.header_only = true});
  }
}

TEST_CASE("every malformed fixture is judged as its manifest says") {
  const auto manifest = test::fixture("malformed/manifest.json");
  if (!manifest) SLUICE_SKIP("fixture malformed/manifest.json is absent");
  const auto list = nlohmann::json::parse(std::ifstream(*manifest));
  REQUIRE(list.size() > 30);
  for (const auto& entry : list) {
    const auto name = entry.at("file").get<std::string>();
    INFO(name);
    const auto path = test::fixture(fmt::format("malformed/{}", name));
    REQUIRE(path);
    bool accepted = true;
    std::string message;
    try {
      Model::open(*path);
    } catch (const ModelError& error) {
      accepted = false;
      message = error.what();
    }
    INFO(message);
    const auto expected = entry.at("expect").get<std::string>();
    // Vocabularies and hyper-parameters are for those who use them to judge.
    const bool is_contents =
        name.starts_with("vocab_") || name.starts_with("hp_") || name == "no_architecture.gguf";
    if (is_contents || expected.starts_with("accept") || name == "gap_between_tensors.gguf") {
      CHECK(accepted);
    } else {
      CHECK_FALSE(accepted);
    }
    if (!accepted) CHECK(contains(message, name));
  }
}

TEST_CASE("wrong types inside vocabularies are reported by the lookups") {
  const auto scores = test::fixture("malformed/vocab_scores_u8.gguf");
  const auto tokens = test::fixture("malformed/vocab_tokens_not_strings.gguf");
  if (!scores || !tokens) SLUICE_SKIP("fixtures malformed/vocab_*.gguf are absent");
  const Model a = Model::open(*scores);
  CHECK(contains(lookup_error([&] { a.metadata().find_floats("tokenizer.ggml.scores"); }), "u8"));
  const Model b = Model::open(*tokens);
  CHECK_THROWS_AS(b.metadata().find_strings("tokenizer.ggml.tokens"), ModelError);
}

TEST_CASE("real files open") {
  for (const char* name : {"vocab/gpt-2.gguf", "vocab/llama-bpe.gguf", "vocab/llama-spm.gguf",
                           "vocab/phi-3.gguf", "vocab/qwen2.gguf", "models/stories260K.gguf"}) {
    const auto path = test::fixture(name);
    if (!path) SLUICE_SKIP(fmt::format("fixture {} is absent", name));
    const Model model = Model::open(*path);
    const StringArray tokens = model.metadata().require_strings("tokenizer.ggml.tokens");
    std::size_t count = 0;
    for (const std::string_view token : tokens) count += token.size() < 1000 ? 1 : 0;
    CHECK(count == tokens.size());
    CHECK(count >= 512);
  }
}

TEST_CASE("overlapping tensors are rejected and gaps are not") {
  const Bytes bytes = whole_file(small_model());
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t offset_at = text.find("output_norm.weight") + 18 + 4 + 8 + 4;
  const auto with_offset = [&](std::uint64_t offset) {
    Bytes changed = bytes;
    changed.resize(changed.size() + 64);
    std::memcpy(changed.data() + offset_at, &offset, sizeof(offset));
    return changed;
  };
  CHECK(accepts(with_offset(448)));
  for (const std::uint64_t offset : {0, 32, 416, 480, 512}) {
    INFO(offset);
    const std::string message = rejection(with_offset(offset));
    CHECK(contains(message, "inside tensor"));
  }
  CHECK(accepts(with_offset(448 + 32 + 832)));  // behind the last one: leaves a gap
  CHECK(contains(rejection(with_offset(440)), "alignment"));
  CHECK(contains(rejection(with_offset(1 << 20)), "ends at byte"));
}

TEST_CASE("keys and tensor names occur once") {
  Writer keys;
  keys.add("a.b", std::uint32_t{1});
  keys.add("a.c", std::uint32_t{1});
  keys.add("a.b", std::uint32_t{1});
  CHECK(contains(rejection(keys.header()), "'a.b': occurs again"));
  Writer names;
  const std::array<std::uint64_t, 1> dims = {8};
  for (const char* name : {"x", "y", "x"}) names.add_tensor(name, dims, 0);
  CHECK(contains(rejection(whole_file(names)), "tensor 'x': the name occurs again"));
}

TEST_CASE("alignments are kept to") {
  for (const std::uint32_t alignment : {8u, 16u, 64u, 4096u}) {
    Writer writer(alignment);
    writer.add("general.alignment", alignment);
    const std::array<std::uint64_t, 1> dims = {3};
    writer.add_tensor("x", dims, 0);
    writer.add_tensor("y", dims, 0);
    const Bytes bytes = whole_file(writer);
    const Header header = parse_header(bytes, "memory.gguf");
    CHECK(header.alignment == alignment);
    CHECK(header.tensors[0].offset % alignment == 0);
    CHECK(header.tensors[1].offset == header.tensors[0].offset + align_up(12, alignment));
  }
  for (const std::uint32_t alignment : {0u, 1u, 4u, 33u, 48u}) {
    Writer writer;
    writer.add("general.alignment", alignment);
    CHECK(contains(rejection(writer.header()), "general.alignment"));
  }
}

TEST_CASE("hostile names do not reach the terminal as they are") {
  Writer writer;
  writer.add("a\x1b[2Jb\n'", std::uint32_t{1});
  writer.add("a\x1b[2Jb\n'", std::uint32_t{1});
  const std::string message = rejection(writer.header());
  CHECK(contains(message, "a\\x1b[2Jb\\n\\'"));
  CHECK_FALSE(contains(message, "\x1b"));
  // U+009B and the byte of old terminals mean the same as ESC [.
  Writer above;
  above.add("\u00e9\u009b2J\x9b\xff", std::uint32_t{1});
  above.add("\u00e9\u009b2J\x9b\xff", std::uint32_t{1});
  CHECK(contains(rejection(above.header()), "'\u00e9\\xc2\\x9b2J\\x9b\\xff'"));
  Writer large;
  large.add(std::string(60000, 'x'), std::uint32_t{1});
  large.add(std::string(60000, 'x'), std::uint32_t{1});
  CHECK(rejection(large.header()).size() < 400);
}

TEST_CASE("a claimed count takes no memory") {
  // 4 billion entries in a file of 24 bytes: rejected before anything is reserved for them.
  for (const std::size_t at : {8u, 16u}) {
    Bytes bytes = Writer().header();
    const std::uint64_t count = 0xFFFFFFFF;
    std::memcpy(bytes.data() + at, &count, sizeof(count));
    CHECK(contains(rejection(bytes), "4294967295"));
  }
}

TEST_CASE("more tensors or keys than any file has are rejected") {
  for (const auto& [at, most] :
       {std::pair{std::size_t{8}, tensors_max}, std::pair{std::size_t{16}, metadata_entries_max}}) {
    Bytes bytes = Writer().header();
    bytes.resize(std::size_t{64} << 20);  // as if they could fit
    const std::uint64_t count = most + 1;
    std::memcpy(bytes.data() + at, &count, sizeof(count));
    CHECK(contains(rejection(bytes), "expected at most"));
    std::memcpy(bytes.data() + at, &most, sizeof(most));
    CHECK_FALSE(contains(rejection(bytes), "expected at most"));
  }
}

}  // namespace sluice::gguf
