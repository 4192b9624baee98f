#include "core/rows/request.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/files/checksum.h"
#include "core/rows/row_json.h"
#include "core/rows/row_settings.h"
#include "core/sampling/text_stream.h"
#include "core/text/quoted.h"

namespace sluice::rows {
namespace {

using tokenizer::Token;

// Does not check that ids are in the vocabulary, which is not known here.
std::vector<Token> tokens_of(const RowJson& array, std::string_view name) {
  std::vector<Token> tokens;
  tokens.reserve(array.size());
  for (const RowJson& item : array) {
    tokens.push_back(static_cast<Token>(count_of(item, name, std::numeric_limits<Token>::max())));
  }
  return tokens;
}

Prompt prompt_of(const RowJson& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) {
    throw_wrong_type("prompt", "a string or an array of token ids", value);
  }
  if (value.size() == 1 && value[0].is_string()) return value[0].get<std::string>();
  if (value.size() == 1 && value[0].is_array()) return tokens_of(value[0], "prompt");
  if (!value.empty() && (value[0].is_string() || value[0].is_array())) {
    throw BadRow("\"prompt\" holds several prompts: send each on its own");
  }
  return tokens_of(value, "prompt");
}

// Makes sure of a string, or of a list of parts that are all texts, as in OpenAI's API. Parts keep
// their other members. A refusal of an assistant is a text too.
void normalise_content(RowJson& content, bool is_assistant) {
  if (content.is_string()) return;
  if (!content.is_array()) {
    throw_wrong_type("content", "a string or an array of text parts", content);
  }
  for (RowJson& part : content) {
    const RowJson* type = part.is_object() ? find_member(part, "type") : nullptr;
    const bool is_refusal = is_assistant && type != nullptr && *type == "refusal";
    const RowJson* text =
        type != nullptr ? find_member(part, is_refusal ? "refusal" : "text") : nullptr;
    const bool is_text = text != nullptr && text->is_string() && (is_refusal || *type == "text");
    if (!is_text) throw BadRow("\"content\" has a part that is not a text");
    if (is_refusal) part = RowJson{{"type", "text"}, {"text", *text}};
  }
  if (content.empty()) content = "";
}

// Makes sure of what templates and formats rely on: a role, and a content of texts. Null counts as
// the refusal beside it, or as an empty text, where the model has said nothing.
void normalise_message(RowJson& message) {
  if (!message.is_object()) throw_wrong_type("messages", "an array of objects", message);
  const RowJson* role = find_member(message, "role");
  const RowJson* content = find_member(message, "content");
  const bool may_be_null = find_member(message, "tool_calls") != nullptr ||
                           (role != nullptr && *role == "assistant" && message.contains("content"));
  if (role == nullptr || (content == nullptr && !may_be_null)) {
    throw BadRow("a message needs both \"role\" and \"content\"");
  }
  if (!role->is_string()) throw_wrong_type("role", "a string", *role);
  const bool is_assistant = *role == "assistant";
  if (content != nullptr) return normalise_content(message["content"], is_assistant);
  const RowJson* refusal = is_assistant ? find_member(message, "refusal") : nullptr;
  message["content"] = refusal != nullptr ? text_of(*refusal, "refusal") : std::string();
}

// Moves the messages out of the row.
chat::DialogueBody take_conversation(RowJson& settings) {
  chat::DialogueBody body;
  body.messages = std::move(settings["messages"]);
  if (!body.messages.is_array()) throw_wrong_type("messages", "an array", body.messages);
  if (body.messages.empty()) throw BadRow("\"messages\" is empty");
  for (RowJson& message : body.messages) normalise_message(message);
  return body;
}

std::uint64_t derived_seed(std::uint64_t job_seed, const nlohmann::json& id, std::uint64_t row) {
  files::Checksum digest;
  digest.add(id.is_null() ? fmt::format("row {}", row) : id.dump());
  return digest.value() ^ job_seed;
}

void check_request(const Request& request) {
  if (request.tokens_min > request.tokens_max) {
    throw BadRow(fmt::format("\"min_tokens\" is {}, but no more than {} tokens are generated",
                             request.tokens_min, request.tokens_max));
  }
  const std::uint64_t logprobs =
      std::uint64_t{request.tokens_max} * request.choices * (1 + request.top_logprobs);
  if (request.wants_logprobs && logprobs > logprobs_max) {
    throw BadRow(
        fmt::format("{} log probabilities are asked for, the most is {}: lower "
                    "\"max_tokens\" or \"top_logprobs\"",
                    logprobs, logprobs_max));
  }
  try {  // the constructors check their arguments
    static_cast<void>(sampling::Sampler(request.sampler));
    static_cast<void>(sampling::TextStream(request.stop));
  } catch (const UsageError& error) {
    throw BadRow(error.what());
  }
}

Request read_request(RowJson& settings, bool is_conversation, const RowHeader& header,
                     std::uint64_t row, const RowDefaults& defaults) {
  Request request;
  request.tokens_max = defaults.tokens_max;
  request.sampler = defaults.sampler;
  request.sampler.seed = derived_seed(defaults.sampler.seed, header.id, row);
  request.stop = defaults.stop;
  const char* source = is_conversation ? "messages" : "prompt";
  const RowJson* prompt = find_member(settings, source);
  if (prompt == nullptr) throw BadRow(fmt::format("\"{}\" is missing", source));
  if (is_conversation) {
    request.prompt = take_conversation(settings);
  } else {
    request.prompt = prompt_of(*prompt);
  }
  read_row_settings(settings, header.form, is_conversation, request);
  if (request.wants_all_tokens && !defaults.shortens) {
    const bool is_newer = find_member(settings, "max_completion_tokens") != nullptr;
    throw BadRow(
        fmt::format("\"{}\" is -1, but must be 0 or more (with --shorten, -1 means as many "
                    "as there is room for)",
                    is_newer ? "max_completion_tokens" : "max_tokens"));
  }
  request.is_default_tokens_max = find_member(settings, "max_tokens") == nullptr &&
                                  find_member(settings, "max_completion_tokens") == nullptr;
  if (defaults.shortens && request.wants_logprobs) {
    const std::uint64_t a_token = std::uint64_t{request.choices} * (1 + request.top_logprobs);
    request.tokens_max = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(request.tokens_max, logprobs_max / a_token));
    request.tokens_min = std::min(request.tokens_min, request.tokens_max);
  }
  check_request(request);
  return request;
}

