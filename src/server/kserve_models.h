// What KServe's protocol and Triton's extensions tell about models, as JSON: metadata, configuration, statistics, the
// repository.
//
// Thread rules: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/metrics.h"
#include "server/served_model.h"
#include "server/served_network.h"
#include "server/wishes.h"

namespace bolide::server {

// Every model has one.
constexpr std::string_view kModelVersion = "1";

// Either kind of model, as this protocol sees it.
struct ModelOutline {
  std::string name, platform;
  std::vector<TensorPort> inputs, outputs;
  bool streams = false;  // has generate_stream
};
// kNotFound, of a version that there is not.
Error no_version(std::string_view model, std::string_view version);
ModelOutline outline_of(const ServedModel& model);
ModelOutline outline_of(const ServedNetwork& network);

inline constexpr std::string_view kKserveExtensions[] = {
    "binary_tensor_data", "generate",  "model_configuration", "model_repository", "model_repository(unload_dependents)",
    "parameters",         "statistics"};
std::string server_metadata_json(std::string_view version);
std::string model_metadata_json(const ModelOutline& model);
std::string model_config_json(const ModelOutline& model);
struct NamedTotals {
  std::string name;
  ModelTotals totals;
};
std::string statistics_json(std::span<const NamedTotals> models);
std::string index_json(std::span<const ModelEntry> models);

// Bodies of the repository's routes, which may be empty. Errors: kUnsupported, a model's files or configuration are not
// taken from a client.
Result<bool> parse_index_request(std::string_view body, const RequestLimits& limits);  // those alone that are ready
Result<> check_change_request(std::string_view body, bool load, const RequestLimits& limits);
// One parameter of such a request.
Result<> check_change_parameter(std::string_view name, bool load);

}  // namespace bolide::server
