// Texts that a scheduler writes with drafts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/engine/engine.h"
#include "core/serve/scheduler.h"
#include "tests/catch.h"

namespace sluice::test {

struct Written {
  std::vector<std::vector<tokenizer::Token>> texts;
  serve::SchedulerCounts counts;
};

// Continues each prompt by up to 40 tokens, two at a time; the seeds count up from `seed`.
inline Written write_texts(engine::Engine& engine, const serve::DraftOptions& drafts,
                           const std::vector<std::vector<tokenizer::Token>>& prompts,
                           std::uint64_t seed, float temperature) {
  Written written;
  written.texts.resize(prompts.size());
  serve::SchedulerOptions options;
  options.parallel = 2;
  options.drafts = drafts;
  std::size_t begun = 0;
  serve::Scheduler scheduler(
      engine, options,
      [&](rows::Priority) -> std::optional<rows::Task> {
        if (begun == prompts.size()) return std::nullopt;
        rows::Task task;
        task.id = begun++;
        task.prompt = prompts[task.id];
        task.end_tokens = std::make_shared<const std::vector<tokenizer::Token>>();
        task.tokens_max = 40;
        task.sampler.temperature = temperature;
        task.sampler.seed = seed + task.id;
        return task;
      },
      [](const rows::Task&, const rows::Outcome& outcome) {
        CHECK(outcome.end == rows::Outcome::End::completed);
      },
      [&](const rows::Task& task, const rows::TokenEvent& event) {
        if (event.token) written.texts[task.id].push_back(*event.token);
      });
  while (scheduler.step()) {
  }
  written.counts = scheduler.counts();
  return written;
}

}  // namespace sluice::test
