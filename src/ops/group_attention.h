// com.microsoft.GroupQueryAttention: what its inputs and attributes say, checked; for its row and what is prepared.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/op_def.h"

namespace bolide {

struct GroupCase {
  int64_t B = 0, S = 0, H = 0, G = 0, D = 0;
  int64_t buffer = 0, most = 0;  // rows of the given cache, and of the one made
  int64_t total = 0;             // the longest sequence, new tokens included
  bool packed = false, causal = true;
  int64_t window = -1;
  std::vector<int64_t> past;  // tokens in the cache, by sequence
};

Result<GroupCase> read_group_case(const RunContext& c);

// The input that output `i` of the op is a longer one of, and in whose memory it may be made; nullopt: there is none.
std::optional<size_t> group_attention_past(const OpDef& op, size_t i);

// Rotary embedding that the op does itself; null caches: none.
struct Rotary {
  const Tensor* cosines = nullptr;
  const Tensor* sines = nullptr;
  std::vector<int64_t> positions;  // [B, S]
};
Result<Rotary> read_rotary(const RunContext& c, const GroupCase& g);

}  // namespace bolide
