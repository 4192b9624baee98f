#include "core/batch/request.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <limits>
#include <stdexcept>
#include <utility>

#include "core/batch/digest.h"
#include "core/engine/text_stream.h"
#include "core/error.h"

namespace sluice::batch {
namespace {

using nlohmann::json;
using tokenizer::Token;

// Why a row is bad. Does not leave this file.
struct BadRow : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void throw_wrong(std::string_view name, std::string_view expected, const json& found) {
  throw BadRow(fmt::format("\"{}\" must be {}, not {}", name, expected, found.type_name()));
}

// The member of an object; null when it is absent or says so.
const json* find(const json& object, const char* name) {
  const auto at = object.find(name);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

std::string text_of(const json& value, std::string_view name) {
  if (!value.is_string()) throw_wrong(name, "a string", value);
  return value.get<std::string>();
}

std::uint64_t count_of(const json& value, std::string_view name, std::uint64_t most) {
  if (!value.is_number_integer()) throw_wrong(name, "an integer", value);
  if (value.is_number_unsigned() && value.get<std::uint64_t>() <= most) {
    return value.get<std::uint64_t>();
  }
  throw BadRow(fmt::format("\"{}\" is {}, but must be from 0 to {}", name, value.dump(), most));
}

double number_of(const json& value, std::string_view name) {
  if (!value.is_number()) throw_wrong(name, "a number", value);
  return value.get<double>();
}

// The parser's message without its prefix and without the text that it last read, which may be
// anything.
std::string parse_problem(const json::exception& error) {
  std::string_view text = error.what();
  text.remove_prefix(std::min(text.find("] "), text.size()));
  if (text.starts_with("] ")) text.remove_prefix(2);
  text = text.substr(0, text.find("; last read"));
  return std::string(text);
}

json parse_object(std::string_view line) {
  json object;
  std::size_t values = 0;
  const auto count = [&](int, json::parse_event_t event, const json&) {
    using Event = json::parse_event_t;
    const bool is_end = event == Event::object_end || event == Event::array_end;
    if (is_end || ++values <= row_values_max) return true;
    throw BadRow(fmt::format("the row has more than {} values in its JSON", row_values_max));
  };
  try {
    object = json::parse(line, count);
  } catch (const json::parse_error& error) {
    throw BadRow(fmt::format("not JSON: byte {}: {}", error.byte, parse_problem(error)));
  } catch (const json::exception& error) {  // a number beyond all bounds
    throw BadRow("not JSON: " + parse_problem(error));
  }
  if (!object.is_object()) {
    throw BadRow(fmt::format("a row must be an object, not {}", object.type_name()));
  }
  return object;
}

// Token ids must be in the vocabulary; that is for those to check who know it.
std::vector<Token> tokens_of(const json& array, std::string_view name) {
  std::vector<Token> tokens;
  tokens.reserve(array.size());
  for (const json& item : array) {
    tokens.push_back(static_cast<Token>(count_of(item, name, std::numeric_limits<Token>::max())));
  }
  return tokens;
}

Prompt prompt_of(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) throw_wrong("prompt", "a string or an array of token ids", value);
  if (value.size() == 1 && value[0].is_string()) return value[0].get<std::string>();
  if (!value.empty() && (value[0].is_string() || value[0].is_array())) {
    throw BadRow("\"prompt\" holds several prompts: give each a row of its own");
  }
  return tokens_of(value, "prompt");
}

// A string, or parts of which each is a text, as OpenAI has it.
std::string content_of(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) throw_wrong("content", "a string or an array of text parts", value);
  std::string text;
  for (const json& part : value) {
    if (!part.is_object() || part.value("type", json()) != "text" || !part.contains("text")) {
      throw BadRow("\"content\" has a part that is not a text");
    }
    text += text_of(part["text"], "text");
  }
  return text;
}

std::vector<Message> messages_of(const json& value) {
  if (!value.is_array()) throw_wrong("messages", "an array", value);
  if (value.empty()) throw BadRow("\"messages\" is empty");
  std::vector<Message> messages;
  for (const json& item : value) {
    if (!item.is_object()) throw_wrong("messages", "an array of objects", item);
    const json* role = find(item, "role");
    const json* content = find(item, "content");
    if (role == nullptr || content == nullptr) {
      throw BadRow("a message needs both \"role\" and \"content\"");
    }
    messages.push_back({text_of(*role, "role"), content_of(*content)});
  }
  return messages;
}

void check_length(std::size_t bytes, std::string_view name) {
  if (bytes <= text_bytes_max) return;
  throw BadRow(fmt::format("\"{}\" has {} bytes, the most is {}", name, bytes, text_bytes_max));
}

std::vector<std::string> stop_of(const json& value) {
  std::vector<std::string> stop;
  if (value.is_string()) {
    stop.push_back(value.get<std::string>());
  } else if (value.is_array()) {
    for (const json& item : value) stop.push_back(text_of(item, "stop"));
  } else {
    throw_wrong("stop", "a string or an array of strings", value);
  }
  std::size_t bytes = 0;
  for (const std::string& text : stop) bytes += text.size();
  check_length(bytes, "stop");
  if (stop.size() > stop_texts_max) {
    throw BadRow(fmt::format("\"stop\" has {} texts, the most is {}", stop.size(), stop_texts_max));
  }
  return stop;
}

// Members that ask for another result than the one that would be given.
void refuse_unsupported(const json& settings) {
  struct Unsupported {
    const char* name;
    json harmless;  // the value that asks for nothing
  };
  static const std::vector<Unsupported> table = {
      {"n", 1},
      {"best_of", 1},
      {"stream", false},
      {"echo", false},
      {"logprobs", false},
      {"top_logprobs", 0},
      {"suffix", ""},
      {"presence_penalty", 0},
      {"frequency_penalty", 0},
      {"logit_bias", json::object()},
      {"tools", json::array()},
      {"functions", json::array()},
      {"response_format", {{"type", "text"}}},
  };
  for (const Unsupported& entry : table) {
    const json* value = find(settings, entry.name);
    if (value != nullptr && *value != entry.harmless) {
      throw BadRow(fmt::format("\"{}\" is not supported", entry.name));
    }
  }
}

std::uint64_t derived_seed(std::uint64_t job_seed, const json& id, std::uint64_t row) {
  Digest digest;
  digest.add(id.is_null() ? fmt::format("row {}", row) : id.dump());
  return digest.value() ^ job_seed;
}

void read_sampling(const json& settings, engine::SamplerOptions& sampler) {
  const auto read = [&](const char* name, double& value) {
    if (const json* given = find(settings, name)) value = number_of(*given, name);
  };
  read("temperature", sampler.temperature);
  read("top_p", sampler.top_p);
  read("min_p", sampler.min_p);
  read("repeat_penalty", sampler.repeat_penalty);
  constexpr std::uint64_t top_k_max = std::numeric_limits<std::uint32_t>::max();
  if (const json* given = find(settings, "top_k")) {
    sampler.top_k = static_cast<std::uint32_t>(count_of(*given, "top_k", top_k_max));
  }
  if (const json* given = find(settings, "seed")) {
    if (!given->is_number_integer()) throw_wrong("seed", "an integer", *given);
    sampler.seed = given->is_number_unsigned()
                       ? given->get<std::uint64_t>()
                       : static_cast<std::uint64_t>(given->get<std::int64_t>());
  }
}

Request read_request(const json& settings, bool wants_messages, const RowHeader& header,
                     std::uint64_t row, const RowDefaults& defaults) {
  Request request{{}, defaults.tokens_max, defaults.sampler, defaults.stop};
  const char* source = wants_messages ? "messages" : "prompt";
  const json* prompt = find(settings, source);
  if (prompt == nullptr) throw BadRow(fmt::format("\"{}\" is missing", source));
  if (wants_messages) {
    request.prompt = messages_of(*prompt);
  } else {
    request.prompt = prompt_of(*prompt);
  }
  refuse_unsupported(settings);
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    constexpr std::uint64_t most = std::uint64_t{1} << 30;
    if (const json* given = find(settings, name)) {
      request.tokens_max = static_cast<std::uint32_t>(count_of(*given, name, most));
    }
  }
  request.sampler.seed = derived_seed(defaults.sampler.seed, header.id, row);
  read_sampling(settings, request.sampler);
  if (const json* given = find(settings, "stop")) request.stop = stop_of(*given);
  try {  // they check what they are given
    static_cast<void>(engine::Sampler(request.sampler));
    static_cast<void>(engine::TextStream(request.stop));
  } catch (const UsageError& error) {
    throw BadRow(error.what());
  }
  return request;
}

