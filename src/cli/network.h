// What the commands do with an ONNX model: run, bench, profile, inspect and compare.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/network.h"
#include "base/result.h"

namespace bolide::cli {

struct NetworkFlags {
  std::string path;
  std::vector<std::string> inputs;   // NAME=VALUE (network_input), or VALUE for a model of one input
  std::vector<std::string> shapes;   // NAME=1x3x224x224, or a shape for a model of one input
  std::vector<std::string> dims;     // NAME=N: a symbolic dim of the inputs
  std::vector<std::string> ranges;   // NAME=min,opt,max: three shapes (ShapeRange)
  std::vector<std::string> buckets;  // NAME=SIZE,SIZE,...: a symbolic dim (DimBuckets)
  std::string output;                // run: an .npz file
  int32_t threads = 0, batch = 0, repeat = 0;
  uint64_t seed = 0;
  std::string first_calls = {};  // bench: NAME=LOW:HIGH, a symbolic dim
  std::string by = "operator";   // profile: node or operator
  std::string skip_passes = {};  // names with commas between them
  std::string device = "auto", cuda_libs = {}, tuning_cache = {};
  std::string dtype = "auto";  // auto, f32 or bf16: what products of f32 are multiplied in; GPUs: f16 and tf32 too
  std::string isa = {};        // no instruction set above it; empty: the best there is
  int64_t memory_limit = 0;    // bytes; 0: what the system has
  bool graph = false;          // inspect: what each pass does
  bool plan = false;           // inspect: what runs each node, of what it is made, and the memory
  bool json = false;
};

// "f32[1,3]".
std::string shape_text(const AnyValue& value);

// The settings that the flags stand for. kInvalid: a dtype or level that networks do not have.
Result<NetworkSettings> network_settings(const NetworkFlags& flags);

// For a table's first column: the end of a long name, which tells it from others.
std::string shortened(std::string_view name);

// The model with what the flags say of it: opened, with its ranges, and warm at the largest of them.
Result<NetworkSession> open_network(const NetworkFlags& flags);

// Copies between host and GPU in the middle of the network's last run, their bytes and how long they took. Nothing of a
// network on the CPU.
void print_crossings(const NetworkSession& network);
nlohmann::ordered_json crossings_json(const NetworkSession& network);  // [{"node", "operator", "bytes_to_host", ...}]

// Values for all inputs: what was given, and where `fill` says so, or a shape was given, random ones for the rest.
Result<std::vector<AnyValue>> network_inputs(const NetworkSession& network, const NetworkFlags& flags, bool fill);

// Outputs to the file, or a summary of each to standard output.
Result<> run_network(const NetworkFlags& flags);
Result<> bench_network(const NetworkFlags& flags);
// Every size of a symbolic dim once, in random order, then again until its time is known: how many first calls are
// slower than they will be.
Result<> bench_first_calls(const NetworkFlags& flags);
Result<> profile_network(const NetworkFlags& flags);
Result<> inspect_network(const NetworkFlags& flags);

}  // namespace bolide::cli
