// ServedModel: a language model that is loaded, as the server sees it; ModelRegistry: all models that there are.
//
// Thread rules: a ServedModel does not change and all of it may be used by any thread; so may a registry's functions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "formats/model_config.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace bolide::server {

struct ServedModel {
  std::string name;
  std::string format;   // "gguf", ...
  std::string device;   // "AMD EPYC ...", for people
  int64_t created = 0;  // when it was loaded: seconds since 1970
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat_template;
  GenerationConfig generation;
  std::vector<int32_t> stop_ids;  // all end-of-text ids
  int32_t context = 0;            // tokens of prompt and answer
  int64_t vocab = 0;
  int64_t weight_bytes = 0, cache_bytes = 0;
  std::shared_ptr<EngineClient> engine;
};

struct ServedNetwork;  // served_network.h

struct ModelEntry {
  std::string name;
  std::string state;   // "READY", "LOADING", "UNLOADING", "UNAVAILABLE", as Triton names them
  std::string reason;  // why it is not ready
};

// Of a GPU that models are on.
struct DeviceMemory {
  int index = 0;                            // of those that the driver shows
  std::string name;                         // "NVIDIA H200"
  int64_t used_bytes = 0, total_bytes = 0;  // by all processes
};

class ModelRegistry {
 public:
  virtual ~ModelRegistry() = default;
  // Null: there is no such language model, or it is not loaded.
  virtual std::shared_ptr<const ServedModel> find(std::string_view name) const = 0;
  // The same of ONNX models.
  virtual std::shared_ptr<const ServedNetwork> find_network(std::string_view name) const = 0;
  virtual std::vector<ModelEntry> list() const = 0;  // in the order in which they were named
  // Errors: kNotFound, no model of this name was named when the program started; those of opening a model.
  virtual Result<> load(std::string_view name) = 0;
  // What it has accepted is answered first. Errors: kNotFound; kDeadline: not within the time that draining may take.
  virtual Result<> unload(std::string_view name) = 0;
  // A row for each GPU that answers; none where models are on the processor alone.
  virtual std::vector<DeviceMemory> device_memory() const { return {}; }
};

}  // namespace bolide::server