// Reads what it can of the header, even if the rest of the row is bad.
RowHeader read_header(const RowJson& object) {
  RowHeader header;
  const bool is_plain = !object.contains("custom_id") && !object.contains("body");
  const RowJson* url = find_member(object, "url");
  if (!is_plain) {
    header.form = url != nullptr && *url == "/v1/chat/completions" ? Form::chat : Form::completions;
  }
  const char* name = is_plain ? "id" : "custom_id";
  if (const RowJson* id = find_member(object, name)) {
    if (id->is_string()) {
      check_text_length(id->get_ref<const std::string&>().size(), name);
      header.id = id->get_ref<const std::string&>();
    } else if (is_plain && id->is_number_unsigned()) {
      header.id = id->get<std::uint64_t>();
    } else if (is_plain && id->is_number_integer()) {
      header.id = id->get<std::int64_t>();
    }
  }
  return header;
}

void check_id(const RowJson& object, const RowHeader& header) {
  const bool is_plain = header.form == Form::plain;
  const char* name = is_plain ? "id" : "custom_id";
  const RowJson* id = find_member(object, name);
  if (id == nullptr && !is_plain) throw BadRow("\"custom_id\" is missing");
  if (id != nullptr && header.id.is_null()) {
    throw_wrong_type(name, is_plain ? "a string or an integer" : "a string", *id);
  }
}

