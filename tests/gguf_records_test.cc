// Malformed headers that other readers of GGUF have tripped over, by the public record of their
// defects (CVE-2024-23496 and its companions, CVE-2025-53630, CVE-2026-27940, CVE-2026-7482 and
// the like): counts and sizes that wrap, dimensions beyond an array, alignments that are none,
// arrays in arrays, names that come twice, and small files that ask for gigabytes.
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <vector>

#include "core/gguf/gguf.h"
#include "tests/catch.h"
#include "tests/gguf_support.h"
#include "tests/sanitized.h"

namespace sluice::gguf {
namespace {

constexpr std::uint64_t one = 1;

// A file that is written byte by byte, so that nothing about it need be right.
class RawFile {
 public:
  RawFile(std::uint64_t tensors, std::uint64_t entries) {
    text("GGUF").put(std::uint32_t{3}).put(tensors).put(entries);
  }

  template <typename T>
  RawFile& put(T value) {
    const auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  RawFile& text(std::string_view value) {
    for (const char c : value) put(c);
    return *this;
  }
  RawFile& string(std::string_view value) { return put(std::uint64_t{value.size()}).text(value); }
  RawFile& type(ValueType value) { return put(static_cast<std::uint32_t>(value)); }
  RawFile& tensor(std::string_view name, const std::vector<std::uint64_t>& dims,
                  std::uint32_t type_id, std::uint64_t offset) {
    string(name).put(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t dim : dims) put(dim);
    return put(type_id).put(offset);
  }
  // Zeros up to the beginning of the data, and so many more.
  RawFile& data(std::size_t bytes) {
    bytes_.resize(align_up(bytes_.size(), default_alignment) + bytes);
    return *this;
  }

  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

// Refused with one line that names the file, and without taking memory for what is claimed.
void check_refused(const RawFile& file, std::string_view says = {}) {
  const auto peak_kib = [] {
    rusage usage = {};
    REQUIRE(::getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_maxrss;
  };
  for (const bool header_only : {false, true}) {
    const long before = peak_kib();
    const std::string message = lookup_error(
        [&] { parse_header(file.bytes(), "memory.gguf", {.header_only = header_only}); });
    INFO(message);
    CHECK(message.starts_with("memory.gguf: "));
    CHECK(message.find('\n') == std::string::npos);
    CHECK(contains(message, std::string(says)));
    if (!test::is_sanitized) CHECK(peak_kib() - before < 8 * 1024);
  }
}

void check_taken(const RawFile& file) {
  CHECK_NOTHROW(parse_header(file.bytes(), "memory.gguf"));
}

}  // namespace

TEST_CASE("a tensor has one to four dimensions, however many it claims") {
  for (const std::uint32_t rank : {0U, 5U, 8U, 0x40000000U, 0x80000000U, 0xFFFFFFFFU}) {
    INFO(rank);
    RawFile file(1, 0);
    file.string("x").put(rank);
    for (int i = 0; i < 8; ++i) file.put(one);
    check_refused(file.put(std::uint32_t{0}).put(std::uint64_t{0}).data(4096), "dimensions");
  }
}

TEST_CASE("sizes of tensors that wrap are refused") {
  const std::vector<std::vector<std::uint64_t>> shapes = {
      {one << 63, 2},
      {one << 32, one << 32},
      {one << 62, 4},
      {~std::uint64_t{0}, 2},
      {one << 31, one << 31, 4},
      {one << 16, one << 16, one << 16, one << 16},
      {(one << 62) + 4},
      {one << 62},
      {one << 63}};
  for (const auto& dims : shapes) {
    for (const std::uint32_t type : {0U, 1U, 8U}) {  // F32, F16, Q8_0
      INFO(dims.size() << " dimensions of type " << type);
      check_refused(RawFile(1, 0).tensor("x", dims, type, 0).data(4096));
    }
  }
}

TEST_CASE("tensors whose sizes or offsets add up beyond 64 bits are refused") {
  const std::uint64_t half = one << 61;  // elements of 4 bytes: 2^63 bytes each
  check_refused(RawFile(2, 0).tensor("x", {half}, 0, 0).tensor("y", {half}, 0, one << 63).data(64));
  check_refused(RawFile(2, 0).tensor("x", {half - 8}, 0, 0).tensor("y", {half}, 0, 0).data(64));
  for (const std::uint64_t offset :
       {~std::uint64_t{0} - 31, ~std::uint64_t{0} - 4127, one << 63, one << 62}) {
    INFO(offset);
    RawFile file(1, 0);
    file.tensor("x", {8}, 0, offset).data(4096);
    CHECK_THROWS_AS(parse_header(file.bytes(), "memory.gguf"), ModelError);
  }
}

TEST_CASE("a tensor ends where the file does, and not a byte behind") {
  check_taken(RawFile(1, 0).tensor("x", {8}, 0, 0).data(32));
  RawFile file(1, 0);
  file.tensor("x", {8}, 0, 0).data(31);
  CHECK(contains(lookup_error([&] { parse_header(file.bytes(), "memory.gguf"); }), "ends at byte"));
  CHECK_NOTHROW(parse_header(file.bytes(), "memory.gguf", {.header_only = true}));
}

TEST_CASE("an alignment of another type than u32 is refused") {
  const auto begin = [](ValueType type) {
    RawFile file(0, 1);
    file.string("general.alignment").type(type);
    return file;
  };
  check_refused(begin(ValueType::u8).put(std::uint8_t{32}), "general.alignment");
  check_refused(begin(ValueType::u16).put(std::uint16_t{32}), "general.alignment");
  check_refused(begin(ValueType::i32).put(std::int32_t{32}), "general.alignment");
  check_refused(begin(ValueType::u64).put(std::uint64_t{32}), "general.alignment");
  check_refused(begin(ValueType::i64).put(std::int64_t{-32}), "general.alignment");
  check_refused(begin(ValueType::f32).put(32.0F), "general.alignment");
  check_refused(begin(ValueType::boolean).put(std::uint8_t{1}), "general.alignment");
  check_refused(begin(ValueType::string).string("32"), "general.alignment");
  check_refused(begin(ValueType::array).type(ValueType::u32).put(one).put(std::uint32_t{32}),
                "general.alignment");
  check_refused(begin(ValueType::u32).put(std::uint32_t{0}), "general.alignment");
  check_refused(begin(ValueType::u32).put(std::uint32_t{0xFFFFFFFF}), "general.alignment");
}

TEST_CASE("a file of 160 bytes cannot ask for gigabytes") {
  const std::vector<std::uint64_t> counts = {
      one << 30,        one << 32,       (one << 32) - 1, one << 40,         one << 60,
      one << 61,        (one << 61) + 1, one << 63,       (one << 63) - one, ~std::uint64_t{0} - 7,
      ~std::uint64_t{0}};
  for (const std::uint64_t count : counts) {
    INFO(count);
    const auto filled = [](RawFile file) { return file.data(64); };
    check_refused(filled(RawFile(count, 0)));
    check_refused(filled(RawFile(0, count)));
    check_refused(filled(RawFile(0, 1).put(count).text("general.architecture")));
    check_refused(filled(RawFile(0, 1).string("a").type(ValueType::string).put(count)));
    for (const ValueType type : {ValueType::u8, ValueType::u16, ValueType::f32, ValueType::u64,
                                 ValueType::f64, ValueType::boolean, ValueType::string}) {
      check_refused(filled(RawFile(0, 1).string("a").type(ValueType::array).type(type).put(count)));
    }
    check_refused(filled(RawFile(1, 0).put(count).text("x")));
    RawFile strings(0, 1);
    strings.string("a").type(ValueType::array).type(ValueType::string).put(std::uint64_t{2});
    check_refused(filled(strings.string("b").put(count)));
  }
}

TEST_CASE("arrays of arrays are refused at any depth") {
  for (const int depth : {1, 2, 1000, 100'000}) {
    INFO(depth);
    RawFile file(0, 1);
    file.string("a").type(ValueType::array);
    for (int i = 0; i < depth; ++i) file.type(ValueType::array).put(one);
    check_refused(file.type(ValueType::u8).put(one).put(std::uint8_t{1}), "array of arrays");
  }
}

TEST_CASE("a message says at which byte what was found, and what was expected") {
  struct Case {
    Bytes bytes;
    std::string message;  // behind "memory.gguf: "
  };
  const auto entry = [](std::string_view key, ValueType type) {
    return RawFile(0, 1).string(key).type(type);
  };
  const auto array = [&](ValueType type, std::uint64_t count) {
    return entry("a", ValueType::array).type(type).put(count);
  };
  const auto tensor = [](const std::vector<std::uint64_t>& dims, std::uint32_t type,
                         std::uint64_t offset) {
    return RawFile(1, 0).tensor("x", dims, type, offset).data(64);
  };
  const auto with_version = [](std::uint32_t version) {
    Bytes bytes = RawFile(0, 0).bytes();
    std::memcpy(bytes.data() + 4, &version, sizeof version);
    return bytes;
  };
  Bytes other_magic = RawFile(0, 0).bytes();
  other_magic[3] = std::byte{'X'};
  const std::string cut = "; the file is cut short or damaged";
  const Case cases[] = {
      {other_magic, "byte 0: found 'GGUX', expected 'GGUF': this is not a GGUF file"},
      {with_version(0), "byte 4: found GGUF version 0, expected 2 or 3"},
      {with_version(1), "byte 4: found GGUF version 1, expected 2 or 3"},
      {with_version(4), "byte 4: found GGUF version 4, expected 2 or 3"},
      {with_version(0x03000000),
       "byte 4: the file is big-endian; convert it to a little-endian GGUF file"},
      {RawFile(one << 32, 0).bytes(),
       "byte 8: the number of tensors is 4294967296, expected at most 1048576"},
      {RawFile(0, one << 32).bytes(),
       "byte 16: the number of metadata entries is 4294967296, expected at most 65536"},
      {RawFile(0, 2).data(24).bytes(),  // 32 bytes are left, an entry has 14
       "byte 24: metadata entry 0: the key has 0 bytes, expected 1 to 65535"},
      {RawFile(0, 3).data(24).bytes(),
       "byte 24: 3 metadata entries cannot fit into the 32 bytes that are left" + cut},
      {RawFile(0, 1).string(std::string(65536, 'k')).data(64).bytes(),
       "byte 24: metadata entry 0: the key has 65536 bytes, expected 1 to 65535"},
      {RawFile(0, 1).string("a").put(13U).put(one).bytes(),
       "byte 33: key 'a': the value type is 13, expected 0 to 12"},
      {entry("a", ValueType::array).put(13U).put(one).bytes(),
       "byte 37: key 'a': the element type is 13, expected 0 to 12"},
      {entry("a", ValueType::array).type(ValueType::array).put(one).bytes(),
       "byte 37: key 'a': found an array of arrays, which is not used"},
      {entry("a", ValueType::boolean).put(std::uint8_t{2}).bytes(),
       "byte 37: key 'a': found the bool 2, expected 0 or 1"},
      {array(ValueType::boolean, 3).text(std::string("\1\0\3", 3)).bytes(),
       "byte 51: key 'a': found the bool 3, expected 0 or 1"},
      {array(ValueType::u32, 3).text("01234567890").bytes(),
       "byte 49: key 'a': 3 u32 cannot fit into the 11 bytes that are left" + cut},
      {array(ValueType::string, 2).text("012345678901234").bytes(),
       "byte 49: key 'a': 2 strings cannot fit into the 15 bytes that are left" + cut},
      {array(ValueType::string, 2).string("abc").string("abcde").put('x').bytes(), ""},
      {array(ValueType::string, 2).string("abc").put(std::uint64_t{5}).text("abcd").bytes(),
       "byte 68: key 'a': a string of the array of 5 bytes runs past the end of the file (4 bytes "
       "are left)" +
           cut},
      {entry("a", ValueType::string).put(std::uint64_t{5}).text("abcd").bytes(),
       "byte 45: key 'a': the string of 5 bytes runs past the end of the file (4 bytes are left)" +
           cut},
      {entry("general.alignment", ValueType::u64).put(std::uint64_t{32}).bytes(),
       "key 'general.alignment': found u64 (at byte 53), expected u32"},
      {entry("general.alignment", ValueType::u32).put(48U).bytes(),
       "key 'general.alignment': is 48 (at byte 53), expected a power of two of at least 8"},
      {RawFile(2, 0).data(25).bytes(),
       "byte 24: 2 tensors cannot fit into the 33 bytes that are left" + cut},
      {RawFile(1, 0).tensor(std::string(64, 'x'), {8}, 0, 0).data(64).bytes(),
       "byte 24: tensor 0: the name has 64 bytes, expected 1 to 63"},
      {tensor({1, 1, 1, 1, 1}, 0, 0).bytes(),
       "byte 33: tensor 'x': found 5 dimensions, expected 1 to 4"},
      {tensor({8, 0}, 0, 0).bytes(), "byte 45: tensor 'x': dimension 1 is 0"},
      {tensor({2, one << 62}, 0, 0).bytes(),
       "byte 45: tensor 'x': dimension 1 is 4611686018427387904: more than 2^63 elements"},
      {tensor({33}, 2, 0).bytes(),
       "byte 45: tensor 'x': a row has 33 elements, expected a multiple of 32 for Q4_0"},
      {tensor({32}, 4, 0).bytes(),
       "byte 45: tensor 'x': found type 4, which was removed from GGUF; convert the model again"},
      {tensor({one << 61}, 0, 0).bytes(),
       "byte 45: tensor 'x': 2305843009213693952 as F32 is larger than any model"},
      {tensor({data_bytes_max / 4 + 1}, 0, 0).bytes(),
       "byte 45: tensor 'x': 4398046511105 as F32 is larger than any model"},
      {tensor({8}, 0, 33).bytes(),
       "byte 49: tensor 'x': the data is at offset 33, expected a multiple of the alignment 32 "
       "inside the file"},
      {tensor({8}, 0, data_bytes_max + 32).bytes(),
       "byte 49: tensor 'x': the data is at offset 17592186044448, expected a multiple of the "
       "alignment 32 inside the file"},
      {RawFile(2, 0).tensor("x", {8}, 0, 0).tensor("x", {8}, 0, 32).data(64).bytes(),
       "byte 57: tensor 'x': the name occurs again, expected each name once"},
      {RawFile(1, 0).tensor("x", {8}, 0, 0).data(31).bytes(),
       "tensor 'x': its data ends at byte 96, but the file has 95 bytes" + cut + ", get it again"},
      {RawFile(2, 0).tensor("y", {8}, 0, 32).tensor("x", {9}, 0, 0).data(64).bytes(),
       "tensor 'y' starts at byte 128, inside tensor 'x' (bytes 96 to 132); expected tensors that "
       "do not overlap"},
  };
  for (const Case& each : cases) {
    std::string found;
    try {
      parse_header(each.bytes, "memory.gguf");
    } catch (const ModelError& error) {
      found = error.what();
    }
    CHECK(found == (each.message.empty() ? "" : "memory.gguf: " + each.message));
  }
}

TEST_CASE("what is as large as it may be is taken") {
  const auto entry = [](const std::string& key, ValueType type) {
    return RawFile(0, 1).string(key).type(type);
  };
  check_taken(entry(std::string(65535, 'k'), ValueType::u8).put(std::uint8_t{1}));
  check_taken(entry("a", ValueType::array).type(ValueType::u32).put(one * 2).put(one));
  check_taken(entry("a", ValueType::array).type(ValueType::string).put(one * 2).put(0L).put(0L));
  check_taken(entry("general.alignment", ValueType::u32).put(8U));
  check_taken(RawFile(1, 0).tensor(std::string(63, 'x'), {1, 1, 1, 1}, 0, 0).data(4));
  for (const RawFile& file : {RawFile(1, 0).tensor("x", {data_bytes_max / 4}, 0, 0),
                              RawFile(1, 0).tensor("x", {8}, 0, data_bytes_max)}) {
    CHECK_NOTHROW(parse_header(file.bytes(), "memory.gguf", {.header_only = true}));
  }
  Bytes second = RawFile(0, 0).bytes();
  second[4] = std::byte{2};
  CHECK(parse_header(second, "memory.gguf").version == 2);
}

TEST_CASE("names that come twice are refused, wherever they stand") {
  RawFile keys(0, 3);
  for (const char* key : {"general.name", "a", "general.name"}) {
    keys.string(key).type(ValueType::u8).put(std::uint8_t{1});
  }
  check_refused(keys, "occurs again");
  RawFile tensors(3, 0);
  tensors.tensor("x", {8}, 0, 0).tensor("y", {8}, 0, 32).tensor("x", {8}, 0, 64);
  check_refused(tensors.data(96), "occurs again");
}

}  // namespace sluice::gguf
