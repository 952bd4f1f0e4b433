// Typed values as messages of KServe's service, and of health.
//
// Thread rules: pure functions.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "server/kserve_calls.h"
#include "server/kserve_models.h"

namespace bolide::server {

std::string ready_message(bool is_ready);  // of ServerLive, ServerReady and ModelReady
std::string server_metadata_message(std::string_view version);
std::string model_metadata_message(const ModelOutline& model);
std::string model_config_message(const ModelOutline& model);
std::string statistics_message(std::span<const NamedTotals> models);
std::string index_message(std::span<const ModelEntry> models);

enum class Health : uint8_t { kServing = 1, kNotServing = 2, kUnknownService = 3 };
std::string health_message(Health health);

// A status with a text: how a call ends that is refused.
HttpResponse grpc_refusal(int status, std::string_view what);
HttpResponse grpc_refusal(const Error& failure);

// Answers of ModelInfer: one message, or a status.
std::shared_ptr<const KserveDialect> infer_dialect();
// Of one request in ModelStreamInfer: messages, the last of which says so (triton_final_response), and failures in
// them. `empty_final`: the last has no outputs.
std::shared_ptr<const KserveDialect> stream_dialect(std::string id, bool empty_final);

}  // namespace bolide::server
