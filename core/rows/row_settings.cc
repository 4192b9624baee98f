#include "core/rows/row_settings.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/number.h"
#include "core/text/keyed_hash.h"
#include "core/text/quoted.h"

namespace sluice::rows {
namespace {

using tokenizer::Token;
using Kind = RowSetting::Kind;
using Scope = RowSetting::Scope;

constexpr std::uint64_t tokens_most = std::uint64_t{1} << 30;
constexpr std::uint64_t token_most = std::numeric_limits<Token>::max();

std::uint32_t small_count(const RowJson& value, std::string_view name, std::uint64_t most,
                          std::uint64_t least = 0) {
  return static_cast<std::uint32_t>(count_of(value, name, most, least));
}

void read_top_k(const RowJson& value, std::string_view name, Request& request) {
  const bool is_off = value == -1;
  request.sampler.top_k =
      is_off ? 0 : small_count(value, name, std::numeric_limits<std::uint32_t>::max());
}

void read_seed(const RowJson& value, std::string_view name, Request& request) {
  if (!value.is_number_integer()) throw_wrong_type(name, "an integer", value);
  request.sampler.seed = value.is_number_unsigned()
                             ? value.get<std::uint64_t>()
                             : static_cast<std::uint64_t>(value.get<std::int64_t>());
}

// This penalty looks at the whole text, as in other programs that have this member.
void read_repetition_penalty(const RowJson& value, std::string_view name, Request& request) {
  request.sampler.repeat_penalty = number_of(value, name);
  request.sampler.repeat_last_n = sampling::SamplerOptions::whole_text;
}

std::optional<Token> token_named(const std::string& text) {
  const auto token = base::whole_number<Token>(text);
  return token && *token >= 0 ? token : std::nullopt;
}

void read_logit_bias(const RowJson& value, std::string_view name, Request& request) {
  if (!value.is_object()) throw_wrong_type(name, "an object", value);
  if (value.size() > logit_biases_max) {
    throw BadRow(
        fmt::format("\"{}\" has {} tokens, the most is {}", name, value.size(), logit_biases_max));
  }
  request.sampler.logit_bias.clear();
  for (const auto& item : value.items()) {
    const std::optional<Token> token = token_named(item.key());
    if (!token) throw BadRow(fmt::format("\"{}\" has a name that is no token id", name));
    const double bias = number_of(item.value(), name, -100, 100);
    request.sampler.logit_bias.push_back({*token, static_cast<float>(bias)});
  }
}

void read_stop(const RowJson& value, std::string_view name, Request& request) {
  std::vector<std::string> stop;
  if (value.is_string()) {
    stop.push_back(value.get<std::string>());
  } else if (value.is_array()) {
    for (const RowJson& item : value) stop.push_back(text_of(item, name));
  } else {
    throw_wrong_type(name, "a string or an array of strings", value);
  }
  std::size_t bytes = 0;
  for (const std::string& text : stop) {
    if (text.empty()) throw BadRow(fmt::format("\"{}\" has an empty text", name));
    bytes += text.size();
  }
  check_text_length(bytes, name);
  if (stop.size() > stop_texts_max) {
    throw BadRow(
        fmt::format("\"{}\" has {} texts, the most is {}", name, stop.size(), stop_texts_max));
  }
  request.stop = std::move(stop);
}

void read_stop_tokens(const RowJson& value, std::string_view name, Request& request) {
  if (!value.is_array()) throw_wrong_type(name, "an array of token ids", value);
  if (value.size() > stop_tokens_max) {
    throw BadRow(
        fmt::format("\"{}\" has {} tokens, the most is {}", name, value.size(), stop_tokens_max));
  }
  for (const RowJson& item : value) {
    request.stop_tokens.push_back(static_cast<Token>(count_of(item, name, token_most)));
  }
}

void read_choices(const RowJson& value, std::string_view name, Request& request) {
  request.choices = small_count(value, name, choices_max, 1);
}

// A number is how many other tokens are reported beside the chosen one.
void read_logprobs(const RowJson& value, std::string_view name, Request& request) {
  if (value.is_boolean()) {
    request.wants_logprobs = value.get<bool>();
    return;
  }
  if (std::holds_alternative<chat::DialogueBody>(request.prompt)) {
    throw_wrong_type(name, "true or false", value);
  }
  request.top_logprobs = small_count(value, name, top_logprobs_max);
  request.wants_logprobs = true;
}

void read_top_logprobs(const RowJson& value, std::string_view name, Request& request) {
  const std::uint32_t count = small_count(value, name, top_logprobs_max);
  if (count != 0 && !request.wants_logprobs) {
    throw BadRow(fmt::format("\"{}\" needs \"logprobs\": true", name));
  }
  request.top_logprobs = count;
}

chat::DialogueBody& conversation_in(Request& request) {
  return std::get<chat::DialogueBody>(request.prompt);
}

// Programs in PHP write an empty object as [].
void make_object(RowJson& object, const char* name) {
  const auto found = object.find(name);
  if (found != object.end() && found->is_array() && found->empty()) *found = RowJson::object();
}

// Makes sure of what templates, and the reading of calls, rely on: a function with a name, and
// parameters that are the schema of an object, or absent.
void normalise_tool(RowJson& tool, std::string_view name) {
  if (!tool.is_object()) throw_wrong_type(name, "an array of objects", tool);
  RowJson& function = tool.contains("function") ? tool["function"] : tool;
  const RowJson* called = function.is_object() ? find_member(function, "name") : nullptr;
  if (called == nullptr || !called->is_string()) {
    throw BadRow(fmt::format("\"{}\" has a tool that is no function with a \"name\"", name));
  }
  make_object(function, "parameters");
  const auto parameters = function.find("parameters");
  if (parameters == function.end()) return;
  if (parameters->is_null()) {
    function.erase(parameters);
  } else if (parameters->is_object()) {
    make_object(*parameters, "properties");
  } else {
    throw BadRow(
        fmt::format("\"{}\" has a function \"{}\" whose \"parameters\" are not the schema "
                    "of an object",
                    name, text::escaped(called->get<std::string>(), 100)));
  }
}

void read_tools(const RowJson& value, std::string_view name, Request& request) {
  if (!value.is_array()) throw_wrong_type(name, "an array", value);
  if (value.empty()) return;
  RowJson& tools = conversation_in(request).tools = value;
  for (RowJson& tool : tools) normalise_tool(tool, name);
}

// The name of a tool, or of one that is named as a tool is; null where there is none.
const RowJson* function_name(const RowJson& tool) {
  if (!tool.is_object()) return nullptr;
  const RowJson& function = function_of(tool);
  return function.is_object() ? find_member(function, "name") : nullptr;
}

// The names of functions, found in a time that does not grow with their number.
class FunctionNames {
 public:
  explicit FunctionNames(const RowJson& tools) {
    for (const RowJson& tool : tools) {
      const RowJson* name = function_name(tool);
      if (name != nullptr && name->is_string()) names_.insert(name->get_ref<const std::string&>());
    }
  }
  bool contains(const RowJson& name) const {
    return name.is_string() && names_.contains(name.get_ref<const std::string&>());
  }

