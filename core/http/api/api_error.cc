#include "core/http/api/api_error.h"

#include "core/rows/row_json.h"

namespace sluice::http {
namespace {

using nlohmann::ordered_json;

std::string_view type_of(unsigned status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 429:
      return "rate_limit_error";
    default:
      // 501 is of a request for what this model cannot do.
      return status < 500 || status == 501 ? "invalid_request_error" : "server_error";
  }
}

std::string_view code_of(unsigned status) {
  switch (status) {
    case 400:
      return "invalid_request";
    case 401:
      return "invalid_api_key";
    case 403:
      return "not_allowed";
    case 404:
      return "not_found";
    case 405:
      return "method_not_allowed";
    case 408:
      return "timeout";
    case 413:
      return "too_large";
    case 429:
      return "rate_limit_exceeded";
    case 501:
      return "not_supported";
    case 503:
      return "unavailable";
    default:
      return status < 500 ? "bad_request" : "internal_error";
  }
}

ordered_json param_in(std::string_view message) {
  if (!message.starts_with('"')) return nullptr;
  const std::size_t end = message.find('"', 1);
  if (end == std::string_view::npos) return nullptr;
  return message.substr(1, end - 1);
}

}  // namespace

std::string error_json(const ApiError& error) {
  const std::string_view message = error.what();
  const ordered_json body = {
      {"error",
       {{"message", message},
        {"type", type_of(error.status)},
        {"param", error.status == 400 ? param_in(message) : ordered_json()},
        {"code", error.code.empty() ? code_of(error.status) : std::string_view(error.code)}}}};
  return rows::json_text(body);
}

Response error_response(const ApiError& error) {
  Response response;
  response.status = error.status;
  response.body = error_json(error);
  if (error.retry_after_s) {
    response.fields.push_back({"Retry-After", std::to_string(*error.retry_after_s)});
  }
  if (error.status == 401) response.fields.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

}  // namespace sluice::http
