// What the tests of GGUF files share: a small model in memory, and what errors say.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/gguf/gguf_writer.h"
#include "tests/catch.h"

namespace sluice::gguf {

using Bytes = std::vector<std::byte>;

// A file in memory: header, then zeros for the data.
inline Bytes whole_file(const Writer& writer) {
  Bytes bytes = writer.header();
  bytes.resize(bytes.size() + writer.data_bytes());
  return bytes;
}

// A file with metadata of every type and three tensors.
inline Writer small_model() {
  Writer writer;
  writer.add("general.architecture", "llama");
  writer.add("a.u8", std::uint8_t{200});
  writer.add("a.i8", std::int8_t{-100});
  writer.add("a.u16", std::uint16_t{60000});
  writer.add("a.i16", std::int16_t{-30000});
  writer.add("a.u32", std::uint32_t{4000000000});
  writer.add("a.i32", std::int32_t{-2000000000});
  writer.add("a.u64", std::uint64_t{1} << 63);
  writer.add("a.i64", std::numeric_limits<std::int64_t>::min());
  writer.add("a.f32", 1.5f);
  writer.add("a.f64", 2.5);
  writer.add("a.bool", true);
  const std::vector<std::string> strings = {"", "one", "two words"};
  writer.add_array("a.strings", std::span<const std::string>(strings));
  const std::vector<float> floats = {0.5f, -3.0f};
  writer.add_array("a.floats", std::span<const float>(floats));
  const std::array<bool, 3> bools = {true, false, true};
  writer.add_array("a.bools", std::span<const bool>(bools));
  const std::vector<std::uint64_t> numbers = {1, 2, 1ull << 62};
  writer.add_array("a.u64s", std::span<const std::uint64_t>(numbers));
  writer.add_array("a.empty", std::span<const std::int16_t>());
  const std::array<std::uint64_t, 2> matrix = {256, 3};
  writer.add_tensor("token_embd.weight", matrix, 12);
  const std::array<std::uint64_t, 1> vector = {7};
  writer.add_tensor("output_norm.weight", vector, 0);
  const std::array<std::uint64_t, 4> cube = {32, 2, 3, 4};
  writer.add_tensor("blk.0.x", cube, 8);
  return writer;
}

// The message of the ModelError that `lookup` throws.
template <typename Lookup>
std::string lookup_error(const Lookup& lookup) {
  try {
    lookup();
  } catch (const ModelError& error) {
    return error.what();
  }
  FAIL("no error");
  return {};
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline void write_bytes(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  REQUIRE(file.good());
}

}  // namespace sluice::gguf
