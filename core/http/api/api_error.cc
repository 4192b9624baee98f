#include "core/http/api/api_error.h"

#include "core/rows/row_json.h"
#include "core/rows/task_maker.h"

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
      // 501 is of a request for what this model cannot do, 505 of one in another version of HTTP.
      return status < 500 || status == 501 || status == 505 ? "invalid_request_error"
                                                            : "server_error";
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
    case 409:
      return "conflict";
    case 413:
      return "too_large";
    case 429:
      return "rate_limit_exceeded";
    case 431:
      return "header_too_large";
    case 501:
      return "not_supported";
    case 503:
      return "unavailable";
    case 505:
      return "http_version_not_supported";
    case 507:
      return "insufficient_storage";
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
        {"param", error.status == 400 || error.status == 404 ? param_in(message) : ordered_json()},
        {"code", error.code.empty() ? code_of(error.status) : std::string_view(error.code)}}}};
  return rows::json_text(body);
}

ApiError refused(std::string_view code, const std::string& reason) {
  if (code == rows::cannot_run) return {500, reason};
  if (code == rows::model_not_found) return {404, reason, std::string(code)};
  return {400, reason, code == "prompt_too_long" ? "context_length_exceeded" : ""};
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
