// ServedModels: the models that `bolide serve` was given: language models, each with its engine, and ONNX models, each
// with its queue.
//
// Thread rules: any thread may use the registry's functions; the others are the main thread's.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "app/model.h"
#include "server/served_model.h"
#include "server/served_network.h"

namespace bolide::cli {

struct ServedModelOptions {
  ModelOptions model;
  EngineOptions engine;
  server::ServedNetworkOptions network;
  std::string template_file;  // in place of the models' own chat templates
  int64_t drain_us = 30'000'000;
};

// "NAME=PATH", or PATH alone, whose last part without its ending becomes the name.
std::pair<std::string, std::string> split_model_argument(const std::string& argument);

class ServedModels final : public server::ModelRegistry {
 public:
  explicit ServedModels(const ServedModelOptions& options) : options_(options) {}
  ~ServedModels() override { stop(); }

  // Adds and loads one, with progress on standard error. Errors: the name is taken or no name; those of opening it.
  Result<> add(const std::string& argument);

  // Unloads it, as `unload` does, and forgets it.
  Result<> remove(std::string_view name);

  std::shared_ptr<const server::ServedModel> find(std::string_view name) const override;
  std::shared_ptr<const server::ServedNetwork> find_network(std::string_view name) const override;
  std::vector<server::ModelEntry> list() const override;
  Result<> load(std::string_view name) override;
  Result<> unload(std::string_view name) override;
  std::vector<server::DeviceMemory> device_memory() const override;

  // No model takes new requests.
  void drain();
  // Until nothing is left to answer, or the time is over. True: nothing is left.
  bool wait_idle(int64_t timeout_us);
  // Ends all engines and queues; what was still to be answered fails.
  void stop();
  // The same, but waits no longer than this. The models of which a step or run still goes on, and may for ever: who
  // waits for their answers has been told, but stop, and the end of this, wait for that step.
  std::vector<std::string> stop_within(int64_t timeout_us);

 private:
  struct Loaded;
  struct Entry {
    std::string name, path;
    std::shared_ptr<Loaded> loaded;             // null: it is not
    std::string state = "UNAVAILABLE", reason;  // unless it is there for requests
    bool busy = false;                          // is being loaded or unloaded
  };
  Result<std::shared_ptr<Loaded>> open(const std::string& name, const std::string& path) const;
  Result<std::shared_ptr<Loaded>> open_language_model(const std::string& name, const std::string& path) const;
  Result<> load_file(std::string_view name);  // errors name the file
  Entry* entry_of(std::string_view name);
  std::shared_ptr<Loaded> ready(std::string_view name) const;  // null: it is not, or there is none
  std::vector<std::shared_ptr<Loaded>> all() const;

  const ServedModelOptions options_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<Entry> entries_;
  bool draining_ = false;
};

}  // namespace bolide::cli