void check_envelope(const RowJson& object) {
  for (const auto& item : object.items()) {
    const std::string& name = item.key();
    if (name == "custom_id" || name == "method" || name == "url" || name == "body") continue;
    throw BadRow(
        fmt::format("\"{}\" cannot stand beside \"custom_id\": settings belong into "
                    "\"body\"",
                    text::escaped(name, 100)));
  }
  const RowJson* method = find_member(object, "method");
  if (method != nullptr && *method != "POST") throw BadRow("\"method\" must be \"POST\"");
  const RowJson* url = find_member(object, "url");
  if (url == nullptr) throw BadRow("\"url\" is missing");
  const std::string path = text_of(*url, "url");
  if (path != "/v1/completions" && path != "/v1/chat/completions") {
    throw BadRow("\"url\" must be \"/v1/completions\" or \"/v1/chat/completions\"");
  }
  const RowJson* body = find_member(object, "body");
  if (body == nullptr) throw BadRow("\"body\" is missing");
  if (!body->is_object()) throw_wrong_type("body", "an object", *body);
}

RowJson parse_limited(std::string_view text) {
  if (text.size() > row_bytes_max) {
    throw BadRow(fmt::format("the row has {} bytes, the most is {}", text.size(), row_bytes_max));
  }
  return parse_row_object(text, "row");
}

void read_settings(RowJson& settings, std::uint64_t row, const RowDefaults& defaults,
                   ParsedRow& parsed) {
  RowHeader& header = parsed.header;
  if (const RowJson* model = find_member(settings, "model")) {
    header.model = text_of(*model, "model");
    check_text_length(header.model.size(), "model");
  }
  const bool is_plain = header.form == Form::plain;
  const bool has_messages = find_member(settings, "messages") != nullptr;
  if (is_plain && has_messages && find_member(settings, "prompt") != nullptr) {
    throw BadRow("give \"prompt\" or \"messages\", not both");
  }
  const bool is_conversation = header.form == Form::chat || (is_plain && has_messages);
  parsed.request = read_request(settings, is_conversation, header, row, defaults);
}

void parse_into(std::string_view line, std::uint64_t row, const RowDefaults& defaults,
                ParsedRow& parsed) {
  RowJson object = parse_limited(line);
  RowHeader& header = parsed.header;
  header = read_header(object);
  check_id(object, header);
  const bool is_plain = header.form == Form::plain;
  if (!is_plain) check_envelope(object);
  read_settings(is_plain ? object : object["body"], row, defaults, parsed);
}

// Calls `read` with a row that it fills.
template <class Read>
ParsedRow read_row(Read read) {
  ParsedRow parsed;
  try {
    read(parsed);
  } catch (const BadRow& bad) {
    parsed.reason = bad.what();
  }
  return parsed;
}

}  // namespace

// The sum of: the line, the parser's copy of its strings while they grow, the values and the
// request; and for each value (at least two bytes of the line) its place in vectors that grow. The
// contents of settings are copied.
std::uint64_t parse_bytes(std::uint64_t line_bytes) {
  const std::uint64_t bytes = std::min<std::uint64_t>(line_bytes, row_bytes_max + 1);
  return 6 * bytes + 144 * std::min<std::uint64_t>(bytes / 2, row_values_max);
}

ParsedRow parse_row(std::string_view line, std::uint64_t row, const RowDefaults& defaults) {
  return read_row([&](ParsedRow& parsed) { parse_into(line, row, defaults, parsed); });
}

ParsedRow parse_body(std::string_view body, Form form, std::uint64_t row,
                     const RowDefaults& defaults) {
  return read_row([&](ParsedRow& parsed) {
    parsed.header.form = form;
    RowJson settings = parse_limited(body);
    read_settings(settings, row, defaults, parsed);
  });
}

ParsedRow read_body(RowJson body, Form form, std::uint64_t row, const RowDefaults& defaults) {
  return read_row([&](ParsedRow& parsed) {
    parsed.header.form = form;
    read_settings(body, row, defaults, parsed);
  });
}

Prompt text_or_tokens(const RowJson& value, std::string_view name) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array() || value.empty()) {
    throw_wrong_type(name, "a text, token ids, or an array of these", value);
  }
  return tokens_of(value, name);
}

}  // namespace sluice::rows
