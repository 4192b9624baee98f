// Shared by batch and serve: what the options and the header of a model mean for rows and requests.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/chat/dialogue.h"
#include "core/cli/chat_setup.h"
#include "core/cli/options.h"
#include "core/gguf/gguf.h"
#include "core/tokenizer/tokenizer.h"

namespace sluice::cli {

// The options of a command that its results depend on.
struct ResultOptions {
  CommonOptions common;
  SamplingOptions sampling;
  std::string chat_format = "auto";
  ThinkingOptions thinking;
  std::uint32_t tokens_max = 0;
  bool check_model = false;
  bool shortens = false;
};

// What the results of a job depend on, as batch::JobState records it: the model, the options under
// the names that the user gave them, and today's date where the model's template writes it. Reads
// samples of the model's tensors. Throws std::system_error.
nlohmann::ordered_json recorded_settings(const ResultOptions& options, const gguf::Model& model);

// The names by which a row may ask for this model. Results use the first: the name of its file
// without its end, and without the number of a part, since that is what the user gave.
std::vector<std::string> model_names(const std::filesystem::path& model,
                                     const gguf::Metadata& metadata);

// `think` is the value of --think. `tokenizer` must outlive the result. Null without a source.
std::shared_ptr<const chat::Dialogue> make_dialogue(const std::string& think,
                                                    const std::optional<chat::ChatSource>& source,
                                                    const tokenizer::Tokenizer& tokenizer);

}  // namespace sluice::cli
