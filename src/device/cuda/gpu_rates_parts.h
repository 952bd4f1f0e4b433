// What gpu_rates.cc asks of gpu_rates.cu.
#pragma once

#include <cstddef>

struct CUstream_st;

namespace bolide {

// Enqueues a kernel that reads all of `data`; `out` is 4 bytes of the device. A cudaError_t.
int gpu_read_all(CUstream_st* stream, const void* data, size_t bytes, void* out, int multiprocessors);

}  // namespace bolide
