// What the commands do with an ONNX model: run, bench, profile, inspect and compare.
#pragma once

#include <string>
#include <vector>

#include "app/network.h"
#include "base/result.h"

namespace bolide::cli {

struct NetworkFlags {
  std::string path;
  std::vector<std::string> inputs;  // NAME=VALUE (network_input), or VALUE for a model of one input
  std::vector<std::string> shapes;  // NAME=1x3x224x224, or a shape for a model of one input
  std::string output;               // run: an .npz file
  int32_t threads = 0, batch = 0, repeat = 0;
  uint64_t seed = 0;
  std::string by = "operator";   // profile: node or operator
  std::string skip_passes = {};  // names with commas between them
  bool graph = false;            // inspect: what each pass does
  bool json = false;
};

// Values for all inputs: what was given, and where `fill` says so, or a shape was given, random ones for the rest.
Result<std::vector<AnyValue>> network_inputs(const NetworkSession& network, const NetworkFlags& flags, bool fill);

// Outputs to the file, or a summary of each to standard output.
Result<> run_network(const NetworkFlags& flags);
Result<> bench_network(const NetworkFlags& flags);
Result<> profile_network(const NetworkFlags& flags);
Result<> inspect_network(const NetworkFlags& flags);

}  // namespace bolide::cli
