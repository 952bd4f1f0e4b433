// ServedNetwork: an ONNX model that is loaded, as the server sees it.
//
// Thread rules: it does not change, and all of it may be used by any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/network.h"
#include "server/network_queue.h"

namespace bolide::server {

// A tensor that goes into a model, or comes out of it.
struct TensorPort {
  std::string name;
  DType dtype = DType::kNone;
  std::optional<std::vector<int64_t>> dims;  // -1: any size; none: of any rank
  // Of dims of any size: those of one name have one size in all inputs. Empty: it has none.
  std::vector<std::string> dim_names{};
};

struct ServedNetwork {
  std::string name;
  std::string device;   // for people
  int64_t created = 0;  // when it was loaded: seconds since 1970
  std::vector<TensorPort> inputs, outputs;
  Device* gpu = nullptr;                // that it runs on, which the queue's sessions have; null: the processor
  std::unique_ptr<NetworkQueue> queue;  // ends before the sessions do
};

// Tensors that clients can send and get: kUnsupported names an input or output of which that is untrue.
Result<std::vector<TensorPort>> tensor_ports(const std::vector<OnnxProgram::Port>& ports, std::string_view what);

struct ServedNetworkOptions {
  NetworkSettings settings;
  int sessions = 1;  // runs at once
  NetworkQueue::Options queue;
};
// Errors: those of opening a model, and of tensor_ports; they name the file.
Result<std::unique_ptr<ServedNetwork>> open_served_network(const std::string& name, const std::filesystem::path& path,
                                                           const ServedNetworkOptions& options);

}  // namespace bolide::server
