#include "core/fetch/sha256.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"

namespace sluice::fetch {
namespace {

void require(int result) {
  if (result != 1) throw Error(ExitCode::failure, "libcrypto cannot compute SHA-256");
}

}  // namespace

Sha256::Sha256() : context_(crypto().context_new()) {
  begin();
}

void Sha256::begin() {
  require(crypto().init(context_.get(), crypto().sha256(), nullptr));
}

void Sha256::add(std::span<const std::byte> bytes) {
  require(crypto().update(context_.get(), bytes.data(), bytes.size()));
}

std::string Sha256::finish() {
  std::array<unsigned char, 32> sum{};
  require(crypto().final(context_.get(), sum.data(), nullptr));
  begin();
  return fmt::format("{:02x}", fmt::join(sum, ""));
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace sluice::fetch
