// What the schemas of a conversation's tools say about the values in a call.
//
// Nothing about the tools is taken for granted: what is no schema says nothing. So a walk through
// them never throws, and ends after a bounded number of visits.
//
// Threads: one.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace sluice::chat {

class ToolSchemas {
 public:
  // `tools` is the list of a conversation, or anything else for none. Must outlive this.
  explicit ToolSchemas(const nlohmann::ordered_json& tools) : tools_(tools) {}

  // Whether one of the tools has this name.
  bool has(std::string_view function) const { return find(function) != nullptr; }

  // The value of a parameter whose call has it without quotes. It stays a text where the schema
  // names the type of the value and a text is among what it allows; otherwise it becomes the JSON
  // that it is, or the boolean or null that it is in Python.
  nlohmann::ordered_json value_of(std::string_view function, std::string_view parameter,
                                  std::string_view text);

 private:
  using Json = nlohmann::ordered_json;
  const Json* find(std::string_view function) const;  // the definition of a tool
  void collect(const Json& schema, std::string_view parameter, int depth,
               std::vector<const Json*>& found);
  const Json* resolve(const Json& schema) const;  // what a "$ref" names, in `root_`
  bool allows(const Json& schema, const Json& value, int depth);
  bool may_visit(int depth);

  const Json& tools_;
  const Json* root_ = nullptr;  // the schema that references begin in
  std::size_t visits_left_ = 200'000;
};

}  // namespace sluice::chat
