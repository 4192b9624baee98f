#include "core/cli/tokenize.h"

#include <cerrno>
#include <fmt/format.h>
#include <memory>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "core/cli/files.h"
#include "core/cli/options.h"
#include "core/cli/output.h"
#include "core/cli/sandbox.h"
#include "core/gguf/gguf.h"
#include "core/text/quoted.h"
#include "core/tokenizer/tokenizer.h"

namespace sluice::cli {

namespace {

std::string read_input(const TokenizeOptions& options) {
  if (!options.file.empty()) return read_text(options.file);
  if (options.text && *options.text != "-") return *options.text;
  if (!options.text && ::isatty(STDIN_FILENO) == 1) {
    throw UsageError("there is no text: give -p TEXT or -f FILE, or pipe a text in");
  }
  return read_text("-");
}

// A piece on one line. Of a token that is a part of a character, the bytes are escapes.
std::string quote(std::string_view piece) {
  return fmt::format("\"{}\"", text::escaped(piece, piece.size(), '"'));
}

// Writes as long as somebody reads.
void write_tokens(const tokenizer::Tokenizer& tokenizer,
                  const std::vector<tokenizer::Token>& tokens, bool ids_only) {
  constexpr std::size_t block_bytes = std::size_t{64} << 10;
  std::string block;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    block += ids_only
                 ? fmt::format("{}{}", i == 0 ? "" : " ", tokens[i])
                 : fmt::format("{:>7} {}\n", tokens[i], quote(tokenizer.piece(tokens[i], true)));
    if (block.size() < block_bytes) continue;
    if (!write_output(block)) return;
    block.clear();
  }
  if (ids_only) block += '\n';
  write_output(block);
}

}  // namespace

CLI::App* add_tokenize(CLI::App& program, TokenizeOptions& options) {
  CLI::App* command = add_command(
      program, "tokenize", "Show the tokens of a text",
      "Each line is a token: its id, and between quotes what it stands for, with escapes (\\n, "
      "\\xe2)\nfor control characters and for bytes that are only a part of a character.\n\n"
      "Examples:\n"
      "  sluice tokenize model.gguf -p \"Hello, world\"\n"
      "  sluice tokenize model.gguf -f prompt.txt --ids --no-bos");
  add_model_argument(*command, options.model, ModelPart::header);
  CLI::Option* text = command
                          ->add_option("-p,--prompt", options.text,
                                       "The text; - or nothing reads the standard input")
                          ->type_name("TEXT");
  command->add_option("-f,--file", options.file, "Read the text from this file, all of it")
      ->type_name("FILE")
      ->excludes(text);
  command->add_flag("--ids", options.ids_only, "Show the ids alone, on one line");
  command->add_flag("--no-bos", options.no_bos,
                    "Leave out the token that the model wants in front of a text");
  command->add_flag("--parse-special", options.parse_special,
                    "Take control tokens that are written out in the text as such");
  return command;
}

int run_tokenize(const TokenizeOptions& options) {
  enter_reading_sandbox({options.model, options.file});
  const gguf::Model model = gguf::Model::open(options.model, {.header_only = true});
  const auto tokenizer = tokenizer::Tokenizer::from_metadata(model.metadata());
  for (const std::string& warning : tokenizer->warnings()) warn(warning);
  const std::vector<tokenizer::Token> tokens = tokenizer->encode(
      read_input(options), {.add_bos = !options.no_bos, .parse_special = options.parse_special});
  write_tokens(*tokenizer, tokens, options.ids_only);
  return 0;
}

}  // namespace sluice::cli