// What can be said of the row even if the rest of it is bad.
RowHeader read_header(const json& object) {
  RowHeader header;
  const bool is_plain = !object.contains("custom_id") && !object.contains("body");
  const json* url = find(object, "url");
  if (!is_plain) {
    header.form = url != nullptr && *url == "/v1/chat/completions" ? Form::chat : Form::completions;
  }
  const char* name = is_plain ? "id" : "custom_id";
  if (const json* id = find(object, name)) {
    if (id->is_string()) check_length(id->get_ref<const std::string&>().size(), name);
    if (id->is_string() || (is_plain && id->is_number_integer())) header.id = *id;
  }
  return header;
}

void check_id(const json& object, const RowHeader& header) {
  if (header.form == Form::plain) {
    const json* id = find(object, "id");
    if (id != nullptr && header.id.is_null()) throw_wrong("id", "a string or an integer", *id);
    return;
  }
  const json* id = find(object, "custom_id");
  if (id == nullptr) throw BadRow("\"custom_id\" is missing");
  if (header.id.is_null()) throw_wrong("custom_id", "a string", *id);
}

const json& check_envelope(const json& object) {
  const json* method = find(object, "method");
  if (method != nullptr && *method != "POST") throw BadRow("\"method\" must be \"POST\"");
  const json* url = find(object, "url");
  if (url == nullptr) throw BadRow("\"url\" is missing");
  const std::string path = text_of(*url, "url");
  if (path != "/v1/completions" && path != "/v1/chat/completions") {
    throw BadRow("\"url\" must be \"/v1/completions\" or \"/v1/chat/completions\"");
  }
  const json* body = find(object, "body");
  if (body == nullptr) throw BadRow("\"body\" is missing");
  if (!body->is_object()) throw_wrong("body", "an object", *body);
  return *body;
}

