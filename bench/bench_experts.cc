// How often each policy would have found an expert in memory: replays traces of which experts
// tokens took (`sluice run --trace-experts FILE`), with places for a part of them.
//
//   build/release/bench/bench_experts                    three synthetic traces
//   build/release/bench/bench_experts TRACE...           traces of yours
//
// For each trace and share of experts that have a place, the table has the hit rates of
//   random     what any policy gets whose choice has nothing to do with the trace: the share itself
//   lru        the place of the least recently used expert of the layer goes to each newcomer
//   lru-all    the same with one order over all layers
//   lfu        least frequently used since the beginning, in each layer
//   aged H     streaming/expert_policy.h with a half-life of H tokens; * marks the one in use
//   optimum    Belady's: the expert that is needed last loses its place, or the newcomer does not
//              get one. No policy that does not know the future can do better.
// and, below it, how many of the missed experts are copied into a place.
// A synthetic trace has layers in which the frequencies of experts follow a power law, in an order
// of their own; a part of the choices repeats those of the token before; and from time to time the
// order changes, as with another topic.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <list>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "streaming/expert_policy.h"

namespace {

using sluice::streaming::ExpertPolicy;
using sluice::streaming::ExpertUse;

using Choices = std::vector<std::uint32_t>;  // of one token in one layer, ascending

struct Trace {
  std::string name;
  std::size_t experts = 0;                   // of a layer
  std::vector<std::vector<Choices>> layers;  // [layer][token]
};

// Throws std::runtime_error that names the file and the line.
Trace read_trace(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error(path + ": cannot be read");
  Trace trace{path, 0, {}};
  std::string line;
  std::size_t number = 1;
  if (!std::getline(in, line) || line != "sluice experts 1") {
    throw std::runtime_error(path + ": is no trace of --trace-experts");
  }
  while (std::getline(in, line)) {
    ++number;
    std::istringstream words(line);
    std::size_t layer = 0, experts = 0;
    char colon = 0;
    Choices choices;
    words >> layer >> experts >> colon;
    for (std::uint32_t expert = 0; words >> expert;) choices.push_back(expert);
    const bool is_whole = words.eof() && colon == ':' && !choices.empty() && layer < 4096;
    if (!is_whole || *std::ranges::max_element(choices) >= experts) {
      throw std::runtime_error(fmt::format("{}: line {} is damaged", path, number));
    }
    trace.experts = std::max(trace.experts, experts);
    if (layer >= trace.layers.size()) trace.layers.resize(layer + 1);
    std::ranges::sort(choices);
    trace.layers[layer].push_back(std::move(choices));
  }
  return trace;
}

struct Skew {
  std::string name;
  double exponent;  // of the power law; 0: all alike
  double repeats;   // the share of choices that repeat one of the token before
};

Trace make_trace(const Skew& skew, std::size_t layers, std::size_t tokens, std::uint64_t seed) {
  constexpr std::size_t experts = 128, used = 8, topic_tokens = 400;
  std::mt19937_64 random(seed);
  std::vector<double> weights(experts);
  for (std::size_t i = 0; i < experts; ++i) {
    weights[i] = std::pow(static_cast<double>(i + 1), -skew.exponent);
  }
  std::discrete_distribution<std::size_t> rank(weights.begin(), weights.end());
  std::bernoulli_distribution repeats(skew.repeats);
  Trace trace{skew.name, experts, {}};
  for (std::size_t layer = 0; layer < layers; ++layer) {
    std::vector<Choices>& all = trace.layers.emplace_back();
    Choices order(experts);
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::shuffle(order, random);
    for (std::size_t token = 0; token < tokens; ++token) {
      if (token % topic_tokens == topic_tokens - 1) {
        // A new topic: a quarter of the experts change their ranks.
        for (std::size_t i = 0; i < experts / 8; ++i) {
          std::swap(order[random() % experts], order[random() % experts]);
        }
      }
      Choices choices;
      while (choices.size() < used) {
        const bool repeat = token != 0 && repeats(random);
        const std::uint32_t expert = repeat ? all.back()[random() % used] : order[rank(random)];
        if (std::ranges::find(choices, expert) == choices.end()) choices.push_back(expert);
      }
      std::ranges::sort(choices);
      all.push_back(std::move(choices));
    }
  }
  return trace;
}

struct Count {
  std::uint64_t hits = 0, uses = 0, copies = 0;
};

Count replay_aged(const Trace& trace, std::size_t places, double half_life) {
  Count count;
  for (const auto& tokens : trace.layers) {
    ExpertPolicy policy(trace.experts, places, half_life);
    std::vector<bool> has_place(trace.experts, false), is_filled(trace.experts, false);
    std::fill_n(has_place.begin(), places, true);
    for (const Choices& choices : tokens) {
      std::vector<ExpertUse> uses;
      for (const std::uint32_t expert : choices) {
        count.hits += has_place[expert] && is_filled[expert] ? 1 : 0;
        uses.push_back({expert, 1});
      }
      count.uses += choices.size();
      for (const auto [gains, loses] : policy.use(uses, 1, places)) {
        ++count.copies;
        has_place[gains] = true;
        has_place[loses] = false;
      }
      for (const std::uint32_t expert : choices) is_filled[expert] = has_place[expert];
    }
  }
  return count;
}

// `places` of one order; the keys of several layers may share it.
class Lru {
 public:
  explicit Lru(std::size_t places) : places_(places) {}

