#include "server/batch/batch_line.h"

#include <fmt/format.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>

#include "base/json_string.h"
#include "server/batch/json_fields.h"

namespace bolide::server {
namespace {

constexpr size_t kCustomIdBytesMax = 1024;
constexpr std::string_view kUrls[] = {"/v1/chat/completions", "/v1/completions"};

Result<std::string> required_text(const std::vector<JsonField>& fields, std::string_view name) {
  const std::string_view value = find_field(fields, name);
  if (value.empty()) return error(Code::kInvalid, fmt::format("{}: is required", name));
  auto text = json_text(value);
  if (!text) return error(Code::kInvalid, fmt::format("{}: must be a string", name));
  return *std::move(text);
}

Result<> check_names(const std::vector<JsonField>& fields) {
  constexpr std::string_view kNames[] = {"custom_id", "method", "url", "body"};
  std::array<bool, std::size(kNames)> found{};
  for (const JsonField& field : fields) {
    const auto* const name = std::find(std::begin(kNames), std::end(kNames), field.name);
    if (name == std::end(kNames))
      return error(Code::kUnsupported,
                   fmt::format("{:.64}: a line has custom_id, method, url and body, and nothing else", field.name));
    bool& seen = found.at(static_cast<size_t>(name - std::begin(kNames)));
    if (seen) return error(Code::kInvalid, fmt::format("{}: is there twice", field.name));
    seen = true;
  }
  return {};
}

Result<std::string> custom_id_of(const std::vector<JsonField>& fields) {
  BOLIDE_TRY(std::string id, required_text(fields, "custom_id"));
  if (id.empty() || id.size() > kCustomIdBytesMax)
    return error(Code::kInvalid,
                 fmt::format("custom_id: has {} bytes, must have 1 to {}", id.size(), kCustomIdBytesMax));
  return id;
}

// Made of the custom_id alone, so that it is the same however often the batch was begun anew.
std::string number_of(std::string_view custom_id) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(custom_id.data()), custom_id.size(), digest.data());
  std::string number;
  for (size_t i = 0; i < 12; ++i) number += fmt::format("{:02x}", digest.at(i));
  return number;
}

// {code, message} of a response that is no answer.
std::string error_of(const HttpResponse& response) {
  std::string code = json_string(fmt::format("http_{}", response.status)), message = json_string("the request failed");
  if (const auto body = object_fields(response.body)) {
    if (const auto fields = object_fields(find_field(*body, "error"))) {
      if (const std::string_view value = find_field(*fields, "code"); !value.empty()) code = value;
      if (const std::string_view value = find_field(*fields, "message"); !value.empty()) message = value;
    }
  }
  return fmt::format(R"({{"code":{},"message":{}}})", code, message);
}

}  // namespace

Result<BatchLine> parse_batch_line(std::string_view line) {
  BOLIDE_TRY(const std::vector<JsonField> fields, json_fields(line));
  BOLIDE_TRY(check_names(fields));
  BatchLine parsed;
  BOLIDE_TRY(parsed.custom_id, custom_id_of(fields));
  BOLIDE_TRY(const std::string method, required_text(fields, "method"));
  if (method != "POST") return error(Code::kUnsupported, fmt::format("method: is \"{:.64}\", must be POST", method));
  BOLIDE_TRY(parsed.url, required_text(fields, "url"));
  if (std::find(std::begin(kUrls), std::end(kUrls), parsed.url) == std::end(kUrls))
    return error(Code::kUnsupported,
                 fmt::format("url: is \"{:.64}\"; a batch has {}", parsed.url, fmt::join(kUrls, " and ")));
  const std::string_view body = find_field(fields, "body");
  if (body.empty()) return error(Code::kInvalid, "body: is required");
  const auto of_body = object_fields(body);
  if (!of_body) return error(Code::kInvalid, "body: must be a JSON object");
  if (find_field(*of_body, "stream") == "true")
    return error(Code::kUnsupported, "body.stream: the answers of a batch are whole; leave it out");
  parsed.model = json_text(find_field(*of_body, "model")).value_or("");
  parsed.body = body;
  return parsed;
}

std::string write_answer_line(const std::string& custom_id, const HttpResponse& response) {
  const std::string number = number_of(custom_id);
  return fmt::format(
      R"({}{}","custom_id":{},"response":{{"status_code":{},"request_id":"req_{}","body":{}}},"error":{}}})"
      "\n",
      kAnswerLineBegin, number, json_string(custom_id), response.status, number, response.body,
      response.status == 200 ? "null" : error_of(response));
}

Result<BatchAnswer> parse_answer_line(std::string_view line) {
  BOLIDE_TRY(const std::vector<JsonField> fields, json_fields(line));
  BatchAnswer answer;
  BOLIDE_TRY(answer.custom_id, custom_id_of(fields));
  const std::string_view response = find_field(fields, "response"), failure = find_field(fields, "error");
  if (response.empty()) return error(Code::kInvalid, "response: is required");
  answer.answered = response != "null" && (failure.empty() || failure == "null");
  return answer;
}

}  // namespace bolide::server
