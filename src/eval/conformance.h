// The ONNX backend tests (onnx/backend/test/data): each case a model with inputs and the outputs that it must give.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/workers.h"
#include "device/device.h"

namespace bolide {

struct ConformanceCase {
  std::string kind, name;  // "node", "test_add"
  int64_t opset = 0;       // of ai.onnx, or of its other domain where it has only that
  std::vector<std::string> ops;
  enum class Outcome : uint8_t { kPassed, kFailed, kExcluded } outcome = Outcome::kFailed;
  std::string why;  // failed or excluded
  double seconds = 0;
  int on_gpu = 0;  // nodes that ran there, of the last set of inputs
};

struct ConformanceOptions {
  std::string filter;                 // only cases whose name contains it
  std::filesystem::path exclusions;   // a file of lines "CASE  reason"; empty: none
  std::set<std::string> skip_passes;  // as in NetworkOptions
  Device* gpu = nullptr;              // where nodes run that it has kernels for; null: all on the CPU
};

// All cases of a suite: a folder with node/, simple/ ... or one of those. Errors: no suite there, a broken file of
// exclusions, an exclusion that no case has.
Result<std::vector<ConformanceCase>> run_conformance(const std::filesystem::path& suite,
                                                     const ConformanceOptions& options, Workers& workers,
                                                     FunctionRef<void(size_t done, size_t all)> progress);

}  // namespace bolide