  bool use(std::uint64_t key) {
    const auto found = where_.find(key);
    const bool is_hit = found != where_.end();
    if (is_hit) order_.erase(found->second);
    order_.push_front(key);
    where_[key] = order_.begin();
    if (order_.size() > places_) {
      where_.erase(order_.back());
      order_.pop_back();
    }
    return is_hit;
  }

 private:
  std::size_t places_;
  std::list<std::uint64_t> order_;
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> where_;
};

Count replay_lru(const Trace& trace, std::size_t places) {
  Count count;
  for (const auto& tokens : trace.layers) {
    Lru lru(places);
    for (const Choices& choices : tokens) {
      for (const std::uint32_t expert : choices) count.hits += lru.use(expert) ? 1 : 0;
      count.uses += choices.size();
    }
  }
  return count;
}

Count replay_lru_over_all(const Trace& trace, std::size_t places) {
  Count count;
  Lru lru(places * trace.layers.size());
  for (std::size_t token = 0; token < trace.layers.front().size(); ++token) {
    for (std::size_t layer = 0; layer < trace.layers.size(); ++layer) {
      if (token >= trace.layers[layer].size()) continue;
      for (const std::uint32_t expert : trace.layers[layer][token]) {
        count.hits += lru.use(layer * trace.experts + expert) ? 1 : 0;
        ++count.uses;
      }
    }
  }
  return count;
}

Count replay_optimum(const Trace& trace, std::size_t places) {
  constexpr std::size_t never = std::numeric_limits<std::size_t>::max();
  Count count;
  for (const auto& tokens : trace.layers) {
    std::vector<std::vector<std::size_t>> when(trace.experts);  // by expert: tokens, descending
    for (std::size_t token = tokens.size(); token-- != 0;) {
      for (const std::uint32_t expert : tokens[token]) when[expert].push_back(token);
    }
    std::vector<std::uint32_t> kept;
    const auto next = [&](std::uint32_t expert) {
      return when[expert].empty() ? never : when[expert].back();
    };
    for (const Choices& choices : tokens) {
      count.uses += choices.size();
      for (const std::uint32_t expert : choices) {
        when[expert].pop_back();
        if (std::ranges::find(kept, expert) != kept.end()) {
          ++count.hits;
        } else {
          kept.push_back(expert);
        }
      }
      // Of all that are in memory now, those stay that are needed first.
      std::ranges::sort(kept, {}, next);
      kept.resize(std::min(kept.size(), places));
    }
  }
  return count;
}

double percent(std::uint64_t part, std::uint64_t all) {
  return all == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(all);
}

double rate(const Count& count) {
  return percent(count.hits, count.uses);
}

void print_table(const Trace& trace) {
  if (trace.layers.empty()) throw std::runtime_error(trace.name + ": has no tokens");
  constexpr double never_forgets = 1e9;
  const std::vector<double> half_lives = {8, sluice::streaming::expert_half_life, 32, 128};
  fmt::print("{}: {} layers, {} experts, {} tokens\n", trace.name, trace.layers.size(),
             trace.experts, trace.layers.front().size());
  std::string aged;
  for (const double half_life : half_lives) {
    const bool is_used = half_life == sluice::streaming::expert_half_life;
    aged += fmt::format("{:>11}", fmt::format("aged {}{}", half_life, is_used ? "*" : ""));
  }
  const std::string head =
      fmt::format("{:>7}{:>8}{:>8}{:>9}{:>8}", "places", "random", "lru", "lru-all", "lfu");
  fmt::print("{}{}{:>9}\n", head, aged, "optimum");
  std::string copies;
  for (const double share : {0.05, 0.1, 0.2, 0.3, 0.5, 0.7}) {
    const auto places = static_cast<std::size_t>(share * static_cast<double>(trace.experts));
    std::string row =
        fmt::format("{:>6.0f}%{:>8.1f}{:>8.1f}{:>9.1f}{:>8.1f}", 100 * share,
                    100.0 * static_cast<double>(places) / static_cast<double>(trace.experts),
                    rate(replay_lru(trace, places)), rate(replay_lru_over_all(trace, places)),
                    rate(replay_aged(trace, places, never_forgets)));
    copies += fmt::format("{:>6.0f}%{:33}", 100 * share, "");
    for (const double half_life : half_lives) {
      const Count count = replay_aged(trace, places, half_life);
      row += fmt::format("{:>11.1f}", rate(count));
      copies += fmt::format("{:>11.0f}", percent(count.copies, count.uses - count.hits));
    }
    copies += '\n';
    fmt::print("{}{:>9.1f}\n", row, rate(replay_optimum(trace, places)));
  }
  fmt::print("copies into places, for 100 misses:\n{}\n", copies);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Compares policies for experts in memory on traces of their use");
  std::vector<std::string> paths;
  std::size_t layers = 16, tokens = 2000;
  std::uint64_t seed = 1;
  app.add_option("TRACE", paths, "Files that --trace-experts wrote; none: synthetic ones");
  app.add_option("--layers", layers, "Layers of a synthetic trace")->check(CLI::PositiveNumber);
  app.add_option("--tokens", tokens, "Tokens of a synthetic trace")->check(CLI::PositiveNumber);
  app.add_option("--seed", seed, "Seed of the synthetic traces");
  CLI11_PARSE(app, argc, argv);
  try {
    for (const std::string& path : paths) print_table(read_trace(path));
    if (!paths.empty()) return 0;
    for (const Skew& skew : {Skew{"uniform", 0, 0}, Skew{"skewed", 0.8, 0.2},
                             Skew{"very skewed, with locality", 1.2, 0.4}}) {
      print_table(make_trace(skew, layers, tokens, seed));
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_experts: {}\n", error.what());
    return 1;
  }
  return 0;
}
