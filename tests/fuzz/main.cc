// The entries of libFuzzer. With SLUICE_FUZZ_SEEDS=FOLDER a fuzzer writes its seeds there, and
// ends.
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/fuzz/fuzz.h"
#include "tests/temporary_folder.h"

extern "C" int LLVMFuzzerInitialize(int* /*count*/, char*** /*arguments*/) {
  const char* const folder = std::getenv("SLUICE_FUZZ_SEEDS");
  if (folder == nullptr) return 0;
  std::size_t number = 0;
  for (const std::string& seed : sluice::fuzz::seeds()) {
    sluice::test::write(std::filesystem::path(folder) / ("seed-" + std::to_string(number++)), seed);
  }
  std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  sluice::fuzz::run({reinterpret_cast<const char*>(data), bytes});
  return 0;
}
