// Makes texts from a file or a client safe for a message: a hostile one must not be able to send
// control characters to a terminal, or to bury the message in its own text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice::text {

// `text` with control characters, bytes that are not UTF-8, and the `quote` that it stands between
// written as escapes, cut with "..." after `length_max` bytes. (U+0080 to U+009F are control
// characters too: terminals take U+009B for what begins their commands.)
std::string escaped(std::string_view text, std::size_t length_max, char quote = '\'');

// The same for a text that stands between no quotes: these are kept, as in "Couldn't connect".
std::string printable(std::string_view text, std::size_t length_max);

// A text of any length for a terminal: what escaped() escapes, but for line feeds, tabs and quotes.
std::string terminal_text(std::string_view text);

// The first between single quotes: 'blk.0.attn_q.weight'.
std::string quoted(std::string_view text);

}  // namespace sluice::text