void parse_into(std::string_view line, std::uint64_t row, const RowDefaults& defaults,
                ParsedRow& parsed) {
  if (line.size() > row_bytes_max) {
    throw BadRow(fmt::format("the row has {} bytes, the most is {}", line.size(), row_bytes_max));
  }
  const json object = parse_object(line);
  RowHeader& header = parsed.header;
  header = read_header(object);
  check_id(object, header);
  const bool is_plain = header.form == Form::plain;
  const json& settings = is_plain ? object : check_envelope(object);
  if (const json* model = find(settings, "model")) {
    header.model = text_of(*model, "model");
    check_length(header.model.size(), "model");
  }
  if (is_plain && find(object, "prompt") != nullptr && find(object, "messages") != nullptr) {
    throw BadRow("a row has either \"prompt\" or \"messages\", not both");
  }
  const bool wants_messages =
      header.form == Form::chat || (is_plain && find(object, "messages") != nullptr);
  parsed.request = read_request(settings, wants_messages, header, row, defaults);
}

}  // namespace

// The line, the parser's copy of its strings while they grow, the values and the request; and for
// each value, which takes two bytes or more, a node of a map or its place in vectors that grow.
std::uint64_t parse_bytes(std::uint64_t line_bytes) {
  const std::uint64_t bytes = std::min<std::uint64_t>(line_bytes, row_bytes_max + 1);
  return 4 * bytes + 112 * std::min<std::uint64_t>(bytes / 2, row_values_max);
}

ParsedRow parse_row(std::string_view line, std::uint64_t row, const RowDefaults& defaults) {
  ParsedRow parsed;
  try {
    parse_into(line, row, defaults, parsed);
  } catch (const BadRow& bad) {
    parsed.reason = bad.what();
  }
  return parsed;
}

}  // namespace sluice::batch
