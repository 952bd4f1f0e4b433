// How a .cu file tells a stream that is watched what it launches: plain data, no link to anything.
#pragma once

#include <cstdint>

namespace bolide {

struct CudaLaunch {
  const void* kernel = nullptr;  // the function's address on the host
  int64_t blocks = 0;
  int threads = 0;
  int cluster = 1;
  uint64_t dynamic_shared_bytes = 0;
};

struct LaunchWatch {
  void (*see)(void* to, const CudaLaunch& launch) = nullptr;
  void* to = nullptr;
};

}  // namespace bolide
