// The tokens of a text that is read and encoded as they are asked for, so that its length takes no
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/cli/files.h"
#include "core/engine/engine.h"
#include "core/tokenizer/text_encoder.h"

namespace sluice::cli {

class TokenReader {
 public:
  // What a reader holds while it reads; a part of plan::RunSettings::caller_bytes.
  static constexpr std::uint64_t bytes_max = std::uint64_t{1} << 20;
  // And of each token of a prompt that is read ahead.
  static constexpr std::uint64_t bytes_per_token = 4 * sizeof(tokenizer::Token);

  struct Options {
    tokenizer::EncodeOptions encode = {};
    bool drops_last_newline = false;
  };

  // The tokenizer and the plan are the engine's, which must outlive the reader.
  TokenReader(TextInput text, const engine::Engine& engine, const Options& options);

  // Appends the next tokens, up to `count`; fewer only at the end of the text. Throws
  // std::system_error, and Error with ExitCode::budget when more of the text has to be held than
  // the budget has room for, because it cannot be cut anywhere.
  void read(std::size_t count, std::vector<tokenizer::Token>& out);

  // Reads the rest; returns how many tokens it has.
  std::uint64_t skip_rest();

  // How much of the text has been read: "12 %", or "3.20 MiB" where its length is not known.
  std::string progress() const;

 private:
  bool read_more();
  void check_held() const;

  TextInput text_;
  Options options_;
  tokenizer::TextEncoder encoder_;
  std::uint64_t spare_bytes_;  // that the plan leaves of the budget
  std::string piece_;
  std::vector<tokenizer::Token> ready_;  // encoded, and from next_ on not given away yet
  std::size_t next_ = 0;
  bool is_at_end_ = false;
};

}  // namespace sluice::cli
