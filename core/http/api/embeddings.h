// /v1/embeddings: texts in, a vector for each out; /v1/rerank: a query and texts in, scores out.
// The answer is written as the vectors come, so that a few of them are held, however many there
// are; a client that reads slowly makes the next ones wait.
//
// Threads: reading is for any; the answer belongs to the server's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/http/api/generation.h"
#include "core/rows/pair_prompt.h"
#include "core/rows/pooling.h"
#include "core/rows/task_maker.h"

namespace sluice::http {

inline constexpr std::size_t embedding_inputs_max = 2048;

// How many inputs of a request are given to the service at a time.
inline constexpr std::size_t embeddings_together = 4;

struct EmbeddingRequest {
  std::vector<rows::Task> tasks;
  std::uint64_t tasks_bytes = 0;  // that these hold
  std::string model;              // as the request names it; may be empty
  bool wants_base64 = false;      // the floats' bytes, instead of numbers
  std::size_t dimensions = 0;     // the first so many numbers of a vector, made length 1; 0: all
  // Where scores are wanted and no vectors. Answered when all of them are known, the best first.
  struct Ranking {
    std::vector<std::string> texts;
    std::size_t top = 0;         // the most that are listed; 0: all
    bool has_texts = false;      // the answer repeats them
    bool is_plain_list = false;  // the answer is a bare list
  };
  std::optional<Ranking> ranking;

  std::uint64_t bytes() const;  // what it holds until it is answered
};

// Throws ApiError, which names the input, and what `grow` throws: each text of a request for scores
// has the query too. `numbers`: of a vector.
EmbeddingRequest read_embedding_request(const rows::TaskMaker& maker, rows::Pooling pooling,
                                        std::size_t numbers, std::string_view body,
                                        std::uint64_t number, const TasksGrow& grow);

// The same for /v1/rerank, in the forms of Jina, Cohere and TEI.
EmbeddingRequest read_rerank_request(const rows::TaskMaker& maker, const rows::PairPrompt& pair,
                                     rows::Pooling pooling, std::string_view body,
                                     std::uint64_t number, const TasksGrow& grow);

// Computes the embeddings and answers. Throws ApiError when the service takes no tasks.
void answer_embeddings(GenerationHost& host, std::shared_ptr<Exchange> exchange,
                       EmbeddingRequest request, GenerationHeld held);

}  // namespace sluice::http
