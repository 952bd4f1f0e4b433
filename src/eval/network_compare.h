// Two networks run on the same inputs: how far their outputs are apart, and node by node where names agree.
//
// Thread rules: one call at a time for a session.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/network.h"
#include "base/result.h"

namespace bolide {

// Of numbers, computed in f64. NaN where the other one has NaN is equal, an infinity where the other one has the same.
struct ValueDifference {
  int64_t elements = 0;
  double max_abs = 0;      // infinite if one has a NaN or infinity that the other one lacks
  double relative_l2 = 0;  // |value - reference| / |reference|; 0 if both are zero; without what is not finite
  double cosine = 1;       // 1 if both are zero
  std::string unlike;      // why there are no numbers: other types or shapes, texts that are not equal
};
ValueDifference difference_of(const AnyValue& value, const AnyValue& reference);

struct ComparedValue {
  std::string name;  // of the output, or of the node, with ":1" for its second output ...
  std::string op;    // nodes: operators, with both if they are not the same
  std::string type;  // "f32[1, 3]"
  ValueDifference difference;
  double us = 0, reference_us = 0;  // nodes' first outputs
};

struct NetworkComparison {
  std::vector<ComparedValue> outputs, nodes;  // nodes in the order in which they ran
  int64_t nodes_only_here = 0, nodes_only_there = 0;
  double ms = 0, reference_ms = 0;  // of the runs that were compared; each follows one that was not
};

// Inputs in the order of network.inputs(); the reference's are found by name. All values of the reference's run are
// kept in memory until the end. kInvalid: the reference has another input, or no output of the same name.
Result<NetworkComparison> compare_networks(NetworkSession& network, NetworkSession& reference,
                                           const std::vector<AnyValue>& inputs);

}  // namespace bolide
