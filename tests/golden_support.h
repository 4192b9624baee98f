// What llama.cpp has recorded of small reference models, and how far others are from it. The models
// are written by the reference generators beside the fixtures; see oracle/README.md there.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/kernels_support.h"

namespace sluice::test {

inline constexpr std::size_t vocabulary = 512;
inline constexpr std::array golden_tokens = {1,  300, 301, 500, 7,   44,  260, 259, 410, 12,
                                             13, 400, 333, 288, 310, 499, 3,   90,  91,  302};

inline std::vector<float> read_floats(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  std::vector<float> values(bytes.size() / sizeof(float));
  std::copy_n(bytes.data(), values.size() * sizeof(float), reinterpret_cast<char*>(values.data()));
  return values;
}

inline std::vector<double> softmax(const float* logits) {
  std::vector<double> p(vocabulary);
  double sum = 0;
  const double max = *std::max_element(logits, logits + vocabulary);
  for (std::size_t i = 0; i < vocabulary; ++i) sum += p[i] = std::exp(logits[i] - max);
  for (double& x : p) x /= sum;
  return p;
}

// KL(reference || ours) at each position.
inline std::vector<double> divergence(const std::vector<float>& reference,
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

inline double mean(std::vector<double> values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

inline std::vector<std::vector<double>> probabilities(const std::vector<float>& values,
                                                      bool are_logits) {
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

// Writes tiny-MODEL-KIND.gguf into `folder`; false when no generator can make it here. Those are
// tried first whose text has the name of the model; the last generator but one takes any name.
inline bool make_tiny(const std::filesystem::path& folder, const std::string& model,
                      const std::string& kind) {
  const std::filesystem::path scripts = fixture_root().parent_path() / "oracle";
  const std::filesystem::path made = folder / ("tiny-" + model + "-" + kind + ".gguf");
  std::vector<std::filesystem::path> generators;
  for (const char* script : {"tiny_moe.py", "tiny_more.py", "tiny_attention.py", "tiny_hybrid.py",
                             "tiny_archs.py", "tiny_types.py"}) {
    generators.push_back(scripts / script);
    if (!std::filesystem::exists(generators.back())) return false;
  }
  std::stable_partition(generators.begin(), generators.end(), [&](const auto& script) {
    std::ifstream in(script);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    return text.find("'" + model + "'") != std::string::npos;
  });
  for (const std::filesystem::path& script : generators) {
    const std::string command = "/usr/bin/python3 '" + script.string() + "' '" + folder.string() +
                                "' " + model + " --seed 7 --kind " + kind + " >/dev/null 2>&1";
    if (std::system(command.c_str()) == 0 && std::filesystem::exists(made)) return true;
  }
  return false;
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace sluice::test
