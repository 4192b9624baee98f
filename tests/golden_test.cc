// The program against llama.cpp's probabilities, on every instruction set this CPU has. The models
// are written by the reference generator beside the fixtures; see oracle/README.md there.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"
#include "tests/catch.h"
#include "tests/temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using sluice::test::fixture;

constexpr std::size_t vocabulary = 512;
const std::string program = SLUICE_PROGRAM;
const std::string tokens = "1,300,301,500,7,44,260,259,410,12,13,400,333,288,310,499,3,90,91,302";

std::vector<std::string> tiers() {
  std::vector<std::string> names;
  for (const auto isa : {sluice::kernels::Isa::scalar, sluice::kernels::Isa::avx2,
                         sluice::kernels::Isa::avx512, sluice::kernels::Isa::amx}) {
    if (isa <= sluice::kernels::highest_isa()) {
      names.emplace_back(sluice::kernels::isa_name(isa));
    }
  }
  return names;
}

std::vector<float> read_floats(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  std::vector<float> values(bytes.size() / sizeof(float));
  std::copy_n(bytes.data(), values.size() * sizeof(float), reinterpret_cast<char*>(values.data()));
  return values;
}

std::vector<double> softmax(const float* logits) {
  std::vector<double> p(vocabulary);
  double sum = 0;
  const double max = *std::max_element(logits, logits + vocabulary);
  for (std::size_t i = 0; i < vocabulary; ++i) sum += p[i] = std::exp(logits[i] - max);
  for (double& x : p) x /= sum;
  return p;
}

// KL(reference || ours) at each position.
std::vector<double> divergence(const std::vector<float>& reference,
                               const std::vector<std::vector<double>>& ours) {
  std::vector<double> out;
  for (std::size_t t = 0; t < ours.size(); ++t) {
    const float* p = reference.data() + t * vocabulary;
    double sum = 0, kl = 0;
    for (std::size_t i = 0; i < vocabulary; ++i) sum += p[i];
    for (std::size_t i = 0; i < vocabulary; ++i) {
      if (p[i] > 0) kl += p[i] / sum * (std::log(p[i] / sum) - std::log(ours[t][i]));
    }
    out.push_back(kl);
  }
  return out;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

std::vector<std::vector<double>> probabilities(const std::vector<float>& values, bool are_logits) {
  std::vector<std::vector<double>> out;
  for (std::size_t at = 0; at + vocabulary <= values.size(); at += vocabulary) {
    if (are_logits) {
      out.push_back(softmax(values.data() + at));
    } else {
      out.emplace_back(values.begin() + static_cast<std::ptrdiff_t>(at),
                       values.begin() + static_cast<std::ptrdiff_t>(at + vocabulary));
    }
  }
  return out;
}

// Writes tiny-llama-KIND.gguf into `folder`; false when the generator cannot run here.
bool make_tiny(const fs::path& folder, const std::string& kind) {
  const fs::path script = sluice::test::fixture_root().parent_path() / "oracle" / "tiny_archs.py";
  if (!fs::exists(script)) return false;
  const std::string command = "/usr/bin/python3 '" + script.string() + "' '" + folder.string() +
                              "' llama --seed 7 --kind " + kind + " >/dev/null 2>&1";
  return std::system(command.c_str()) == 0;
}

std::vector<float> run_logits(const fs::path& model, const fs::path& out, const std::string& isa) {
  const std::string command = "SLUICE_ISA=" + isa + " '" + program + "' logits '" + model.string() +
                              "' --kv f16 --tokens " + tokens + " -o '" + out.string() +
                              "' --quiet";
  REQUIRE(std::system(command.c_str()) == 0);
  return read_floats(out);
}

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  char buffer[4096];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, n);
  REQUIRE(::pclose(pipe) == 0);
  return text;
}

}  // namespace

TEST_CASE("a trained model continues its story as in exact arithmetic, on every tier") {
  const auto model = fixture("models/stories260K.gguf");
  if (!model) SLUICE_SKIP("models/stories260K.gguf is absent");
  for (const std::string& isa : tiers()) {
    INFO(isa);
    const std::string text =
        output_of("SLUICE_ISA=" + isa + " '" + program + "' run '" + model->string() +
                  "' --prompt-tokens 1 -n 16 --temp 0 --quiet");
    CHECK(text.starts_with(" Once upon a time, there was a little girl named Lily."));
  }
}

TEST_CASE("an F32 model has llama.cpp's probabilities, on every tier") {
  const auto golden = fixture("goldens/tiny-llama-f32.probs.f32");
  const sluice::test::TemporaryFolder folder;
  if (!golden || !make_tiny(folder.path(), "f32")) SLUICE_SKIP("the reference models are absent");
  for (const std::string& isa : tiers()) {
    INFO(isa);
    const auto logits =
        run_logits(folder.path() / "tiny-llama-f32.gguf", folder.path() / "out", isa);
    REQUIRE(logits.size() == 20 * vocabulary);
    const auto kl = divergence(read_floats(*golden), probabilities(logits, true));
    CHECK(*std::max_element(kl.begin(), kl.end()) < 1e-4);
  }
}

TEST_CASE("quantised models are as close to exact arithmetic as llama.cpp is, on every tier") {
  for (const std::string kind : {"q8_0", "q4_k", "q6_k"}) {
    const auto golden = fixture("goldens/tiny-llama-" + kind + ".probs.f32");
    const auto twin = fixture("goldens/tiny-llama-" + kind + "-twin.probs.f32");
    const sluice::test::TemporaryFolder folder;
    if (!golden || !twin || !make_tiny(folder.path(), kind)) {
      SLUICE_SKIP("the reference models are absent");
    }
    const std::vector<float> exact = read_floats(*twin);
    const double theirs = mean(divergence(exact, probabilities(read_floats(*golden), false)));
    std::vector<float> first;
    for (const std::string& isa : tiers()) {
      INFO(kind << " " << isa);
      const auto logits =
          run_logits(folder.path() / ("tiny-llama-" + kind + ".gguf"), folder.path() / "out", isa);
      CHECK(mean(divergence(exact, probabilities(logits, true))) < 1.1 * theirs);
      if (first.empty()) first = logits;
      CHECK(logits == first);  // all tiers, bit for bit
    }
  }
}
