// Multiplies packed weights again and again, for scripts/count-instructions: what one product more
// executes is the difference of two runs.
//
//   repeat_product FORMAT COLUMNS TIMES       prints the multiply-adds of a product
//   repeat_product attention COLUMNS TIMES    of attention to 1024 positions of int8, with four
//                                             heads of 128 elements for a head of keys
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "kernels/kernel_table.h"
#include "kernels/panel_packing.h"
#include "tests/kernel_probes.h"

namespace {

using namespace sluice::kernels;

constexpr std::size_t rows = 64, weights_per_row = 1024;

std::byte* aligned(std::vector<std::byte>& bytes) {
  return bytes.data() + (64 - reinterpret_cast<std::uintptr_t>(bytes.data()) % 64) % 64;
}

int repeat(const BlockTraits& format, std::size_t columns, int times) {
  const KernelTable& table = kernel_table();
  const std::size_t bytes = row_bytes(format.type, weights_per_row);
  const std::vector<std::byte> file(rows * bytes);
  std::vector<std::byte> packed(file.size() + 64), scratch(MatmulScratch::bytes + 64);
  std::vector<std::byte> buffer(Activations::buffer_bytes(weights_per_row, columns) + 64);
  pack_panels(format.type, rows, weights_per_row, file.data(), aligned(packed));
  const std::vector<float> x(weights_per_row * columns, 1.0f);
  const Activations activations(x.data(), weights_per_row, weights_per_row, columns,
                                aligned(buffer));
  for (std::size_t c = 0; c < columns; ++c) {
    activations.quantise(table.quantise, format.activation_form, c);
  }
  std::vector<float> y(rows * columns);
  const WeightRows w{format.type,     aligned(packed), rows,
                     weights_per_row, bytes,           table.matmul.reads_packed};
  for (int i = 0; i < times; ++i) {
    table.matmul.multiply(w, activations, y.data(), rows, {aligned(scratch)});
  }
  std::printf("%zu\n", rows * weights_per_row * columns);
  return 0;
}

int attend(std::size_t columns, int times) {
  sluice::test::Rng rng(1);
  sluice::test::AttentionProbe probe(sluice::test::KvElement::int8, 4, 128, 1024,
                                     sluice::test::Data::normal, rng, columns);
  for (int i = 0; i < times; ++i) probe.run(kernel_table());
  std::printf("%.0f\n", probe.multiplications());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4) {
    const std::size_t columns = std::strtoul(argv[2], nullptr, 10);
    if (std::string_view(argv[1]) == "attention") return attend(columns, std::atoi(argv[3]));
    for (const BlockTraits& format : all_block_types()) {
      if (format.name != argv[1]) continue;
      return repeat(format, columns, std::atoi(argv[3]));
    }
  }
  std::fputs("usage: repeat_product FORMAT|attention COLUMNS TIMES\n", stderr);
  return 2;
}
