// The words of a command line before CLI11 reads them: help and version as commands, names of
// options that llama.cpp's users know, and suggestions for names that there are not.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::cli {

// The name among `known` that was most likely meant; empty when none is close.
std::string closest(std::string_view word, const std::vector<std::string>& known);

// The words as CLI11 is to read them. Throws UsageError for a command or an option that there is
// not, with what was probably meant.
std::vector<std::string> read_words(const CLI::App& program, std::vector<std::string> words);

// What CLI11 complains about, in the words of this program and in one line. `command` is the one
// that was being read.
std::string problem_of(const CLI::ParseError& error, const CLI::App& command);

}  // namespace sluice::cli
