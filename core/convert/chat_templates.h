// The chat templates of a checkpoint as metadata of a GGUF file. They come from
// chat_template.jinja, additional_chat_templates/*.jinja, tokenizer_config.json and
// chat_template.json.
#pragma once

#include <filesystem>

#include "core/convert/config.h"
#include "core/gguf/gguf_writer.h"

namespace sluice::convert {

// Writes tokenizer.chat_template, and tokenizer.chat_template.NAME for each other one. `settings`
// is tokenizer_config.json. Throws ModelError for what is malformed.
void write_chat_templates(const std::filesystem::path& folder, const Config& settings,
                          gguf::Writer& writer);

}  // namespace sluice::convert
