// Messages of KServe's service as typed values.
//
// What their readers would need much memory for is refused before they are read. Parameters that Bolide does not have
// are refused by name, as in REST.
//
// Thread rules: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/kserve_request.h"

namespace bolide::server {

// ModelInferRequest.
struct InferMessage {
  std::string model, version, id;
  bool empty_final = false;  // the stream's last response is to be one without outputs
  Result<InferRequest> request = InferRequest();
};
// Errors: these bytes are no such message.
Result<InferMessage> parse_infer_message(std::string_view bytes, const RequestLimits& limits);

// ModelReadyRequest, and those that are like it.
struct ModelNameMessage {
  std::string name, version;
};
Result<ModelNameMessage> parse_model_name_message(std::string_view bytes, const RequestLimits& limits);
// RepositoryIndexRequest: those alone that are ready.
Result<bool> parse_index_message(std::string_view bytes, const RequestLimits& limits);
// RepositoryModelLoadRequest, RepositoryModelUnloadRequest: the model's name.
Result<std::string> parse_change_message(std::string_view bytes, bool load, const RequestLimits& limits);
// HealthCheckRequest: of which service.
Result<std::string> parse_health_message(std::string_view bytes, const RequestLimits& limits);

}  // namespace bolide::server
