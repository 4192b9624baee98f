// The tokenizer of a Hugging Face checkpoint as metadata of a GGUF file: tokenizer.json (BPE on
// bytes, or on characters with bytes for the rest as SentencePiece does it; SentencePiece's unigram
// model; or WordPiece, which may come as vocab.txt instead) or rwkv_vocab_*.txt, and from
// tokenizer_config.json and generation_config.json which tokens begin and end a text. The chat
// templates come from chat_template.jinja, additional_chat_templates/*.jinja, tokenizer_config.json
// and chat_template.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/convert/config.h"
#include "core/gguf/gguf_writer.h"

namespace sluice::convert {

struct TokenizerUse {
  bool keeps_merges = false;   // characters are merged by the list in the file, not by scores
  bool makes_vectors = false;  // of texts, behind which something may stand, too
};

// `vocabulary`: rows of the embedding table; ids without a token are filled with unused ones.
// `config` is config.json. Returns warnings: a line for each thing that is left aside. Throws
// ModelError for what is malformed or not supported.
std::vector<std::string> import_tokenizer(const std::filesystem::path& folder, const Config& config,
                                          std::uint64_t vocabulary, TokenizerUse use,
                                          gguf::Writer& writer);

}  // namespace sluice::convert