 private:
  std::unordered_set<std::string_view, text::KeyedHash> names_;
};

// Leaves the tools that {"type": "allowed_tools", ...} lists. Returns its mode.
RowJson allow_tools(const RowJson& value, std::string_view name, RowJson& tools) {
  const RowJson* inner = find_member(value, "allowed_tools");
  const RowJson& choice = inner == nullptr ? value : *inner;
  const RowJson* list = choice.is_object() ? find_member(choice, "tools") : nullptr;
  const RowJson* mode = choice.is_object() ? find_member(choice, "mode") : nullptr;
  if (list == nullptr || !list->is_array()) {
    throw BadRow(fmt::format("\"{}\" needs a list of \"tools\"", name));
  }
  const FunctionNames listed(*list);
  RowJson allowed = RowJson::array();
  for (RowJson& tool : tools) {
    const RowJson* own = function_name(tool);
    if (own != nullptr && listed.contains(*own)) allowed.push_back(std::move(tool));
  }
  tools = std::move(allowed);
  return mode == nullptr ? RowJson("auto") : *mode;
}

void read_tool_choice(const RowJson& value, std::string_view name, Request& request) {
  RowJson& tools = conversation_in(request).tools;
  RowJson choice = value;
  if (value.is_object() && !tools.is_null()) {
    const RowJson* type = find_member(value, "type");
    if (type != nullptr && *type == "allowed_tools") {
      choice = allow_tools(value, name, tools);
    } else if (type != nullptr && *type == "function" && function_name(value) != nullptr) {
      const RowJson* called = function_name(value);
      if (!FunctionNames(tools).contains(*called)) {
        throw BadRow(fmt::format("\"{}\" names a function that is not among the \"tools\"", name));
      }
      request.called_tool = text_of(*called, name);
      choice = "required";
    }
  }
  if (choice == "none") tools = nullptr;
  if (tools.is_array() && tools.empty()) tools = nullptr;
  if (choice == "none" || choice == "auto") return;
  if (choice != "required" && !value.is_object()) {
    throw BadRow(fmt::format(
        "\"{}\" can only be \"auto\", \"none\", \"required\" or name a function", name));
  }
  if (choice != "required" || tools.is_null()) {
    throw BadRow(fmt::format("\"{}\" asks for a function, but \"tools\" has none for it", name));
  }
  request.must_call = true;
}

void read_parallel_calls(const RowJson& value, std::string_view name, Request& request) {
  request.one_call = !truth_of(value, name);
}

void read_variables(const RowJson& value, std::string_view name, Request& request) {
  if (!value.is_object()) throw_wrong_type(name, "an object", value);
  for (const auto& item : value.items()) {
    for (const char* reserved : {"messages", "tools", "add_generation_prompt"}) {
      if (item.key() == reserved) {
        throw BadRow(fmt::format("\"{}\" cannot hold \"{}\"", name, reserved));
      }
    }
    conversation_in(request).variables[item.key()] = item.value();
  }
}

void read_effort(const RowJson& value, std::string_view name, Request& request) {
  conversation_in(request).variables[std::string(name)] = text_of(value, name);
}

template <double sampling::SamplerOptions::*Member>
void read_number(const RowJson& value, std::string_view name, Request& request) {
  request.sampler.*Member = number_of(value, name);
}

template <double sampling::SamplerOptions::*Member>
void read_penalty(const RowJson& value, std::string_view name, Request& request) {
  request.sampler.*Member = number_of(value, name, -2, 2);
}

void read_tokens_max(const RowJson& value, std::string_view name, Request& request) {
  request.wants_all_tokens = value == -1;
  request.tokens_max = request.wants_all_tokens ? static_cast<std::uint32_t>(tokens_most)
                                                : small_count(value, name, tokens_most);
}

void read_tokens_min(const RowJson& value, std::string_view name, Request& request) {
  request.tokens_min = small_count(value, name, tokens_most);
}

void read_ignore_end(const RowJson& value, std::string_view name, Request& request) {
  request.ignores_end = truth_of(value, name);
}

using Text = constrain::TextForm::Kind;

void set_form(Request& request, Text kind, std::string text, std::string_view name) {
  if (request.form.kind != Text::free) {
    throw BadRow(fmt::format("\"{}\" stands beside another form of the text", name));
  }
  request.form = {kind, std::move(text)};
}

// A schema as JSON, or as a text that holds JSON.
void set_schema(Request& request, const RowJson& value, std::string_view name) {
  set_form(request, Text::json_schema, value.is_string() ? value.get<std::string>() : value.dump(),
           name);
}

void check_members(const RowJson& value, std::string_view name,
                   std::initializer_list<std::string_view> known) {
  for (const auto& item : value.items()) {
    if (std::ranges::find(known, std::string_view(item.key())) != known.end()) continue;
    throw BadRow(
        fmt::format("\"{}\" in \"{}\" is not supported", text::escaped(item.key(), 100), name));
  }
}

// A text, or an array of parts that are texts.
void read_prediction(const RowJson& value, std::string_view name, Request& request) {
  if (!value.is_object()) throw_wrong_type(name, "an object", value);
  check_members(value, name, {"type", "content"});
  const RowJson* content = find_member(value, "content");
  const RowJson* type = find_member(value, "type");
  if (type == nullptr || *type != "content" || content == nullptr) {
    throw BadRow(fmt::format("\"{}\" must be {{\"type\": \"content\", \"content\": ...}}", name));
  }
  const std::string text_name = fmt::format("{}.content", name);
  if (!content->is_array()) {
    request.prediction = text_of(*content, text_name);
    return;
  }
  for (const RowJson& part : *content) {
    if (!part.is_object()) throw_wrong_type(text_name, "an array of texts", part);
    check_members(part, text_name, {"type", "text"});
    const RowJson* text = find_member(part, "text");
    if (text == nullptr) throw BadRow(fmt::format("a part of \"{}\" has no \"text\"", text_name));
    request.prediction += text_of(*text, text_name);
  }
}

void read_response_format(const RowJson& value, std::string_view name, Request& request) {
  if (!value.is_object()) throw_wrong_type(name, "an object", value);
  check_members(value, name, {"type", "json_schema"});
  const RowJson* type = find_member(value, "type");
  if (type == nullptr) throw BadRow(fmt::format("\"{}\" has no \"type\"", name));
  if (*type == "text") return;
  if (*type == "json_object") return set_form(request, Text::json_object, "", name);
  if (*type != "json_schema") {
    throw BadRow(
        fmt::format("\"{}\" can only have the \"type\" \"text\", \"json_object\" or "
                    "\"json_schema\"",
                    name));
  }
  const RowJson* format = find_member(value, "json_schema");
  if (format == nullptr || !format->is_object()) {
    throw BadRow(fmt::format("\"{}\" needs an object \"json_schema\"", name));
  }
  check_members(*format, "json_schema", {"name", "description", "strict", "schema"});
  const RowJson* schema = find_member(*format, "schema");
  if (schema == nullptr) throw BadRow("\"json_schema\" has no \"schema\"");
  set_schema(request, *schema, name);
}

void read_grammar(const RowJson& value, std::string_view name, Request& request) {
  set_form(request, Text::gbnf, text_of(value, name), name);
}

void read_guided_json(const RowJson& value, std::string_view name, Request& request) {
  set_schema(request, value, name);
}

void read_structured_outputs(const RowJson& value, std::string_view name, Request& request) {
  if (!value.is_object()) throw_wrong_type(name, "an object", value);
  check_members(value, name, {"json", "grammar", "json_object"});
  if (const RowJson* schema = find_member(value, "json")) set_schema(request, *schema, name);
  if (const RowJson* grammar = find_member(value, "grammar")) read_grammar(*grammar, name, request);
  const RowJson* any = find_member(value, "json_object");
  if (any != nullptr && truth_of(*any, name)) set_form(request, Text::json_object, "", name);
}

std::vector<RowSetting> read_ones() {
  using Options = sampling::SamplerOptions;
  return {
      {"prompt", Kind::read, Scope::text, "a text, or an array of token ids",
       "needed, unless there are `messages`"},
      {"messages", Kind::read, Scope::conversation,
       "`role` and `content` (a text, parts of type `text`, or, of an assistant, parts of type "
       "`refusal` or null); calls of tools and their results as OpenAI has them",
       "needed, unless there is a `prompt`"},
      {"tools", Kind::read, Scope::conversation,
       "functions that the model may call: each with a `name`, and `parameters`, which are the "
       "schema of an object, or `[]` or missing for none",
       "none", read_tools},
      {"tool_choice", Kind::read, Scope::conversation,
       "`auto`; `none`: the model is not told of the tools; `required`, or "
       "`{\"type\": \"function\", \"function\": {\"name\": ...}}`: the answer is calls, of this "
       "function; "
       "`allowed_tools` as OpenAI has it; see [structured-output.md](structured-output.md)",
       "`auto`", read_tool_choice},
      {"parallel_tool_calls", Kind::read, Scope::all,
       "false: the answer ends behind its first call", "true", read_parallel_calls},
      {"chat_template_kwargs", Kind::read, Scope::conversation,
       "variables for the model's chat template, which must know them", "none", read_variables},
      {"reasoning_effort", Kind::read, Scope::conversation,
       "a text for the model's chat template, which must know it", "as the template has it",
       read_effort},
      {"model", Kind::read, Scope::all,
       "what the result gives as its model; compared with the model only with `--check-model`",
       "the name of the model's file, without its ending"},
      {"max_tokens", Kind::read, Scope::all,
       "most tokens to generate; with `--shorten`, -1: as many as there is room for", "`-n`, 256",
       read_tokens_max},
      {"max_completion_tokens", Kind::read, Scope::all, "the same; it wins over `max_tokens`",
       "`max_tokens`", read_tokens_max},
      {"min_tokens", Kind::read, Scope::all,
       "before so many tokens neither the end of the text nor one of `stop_token_ids` is chosen",
       "0", read_tokens_min},
      {"n", Kind::read, Scope::all, "results to generate, 1 to 16; see below", "1", read_choices},
      {"temperature", Kind::read, Scope::all, "0 or more; 0 always takes the most probable token",
       "`--temp`, else the model's, else 0.8", read_number<&Options::temperature>},
      {"top_k", Kind::read, Scope::all, "chooses among so many tokens; 0 and -1: all",
       "`--top-k`, else the model's, else 40", read_top_k},
      {"top_p", Kind::read, Scope::all,
       "chooses among the fewest tokens that have this probability together",
       "`--top-p`, else the model's, else 0.95", read_number<&Options::top_p>},
      {"min_p", Kind::read, Scope::all,
       "chooses among tokens at least so many times as probable as the best",
       "`--min-p`, else the model's, else 0.05", read_number<&Options::min_p>},
      {"repeat_penalty", Kind::read, Scope::all,
       "makes the last 64 tokens of prompt and text less probable; 1: off",
       "`--repeat-penalty`, else the model's, else 1", read_number<&Options::repeat_penalty>},
      {"repetition_penalty", Kind::read, Scope::all,
       "the same for all tokens of prompt and text; it wins over `repeat_penalty`",
       "`repeat_penalty`", read_repetition_penalty},
      {"presence_penalty", Kind::read, Scope::all,
       "-2 to 2; taken from the logit of every token that was generated", "0",
       read_penalty<&Options::presence_penalty>},
      {"frequency_penalty", Kind::read, Scope::all,
       "-2 to 2; the same, as many times as the token was generated", "0",
       read_penalty<&Options::frequency_penalty>},
      {"logit_bias", Kind::read, Scope::all,
       "an object of token ids and what is added to their logits, -100 to 100; 512 at most", "none",
       read_logit_bias},
      {"seed", Kind::read, Scope::all, "of this row",
       "made from `--seed` (0) and the row's id, or its number", read_seed},
      {"stop", Kind::read, Scope::all, "a text, or an array of texts, before which the result ends",
       "`--stop`", read_stop},
      {"stop_token_ids", Kind::read, Scope::all,
       "an array of token ids before which the result ends; 64 at most", "none", read_stop_tokens},
      {"ignore_eos", Kind::read, Scope::all, "true: the end of the text is never chosen", "false",
       read_ignore_end},
      {"logprobs", Kind::read, Scope::all,
       "true: the result has the log probability of each token, as the model gave it before any "
       "setting; beside a `prompt` a number is the same with so many `top_logprobs`",
       "false", read_logprobs},
      {"top_logprobs", Kind::read, Scope::all,
       "the most probable tokens to tell beside each, 0 to 20", "0", read_top_logprobs},
      {"response_format", Kind::read, Scope::all,
       "`type`: `text`, `json_object`, or `json_schema` with `json_schema` `{\"schema\": ...}`; "
       "see "
       "[structured-output.md](structured-output.md)",
       "any text", read_response_format},
      {"grammar", Kind::read, Scope::all, "a grammar in GBNF that the text has to match", "none",
       read_grammar},
      {"prediction", Kind::read, Scope::all,
       "a text like the one that will come, as `{\"type\": \"content\", \"content\": ...}`: what "
       "it has in common with the result takes fewer steps, and the result stays the same",
       "none", read_prediction},
      {"guided_json", Kind::read, Scope::all, "a JSON Schema, as in older versions of vLLM", "none",
       read_guided_json},
      {"guided_grammar", Kind::read, Scope::all, "the same as `grammar`", "none", read_grammar},
      {"structured_outputs", Kind::read, Scope::all,
       "as vLLM has it: one of `json`, `grammar` and `json_object`", "none",
       read_structured_outputs},
  };
}

// Members that other servers support and sluice does not.
std::vector<RowSetting> limited_ones() {
  const auto limited = [](std::string_view name, std::string_view meaning, RowJson accepted) {
    return RowSetting{name, Kind::limited, Scope::all, meaning, "", nullptr, std::move(accepted)};
  };
  const RowJson none = RowJson::array();
  const RowJson only_false = {false}, only_true = {true};
  const RowJson only_one = RowJson::array({1});
  return {
      limited("add_generation_prompt", "a conversation to continue", only_true),
      limited("add_special_tokens", "a prompt without its first token", only_true),
      limited("allowed_token_ids", "a choice among some tokens", none),
      limited("audio", "speech", none),
      limited("bad_words", "texts that must not come", RowJson::array({RowJson::array()})),
      limited("best_of", "a choice among results", only_one),
      limited("chat_template", "another template", none),
      limited("continue_final_message", "a conversation to continue", only_false),
      limited("documents", "texts for the template", RowJson::array({RowJson::array()})),
      limited("early_stopping", "beam search", only_false),
      limited("echo", "the prompt in the result", only_false),
      limited("function_call", "the older form of `tool_choice`", {"auto", "none"}),
      limited("functions", "the older form of `tools`", RowJson::array({RowJson::array()})),
      limited("guided_choice", "text of a given form", none),
      limited("guided_decoding_backend", "text of a given form", none),
      limited("guided_regex", "text of a given form", none),
      limited("guided_whitespace_pattern", "text of a given form", none),
      limited("include_stop_str_in_output", "the stop text in the result", only_false),
      limited("length_penalty", "beam search", only_one),
      limited("modalities", "speech", RowJson::array({RowJson::array({"text"})})),
      limited("prompt_logprobs", "log probabilities of the prompt", none),
      limited("skip_special_tokens", "control tokens in the text", only_true),
      limited("spaces_between_special_tokens", "another way to write control tokens", only_true),
      limited("stream", "results in pieces", only_false),
      limited("stream_options", "results in pieces", none),
      limited("suffix", "a text after the result", {""}),
      limited("truncate_prompt_tokens", "a shorter prompt (see `--truncate`)", none),
      limited("use_beam_search", "beam search", only_false),
      limited("verbosity", "shorter or longer answers", {"medium"}),
      limited("web_search_options", "a search", none),
  };
}

std::vector<RowSetting> make_settings() {
  std::vector<RowSetting> table = read_ones();
  std::ranges::move(limited_ones(), std::back_inserter(table));
  for (const char* name : {"metadata", "priority", "prompt_cache_key", "prompt_cache_retention",
                           "safety_identifier", "service_tier", "store", "user"}) {
    table.push_back({name, Kind::ignored, Scope::all, ""});
  }
  return table;
}

bool is_in_scope(const RowSetting& setting, bool is_conversation) {
  if (setting.scope == Scope::all) return true;
  return is_conversation == (setting.scope == Scope::conversation);
}

void read_setting(const RowSetting& setting, const RowJson& value, bool is_conversation,
                  Request& request) {
  if (!is_in_scope(setting, is_conversation)) {
    if (value.is_structured() && value.empty()) return;
    const std::string_view here = is_conversation ? "messages" : "prompt";
    const std::string_view there = is_conversation ? "prompt" : "messages";
    throw BadRow(setting.name == there
                     ? fmt::format("\"{}\" cannot stand beside \"{}\"", there, here)
                     : fmt::format("\"{}\" is for rows with \"{}\"", setting.name, there));
  }
  if (setting.kind == Kind::limited &&
      std::ranges::find(setting.accepted, value) == setting.accepted.end()) {
    throw BadRow(fmt::format("\"{}\" is not supported{}", setting.name,
                             setting.accepted.empty()
                                 ? ""
                                 : fmt::format(", other than as {}", setting.accepted[0].dump())));
  }
  if (setting.read != nullptr) setting.read(value, setting.name, request);
}

}  // namespace

const RowJson& function_of(const RowJson& tool) {
  const auto inner = tool.find("function");
  return inner == tool.end() ? tool : *inner;
}

const std::vector<RowSetting>& row_settings() {
  static const std::vector<RowSetting> table = make_settings();
  return table;
}

void check_text_length(std::size_t bytes, std::string_view name) {
  if (bytes <= text_bytes_max) return;
  throw BadRow(fmt::format("\"{}\" has {} bytes, the most is {}", name, bytes, text_bytes_max));
}

// Reads in the order of the table, because some members depend on earlier ones.
void read_row_settings(const RowJson& settings, Form form, bool is_conversation, Request& request) {
  for (const auto& item : settings.items()) {
    const bool is_id = form == Form::plain && item.key() == "id";
    const bool is_known = std::ranges::any_of(row_settings(), [&](const RowSetting& setting) {
      return setting.name == std::string_view(item.key());
    });
    if (is_known || is_id) continue;
    throw BadRow(
        fmt::format("\"{}\" is no member that is known here", text::escaped(item.key(), 100)));
  }
  for (const RowSetting& setting : row_settings()) {
    const RowJson* value = find_member(settings, setting.name);
    if (value != nullptr) read_setting(setting, *value, is_conversation, request);
  }
}

std::string row_settings_markdown() {
  std::string read = "| member | meaning | where it is missing |\n| --- | --- | --- |\n";
  std::string limited = "| member | would ask for | accepted as |\n| --- | --- | --- |\n";
  std::string ignored;
  for (const RowSetting& setting : row_settings()) {
    if (setting.kind == Kind::read) {
      read += fmt::format("| `{}` | {} | {} |\n", setting.name, setting.meaning, setting.absent);
    } else if (setting.kind == Kind::limited) {
      std::string values = "`null`";
      for (const RowJson& value : setting.accepted) values += fmt::format(", `{}`", value.dump());
      limited += fmt::format("| `{}` | {} | {} |\n", setting.name, setting.meaning, values);
    } else {
      ignored += fmt::format("{}`{}`", ignored.empty() ? "" : ", ", setting.name);
    }
  }
  return fmt::format(
      "{}\nThese are accepted where they ask for nothing, and otherwise make the row an error:\n\n"
      "{}\nThese say nothing about the result and are passed over:\n{}.\n",
      read, limited, ignored);
}

}  // namespace sluice::rows
