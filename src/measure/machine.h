// The roofs of this machine: how fast it can read memory and its level-2 cache, and do multiply-adds of each kind, with
// 1, 2, 4, ... threads. Kernels are judged as a share of these, measured here and now, not of data-sheet numbers.
//
// Thread rules: measure_machine uses the given pool's threads (from the pool's calling thread) and no other process
// should be busy; MachineRoofs is a plain value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu.h"
#include "base/workers.h"
#include "measure/statistics.h"

namespace bolide {

struct Roof {
  std::string name;    // "memory_read", "l2_read", "fp32", "bf16", "int8", "amx_bf16", "amx_int8"
  std::string unit;    // "GB/s" (1e9 bytes) or "Gop/s" (1e9 operations; a multiply-add is two)
  std::string method;  // the loop that was fastest: "avx512, 4 streams, prefetch 512 B ahead"
  int threads = 1;     // together
  Stat rate;
  // Samples in which all `threads` took part. 0: a busy neighbour kept some away, and the rate is that of fewer.
  int64_t full_samples = 0;
};

struct MachineRoofs {
  std::string cpu;           // describe(cpu)
  std::string fingerprint;   // fingerprint(cpu)
  int64_t memory_bytes = 0;  // size of the buffer behind memory_read
  std::vector<Roof> roofs;

  // Null if this machine has no such roof or it was not measured with that many threads.
  const Roof* find(std::string_view name, int threads) const;
  std::string to_json() const;
  std::string to_text() const;  // an aligned table
};

// `budget_s`: about how long it may take, buffer preparation (at most 4 GiB, at most a quarter of free memory) not
// included.
MachineRoofs measure_machine(Workers& workers, const CpuInfo& cpu, double budget_s = 2.5);

}  // namespace bolide
